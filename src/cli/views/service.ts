/** The service that starts the daemon, for people. */
import type { Warning } from "../../ops/documents.ts";
import type { InstallAnswer } from "../../ops/daemon/install-service.ts";
import type { ReadLine } from "../../ops/daemon/daemon-log-read.ts";
import type { ServiceFinding, ServiceState } from "../../ops/daemon/service-state.ts";
import type { Screen } from "../screen.ts";
import { inertLine } from "../text.ts";
import { facts, painted, plural, status, time, warnings } from "./words.ts";

const MARKS = { problem: "bad", warning: "warn", note: "dim" } as const;

/** One finding a line, and its command below it. */
export function serviceFindings(found: readonly ServiceFinding[], screen: Screen): string {
  return found
    .map(({ level, message, hint }) => {
      const mark = screen[MARKS[level]](level);
      return `${mark}: ${inertLine(message)}\n  ${screen.dim(inertLine(hint))}\n`;
    })
    .join("");
}

/** Whether a user's services outlive the last session, and the command for it. */
export function lingerWords(linger: ServiceState["linger"]): string | null {
  if (linger === null) return null;
  if (linger === "on") return "on: it runs also while you are logged out";
  const what =
    linger === "off" ? "off: it ends with your last session" : "not known: without it, it ends with your last session";
  return `${what} (loginctl enable-linger)`;
}

export function serviceStatus(
  answer: {
    readonly service: ServiceState | null;
    readonly daemon: {
      readonly state: string;
      readonly pid: number | null;
      readonly version: string | null;
      readonly service: string | null;
    };
  },
  screen: Screen,
): string {
  const { service, daemon } = answer;
  const by = daemon.service === null ? "started by hand" : `started by the service ${daemon.service}`;
  const about = [daemon.pid === null ? null : `pid ${daemon.pid}`, daemon.version, daemon.state === "up" ? by : null];
  const shown = about.filter((part) => part !== null).join(", ");
  const daemonLine = `${painted(status(daemon.state, screen))}${shown === "" ? "" : ` (${shown})`}`;
  if (service === null)
    return facts(
      [
        ["daemon", daemonLine],
        ["service", "this system has no service manager that drover knows"],
      ],
      screen,
    );
  if (!service.installed)
    return facts(
      [
        ["daemon", daemonLine],
        ["service", `not installed (it would be ${inertLine(service.file)})`],
      ],
      screen,
    );
  const enabled = service.enabled === null ? "not known whether enabled" : service.enabled ? "enabled" : "not enabled";
  return (
    facts(
      [
        ["daemon", daemonLine],
        ["service", `${service.name} (${service.kind}), ${enabled}, ${service.state ?? "state not known"}`],
        [
          "file",
          `${inertLine(service.file)}${service.ours ? (service.edited ? " (changed by hand)" : "") : " (not drover's)"}`,
        ],
        ["starts", service.program === null ? "-" : inertLine(`${service.program}, with ${service.node}`)],
        ["PATH", inertLine(service.path ?? "")],
        ["linger", lingerWords(service.linger)],
      ],
      screen,
    ) + serviceFindings(service.findings, screen)
  );
}

const CHANGES = {
  created: ["would be written", "is written"],
  replaced: ["would be written anew", "is written anew"],
  unchanged: ["is as it has to be", "is as it has to be"],
} as const;

/** Findings that the rest of the answer says. */
const SAID: ReadonlySet<string> = new Set([
  "service_linger_off",
  "service_unreachable",
  "service_not_enabled",
  "service_stopped",
]);

export function installed(answer: InstallAnswer, screen: Screen): string {
  const { change, dryRun, file, text, path, agents, pid, started, selfTest, service } = answer;
  const lines = [`${inertLine(file)} ${CHANGES[change][dryRun ? 0 : 1]}\n`];
  if (dryRun) lines.push(`\n${text.split("\n").map(inertLine).join("\n")}\n`);
  const width = Math.max(0, ...agents.map(({ program }) => program.length));
  lines.push(
    facts(
      [
        ["PATH", inertLine(path)],
        ...agents.map(({ program, file: at }): [string, string] => [
          program.padEnd(width),
          inertLine(at ?? "not found on this PATH"),
        ]),
        ["linger", lingerWords(service?.linger ?? null)],
      ],
      screen,
    ),
  );
  lines.push(warnings(answer.warnings, screen));
  if (!dryRun) lines.push(serviceFindings(service?.findings.filter(({ code }) => !SAID.has(code)) ?? [], screen));
  if (pid !== null) lines.push(`${started ? "started" : "it is up already"} (pid ${pid})\n`);
  else if (!dryRun && service?.active !== true)
    lines.push("It starts by itself, and now, with: drover daemon install --enable\n");
  if (selfTest !== null)
    lines.push(`${selfTest.ok ? screen.good("ok") : screen.bad("failed")}: ${inertLine(selfTest.message)}\n`);
  return lines.join("");
}

export function uninstalled(
  answer: {
    readonly removed: boolean;
    readonly file: string;
    readonly stopped: boolean;
    readonly left: number | null;
    readonly warnings: readonly Warning[];
  },
  screen: Screen,
): string {
  if (!answer.removed) return `no service is installed: ${inertLine(answer.file)} is not there\n`;
  const left = answer.left === null || answer.left === 0 ? "" : `; ${plural(answer.left, "run goes", "runs go")} on`;
  const what = answer.stopped ? "the service is stopped and removed" : "the service is removed";
  return `${what}${left}\n${warnings(answer.warnings, screen)}`;
}

const LEVELS = { debug: "dim", info: "dim", warn: "warn", error: "bad" } as const;

/** A line of the daemon's log: when, how bad, what, and with what. */
export function logLine(line: ReadLine, screen: Screen): string {
  if (!("event" in line)) return `${inertLine(line.text)}\n`;
  const { at, level, event, data, repeated, until } = line;
  const paint = screen[LEVELS[level] ?? "dim"];
  const values = Object.entries(data ?? {}).map(([key, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    // A stack keeps its lines.
    if (text.includes("\n"))
      return `${key}:\n${text
        .split("\n")
        .map((one) => `    ${inertLine(one)}`)
        .join("\n")}`;
    return `${key}=${inertLine(/\s/.test(text) ? JSON.stringify(text) : text)}`;
  });
  const again = repeated === undefined ? "" : ` ... ${repeated} more until ${time(until ?? at)}`;
  return `${screen.dim(time(at))} ${paint(inertLine(level).padEnd(5))} ${inertLine(event)}${again}${values.map((one) => ` ${one}`).join("")}\n`;
}

export const logLines = ({ items }: { readonly items: readonly ReadLine[] }, screen: Screen): string =>
  items.map((line) => logLine(line, screen)).join("");
