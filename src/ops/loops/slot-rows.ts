/** Rows of slots that stand for several instants, listed singly. */
import type { Instant } from "../../core/ports.ts";
import type { SlotRecord } from "../../core/records.ts";
import { lastInstants, type Schedule } from "../../core/schedule.ts";
import { badInput } from "../fields.ts";

/**
 * The instants of a row, newest first, at most `limit`, older than `before` where that is given.
 * @param schedule the loop's schedule now, for a row that does not carry its own
 */
export function expandSlot(row: SlotRecord, schedule: Schedule, before: Instant | null, limit: number): Instant[] {
  if (row.count === 1) return before === null || row.at < before ? [row.at] : [];
  const until = before === null ? row.untilAt : Math.min(row.untilAt, before - 1);
  return lastInstants(row.schedule ?? schedule, row.at - 1, until, limit).toReversed();
}

interface Place {
  /** The store's cursor of the row; null for the newest. */
  readonly cursor: string | null;
  readonly before: Instant | null;
}

/** A cursor that may point inside a row. */
export const inside = {
  write: (place: Place): string => Buffer.from(JSON.stringify([place.cursor, place.before])).toString("base64url"),
  read(text: string | null): Place {
    if (text === null) return { cursor: null, before: null };
    try {
      const [cursor, before] = JSON.parse(Buffer.from(text, "base64url").toString()) as unknown[];
      if ((cursor === null || typeof cursor === "string") && (before === null || Number.isSafeInteger(before)))
        return { cursor, before: before as number | null };
    } catch {
      // What is no JSON is no cursor of ours: said below.
    }
    throw badInput(
      "--cursor",
      "this is no cursor of `loop slots --each`",
      "Use `next` of the page before.",
      "bad_cursor",
    );
  },
};
