import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { changedSince } from "../../test/fixtures/schedules/releases.ts";
import { defaultLimits } from "./limits.ts";
import {
  countBetween,
  describeSchedule,
  explainSchedule,
  instantsBetween,
  lastInstants,
  nextInstant,
  parseExpression,
  parseSchedule,
  parseTime,
  periodAt,
  SCHEDULE_LIMITS,
  type Schedule,
} from "./schedule.ts";

const utc = (text: string) => Date.parse(`${text}Z`);
const iso = (at: number | null) => (at === null ? null : new Date(at).toISOString().replace(".000Z", "Z"));
const now = utc("2026-01-15T10:00:00");
const surroundings = { now, hostZone: "Europe/Rome" };
const cron = (expression: string, zone = "UTC"): Schedule => ({ kind: "cron", expression, zone });

// --- The table of another implementation -----------------------------------------------------------------------------------

const lines = readFileSync(new URL("../../test/fixtures/schedules/firings.tsv", import.meta.url), "utf8").split("\n");
const rows = lines
  .filter((line) => line !== "" && !line.startsWith("#"))
  .map((line) => line.split("\t") as [string, string, string, string, string])
  .filter(([, zone]) => !changedSince.includes(zone));

describe("firings.tsv", () => {
  test("names its maker and is as large as promised", () => {
    expect(lines[0]).toMatch(/^# generate\.py: Python .* zoneinfo, time zone database \d{4}[a-z]$/);
    expect(rows.length).toBeGreaterThan(1_000);
    expect(new Set(rows.map(([, zone]) => zone)).size).toBeGreaterThan(200);
  });

  test.each(rows)("%s in %s from %s", (expression, zone, from, text) => {
    const [schedule, after] = [cron(expression, zone), Date.parse(from)];
    const expected = text.split(" ");
    const last = Date.parse(expected.at(-1) ?? "");
    expect(instantsBetween(schedule, after, last, 10).map(iso)).toEqual(expected);
    expect(lastInstants(schedule, after, last, 10).map(iso)).toEqual(expected);
    expect(countBetween(schedule, after, last)).toBe(expected.length);
  });
});

// --- Each kind -------------------------------------------------------------------------------------------------------------

test("once: at its instant, and never again", () => {
  const once: Schedule = { kind: "once", at: now };
  expect([nextInstant(once, now - 1), nextInstant(once, now), nextInstant(once, now + 1)]).toEqual([now, null, null]);
  expect(instantsBetween(once, now - 1, now, 5)).toEqual([now]);
  expect(lastInstants(once, now - 1, now, 5)).toEqual([now]);
  expect(instantsBetween(once, now, now + 1, 5)).toEqual([]);
  expect(countBetween(once, now - 1, now)).toBe(1);
  expect(countBetween(once, now - 2, now - 1)).toBe(0);
  expect(periodAt(once, now)).toBe(Number.POSITIVE_INFINITY);
});

test("dynamic: only its first instant is known", () => {
  const dynamic: Schedule = { kind: "dynamic", firstAt: now };
  expect([nextInstant(dynamic, now - 1), nextInstant(dynamic, now)]).toEqual([now, null]);
  expect(lastInstants(dynamic, 0, now, 1)).toEqual([now]);
  expect(lastInstants(dynamic, 0, now, 0)).toEqual([]);
  expect(countBetween(dynamic, 0, now)).toBe(1);
  expect(periodAt(dynamic, now)).toBe(Number.POSITIVE_INFINITY);
});

test("interval: at a fixed rate from one period after its anchor", () => {
  const every: Schedule = { kind: "interval", everyMs: 600_000, anchorAt: now };
  expect(nextInstant(every, now - 86_400_000)).toBe(now + 600_000);
  expect(nextInstant(every, now)).toBe(now + 600_000);
  expect(nextInstant(every, now + 599_999)).toBe(now + 600_000);
  expect(nextInstant(every, now + 600_000)).toBe(now + 1_200_000);
  expect(countBetween(every, now - 86_400_000, now + 600_000 * 47)).toBe(47);
  expect(instantsBetween(every, now, now + 86_400_000, 2)).toEqual([now + 600_000, now + 1_200_000]);
  expect(lastInstants(every, now, now + 1_900_000, 2)).toEqual([now + 1_200_000, now + 1_800_000]);
  expect(periodAt(every, now + 600_000)).toBe(600_000);
  expect(periodAt(every, now + 700_000)).toBe(500_000);
});

test("a tiny period and a long outage cost nothing", () => {
  const every: Schedule = { kind: "interval", everyMs: 1_000, anchorAt: 0 };
  expect(countBetween(every, 0, utc("2026-01-01T00:00:00"))).toBe(utc("2026-01-01T00:00:00") / 1_000);
  expect(lastInstants(every, 0, now, 1)).toEqual([now]);
  expect(lastInstants(cron("* * * * * *"), 0, now, 2)).toEqual([now - 1_000, now]);
});

test("B-047 an instant years away is a number, not a timer", () => {
  expect(iso(nextInstant(cron("0 0 1 1 *"), now))).toBe("2027-01-01T00:00:00Z");
  expect(iso(nextInstant(parseSchedule({ at: "2030-01-01" }, { now, hostZone: "UTC" }), now))).toBe(
    "2030-01-01T00:00:00Z",
  );
});

test("B-050 a hundred missed seconds: the oldest, the newest and their number, each for itself", () => {
  const every = cron("* * * * * *");
  const until = now + 120_000;
  expect(countBetween(every, now, until)).toBe(120);
  expect(instantsBetween(every, now, until, 5).at(-1)).toBe(now + 5_000);
  expect(lastInstants(every, now, until, 5)[0]).toBe(until - 4_000);
});

test("the questions about a range agree with asking for the next again and again", () => {
  const kinds: fc.Arbitrary<Schedule> = fc.oneof(
    fc.record({ kind: fc.constant("once" as const), at: fc.integer({ min: now - 1e9, max: now + 1e9 }) }),
    fc.record({ kind: fc.constant("dynamic" as const), firstAt: fc.integer({ min: now - 1e9, max: now + 1e9 }) }),
    fc.record({
      kind: fc.constant("interval" as const),
      everyMs: fc.oneof(fc.integer({ min: 1_000, max: 100_000_000 }), fc.constant(86_400_000)),
      anchorAt: fc.integer({ min: now - 1e9, max: now + 1e9 }),
    }),
    fc.record({
      kind: fc.constant("cron" as const),
      expression: fc.constantFrom(
        "*/5 * * * *",
        "30 2 * * *",
        "0 1-3 * * *",
        "0 0 * * 1",
        "15,45 30 1 * * *",
        "7 */5 1-7 * 1",
        "0 12 L * 1#2",
      ),
      zone: fc.constantFrom("UTC", "Europe/Rome", "Australia/Lord_Howe", "America/Santiago"),
    }),
  );
  const start = fc.oneof(
    fc.integer({ min: now - 1e9, max: now + 1e9 }),
    fc.constantFrom(
      ...[
        "2026-03-28T12:00:00",
        "2026-10-24T12:00:00",
        "2026-10-03T02:00:00",
        "2026-04-04T02:00:00",
        "2026-09-05T12:00:00",
      ].map(utc),
    ),
  );
  fc.assert(
    fc.property(kinds, start, fc.nat({ max: 200_000_000 }), fc.nat({ max: 20 }), (schedule, after, length, limit) => {
      const until = after + length;
      const all: number[] = [];
      for (let at = nextInstant(schedule, after); at !== null && at <= until; at = nextInstant(schedule, at)) {
        expect(at).toBeGreaterThan(all.at(-1) ?? after);
        all.push(at);
        if (all.length > 500_000) break;
      }
      expect(countBetween(schedule, after, until)).toBe(all.length);
      expect(instantsBetween(schedule, after, until, limit)).toEqual(all.slice(0, limit));
      expect(lastInstants(schedule, after, until, limit)).toEqual(limit === 0 ? [] : all.slice(-limit));
      for (const [index, at] of all.slice(0, 3).entries())
        if (all[index + 1] !== undefined) expect(periodAt(schedule, at)).toBe((all[index + 1] ?? 0) - at);
    }),
    { numRuns: 400 },
  );
});

test("an empty or reversed range holds nothing", () => {
  for (const schedule of [
    cron("* * * * *"),
    { kind: "interval", everyMs: 1_000, anchorAt: 0 } as const,
    { kind: "once", at: now } as const,
  ]) {
    expect(countBetween(schedule, now, now)).toBe(0);
    expect(countBetween(schedule, now + 60_000, now)).toBe(0);
    expect(instantsBetween(schedule, now, now, 9)).toEqual([]);
    expect(lastInstants(schedule, now + 60_000, now, 9)).toEqual([]);
  }
});

// --- Reading -----------------------------------------------------------------------------------------------------------------

test("each selector makes its schedule", () => {
  expect(parseSchedule({ every: "15m" }, surroundings)).toEqual({ kind: "interval", everyMs: 900_000, anchorAt: now });
  expect(parseSchedule({ cron: " 30  2 * * * " }, surroundings)).toEqual(cron("30 2 * * *", "Europe/Rome"));
  expect(parseSchedule({ cron: "@daily", tz: "america/new_york" }, surroundings)).toEqual(
    cron("@daily", "America/New_York"),
  );
  expect(parseSchedule({ at: "2026-02-01T00:00:00Z" }, surroundings)).toEqual({
    kind: "once",
    at: utc("2026-02-01T00:00:00"),
  });
  expect(parseSchedule({ dynamic: true }, surroundings)).toEqual({
    kind: "dynamic",
    firstAt: now + defaultLimits.dynamicGapMs,
  });
  expect(parseSchedule({ every: "15m", dynamic: false, cron: undefined }, surroundings).kind).toBe("interval");
});

test.each([
  [{}, "bad_schedule", "no schedule"],
  [{ dynamic: false }, "bad_schedule", "no schedule"],
  [{ every: "15m", cron: "* * * * *" }, "bad_schedule", "--every and --cron"],
  [{ every: "15m", at: "+1m", dynamic: true }, "bad_schedule", "--every and --at and --dynamic"],
  [{ every: "15m", tz: "UTC" }, "bad_schedule", "--tz"],
  [{ dynamic: true, tz: "UTC" }, "bad_schedule", "--tz"],
  [{ tz: "UTC" }, "bad_schedule", "no schedule"],
  [{ at: "2026-02-01T00:00:00Z", tz: "UTC" }, "bad_schedule", "--tz"],
  [{ at: "+5m", tz: "UTC" }, "bad_schedule", "--tz"],
  [{ every: "" }, "bad_duration", "is not a duration"],
  [{ every: "999ms" }, "bad_schedule", "too short"],
  [{ every: "0s" }, "bad_schedule", "too short"],
  [{ every: "3654d" }, "bad_schedule", "too long"],
  [{ cron: "" }, "bad_cron", "empty"],
  [{ cron: "0 0 30 2 *" }, "bad_cron", "never"],
  [{ cron: "* * * * *", tz: "Mars/Olympus" }, "unknown_zone", "Mars/Olympus"],
  [{ cron: "* * * * *", tz: "" }, "unknown_zone", "is not a time zone"],
  [{ at: "" }, "bad_time", "is not a time"],
  [{ at: "2026-02-30" }, "bad_time", "does not exist"],
  [{ at: "2026-02-01T00:00", tz: "Mars/Olympus" }, "unknown_zone", "Mars/Olympus"],
])("%j is refused with %s", (flags, code, part) => {
  const parse = () => parseSchedule(flags, surroundings);
  expect(parse).toThrow(expect.objectContaining({ kind: "invalid", code, hint: expect.any(String) }));
  expect(parse).toThrow(part);
});

test("the bounds of an interval are allowed", () => {
  expect(parseSchedule({ every: "1s" }, surroundings)).toMatchObject({ everyMs: SCHEDULE_LIMITS.minEveryMs });
  expect(parseSchedule({ every: "3653d" }, surroundings)).toMatchObject({ everyMs: SCHEDULE_LIMITS.maxEveryMs });
});

test("errors say which flag", () => {
  const pathOf = (flags: Parameters<typeof parseSchedule>[0]) => {
    try {
      parseSchedule(flags, surroundings);
      return "accepted";
    } catch (error) {
      return (error as { path?: string }).path;
    }
  };
  expect(pathOf({ every: "x" })).toBe("--every");
  expect(pathOf({ every: "1ms" })).toBe("--every");
  expect(pathOf({ cron: "x" })).toBe("--cron");
  expect(pathOf({ cron: "* * * * *", tz: "x" })).toBe("--tz");
  expect(pathOf({ at: "x" })).toBe("--at");
  expect(pathOf({ at: "+x" })).toBe("--at");
});

test.each([
  ["2026-05-01T02:30:00Z", "2026-05-01T02:30:00Z"],
  ["2026-05-01t02:30:00z", "2026-05-01T02:30:00Z"],
  ["2026-05-01 02:30Z", "2026-05-01T02:30:00Z"],
  ["2026-05-01T02:30:00.5Z", "2026-05-01T02:30:00.500Z"],
  ["2026-05-01T02:30:00.123Z", "2026-05-01T02:30:00.123Z"],
  ["2026-05-01T02:30:00+02:00", "2026-05-01T00:30:00Z"],
  ["2026-05-01T02:30-0330", "2026-05-01T06:00:00Z"],
  ["2026-05-01T02:30", "2026-05-01T00:30:00Z"],
  ["2026-01-31T02:30:15", "2026-01-31T01:30:15Z"],
  ["2026-05-01", "2026-04-30T22:00:00Z"],
  ["2024-02-29", "2024-02-28T23:00:00Z"],
  ["2026-03-29T02:30", "2026-03-29T01:00:00Z"],
  ["2026-10-25T02:30", "2026-10-25T00:30:00Z"],
  ["1970-01-01T00:00Z", "1970-01-01T00:00:00Z"],
  ["+30m", "2026-01-15T10:30:00Z"],
  ["+1d2h", "2026-01-16T12:00:00Z"],
  ["+0s", "2026-01-15T10:00:00Z"],
])("the time %s is %s", (text, expected) => {
  expect(iso(parseTime(text, surroundings))).toBe(expected);
});

test("a local time takes the zone that is given", () => {
  expect(iso(parseTime("2026-05-01T02:30", { ...surroundings, tz: "America/New_York" }))).toBe("2026-05-01T06:30:00Z");
});

test.each([
  "tomorrow",
  "2026",
  "2026-5-1",
  "2026-05-01T",
  "2026-05-01T2:30",
  "2026-05-01T02",
  "2026-05-01T02:30:00 UTC",
  "2026-05-01T02:30:00.1234Z",
  "2026-02-29",
  "2026-02-30T10:00Z",
  "2026-04-31",
  "2026-13-01",
  "2026-00-10",
  "2026-01-00",
  "2026-01-01T24:00",
  "2026-01-01T23:60",
  "2026-01-01T23:59:60Z",
  "2026-01-01T00:00+25:00",
  "2026-01-01T00:00+02:60",
  "1969-12-31T23:59:59Z",
  "0000-01-01",
  "+9999999d",
  "1767225600000",
  "2026-05-01T02:30Z\n",
  "-5m",
])("the time %j is refused", (text) => {
  expect(() => parseTime(text, surroundings)).toThrow(
    expect.objectContaining({ kind: "invalid", code: "bad_time", path: "--at", hint: expect.any(String) }),
  );
});

test("schedule next takes a duration or an expression", () => {
  expect(parseExpression("15m", surroundings)).toEqual({ kind: "interval", everyMs: 900_000, anchorAt: now });
  expect(parseExpression("1h30m", surroundings)).toMatchObject({ everyMs: 5_400_000 });
  expect(parseExpression("*/15 * * * *", { ...surroundings, tz: "UTC" })).toEqual(cron("*/15 * * * *"));
  expect(parseExpression("@daily", surroundings)).toEqual(cron("@daily", "Europe/Rome"));
  expect(() => parseExpression("15 minutes", surroundings)).toThrow(expect.objectContaining({ code: "bad_cron" }));
  expect(() => parseExpression("15x", surroundings)).toThrow(expect.objectContaining({ code: "bad_duration" }));
  expect(parseExpression("15m", { ...surroundings, tz: "UTC" }).kind).toBe("interval");
});

// --- Words -------------------------------------------------------------------------------------------------------------------

test.each<[Schedule, string]>([
  [{ kind: "once", at: now }, "at 2026-01-15T10:00:00.000Z"],
  [{ kind: "interval", everyMs: 900_000, anchorAt: now }, "every 15m"],
  [cron("30 2 * * *", "Europe/Rome"), "cron 30 2 * * * Europe/Rome"],
  [{ kind: "dynamic", firstAt: now }, "dynamic"],
])("%j in a table", (schedule, text) => {
  expect(describeSchedule(schedule)).toBe(text);
});

test("a fixed time is explained with the next two changes of the clock", () => {
  expect(explainSchedule(cron("30 2 * * *", "Europe/Rome"), now)).toEqual([
    "At 02:30, every day; local time of Europe/Rome.",
    "Fixed times: each fires once a day. Those that the clock skips fire together once at the end of the gap; of a repeated hour only the first pass fires.",
    "2026-03-29T03:00:00+02:00: the clock goes forward by 1h (+01:00 to +02:00); local times from 2026-03-29 02:00 to before 2026-03-29 03:00 are skipped. 1 of its local times is skipped: it fires once, at 2026-03-29T03:00:00+02:00.",
    "Around it: 2026-03-29T03:00:00+02:00.",
    "2026-10-25T02:00:00+01:00: the clock goes back by 1h (+02:00 to +01:00); local times from 2026-10-25 02:00 to before 2026-10-25 03:00 are repeated. 1 of its local times is repeated: only the first pass fires.",
    "Around it: 2026-10-25T02:30:00+02:00.",
  ]);
});

test("real spacing is explained, and what a change does not touch", () => {
  const lines = explainSchedule(cron("*/30 2 * * *", "America/New_York"), now);
  expect(lines[1]).toContain("Real spacing");
  expect(lines[2]).toContain("2 of its local times are skipped: it does not fire then.");
  expect(lines.at(-1)).toContain("It does not touch this schedule.");
});

test("zones without a change, and the other kinds, have their words", () => {
  expect(explainSchedule(cron("0 9 * * *", "Asia/Tokyo"), now).at(-1)).toContain("no change of the clock");
  expect(explainSchedule({ kind: "interval", everyMs: 900_000, anchorAt: now }, now)[0]).toContain(
    "Every 15m of real time",
  );
  expect(explainSchedule({ kind: "once", at: now }, now)).toEqual(["Once, at 2026-01-15T10:00:00.000Z."]);
  expect(explainSchedule({ kind: "dynamic", firstAt: now }, now)[0]).toContain("follows after 1m");
});
