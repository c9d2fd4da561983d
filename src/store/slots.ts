/** Slots: what became of each scheduled instant. Written with the plan of their loop and with the end of their run. */
import type { Page, PageRequest } from "../core/ports.ts";
import type { SlotRecord } from "../core/records.ts";
import { all, read, type Steps } from "./operation.ts";
import { pageOf, readCursor } from "./page.ts";
import type { Row } from "./rows.ts";
import { sql } from "./sql.ts";

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

export const listSlots = read("slots.list", function* (input: PageRequest & { loopId: string }): Steps<
  Page<SlotRecord>
> {
  const [before] = readCursor(input.cursor, ["number"]) ?? [Number.MAX_SAFE_INTEGER];
  const rows = yield* all<Row>(
    sql`select s.at as at, s.until_at as until_at, s.count as count, s.outcome as outcome, s.reason as reason, s.coalesced_into as coalesced_into,
          s.run_id as run_id, s.late_ms as late_ms, s.schedule as schedule, r.status as run_status, r.started_at as started_at, r.finished_at as finished_at
        from slots s left join runs r on r.id = s.run_id
        where s.loop_id = ${input.loopId} and s.at < ${before} order by s.at desc limit ${input.limit + 1}`,
  );
  return pageOf(rows.map(toSlot), input.limit, (slot) => [slot.at]);
});
