/** How the installed service stands: a pure judgement of what was seen, which `daemon status`, `doctor` and `up` share. */
import type { Linger, ServiceKind, ServiceLook } from "../../core/service.ts";
import type { ReadServiceFile } from "./service-file.ts";
import type { ServicePlan } from "./service-plan.ts";

/** What was seen of the service of this state folder. */
export interface ServiceFacts {
  readonly kind: ServiceKind;
  readonly name: string;
  /** Where its file is, or would be. */
  readonly file: string;
  /** What the file holds; null where there is none. */
  readonly found: ReadServiceFile | null;
  /** Words of its command that are absolute paths of files, and are not there. */
  readonly missing: readonly string[];
  /** What `daemon install` would have the service start now; null where that cannot be told. */
  readonly plan: ServicePlan | null;
  /** Whether its file is what this version writes for the same words and variables. */
  readonly current: boolean;
  readonly look: ServiceLook;
  /** The daemon of this state folder: whether one is up, and the service that started it. */
  readonly daemon: { readonly pid: number; readonly service: string | null } | null;
}

export interface ServiceFinding {
  /** Stable, in snake_case. */
  readonly code: ServiceCode;
  readonly level: "problem" | "warning" | "note";
  readonly message: string;
  /** The command that mends it, or what to do. */
  readonly hint: string;
}

/** Every code of a finding about the service, with what it means. */
export const SERVICE_CODES = {
  service_program_moved: "the service starts a Node or a drover that is not there any more",
  service_failed: "the service has failed, or is started again and again",
  service_foreign: "the service's file was not written by drover",
  service_stale: "the service's file was changed, and the manager has not read it",
  service_other_program: "the service starts another installation than this one",
  service_other_store: "the service's daemon has another store than this command",
  service_beside: "a daemon is up that the service did not start",
  service_stopped: "the service is installed and enabled, and does not run",
  service_not_enabled: "the service is installed, and does not start by itself",
  service_unreachable: "the service manager cannot be asked",
  service_path_differs: "the service's PATH lacks folders that this one has",
  service_edited: "the service's file was changed by hand",
  service_outdated: "the service's file is not what this version writes",
  service_linger_off: "the service ends with the last session",
} as const;

export type ServiceCode = keyof typeof SERVICE_CODES;

export interface ServiceState {
  readonly kind: ServiceKind;
  readonly name: string;
  readonly file: string;
  readonly installed: boolean;
  /** Whether drover wrote its file, and whether somebody changed it since. */
  readonly ours: boolean;
  readonly edited: boolean;
  /** null where the manager cannot be asked. */
  readonly enabled: boolean | null;
  readonly state: ServiceLook["state"] | null;
  readonly active: boolean | null;
  readonly pid: number | null;
  /** Node and drover as the service starts them. */
  readonly node: string | null;
  readonly program: string | null;
  readonly path: string | null;
  readonly programMoved: boolean;
  readonly otherProgram: boolean;
  /** Folders of this PATH that the service's lacks. */
  readonly pathLacks: readonly string[];
  readonly linger: Linger | null;
  /** Worst first. */
  readonly findings: readonly ServiceFinding[];
}

/** Once may be a kill; so many times is a fault. */
const OFTEN = 3;
const AGAIN = "drover daemon install --enable";

/** Judges it. Nothing is a finding where no service is installed. */
export function serviceStateOf(facts: ServiceFacts): ServiceState {
  const { kind, name, file, found, missing, plan, current, look, daemon } = facts;
  const installed = found !== null;
  const words = found?.words ?? [];
  const program = words.find((word, nth) => nth > 0 && word.startsWith("/")) ?? null;
  const path = found?.env["PATH"] ?? null;
  const lacks =
    plan === null || path === null
      ? []
      : (plan.env["PATH"] ?? "").split(":").filter((folder) => !path.split(":").includes(folder));
  const otherProgram =
    installed && missing.length === 0 && plan !== null && program !== null && program !== plan.program;
  const asked = look.fault === null;
  const findings: ServiceFinding[] = [];
  const say = (level: ServiceFinding["level"], code: ServiceCode, message: string, hint: string): void => {
    findings.push({ code, level, message, hint });
  };

  if (found !== null) {
    const log = kind === "systemd" ? `journalctl --user --unit ${name}` : "drover daemon logs";
    if (!found.ours)
      say(
        "warning",
        "service_foreign",
        `${file} was not written by drover`,
        `${AGAIN} --replace puts drover's in its place.`,
      );
    if (missing.length > 0)
      say("problem", "service_program_moved", `the service starts ${missing.join(" and ")}, which is not there`, AGAIN);
    else if (otherProgram && found.ours)
      say(
        "warning",
        "service_other_program",
        `the service starts ${program}, and this is ${plan.program}`,
        `${AGAIN} has it start this one.`,
      );
    const stores = [plan?.env["DROVER_STORE"] ?? null, found.env["DROVER_STORE"] ?? null];
    if (plan !== null && found.ours && stores[0] !== stores[1])
      say(
        "warning",
        "service_other_store",
        `DROVER_STORE is ${stores[0] ?? "not set"} here, and ${stores[1] ?? "not set"} in the service`,
        `${AGAIN} has the service use this one's.`,
      );
    if (!asked)
      say(
        "warning",
        "service_unreachable",
        `the service manager cannot be asked: ${look.fault}`,
        kind === "systemd"
          ? "It needs a session of yours, or lingering: loginctl enable-linger"
          : "It needs a session of yours at the machine.",
      );
    else {
      if (missing.length > 0) {
        // Said above: everything else follows from it.
      } else if (look.state === "failed" || (look.state === "waiting" && look.restarts >= OFTEN))
        say(
          "problem",
          "service_failed",
          look.state === "failed"
            ? `the service has failed${look.result === null ? "" : ` (${look.result})`}`
            : `the service ends each time it is started (${look.restarts} times so far${look.result === null ? "" : `, ${look.result}`})`,
          `What it said: ${log}`,
        );
      else if (daemon !== null && daemon.service !== name)
        say(
          "warning",
          "service_beside",
          `a daemon is up (pid ${daemon.pid}) that the service did not start: it does not come back when it dies`,
          "drover down && drover up; what runs goes on meanwhile",
        );
      else if (look.state === "inactive" && look.enabled && daemon === null)
        say("warning", "service_stopped", "the service is installed, and does not run", "drover up");
      if (look.stale)
        say(
          "warning",
          "service_stale",
          `${file} was changed, and the manager has not read it`,
          "systemctl --user daemon-reload",
        );
      if (!look.enabled) say("note", "service_not_enabled", "the service does not start by itself", AGAIN);
      if (look.linger === "off")
        say("note", "service_linger_off", "the service ends with your last session", "loginctl enable-linger");
    }
    if (lacks.length > 0 && found.ours)
      say(
        "note",
        "service_path_differs",
        `the service's PATH lacks ${lacks.join(", ")}`,
        `${AGAIN} puts this PATH into it.`,
      );
    if (found.edited)
      say(
        "note",
        "service_edited",
        `${file} was changed by hand`,
        kind === "systemd"
          ? `Changes that stay: systemctl --user edit ${name}. Anew: ${AGAIN} --replace`
          : `Anew: ${AGAIN} --replace`,
      );
    else if (found.ours && !current) say("note", "service_outdated", `${file} is not what this version writes`, AGAIN);
  }
  const order = { problem: 0, warning: 1, note: 2 };
  return {
    kind,
    name,
    file,
    installed,
    ours: found?.ours ?? false,
    edited: found?.edited ?? false,
    enabled: asked ? look.enabled : null,
    state: asked ? look.state : null,
    active: asked ? look.state === "active" : null,
    pid: look.pid,
    node: words[0] ?? null,
    program,
    path,
    programMoved: missing.length > 0,
    otherProgram,
    pathLacks: lacks,
    linger: look.linger,
    findings: findings.toSorted((a, b) => order[a.level] - order[b.level]),
  };
}
