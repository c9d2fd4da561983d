import fc from "fast-check";
import { expect, test } from "vitest";
import { describeDuration, formatDuration, parseDuration } from "./duration.ts";
import { AppError } from "./errors.ts";

test.each([
  ["500ms", 500],
  ["90s", 90_000],
  ["15m", 900_000],
  ["2h", 7_200_000],
  ["1d", 86_400_000],
  ["1w", 604_800_000],
  ["1h30m", 5_400_000],
  ["1w2d3h4m5s6ms", 604_800_000 + 2 * 86_400_000 + 3 * 3_600_000 + 4 * 60_000 + 5_006],
  ["0s", 0],
  ["007s", 7_000],
])("%s is %d ms", (text, ms) => {
  expect(parseDuration(text)).toBe(ms);
});

test.each([
  "",
  " ",
  "5",
  "0",
  "m",
  "-5m",
  "+5m",
  "1.5h",
  "1,5h",
  "5 m",
  " 5m",
  "5m\n",
  "1h 30m",
  "30m1h",
  "1h1h",
  "1H",
  "5mo",
  "1y",
  "PT1H",
  "1e3s",
  "٣s",
  "1h foo",
  "9007199254740993ms",
  "99999999999999999999w",
])("%j is refused", (text) => {
  expect(() => parseDuration(text, "--every")).toThrow(
    expect.objectContaining({ kind: "invalid", code: "bad_duration", path: "--every", hint: expect.any(String) }),
  );
});

test("the largest safe number of milliseconds is a duration, one more is not", () => {
  expect(parseDuration(`${Number.MAX_SAFE_INTEGER}ms`)).toBe(Number.MAX_SAFE_INTEGER);
  expect(() => parseDuration("9007199254740992ms")).toThrow(AppError);
});

test("what is formatted reads as the same number", () => {
  fc.assert(
    fc.property(fc.oneof(fc.nat({ max: 10_000 }), fc.maxSafeNat()), (ms) => {
      expect(parseDuration(formatDuration(ms))).toBe(ms);
    }),
  );
});

test.each([
  [0, "0s"],
  [1, "1ms"],
  [90_000, "1m30s"],
  [86_400_000 * 30, "30d"],
  [86_400_000 * 14, "2w"],
  [86_400_000 * 8 + 3_600_000, "8d1h"],
])("%d ms is written %s", (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});

test.each([
  [0, "0s"],
  [0.4, "0s"],
  [40, "40ms"],
  [2_549, "2.5s"],
  [3_000, "3s"],
  [12_999, "12s"],
  [65_000, "1m 5s"],
  [7_500_000, "2h 5m"],
  [7_205_000, "2h"],
  [86_400_000 * 3 + 59_000, "3d"],
  [86_400_000 * 8 + 3_600_000 * 5, "8d 5h"],
  [86_400_000 * 14, "2w"],
  [-65_000, "-1m 5s"],
  [Number.POSITIVE_INFINITY, "for ever"],
])("people read %d ms as %s", (ms, text) => {
  expect(describeDuration(ms)).toBe(text);
});
