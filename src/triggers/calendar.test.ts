import { spawnSync } from "node:child_process";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { nextFiring, parseCron } from "../core/cron.ts";
import { checkZone } from "../core/zone.ts";
import { isFault, readCalendar, readSpan, scheduleOf } from "./calendar.ts";

const isZone = (zone: string): boolean => {
  try {
    checkZone(zone);
    return true;
  } catch {
    return false;
  }
};
const convert = (text: string) => {
  const event = readCalendar(text, isZone);
  return isFault(event) ? event : { ...scheduleOf(event), zone: event.zone };
};

test.each([
  ["minutely", "* * * * *"],
  ["hourly", "0 * * * *"],
  ["daily", "0 0 * * *"],
  ["weekly", "0 0 * * 1"],
  ["monthly", "0 0 1 * *"],
  ["quarterly", "0 0 1 */3 *"],
  ["Semi-Annually", "0 0 1 1,7 *"],
  ["yearly", "0 0 1 1 *"],
  ["02:30", "30 2 * * *"],
  ["*-*-* 02:30:00", "30 2 * * *"],
  ["*-* 5:0", "0 5 * * *"],
  ["Mon..Fri 08:00", "0 8 * * 1-5"],
  ["mon,Sunday 8:0:30", "30 0 8 * * 1,7"],
  ["Sat..Sun 1:0", "0 1 * * 6,7"],
  ["Mon..Sun 1:0", "0 1 * * *"],
  ["*:0/15", "*/15 * * * *"],
  ["*:5/15", "5-59/15 * * * *"],
  ["*:*:0/10", "*/10 * * * * *"],
  ["0..6/2:00", "0 0,2,4,6 * * *"],
  ["10:0,30..40/5", "0,30,35,40 10 * * *"],
  ["*-*-1/5", "0 0 */5 * *"],
  ["*-1..3-01,15", "0 0 1,15 1-3 *"],
  ["12-25", "0 0 25 12 *"],
  ["*-*~01 23:59", "59 23 L * *"],
  ["*-04,06~02", "0 0 29 4,6 *"],
  ["*-01~01..03", "0 0 29-31 1 *"],
  ["Mon *-*-1..7", "0 0 * * 1#1"],
  ["Mon,Fri *-*-8..14 6:00", "0 6 * * 1#2,5#2"],
  ["Sun *-*-1..14", "0 0 * * 0#1,0#2"],
  ["Mon *-05~07/1", "0 0 * 5 1L"],
])("%s is cron's %s", (text, expression) => {
  const found = convert(text);
  const known = { ...found, expression: "expression" in found ? found.expression : null };
  expect(known).toEqual({ kind: "cron", expression, zone: null });
});

test("a zone at the end is the event's", () => {
  expect(convert("daily Europe/Rome")).toMatchObject({ expression: "0 0 * * *", zone: "Europe/Rome" });
  expect(convert("Mon *-*-* 1:0 UTC")).toMatchObject({ zone: "UTC" });
});

test("one instant is one instant", () => {
  expect(convert("2030-05-01 02:30")).toMatchObject({ kind: "once", localMs: Date.UTC(2030, 4, 1, 2, 30) });
  expect(convert("30-5-1 2:30:4")).toMatchObject({ kind: "once", localMs: Date.UTC(2030, 4, 1, 2, 30, 4) });
});

test.each([
  ["2030-*-* 1:0", "certain years"],
  ["2030..2032-1-1", "certain years"],
  ["Mon *-*-13", "at once"],
  ["Fri *-*~03", "at once"],
  ["*-*~03", "different lengths"],
  ["*-02~03", "different lengths"],
  ["2030-02-30", "does not come"],
  ["@1395716396", "comes once"],
  ["*:*:0.5", "part of a second"],
  ["daily Mars/Base", "time zone"],
  ["Fri..Mon", "reversed"],
  ["5", "no date"],
  ["*/2:00", "no hour"],
  ["24:00", "out of range"],
  ["*-*-1..40", "out of range"],
  ["*-*-20..10", "out of range"],
  ["*:0/0", "step"],
  ["", "empty"],
  ["Mon *", "no date"],
  ["1:0 2:0", "too much"],
])("%j is not taken: %s", (text, part) => {
  expect(convert(text)).toEqual(expect.objectContaining({ fault: expect.stringContaining(part) }));
});

// --- Against systemd itself ----------------------------------------------------------------------------------------------

/** The next instants of many events, as systemd says them; null for one that it refuses. */
function askSystemd(events: readonly string[], base: number, count: number): (number[] | null)[] {
  const ask = (all: readonly string[]) =>
    spawnSync(
      "systemd-analyze",
      [
        "calendar",
        `--base-time=${new Date(base).toISOString().slice(0, 19).replace("T", " ")} UTC`,
        `--iterations=${count}`,
        "--",
        ...all,
      ],
      { encoding: "utf8", env: { PATH: process.env["PATH"], TZ: "UTC", LC_ALL: "C" } },
    );
  const { stdout, stderr } = ask(events);
  const refused = new Set([...stderr.matchAll(/calendar (?:specification|expression) '(.*)'/g)].map(([, one]) => one));
  const found = new Map<string, number[]>();
  for (const part of stdout.split(/(?=^ *Original form: )|\n\n/m)) {
    const normal = /Normalized form: (.*)/.exec(part)?.[1];
    if (normal === undefined) continue;
    const original = /Original form: (.*)/.exec(part)?.[1] ?? normal;
    const zone = / (?:UTC|[A-Z][a-z]+\/\w+)$/.test(normal);
    const line = zone
      ? /\(in UTC\): \w+ (\S+) (\S+) UTC|(?:elapse|Iter\. #\d+): \w+ (\S+) (\S+) UTC/g
      : /(?:elapse|Iter\. #\d+): \w+ (\S+) (\S+) UTC/g;
    found.set(
      original,
      [...part.matchAll(line)].map((each) => Date.parse(`${each[1] ?? each[3]}T${each[2] ?? each[4]}Z`)),
    );
  }
  return events.map((event) => (refused.has(event) ? null : (found.get(event) ?? null)));
}

const hasSystemd = spawnSync("systemd-analyze", ["calendar", "daily"]).status === 0;
if (!hasSystemd) console.warn("left out, since systemd-analyze is not here: calendar events against systemd itself");

describe.skipIf(!hasSystemd)("systemd-analyze says the same", () => {
  const value = (low: number, high: number) => fc.integer({ min: low, max: high });
  const chain = (low: number, high: number) => {
    const one = value(low, high);
    const range = fc.tuple(one, one).map(([a, b]) => `${Math.min(a, b)}..${Math.max(a, b)}`);
    const step = value(1, Math.max(2, Math.floor(high / 2)));
    const element = fc.oneof(
      one.map(String),
      range,
      fc.tuple(one, step).map(([a, n]) => `${a}/${n}`),
      fc.tuple(range, step).map(([a, n]) => `${a}/${n}`),
    );
    return fc.oneof(
      { weight: 2, arbitrary: fc.constant("*") },
      { weight: 3, arbitrary: one.map(String) },
      fc.array(element, { minLength: 1, maxLength: 3 }).map((all) => all.join(",")),
    );
  };
  const names = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
  const weekday = fc.oneof(
    fc.constantFrom(...names),
    fc.tuple(value(0, 6), value(0, 6)).map(([a, b]) => `${names[Math.min(a, b)]}..${names[Math.max(a, b)]}`),
  );
  const weekdays = fc.array(weekday, { minLength: 1, maxLength: 3 }).map((all) => all.join(","));
  const date = fc.oneof(
    { weight: 3, arbitrary: fc.tuple(chain(1, 12), chain(1, 31)).map(([m, d]) => `*-${m}-${d}`) },
    fc
      .tuple(chain(1, 12), fc.constantFrom("01", "07/1", "1..3", "2", "5..9/2", "28", "30"))
      .map(([m, d]) => `*-${m}~${d}`),
    fc
      .tuple(chain(1, 12), fc.constantFrom("1..7", "8..14", "15..21", "22..28", "29..31", "1..14"))
      .map(([m, d]) => `*-${m}-${d}`),
  );
  const time = fc
    .tuple(
      chain(0, 23),
      chain(0, 59),
      fc.oneof(
        fc.constant(""),
        chain(0, 59).map((s) => `:${s}`),
      ),
    )
    .map(([h, m, s]) => `${h}:${m}${s}`);
  const event = fc
    .tuple(fc.option(weekdays), fc.option(date), fc.option(time))
    .map((parts) => parts.filter((part) => part !== null).join(" "))
    .filter((text) => text !== "");

  test("at the same instants for any event, and what it refuses is refused", () => {
    const outcomes = { same: 0, left: 0, refused: 0 };
    fc.assert(
      fc.property(fc.uniqueArray(event, { minLength: 40, maxLength: 40 }), value(0, 3_000), (events, day) => {
        const base = Date.UTC(2026, 0, 1) + day * 86_400_000;
        const answers = askSystemd(events, base, 6);
        for (const [index, text] of events.entries()) {
          const wanted = answers[index] ?? null;
          const read = readCalendar(text, isZone);
          if (wanted === null) {
            if (!isFault(read)) expect(`${text} is refused by systemd`).toBe("read here");
            outcomes.refused++;
            continue;
          }
          if (isFault(read)) expect(`${text}: ${read.fault}`).toBe("as systemd reads it");
          const schedule = isFault(read) ? read : scheduleOf(read);
          if (isFault(schedule) || schedule.kind !== "cron") {
            outcomes.left++;
            continue;
          }
          let cron: ReturnType<typeof parseCron>;
          try {
            cron = parseCron(schedule.expression);
          } catch {
            expect(wanted).toEqual([]); // it never fires
            continue;
          }
          const found: number[] = [];
          for (let at: number | null = base; found.length < wanted.length; ) {
            at = nextFiring(cron, "UTC", at);
            if (at === null) break;
            found.push(at);
          }
          expect([text, schedule.expression, found]).toEqual([text, schedule.expression, wanted]);
          outcomes.same++;
        }
      }),
      { numRuns: 20 },
    );
    expect(outcomes.same).toBeGreaterThan(300);
    expect(outcomes.left).toBeGreaterThan(10);
  });

  test("spans of time are as long as systemd says", () => {
    const unit = fc.constantFrom("", "s", "sec", "min", "m", "h", "hr", "d", "days", "w", "M", "month", "y", "ms");
    const span = fc
      .array(
        fc.tuple(value(1, 400), fc.constantFrom("", " "), unit).map((all) => all.join("")),
        { minLength: 1, maxLength: 4 },
      )
      .map((all) => all.join(" "));
    const all = fc.sample(span, 60);
    const { stdout } = spawnSync("systemd-analyze", ["timespan", ...all], {
      encoding: "utf8",
      env: { PATH: process.env["PATH"], LC_ALL: "C" },
    });
    const wanted = [...stdout.matchAll(/s: (\d+)$/gm)].map(([, us]) => Math.round(Number(us) / 1_000));
    expect(wanted).toHaveLength(all.length);
    expect(all.map(readSpan)).toEqual(wanted);
  });
});

test("a span that is none is null", () => {
  expect(["", "x", "1 fortnight", "-1s", "1h x", "1..2s"].map(readSpan)).toEqual([null, null, null, null, null, null]);
  expect(readSpan("infinity")).toBe(Number.POSITIVE_INFINITY);
  expect(readSpan("1h 30min")).toBe(5_400_000);
  expect(readSpan("90")).toBe(90_000);
});

test("any text is read or refused, never a throw", () => {
  const piece = fc.constantFrom(..."Mon Fri .. - ~ / , : * 1 31 7/1 2030 00 daily UTC @ \u0000 é  \t".split(" "), " ");
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string(),
        fc.array(piece, { maxLength: 14 }).map((all) => all.join("")),
      ),
      (text) => {
        const found = convert(text);
        if ("expression" in found) expect(typeof found.expression).toBe("string");
        readSpan(text);
      },
    ),
    { numRuns: 2_000 },
  );
});
