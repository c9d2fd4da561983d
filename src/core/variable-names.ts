/** Names that arrive in no command because a shell on the way sets or drops them (seen in dash 0.5 and bash 5.2). */
export const shellNames =
  /^(IFS|OPTIND|PWD|OLDPWD|PS[124]|UID|EUID|PPID|SHELLOPTS|SHLVL|RANDOM|SRANDOM|LINENO|SECONDS|GROUPS|DIRSTACK|FUNCNAME|EPOCHSECONDS|EPOCHREALTIME|HISTCMD|COMP_WORDBREAKS|_|BASH|BASHOPTS|BASHPID|BASH_(?!ENV$).*)$/;
