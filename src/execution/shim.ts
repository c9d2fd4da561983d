/**
 * The shim: one `sh` per attempt that takes the ticket, starts the command, waits for it and records its end. It runs
 * without us, so its text is written to the runs folder once and never changed under a running one (its name holds its
 * digest).
 *
 * Arguments: FOLDER CWD STDIN UMASK CGROUP REAPER OUTPUT COMMAND ARGS...; `-` stands for "none" in CGROUP and REAPER, and
 * `in:CGROUP` says that the shim was born there.
 * Its variables are named DROVER_X_..., which no environment of a target can hold: a shell exports what it imported, so
 * an assignment to `d` would change the command's `d`.
 */
export interface ShimTraits {
  /** Whether there is a /proc to take identity and uptime from. */
  readonly proc: boolean;
  /** Absolute paths of the two programs of `output: "pipe"`. */
  readonly cat: string;
  readonly mkfifo: string;
}

/** The shim's text for this platform. Lines of `run` are documented in `attempt-folder.ts`. */
export function shimText({ proc, cat, mkfifo }: ShimTraits): string {
  const identity = proc ? `read -r DROVER_X_S </proc/self/stat` : `DROVER_X_S=$$`;
  const command = proc
    ? `read -r DROVER_X_S DROVER_X_T </proc/self/stat; echo "cmd $DROVER_X_S $DROVER_X_T" >&3`
    : `echo "cmd -" >&3`;
  const uptime = proc ? `read -r DROVER_X_T DROVER_X_U </proc/uptime` : `DROVER_X_T=-`;
  return `DROVER_X_D=$1 DROVER_X_W=$2 DROVER_X_I=$3 DROVER_X_M=$4 DROVER_X_G=$5 DROVER_X_R=$6 DROVER_X_O=$7
shift 7; umask 077
# A handler and not '': ignored signals are inherited by the command, handled ones are not.
trap : HUP INT QUIT TERM USR1 USR2 ALRM PIPE XCPU XFSZ
set -C
${identity}; echo "$DROVER_X_S" >"$DROVER_X_D/id" || exit 125
case $DROVER_X_G in -) ;; in:*) DROVER_X_G=\${DROVER_X_G#in:} ;; *) echo 0 >|"$DROVER_X_G/cgroup.procs" || DROVER_X_G=- ;; esac
if [ "$DROVER_X_O" = pipe ]; then ${mkfifo} "$DROVER_X_D/out.pipe" "$DROVER_X_D/err.pipe" || exit 125; fi
: >"$DROVER_X_D/run" || exit 125
# For append: a plain descriptor would overwrite what another one appended.
exec 3>>"$DROVER_X_D/run" || exit 125
set +C
echo go >&3 || exit 125
[ "$DROVER_X_G" = - ] || echo "group $DROVER_X_G" >&3
[ "$DROVER_X_R" = - ] || echo "reaper $DROVER_X_R" >&3
DROVER_X_1="$DROVER_X_D/out" DROVER_X_2="$DROVER_X_D/err"
if [ "$DROVER_X_O" = pipe ]; then
  DROVER_X_1="$DROVER_X_D/out.pipe" DROVER_X_2="$DROVER_X_D/err.pipe"
  # Held open for both directions: nobody blocks in open, and each cat sees the end when the last writer is gone.
  exec 4<>"$DROVER_X_1" 5<>"$DROVER_X_2"
  (trap '' HUP INT QUIT TERM; exec ${cat} <"$DROVER_X_1" >>"$DROVER_X_D/out" 2>/dev/null 3>&- 4>&- 5>&-) &
  DROVER_X_T=$!
  (trap '' HUP INT QUIT TERM; exec ${cat} <"$DROVER_X_2" >>"$DROVER_X_D/err" 2>/dev/null 3>&- 4>&- 5>&-) &
  echo "readers $DROVER_X_T $!" >&3
fi
( trap 'echo noexec >>"$DROVER_X_D/run"' EXIT
  cd -- "$DROVER_X_W" || { trap - EXIT; echo nocwd >&3; exit 125; }
  unset OLDPWD
  case $1 in */*) [ -f "$1" ] && [ -x "$1" ];; *) command -v "$1" >/dev/null;; esac || {
    trap - EXIT; case $1 in */*) [ -e "$1" ] && { echo noexec >&3; exit 126; };; esac; echo nocmd >&3; exit 127; }
  ${command}
  exec <"$DROVER_X_I" >>"$DROVER_X_1" 2>>"$DROVER_X_2" || exit 126
  umask "$DROVER_X_M"
  exec "$@" 3>&- 4>&- 5>&- )
DROVER_X_S=$?; ${uptime}; echo "exit $DROVER_X_S $DROVER_X_T" >&3
if [ "$DROVER_X_O" = pipe ]; then exec 4>&- 5>&-; wait; wait; fi
# As subreaper it inherited what the command left behind. It stays, stopped, so that those stay findable until the sweep.
# That it has no child is read in one step: then nothing of the tree lives.
DROVER_X_T=; case $DROVER_X_R in -) set -- ;; *)
  if [ -r /proc/$$/task/$$/children ]; then read -r DROVER_X_T </proc/$$/task/$$/children; set -- $DROVER_X_T; echo "left $#" >&3; else set --; fi
esac
echo "\${DROVER_X_D##*/}" >>"\${DROVER_X_D%/*}/bells"
[ $# = 0 ] || kill -STOP $$
exit 0
`;
}

/** A word that a shell reads back as these very bytes; NUL cannot be said and is refused before. */
export const quote = (word: string): string => `'${word.replaceAll("'", "'\\''")}'`;

/** Everything the resident spawner is told about one attempt. */
export interface ShimRequest {
  readonly environment: Readonly<Record<string, string>>;
  /** The shim's path and its arguments, the command included. */
  readonly argv: readonly string[];
}

/**
 * One request to a resident `sh -s`. All of it is inside one \`{ ...; }\`, so that a request cut short by our death is a
 * syntax error; without the braces the cut command would run with fewer arguments. Prefix assignments live in that one
 * child only.
 * @param launcher shell words that detach the shim: `setsid -f`
 */
export function requestText(launcher: string, shell: string, { environment, argv }: ShimRequest): string {
  const assignments = Object.entries(environment).map(([name, value]) => `${name}=${quote(value)}`);
  return `{ ${[...assignments, launcher, quote(shell), ...argv.map(quote)].join(" ")} </dev/null >/dev/null 2>&1; }\n`;
}

/** First line to every resident shell: descriptors that the daemon inherited would pass through to every attempt. */
export const RESIDENT_PRELUDE = "exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-\n";

/**
 * Arguments of bash that close every inherited descriptor and then become the resident process. dash can name those up to
 * 9 only, and Node closes none that it did not open itself.
 */
export const CLOSE_ALL = [
  "-c",
  'for f in /proc/self/fd/* /dev/fd/*; do f=${f##*/}; case $f in [0-2] | *[!0-9]*) ;; *) eval "exec $f>&-" ;; esac; done; exec "$@"',
  "bash",
];

/**
 * The lean Node child, for systems without `setsid -f`: a line of JSON per attempt. It leaves when its input ends.
 * Costs 44 to 48 MiB resident against 1.8 MiB of the shell.
 */
export const NODE_RESIDENT = `
const { spawn } = require("node:child_process");
let rest = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (text) => {
  const lines = (rest + text).split("\\n");
  rest = lines.pop();
  for (const line of lines) {
    const { shell, environment, argv } = JSON.parse(line);
    const child = spawn(shell, argv, { cwd: "/", env: environment, detached: true, stdio: "ignore" });
    child.on("error", () => {});
    child.unref();
  }
});
process.stdin.on("error", () => process.exit(0));
`;

/** How a list of processes shows the perl process. */
export const RESIDENT_TITLE = "drover-resident";

/** System call numbers where we know them. */
const CALLS: Readonly<Record<string, { readonly setsid: number; readonly prctl: number; readonly clone3: number }>> = {
  "linux-x64": { setsid: 112, prctl: 157, clone3: 435 },
  "linux-arm64": { setsid: 157, prctl: 167, clone3: 435 },
};

/** Word of a request that names the cgroup: the shell, the shim's file and four arguments are before it. */
const CGROUP_WORD = 6;

/**
 * The perl process: a frame per attempt, as `requestFrame` makes it. It forks, makes a session and becomes the shim. On
 * Linux the shim is born in its cgroup (clone3 with CLONE_INTO_CGROUP, 0x200000000, since 5.7): one that moves there by itself
 * makes the kernel wait for all its processors, for 7 to 21 ms on a machine at rest, and with it every start behind it. And it
 * is a child subreaper (PR_SET_CHILD_SUBREAPER is 36), so that whatever runs away from the command becomes the shim's child;
 * word 6 of the shim's arguments says whether that worked. What the last frame lacks when its writer dies is not started. It
 * leaves when its input ends, and when it cannot fork, so that another one is asked.
 */
export function perlResident(platform: string, arch: string): string {
  const calls = CALLS[`${platform}-${arch}`];
  const detach =
    calls === undefined
      ? "POSIX::setsid();"
      : `syscall(${calls.setsid}); $argv[7] = "yes" if syscall(${calls.prctl}, 36, 1, 0, 0, 0) == 0;`;
  const born =
    calls === undefined
      ? "fork"
      : `if ($_[0] ne "-" && sysopen my $place, $_[0], 0) {
    my $how = eval { pack "Q11", 0x200000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, fileno $place };
    my $pid = defined $how ? syscall(${calls.clone3}, $how, 88) : -1;
    if ($pid >= 0) { $_[0] = "in:$_[0]"; return $pid; }
  }
  fork`;
  return String.raw`${calls === undefined ? "use POSIX (); " : ""}
sub take { my ($want) = @_; my $got = ""; while (length $got < $want) { my $read = sysread STDIN, $got, $want - length $got, length $got; next if !defined $read && $!{EINTR}; exit if !$read; } $got }
sub born { ${born} }
$0 = "${RESIDENT_TITLE}";
$SIG{CHLD} = sub { 1 while waitpid(-1, 1) > 0 };
for (;;) {
  my ($size, $variables) = unpack "NN", take(8);
  my @words = split /\0/, take($size), -1;
  my $pid = born($words[2 * $variables + ${CGROUP_WORD}]); exit 1 if !defined $pid; next if $pid;
  $SIG{CHLD} = "DEFAULT";
  %ENV = splice @words, 0, 2 * $variables;
  my @argv = @words;
  ${detach}
  open STDIN, "<", "/dev/null";
  exec { $argv[0] } @argv; exit 127;
}
`;
}

/** A request to the perl process: the length of what follows and the number of variables as numbers of 4 bytes, then names, values and words with a NUL between them. */
export function requestFrame(shell: string, { environment, argv }: ShimRequest): Buffer {
  const variables = Object.entries(environment);
  const body = Buffer.from([...variables.flat(), shell, ...argv].join("\0"));
  const head = Buffer.alloc(8);
  head.writeUInt32BE(body.length, 0);
  head.writeUInt32BE(variables.length, 4);
  return Buffer.concat([head, body]);
}
