/** The service that starts the daemon, for people. */
import type { ServiceFinding, ServiceState } from "../../ops/service-state.ts";
import type { Screen } from "../screen.ts";
import { inertLine } from "../text.ts";
import { facts, painted, status } from "./words.ts";

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
        ["service", `not installed (it would be ${service.file})`],
      ],
      screen,
    );
  const enabled = service.enabled === null ? "not known whether enabled" : service.enabled ? "enabled" : "not enabled";
  return (
    facts(
      [
        ["daemon", daemonLine],
        ["service", `${service.name} (${service.kind}), ${enabled}, ${service.state ?? "state not known"}`],
        ["file", `${service.file}${service.ours ? (service.edited ? " (changed by hand)" : "") : " (not drover's)"}`],
        ["starts", service.program === null ? "-" : `${service.program}, with ${service.node}`],
        ["PATH", service.path],
        ["linger", lingerWords(service.linger)],
      ],
      screen,
    ) + serviceFindings(service.findings, screen)
  );
}
