import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { doublingsTo, isLimit, limitEnd, pauseMs, statusUnder, type LimitClass } from "./limit-end.ts";
import { defaultLimits as limits } from "./limits.ts";
import { failureClasses } from "./run.ts";

const NOW = Date.UTC(2026, 0, 1);
const MINUTE = 60_000;

type Of = Parameters<typeof limitEnd>[0];
const of = (over: Partial<Of> = {}): Of => ({
  class: "rate_limited",
  resetAt: null,
  limitEnds: 0,
  heldUntil: null,
  key: "step:1",
  ...over,
});
const end = (over: Partial<Of> = {}) => limitEnd(of(over), limits, NOW);
const waits = fc.record({
  class: fc.constantFrom<LimitClass>("rate_limited", "quota"),
  resetInMs: fc.option(fc.integer({ min: -MINUTE, max: limits.quotaLongestMs + MINUTE }), { nil: null }),
  limitEnds: fc.integer({ min: 0, max: 40 }),
  heldInMs: fc.option(fc.integer({ min: -MINUTE, max: 3_600_000 }), { nil: null }),
  key: fc.string(),
});

describe("the end by a limit", () => {
  test("is one of three classes", () => {
    expect(failureClasses.filter(isLimit)).toEqual(["rate_limited", "quota", "auth"]);
  });

  test("B-085 a stated reset is kept: never earlier, later by at most a tenth and a minute", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: limits.quotaLongestMs }), fc.string(), (inMs, key) => {
        for (const word of ["rate_limited", "quota"] as const) {
          const { untilAt } = end({ class: word, resetAt: NOW + inMs, key });
          expect(untilAt).toBeGreaterThanOrEqual(NOW + inMs);
          expect(untilAt).toBeLessThanOrEqual(NOW + inMs + Math.min(MINUTE, inMs / 10) + 1);
        }
      }),
    );
  });

  test("a reset that is past, or further away than makes sense, is not believed", () => {
    for (const resetAt of [NOW, NOW - 1, NOW + limits.quotaLongestMs + 1]) {
      expect(end({ class: "quota", resetAt })).toEqual(end({ class: "quota" }));
      expect(end({ resetAt })).toEqual(end());
    }
  });

  test("without a reset the pause doubles to its cap, with jitter that only lengthens it", () => {
    const minutes = (word: LimitClass, limitEnds: number) =>
      ((end({ class: word, limitEnds }).untilAt ?? 0) - NOW) / MINUTE;
    for (const [word, baseMs, capMs] of [
      ["rate_limited", limits.throttleBackoffMs, limits.throttleBackoffCapMs],
      ["quota", limits.quotaWaitMs, limits.quotaWaitCapMs],
    ] as const)
      for (let nth = 0; nth < 60; nth++) {
        const least = Math.min(capMs, baseMs * 2 ** nth) / MINUTE;
        expect(minutes(word, nth)).toBeGreaterThanOrEqual(least);
        expect(minutes(word, nth)).toBeLessThanOrEqual(least * 1.5 + 0.001);
      }
  });

  test("B-088 `retry after 1 s`, said again and again, is no storm", () => {
    expect(end({ resetAt: NOW + 1_000 }).untilAt).toBeLessThan(NOW + 2_000);
    expect(end({ resetAt: NOW + 1_000, limitEnds: 1 }).untilAt).toBeGreaterThanOrEqual(NOW + 2 * MINUTE);
    expect(end({ resetAt: NOW + 1_000, limitEnds: 9 }).untilAt).toBeGreaterThanOrEqual(NOW + 30 * MINUTE);
  });

  test("what several attempts meet at once is one limit: the pause does not double, the longest wait is kept", () => {
    const first = end();
    const heldUntil = first.untilAt;
    expect(end({ limitEnds: 1, heldUntil, key: "other:1" })).toEqual(first);
    expect(end({ limitEnds: 1, heldUntil, resetAt: NOW + 3_600_000 }).untilAt).toBeGreaterThanOrEqual(NOW + 3_600_000);
    expect(end({ limitEnds: 1, heldUntil, resetAt: NOW + 1_000 })).toEqual(first);
    expect(end({ limitEnds: 1, heldUntil: NOW }).limitEnds).toBe(2);
  });

  test("a refused login waits for a person", () => {
    expect(end({ class: "auth", resetAt: NOW + 5 })).toEqual({ untilAt: null, limitEnds: 1 });
  });

  test("is later than now, whole milliseconds, and the same again for the same key", () => {
    fc.assert(
      fc.property(waits, ({ resetInMs, heldInMs, ...rest }) => {
        const input = {
          ...rest,
          resetAt: resetInMs === null ? null : NOW + resetInMs,
          heldUntil: heldInMs === null ? null : NOW + heldInMs,
        };
        const one = limitEnd(input, limits, NOW);
        expect(one.untilAt).toBeGreaterThan(NOW);
        expect(Number.isSafeInteger(one.untilAt)).toBe(true);
        expect(limitEnd(input, limits, NOW)).toEqual(one);
      }),
    );
  });
});

test("an account is called by the limit that asks most of somebody", () => {
  expect(statusUnder([])).toBe("ok");
  expect(statusUnder(["rate_limited"])).toBe("throttled");
  expect(statusUnder(["rate_limited", "quota"])).toBe("quota");
  expect(statusUnder(["quota", "auth", "rate_limited"])).toBe("auth");
});

test("doublings lead from the first pause to the longest", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1e6 }), fc.integer({ min: 1, max: 1e9 }), (baseMs, more) => {
      const capMs = baseMs + more;
      const nth = 1 + doublingsTo(baseMs, capMs);
      expect(pauseMs(baseMs, nth, capMs, "k")).toBe(pauseMs(baseMs, nth + 1, capMs, "k"));
      if (nth > 1) expect(baseMs * 2 ** (nth - 2)).toBeLessThan(capMs);
    }),
  );
});
