import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import {
  checkZone,
  FIRST_INSTANT,
  formatLocal,
  formatOffset,
  instantOf,
  LAST_INSTANT,
  localFields,
  nextTransition,
  offsetAt,
  stretchAt,
} from "./zone.ts";
import { changedSince } from "../../test/fixtures/schedules/releases.ts";

const utc = (text: string) => Date.parse(`${text}Z`);

const rows = readFileSync(new URL("../../test/fixtures/schedules/offsets.tsv", import.meta.url), "utf8")
  .split("\n")
  .filter((line) => line !== "" && !line.startsWith("#"))
  .map((line) => line.split("\t") as [string, string])
  .filter(([zone]) => !changedSince.includes(zone));

test("the fixture holds every zone with a change from 2020 to 2035", () => {
  expect(rows.length).toBeGreaterThan(200);
});

test.each(rows)("%s changes its offset when another implementation says so", (zone, text) => {
  const expected = text.split(" ").map((each) => each.split("=") as [string, string]);
  const found: string[] = [];
  const until = utc("2036-01-01T00:00:00");
  for (let after = utc("2019-12-31T23:59:59.999"); ; ) {
    const change = nextTransition(zone, after, until - 1);
    if (change === null) break;
    expect(offsetAt(zone, change.at - 1)).toBe(change.beforeMs);
    expect(offsetAt(zone, change.at)).toBe(change.afterMs);
    found.push(`${new Date(change.at).toISOString().slice(0, 19)}Z=${change.afterMs / 1_000}`);
    after = change.at;
  }
  expect(found).toEqual(expected.map((each) => each.join("=")));
});

test("offsets agree with the formatter at moments all over, for every zone", () => {
  for (const zone of Intl.supportedValuesOf("timeZone")) {
    const formatter = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });
    for (let at = utc("1971-01-03T05:00:00"); at < utc("2060-01-01T00:00:00"); at += 19_973 * 3_600_000)
      expect(offsetAt(zone, at), `${zone} ${at}`).toBe(Date.parse(`${formatter.format(at).replace(" ", "T")}Z`) - at);
  }
});

test("a change within a week of another one is found", () => {
  // Recife went forward and back within 6.9 days in October 2000.
  const until = utc("2000-12-31T00:00:00");
  const first = nextTransition("America/Recife", utc("2000-09-01T00:00:00"), until);
  const second = nextTransition("America/Recife", first?.at ?? 0, until);
  expect([first, second]).toEqual([
    { at: utc("2000-10-08T03:00:00"), beforeMs: -10_800_000, afterMs: -7_200_000 },
    { at: utc("2000-10-15T02:00:00"), beforeMs: -7_200_000, afterMs: -10_800_000 },
  ]);
});

test("transitions lie in (after, until]", () => {
  const at = utc("2026-03-29T01:00:00");
  expect(nextTransition("Europe/Rome", at - 1, at)?.at).toBe(at);
  expect(nextTransition("Europe/Rome", at, at + 86_400_000)).toBeNull();
  expect(nextTransition("Europe/Rome", at - 1, at - 1)).toBeNull();
  expect(nextTransition("UTC", 0, LAST_INSTANT / 100)).toBeNull();
});

test("stretches meet, and their gaps and repeated hours are those of the change at their start", () => {
  for (const zone of ["Europe/Rome", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"]) {
    let stretch = stretchAt(zone, utc("2005-01-01T00:00:00"));
    while (stretch.endAt < utc("2040-01-01T00:00:00")) {
      const next = stretchAt(zone, stretch.endAt);
      expect(next.startAt).toBe(stretch.endAt);
      expect(stretchAt(zone, next.startAt - 1)).toEqual(stretch);
      expect(next.gapMs).toBe(Math.max(0, next.offsetMs - stretch.offsetMs));
      if (next.offsetMs < stretch.offsetMs)
        expect(next.repeatedUntil).toBe(next.startAt + stretch.offsetMs - next.offsetMs);
      stretch = next;
    }
  }
});

test("local times: a gap leads to its end, a fold to its first pass", () => {
  const at = (zone: string, local: string) => new Date(instantOf(zone, utc(local))).toISOString().slice(0, 19);
  expect(at("Europe/Rome", "2026-03-29T02:30:00")).toBe("2026-03-29T01:00:00");
  expect(at("Europe/Rome", "2026-03-29T03:00:00")).toBe("2026-03-29T01:00:00");
  expect(at("Europe/Rome", "2026-10-25T02:30:00")).toBe("2026-10-25T00:30:00");
  expect(at("Europe/Rome", "2026-10-25T03:00:00")).toBe("2026-10-25T02:00:00");
  expect(at("Pacific/Apia", "2011-12-30T12:00:00")).toBe("2011-12-30T10:00:00");
  expect(at("Pacific/Kiritimati", "2026-01-01T00:00:00")).toBe("2025-12-31T10:00:00");
  expect(at("Etc/GMT+12", "2026-01-01T00:00:00")).toBe("2026-01-01T12:00:00");
});

test("local fields and texts", () => {
  const at = utc("2026-10-25T01:30:00");
  expect(localFields("Europe/Rome", at)).toEqual({
    year: 2026,
    month: 10,
    day: 25,
    hour: 2,
    minute: 30,
    second: 0,
    weekday: 0,
    offsetMs: 3_600_000,
  });
  expect(formatLocal("Europe/Rome", at)).toBe("2026-10-25T02:30:00+01:00");
  expect(formatLocal("Europe/Rome", at - 3_600_000)).toBe("2026-10-25T02:30:00+02:00");
  expect(formatLocal("America/St_Johns", at + 7)).toBe("2026-10-24T23:00:00.007-02:30");
  expect(formatOffset(0)).toBe("+00:00");
  expect(formatOffset(-2_670_000)).toBe("-00:44:30");
});

test("an offset with seconds is exact", () => {
  expect(offsetAt("Africa/Monrovia", utc("1971-06-01T00:00:00"))).toBe(-2_670_000);
});

test("names keep their meaning and get their usual spelling", () => {
  expect(checkZone("europe/rome")).toBe("Europe/Rome");
  expect(checkZone("utc")).toBe("UTC");
  expect(checkZone("US/Pacific")).toBe("US/Pacific");
});

test.each([
  "",
  "Mars/Olympus",
  "+02:00",
  "UTC+2",
  "GMT+2",
  "Europe/Rome ",
  "Local",
  "../etc/passwd",
  "Europe/Rome\0",
  "toString",
])("%j is no zone", (name) => {
  expect(() => checkZone(name, "--tz")).toThrow(
    expect.objectContaining({ kind: "invalid", code: "unknown_zone", path: "--tz", hint: expect.any(String) }),
  );
  expect(() => offsetAt(name, 0)).toThrow(expect.objectContaining({ code: "unknown_zone" }));
});

test("the ends of the calendar have local times", () => {
  expect(offsetAt("Asia/Tokyo", LAST_INSTANT)).toBe(32_400_000);
  expect(offsetAt("UTC", FIRST_INSTANT)).toBe(0);
});
