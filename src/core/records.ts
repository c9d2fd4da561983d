/** The rows as plain data: what the store hands out. Instants and durations are milliseconds. */
import type { SessionUse } from "./agent.ts";
import type { Escape } from "./escape.ts";
import type { LoopPolicy, RunPolicy } from "./loop.ts";
import type { LoopStatus } from "./loop-states.ts";
import type { Instant } from "./ports.ts";
import type { JsonSchema } from "./json-schema.ts";
import type { AttemptStatus, Condition, EndedBy, FailureClass, RunStatus, StepStatus } from "./run.ts";
import type { Schedule } from "./schedule.ts";
import type { ProcessTarget, Provider, Target } from "./target.ts";

export interface HostRecord {
  readonly id: string;
  readonly name: string;
  readonly machineId: string;
  readonly bootId: string;
  /** Grows with each start of the host's daemon. */
  readonly incarnation: number;
  readonly version: string;
  readonly status: "up" | "draining" | "disk" | "down";
  /** When a daemon that was stopped said it would be back. */
  readonly backBy: Instant | null;
  readonly leaseUntil: Instant;
  readonly lastSeenAt: Instant;
}

export interface LoopRecord {
  readonly id: string;
  readonly name: string;
  /** The file that `apply` read it from; null for a loop made by hand. */
  readonly managedBy: string | null;
  readonly schedule: Schedule;
  readonly target: Target;
  readonly policy: LoopPolicy;
  readonly hostPin: string | null;
  readonly revision: number;
  readonly status: LoopStatus;
  readonly nextAt: Instant | null;
  readonly plannedUntil: Instant;
  readonly anchoredAt: Instant;
  readonly successStreak: number;
  readonly failureStreak: number;
  readonly failureClass: FailureClass | null;
  readonly breakerAt: Instant | null;
  readonly pausedReason: string | null;
  readonly pausedAt: Instant | null;
  readonly archivedAt: Instant | null;
  readonly createdAt: Instant;
  readonly updatedAt: Instant;
}

export type SlotOutcome = "succeeded" | "failed" | "timed_out" | "cancelled" | "skipped" | "missed" | "coalesced";

export interface SlotRecord {
  readonly at: Instant;
  /** Last instant of a row that stands for `count` neighbours with one outcome and reason; else equal to `at`. */
  readonly untilAt: Instant;
  readonly count: number;
  /** null while its run has not ended. */
  readonly outcome: SlotOutcome | null;
  readonly reason: string | null;
  readonly coalescedInto: Instant | null;
  readonly runId: string | null;
  readonly runStatus: RunStatus | null;
  readonly startedAt: Instant | null;
  readonly finishedAt: Instant | null;
  readonly lateMs: number;
  /** The schedule under which a row of several was written. */
  readonly schedule: Schedule | null;
}

export type OriginKind = "slot" | "ad_hoc" | "person" | "api" | "run" | "work_item" | "retry";

export interface RunRecord {
  readonly id: string;
  readonly kind: "command" | "agent" | "workflow" | "lane" | "code";
  readonly originKind: OriginKind;
  readonly originId: string | null;
  readonly idempotencyKey: string | null;
  readonly loopId: string | null;
  readonly loopName: string | null;
  readonly slotAt: Instant | null;
  readonly workItemId: string | null;
  readonly parentRunId: string | null;
  readonly rootRunId: string;
  readonly depth: number;
  readonly retryOf: string | null;
  readonly target: Target;
  readonly policy: RunPolicy;
  readonly status: RunStatus;
  readonly reason: string | null;
  readonly wakeAt: Instant | null;
  readonly priority: number;
  readonly queuedAt: Instant;
  readonly hostPin: string | null;
  /** Of an agent: the id of the account that it is to work under. */
  readonly accountWish: string | null;
  readonly cancelRequestedAt: Instant | null;
  readonly cancelBy: string | null;
  readonly cancelReason: string | null;
  readonly exitStatus: number | null;
  /** JSON text; null in a list where it is longer than lists hold. */
  readonly output: string | null;
  /** Its size; said by lists. */
  readonly outputBytes?: number | null;
  readonly error: { readonly class: FailureClass; readonly message: string } | null;
  readonly startedAt: Instant | null;
  readonly finishedAt: Instant | null;
  readonly createdAt: Instant;
}

export interface StepRecord {
  readonly id: string;
  readonly runId: string;
  readonly key: string;
  readonly kind: string;
  readonly status: StepStatus;
  readonly reason: string | null;
  readonly wakeAt: Instant | null;
  readonly token: number;
  readonly capKey: string;
  readonly turnAt: Instant;
  readonly triesCounted: number;
  readonly maxAttempts: number;
  readonly idleEnds: number;
  readonly attemptsMade: number;
  readonly output: string | null;
  /** Of a step of a workflow: what its `if` reads; null of a run without a definition. */
  readonly condition: Condition | null;
  readonly continueOnFailure: boolean;
  /** What it was decided to run, with its values in it; null until then. */
  readonly spec: StepSpec | null;
  /** What it left beside its output; null until it has ended. */
  readonly result: StepResult | null;
  /** Of an item of `foreach`: the step that has the items. */
  readonly parentStepId: string | null;
  /** The step of an earlier run whose end it has. */
  readonly reusedFrom: string | null;
  readonly startedAt: Instant | null;
  readonly finishedAt: Instant | null;
}

/** What one step of a workflow runs, with its values in it. */
export interface StepSpec {
  readonly target: ProcessTarget;
  readonly policy: RunPolicy;
  /** Where the workflow works: in a worktree the same place stands for it. */
  readonly base: string;
  /** Exit statuses of a gate that block. */
  readonly blockedExitCodes?: readonly number[];
  /** What its output has to fit. */
  readonly output?: JsonSchema;
  /** A name that one step holds at a time. */
  readonly lock?: string;
}

/** What a step of a workflow left beside its output. */
export interface StepResult {
  readonly exitCode: number | null;
  readonly stdoutTail: string;
  readonly stderrTail: string;
  readonly class: FailureClass | null;
  readonly message: string | null;
}

export interface AttemptRecord {
  readonly id: string;
  readonly stepId: string;
  readonly runId: string;
  readonly number: number;
  readonly counted: boolean | null;
  readonly purpose: "try" | "turn" | "repair" | "resume";
  readonly token: number;
  readonly status: AttemptStatus;
  readonly class: FailureClass | null;
  readonly hostId: string;
  readonly incarnation: number;
  readonly accountId: string | null;
  readonly sessionRef: string | null;
  /** JSON text of a `Usage`. */
  readonly usageTotal: string | null;
  /** JSON text of what else is known of an agent's end: reset time with its source, HTTP status, refused tools. */
  readonly agentEnd: string | null;
  readonly leaseUntil: Instant;
  readonly pid: number | null;
  readonly pidStarted: string | null;
  readonly bootId: string | null;
  readonly folder: string | null;
  readonly ticketAt: Instant | null;
  /** The host's awake clock when it was handed to the spawner: time limits count from here. */
  readonly awakeAt: number | null;
  readonly exitStatus: number | null;
  readonly signal: number | null;
  readonly message: string | null;
  readonly tail: string | null;
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  readonly endedBy: EndedBy | null;
  /** When and why we began to end it, while it is not over. */
  readonly endingSince: Instant | null;
  readonly adopted: boolean;
  readonly reaped: number;
  readonly proof: string | null;
  readonly startedAt: Instant | null;
  readonly finishedAt: Instant | null;
}

export interface EventRecord {
  /** Opaque; orders the feed. */
  readonly cursor: string;
  readonly subjectKind: "run" | "loop" | "host" | "account" | "provider";
  readonly subjectId: string;
  readonly number: number;
  readonly type: string;
  readonly token: number | null;
  readonly data: Readonly<Record<string, unknown>>;
  readonly at: Instant;
}

export interface RunTree {
  readonly run: RunRecord;
  readonly steps: readonly StepRecord[];
  readonly attempts: readonly AttemptRecord[];
  /** Absent or null: it works in the target's own folder. */
  readonly worktree?: WorktreeRecord | null;
  /** Which steps need which; absent: none does. */
  readonly needs?: readonly { readonly stepId: string; readonly needsStepId: string }[];
}

/** Quota, throttle and auth are different states with different answers; `unknown` until something was seen. */
export type AccountStatus = "ok" | "throttled" | "quota" | "auth" | "unknown";

/** One login of a provider. Its id is `<provider>:<name>`. */
export interface AccountRecord {
  readonly id: string;
  readonly provider: Provider;
  readonly name: string;
  /** Folder of its own configuration and login; null for the user's own. */
  readonly home: string | null;
  readonly enabled: boolean;
  readonly status: AccountStatus;
  /** Limits in a row without success between them: pauses double by it. */
  readonly limitEnds: number;
  /** Variables of each process under it, and where secret ones come from at each start. */
  readonly env: Readonly<Record<string, string>>;
  readonly secrets: Readonly<Record<string, string>>;
  readonly lastUsedAt: Instant | null;
  readonly createdAt: Instant;
}

/** A time in which a subject takes no new work. `until` null: until a person releases it. */
export interface HoldRecord {
  readonly subjectKind: "account" | "provider";
  readonly subjectId: string;
  readonly untilAt: Instant | null;
  readonly reason: string;
  /** Who said so: `person`, or a failure class with the provider's words. */
  readonly source: string;
  readonly createdAt: Instant;
}

/** Where a run works, when that is a worktree of its own. The row is there before the folder. */
export interface WorktreeRecord {
  readonly runId: string;
  readonly hostId: string;
  /** The folder that the target names, and the worktree's own; `repository` is the main checkout's top folder. */
  readonly cwd: string;
  readonly path: string;
  readonly repository: string | null;
  readonly branch: string | null;
  /** Commit that it was made from, and where that came from in words: `origin/main, fetched`, `local HEAD: no origin`. */
  readonly base: string | null;
  readonly baseNote: string | null;
  /** `making`: no process has worked in it yet, so what is there is ours to clear. */
  readonly state: "making" | "made" | "kept" | "removed";
  /** Why it is kept, once its run has ended; of one that is gone what went with it, or who took it away (null: it held nothing). */
  readonly keptBecause: string | null;
  readonly commits: number | null;
  readonly diffStat: string | null;
  /** What changed in the checkout that it was made from while its run was at work; null: nothing that was seen. */
  readonly escaped: Escape | null;
  readonly createdAt: Instant;
  readonly finishedAt: Instant | null;
}

/** All that a host needs to start or to adopt an attempt. */
export interface Assignment {
  readonly attempt: AttemptRecord;
  /** Of a workflow as this step has it: its target and its policy are those of the step. */
  readonly run: RunRecord & { readonly target: ProcessTarget };
  readonly stepKey: string;
  /** Of a step of a workflow; absent or null: it is the only one of its run. */
  readonly spec?: StepSpec | null;
  /** Of an agent: its account; absent or null for commands, and for the user's own login that nobody changed. */
  readonly account?: AccountRecord | null;
  readonly worktree?: WorktreeRecord | null;
  /** How the step's attempt before this one ended, and the session that it left. */
  readonly before?: {
    readonly sessionId: string | null;
    readonly class: FailureClass | null;
    readonly message: string | null;
    /** Folder of the step's latest attempt that got as far as having one, on its host; absent or null: none did. */
    readonly folder?: string | null;
    /** Its session was refused to it, and what it had asked for; absent or null: it was not. */
    readonly sessionRefused?: SessionUse | null;
  } | null;
}
