/** What an attempt's end means: evidence in, outcome out. The same for the running daemon, for recovery and for the simulator. */
import type { AgentVerdict } from "../core/agent.ts";
import { unreachable } from "../core/errors.ts";
import type { Instant, Judgement } from "../core/ports.ts";
import { type EndedBy, type FailureClass, type Outcome, traceless } from "../core/run.ts";

/** Why we end an attempt. `lateMs`: by how much a limit had passed before anybody could enforce it. */
export interface EndWish {
  readonly by: Exclude<EndedBy, "self">;
  readonly message: string;
  /** It was recorded by a daemon that is gone: nobody knows whether it still sent its signals. */
  readonly inherited: boolean;
  /** What it is a failure of; absent: what `by` says. */
  readonly class?: FailureClass;
}

/** What became of the wish: what was found when the tree was ended. */
export interface Ending {
  readonly wish: EndWish;
  /** Wall-clock instant before the first signal. */
  readonly signalledAt: Instant;
  /** Processes that had to be signalled. */
  readonly killed: number;
}

export interface Evidence {
  readonly judgement: Exclude<Judgement, { kind: "asked" } | { kind: "live" }>;
  /** null when nobody but itself ended it. */
  readonly ending: Ending | null;
  /** Processes of its tree that could not be ended. */
  readonly left: number;
  /** Why the output that the process handed over is none; null when it is one, or there is none. */
  readonly outputFault: string | null;
  /** The first expectation that does not hold. */
  readonly unmet: string | null;
  /** What was to be started, and where: told when it could not be. */
  readonly program: string;
  readonly cwd: string;
  /** Of an agent: its program is the work's own, as a command is; absent: it is its provider's. */
  readonly isOwnProgram?: boolean;
}

export type Verdict = Pick<Outcome, "kind" | "class" | "endedBy" | "exitStatus" | "signal" | "message" | "programAway">;

/** Statuses that our own signals leave by the shell's convention: INT, KILL, TERM. */
const OURS: ReadonlySet<number> = new Set([130, 137, 143]);

/**
 * Whether it ended because of us. What had ended by itself did not time out, and a signal that we sent after it had ended
 * changes nothing; a status that only a signal leaves is ours whatever the files' clock says, which lags by some milliseconds.
 */
function endedByUs(judgement: Extract<Judgement, { kind: "ended" }>, ending: Ending): boolean {
  if (OURS.has(judgement.exit)) return ending.killed > 0 || ending.wish.inherited;
  if (ending.wish.inherited) return false;
  return ending.killed > 0 && judgement.endedAt >= ending.signalledAt;
}

/** Status and class of an attempt whose end is certain. */
export function classify(evidence: Evidence): Verdict {
  return withLeft(judged(evidence), evidence.left);
}

function withLeft(verdict: Verdict, left: number): Verdict {
  if (left === 0) return verdict;
  const words = `${left} of its processes could not be ended`;
  return { ...verdict, message: verdict.message === null ? words : `${verdict.message}; ${words}` };
}

/** Whether a signal of ours ended it, as far as anybody can know. */
export function isOurs({ judgement, ending }: Pick<Evidence, "judgement" | "ending">): boolean {
  if (ending === null) return false;
  if (judgement.kind === "ended") return judgement.fault === undefined && endedByUs(judgement, ending);
  return judgement.kind === "orphan" || (judgement.kind === "lost" && judgement.why === "exit_unknown");
}

function judged({ judgement, ending, outputFault, unmet, program, cwd }: Evidence): Verdict {
  const self = { endedBy: "self", exitStatus: null, signal: null } as const;
  switch (judgement.kind) {
    case "never_started": {
      const full = /\bspace\b/.test(judgement.why);
      return {
        ...self,
        kind: "never_started",
        class: full ? "storage" : "lost",
        endedBy: ending?.wish.by ?? "self",
        message: judgement.why,
      };
    }
    case "orphan":
      return ending !== null
        ? endedFor(ending, null)
        : { ...self, kind: "lost", class: "lost", message: "its shim died, so nobody knows how it ended" };
    case "lost":
      // We ended its tree, so why it is over is known, only its status is not.
      if (ending !== null && judgement.why === "exit_unknown") return endedFor(ending, null);
      return {
        ...self,
        kind: "lost",
        class: "lost",
        endedBy: ending?.wish.by ?? "self",
        message: lostWords[judgement.why],
      };
    case "ended": {
      if (judgement.fault !== undefined)
        return {
          ...self,
          kind: "failed",
          class: "not_found",
          exitStatus: judgement.exit,
          message: faultWords[judgement.fault](program, cwd),
        };
      if (ending !== null && endedByUs(judgement, ending)) return endedFor(ending, judgement.exit);
      if (judgement.outOfMemory === true)
        return {
          ...self,
          kind: "failed",
          class: "oom",
          exitStatus: judgement.exit,
          signal: 9,
          message: "the kernel ended it for want of memory",
        };
      return byItself(judgement.exit, outputFault, unmet);
    }
    default:
      return unreachable(judgement);
  }
}

/**
 * The same for an agent, whose events decide: no exit status is a success, and a signal of ours that came after its
 * closing event changes nothing. @param closed the closing event is there, and was there before we began to end it
 */
export function classifyAgent(evidence: Evidence, said: AgentVerdict, closed: boolean): Verdict {
  return withLeft(judgedAgent(evidence, said, closed), evidence.left);
}

function judgedAgent(evidence: Evidence, said: AgentVerdict, closed: boolean): Verdict {
  const base = judged(evidence);
  const { judgement, ending, outputFault, unmet } = evidence;
  if (judgement.kind === "never_started") return base;
  // The program was there a moment before: one that is just being replaced comes back.
  if (judgement.kind === "ended" && judgement.fault !== undefined)
    return judgement.fault === "nocwd" || evidence.isOwnProgram === true
      ? base
      : { ...base, class: "spawn", programAway: true };
  const ours = isOurs(evidence);
  // Without its closing event nobody knows more than that: what ended it is all there is.
  if ((ours || judgement.kind !== "ended" || base.class === "oom") && !closed) return base;
  const { exitStatus, signal } = base;
  const how = { endedBy: ours && ending !== null ? ending.wish.by : "self", exitStatus, signal } as const;
  if (!said.ok)
    return { ...how, kind: "failed", class: said.class ?? "unknown", message: said.message ?? base.message };
  if (outputFault !== null) return { ...how, kind: "failed", class: "output_invalid", message: outputFault };
  if (unmet !== null) return { ...how, kind: "failed", class: "check_failed", message: unmet };
  const message = ours && ending !== null ? `forced exit: ${ending.wish.message}` : null;
  return { ...how, kind: "succeeded", class: null, message };
}

function byItself(exit: number, outputFault: string | null, unmet: string | null): Verdict {
  const self = { endedBy: "self", exitStatus: exit, signal: null } as const;
  if (exit === 0) {
    if (outputFault !== null) return { ...self, kind: "failed", class: "output_invalid", message: outputFault };
    if (unmet !== null) return { ...self, kind: "failed", class: "check_failed", message: unmet };
    return { ...self, kind: "succeeded", class: null, message: null };
  }
  if (exit > 128 && exit < 193) {
    const signal = exit - 128;
    return {
      ...self,
      kind: "failed",
      class: "signal",
      signal,
      message: `ended with status ${exit}, by convention signal ${signal}`,
    };
  }
  return { ...self, kind: "failed", class: "exit", message: `exited with status ${exit}` };
}

/** It ended because we ended it. */
function endedFor({ wish }: Ending, exit: number | null): Verdict {
  const signal = exit !== null && exit > 128 && exit < 193 ? exit - 128 : null;
  const how = { endedBy: wish.by, exitStatus: exit, signal, message: wish.message } as const;
  if (wish.class !== undefined) return { ...how, kind: "failed", class: wish.class };
  switch (wish.by) {
    case "timeout":
      return { ...how, kind: "timed_out", class: "timeout" };
    case "idle":
      return { ...how, kind: "timed_out", class: "idle_timeout" };
    case "cancel":
      return { ...how, kind: "cancelled", class: "cancelled" };
    // Without the closing event for which it was begun nobody knows what the work came to: it is done again.
    case "exit_timer":
    case "stop":
    case "fence":
      return { ...how, kind: "stopped", class: "cancelled" };
    default:
      return unreachable(wish.by);
  }
}

type Fault = NonNullable<Extract<Judgement, { kind: "ended" }>["fault"]>;

const faultWords: { readonly [F in Fault]: (program: string, cwd: string) => string } = {
  nocwd: (_, cwd) => `the working directory does not exist or cannot be entered: ${cwd}`,
  nocmd: (program) =>
    program.includes("/")
      ? `the command was not found: there is no ${program}`
      : `the command was not found: ${program} is not on the PATH of the daemon`,
  noexec: (program) => `the command cannot be executed: ${program}`,
};

const lostWords = {
  host_restarted: "the host was restarted before its end was recorded",
  folder_vanished: "its folder was deleted, and its record with it",
  exit_unknown: "its shim died, so nobody knows how it ended",
} as const;

/** Class of an attempt that could not even be prepared, by the code of its error. */
export function classOfPreparation(code: string): FailureClass {
  switch (code) {
    case "env_invalid":
    case "secret_unresolved":
      return "env_invalid";
    case "agent_refused":
    case "agent_untested":
    case "prompt_gone":
      return "env_invalid";
    case "workspace":
      return "workspace";
    case "no_space":
    case "disk_full":
      return "storage";
    default:
      return "spawn";
  }
}

/** What nobody ended and nothing is known of. Each outcome begins with it: the digest of a receipt is of the order of its keys. */
export const nothing: Omit<Outcome, "kind" | "class" | "message"> = { ...traceless, endedBy: "self" };

/** What an attempt comes to that was to end before it began. */
export const notBegun = (wish: EndWish): Outcome => ({
  ...nothing,
  kind: wish.by === "cancel" ? "cancelled" : "stopped",
  class: "cancelled",
  endedBy: wish.by,
  message: wish.message,
});
