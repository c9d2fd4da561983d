import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { foldSlots, type FoldableSlot } from "./fold-slots.ts";
import { instantsBetween, type Schedule } from "./schedule.ts";

const MINUTE = 60_000;
const T0 = Date.UTC(2026, 2, 28, 12);
const interval: Schedule = { kind: "interval", everyMs: MINUTE, anchorAt: T0 };
const single = (at: number, over: Partial<FoldableSlot> = {}): FoldableSlot => ({
  at,
  untilAt: at,
  count: 1,
  outcome: "succeeded",
  reason: null,
  coalescedInto: null,
  hasRun: false,
  lateMs: 0,
  schedule: null,
  ...over,
});

/** Every instant that rows stand for, with what became of it. */
const told = (slots: readonly FoldableSlot[], schedule: Schedule): string[] =>
  slots.flatMap(({ at, untilAt, count, outcome, reason, schedule: own }) =>
    (count === 1 ? [at] : instantsBetween(own ?? schedule, at - 1, untilAt, 10_000)).map(
      (one) => `${one} ${outcome} ${reason}`,
    ),
  );

function folded(slots: readonly FoldableSlot[], schedule: Schedule): FoldableSlot[] {
  const folds = foldSlots(slots, schedule);
  const gone = new Set(folds.flatMap((fold) => fold.gone));
  const anew = new Map(folds.map(({ into }) => [into.at, into]));
  return slots.filter(({ at }) => !gone.has(at)).map((slot) => anew.get(slot.at) ?? slot);
}

describe("slots whose runs are gone", () => {
  test("neighbours that say the same become one row; another outcome, a kept run and a gap begin a new one", () => {
    const minute = (nth: number) => T0 + nth * MINUTE;
    const slots = [
      single(minute(1)),
      single(minute(2), { lateMs: 7 }),
      single(minute(3), { outcome: "failed", reason: "exit" }),
      single(minute(4), { hasRun: true }),
      single(minute(5)),
      single(minute(6)),
      single(minute(9)), // 7 and 8 are not there
      single(minute(10)),
    ];
    expect(folded(slots, interval).map(({ at, count }) => [(at - T0) / MINUTE, count])).toEqual([
      [1, 2],
      [3, 1],
      [4, 1],
      [5, 2],
      [9, 2],
    ]);
    expect(foldSlots(slots, interval)[0]?.into).toMatchObject({ untilAt: minute(2), lateMs: 7, schedule: interval });
  });

  test("instants of a schedule that was changed since are not put under the new one", () => {
    const before: Schedule = { kind: "interval", everyMs: 90_000, anchorAt: T0 + 1 };
    const slots = instantsBetween(before, T0, T0 + 600_000, 10).map((at) => single(at));
    expect(foldSlots(slots, interval)).toEqual([]);
    expect(foldSlots([single(T0), single(T0 + MINUTE)], { kind: "dynamic", firstAt: T0 })).toEqual([]);
  });

  test("each instant keeps its outcome, whatever is folded, and as often as it is folded", () => {
    const schedules: readonly Schedule[] = [
      interval,
      // Over the night on which clocks are set forward.
      { kind: "cron", expression: "*/20 1-4 * * *", zone: "Europe/Rome" },
    ];
    fc.assert(
      fc.property(
        fc.constantFrom(...schedules),
        fc.array(
          fc.record({
            outcome: fc.constantFrom("succeeded", "failed", "missed" as const),
            hasRun: fc.boolean(),
            isThere: fc.integer({ min: 0, max: 9 }),
          }),
          { maxLength: 60 },
        ),
        (schedule, choices) => {
          const at = instantsBetween(schedule, T0, T0 + 40 * 86_400_000, choices.length);
          const slots = at.flatMap((one, nth) => {
            const { outcome = "missed", hasRun = false, isThere = 0 } = choices[nth] ?? {};
            return isThere === 0
              ? []
              : [single(one, { outcome, hasRun, reason: outcome === "missed" ? "down" : null })];
          });
          const once = folded(slots, schedule);
          expect(told(once, schedule)).toEqual(told(slots, schedule));
          // Later the other runs go as well.
          const later = folded(
            once.map((slot) => ({ ...slot, hasRun: false })),
            schedule,
          );
          expect(told(later, schedule)).toEqual(told(slots, schedule));
          expect(foldSlots(later, schedule)).toEqual([]);
        },
      ),
    );
  });
});
