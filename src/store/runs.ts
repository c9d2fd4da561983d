/** Runs: made, listed, cancelled, ended. What ends a run also ends its slot, moves its loop's streaks and lets the next one in. */
import { createHash } from "node:crypto";
import { AppError, ensure } from "../core/errors.ts";
import type { IdKind } from "../core/ids.ts";
import { type Limits, LISTED_OUTPUT_BYTES, WALK } from "../core/limits.ts";
import { loopTable } from "../core/loop-states.ts";
import type { Page, PageRequest, RunDraft } from "../core/ports.ts";
import type { RunRecord, RunTree } from "../core/records.ts";
import type { FailureClass, FinalStatus, LiveCounts, RunStatus } from "../core/run.ts";
import { isFinal } from "../core/run.ts";
import { afterRun } from "../core/run-end.ts";
import type { Target } from "../core/target.ts";
import { accountOf, promptOf } from "../core/target-parts.ts";
import { journal, type Journal } from "./journal.ts";
import { all, finish, many, one, operation, read, readInstant, type Context, type Steps } from "./operation.ts";
import { pageOf, pageOfWalk, readCursor } from "./page.ts";
import {
  toAttempt,
  toLoop,
  toRun,
  toStep,
  toStepState,
  toWorktree,
  type LoopRow,
  type Row,
  type RunRow,
  type StepState,
} from "./rows.ts";
import { forUpdate, join, jsonList, sql, type Sql } from "./sql.ts";
import { requireDefinition } from "./definitions.ts";

export const digestOf = (value: unknown): string => createHash("sha256").update(JSON.stringify(value)).digest("hex");

/** The end of an id, backwards: an index over it answers suffixes of any length. */
export const suffixKey = (id: string): string => id.slice(-26).split("").toReversed().join("");

// --- making ----------------------------------------------------------------------------------------------------------

/** A run to be made: what its draft says, with its parent found, and where it comes from. */
export interface NewRun extends Omit<RunDraft, "parentRunId" | "limits"> {
  readonly loop: { readonly id: string; readonly name: string } | null;
  readonly slotAt: number | null;
  readonly parent: { readonly id: string; readonly rootRunId: string; readonly depth: number } | null;
  readonly retryOf: string | null;
  /** Waits until the loop's earlier runs have ended. */
  readonly waitsTurn: boolean;
  /** One of a chain: runs that are caught up one after another. */
  readonly chained: boolean;
  /** Not before that instant; null for at once. */
  readonly notBefore: number | null;
}

/**
 * The caps under which a run queues: its host's cap for its kind; for an agent its provider's and its account's, and the
 * folder that it writes in when that is nobody's but everybody's.
 */
export function capSetOf(
  target: Target,
  hostPin: string | null,
  lock?: string,
): { key: string; resources: readonly string[] } {
  const word = target.kind === "agent" ? "agent" : "command";
  const host = [
    ...(hostPin === null ? [] : [`host:${hostPin}:${word}`]),
    ...(lock === undefined ? [] : [`lock:${lock}`]),
  ];
  if (target.kind !== "agent")
    return {
      key: lock !== undefined ? JSON.stringify(host) : hostPin === null ? word : `${word}@${hostPin}`,
      resources: host,
    };
  const shared = target.worktree === "off" && target.permission !== "read-only" ? [`folder:${target.cwd}`] : [];
  const resources = [...host, `provider:${target.provider}`, `account:${accountOf(target)}`, ...shared];
  return { key: JSON.stringify(resources), resources };
}

/** A cap set, made when it is not there. */
export const capSetWrite = (caps: ReturnType<typeof capSetOf>, hostPin: string | null, now: number): Sql =>
  sql`insert into cap_sets (key, resources, host_pin, created_at)
        values (${caps.key}, ${JSON.stringify(caps.resources)}, ${hostPin}, ${now}) on conflict (key) do nothing`;

/** Statements that make a run with its step, or with all those of its definition, its cap set and its first event. */
export function newRun(
  draft: NewRun,
  ctx: { id(kind: IdKind): string },
  now: number,
  limits: Limits,
): { runId: string; writes: Sql[] } {
  const runId = ctx.id("run");
  const { kind, target, policy, loop, parent, hostPin, notBefore } = draft;
  const caps = capSetOf(target, hostPin);
  const account = target.kind === "agent" ? accountOf(target) : null;
  const turn = turnAt(now, policy.priority, limits);
  const waits = !draft.waitsTurn && notBefore !== null && notBefore > now;
  /** The rows of a definition as steps of the run: those that need nothing wait for what the run waits for, then are asked. */
  const definedSteps = (of: string, digest: string): Sql[] => {
    const id = sql`cast(${of.replace(/^run_/, "step_")} as text) || '.'`;
    const root = waits ? "waiting" : "pending";
    return [
      sql`insert into steps (id, run_id, key, definition_step, kind, status, reason, wake_at, needs_left, cap_key, turn_at, not_before,
            max_attempts, condition, continue_on_failure, position, created_at)
          select ${id} || d.position, ${of}, d.key, d.key, d.kind, case when d.needs_left = 0 then ${root} else 'pending' end,
            case when d.needs_left = 0 then ${reason ?? "judge"} end, case when d.needs_left = 0 then cast(${waits ? notBefore : null} as bigint) end,
            d.needs_left, ${caps.key}, cast(${turn} as bigint), cast(${notBefore} as bigint), cast(${policy.attempts} as bigint), d.condition,
            d.continue_on_failure, d.position, cast(${now} as bigint)
          from definition_steps d where d.digest = ${digest}`,
      sql`insert into step_needs (step_id, needs_step_id, created_at)
          select ${id} || n.position, ${id} || n.needs_position, cast(${now} as bigint) from definition_needs n where n.digest = ${digest}`,
    ];
  };
  const stepStatus = draft.waitsTurn ? "pending" : waits ? "waiting" : "ready";
  const reason = draft.waitsTurn ? "turn" : waits ? "timer" : null;
  const log = journal("run", runId, 0, now);
  log.add("run.queued", {
    origin: draft.originKind,
    ...(loop ? { loop: loop.id } : {}),
    ...(draft.slotAt === null ? {} : { slotAt: draft.slotAt }),
  });
  const writes = [
    sql`insert into runs (id, kind, origin_kind, origin_id, idempotency_key, loop_id, loop_name, slot_at, parent_run_id, root_run_id,
          depth, retry_of, target, policy, definition_digest, status, reason, wake_at, priority, queued_at, not_before, chained,
          waits_turn, suffix_key, host_pin, account_wish, prompt_digest, created_at)
        values (${runId}, ${kind}, ${draft.originKind}, ${draft.originId}, ${draft.idempotencyKey}, ${loop?.id ?? null}, ${loop?.name ?? null},
          ${draft.slotAt}, ${parent?.id ?? null}, ${parent?.rootRunId ?? runId}, ${parent === null ? 0 : parent.depth + 1}, ${draft.retryOf},
          ${JSON.stringify(target)}, ${JSON.stringify(policy)}, ${digestOf([target, policy])}, ${waits ? "waiting" : "queued"}, ${reason},
          ${waits ? notBefore : null}, ${policy.priority}, ${now}, ${notBefore}, ${draft.chained ? 1 : 0}, ${draft.waitsTurn ? 1 : 0},
          ${suffixKey(runId)}, ${hostPin}, ${account}, ${promptOf(target)}, ${now})`,
    ...(target.kind === "workflow"
      ? definedSteps(runId, target.definition.digest)
      : [
          sql`insert into steps (id, run_id, key, kind, status, reason, wake_at, cap_key, turn_at, not_before, max_attempts, account_id, created_at)
            values (${ctx.id("step")}, ${runId}, 'main', ${kind}, ${stepStatus}, ${reason}, ${waits ? notBefore : null}, ${caps.key},
              ${turn}, ${notBefore}, ${policy.attempts}, ${account}, ${now})`,
        ]),
    capSetWrite(caps, hostPin, now),
    ...[...new Set(policy.labels)].map(
      (name) => sql`insert into run_labels (label, queued_at, run_id) values (${name}, ${now}, ${runId})`,
    ),
    ...log.writes(),
  ];
  return { runId, writes };
}

/** The order of the queue: time of queueing, moved forward for each point of priority. */
export const turnAt = (queuedAt: number, priority: number, limits: Limits): number =>
  queuedAt - priority * limits.priorityStepMs;

// --- ending ----------------------------------------------------------------------------------------------------------

export interface Turn {
  readonly runId: string;
  readonly eventNumber: number;
  readonly chained: boolean;
  readonly priority: number;
  readonly notBefore: number | null;
}

/** All that the end of one run touches, read under the locks of its loop and itself. */
export interface Desk {
  readonly now: number;
  readonly limits: Limits;
  readonly loop: LoopRow | null;
  readonly run: RunRow;
  readonly log: Journal;
  /** Another run of the loop may still be at work. */
  readonly busy: boolean;
  /** Runs of the loop that wait for their turn, oldest first; two are enough to let one in. */
  readonly turns: readonly Turn[];
  readonly writes: Sql[];
}

export interface RunEnd {
  readonly status: FinalStatus;
  readonly reason: string | null;
  readonly class: FailureClass | null;
  readonly message: string | null;
  readonly exitStatus: number | null;
  readonly output: string | null;
  /** When its last attempt ended by its host's clock; null for now. */
  readonly endedAt: number | null;
}

/** An end is told by when it was, not by when we heard of it; kept between the start and now, for hosts whose clocks differ. */
export const endOf = (endedAt: number | null, startedAt: number | null, now: number): number =>
  Math.min(now, Math.max(endedAt ?? now, startedAt ?? 0));

/** The runs that wait for their turn, and whether one that need not wait is still there besides `runId`. */
export const turnQueries = (loopId: string | null, runId: string): [Sql, Sql] => [
  sql`select chained from runs where loop_id = ${loopId} and finished_at is null and waits_turn = 0 and id <> ${runId} order by chained desc limit 1`,
  sql`select r.id as run_id, r.event_number as event_number, r.chained as chained, r.priority as priority, r.not_before as not_before
      from runs r join steps s on s.run_id = r.id
      where r.loop_id = ${loopId} and r.finished_at is null and r.waits_turn = 1 and r.id <> ${runId} and s.needs_left = 0
      order by r.slot_at, r.id limit 1`,
];

/** Beside an `allow` loop's other runs a chain waits for its own only. */
export function isBusy(released: Row | undefined, loop: Row | undefined): boolean {
  if (released === undefined || loop === undefined) return false;
  return toLoop(loop).policy.overlap !== "allow" || released["chained"] !== 0;
}

export const toTurn = (row: Row): Turn => ({
  runId: row["run_id"] as string,
  eventNumber: row["event_number"] as number,
  chained: row["chained"] !== 0,
  priority: row["priority"] as number,
  notBefore: row["not_before"] as number | null,
});

/** What a step that may go on becomes: one that nobody has decided on yet is asked first. */
export const readyOrAsked = sql`case when condition is null or spec is not null then 'ready' else 'pending' end`;
export const asked = sql`case when condition is null or spec is not null then null else 'judge' end`;

/** Lets a run in whose turn it is. */
export function letIn(turn: Turn, now: number, limits: Limits): Sql[] {
  const waits = turn.notBefore !== null && turn.notBefore > now;
  const log = journal("run", turn.runId, turn.eventNumber, now);
  log.add("run.turn");
  return [
    sql`update runs set waits_turn = 0, status = ${waits ? "waiting" : "queued"}, reason = ${waits ? "timer" : null}, wake_at = ${waits ? turn.notBefore : null},
          revision = revision + 1 where id = ${turn.runId} and finished_at is null`,
    // Of a workflow all steps that need nothing; those are asked first whether they start.
    waits
      ? sql`update steps set status = 'waiting', reason = 'timer', wake_at = ${turn.notBefore}, turn_at = ${turnAt(now, turn.priority, limits)}
            where run_id = ${turn.runId} and needs_left = 0 and status = 'pending'`
      : sql`update steps set status = ${readyOrAsked}, reason = ${asked}, wake_at = null, turn_at = ${turnAt(now, turn.priority, limits)}
            where run_id = ${turn.runId} and needs_left = 0 and status = 'pending'`,
    ...log.writes(),
  ];
}

/** Ends a run: its row, its slot, its loop's streaks and standing, its hooks, and the turn of the next one. */
export function endRun(desk: Desk, end: RunEnd): void {
  const { now, limits, loop, run, log, writes } = desk;
  const failed = end.status === "failed" || end.status === "timed_out";
  let turned = failed;
  if (loop !== null) {
    const slotAt = run.originKind === "slot" ? run.slotAt : null;
    const after = afterRun(loop, { status: end.status, class: end.class, output: end.output, slotAt }, now, limits);
    turned = after.turned;
    const loopLog = journal("loop", loop.id, loop.eventNumber, now);
    const status = after.becomes === null ? loop.status : loopTable[loop.status][after.becomes.event];
    ensure(status !== undefined, `a loop that is ${loop.status} cannot ${after.becomes?.event}`);
    const over = status === "expired" || status === "finished";
    const nextAt = over ? null : after.nextAt === undefined ? loop.nextAt : after.nextAt;
    const wakeAt = status === "active" && loop.archivedAt === null ? nextWake(nextAt, loop.policy.expiresAt) : null;
    if (after.becomes !== null) loopLog.add(`loop.${status}`, { reason: after.becomes.reason, run: run.id });
    const tripped = after.becomes?.event === "trip";
    writes.push(
      sql`update loops set success_streak = ${after.successStreak}, failure_streak = ${after.failureStreak}, failure_class = ${after.failureClass},
            status = ${status}, paused_reason = ${tripped ? (after.becomes?.reason ?? null) : loop.pausedReason},
            paused_at = ${tripped ? now : loop.pausedAt}, breaker_at = ${tripped ? now : loop.breakerAt},
            next_at = ${nextAt}, wake_at = ${wakeAt}, updated_at = ${now} where id = ${loop.id}`,
      ...loopLog.writes(),
    );
    if (slotAt !== null)
      writes.push(
        sql`update slots set outcome = ${end.status}, reason = ${end.reason ?? null}
            where loop_id = ${loop.id} and at = ${slotAt} and run_id = ${run.id} and outcome is null`,
      );
    const next = desk.turns[0];
    if (next !== undefined && !desk.busy && status !== "paused" && loop.archivedAt === null)
      writes.push(...letIn(next, now, limits));
  }
  const hooks = [
    ...(run.policy.onFinish === null ? [] : ["on_finish"]),
    ...(run.policy.onFailure !== null && turned ? ["on_failure"] : []),
  ];
  const error =
    failed || (end.class !== null && end.status === "cancelled")
      ? { class: end.class ?? "unknown", message: end.message ?? end.reason ?? end.status }
      : null;
  log.add(`run.${end.status}`, {
    ...(end.reason === null ? {} : { reason: end.reason }),
    ...(end.class === null ? {} : { class: end.class }),
  });
  writes.push(
    sql`update runs set status = ${end.status}, reason = ${end.reason}, wake_at = null, waits_turn = 0, exit_status = ${end.exitStatus},
          output = ${end.output}, error = ${error === null ? null : JSON.stringify(error)}, hooks_due = ${hooks.length === 0 ? null : JSON.stringify(hooks)},
          finished_at = ${endOf(end.endedAt, run.startedAt, now)}, revision = revision + 1, event_number = ${log.number()}
        where id = ${run.id} and finished_at is null`,
    ...log.events(),
  );
}

/** When the scheduler has to look at a loop: its next slot, or the end of its life if that is earlier. */
export const nextWake = (nextAt: number | null, expiresAt: number | null): number | null =>
  nextAt === null ? expiresAt : expiresAt === null ? nextAt : Math.min(nextAt, expiresAt);

/** A desk, with the states of the run's steps and its live attempts. */
export interface DeskRead {
  readonly desk: Desk;
  readonly steps: readonly StepState[];
  readonly live: readonly string[];
  /** Rows of what was asked besides, under the same locks. */
  readonly also: readonly (readonly Row[])[];
}

/** Reads all that the end of a run touches. */
export function* deskFor(runId: string, limits: Limits): Steps<DeskRead | null> {
  const place = yield* one<Row>(sql`select loop_id from runs where id = ${runId}`);
  return place === undefined ? null : yield* deskAt(runId, place["loop_id"] as string | null, limits);
}

/** The same for a run whose loop is known. Lock order: loop, run, attempts, steps. @param also what else is read, after the locks */
export function* deskAt(
  runId: string,
  loopId: string | null,
  limits: Limits,
  also: readonly Sql[] = [],
): Steps<DeskRead | null> {
  const ofLoop = loopId === null ? [] : [sql`select * from loops where id = ${loopId} ${forUpdate}`];
  const results = yield* many<(readonly Row[])[number][]>(
    readInstant,
    ...ofLoop,
    sql`select * from runs where id = ${runId} ${forUpdate}`,
    sql`select id from attempts where run_id = ${runId} and finished_at is null order by id ${forUpdate}`,
    sql`select id, run_id, key, status, reason, wake_at, needs_left, condition, continue_on_failure, parent_step_id from steps where run_id = ${runId} order by key ${forUpdate}`,
    ...also,
    ...(loopId === null ? [] : turnQueries(loopId, runId)),
  );
  const [clock = [], ...rest] = results;
  const [loop] = loopId === null ? [] : (rest.shift() ?? []);
  const [runs = [], attempts = [], steps = []] = rest;
  const [busy = [], turns = []] = rest.slice(3 + also.length);
  const now = clock[0]?.["now"] as number | undefined;
  const run = runs[0];
  ensure(now !== undefined, "the store has a clock");
  // It was removed between the two reads.
  if (run === undefined) return null;
  const row = toRun(run);
  return {
    desk: {
      now,
      limits,
      run: row,
      loop: loop === undefined ? null : toLoop(loop),
      log: journal("run", row.id, row.eventNumber, now),
      busy: isBusy(busy[0], loop),
      turns: turns.map(toTurn),
      writes: [],
    },
    steps: steps.map(toStepState),
    live: attempts.map((attempt) => attempt["id"] as string),
    also: rest.slice(3, 3 + also.length),
  };
}

/** Cancels a run on a desk: at once where nothing of it is at work, else by asking its host. */
export function cancelOn(
  desk: Desk,
  steps: readonly StepState[],
  live: readonly string[],
  why: { readonly by: string; readonly reason: string; readonly superseded: boolean },
): "requested" | "cancelled" | "already_ended" {
  const { now, run, log, writes } = desk;
  const cancelSteps = (which: Sql): Sql =>
    sql`update steps set status = 'cancelled', reason = ${why.reason}, wake_at = null, finished_at = ${now} where ${which} and finished_at is null`;
  if (isFinal(run.status)) return "already_ended";
  if (live.length > 0) {
    if (run.cancelRequestedAt !== null) return "requested";
    log.add("run.cancel_requested", { by: why.by, reason: why.reason });
    writes.push(
      sql`update runs set cancel_requested_at = ${now}, cancel_by = ${why.by}, cancel_reason = ${why.reason},
            cancel_superseded = ${why.superseded ? 1 : 0}, revision = revision + 1 where id = ${run.id} and finished_at is null`,
      // Nothing of it starts any more; what is at work is ended by its host.
      ...(steps.length > 1 ? [cancelSteps(sql`run_id = ${run.id} and status <> 'running'`)] : []),
      ...log.writes(),
    );
    return "requested";
  }
  writes.push(cancelSteps(sql`run_id = ${run.id}`));
  writes.push(
    sql`update runs set cancel_requested_at = coalesce(cancel_requested_at, ${now}), cancel_by = ${why.by}, cancel_reason = ${why.reason} where id = ${run.id}`,
  );
  endRun(desk, {
    status: "cancelled",
    reason: why.superseded ? "superseded" : why.reason,
    class: why.superseded ? "superseded" : "cancelled",
    message: why.reason,
    exitStatus: null,
    output: null,
    endedAt: null,
  });
  return "cancelled";
}

// --- operations ------------------------------------------------------------------------------------------------------

/** The run that starts another; refuses what would nest or spread too far. */
export function* parentOf(parentRunId: string | null, limits: Limits): Steps<NewRun["parent"]> {
  if (parentRunId === null) return null;
  const row = yield* one<Row>(sql`select id, root_run_id, depth, finished_at from runs where id = ${parentRunId}`);
  if (row === undefined)
    throw new AppError(
      "not_found",
      "run_not_found",
      `the run ${parentRunId} that starts this one is not in the store any more`,
      {
        hint: "Start it by hand, or from a run that is kept: `drover runs`.",
      },
    );
  const depth = row["depth"] as number;
  if (depth + 1 > limits.maxDepth)
    throw new AppError("conflict", "too_deep", `runs started by runs nest ${limits.maxDepth} deep at most`, {
      hint: "Let the outer run finish and start the next one from there, or raise limits.maxDepth.",
    });
  const root = row["root_run_id"] as string;
  const below = yield* one<{ n: number }>(
    sql`select count(*) as n from (select id from runs where root_run_id = ${root} and parent_run_id is not null order by id limit ${limits.maxDescendants}) as below`,
  );
  if ((below?.n ?? 0) >= limits.maxDescendants)
    throw new AppError(
      "conflict",
      "too_many_descendants",
      `the run ${root} has started ${limits.maxDescendants} runs, directly or through others, and may start no more`,
      {
        hint: "Raise limits.maxDescendants if this is meant.",
      },
    );
  return { id: parentRunId, rootRunId: root, depth };
}

export function* runById(runId: string): Steps<RunRecord> {
  const row = yield* one<Row>(sql`select * from runs where id = ${runId}`);
  ensure(row, `the run ${runId} was just made`);
  return toRun(row);
}

/** Makes a run that belongs to no slot; the last of its operation. */
function* makeRun(
  draft: NewRun,
  ctx: { id(kind: IdKind): string },
  limits: Limits,
  more: (runId: string, now: number) => readonly Sql[] = () => [],
): Steps<RunRecord> {
  const clock = yield* one<{ now: number }>(readInstant);
  ensure(clock, "the store has a clock");
  const made = newRun(draft, ctx, clock.now, limits);
  yield* all(made.writes[0] as Sql);
  const run = yield* runById(made.runId);
  yield* finish(...made.writes.slice(1), ...more(made.runId, clock.now));
  return run;
}

export const addRun = operation("runs.add", function* (input: RunDraft, ctx): Steps<{
  run: RunRecord;
  repeated: boolean;
}> {
  if (input.idempotencyKey !== null) {
    const there = yield* one<Row>(sql`select * from runs where idempotency_key = ${input.idempotencyKey}`);
    if (there !== undefined) {
      const run = toRun(there);
      if (run.definitionDigest !== digestOf([input.target, input.policy]))
        throw new AppError(
          "conflict",
          "key_taken",
          `the key ${input.idempotencyKey} belongs to a run of other work (${run.id})`,
          { hint: "Use another key." },
        );
      return { run, repeated: true };
    }
  }
  const parent = yield* parentOf(input.parentRunId, input.limits);
  yield* requireDefinition(input.target);
  const run = yield* makeRun(
    { ...input, loop: null, slotAt: null, parent, retryOf: null, waitsTurn: false, chained: false, notBefore: null },
    ctx,
    input.limits,
  );
  return { run, repeated: false };
});

export const retryRun = operation(
  "runs.retry",
  function* (
    input: {
      runId: string;
      by: string;
      from?: string | null;
      fresh?: boolean;
      parentRunId?: string | null;
      limits: Limits;
    },
    ctx,
  ): Steps<RunRecord> {
    // A run that retries another nests like one that starts one: else it could begin again at depth 0.
    const parent = yield* parentOf(input.parentRunId ?? null, input.limits);
    const row = yield* one<Row>(sql`select * from runs where id = ${input.runId}`);
    if (row === undefined)
      throw new AppError("not_found", "run_not_found", `there is no run ${input.runId}`, {
        hint: "`drover runs` lists the newest runs.",
      });
    const old = toRun(row);
    if (!isFinal(old.status))
      throw new AppError("conflict", "run_live", `the run ${old.id} has not ended: it is ${old.status}`, {
        hint: `Cancel it first: drover cancel ${old.id}`,
      });
    yield* requireDefinition(old.target);
    const digest = promptOf(old.target);
    const prompt = digest === null ? null : yield* one<Row>(sql`select bytes from prompts where digest = ${digest}`);
    if (prompt === undefined)
      throw new AppError("conflict", "prompt_gone", `the prompt of the run ${old.id} is not kept any more`, {
        hint: "Prompts are kept for limits.promptRetentionMs after the last run with them. Run it anew with its prompt.",
      });
    const isFresh =
      input.fresh === true || old.target.kind !== "workflow" || (old.status === "succeeded" && input.from == null);
    const reused = isFresh ? [] : yield* reusableSteps(old.id, input.from ?? null);
    return yield* makeRun(
      {
        kind: old.kind,
        target: old.target,
        policy: old.policy,
        originKind: "retry",
        originId: input.by,
        idempotencyKey: null,
        loop: old.loopId === null || old.loopName === null ? null : { id: old.loopId, name: old.loopName },
        slotAt: null,
        parent,
        retryOf: old.id,
        hostPin: old.hostPin,
        waitsTurn: false,
        chained: false,
        notBefore: null,
      },
      ctx,
      input.limits,
      (runId, now) => reuseWrites(runId, old.id, reused, now),
    );
  },
);

/** Keys of the steps of an ended run that a retry need not do again. @param from a step that is done again, with all that need it */
function* reusableSteps(runId: string, from: string | null): Steps<readonly string[]> {
  const [steps, needs, trees] = yield* many<[Row, Row, Row]>(
    sql`select id, key, status from steps where run_id = ${runId} order by key`,
    sql`select n.step_id as step_id, n.needs_step_id as needs_step_id from steps s join step_needs n on n.step_id = s.id where s.run_id = ${runId}`,
    sql`select run_id from worktrees where run_id = ${runId}`,
  );
  const again = new Set(steps.filter((step) => step["key"] === from).map((step) => step["id"]));
  for (let before = -1; before < again.size; ) {
    before = again.size;
    for (const need of needs) if (again.has(need["needs_step_id"] ?? null)) again.add(need["step_id"] ?? null);
  }
  const kept = steps.filter((step) => step["status"] === "succeeded" && !again.has(step["id"] ?? null));
  if (kept.length > 0 && trees.length > 0)
    throw new AppError(
      "conflict",
      "tree_not_shared",
      `the run ${runId} worked in a worktree of its own: what its steps did there a new run does not have`,
      { hint: "Do all of it again: --fresh." },
    );
  return kept.map((step) => step["key"] as string);
}

/** Statements that give a new run the ends of steps of the old one. */
const reuseWrites = (runId: string, oldId: string, keys: readonly string[], now: number): Sql[] =>
  keys.length === 0
    ? []
    : [
        sql`update steps set status = 'succeeded', reason = null, finished_at = ${now},
              output = (select o.output from steps o where o.run_id = ${oldId} and o.key = steps.key),
              result = (select o.result from steps o where o.run_id = ${oldId} and o.key = steps.key),
              reused_from = (select o.id from steps o where o.run_id = ${oldId} and o.key = steps.key)
            where run_id = ${runId} and key in (${jsonList(keys)})`,
        sql`update steps set needs_left = (select count(*) from step_needs n join steps d on d.id = n.needs_step_id
              where n.step_id = steps.id and d.status <> 'succeeded') where run_id = ${runId}`,
        sql`update steps set reason = 'judge' where run_id = ${runId} and status = 'pending' and needs_left = 0`,
      ];

export const cancelRun = operation(
  "runs.cancel",
  function* (input: {
    runId: string;
    by: string;
    reason: string;
    limits: Limits;
  }): Steps<"requested" | "cancelled" | "already_ended"> {
    const read = yield* deskFor(input.runId, input.limits);
    if (read === null)
      throw new AppError("not_found", "run_not_found", `there is no run ${input.runId}`, {
        hint: "`drover runs` lists the newest runs.",
      });
    const answer = cancelOn(read.desk, read.steps, read.live, {
      by: input.by,
      reason: input.reason,
      superseded: false,
    });
    if (read.desk.writes.length > 0) yield* finish(...read.desk.writes);
    return answer;
  },
);

export const getRun = read("runs.get", function* (input: { runId: string }): Steps<RunTree | null> {
  const [runs, steps, attempts, worktrees] = yield* many<[Row, Row, Row, Row]>(
    sql`select * from runs where id = ${input.runId}`,
    sql`select * from steps where run_id = ${input.runId} order by position, length(key), key`,
    sql`select * from attempts where run_id = ${input.runId} order by created_at, number`,
    sql`select * from worktrees where run_id = ${input.runId}`,
  );
  const [run] = runs;
  if (run === undefined) return null;
  const needs = steps.every((step) => step["condition"] === null)
    ? []
    : yield* all<Row>(
        sql`select n.step_id as step_id, n.needs_step_id as needs_step_id from steps s join step_needs n on n.step_id = s.id
            where s.run_id = ${input.runId} order by n.step_id, n.needs_step_id`,
      );
  return {
    run: toRun(run),
    steps: steps.map(toStep),
    attempts: attempts.map(toAttempt),
    worktree: worktrees[0] === undefined ? null : toWorktree(worktrees[0]),
    ...(needs.length === 0
      ? {}
      : {
          needs: needs.map((row) => ({
            stepId: row["step_id"] as string,
            needsStepId: row["needs_step_id"] as string,
          })),
        }),
  };
});

interface ListRuns extends PageRequest {
  /** Rows that are looked through for a page; absent: `WALK`. */
  readonly walk?: number;
  readonly loopId: string | null;
  readonly status: RunStatus | readonly RunStatus[] | null;
  readonly label: string | null;
  readonly since: number | null;
  readonly until?: number | null;
  readonly kind?: RunRecord["kind"] | null;
  readonly class?: FailureClass | null;
  readonly reason?: string | null;
}

/**
 * Where a listing walks: each text has an index that gives its rows in order, so that none is looked at that is older than
 * the page. Together they hold every run that may be wanted.
 */
function walksOf(input: ListRuns, at: number, id: string): Sql[] {
  const { loopId, label } = input;
  const from = (queuedAt: Sql, runId: Sql): Sql =>
    sql`(${queuedAt}, ${runId}) < (${at}, ${id}) and ${queuedAt} >= ${input.since ?? 0} and ${queuedAt} <= ${input.until ?? Number.MAX_SAFE_INTEGER}`;
  const ofRun = from(sql`r.queued_at`, sql`r.id`);
  const order = sql`order by r.queued_at desc, r.id desc`;
  if (label !== null)
    return [
      sql`select l.run_id as id, l.queued_at as queued_at from run_labels l where l.label = ${label} and ${from(sql`l.queued_at`, sql`l.run_id`)}
          order by l.queued_at desc, l.run_id desc`,
    ];
  const walk = (where: Sql): Sql =>
    sql`select r.id as id, r.queued_at as queued_at from runs r where ${where} and ${ofRun} ${order}`;
  if (input.reason != null) return [walk(sql`r.reason = ${input.reason} and r.finished_at is null`)];
  const loop = loopId === null ? null : sql`r.loop_id = ${loopId}`;
  if (input.status === null) return [walk(loop ?? sql`1 = 1`)];
  const statuses = statusesOf(input.status);
  return statuses.flatMap((one) => {
    const ended = isFinal(one);
    const word = sql`r.status = ${one} and r.finished_at ${ended ? sql`is not null` : sql`is null`}`;
    if (loop === null) return [walk(word)];
    // What is live of one loop is in two indexes, of which neither is history.
    return ended
      ? [walk(sql`${loop} and ${word}`)]
      : [walk(sql`${loop} and r.waits_turn = 0 and ${word}`), walk(sql`${loop} and r.waits_turn = 1 and ${word}`)];
  });
}

const statusAmong = (statuses: readonly RunStatus[]): Sql =>
  sql`(${join(
    statuses.map((one) => sql`r.status = ${one}`),
    " or ",
  )})`;

const statusesOf = (status: RunStatus | readonly RunStatus[]): readonly RunStatus[] =>
  typeof status === "string" ? [status] : status;

/** What a walk does not answer by itself: each row is looked at. null: nothing is left to ask. */
function restOf({ loopId, label, status, kind, reason, class: failure }: ListRuns): Sql | null {
  const asked: Sql[] = [];
  if (label !== null || reason != null) {
    if (loopId !== null) asked.push(sql`r.loop_id = ${loopId}`);
    if (status !== null) asked.push(statusAmong(statusesOf(status)));
  }
  // Not by its index: the walk comes first.
  if (label !== null && reason != null) asked.push(sql`coalesce(r.reason, '') = ${reason} and r.finished_at is null`);
  if (kind != null) asked.push(sql`r.kind = ${kind}`);
  // Errors are documents of ours, whose class stands first.
  if (failure != null) asked.push(sql`r.error like ${`{"class":"${failure}",%`}`);
  return asked.length === 0 ? null : join(asked, " and ");
}

const keyOf = (run: RunRecord) => [run.queuedAt, run.id] as const;

/** What a list holds of a run: the record, and of its output what is short. An output may have a megabyte, a page a thousand runs. */
const LISTED = sql`r.id, r.kind, r.origin_kind, r.origin_id, r.idempotency_key, r.loop_id, r.loop_name, r.slot_at, r.work_item_id,
  r.parent_run_id, r.root_run_id, r.depth, r.retry_of, r.target, r.policy, r.status, r.reason, r.wake_at, r.priority, r.queued_at,
  r.host_pin, r.account_wish, r.cancel_requested_at, r.cancel_by, r.cancel_reason, r.exit_status, r.error, r.started_at,
  r.finished_at, r.created_at, octet_length(r.output) as output_bytes,
  case when octet_length(r.output) <= ${LISTED_OUTPUT_BYTES} then r.output end as output`;

/** Newest first; where a filter has no index of its own, at most `WALK` rows are looked through for a page. */
export const listRuns = read("runs.list", function* (input: ListRuns): Steps<Page<RunRecord>> {
  const [at, id] = readCursor(input.cursor, ["number", "string"]) ?? [Number.MAX_SAFE_INTEGER, "~"];
  const size = input.limit + 1;
  const walks = walksOf(input, at, id);
  const rest = restOf(input);
  const most = rest === null ? size : (input.walk ?? WALK);
  if (walks.length === 0) return { items: [], next: null };
  const newest = (walk: Sql): Sql => sql`select * from (${walk} limit ${most}) as walked`;
  const walked =
    walks.length === 1
      ? newest(walks[0] as Sql)
      : sql`select * from (${join(walks.map(newest), " union all ")}) as walked order by queued_at desc, id desc limit ${most}`;
  if (rest === null) {
    const rows = yield* all<Row>(
      sql`select ${LISTED} from (${walked}) as walked join runs r on r.id = walked.id order by walked.queued_at desc, walked.id desc limit ${size}`,
    );
    return pageOf(rows.map(toRun), input.limit, keyOf);
  }
  const rows = yield* all<Row>(
    sql`select ${LISTED} from (${walked}) as walked join runs r on r.id = walked.id where ${rest} order by walked.queued_at desc, walked.id desc limit ${size}`,
  );
  if (rows.length === size) return pageOf(rows.map(toRun), input.limit, keyOf);
  const end = yield* one<{ queued_at: number; id: string }>(
    sql`select queued_at, id from (${walked}) as walked order by queued_at desc, id desc limit 1 offset ${most - 1}`,
  );
  return pageOfWalk(rows.map(toRun), input.limit, keyOf, end === undefined ? null : [Number(end.queued_at), end.id]);
});

/** The runs that one which waits for its turn has to wait for: those of its loop that were let in and have not ended, a few of them. */
export const runsBeforeTurn = read("runs.beforeTurn", function* (input: { runId: string }): Steps<
  { id: string; status: RunStatus; startedAt: number | null }[]
> {
  const rows = yield* all<Row>(
    sql`select b.id as id, b.status as status, b.started_at as started_at from runs r
        join runs b on b.loop_id = r.loop_id and b.finished_at is null and b.waits_turn = 0
        where r.id = ${input.runId} order by b.id limit 5`,
  );
  return rows.map((row) => ({
    id: row["id"] as string,
    status: row["status"] as RunStatus,
    startedAt: row["started_at"] as number | null,
  }));
});

/** How long the newest runs took that ended well: of the same loop; of a run without one, of the same work. Newest first. */
export const durationsLike = read("runs.durationsLike", function* (input: { runId: string; limit: number }): Steps<
  number[]
> {
  const run = yield* one<Row>(sql`select loop_id, definition_digest from runs where id = ${input.runId}`);
  if (run === undefined) return [];
  const loopId = run["loop_id"] as string | null;
  const alike =
    loopId === null
      ? sql`r.definition_digest = ${run["definition_digest"] as string} and r.loop_id is null and r.status = 'succeeded'`
      : sql`r.loop_id = ${loopId} and r.status = 'succeeded'`;
  const rows = yield* all<{ started_at: number; finished_at: number }>(
    sql`select r.started_at as started_at, r.finished_at as finished_at from runs r
        where ${alike} and r.finished_at is not null and r.started_at is not null and r.id <> ${input.runId}
        order by r.queued_at desc, r.id desc limit ${input.limit}`,
  );
  return rows.map((row) => Math.max(0, row.finished_at - row.started_at));
});

export const countRuns = read("runs.counts", function* (_: Record<string, never>): Steps<LiveCounts> {
  const [rows, agents, accounts, holds] = yield* many<
    [{ status: string; n: number }, { account_wish: string; reason: string | null; n: number }, Row, Row]
  >(
    sql`select status, count(*) as n from runs where finished_at is null group by status`,
    sql`select account_wish, reason, count(*) as n from runs
        where finished_at is null and account_wish is not null and status in ('queued', 'waiting') group by account_wish, reason`,
    sql`select id, enabled from accounts order by id`,
    sql`select subject_kind, subject_id from holds where cleared_at is null and until_at is null order by subject_kind, subject_id`,
  );
  const enabled = new Map(accounts.map((row) => [row["id"], row["enabled"] !== 0]));
  const held = new Set(holds.map((row) => `${row["subject_kind"]}:${row["subject_id"]}`));
  // What admission refuses until a person acts; the user's own login is there without a row.
  const isShut = (accountId: string): boolean =>
    !(enabled.get(accountId) ?? accountId.endsWith(":default")) ||
    held.has(`account:${accountId}`) ||
    held.has(`provider:${accountId.split(":")[0] ?? ""}`);
  const of = (status: string) => Number(rows.find((row) => row.status === status)?.n ?? 0);
  return {
    running: of("running"),
    queued: of("queued"),
    waiting: of("waiting"),
    forPerson: agents
      .filter((row) => row.reason === "account" || isShut(row.account_wish))
      .reduce((sum, row) => sum + Number(row.n), 0),
  };
});

export const hooksDue = read("runs.hooksDue", function* (input: { hostId: string; limit: number }): Steps<
  { run: RunRecord; hooks: string[] }[]
> {
  const rows = yield* all<Row>(
    sql`select * from runs where hooks_due is not null and host_pin = ${input.hostId} order by id limit ${input.limit}`,
  );
  return rows.map((row) => {
    const run = toRun(row);
    return { run, hooks: JSON.parse(run.hooksDue ?? "[]") as string[] };
  });
});

export const hooksDone = operation(
  "runs.hooksDone",
  function* (input: { runId: string; note: string | null }): Steps<void> {
    const [clock, rows] = yield* many<[{ now: number }, Row]>(
      readInstant,
      sql`select * from runs where id = ${input.runId} ${forUpdate}`,
    );
    const row = rows[0];
    if (row === undefined || row["hooks_due"] === null) return;
    const run = toRun(row);
    const log = journal("run", run.id, run.eventNumber, clock[0]?.now ?? 0);
    log.add("run.hooks", {
      hooks: JSON.parse(run.hooksDue ?? "[]") as unknown,
      ...(input.note === null ? {} : { note: input.note }),
    });
    yield* finish(sql`update runs set hooks_due = null where id = ${run.id}`, ...log.writes());
  },
);

export type { Context };
