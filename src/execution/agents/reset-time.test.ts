import { describe, expect, test } from "vitest";
import { resetTime, windowOf } from "./reset-time.ts";

const NOW = Date.UTC(2026, 10, 30, 6, 0, 0);
const DAY = 86_400_000;
const utc = { now: NOW, zone: "UTC", longestMs: 8 * DAY };
const of = (text: string, zone = "UTC", now = NOW) => resetTime({ text }, { ...utc, now, zone });
const iso = (at: number | undefined) => (at === undefined ? null : new Date(at).toISOString());

describe("when a limit is over", () => {
  test.each([
    ["retry-after: 997", 997],
    ["Retry-After 997 seconds", 997],
    ["429 Too Many Requests, retry after 2h", 7_200],
    ["try again in 997 s", 997],
    ["Please try again in 2h 13m.", 7_980],
    ["Please try again in 7.66s.", 7.66],
    ["Try again in 1 day 2 hours and 5 minutes", 93_900],
    ["resets in 45m", 2_700],
    ["limit resets in 3 days", 259_200],
    ["Your quota will reset after 1h30m", 5_400],
    ["wait 30 seconds", 30],
    ["please wait for 500ms", 0.5],
    ['{"resets_in_seconds":3600}', 3_600],
    ['"retryDelay":"2s"', 2],
    ["retry-after-ms: 1500", 1.5],
  ])("%s", (text, seconds) => {
    expect((of(text)?.at ?? Number.NaN) - NOW).toBe(Math.ceil(seconds * 1_000));
  });

  // What is said to the minute is over when that minute is.
  test.each([
    ["You've hit your 5-hour limit · resets 7:39am (UTC)", "UTC", "2026-11-30T07:40:00.000Z"],
    ["You've hit your limit · resets 3pm (Europe/Rome)", "UTC", "2026-11-30T14:01:00.000Z"],
    ["You've hit your limit · resets Dec 2, 2:13pm (UTC)", "UTC", "2026-12-02T14:14:00.000Z"],
    ["You've hit your weekly limit · resets Dec 3 at 8am (Europe/Rome)", "UTC", "2026-12-03T07:01:00.000Z"],
    ["resets 12:57am (UTC)", "UTC", "2026-12-01T00:58:00.000Z"],
    ["resets Mon 9am (UTC)", "UTC", "2026-11-30T09:01:00.000Z"],
    ["resets Mon 5am (UTC)", "UTC", "2026-12-07T05:01:00.000Z"],
    ["or try again at Dec 2nd, 2026 2:13 PM.", "UTC", "2026-12-02T14:14:00.000Z"],
    ["or try again at Nov 30th, 2026 12:39 PM.", "America/New_York", "2026-11-30T17:40:00.000Z"],
    ["try again at 7:19 AM.", "UTC", "2026-11-30T07:20:00.000Z"],
    ["try again at 7:19 AM.", "Asia/Tokyo", "2026-11-30T22:20:00.000Z"],
    ["reset at 2026-12-01 00:35:41", "Asia/Shanghai", "2026-11-30T16:35:41.000Z"],
    ["reset at 2026-12-01T00:35:41Z", "Asia/Shanghai", "2026-12-01T00:35:41.000Z"],
    ["reset at 2026-12-01T00:35:41+02:00", "Asia/Shanghai", "2026-11-30T22:35:41.000Z"],
    ["Retry-After: Tue, 01 Dec 2026 07:28:00 GMT", "Asia/Shanghai", "2026-12-01T07:28:00.000Z"],
    ["available again on Jan 2 at 10:00", "UTC", null],
    ["Claude AI usage limit reached|1796025600", "UTC", "2026-11-30T08:00:00.000Z"],
    ['{"type":"usage_limit_reached","resets_at":1796025600}', "UTC", "2026-11-30T08:00:00.000Z"],
    ["resets 4pm PST", "UTC", "2026-12-01T00:01:00.000Z"],
    ["available at 9am PT", "UTC", "2026-11-30T17:01:00.000Z"],
  ])("%s in %s", (text, zone, expected) => {
    expect(iso(of(text, zone)?.at)).toBe(expected);
  });

  test.each([
    "You have hit your limit.",
    "5-hour limit reached",
    "rate limit: 40 requests",
    "resets yesterday",
    "again at 25:99",
    "resets Feb 31st, 2027 9:00 AM",
    "request id: 7f2in 5 parts",
    "reset at 2026-11-30 05:59:59",
    "reset at 2027-03-01 00:00:00",
  ])("%s says nothing that is believed", (text) => {
    expect(of(text)).toBeNull();
  });

  test("a minute that is not over does not mean tomorrow", () => {
    const now = Date.UTC(2026, 10, 30, 7, 19, 10);
    expect(iso(of("try again at 7:19 AM.", "UTC", now)?.at)).toBe("2026-11-30T07:20:00.000Z");
  });

  test("B-085 a relative hint beats a stamp without a zone, and the window bounds both", () => {
    const now = Date.UTC(2026, 8, 11, 16, 19, 4);
    const text = "429: 5-hour limit, reset at 2026-09-12 00:35:41 (retry-after 997 s)";
    const both = resetTime({ text }, { now, zone: "UTC", longestMs: 8 * DAY });
    expect(both).toEqual({ at: now + 997_000, source: "retry-after 997s" });
    const stamp = resetTime({ text: text.replace(/ \(.*/, "") }, { now, zone: "UTC", longestMs: 8 * DAY });
    expect(stamp?.at).toBe(now + 5 * 3_600_000);
    expect(stamp?.source).toContain("2026-09-12 00:35:41");
    expect(stamp?.source).toContain("in UTC, cut to its window of 5h");
  });

  test("an instant beyond its window is kept when it was said without doubt, and cut when its zone is a guess; the source says which", () => {
    const windowMs = 5 * 3_600_000;
    const later = NOW + 48 * 3_600_000;
    const field = { name: "resetsAt", value: later / 1_000 };
    expect(resetTime({ field, windowMs }, utc)).toEqual({
      at: later,
      source: `event resetsAt ${field.value}, kept although its window is 5h`,
    });
    expect(of("5-hour limit, retry-after 20000 s")).toEqual({
      at: NOW + 20_000_000,
      source: "retry-after 20000s, kept although its window is 5h",
    });
    expect(iso(of("5-hour limit, reset at 2026-12-02 06:00:00Z")?.at)).toBe("2026-12-02T06:00:00.000Z");
    expect(of("5-hour limit, reset at 2026-12-02 06:00:00", "Asia/Tokyo")).toEqual({
      at: NOW + windowMs,
      source: 'text "2026-12-02 06:00:00" in Asia/Tokyo, cut to its window of 5h',
    });
    // What is further away than any limit makes no sense, whatever its window.
    expect(resetTime({ field: { ...field, value: NOW / 1_000 + 9 * 86_400 }, windowMs }, utc)).toBeNull();
  });

  test("a field beats all texts; a zone beats none", () => {
    const field = { name: "resetsAt", value: (NOW + 3_600_000) / 1_000 };
    expect(resetTime({ field, text: "try again in 5 s" }, utc)).toEqual({
      at: NOW + 3_600_000,
      source: `event resetsAt ${field.value}`,
    });
    expect(iso(of("reset at 2026-12-01 00:35:41, that is 7:39am (UTC)")?.at)).toBe("2026-12-01T00:35:41.000Z");
    expect(iso(of("reset at 2026-12-01 00:35:41, at 7:39am (UTC)")?.at)).toBe("2026-11-30T07:40:00.000Z");
  });

  test("what is past or too far is passed over for the next hint; milliseconds are seen", () => {
    const text = "try again in 60 s";
    const past = { name: "resetsAt", value: NOW / 1_000 - 5 };
    expect(resetTime({ field: past, text }, utc)?.at).toBe(NOW + 60_000);
    expect(resetTime({ field: { ...past, value: NOW / 1_000 + 9 * 86_400 } }, utc)).toBeNull();
    expect(resetTime({ field: { ...past, value: NOW + 5_000 } }, utc)?.at).toBe(NOW + 5_000);
    expect(resetTime({ field: { ...past, value: Number.NaN } }, utc)).toBeNull();
  });

  test("windows are known by their names", () => {
    expect([windowOf("five_hour"), windowOf("seven_day_opus"), windowOf("overage"), windowOf(null)]).toEqual([
      5 * 3_600_000,
      7 * DAY,
      null,
      null,
    ]);
  });
});
