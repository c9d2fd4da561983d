/** The records as JSON documents: what every surface shows. Times are ISO-8601 in UTC with milliseconds. Fields are only ever added. */
import type { Usage } from "../core/agent.ts";
import type { Escape } from "../core/escape.ts";
import { summedUsage } from "../core/usage.ts";
import type { AccountView, Instant } from "../core/ports.ts";
import type {
  AttemptRecord,
  EventRecord,
  HoldRecord,
  LoopRecord,
  RunRecord,
  RunTree,
  SlotRecord,
  StepRecord,
  WorktreeRecord,
} from "../core/records.ts";
import { attemptStatuses, endedBy, failureClasses, isLiveAttempt, runStatuses, stepStatuses } from "../core/run.ts";
import type { Target } from "../core/target.ts";
import { holdsSecret } from "../core/variable-names.ts";
import { describeSize } from "../core/size.ts";
import { inWords } from "./fault-words.ts";
import type { Json } from "./fields.ts";
import { anything, boolean, instant, integer, listOf, nullable, object, oneOf, type Shape, string } from "./shape.ts";

/** An instant of a document. */
export const iso = (at: Instant): string => new Date(at).toISOString();
const isoOrNull = (at: Instant | null): string | null => (at === null ? null : iso(at));

/** What mends something. */
export interface Remedy {
  /** The end of a sentence, with the command in it. */
  readonly words: string;
  /** A command line that does it, or the last part of it; null where none does. */
  readonly command: string | null;
  /** The file that has to be edited first; null where none has. */
  readonly file: string | null;
}
export const remedyShape: Shape = nullable(
  object({ words: string, command: nullable(string), file: nullable(string) }),
);

/** A note that does not make an answer wrong: what to do is in the hint. */
export interface Warning {
  readonly code: string;
  readonly message: string;
  readonly hint: string;
}
export const warningShape: Shape = object({ code: string, message: string, hint: string });

/** Variables without the values that are secrets by their names. */
const shownEnv = (env: Readonly<Record<string, string>>): Readonly<Record<string, string>> =>
  Object.fromEntries(Object.entries(env).map(([name, value]) => [name, holdsSecret(name, value) ? "[secret]" : value]));

/** Inputs of a workflow without the values that are secrets by their names. */
const shownInputs = (inputs: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, value]) => [
      name,
      holdsSecret(name, typeof value === "string" ? value : JSON.stringify(value)) ? "[secret]" : value,
    ]),
  );

/**
 * What runs, as people and programs are shown it.
 * @param head the first line of its prompt without the secrets of its run; null: not known. It may hold what is given to
 * the run as a secret, so it is not shown then where there is one.
 */
function toTargetDocument(target: Target, head: string | null): Json {
  const shown = { ...target, env: shownEnv(target.env) };
  if (target.kind === "workflow") return { ...shown, inputs: shownInputs(target.inputs) } as unknown as Json;
  if (target.kind !== "agent") return shown as unknown as Json;
  const { prompt, secrets } = target;
  const instead = Object.keys(secrets).length === 0 ? prompt.head : `a prompt of ${describeSize(prompt.bytes)}`;
  return { ...shown, prompt: { ...prompt, head: head ?? instead } } as unknown as Json;
}

// --- Runs ------------------------------------------------------------------------------------------------------------

export interface AttemptDocument {
  readonly id: string;
  readonly number: number;
  readonly status: string;
  /** The host's name. */
  readonly host: string;
  readonly hostId: string;
  readonly account: string | null;
  readonly pid: number | null;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly exitCode: number | null;
  readonly signal: number | null;
  readonly class: string | null;
  readonly message: string | null;
  readonly counted: boolean | null;
  /** The session of an agent, with which a later attempt may go on. */
  readonly sessionId: string | null;
  readonly usage: Usage | null;
  /** What else is known of an agent's end. */
  readonly agent: Json;
  readonly endedBy: string | null;
  readonly logs: {
    readonly stdout: string;
    readonly stderr: string;
    readonly stdoutBytes: number;
    readonly stderrBytes: number;
  } | null;
  readonly tail: string | null;
  readonly adopted: boolean;
  readonly reaped: number;
  readonly proof: string | null;
}

export interface StepDocument {
  readonly key: string;
  readonly type: string;
  readonly status: string;
  readonly reason: string | null;
  readonly needs: readonly string[];
  readonly output: Json;
  readonly wakeAt: string | null;
  readonly triesCounted: number;
  readonly maxAttempts: number;
  readonly attempts: readonly AttemptDocument[];
}

export interface RunDocument {
  readonly id: string;
  readonly kind: string;
  readonly status: string;
  readonly reason: string | null;
  readonly target: Json;
  /** The loop's name when the run was made. */
  readonly loop: string | null;
  readonly loopId: string | null;
  readonly slotAt: string | null;
  readonly origin: string;
  readonly workItemId: string | null;
  readonly parentRunId: string | null;
  readonly rootRunId: string;
  readonly depth: number;
  readonly labels: readonly string[];
  readonly priority: number;
  readonly createdAt: string;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly durationMs: number | null;
  readonly wakeAt: string | null;
  readonly exitCode: number | null;
  readonly error: { readonly class: string; readonly message: string } | null;
  /** null in lists where it has more than 4 KiB. */
  readonly output: Json;
  readonly outputBytes: number | null;
  /** Of an agent: the account that it works under. */
  readonly account: string | null;
  /** What all attempts used together; null in lists, and where nothing is known. */
  readonly usage: Usage | null;
  readonly retryOf: string | null;
  readonly cancel: { readonly requestedAt: string; readonly by: string | null; readonly reason: string | null } | null;
  /** null in lists, and for a run that works in its target's own folder. */
  readonly worktree: WorktreeDocument | null;
}

export interface WorktreeDocument {
  readonly path: string;
  readonly repository: string | null;
  readonly branch: string | null;
  /** The commit that it was made from, and where that came from. */
  readonly base: string | null;
  readonly baseNote: string | null;
  readonly state: string;
  /** Whether it is there after its run has ended, and why. */
  readonly kept: boolean;
  readonly keptBecause: string | null;
  /** Of one that is gone: what went with it, or who took it away; null: it held nothing. */
  readonly goneBecause: string | null;
  readonly commits: number | null;
  readonly diffStat: string | null;
  /** What changed in the checkout that it was made from while its run was at work, whoever did that. */
  readonly escaped: Escape | null;
}

export const toWorktreeDocument = (tree: WorktreeRecord): WorktreeDocument => ({
  path: tree.path,
  repository: tree.repository,
  branch: tree.branch,
  base: tree.base,
  baseNote: tree.baseNote,
  state: tree.state,
  kept: tree.state === "kept",
  keptBecause: tree.state === "removed" ? null : tree.keptBecause,
  goneBecause: tree.state === "removed" ? tree.keptBecause : null,
  commits: tree.commits,
  diffStat: tree.diffStat,
  escaped: tree.escaped,
});

export const worktreeKeys = {
  path: string,
  repository: nullable(string),
  branch: nullable(string),
  base: nullable(string),
  baseNote: nullable(string),
  state: oneOf(["making", "made", "kept", "removed"]),
  kept: boolean,
  keptBecause: nullable(string),
  goneBecause: nullable(string),
  commits: nullable(integer),
  diffStat: nullable(string),
  escaped: nullable(object({ headMoved: boolean, paths: listOf(string), count: integer })),
};

const usageShape = nullable(
  object({
    inputTokens: integer,
    cachedInputTokens: integer,
    outputTokens: integer,
    costUsd: anything,
    "of?": oneOf(["attempts", "session"]),
  }),
);

export interface RunTreeDocument extends RunDocument {
  /** What mends a run that has failed or timed out. */
  readonly remedy: Remedy | null;
  /** How long it usually takes; null where no other one like it has ended well. */
  readonly usualMs: number | null;
  readonly steps: readonly StepDocument[];
}

/** JSON text of a record as JSON; what is not JSON stays text. */
export function parsedOutput(text: string | null): Json {
  if (text === null) return null;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text; // only JSON is stored; shown as it is rather than hidden should that ever be broken
  }
}

/** @param head of its prompt, as of `RunSurroundings` */
export function toRunDocument(run: RunRecord, head: string | null): RunDocument {
  return {
    id: run.id,
    kind: run.kind,
    status: run.status,
    reason: run.reason,
    target: toTargetDocument(run.target, head),
    loop: run.loopName,
    loopId: run.loopId,
    slotAt: isoOrNull(run.slotAt),
    origin: run.originKind,
    workItemId: run.workItemId,
    parentRunId: run.parentRunId,
    rootRunId: run.rootRunId,
    depth: run.depth,
    labels: run.policy.labels,
    priority: run.priority,
    createdAt: iso(run.createdAt),
    startedAt: isoOrNull(run.startedAt),
    finishedAt: isoOrNull(run.finishedAt),
    durationMs: run.startedAt === null || run.finishedAt === null ? null : Math.max(0, run.finishedAt - run.startedAt),
    wakeAt: isoOrNull(run.wakeAt),
    exitCode: run.exitStatus,
    error: run.error === null ? null : { ...run.error, message: inWords(run.error.message) },
    output: parsedOutput(run.output),
    outputBytes: run.output === null ? (run.outputBytes ?? null) : Buffer.byteLength(run.output),
    account: run.accountWish,
    usage: null,
    retryOf: run.retryOf,
    cancel:
      run.cancelRequestedAt === null
        ? null
        : { requestedAt: iso(run.cancelRequestedAt), by: run.cancelBy, reason: run.cancelReason },
    worktree: null,
  };
}

const runKeys = {
  id: string,
  kind: string,
  status: oneOf(runStatuses),
  reason: nullable(string),
  target: anything,
  loop: nullable(string),
  loopId: nullable(string),
  slotAt: nullable(instant),
  origin: string,
  workItemId: nullable(string),
  parentRunId: nullable(string),
  rootRunId: string,
  depth: integer,
  labels: listOf(string),
  priority: integer,
  createdAt: instant,
  startedAt: nullable(instant),
  finishedAt: nullable(instant),
  durationMs: nullable(integer),
  wakeAt: nullable(instant),
  exitCode: nullable(integer),
  error: nullable(object({ class: oneOf(failureClasses), message: string })),
  output: anything,
  outputBytes: nullable(integer),
  account: nullable(string),
  usage: usageShape,
  retryOf: nullable(string),
  cancel: nullable(object({ requestedAt: instant, by: nullable(string), reason: nullable(string) })),
  worktree: nullable(object(worktreeKeys)),
};
export const runShape: Shape = object(runKeys);

/** What a document of a run needs beside its records. */
export interface RunSurroundings {
  /** Of an agent: the first line of its prompt without the secrets of its attempts; null where those are not known. */
  readonly head: string | null;
  readonly hostNames: ReadonlyMap<string, string>;
  readonly pathOf: (folder: string, stream: "stdout" | "stderr") => string;
  readonly remedy: Remedy | null;
  readonly usualMs: number | null;
}

const usageOf = (attempt: AttemptRecord): Usage | null =>
  attempt.usageTotal == null ? null : (parsedOutput(attempt.usageTotal) as Usage | null);

function toAttemptDocument(attempt: AttemptRecord, around: RunSurroundings): AttemptDocument {
  return {
    id: attempt.id,
    number: attempt.number,
    status: attempt.status,
    host: around.hostNames.get(attempt.hostId) ?? attempt.hostId,
    hostId: attempt.hostId,
    account: attempt.accountId,
    pid: attempt.pid,
    startedAt: isoOrNull(attempt.startedAt),
    finishedAt: isoOrNull(attempt.finishedAt),
    exitCode: attempt.exitStatus,
    signal: attempt.signal,
    class: attempt.class,
    message: attempt.message === null ? null : inWords(attempt.message),
    counted: attempt.counted,
    sessionId: attempt.sessionRef,
    usage: usageOf(attempt),
    agent: attempt.agentEnd == null ? null : parsedOutput(attempt.agentEnd),
    endedBy: attempt.endedBy,
    logs:
      attempt.folder === null
        ? null
        : {
            stdout: around.pathOf(attempt.folder, "stdout"),
            stderr: around.pathOf(attempt.folder, "stderr"),
            stdoutBytes: attempt.stdoutBytes,
            stderrBytes: attempt.stderrBytes,
          },
    tail: attempt.tail,
    adopted: attempt.adopted,
    reaped: attempt.reaped,
    proof: attempt.proof,
  };
}

const attemptShape: Shape = object({
  id: string,
  number: integer,
  status: oneOf(attemptStatuses),
  host: string,
  hostId: string,
  account: nullable(string),
  pid: nullable(integer),
  startedAt: nullable(instant),
  finishedAt: nullable(instant),
  exitCode: nullable(integer),
  signal: nullable(integer),
  class: nullable(oneOf(failureClasses)),
  message: nullable(string),
  counted: nullable(boolean),
  sessionId: nullable(string),
  usage: usageShape,
  agent: anything,
  endedBy: nullable(oneOf(endedBy)),
  logs: nullable(object({ stdout: string, stderr: string, stdoutBytes: integer, stderrBytes: integer })),
  tail: nullable(string),
  adopted: boolean,
  reaped: integer,
  proof: nullable(string),
});

function toStepDocument(
  step: StepRecord,
  attempts: readonly AttemptRecord[],
  needs: readonly string[],
  around: RunSurroundings,
): StepDocument {
  return {
    key: step.key,
    type: step.kind,
    status: step.status,
    reason: step.reason,
    needs,
    output: parsedOutput(step.output),
    wakeAt: isoOrNull(step.wakeAt),
    triesCounted: step.triesCounted,
    maxAttempts: step.maxAttempts,
    attempts: attempts.toSorted((a, b) => a.number - b.number).map((attempt) => toAttemptDocument(attempt, around)),
  };
}

export function toRunTreeDocument(tree: RunTree, around: RunSurroundings): RunTreeDocument {
  const keyOf = new Map(tree.steps.map(({ id, key }) => [id, key]));
  const byStep = new Map<string, AttemptRecord[]>();
  for (const attempt of tree.attempts) byStep.set(attempt.stepId, [...(byStep.get(attempt.stepId) ?? []), attempt]);
  const needs = new Map<string, string[]>();
  for (const { stepId, needsStepId } of tree.needs ?? [])
    needs.set(stepId, [...(needs.get(stepId) ?? []), needsStepId]);
  return {
    ...toRunDocument(tree.run, around.head),
    usage: summedUsage(tree.attempts.map(usageOf).filter((one) => one !== null)),
    worktree: tree.worktree == null ? null : toWorktreeDocument(tree.worktree),
    remedy: around.remedy,
    usualMs: around.usualMs,
    steps: tree.steps.map((step) =>
      toStepDocument(
        step,
        byStep.get(step.id) ?? [],
        (needs.get(step.id) ?? []).map((id) => keyOf.get(id) ?? id),
        around,
      ),
    ),
  };
}

const runTreeKeys = {
  ...runKeys,
  remedy: remedyShape,
  usualMs: nullable(integer),
  steps: listOf(
    object({
      key: string,
      type: string,
      status: oneOf(stepStatuses),
      reason: nullable(string),
      needs: listOf(string),
      output: anything,
      wakeAt: nullable(instant),
      triesCounted: integer,
      maxAttempts: integer,
      attempts: listOf(attemptShape),
    }),
  ),
};
export const runTreeShape: Shape = object(runTreeKeys);
/** A run that was just started, and what is worth saying of it. */
export const startedRunShape: Shape = object({ ...runTreeKeys, "warnings?": listOf(warningShape) });

/** The newest attempt of a run, or the one with that number. */
export function attemptOf(tree: RunTree, stepKey: string, number: number | null): AttemptRecord | null {
  const step = tree.steps.find((one) => one.key === stepKey);
  const attempts = tree.attempts.filter((one) => one.stepId === step?.id).toSorted((a, b) => b.number - a.number);
  return attempts.find((one) => number === null || one.number === number) ?? null;
}

/** The step that is meant where none is named: of a workflow the one that an attempt of was made last. */
export function usualStep({ steps, attempts }: Pick<RunTree, "steps" | "attempts">): string {
  const newest = steps.length > 1 ? attempts.toSorted((a, b) => (a.id < b.id ? 1 : -1))[0] : undefined;
  return steps.find(({ id }) => id === newest?.stepId)?.key ?? steps[0]?.key ?? "main";
}

/** Whether anything of the run may still write output. */
export const isLiveTree = (tree: RunTree): boolean =>
  tree.run.finishedAt === null || tree.attempts.some((attempt) => isLiveAttempt(attempt.status));

// --- Loops -------------------------------------------------------------------------------------------------------------

export interface LoopDocument {
  readonly id: string;
  readonly name: string;
  readonly status: string;
  readonly archived: boolean;
  readonly schedule: Json;
  readonly target: Json;
  readonly policy: Json;
  readonly managedBy: string | null;
  readonly hostPin: string | null;
  readonly revision: number;
  readonly nextAt: string | null;
  readonly successStreak: number;
  readonly failureStreak: number;
  readonly failureClass: string | null;
  readonly breakerAt: string | null;
  readonly pausedReason: string | null;
  readonly pausedAt: string | null;
  readonly expiresAt: string | null;
  readonly archivedAt: string | null;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** A schedule with its instants as text. */
export function toScheduleDocument(schedule: LoopRecord["schedule"]): Json {
  switch (schedule.kind) {
    case "once":
      return { kind: schedule.kind, at: iso(schedule.at) };
    case "interval":
      return { kind: schedule.kind, everyMs: schedule.everyMs, anchorAt: iso(schedule.anchorAt) };
    case "cron":
      return { kind: schedule.kind, expression: schedule.expression, zone: schedule.zone };
    case "dynamic":
      return { kind: schedule.kind, firstAt: iso(schedule.firstAt) };
  }
}

export function toLoopDocument(loop: LoopRecord): LoopDocument {
  const { expiresAt, ...policy } = loop.policy;
  return {
    id: loop.id,
    name: loop.name,
    status: loop.status,
    archived: loop.archivedAt !== null,
    schedule: toScheduleDocument(loop.schedule),
    target: toTargetDocument(loop.target, null),
    policy: { ...policy, expiresAt: isoOrNull(expiresAt) } as unknown as Json,
    managedBy: loop.managedBy,
    hostPin: loop.hostPin,
    revision: loop.revision,
    nextAt: isoOrNull(loop.nextAt),
    successStreak: loop.successStreak,
    failureStreak: loop.failureStreak,
    failureClass: loop.failureClass,
    breakerAt: isoOrNull(loop.breakerAt),
    pausedReason: loop.pausedReason,
    pausedAt: isoOrNull(loop.pausedAt),
    expiresAt: isoOrNull(expiresAt),
    archivedAt: isoOrNull(loop.archivedAt),
    createdAt: iso(loop.createdAt),
    updatedAt: iso(loop.updatedAt),
  };
}

export const loopKeys = {
  id: string,
  name: string,
  status: oneOf(["active", "paused", "expired", "finished"]),
  archived: boolean,
  schedule: object({
    kind: oneOf(["once", "interval", "cron", "dynamic"]),
    "at?": instant,
    "everyMs?": integer,
    "anchorAt?": instant,
    "expression?": string,
    "zone?": string,
    "firstAt?": instant,
  }),
  target: anything,
  policy: anything,
  managedBy: nullable(string),
  hostPin: nullable(string),
  revision: integer,
  nextAt: nullable(instant),
  successStreak: integer,
  failureStreak: integer,
  failureClass: nullable(string),
  breakerAt: nullable(instant),
  pausedReason: nullable(string),
  pausedAt: nullable(instant),
  expiresAt: nullable(instant),
  archivedAt: nullable(instant),
  createdAt: instant,
  updatedAt: instant,
};

// --- Accounts ------------------------------------------------------------------------------------------------------------

export interface AccountDocument {
  /** `<provider>:<name>` */
  readonly id: string;
  readonly provider: string;
  readonly name: string;
  /** null: the user's own configuration. */
  readonly home: string | null;
  readonly enabled: boolean;
  readonly status: string;
  /** Attempts at work under it, and how many may be. */
  readonly active: number;
  readonly cap: number | null;
  readonly holds: readonly HoldDocument[];
  /** Those of its provider: they hold every account of it. */
  readonly providerHolds: readonly HoldDocument[];
  /** Limits in a row without success between them. */
  readonly limitEnds: number;
  readonly env: Readonly<Record<string, string>>;
  /** Where the values come from; never a value. */
  readonly secrets: Readonly<Record<string, string>>;
  readonly lastUsedAt: string | null;
  /** null: it has no row, nobody changed it and no limit was seen. */
  readonly createdAt: string | null;
}

export interface HoldDocument {
  /** null: until a person releases it. */
  readonly untilAt: string | null;
  readonly reason: string;
  readonly source: string;
  readonly createdAt: string;
}

export const toHoldDocument = (hold: HoldRecord): HoldDocument => ({
  untilAt: isoOrNull(hold.untilAt),
  reason: hold.reason,
  source: hold.source,
  createdAt: iso(hold.createdAt),
});

export const toAccountDocument = ({ account, holds, providerHolds, active, cap }: AccountView): AccountDocument => ({
  id: account.id,
  provider: account.provider,
  name: account.name,
  home: account.home,
  enabled: account.enabled,
  status: account.status,
  active,
  cap,
  holds: holds.map(toHoldDocument),
  providerHolds: providerHolds.map(toHoldDocument),
  limitEnds: account.limitEnds,
  env: shownEnv(account.env),
  secrets: account.secrets,
  lastUsedAt: isoOrNull(account.lastUsedAt),
  createdAt: account.createdAt === 0 ? null : iso(account.createdAt),
});

export const holdsShape: Shape = listOf(
  object({ untilAt: nullable(instant), reason: string, source: string, createdAt: instant }),
);

export const accountKeys = {
  id: string,
  provider: string,
  name: string,
  home: nullable(string),
  enabled: boolean,
  status: oneOf(["ok", "throttled", "quota", "auth", "unknown"]),
  active: integer,
  cap: nullable(integer),
  holds: holdsShape,
  providerHolds: holdsShape,
  limitEnds: integer,
  env: anything,
  secrets: anything,
  lastUsedAt: nullable(instant),
  createdAt: nullable(instant),
};
export const accountShape: Shape = object(accountKeys);

// --- Slots, events -------------------------------------------------------------------------------------------------------

export interface SlotDocument {
  readonly at: string;
  readonly untilAt: string;
  readonly count: number;
  /** null while its run has not ended. */
  readonly outcome: string | null;
  readonly reason: string | null;
  readonly coalescedInto: string | null;
  readonly runId: string | null;
  readonly runStatus: string | null;
  readonly startedAt: string | null;
  readonly finishedAt: string | null;
  readonly lateMs: number;
}

export function toSlotDocument(slot: SlotRecord): SlotDocument {
  return {
    at: iso(slot.at),
    untilAt: iso(slot.untilAt),
    count: slot.count,
    outcome: slot.outcome,
    reason: slot.reason,
    coalescedInto: isoOrNull(slot.coalescedInto),
    runId: slot.runId,
    runStatus: slot.runStatus,
    startedAt: isoOrNull(slot.startedAt),
    finishedAt: isoOrNull(slot.finishedAt),
    lateMs: slot.lateMs,
  };
}

export const slotOutcomes = [
  "succeeded",
  "failed",
  "timed_out",
  "cancelled",
  "skipped",
  "missed",
  "coalesced",
] as const satisfies readonly SlotRecord["outcome"][];

export const slotShape: Shape = object({
  at: instant,
  untilAt: instant,
  count: integer,
  outcome: nullable(oneOf(slotOutcomes)),
  reason: nullable(string),
  coalescedInto: nullable(instant),
  runId: nullable(string),
  runStatus: nullable(oneOf(runStatuses)),
  startedAt: nullable(instant),
  finishedAt: nullable(instant),
  lateMs: integer,
});

export interface EventDocument {
  /** Opaque; orders the feed. */
  readonly cursor: string;
  readonly subject: { readonly kind: string; readonly id: string };
  readonly number: number;
  readonly type: string;
  readonly data: Json;
  readonly at: string;
}

export const toEventDocument = (event: EventRecord): EventDocument => ({
  cursor: event.cursor,
  subject: { kind: event.subjectKind, id: event.subjectId },
  number: event.number,
  type: event.type,
  data: event.data as Json,
  at: iso(event.at),
});

export const eventShape: Shape = object({
  cursor: string,
  subject: object({ kind: string, id: string }),
  number: integer,
  type: string,
  data: anything,
  at: instant,
});
