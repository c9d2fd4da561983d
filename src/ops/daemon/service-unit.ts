/** A systemd user unit: its text, and reading it back. */
import { basename } from "node:path";
import type { ServicePlan } from "./service-plan.ts";
import { type ReadServiceFile, signatureOf, signed } from "./service-file.ts";

/** Characters that systemd takes in no path of a program, however they are escaped. */
const UNFIT_PROGRAM = /["'\\]/;

/** A word in double quotes, as systemd reads it: backslashes and quotes escaped, `%` doubled. `$` stays: see `:`. */
const quoted = (word: string): string => `"${word.replaceAll(/["\\]/g, "\\$&").replaceAll("%", "%%")}"`;

/** The unit's text. */
export function unitText(plan: ServicePlan): string {
  const { node, args, env, stopLimitMs, restartMs } = plan;
  // A program whose path systemd refuses is found by `env`, which becomes it: the process stays the same.
  const words = UNFIT_PROGRAM.test(node) ? ["/usr/bin/env", "--", node, ...args] : [node, ...args];
  const seconds = (ms: number): string => String(Math.ceil(ms / 1_000));
  return signed(
    `[Unit]
Description=drover${plan.name === "drover" ? "" : ` (${plan.name.slice("drover-".length)})`}
# It is started again for as long as it takes: what is wrong may mend itself, such as a disk that is full.
StartLimitIntervalSec=0

[Service]
# Up is what answers, which \`drover daemon install\` and \`up\` look at; systemd only has to know that it was started.
Type=exec
# The colon keeps systemd from reading \`$\` in the words.
ExecStart=:${words.map(quoted).join(" ")}
${Object.entries(env)
  .map(([name, value]) => `Environment=${quoted(`${name}=${value}`)}`)
  .join("\n")}
WorkingDirectory=/
# Runs outlive the daemon: only the daemon itself is told to stop, and the next one goes on with them.
KillMode=process
# A run that the kernel ends for want of memory fails alone.
OOMPolicy=continue
# Longer than the daemon takes to go down by itself.
TimeoutStopSec=${seconds(stopLimitMs)}
Restart=always
RestartSec=${seconds(restartMs)}
# \`drover down\` ends with 0, and is not undone. 130 is how the daemon ends when it was told by a signal.
RestartPreventExitStatus=0
SuccessExitStatus=130
# A cgroup for each attempt, by which it can be proved that nothing is left of it.
Delegate=yes
# What runs counts as this service's: limits are drover's own, and the user's.
TasksMax=infinity

[Install]
WantedBy=default.target
`,
    (text) => `# ${text}`,
  );
}

/** Reads a unit, ours or not, as far as its command and variables go. */
export function readUnit(text: string): ReadServiceFile {
  const lines = text.split("\n");
  const value = (key: string): string[] =>
    lines.filter((line) => line.startsWith(`${key}=`)).map((line) => line.slice(key.length + 1));
  const words = splitWords((value("ExecStart").at(-1) ?? "").replace(/^[-@:+!]+/, ""));
  const env: Record<string, string> = {};
  for (const pair of value("Environment").flatMap(splitWords)) {
    const at = pair.indexOf("=");
    if (at > 0) env[pair.slice(0, at)] = pair.slice(at + 1);
  }
  const direct = words[0] === "/usr/bin/env" && words[1] === "--" ? words.slice(2) : words;
  return { ...signatureOf(text), words: direct, env };
}

/** Words as systemd separates them, with quotes, backslashes and doubled `%` undone. */
function splitWords(text: string): string[] {
  const words: string[] = [];
  for (const [part] of text.matchAll(/(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"'\\]|\\.)+/g))
    words.push(
      part
        .replaceAll(
          /"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'/g,
          (_whole, double?: string, single?: string) => double ?? single ?? "",
        )
        .replaceAll(/\\(.)/g, "$1")
        .replaceAll("%%", "%"),
    );
  return words;
}

/** The file of a unit in its folder. */
export const unitFile = (folder: string, name: string): string => `${folder}/${basename(name)}.service`;
