/** What the names of variables say of them. */

/** Names that arrive in no command because a shell on the way sets or drops them (seen in dash 0.5 and bash 5.2). */
export const shellNames =
  /^(IFS|OPTIND|PWD|OLDPWD|PS[124]|UID|EUID|PPID|SHELLOPTS|SHLVL|RANDOM|SRANDOM|LINENO|SECONDS|GROUPS|DIRSTACK|FUNCNAME|EPOCHSECONDS|EPOCHREALTIME|HISTCMD|COMP_WORDBREAKS|_|BASH|BASHOPTS|BASHPID|BASH_(?!ENV$).*)$/;

/** A name that says that its value is a secret, although it was given as an ordinary variable. */
const SECRET_NAME = /(SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY)/i;
/** Shorter values are words, not secrets: a `TOKEN=yes` is not to eat every yes. */
const SECRET_BYTES = 8;

/** Whether a variable holds a secret. @param named names that do, whatever they say */
export const holdsSecret = (name: string, value: string, named: readonly string[] = []): boolean =>
  (SECRET_NAME.test(name) || named.includes(name)) && new TextEncoder().encode(value).length >= SECRET_BYTES;
