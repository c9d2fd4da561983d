/** Slots whose runs are not kept any more become rows of several: each instant keeps its outcome, the table does not grow. */
import type { Instant } from "./ports.ts";
import type { SlotOutcome } from "./records.ts";
import { nextInstant, type Schedule } from "./schedule.ts";

/** What folding needs of a slot's row. */
export interface FoldableSlot {
  readonly at: Instant;
  readonly untilAt: Instant;
  readonly count: number;
  readonly outcome: SlotOutcome | null;
  readonly reason: string | null;
  readonly coalescedInto: Instant | null;
  /** Its run is kept. */
  readonly hasRun: boolean;
  readonly lateMs: number;
  /** The schedule under which a row of several was written. */
  readonly schedule: Schedule | null;
}

/** A row that is written anew at `at`, and the rows behind it that are in it from then on. */
export interface Fold {
  readonly into: FoldableSlot;
  readonly gone: readonly Instant[];
}

const same = (a: Schedule, b: Schedule): boolean => JSON.stringify(a) === JSON.stringify(b);

/** Whether a row is of instants of this schedule, without a gap: so that they can be listed singly again. */
const isOf = (slot: FoldableSlot, schedule: Schedule): boolean =>
  slot.count > 1
    ? slot.schedule !== null && same(slot.schedule, schedule)
    : nextInstant(schedule, slot.at - 1) === slot.at;

/**
 * Joins neighbours that say the same. Two rows become one only where the second begins with the instant that follows the
 * first under one schedule; the row then carries that schedule, so that `expandSlot` finds each instant again.
 * @param slots of one loop, oldest first, with nothing left out between them
 * @param schedule the loop's now, for rows that carry none
 */
export function foldSlots(slots: readonly FoldableSlot[], schedule: Schedule): readonly Fold[] {
  const folds: Fold[] = [];
  let into: FoldableSlot | undefined;
  let gone: Instant[] = [];
  const close = (): void => {
    if (into !== undefined && gone.length > 0) folds.push({ into, gone });
    gone = [];
  };
  for (const slot of slots) {
    const joined = into === undefined ? null : join(into, slot, schedule);
    if (joined === null) {
      close();
      into = slot;
    } else {
      into = joined;
      gone.push(slot.at);
    }
  }
  close();
  return folds;
}

function join(first: FoldableSlot, second: FoldableSlot, current: Schedule): FoldableSlot | null {
  if (first.hasRun || second.hasRun || first.outcome === null) return null;
  if (first.outcome !== second.outcome || first.reason !== second.reason) return null;
  if (first.coalescedInto !== second.coalescedInto) return null;
  const schedule = first.schedule ?? second.schedule ?? current;
  if (schedule.kind === "once" || schedule.kind === "dynamic") return null;
  if (!isOf(first, schedule) || !isOf(second, schedule)) return null;
  if (nextInstant(schedule, first.untilAt) !== second.at) return null;
  return {
    ...first,
    untilAt: second.untilAt,
    count: first.count + second.count,
    lateMs: Math.max(first.lateMs, second.lateMs),
    schedule,
  };
}
