/** Loops: kept, edited, and their due instants turned into slots and runs. The decision is `planDue` of core; here it is read for and written. */
import { AppError, ensure } from "../core/errors.ts";
import { type Limits, WALK } from "../core/limits.ts";
import { loopTable } from "../core/loop-states.ts";
import {
  planDue as decide,
  type LateCause,
  type Plan,
  type PlannedSlot,
  type PlanView,
  type SlotReason,
} from "../core/plan.ts";
import type { LoopChange, LoopDraft, Page, PageRequest, RunNowAnswer } from "../core/ports.ts";
import type { LoopRecord } from "../core/records.ts";
import { nextInstant, type Schedule } from "../core/schedule.ts";
import { promptOf } from "../core/target-parts.ts";
import { requireDefinition } from "./definitions.ts";
import { journal, type Journal } from "./journal.ts";
import {
  all,
  finish,
  instant,
  many,
  one,
  operation,
  read,
  readInstant,
  runAll,
  type Context,
  type Steps,
} from "./operation.ts";
import { pageOf, pageOfWalk, readCursor } from "./page.ts";
import { toLoop, type LoopRow, type Row } from "./rows.ts";
import { cancelOn, deskFor, digestOf, letIn, newRun, nextWake, parentOf, suffixKey, toTurn } from "./runs.ts";
import { forUpdate, join, jsonList, skipLocked, sql, storeNow, type Sql } from "./sql.ts";

// --- planning --------------------------------------------------------------------------------------------------------

export interface Load {
  readonly active: number;
  readonly waitingTurn: number;
  readonly lastSlot: Row | undefined;
}

/** How many runs of each loop may be at work, how many wait for their turn, and the newest slot. */
export function* loadsOf(loopIds: readonly string[]): Steps<Map<string, Load>> {
  const [released, waiting, ...last] = yield* many<Row[]>(
    sql`select loop_id, count(*) as n from runs where finished_at is null and waits_turn = 0 and loop_id in (${jsonList(loopIds)}) group by loop_id`,
    sql`select loop_id, count(*) as n from runs where finished_at is null and waits_turn = 1 and loop_id in (${jsonList(loopIds)}) group by loop_id`,
    ...loopIds.map((id) => sql`select * from slots where loop_id = ${id} order by at desc limit 1`),
  );
  const counts = (rows: readonly Row[] | undefined) =>
    new Map((rows ?? []).map((row) => [row["loop_id"], Number(row["n"])]));
  const [active, turns] = [counts(released), counts(waiting)];
  return new Map(
    loopIds.map((id, i) => [
      id,
      { active: active.get(id) ?? 0, waitingTurn: turns.get(id) ?? 0, lastSlot: last[i]?.[0] },
    ]),
  );
}

const viewOf = (loop: LoopRow, load: Load): PlanView => ({
  loopId: loop.id,
  status: loop.archivedAt !== null ? "archived" : loop.status,
  schedule: loop.schedule,
  policy: loop.policy,
  plannedUntil: loop.plannedUntil,
  anchoredAt: loop.anchoredAt,
  nextAt: loop.nextAt,
  active: load.active,
  waitingTurn: load.waitingTurn,
});

/** The runs of a loop that have not ended, oldest first: by the two indexes of what lives, never through all that it ever ran. */
const liveOf = (loopId: string): Sql =>
  sql`select id, status from runs where loop_id = ${loopId} and finished_at is null and waits_turn = 0
      union all select id, status from runs where loop_id = ${loopId} and finished_at is null and waits_turn = 1 order by id`;

/**
 * Ends what a new slot supersedes: at once what only waits, by its host what is at work. Answers how many are still at
 * work, and the loop as it stands now: an end may move its status, its streaks and its events. @param kept runs that stay
 */
function* supersede(
  loop: LoopRow,
  limits: Limits,
  kept: readonly string[] = [],
): Steps<{ atWork: number; loop: LoopRow }> {
  const rows = yield* all<Row>(liveOf(loop.id));
  let atWork = 0;
  for (const row of rows) {
    if (kept.includes(row["id"] as string)) continue;
    const read = yield* deskFor(row["id"] as string, limits);
    if (read === null) continue;
    // Nobody is let in meanwhile: the new slot's run is the one that starts next.
    const desk = { ...read.desk, turns: [] };
    if (
      cancelOn(desk, read.steps, read.live, { by: "overlap", reason: "a newer slot is due", superseded: true }) ===
      "requested"
    )
      atWork++;
    // Before the next one is read: its end is judged by what this one's left of the loop.
    yield* runAll(...desk.writes);
  }
  const now = yield* one<Row>(sql`select * from loops where id = ${loop.id}`);
  ensure(now, "a locked loop is there");
  return { atWork, loop: toLoop(now) };
}

interface Applied {
  readonly writes: Sql[];
  readonly runs: readonly { readonly runId: string; readonly at: number }[];
  /** What the loop becomes by it. */
  readonly status: LoopRow["status"];
  readonly nextAt: number | null;
  readonly plannedUntil: number;
}

/** A plan as statements. `log` belongs to the loop and is written by the caller. */
function* apply(
  loop: LoopRow,
  load: Load,
  plan: Plan,
  now: number,
  limits: Limits,
  ctx: Context,
  log: Journal,
): Steps<Applied> {
  const writes: Sql[] = [];
  const runs: { runId: string; at: number }[] = [];
  // What is made up for by this plan runs one after another, and the slot that is on time after them.
  const chain: string[] = [];
  let standing = loop.status;
  let first = true;
  for (const slot of plan.slots) {
    const { decision } = slot;
    if (decision.kind === "end") {
      writes.push(endedSlot(loop, slot, decision, first ? load.lastSlot : undefined, now));
      if (decision.outcome !== "coalesced")
        log.add(`slot.${decision.outcome}`, {
          at: slot.at,
          ...(slot.count > 1 ? { untilAt: slot.untilAt, count: slot.count } : {}),
          reason: decision.reason,
        });
    } else {
      let start = decision.start;
      if (decision.supersede) {
        yield* runAll(...writes.splice(0));
        const before = yield* supersede(loop, limits, chain);
        log.follow(before.loop.eventNumber);
        standing = before.loop.status;
        if (before.atWork === 0 && chain.length === 0) start = "now";
      }
      const made = newRun(
        {
          kind: loop.target.kind,
          target: loop.target,
          policy: runPolicyOf(loop),
          originKind: "slot",
          originId: loop.id,
          idempotencyKey: `${loop.id}@${slot.at}`,
          loop: { id: loop.id, name: loop.name },
          slotAt: slot.at,
          parent: null,
          retryOf: null,
          hostPin: loop.hostPin,
          waitsTurn: start === "turn",
          chained: decision.chained,
          notBefore: decision.notBefore > now ? decision.notBefore : null,
        },
        ctx,
        now,
        limits,
      );
      runs.push({ runId: made.runId, at: slot.at });
      if (decision.chained) chain.push(made.runId);
      writes.push(
        sql`insert into slots (loop_id, at, until_at, count, run_id, late_ms, created_at) values (${loop.id}, ${slot.at}, ${slot.at}, 1, ${made.runId}, ${slot.lateMs}, ${now})`,
        ...made.writes,
      );
    }
    first = false;
  }
  const status =
    plan.becomes === null
      ? standing
      : (loopTable[standing][plan.becomes === "expired" ? "expire" : "finish"] ?? standing);
  if (status !== standing)
    log.add(`loop.${status}`, {
      reason: plan.becomes === "expired" ? "its expiry date has come" : "its one slot is over",
    });
  return { writes, runs, status, nextAt: plan.nextAt, plannedUntil: plan.plannedUntil };
}

/** The policy that a run takes with it: what concerns the loop alone stays behind. */
function runPolicyOf(loop: LoopRow) {
  const {
    attempts,
    backoffMs,
    timeoutMs,
    idleTimeoutMs,
    graceMs,
    priority,
    onLost,
    onFinish,
    onFailure,
    hookTimeoutMs,
    labels,
  } = loop.policy;
  return {
    attempts,
    backoffMs,
    timeoutMs,
    idleTimeoutMs,
    graceMs,
    priority,
    onLost,
    onFinish,
    onFailure,
    hookTimeoutMs,
    labels,
  };
}

/** A slot that ends where it is written; joined to the row before it when both say the same under one schedule. */
function endedSlot(
  loop: LoopRow,
  slot: PlannedSlot,
  decision: PlannedSlot["decision"] & { kind: "end" },
  last: Row | undefined,
  now: number,
): Sql {
  const same =
    last !== undefined &&
    last["run_id"] === null &&
    last["outcome"] === decision.outcome &&
    last["reason"] === decision.reason &&
    last["coalesced_into"] === decision.into &&
    (last["at"] as number) > loop.anchoredAt &&
    loop.schedule.kind !== "once" &&
    loop.schedule.kind !== "dynamic";
  if (same)
    return sql`update slots set until_at = ${slot.untilAt}, count = count + ${slot.count}, schedule = ${JSON.stringify(loop.schedule)}
               where loop_id = ${loop.id} and at = ${last["at"] as number} and until_at = ${last["until_at"] as number}`;
  return sql`insert into slots (loop_id, at, until_at, count, outcome, reason, coalesced_into, late_ms, schedule, created_at)
             values (${loop.id}, ${slot.at}, ${slot.untilAt}, ${slot.count}, ${decision.outcome}, ${decision.reason}, ${decision.into}, ${slot.lateMs},
               ${slot.count > 1 ? JSON.stringify(loop.schedule) : null}, ${now})`;
}

const wakeOf = (
  status: LoopRow["status"],
  archivedAt: number | null,
  nextAt: number | null,
  expiresAt: number | null,
) => (status === "active" && archivedAt === null ? nextWake(nextAt, expiresAt) : null);

export const planDueLoops = operation(
  "loops.planDue",
  function* (
    input: { cause: LateCause; limits: Limits; forbidPast?: SlotReason },
    ctx,
  ): Steps<{ loops: number; runs: number; wakeAt: number | null; more: boolean; now: number }> {
    const { cause, limits } = input;
    // Only those that are due are read: with thousands of loops a wake-up costs what fires.
    const [clock, rows, first] = yield* many<[{ now: number }, Row, { wake_at: number }]>(
      readInstant,
      sql`select * from loops where wake_at <= ${storeNow} order by wake_at, id limit ${limits.planLoops} ${skipLocked}`,
      // What another host is planning right now is its business: to wake for it would be to wake in a circle.
      sql`select wake_at from loops where wake_at is not null order by wake_at, id limit 1 ${skipLocked}`,
    );
    const now = clock[0]?.now;
    ensure(now !== undefined, "the store has a clock");
    const due = rows.map(toLoop);
    if (due.length === 0) return { loops: 0, runs: 0, wakeAt: first[0]?.wake_at ?? null, more: false, now };
    const loads = yield* loadsOf(due.map((loop) => loop.id));
    const writes: Sql[] = [];
    let runs = 0;
    for (const loop of due) {
      const load = loads.get(loop.id);
      ensure(load, "every due loop has its load");
      const log = journal("loop", loop.id, loop.eventNumber, now);
      const plan = decide(viewOf(loop, load), now, cause, limits, input.forbidPast);
      const applied = yield* apply(loop, load, plan, now, limits, ctx, log);
      runs += applied.runs.length;
      writes.push(
        ...applied.writes,
        sql`update loops set planned_until = ${applied.plannedUntil}, next_at = ${applied.nextAt}, status = ${applied.status},
              wake_at = ${wakeOf(applied.status, loop.archivedAt, applied.nextAt, loop.expiresAt)}, updated_at = ${now}
            where id = ${loop.id} and planned_until = ${loop.plannedUntil} and revision = ${loop.revision}`,
        ...log.writes(),
      );
    }
    yield* runAll(...writes);
    const next = yield* one<{ wake_at: number }>(
      sql`select wake_at from loops where wake_at is not null order by wake_at, id limit 1`,
    );
    const wakeAt = next?.wake_at ?? null;
    return { loops: due.length, runs, wakeAt, more: wakeAt !== null && wakeAt <= now, now };
  },
);

// --- keeping ---------------------------------------------------------------------------------------------------------

const conflict = (code: string, message: string, hint: string) => new AppError("conflict", code, message, { hint });

function* lockLoop(loopId: string): Steps<{ now: number; loop: LoopRow }> {
  const [clock, rows] = yield* many<[{ now: number }, Row]>(
    readInstant,
    sql`select * from loops where id = ${loopId} ${forUpdate}`,
  );
  const now = clock[0]?.now;
  ensure(now !== undefined, "the store has a clock");
  if (rows[0] === undefined)
    throw new AppError("not_found", "loop_not_found", `there is no loop ${loopId}`, {
      hint: "`drover loop ls --archived` lists all loops.",
    });
  return { now, loop: toLoop(rows[0]) };
}

function* freeName(name: string, besides: string | null): Steps<void> {
  const other = yield* one<Row>(sql`select id from loops where name = ${name} and archived_at is null`);
  if (other !== undefined && other["id"] !== besides)
    throw conflict(
      "name_taken",
      `a loop named ${name} exists already (${other["id"]})`,
      "Choose another name, or edit that loop: drover loop edit",
    );
}

/** What a change was made from is not what is there any more. */
export const changedMeanwhile = (name: string): AppError =>
  conflict(
    "changed_meanwhile",
    `the loop ${name} was changed meanwhile`,
    "Nothing was done: look at it and try again.",
  );

const notArchived = (loop: LoopRow): void => {
  if (loop.archivedAt !== null)
    throw conflict(
      "archived",
      `the loop ${loop.name} is archived`,
      `bring it back first: drover loop unarchive ${loop.id}`,
    );
};

function* loopById(loopId: string): Steps<LoopRecord> {
  const row = yield* one<Row>(sql`select * from loops where id = ${loopId}`);
  ensure(row, "a loop that was just written is there");
  return toLoop(row);
}

/** The schedule as it counts from now: an interval's period and a dynamic loop's first pause begin when it is saved. */
const anchored = (schedule: Schedule, now: number, limits: Limits): Schedule =>
  schedule.kind === "interval"
    ? { ...schedule, anchorAt: now }
    : schedule.kind === "dynamic"
      ? { ...schedule, firstAt: Math.max(schedule.firstAt, now) || now + limits.dynamicGapMs }
      : schedule;

/**
 * A new loop as statements; that its name is free is for the caller to see. @param paused why it is not to start anything yet;
 * null: it is active. Errors: AppError invalid `already_expired`.
 */
export function newLoop(
  draft: LoopDraft,
  ctx: Context,
  now: number,
  limits: Limits,
  paused: string | null = null,
): { readonly id: string; readonly writes: readonly Sql[] } {
  const schedule = anchored(draft.schedule, now, limits);
  const { expiresAt } = draft.policy;
  if (expiresAt !== null && expiresAt <= now)
    throw new AppError("invalid", "already_expired", `the loop ${draft.name} would expire before it begins`, {
      path: "--expires-at",
      hint: "Give an instant in the future.",
    });
  // A once loop in the past is due at once; every other schedule begins after this instant.
  const plannedUntil = schedule.kind === "once" ? Math.min(now, schedule.at - 1) : now;
  const nextAt = nextInstant(schedule, plannedUntil);
  const id = ctx.id("loop");
  const log = journal("loop", id, 0, now);
  log.add("loop.added", { name: draft.name });
  const status = paused === null ? "active" : "paused";
  if (paused !== null) log.add("loop.paused", { reason: paused });
  const insert = sql`insert into loops (id, name, managed_by, schedule, zone, target, policy, host_pin, definition_digest, revision, status, next_at, wake_at,
        planned_until, anchored_at, expires_at, prompt_digest, paused_reason, paused_at, suffix_key, created_at, updated_at)
      values (${id}, ${draft.name}, ${draft.managedBy}, ${JSON.stringify(schedule)}, ${schedule.kind === "cron" ? schedule.zone : null},
        ${JSON.stringify(draft.target)}, ${JSON.stringify(draft.policy)}, ${draft.hostPin}, ${digestOf([schedule, draft.target, draft.policy])}, 1, ${status},
        ${nextAt}, ${wakeOf(status, null, nextAt, expiresAt)}, ${plannedUntil}, ${now}, ${expiresAt}, ${promptOf(draft.target)}, ${paused},
        ${paused === null ? null : now}, ${suffixKey(id)}, ${now}, ${now})`;
  return { id, writes: [insert, ...labelled(id, draft.name, draft.policy.labels), ...log.writes()] };
}

/** A loop's labels, each with its name, so that the loops of a label are read in the order of their names. */
const labelled = (loopId: string, name: string, labels: readonly string[]): Sql[] =>
  [...new Set(labels)].map(
    (label) => sql`insert into loop_labels (label, name, loop_id) values (${label}, ${name}, ${loopId})`,
  );
const unlabelled = ({ id, name, policy }: LoopRecord): Sql[] =>
  policy.labels.map(
    (label) => sql`delete from loop_labels where label = ${label} and name = ${name} and loop_id = ${id}`,
  );

export const addLoop = operation(
  "loops.add",
  function* (input: { draft: LoopDraft; limits: Limits }, ctx): Steps<LoopRecord> {
    const { draft, limits } = input;
    yield* freeName(draft.name, null);
    yield* requireDefinition(draft.target);
    const { id, writes } = newLoop(draft, ctx, yield* instant(), limits);
    yield* runAll(...writes);
    return yield* loopById(id);
  },
);

/** Statements of many loops that travel together: enough for few round trips, few enough for what a database takes at once. */
const LOOPS_TOGETHER = 100;

export const addPausedLoops = operation(
  "loops.addPaused",
  function* (
    input: { drafts: readonly LoopDraft[]; reason: string; limits: Limits },
    ctx,
  ): Steps<readonly { id: string; name: string }[]> {
    const { drafts, reason, limits } = input;
    const [clock, taken] = yield* many<[{ now: number }, Row]>(
      readInstant,
      sql`select name from loops where archived_at is null and name in (${jsonList(drafts.map(({ name }) => name))}) order by name limit 1`,
    );
    const now = clock[0]?.now;
    ensure(now !== undefined, "the store has a clock");
    for (const { target } of drafts) yield* requireDefinition(target);
    if (taken[0] !== undefined)
      throw conflict(
        "name_taken",
        `a loop named ${taken[0]["name"]} exists already`,
        "Somebody has made it just now: ask again.",
      );
    const made = drafts.map((draft) => ({ name: draft.name, ...newLoop(draft, ctx, now, limits, reason) }));
    for (let from = 0; from < made.length; from += LOOPS_TOGETHER)
      yield* runAll(...made.slice(from, from + LOOPS_TOGETHER).flatMap(({ writes }) => writes));
    return made.map(({ id, name }) => ({ id, name }));
  },
);

/**
 * A loop's edit as statements. What was due before it is recorded under what the loop was, and starts nothing.
 * Errors: AppError invalid `already_expired`.
 */
export function* changedLoop(
  loop: LoopRow,
  load: Load,
  change: LoopChange,
  ctx: Context,
  now: number,
  limits: Limits,
): Steps<Sql[]> {
  if (change.target !== undefined) yield* requireDefinition(change.target);
  const log = journal("loop", loop.id, loop.eventNumber, now);
  // What a paused loop let pass is recorded under the schedule that it passed under.
  const before = yield* apply(
    loop,
    load,
    decide(viewOf(loop, load), now, "late", limits, "edited"),
    now,
    limits,
    ctx,
    log,
  );
  const schedule = change.schedule === undefined ? loop.schedule : anchored(change.schedule, now, limits);
  const target = change.target ?? loop.target;
  const policy = change.policy ?? loop.policy;
  const { expiresAt } = policy;
  if (change.policy !== undefined && expiresAt !== null && expiresAt !== loop.policy.expiresAt && expiresAt <= now)
    throw new AppError("invalid", "already_expired", `the loop ${loop.name} would expire at once`, {
      path: "--expires-at",
      hint: "Give an instant in the future, or archive the loop.",
    });
  // What lies before this instant is past, whatever the new schedule says of it.
  const plannedUntil = Math.max(before.plannedUntil, change.schedule === undefined ? before.plannedUntil : now);
  const within = (at: number | null) => (at !== null && expiresAt !== null && at >= expiresAt ? null : at);
  const nextAt = within(
    change.schedule === undefined
      ? (before.nextAt ?? (schedule.kind === "dynamic" ? null : nextInstant(schedule, plannedUntil)))
      : nextInstant(schedule, plannedUntil),
  );
  const revived =
    (before.status === "finished" || before.status === "expired") &&
    nextAt !== null &&
    (change.schedule !== undefined || expiresAt !== loop.policy.expiresAt);
  const done =
    before.status === "active" && nextAt === null && schedule.kind === "once" && change.schedule !== undefined;
  const status = revived ? "active" : done ? "finished" : before.status;
  log.add("loop.edited", { revision: loop.revision + 1, changed: Object.keys(change) });
  return [
    ...before.writes,
    sql`update loops set schedule = ${JSON.stringify(schedule)}, zone = ${schedule.kind === "cron" ? schedule.zone : null}, target = ${JSON.stringify(target)}, prompt_digest = ${promptOf(target)},
          policy = ${JSON.stringify(policy)}, definition_digest = ${digestOf([schedule, target, policy])}, revision = ${loop.revision + 1}, status = ${status},
          next_at = ${status === "finished" ? null : nextAt}, wake_at = ${wakeOf(status, null, nextAt, expiresAt)}, planned_until = ${plannedUntil},
          anchored_at = ${change.schedule === undefined ? loop.anchoredAt : now}, expires_at = ${expiresAt}, updated_at = ${now} where id = ${loop.id}`,
    ...(change.policy === undefined ? [] : [...unlabelled(loop), ...labelled(loop.id, loop.name, policy.labels)]),
    // It may have ended while it was paused, with runs that wait: nobody else lets them in.
    ...(revived ? yield* letInAfter({ ...loop, policy, status }, now, limits) : []),
    ...log.writes(),
  ];
}

export const editLoop = operation(
  "loops.edit",
  function* (input: { loopId: string; change: LoopChange; revision?: number; limits: Limits }, ctx): Steps<LoopRecord> {
    const { change, limits } = input;
    const { now, loop } = yield* lockLoop(input.loopId);
    notArchived(loop);
    if (input.revision !== undefined && input.revision !== loop.revision) throw changedMeanwhile(loop.name);
    const load = (yield* loadsOf([loop.id])).get(loop.id);
    ensure(load, "the loop has its load");
    yield* runAll(...(yield* changedLoop(loop, load, change, ctx, now, limits)));
    return yield* loopById(loop.id);
  },
);

export const renameLoop = operation(
  "loops.rename",
  function* (input: { loopId: string; name: string }): Steps<LoopRecord> {
    const { now, loop } = yield* lockLoop(input.loopId);
    notArchived(loop);
    if (loop.name === input.name) return loop;
    yield* freeName(input.name, loop.id);
    const log = journal("loop", loop.id, loop.eventNumber, now);
    log.add("loop.renamed", { from: loop.name, to: input.name });
    yield* runAll(
      sql`update loops set name = ${input.name}, revision = revision + 1, updated_at = ${now} where id = ${loop.id}`,
      ...unlabelled(loop),
      ...labelled(loop.id, input.name, loop.policy.labels),
      ...log.writes(),
    );
    return yield* loopById(loop.id);
  },
);

export const pauseLoop = operation(
  "loops.pause",
  function* (input: { loopId: string; reason: string | null; limits: Limits }): Steps<LoopRecord> {
    const { now, loop } = yield* lockLoop(input.loopId);
    notArchived(loop);
    if (loop.status === "paused") return loop;
    if (loopTable[loop.status].pause === undefined)
      throw conflict(
        "not_active",
        `the loop ${loop.name} is ${loop.status}: it starts nothing that could be paused`,
        "Give it a new schedule: drover loop edit",
      );
    const log = journal("loop", loop.id, loop.eventNumber, now);
    log.add("loop.paused", input.reason === null ? {} : { reason: input.reason });
    // What was due but has not started waits with the loop; what has started goes on.
    const held = yield* all<Row>(
      sql`select r.id as id from runs r
          where r.loop_id = ${loop.id} and r.finished_at is null and r.waits_turn = 0 and r.origin_kind = 'slot' and r.started_at is null
            and exists (select 1 from steps s where s.run_id = r.id and ((s.status = 'ready' and s.attempts_made = 0) or s.reason = 'judge'))
          order by r.id ${forUpdate}`,
    );
    yield* runAll(
      ...held.flatMap((row) => [
        sql`update steps set status = 'pending', reason = 'paused' where run_id = ${row["id"] as string} and needs_left = 0 and status in ('ready', 'pending')`,
        sql`update runs set waits_turn = 1, reason = 'paused', status = 'queued' where id = ${row["id"] as string} and finished_at is null`,
      ]),
      sql`update loops set status = 'paused', wake_at = null, paused_reason = ${input.reason}, paused_at = ${now}, updated_at = ${now} where id = ${loop.id}`,
      ...log.writes(),
    );
    return yield* loopById(loop.id);
  },
);

/** The runs that are let in when a loop comes back: one, or all that need not wait for each other. */
function* letInAfter(loop: LoopRow, now: number, limits: Limits): Steps<Sql[]> {
  const released = yield* one<Row>(
    sql`select chained from runs where loop_id = ${loop.id} and finished_at is null and waits_turn = 0 order by chained desc limit 1`,
  );
  const allow = loop.policy.overlap === "allow";
  if (released !== undefined && !allow) return [];
  const turns = yield* all<Row>(
    sql`select r.id as run_id, r.event_number as event_number, r.chained as chained, r.priority as priority, r.not_before as not_before
        from runs r join steps s on s.run_id = r.id
        where r.loop_id = ${loop.id} and r.finished_at is null and r.waits_turn = 1 and s.needs_left = 0
          and s.position = (select min(f.position) from steps f where f.run_id = r.id and f.needs_left = 0) order by r.slot_at, r.id limit ${allow ? 1_000 : 1}`,
  );
  let chain = released !== undefined && released["chained"] !== 0;
  return turns.map(toTurn).flatMap((turn) => {
    if (turn.chained && chain) return [];
    chain ||= turn.chained;
    return letIn(turn, now, limits);
  });
}

/** Brings a loop back: what passed meanwhile is recorded as skipped for that reason, and the schedule goes on from now. */
function* bringBack(
  loop: LoopRow,
  now: number,
  limits: Limits,
  ctx: Context,
  log: Journal,
  becomes: "active" | LoopRow["status"],
): Steps<Sql[]> {
  const load = (yield* loadsOf([loop.id])).get(loop.id);
  ensure(load, "the loop has its load");
  const applied = yield* apply(loop, load, decide(viewOf(loop, load), now, "late", limits), now, limits, ctx, log);
  const status = applied.status === "expired" ? "expired" : applied.status === "finished" ? "finished" : becomes;
  const fresh = loop.breakerAt !== null || loop.status === "expired";
  return [
    ...applied.writes,
    sql`update loops set status = ${status}, planned_until = ${applied.plannedUntil}, next_at = ${applied.nextAt}, archived_at = null,
          wake_at = ${wakeOf(status, null, applied.nextAt, loop.expiresAt)}, paused_reason = null, paused_at = null, breaker_at = null,
          failure_streak = ${fresh ? 0 : loop.failureStreak}, success_streak = ${fresh ? 0 : loop.successStreak}, updated_at = ${now} where id = ${loop.id}`,
    ...(status === "paused" ? [] : yield* letInAfter({ ...loop, status, archivedAt: null }, now, limits)),
  ];
}

export const resumeLoop = operation(
  "loops.resume",
  function* (input: { loopId: string; limits: Limits }, ctx): Steps<LoopRecord> {
    const { now, loop } = yield* lockLoop(input.loopId);
    notArchived(loop);
    if (loop.status === "active") return loop;
    if (loop.status === "finished")
      throw conflict(
        "finished",
        `the one slot of the loop ${loop.name} is over`,
        `Give it a new time: drover loop edit ${loop.name} --at TIME`,
      );
    if (loop.expiresAt !== null && loop.expiresAt <= now)
      throw conflict(
        "expired",
        `the loop ${loop.name} expired at ${new Date(loop.expiresAt).toISOString()}`,
        `Give it a later one: drover loop edit ${loop.name} --expires-at TIME`,
      );
    const log = journal("loop", loop.id, loop.eventNumber, now);
    log.add("loop.resumed", { was: loop.status });
    const writes = yield* bringBack(loop, now, input.limits, ctx, log, "active");
    yield* runAll(...writes, ...log.writes());
    return yield* loopById(loop.id);
  },
);

/** A loop's being put away as statements. */
export function archived(loop: LoopRow, now: number): readonly Sql[] {
  const log = journal("loop", loop.id, loop.eventNumber, now);
  log.add("loop.archived");
  return [
    sql`update loops set archived_at = ${now}, wake_at = null, updated_at = ${now} where id = ${loop.id}`,
    ...log.writes(),
  ];
}

export const archiveLoop = operation(
  "loops.archive",
  function* (input: { loopId: string; limits: Limits }): Steps<LoopRecord> {
    const { now, loop } = yield* lockLoop(input.loopId);
    if (loop.archivedAt !== null) return loop;
    yield* runAll(...archived(loop, now));
    return yield* loopById(loop.id);
  },
);

export const unarchiveLoop = operation(
  "loops.unarchive",
  function* (input: { loopId: string; limits: Limits }, ctx): Steps<LoopRecord> {
    const { now, loop } = yield* lockLoop(input.loopId);
    if (loop.archivedAt === null) return loop;
    yield* freeName(loop.name, loop.id);
    const log = journal("loop", loop.id, loop.eventNumber, now);
    log.add("loop.unarchived");
    // A paused loop stays paused, and records what passed when it is resumed.
    const writes =
      loop.status === "active"
        ? yield* bringBack(loop, now, input.limits, ctx, log, "active")
        : [sql`update loops set archived_at = null, updated_at = ${now} where id = ${loop.id}`];
    yield* runAll(...writes, ...log.writes());
    return yield* loopById(loop.id);
  },
);

export const removeLoop = operation("loops.remove", function* (input: { loopId: string }): Steps<void> {
  const { now, loop } = yield* lockLoop(input.loopId);
  const live = yield* one<Row>(sql`${liveOf(loop.id)} limit 1`);
  if (live !== undefined)
    throw conflict(
      "loop_busy",
      `the loop ${loop.name} has a run that has not ended: ${live["id"]} is ${live["status"]}`,
      `pause the loop and cancel the run: drover cancel ${live["id"]}`,
    );
  const log = journal("loop", loop.id, loop.eventNumber, now);
  log.add("loop.removed", { name: loop.name });
  yield* runAll(
    ...log.writes(),
    sql`delete from slots where loop_id = ${loop.id}`,
    ...unlabelled(loop),
    sql`delete from loops where id = ${loop.id}`,
  );
});

export const getLoop = read("loops.get", function* (input: { loopId: string }): Steps<LoopRecord | null> {
  const row = yield* one<Row>(sql`select * from loops where id = ${input.loopId}`);
  return row === undefined ? null : toLoop(row);
});

interface ListLoops extends PageRequest {
  /** Rows that are looked through for a page; absent: `WALK`. */
  readonly walk?: number;
  /** Also those that are archived. */
  readonly archived: boolean;
  readonly label: string | null;
  readonly status?: readonly LoopRow["status"][] | null;
  /** Only those whose last run failed, or that their breaker has paused. */
  readonly trouble?: "failing" | "tripped" | null;
  /** Only those that were read from this file. */
  readonly managedBy?: string | null;
}

/** By name. Where a filter has no index of its own, at most `WALK` loops are looked through for a page. */
export const listLoops = read("loops.list", function* (input: ListLoops): Steps<Page<LoopRecord>> {
  const [name, id] = readCursor(input.cursor, ["string", "string"]) ?? ["", ""];
  const { label, status, managedBy, trouble } = input;
  const size = input.limit + 1;
  const most = input.walk ?? WALK;
  const isKept = input.archived && trouble == null ? null : sql`l.archived_at is null`;
  const where: Sql[] = isKept === null ? [] : [isKept];
  const rest: Sql[] = [];
  // One filter says along which index the loops are read; the others are asked of each loop on the way.
  if (label !== null) {
    if (trouble === "failing") rest.push(sql`walked.failure_streak > 0`);
    if (trouble === "tripped") rest.push(sql`walked.breaker_at is not null`);
  } else if (trouble === "failing") where.push(sql`l.failure_streak > 0`);
  else if (trouble === "tripped") where.push(sql`l.breaker_at is not null`);
  if (managedBy != null) {
    if (label === null && trouble == null) where.push(sql`l.managed_by = ${managedBy}`);
    else rest.push(sql`walked.managed_by = ${managedBy}`);
  }
  if (status != null)
    rest.push(
      sql`(${join(
        status.map((one) => sql`walked.status = ${one}`),
        " or ",
      )})`,
    );
  const keyOf = (loop: LoopRow) => [loop.name, loop.id] as const;
  const walk = (columns: Sql): Sql =>
    label === null
      ? sql`select ${columns} from loops l where ${join([...where, sql`(l.name, l.id) > (${name}, ${id})`], " and ")} order by l.name, l.id`
      : sql`select ${columns} from loop_labels t join loops l on l.id = t.loop_id
            where ${join([sql`t.label = ${label}`, sql`(t.name, t.loop_id) > (${name}, ${id})`, ...where], " and ")} order by t.name, t.loop_id`;
  if (rest.length === 0) {
    const rows = yield* all<Row>(sql`${walk(sql`l.*`)} limit ${size}`);
    return pageOf(rows.map(toLoop), input.limit, keyOf);
  }
  const rows = yield* all<Row>(
    sql`select walked.* from (${walk(sql`l.*`)} limit ${most}) as walked where ${join(rest, " and ")} order by walked.name, walked.id limit ${size}`,
  );
  if (rows.length === size) return pageOf(rows.map(toLoop), input.limit, keyOf);
  const end = yield* one<{ name: string; id: string }>(
    sql`${walk(sql`l.name as name, l.id as id`)} limit ${1} offset ${most - 1}`,
  );
  return pageOfWalk(rows.map(toLoop), input.limit, keyOf, end === undefined ? null : [end.name, end.id]);
});

/** The plan that `planDue` would write for a loop now. Nothing is changed by it. */
export const previewLoop = read(
  "loops.preview",
  function* (input: { loopId: string; cause: LateCause; limits: Limits }): Steps<Plan | null> {
    const [clock, rows] = yield* many<[{ now: number }, Row]>(
      readInstant,
      sql`select * from loops where id = ${input.loopId}`,
    );
    const row = rows[0];
    if (row === undefined) return null;
    const loop = toLoop(row);
    const load = (yield* loadsOf([loop.id])).get(loop.id);
    ensure(load, "the loop has its load");
    return decide(viewOf(loop, load), clock[0]?.now ?? 0, input.cause, input.limits);
  },
);

interface Fire {
  readonly loopId: string;
  readonly name: string;
  readonly at: number;
}

/** The next slots of active loops, one of each, the earliest first. */
export const nextFires = read("loops.nextFires", function* (input: { limit: number }): Steps<Fire[]> {
  const rows = yield* all<Row>(
    sql`select id, name, next_at from loops where status = 'active' and archived_at is null and next_at is not null order by next_at, id limit ${input.limit}`,
  );
  return rows.map((row) => ({
    loopId: row["id"] as string,
    name: row["name"] as string,
    at: row["next_at"] as number,
  }));
});

// --- running by hand -------------------------------------------------------------------------------------------------

interface RunNow {
  readonly loopId: string;
  readonly by: string;
  readonly parentRunId: string | null;
  readonly limits: Limits;
}

export const runLoopNow = operation("loops.runNow", function* (input: RunNow, ctx): Steps<RunNowAnswer> {
  const { limits } = input;
  const { now, loop } = yield* lockLoop(input.loopId);
  notArchived(loop);
  const parent = yield* parentOf(input.parentRunId, limits);
  const load = (yield* loadsOf([loop.id])).get(loop.id);
  ensure(load, "the loop has its load");
  const log = journal("loop", loop.id, loop.eventNumber, now);

  // A due slot goes first: it is started as the scheduler would.
  if (loop.status === "active" && loop.nextAt !== null && loop.nextAt <= now) {
    const applied = yield* apply(loop, load, decide(viewOf(loop, load), now, "late", limits), now, limits, ctx, log);
    log.add("loop.run_now", { source: "due_slot", by: input.by });
    yield* runAll(
      ...applied.writes,
      sql`update loops set planned_until = ${applied.plannedUntil}, next_at = ${applied.nextAt}, status = ${applied.status},
            wake_at = ${wakeOf(applied.status, null, applied.nextAt, loop.expiresAt)}, updated_at = ${now} where id = ${loop.id} and planned_until = ${loop.plannedUntil}`,
      ...log.writes(),
    );
    const newest = applied.runs.at(-1);
    return newest === undefined
      ? { source: "due_slot", runId: null, skipped: "overlap" }
      : { source: "due_slot", runId: newest.runId, skipped: null };
  }

  // Then a try that waits for its pause.
  const retry = yield* one<Row>(
    sql`select r.id as run_id, s.id as step_id, r.event_number as event_number from runs r join steps s on s.run_id = r.id
        where r.loop_id = ${loop.id} and r.finished_at is null and r.waits_turn = 0 and s.status = 'waiting' and s.reason in ('retry', 'program') order by r.id limit 1 ${forUpdate}`,
  );
  if (retry !== undefined) {
    const runLog = journal("run", retry["run_id"] as string, retry["event_number"] as number, now);
    runLog.add("step.ready", { step: retry["step_id"], by: input.by });
    log.add("loop.run_now", { source: "retry_slot", by: input.by, run: retry["run_id"] });
    yield* finish(
      sql`update steps set status = 'ready', reason = null, wake_at = null where id = ${retry["step_id"] as string} and status = 'waiting'`,
      sql`update runs set status = 'queued', reason = null, wake_at = null where id = ${retry["run_id"] as string} and status = 'waiting'`,
      ...runLog.writes(),
      ...log.writes(),
    );
    return { source: "retry_slot", runId: retry["run_id"] as string, skipped: null };
  }

  const busy = load.active + load.waitingTurn > 0;
  const { overlap, queueLimit } = loop.policy;
  const refused = !busy
    ? null
    : overlap === "skip"
      ? "overlap"
      : overlap === "queue" && load.waitingTurn >= queueLimit
        ? "queue_full"
        : null;
  if (refused !== null) {
    log.add("loop.run_now", { source: "ad_hoc", by: input.by, skipped: refused });
    yield* finish(...log.writes());
    return { source: "ad_hoc", runId: null, skipped: refused };
  }
  let waitsTurn = busy && overlap !== "allow";
  if (busy && overlap === "cancel") {
    const before = yield* supersede(loop, limits);
    log.follow(before.loop.eventNumber);
    waitsTurn = before.atWork > 0;
  }
  const made = newRun(
    {
      kind: loop.target.kind,
      target: loop.target,
      policy: runPolicyOf(loop),
      originKind: "ad_hoc",
      originId: input.by,
      idempotencyKey: null,
      loop: { id: loop.id, name: loop.name },
      slotAt: null,
      parent,
      retryOf: null,
      hostPin: loop.hostPin,
      waitsTurn,
      chained: false,
      notBefore: null,
    },
    ctx,
    now,
    limits,
  );
  log.add("loop.run_now", { source: "ad_hoc", by: input.by, run: made.runId });
  yield* finish(...made.writes, ...log.writes());
  return { source: "ad_hoc", runId: made.runId, skipped: null };
});
