/** The state machine of runs, steps and attempts: tables as values, decisions as pure functions. Status words live here and in the store's SQL, nowhere else. */
import type { AgentOutcome } from "./agent.ts";
import { stableFraction } from "./chance.ts";
import { ensure } from "./errors.ts";
import type { Escape } from "./escape.ts";
import { doublingsTo, pauseMs } from "./limit-end.ts";
import type { Limits } from "./limits.ts";
import type { RunPolicy } from "./loop.ts";
import type { Instant } from "./ports.ts";

export const runStatuses = [
  "queued",
  "running",
  "waiting",
  "succeeded",
  "failed",
  "timed_out",
  "cancelled",
  "skipped",
] as const;
export type RunStatus = (typeof runStatuses)[number];
export const stepStatuses = ["pending", "ready", ...runStatuses] as const;
export type StepStatus = (typeof stepStatuses)[number];
export const attemptStatuses = [
  "reserved",
  "starting",
  "running",
  "succeeded",
  "failed",
  "timed_out",
  "cancelled",
  "lost",
  "fenced",
] as const;
export type AttemptStatus = (typeof attemptStatuses)[number];

export const finalStatuses = ["succeeded", "failed", "timed_out", "cancelled", "skipped"] as const;
export type FinalStatus = (typeof finalStatuses)[number];
export const isFinal = (status: RunStatus | StepStatus): status is FinalStatus =>
  (finalStatuses as readonly string[]).includes(status);
export const isLiveAttempt = (status: AttemptStatus): boolean =>
  status === "reserved" || status === "starting" || status === "running";

/** Why something failed. Closed: a new one needs an answer everywhere. */
export const failureClasses = [
  "exit",
  "signal",
  "oom",
  "timeout",
  "idle_timeout",
  "cancelled",
  "superseded",
  "not_found",
  "spawn",
  "workspace",
  "env_invalid",
  "no_result",
  "output_invalid",
  "check_failed",
  "refused",
  "rate_limited",
  "quota",
  "auth",
  "overloaded",
  "network",
  "context",
  "turn_limit",
  "budget",
  "protocol",
  "crash_loop",
  "lost",
  "storage",
  "unknown",
] as const;
export type FailureClass = (typeof failureClasses)[number];

/** Who or what ended an attempt. `exit_timer`: an agent that had said its result and did not exit; `stop`: we went down. */
export const endedBy = ["self", "timeout", "idle", "exit_timer", "cancel", "stop", "fence"] as const;
export type EndedBy = (typeof endedBy)[number];

/** Why a step waits for a time or for a person; `timer`: its start was put off. Closed: `why` has a sentence for each. */
export const waitReasons = ["retry", "timer", "disk", "limit", "account", "capacity", "program"] as const;
export type WaitReason = (typeof waitReasons)[number];
/** Why a step is not in the queue yet: earlier runs of its loop have not ended, its loop is paused, or its definition is about to be asked. */
export const heldReasons = ["turn", "paused", "judge"] as const;
export type HeldReason = (typeof heldReasons)[number];

export type AttemptEvent = "start" | "run" | "adopt" | "succeed" | "fail" | "time_out" | "cancel" | "lose" | "fence";

const ends = {
  succeed: "succeeded",
  fail: "failed",
  time_out: "timed_out",
  cancel: "cancelled",
  lose: "lost",
  fence: "fenced",
} as const;

/** What is not listed is refused; terminal states list nothing. */
export const attemptTable: { readonly [S in AttemptStatus]: { readonly [E in AttemptEvent]?: AttemptStatus } } = {
  reserved: { start: "starting", fail: "failed", cancel: "cancelled", lose: "lost", fence: "fenced" },
  starting: { run: "running", adopt: "starting", ...ends },
  running: { adopt: "running", ...ends },
  succeeded: {},
  failed: {},
  timed_out: {},
  cancelled: {},
  lost: {},
  fenced: {},
};

export type StepEvent =
  | "unblock"
  | "grant"
  | "return"
  | "wait"
  | "wake"
  | "succeed"
  | "fail"
  | "time_out"
  | "cancel"
  | "skip"
  | "hold"
  | "ask";

/** `return` gives a granted step back to the queue; `hold` takes a ready one out of it again; `ask` has its definition asked whether it starts. */
export const stepTable: { readonly [S in StepStatus]: { readonly [E in StepEvent]?: StepStatus } } = {
  pending: {
    unblock: "ready",
    ask: "pending",
    succeed: "succeeded",
    fail: "failed",
    cancel: "cancelled",
    skip: "skipped",
  },
  ready: { grant: "running", hold: "pending", wait: "waiting", fail: "failed", cancel: "cancelled", skip: "skipped" },
  queued: {},
  running: {
    return: "ready",
    wait: "waiting",
    succeed: "succeeded",
    fail: "failed",
    time_out: "timed_out",
    cancel: "cancelled",
    skip: "skipped",
  },
  waiting: {
    wake: "ready",
    ask: "pending",
    fail: "failed",
    time_out: "timed_out",
    cancel: "cancelled",
    skip: "skipped",
  },
  succeeded: {},
  failed: {},
  timed_out: {},
  cancelled: {},
  skipped: {},
};

/** What a step's `if` reads: it has `none`, it reads something (`plain`), or it `asks` how the needs ended. */
export type Condition = "none" | "plain" | "asks";

/** What of a step its run's status is told by. */
export interface StepStanding {
  readonly status: StepStatus;
  /** Absent: no. */
  readonly continueOnFailure?: boolean;
  /** Absent or null: it is of no definition. */
  readonly condition?: Condition | null;
}

/** Whether a run fails because of the end of this step. */
export const failsRun = ({ status, continueOnFailure }: StepStanding): boolean =>
  (status === "failed" || status === "timed_out") && continueOnFailure !== true;

/** The status of a run that its steps add up to; what a run adds of its own is only its end. */
export function runStatusOf(steps: readonly StepStanding[]): RunStatus {
  const has = (status: StepStatus) => steps.some((step) => step.status === status);
  if (has("running")) return "running";
  if (has("ready")) return "queued";
  if (has("waiting")) return "waiting";
  if (has("pending")) return "queued";
  for (const end of ["failed", "timed_out"] as const)
    if (steps.some((step) => step.status === end && failsRun(step))) return end;
  for (const end of ["cancelled", "succeeded"] as const) if (has(end)) return end;
  const [first] = steps;
  ensure(first !== undefined, "a run has at least one step");
  // A workflow of which nothing had to be done, or nothing that counts, did what it is for.
  return (first.condition ?? null) === null ? "skipped" : "succeeded";
}

/** Live runs: by status, and `forPerson`, those of the last two that nothing but a person lets go on. */
export interface LiveCounts {
  readonly running: number;
  readonly queued: number;
  readonly waiting: number;
  readonly forPerson: number;
}

/** How many runs a daemon can still do something for. */
export const leftToRun = ({ running, queued, waiting, forPerson }: LiveCounts): number =>
  running + queued + waiting - forPerson;

/** How an attempt ended, as its host saw it. */
export interface Outcome {
  readonly kind:
    | "succeeded"
    | "failed"
    | "timed_out"
    | "cancelled"
    /** It may have run, its end is not known. */
    | "lost"
    /** It has not run and never will under this token. */
    | "never_started"
    /** We ended it on our own account, on the way down. */
    | "stopped"
    /** A gate said that what stands behind it is not to be done. */
    | "blocked";
  readonly class: FailureClass | null;
  readonly endedBy: EndedBy;
  readonly exitStatus: number | null;
  /** The signal that a status above 128 stands for by the shell's convention. */
  readonly signal: number | null;
  /** One line for people. */
  readonly message: string | null;
  /** JSON text. */
  readonly output: string | null;
  readonly tail: string | null;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  /** Processes that were left behind and had to be ended. */
  readonly reaped: number;
  readonly proof: "proved_empty" | "not_proved" | null;
  /** Taken from the attempt's files; null when it did not start. */
  readonly startedAt: Instant | null;
  readonly endedAt: Instant | null;
  /** Of an agent; absent or null for a command. */
  readonly agent?: AgentOutcome | null;
  /** What changed in the checkout that its worktree was made from; absent: nothing, or nobody looked. */
  readonly escaped?: Escape;
  /** The ends of both outputs, scrubbed, of a step that others may read; absent: nobody does. */
  readonly tails?: { readonly stdout: string; readonly stderr: string };
  /** It has not run because the agent's program is not there, or does not say its version; absent: that is not why it ended. */
  readonly programAway?: true;
}

/** What an attempt shows that left nothing behind. */
export const traceless: Omit<Outcome, "kind" | "class" | "message" | "endedBy"> = {
  exitStatus: null,
  signal: null,
  output: null,
  tail: null,
  stdoutBytes: 0,
  stderrBytes: 0,
  reaped: 0,
  proof: null,
  startedAt: null,
  endedAt: null,
};

/** What is known of a step when one of its attempts ends. */
export interface StepView {
  readonly stepId: string;
  readonly triesCounted: number;
  readonly maxAttempts: number;
  /** Ends in a row that used up no try because nothing had started. */
  readonly idleEnds: number;
  /** Losses in a row that used up no try although it had started; absent: none. */
  readonly lostEnds?: number;
  readonly attemptNumber: number;
  /** When the row of starts began that found no program, this one included; absent: it begins now. */
  readonly awaySince?: Instant | undefined;
  /** When the hold that this end put on its account is over, null when a person has to end it; absent: no hold. */
  readonly heldUntil?: Instant | null | undefined;
  /** It is an agent's, and a session is known with which the next attempt goes on. */
  readonly hasSession?: boolean;
  /** A person or an overlap asked for the end of the run. */
  readonly cancelRequested: { readonly reason: string; readonly superseded: boolean } | null;
}

export interface AttemptEnd {
  readonly attempt: { readonly event: AttemptEvent; readonly class: FailureClass | null; readonly counted: boolean };
  readonly step: StepCounts &
    (
      | { readonly event: "return" }
      | {
          readonly event: "wait";
          readonly reason: Exclude<WaitReason, "timer">;
          /** null: a person's release of the account wakes it. */
          readonly wakeAt: Instant | null;
        }
      | { readonly event: "succeed" | "fail" | "time_out" | "cancel" | "skip"; readonly reason: string | null }
    );
}

/** What a step counts from here on; `lostEnds` absent is 0. */
interface StepCounts {
  readonly triesCounted: number;
  readonly idleEnds: number;
  readonly lostEnds?: number;
}

/** Ends that are weather, not the work's fault. */
const UNCOUNTED: ReadonlySet<FailureClass> = new Set([
  "rate_limited",
  "quota",
  "auth",
  "overloaded",
  "spawn",
  "storage",
]);
/** No further try can change these. */
const FUTILE: ReadonlySet<FailureClass> = new Set(["env_invalid"]);

/**
 * What an attempt's end means for its step: settled, another try after a pause, or back to the queue.
 * The same function serves the daemon, recovery and the simulator.
 */
export function endAttempt(
  view: StepView,
  outcome: Outcome,
  policy: RunPolicy,
  limits: Limits,
  now: Instant,
): AttemptEnd {
  const { triesCounted, idleEnds } = view;
  /** What says nothing about the work does not end a row of losses. */
  const sameLosses = view.lostEnds === undefined || view.lostEnds === 0 ? {} : { lostEnds: view.lostEnds };
  const cancelled = view.cancelRequested;
  const cancelReason = cancelled?.superseded ? "superseded" : (cancelled?.reason ?? "cancelled");

  const key = `${view.stepId}:${view.attemptNumber}`;
  const retryAt = (tries: number) => now + backoffMs(policy.backoffMs, tries, limits.backoffCapMs, key);
  /** Another try after a pause that doubles with each end in a row that used up none. */
  const waitUncounted = (why: FailureClass, tries: number, idle: number): AttemptEnd["step"] => {
    const common = { event: "wait", triesCounted: tries, idleEnds: idle } as const;
    if (view.heldUntil !== undefined)
      return { ...common, reason: view.heldUntil === null ? "account" : "limit", wakeAt: view.heldUntil };
    if (why === "overloaded") {
      const wakeAt = now + pauseMs(limits.throttleBackoffMs, idle, limits.throttleBackoffCapMs, key);
      return { ...common, reason: "capacity", wakeAt };
    }
    const wakeAt = now + backoffMs(limits.uncountedBackoffMs, idle, limits.uncountedBackoffCapMs, key);
    return { ...common, reason: why === "storage" ? "disk" : "retry", wakeAt };
  };

  if (outcome.programAway === true && cancelled === null) {
    // One that is just being replaced comes back (B-120), one that is not does not: time tells, however often that was.
    const goneAt = (view.awaySince ?? now) + limits.programAwayMs;
    const idle = idleEnds + 1;
    if (now >= goneAt)
      return {
        attempt: { event: "fail", class: "not_found", counted: true },
        step: { event: "fail", reason: "not_found", triesCounted: triesCounted + 1, idleEnds: idle },
      };
    const wakeAt = now + backoffMs(limits.uncountedBackoffMs, idle, limits.uncountedBackoffCapMs, key);
    return {
      attempt: { event: "fail", class: "spawn", counted: false },
      step: {
        event: "wait",
        reason: "program",
        wakeAt: Math.min(wakeAt, goneAt),
        triesCounted,
        idleEnds: idle,
        ...sameLosses,
      },
    };
  }

  switch (outcome.kind) {
    case "succeeded":
      // Work that ended well before our signal reached it ended well; a cancel that came too late changes nothing.
      return {
        attempt: { event: "succeed", class: null, counted: true },
        step: { event: "succeed", reason: null, triesCounted: triesCounted + 1, idleEnds: 0 },
      };

    case "blocked":
      return {
        attempt: { event: "succeed", class: null, counted: true },
        step: { event: "skip", reason: "blocked", triesCounted: triesCounted + 1, idleEnds: 0 },
      };

    case "cancelled":
      return {
        attempt: { event: "cancel", class: cancelled?.superseded ? "superseded" : "cancelled", counted: false },
        step: { event: "cancel", reason: cancelReason, triesCounted, idleEnds },
      };

    case "stopped":
      if (cancelled)
        return {
          attempt: { event: "cancel", class: "cancelled", counted: false },
          step: { event: "cancel", reason: cancelReason, triesCounted, idleEnds },
        };
      return {
        attempt: { event: "cancel", class: "cancelled", counted: false },
        step: { event: "return", triesCounted, idleEnds, ...sameLosses },
      };

    case "never_started": {
      const why = outcome.class ?? "lost";
      // Whatever kept it from starting is known, so nobody has to wonder whether it ran.
      const attempt = { event: why === "lost" ? "lose" : "fail", class: why, counted: false } as const;
      if (cancelled)
        return {
          attempt: { event: "cancel", class: "cancelled", counted: false },
          step: { event: "cancel", reason: cancelReason, triesCounted, idleEnds },
        };
      if (FUTILE.has(why))
        return {
          attempt: { event: "fail", class: why, counted: true },
          step: { event: "fail", reason: why, triesCounted: triesCounted + 1, idleEnds },
        };
      const idle = idleEnds + 1;
      if (why !== "storage" && idle >= limits.crashLoopEnds)
        return { attempt, step: { event: "fail", reason: "crash_loop", triesCounted, idleEnds: idle } };
      return { attempt, step: { ...waitUncounted(why, triesCounted, idle), ...sameLosses } };
    }

    case "lost": {
      // An agent goes on where it was; a command would do everything again.
      const goesOn = policy.onLost === "retry" || (policy.onLost === "auto" && view.hasSession === true);
      const attempt = { event: "lose", class: "lost", counted: !goesOn } as const;
      const tries = triesCounted + (attempt.counted ? 1 : 0);
      if (cancelled) return { attempt, step: { event: "cancel", reason: cancelReason, triesCounted: tries, idleEnds } };
      // What ends it so each time would do so for ever, since it goes on where it was.
      const lostEnds = goesOn ? (view.lostEnds ?? 0) + 1 : 0;
      const counts = { triesCounted: tries, idleEnds: 0, ...(lostEnds === 0 ? {} : { lostEnds }) };
      if (lostEnds >= limits.lostLoopEnds) return { attempt, step: { event: "fail", reason: "crash_loop", ...counts } };
      if (policy.onLost === "fail" || (!goesOn && tries >= view.maxAttempts))
        return { attempt, step: { event: "fail", reason: "lost", ...counts } };
      const wakeAt = retryAt(Math.max(1, tries + lostEnds));
      return { attempt, step: { event: "wait", reason: "retry", wakeAt, ...counts } };
    }

    case "failed":
    case "timed_out": {
      const why = outcome.class ?? "unknown";
      const timedOut = outcome.kind === "timed_out";
      const counted = !UNCOUNTED.has(why) && !sessionWasRefused(outcome);
      const tries = triesCounted + (counted ? 1 : 0);
      const attempt = { event: timedOut ? "time_out" : "fail", class: why, counted } as const;
      if (cancelled)
        return { attempt, step: { event: "cancel", reason: cancelReason, triesCounted: tries, idleEnds: 0 } };
      if (counted && (tries >= view.maxAttempts || FUTILE.has(why)))
        return {
          attempt,
          step: { event: timedOut ? "time_out" : "fail", reason: why, triesCounted: tries, idleEnds: 0 },
        };
      if (counted)
        return {
          attempt,
          step: { event: "wait", reason: "retry", wakeAt: retryAt(tries), triesCounted: tries, idleEnds: 0 },
        };
      // These did start, so they are no crash loop however often they come; an overload counts for its own pause alone.
      if (view.heldUntil !== undefined) return { attempt, step: waitUncounted(why, tries, 0) };
      if (why === "overloaded") {
        const most = 1 + doublingsTo(limits.throttleBackoffMs, limits.throttleBackoffCapMs);
        return { attempt, step: waitUncounted(why, tries, Math.min(idleEnds + 1, most)) };
      }
      const idle = idleEnds + 1;
      // Limits alone never end a run (B-089).
      if ((why === "spawn" || !UNCOUNTED.has(why)) && idle >= limits.crashLoopEnds)
        return { attempt, step: { event: "fail", reason: "crash_loop", triesCounted: tries, idleEnds: idle } };
      return { attempt, step: waitUncounted(why, tries, idle) };
    }
  }
}

/**
 * Whether a session could not be used, which is found out at once, and what the next attempt does instead is another thing.
 * A new session that is refused as well leaves nothing else to do.
 */
function sessionWasRefused({ agent }: Outcome): boolean {
  if (agent?.sessionRefused !== undefined) return agent.sessionRefused !== "afresh";
  return agent?.sessionGone === true;
}

/** Doubling pause with jitter from 0.5 to 1.5 that is always the same for the same key. @param nth 1 for the first pause */
export function backoffMs(baseMs: number, nth: number, capMs: number, key: string): number {
  const doubled = baseMs * 2 ** Math.min(Math.max(0, nth - 1), 30);
  return Math.round(Math.min(doubled, capMs) * (0.5 + stableFraction(key)));
}

/** Answers the next status, or null where the table refuses the event. */
export function next<S extends string, E extends string>(
  table: { readonly [K in S]: { readonly [F in E]?: S } },
  status: S,
  event: E,
): S | null {
  return table[status][event] ?? null;
}
