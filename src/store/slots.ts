/** Slots: what became of each scheduled instant. Written with the plan of their loop and with the end of their run. */
import type { Instant, Page, PageRequest } from "../core/ports.ts";
import type { SlotOutcome, SlotRecord } from "../core/records.ts";
import { countBetween, lastInstants } from "../core/schedule.ts";
import { all, one, read, type Steps } from "./operation.ts";
import { WALK } from "../core/limits.ts";
import { pageOf, pageOfWalk, readCursor } from "./page.ts";
import type { Row } from "./rows.ts";
import { join, sql } from "./sql.ts";

interface ListSlots extends PageRequest {
  /** Rows that are looked through for a page; absent: `WALK`. */
  readonly walk?: number;
  readonly loopId: string;
  readonly outcome?: readonly SlotOutcome[] | null;
  readonly since?: number | null;
  readonly until?: number | null;
}

const columns = sql`s.at as at, s.until_at as until_at, s.count as count, s.outcome as outcome, s.reason as reason, s.coalesced_into as coalesced_into,
  s.run_id as run_id, s.late_ms as late_ms, s.schedule as schedule, r.status as run_status, r.started_at as started_at, r.finished_at as finished_at`;

const toSlot = (row: Row): SlotRecord => ({
  at: row["at"] as number,
  untilAt: row["until_at"] as number,
  count: row["count"] as number,
  outcome: row["outcome"] as SlotRecord["outcome"],
  reason: row["reason"] as string | null,
  coalescedInto: row["coalesced_into"] as number | null,
  runId: row["run_id"] as string | null,
  runStatus: row["run_status"] as SlotRecord["runStatus"],
  startedAt: row["started_at"] as number | null,
  finishedAt: row["finished_at"] as number | null,
  lateMs: row["late_ms"] as number,
  schedule: row["schedule"] === null ? null : (JSON.parse(row["schedule"] as string) as SlotRecord["schedule"]),
});

/**
 * What of a row lies before an instant. Rows become one when their runs are not kept any longer: one that was on the page
 * before may be in the next one since.
 */
function beforeInstant(slot: SlotRecord, before: Instant): SlotRecord {
  const { at, untilAt, schedule } = slot;
  if (untilAt < before || schedule === null) return slot;
  const last = lastInstants(schedule, at, before - 1, 1)[0] ?? at;
  return { ...slot, untilAt: last, count: countBetween(schedule, at, last) + 1 };
}

/** Newest first. Those that end as they should not may be few: at most `WALK` rows are looked through for a page. */
export const listSlots = read("slots.list", function* (input: ListSlots): Steps<Page<SlotRecord>> {
  const [before] = readCursor(input.cursor, ["number"]) ?? [Number.MAX_SAFE_INTEGER];
  const { loopId, limit, outcome, walk: most = WALK } = input;
  const { since } = input;
  const page = (rows: readonly Row[]): SlotRecord[] => rows.map((row) => beforeInstant(toSlot(row), before));
  // Rows do not overlap: of those that begin before a time only the last one can reach into it.
  const from =
    since == null
      ? sql``
      : sql`and s.until_at >= ${since}
            and s.at >= coalesce((select p.at from slots p where p.loop_id = ${loopId} and p.at <= ${since} order by p.at desc limit 1), 0)`;
  const until = sql`and s.at <= ${input.until ?? Number.MAX_SAFE_INTEGER} ${from}`;
  if (outcome === undefined || outcome === null) {
    const rows = yield* all<Row>(
      sql`select ${columns} from slots s left join runs r on r.id = s.run_id
          where s.loop_id = ${loopId} and s.at < ${before} ${until} order by s.at desc limit ${limit + 1}`,
    );
    return pageOf(page(rows), limit, (slot) => [slot.at]);
  }
  const wanted = join(
    outcome.map((one) => sql`walked.outcome = ${one}`),
    " or ",
  );
  const walked = sql`select s.at as at, s.outcome as outcome from slots s where s.loop_id = ${loopId} and s.at < ${before} ${until} order by s.at desc limit ${most}`;
  const rows = yield* all<Row>(
    sql`select ${columns} from (${walked}) as walked join slots s on s.loop_id = ${loopId} and s.at = walked.at left join runs r on r.id = s.run_id
        where (${wanted}) order by s.at desc limit ${limit + 1}`,
  );
  if (rows.length > limit) return pageOf(page(rows), limit, (slot) => [slot.at]);
  const end = yield* one<{ at: number }>(
    sql`select at from (${walked}) as walked order by at desc limit 1 offset ${most - 1}`,
  );
  return pageOfWalk(page(rows), limit, (slot) => [slot.at], end === undefined ? null : [Number(end.at)]);
});

/** Instants of any loop that were missed, the latest first: rows that reach past `since`. */
export const missedSlots = read("slots.missed", function* (input: { since: number; limit: number }): Steps<
  { slot: SlotRecord; loopId: string; loop: string }[]
> {
  const rows = yield* all<Row>(
    sql`select ${columns}, s.loop_id as loop_id, l.name as name, l.schedule as loop_schedule
        from slots s join loops l on l.id = s.loop_id left join runs r on r.id = s.run_id
        where s.outcome = 'missed' and s.until_at >= ${input.since} and l.archived_at is null order by s.until_at desc, s.loop_id limit ${input.limit}`,
  );
  return rows.map((row) => ({
    slot: toSlot({ ...row, schedule: row["schedule"] ?? row["loop_schedule"] ?? null }),
    loopId: row["loop_id"] as string,
    loop: row["name"] as string,
  }));
});
