/** Rows of slots that stand for several instants, listed singly. */
import type { Instant } from "../../core/ports.ts";
import type { SlotRecord } from "../../core/records.ts";
import { lastInstants, type Schedule } from "../../core/schedule.ts";
import { badInput } from "../fields.ts";

/**
 * The instants of a row up to one of them, newest first, at most `limit`.
 * @param schedule the loop's schedule now, for a row that does not carry its own
 */
export function expandSlot(row: SlotRecord, schedule: Schedule, until: Instant, limit: number): Instant[] {
  if (row.count === 1) return row.at <= until ? [row.at] : [];
  return lastInstants(row.schedule ?? schedule, row.at - 1, Math.min(row.untilAt, until), limit).toReversed();
}

/** A cursor that may point inside a row: the instant reached. Rows come, and become one, between two pages; instants stay. */
export const reached = {
  write: (at: Instant): string => Buffer.from(JSON.stringify([at])).toString("base64url"),
  read(text: string | null): Instant | null {
    if (text === null) return null;
    try {
      const [at, ...more] = JSON.parse(Buffer.from(text, "base64url").toString()) as unknown[];
      if (Number.isSafeInteger(at) && more.length === 0) return at as number;
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
