/** The change feed: the events in commit order. It informs watchers; the engine never waits for it. */
import type { EventRecord } from "../core/records.ts";
import { all, read, type Steps } from "./operation.ts";
import { readCursor } from "./page.ts";
import { toEvent, type Row } from "./rows.ts";
import { feedAfter, feedMajor, feedNewest, feedOrder, feedSettled, sql } from "./sql.ts";

interface Feed {
  readonly items: readonly EventRecord[];
  readonly cursor: string | null;
}

const cursorOf = (row: Row): string =>
  Buffer.from(JSON.stringify([Number(row["feed_major"]), Number(row["feed_minor"])])).toString("base64url");

/**
 * A cursor is (transaction, id) on PostgreSQL, where only what lies below the oldest running transaction is handed out
 * (store-notes, 4.1), and (0, id) on SQLite, whose one writer makes id order commit order.
 */
export const listEvents = read(
  "events.list",
  function* (input: {
    after: string | null;
    limit: number;
    runId: string | null;
    loopId?: string | null;
  }): Steps<Feed> {
    const of =
      input.runId !== null
        ? sql`and subject_kind = 'run' and subject_id = ${input.runId}`
        : input.loopId != null
          ? sql`and subject_kind = 'loop' and subject_id = ${input.loopId}`
          : sql``;
    if (input.after === "now") {
      const newest = yield* all<Row>(
        sql`select ${feedMajor} as feed_major, id as feed_minor from events where ${feedSettled} order by ${feedNewest} limit 1`,
      );
      return { items: [], cursor: newest[0] === undefined ? null : cursorOf(newest[0]) };
    }
    const [major, minor] = readCursor(input.after, ["number", "number"]) ?? [-1, -1];
    const rows = yield* all<Row>(
      sql`select ${feedMajor} as feed_major, id as feed_minor, subject_kind, subject_id, number, type, token, data, created_at from events
          where ${feedSettled} and ${feedAfter(major, minor)} ${of} order by ${feedOrder} limit ${input.limit}`,
    );
    const last = rows.at(-1);
    return {
      items: rows.map((row) => toEvent({ ...row, cursor: cursorOf(row) })),
      cursor: last === undefined ? input.after : cursorOf(last),
    };
  },
);
