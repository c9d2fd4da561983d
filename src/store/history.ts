/** History that is not kept any longer: ended runs with all that belongs to them, in batches. */
import { foldSlots, type FoldableSlot } from "../core/fold-slots.ts";
import type { HistoryCut, HistoryPart } from "../core/ports.ts";
import type { Schedule } from "../core/schedule.ts";
import { instant, many, operation, read, runAll, type Steps } from "./operation.ts";
import type { Row } from "./rows.ts";
import { jsonList, skipLocked, sql, type Sql } from "./sql.ts";

interface Old {
  readonly id: string;
  readonly finishedAt: number;
  readonly loopId: string | null;
  readonly slotAt: number | null;
  readonly queuedAt: number;
  readonly labels: readonly string[];
  readonly kept: boolean;
}

/** Slots of one loop that are read to join those of one batch; a batch's own are at most as many as its runs. */
const NEIGHBOURS = 2_000;

/**
 * The next runs that ended long enough ago, oldest first, each with whether it stays all the same: among the last of its
 * loop, with a tree that is there, with a hook that is due, or with a run below it that has not ended.
 */
function* oldRuns({ ageMs, keep, limit, after }: HistoryCut, lock: Sql): Steps<readonly Old[]> {
  const before = (yield* instant()) - ageMs;
  const from = after ?? { at: 0, id: "" };
  const [rows] = yield* many<[Row]>(
    sql`select r.id as id, r.finished_at as finished_at, r.loop_id as loop_id, r.slot_at as slot_at, r.queued_at as queued_at, r.policy as policy,
          case when r.hooks_due is not null
                 or exists (select 1 from worktrees w where w.run_id = r.id and w.state <> 'removed')
                 or exists (select 1 from runs d where d.root_run_id = r.id and d.parent_run_id is not null and d.finished_at is null)
                 or (exists (select 1 from loops l where l.id = r.loop_id)
                     and (select count(*) from (select 1 from runs n where n.loop_id = r.loop_id and (n.queued_at, n.id) > (r.queued_at, r.id)
                                                order by n.queued_at, n.id limit ${keep}) as newer) < ${keep})
               then 1 else 0 end as kept
        from runs r
        where r.finished_at < ${before} and (r.finished_at, r.id) > (${from.at}, ${from.id})
        order by r.finished_at, r.id limit ${limit} ${lock}`,
  );
  return rows.map((row) => ({
    id: row["id"] as string,
    finishedAt: row["finished_at"] as number,
    loopId: row["loop_id"] as string | null,
    slotAt: row["slot_at"] as number | null,
    queuedAt: row["queued_at"] as number,
    labels: (JSON.parse(row["policy"] as string) as { labels?: readonly string[] }).labels ?? [],
    kept: Number(row["kept"]) !== 0,
  }));
}

function partOf(rows: readonly Old[], limit: number): HistoryPart {
  const last = rows.at(-1);
  return {
    runs: rows.filter(({ kept }) => !kept).length,
    kept: rows.filter(({ kept }) => kept).length,
    next: rows.length < limit || last === undefined ? null : { at: last.finishedAt, id: last.id },
  };
}

export const listPrunable = read("history.prunable", function* (input: HistoryCut): Steps<HistoryPart> {
  return partOf(yield* oldRuns(input, sql``), input.limit);
});

const toFoldable = (row: Row, removed: ReadonlySet<string>): FoldableSlot & { readonly runId: string | null } => ({
  at: row["at"] as number,
  untilAt: row["until_at"] as number,
  count: row["count"] as number,
  outcome: row["outcome"] as FoldableSlot["outcome"],
  reason: row["reason"] as string | null,
  coalescedInto: row["coalesced_into"] as number | null,
  runId: row["run_id"] as string | null,
  hasRun: row["run_id"] !== null && !removed.has(row["run_id"] as string),
  lateMs: row["late_ms"] as number,
  schedule: row["schedule"] === null ? null : (JSON.parse(row["schedule"] as string) as Schedule),
});

/** What becomes of the slots of removed runs: they stay, and neighbours that say the same become one row. */
function* foldSlotsOf(gone: readonly Old[]): Steps<{ readonly folded: number; readonly writes: readonly Sql[] }> {
  const removed = new Set(gone.map(({ id }) => id));
  const byLoop = new Map<string, number[]>();
  for (const { loopId, slotAt } of gone)
    if (loopId !== null && slotAt !== null) byLoop.set(loopId, [...(byLoop.get(loopId) ?? []), slotAt]);
  const loops = [...byLoop].map(([id, slots]) => ({ id, first: Math.min(...slots), last: Math.max(...slots) }));
  if (loops.length === 0) return { folded: 0, writes: [] };
  const [schedules, ...slots] = yield* many<Row[]>(
    sql`select id, schedule from loops where id in (${jsonList(loops.map(({ id }) => id))})`,
    ...loops.map(
      ({ id, first, last }) =>
        sql`select * from slots where loop_id = ${id}
              and at >= coalesce((select max(at) from slots where loop_id = ${id} and at < ${first}), ${first}) and at <= ${last}
            order by at limit ${NEIGHBOURS}`,
    ),
  );
  const scheduleOf = new Map(
    (schedules ?? []).map((row) => [row["id"], JSON.parse(row["schedule"] as string) as Schedule]),
  );
  const writes: Sql[] = [];
  let folded = 0;
  for (const [nth, { id }] of loops.entries()) {
    const schedule = scheduleOf.get(id);
    if (schedule === undefined) continue; // its slots went with the loop
    const rows = (slots[nth] ?? []).map((row) => toFoldable(row, removed));
    const loose = rows.filter(({ runId, hasRun }) => runId !== null && !hasRun).map(({ at }) => at);
    // What a dynamic loop did is in its runs alone: no schedule says the instants again.
    if (schedule.kind === "dynamic") {
      writes.push(sql`delete from slots where loop_id = ${id} and at in (${jsonList(loose, "integer")})`);
      continue;
    }
    writes.push(sql`update slots set run_id = null where loop_id = ${id} and at in (${jsonList(loose, "integer")})`);
    for (const { into, gone: joined } of foldSlots(rows, schedule)) {
      folded += joined.length;
      writes.push(
        sql`update slots set until_at = ${into.untilAt}, count = ${into.count}, late_ms = ${into.lateMs}, schedule = ${JSON.stringify(into.schedule)}
            where loop_id = ${id} and at = ${into.at}`,
        sql`delete from slots where loop_id = ${id} and at in (${jsonList(joined, "integer")})`,
      );
    }
  }
  return { folded, writes };
}

export const pruneHistory = operation(
  "history.prune",
  function* (input: HistoryCut): Steps<HistoryPart> {
    // Looked at again here, under the lock of each: what was live or wanted a moment ago is seen as it is.
    const rows = yield* oldRuns(input, sql`${skipLocked}`);
    const gone = rows.filter(({ kept }) => !kept);
    if (gone.length === 0) return partOf(rows, input.limit);
    const ids = jsonList(gone.map(({ id }) => id));
    const { writes } = yield* foldSlotsOf(gone);
    yield* runAll(
      ...writes,
      sql`delete from receipts where step_id in (select id from steps where run_id in (${ids}))`,
      sql`delete from step_needs where step_id in (select id from steps where run_id in (${ids}))`,
      sql`delete from sessions where owner_step_id in (select id from steps where run_id in (${ids}))`,
      sql`delete from events where subject_kind = 'run' and subject_id in (${ids})`,
      sql`delete from attempts where run_id in (${ids})`,
      sql`delete from steps where run_id in (${ids})`,
      sql`delete from worktrees where run_id in (${ids})`,
      ...gone.flatMap(({ id, queuedAt, labels }) =>
        labels.map(
          (label) => sql`delete from run_labels where label = ${label} and queued_at = ${queuedAt} and run_id = ${id}`,
        ),
      ),
      sql`delete from runs where id in (${ids})`,
    );
    return partOf(rows, input.limit);
  },
  { wakes: false },
);
