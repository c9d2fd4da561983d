import { Cron as Croner } from "croner";
import fc from "fast-check";
import { expect, test } from "vitest";
import {
  type Cron,
  countFirings,
  cronInWords,
  KEPT_EXPRESSIONS,
  lastFiring,
  MAX_EXPRESSION_LENGTH,
  nextFiring,
  parseCron,
} from "./cron.ts";
import { FIRST_INSTANT, LAST_INSTANT, offsetAt } from "./zone.ts";

const utc = (text: string) => Date.parse(`${text}Z`);
const firings = (expression: string, zone: string, from: string, count: number) => {
  const found: string[] = [];
  for (let at = nextFiring(parseCron(expression), zone, utc(from)); at !== null && found.length < count; ) {
    found.push(new Date(at).toISOString().slice(0, 19));
    at = nextFiring(parseCron(expression), zone, at);
  }
  return found;
};

// --- Reading -----------------------------------------------------------------------------------------------------------

test.each([
  ["", "empty"],
  ["   ", "empty"],
  ["* * * *", "4 fields"],
  ["* * * * * * *", "7 fields"],
  ["0 0 0 1 1 ? 2030", "7 fields"],
  ["constructor", "1 field"],
  ["0 0\n* * *", "4 fields"],
  ["@reboot", "@reboot"],
  ["@every 5m", "@every 5m"],
  ["@daily @daily", "@daily @daily"],
  ["60 * * * *", 'minute field "60": 60 is out of range'],
  ["* 24 * * *", 'hour field "24": 24 is out of range'],
  ["* * 0 * *", 'day-of-month field "0": 0 is out of range'],
  ["* * 32 * *", 'day-of-month field "32"'],
  ["* * * 0 *", 'month field "0"'],
  ["* * * 13 *", 'month field "13"'],
  ["* * * * 8", 'day-of-week field "8"'],
  ["60 * * * * *", 'second field "60"'],
  ["99999999999999999999 * * * *", "out of range"],
  ["50-10 * * * *", 'minute field "50-10": the range 50-10 is reversed'],
  ["* * * DEC-JAN *", "reversed"],
  ["* * * * FRI-MON", "reversed"],
  ["* * * * 5-0", "reversed"],
  ["*/0 * * * *", "step"],
  ["*/-5 * * * *", "step"],
  ["*/ * * * *", "step"],
  ["*/1.5 * * * *", "step"],
  ["*/5/5 * * * *", "two steps"],
  ["*/61 * * * *", 'minute field "*/61": the step 61 is larger'],
  ["0 */25 * * *", "larger"],
  ["* * * FOO *", '"FOO" is no value'],
  ["* * * JANUARY *", '"JANUARY" is no value'],
  ["* * * * MO", '"MO" is no value'],
  ["MON * * * *", "minute field"],
  ["* * MON * *", "day-of-month field"],
  ["-5 * * * *", "not a range"],
  ["5- * * * *", "not a range"],
  ["1-5-7 * * * *", "not a range"],
  ["*-5 * * * *", "minute field"],
  [", * * * *", "empty"],
  ["1,,2 * * * *", "empty"],
  ["1, * * * *", "empty"],
  ["? * * * *", "?"],
  ["* * * ? *", "?"],
  ["* * ?/2 * *", "?"],
  ["* * ?,1 * *", "?"],
  ["* * 15W * *", '"15W" is not understood'],
  ["* * W * *", '"W" is not understood'],
  ["* * LW * *", '"LW" is not understood'],
  ["* * L-2 * *", '"L-2" is not understood'],
  ["* * L/2 * *", '"L/2" is not understood'],
  ["* * 5L * *", '"5L" is not understood'],
  ["L * * * *", '"L" is not understood'],
  ["* * * * L", '"L" is not understood'],
  ["* * * * 1#0", "no such week"],
  ["* * * * 1#6", "no such week"],
  ["* * * * 1#L", "no such week"],
  ["* * * * 8#1", "out of range"],
  ["* * * * 1#1/2", "not understood"],
  ["* * * * 9L", "out of range"],
  ["* * * * FOO#1", "no value"],
  ["H * * * *", '"H" is not understood'],
  ["H/15 * * * *", '"H/15" is not understood'],
  ["+5 * * * *", "minute field"],
  ["0x5 * * * *", "minute field"],
  ["٥ * * * *", "minute field"],
  ["0 0 30 2 *", "never fires"],
  ["0 0 31 2,4,6,9,11 *", "never fires"],
  ["0 0 31 APR ?", "never fires"],
  [`${"0,".repeat(MAX_EXPRESSION_LENGTH)}0 * * * *`, "longer"],
])("%j is refused", (expression, part) => {
  const refused = expect.objectContaining({
    kind: "invalid",
    code: "bad_cron",
    path: "--cron",
    hint: expect.any(String),
  });
  expect(() => parseCron(expression, "--cron")).toThrow(refused);
  expect(() => parseCron(expression)).toThrow(part);
});

test.each([
  ["0 0 29 2 *"],
  ["0 0 30 2 1"],
  ["0 0 30,28 2 *"],
  ["0 0 31 2,3 *"],
  ["0 0 ? 2 1#5"],
  ["*/60 * * * *"],
  ["0 0 L 2 *"],
  ["* * * * 7-7"],
  ["  0   0\t* * *  "],
])("%j comes and is accepted", (expression) => {
  expect(nextFiring(parseCron(expression), "UTC", 0)).not.toBeNull();
});

test("the expression is kept with single spaces, in its own case", () => {
  expect(parseCron("  0   9\t* * Mon ").expression).toBe("0 9 * * Mon");
  expect(parseCron("@Daily").expression).toBe("@Daily");
});

test.each([
  ["30 2 * * *", true],
  ["0,15 1-3,5 * * *", true],
  ["0 0-23 * * *", true],
  ["0-59 2 * * *", true],
  ["0 30 2 * * *", true],
  ["0-10 30 2 * * *", true],
  ["30 2 */2 * 1#1", true],
  ["@daily", true],
  ["@weekly", true],
  ["* 2 * * *", false],
  ["30 * * * *", false],
  ["*/30 2 * * *", false],
  ["30 */2 * * *", false],
  ["30 1-5/2 * * *", false],
  ["5/15 2 * * *", false],
  ["0,30/10 2 * * *", false],
  ["30 2/3 * * *", false],
  ["* 30 2 * * *", false],
  ["*/10 30 2 * * *", false],
  ["@hourly", false],
])("%s is fixed-time: %s", (expression, fixed) => {
  expect(parseCron(expression).fixedTime).toBe(fixed);
});

test.each([
  ["@yearly", "0 0 1 1 *"],
  ["@annually", "0 0 1 1 *"],
  ["@MONTHLY", "0 0 1 * *"],
  ["@weekly", "0 0 * * SUN"],
  ["@daily", "0 0 * * *"],
  ["@midnight", "0 0 * * *"],
  ["@hourly", "0 * * * *"],
  ["0 0 * * 7", "0 0 * * 0"],
  ["0 0 * * FRI-SUN", "0 0 * * 0,5,6"],
  ["0 0 * * sun-tue", "0 0 * * 0-2"],
  ["5/15 * * * *", "5,20,35,50 * * * *"],
  ["0 0 ? * ?", "0 0 * * *"],
  ["0 0 ? * MON", "0 0 * * 1"],
  ["0 0 1 * ?", "0 0 1 * *"],
  ["0 5 4 * * *", "5 4 * * *"],
])("%s means %s", (one, other) => {
  expect(firings(one, "Europe/Rome", "2026-01-01T00:00:00", 12)).toEqual(
    firings(other, "Europe/Rome", "2026-01-01T00:00:00", 12),
  );
});

test("more expressions than are kept still answer the same", () => {
  const ask = (n: number) => nextFiring(parseCron(`${n % 60} ${Math.floor(n / 60)} * * *`), "UTC", 0);
  const first = Array.from({ length: KEPT_EXPRESSIONS * 2 }, (_, n) => ask(n));
  expect(Array.from({ length: KEPT_EXPRESSIONS * 2 }, (_, n) => ask(n))).toEqual(first);
  expect(parseCron("1 2 3 4 5")).toBe(parseCron("1 2 3 4 5"));
});

// --- Cases by number -----------------------------------------------------------------------------------------------------

test("B-041 a daily job fires once a day over both changes of the clock", () => {
  expect(firings("30 2 * * *", "Europe/Rome", "2026-10-24T12:00:00", 3)).toEqual([
    "2026-10-25T00:30:00",
    "2026-10-26T01:30:00",
    "2026-10-27T01:30:00",
  ]);
  expect(firings("30 2 * * *", "Europe/Rome", "2027-03-27T12:00:00", 3)).toEqual([
    "2027-03-28T01:00:00",
    "2027-03-29T00:30:00",
    "2027-03-30T00:30:00",
  ]);
  const cron = parseCron("30 2 * * *");
  expect(countFirings(cron, "Europe/Rome", utc("2026-01-01T00:00:00"), utc("2028-01-01T00:00:00"))).toBe(730);
});

test("B-043 two restricted day fields: either is enough; a star is not a full range", () => {
  const days = (expression: string, count: number) =>
    firings(expression, "UTC", "2026-01-01T00:00:00", count).map((at) => at.slice(5, 10));
  expect(days("0 0 1,15 * 5", 20)).toEqual(
    "01-02 01-09 01-15 01-16 01-23 01-30 02-01 02-06 02-13 02-15 02-20 02-27 03-01 03-06 03-13 03-15 03-20 03-27 04-01 04-03".split(
      " ",
    ),
  );
  expect(days("0 0 1-31 * 5", 3)).toEqual(["01-02", "01-03", "01-04"]);
  expect(days("0 0 * * 5", 3)).toEqual(["01-02", "01-09", "01-16"]);
  expect(days("0 0 */2 * 5", 5)).toEqual(["01-02", "01-03", "01-05", "01-07", "01-09"]);
  expect(cronInWords(parseCron("0 0 1,15 * 5"))).toBe(
    "at 00:00, on day 1 and 15 of the month or on Friday: either is enough",
  );
});

// --- The rows of the specification about the clock -----------------------------------------------------------------------

const SPRING = "2026-03-08T"; // New York: 02:00 EST is 03:00 EDT, at 07:00Z
const AUTUMN = "2026-11-01T"; // New York: 02:00 EDT is 01:00 EST, at 06:00Z
test.each([
  [
    "daily 02:30, spring day: once, at the end of the gap",
    "30 2 * * *",
    `${SPRING}05:00:00`,
    [`${SPRING}07:00:00`, "2026-03-09T06:30:00"],
  ],
  ["every minute across the gap", "* * * * *", `${SPRING}06:58:00`, [`${SPRING}06:59:00`, `${SPRING}07:00:00`]],
  [
    "every minute at 01:59 of the first pass",
    "* * * * *",
    `${AUTUMN}05:59:00`,
    [`${AUTUMN}06:00:00`, `${AUTUMN}06:01:00`],
  ],
  ["computed at 01:10 of the second pass", "* * * * *", `${AUTUMN}06:10:00`, [`${AUTUMN}06:11:00`]],
  [
    "daily 01:30, autumn day: the first pass",
    "30 1 * * *",
    `${AUTUMN}04:00:00`,
    [`${AUTUMN}05:30:00`, "2026-11-02T06:30:00"],
  ],
  [
    "daily 01:30 computed at 01:10 of the second pass: next day",
    "30 1 * * *",
    `${AUTUMN}06:10:00`,
    ["2026-11-02T06:30:00"],
  ],
  [
    "hourly from 01:30 of the first pass: the second 01:00 too",
    "0 * * * *",
    `${AUTUMN}05:30:00`,
    [`${AUTUMN}06:00:00`, `${AUTUMN}07:00:00`],
  ],
  [
    "several times in a gap: together",
    "0,20,40 2 * * *",
    `${SPRING}05:00:00`,
    [`${SPRING}07:00:00`, "2026-03-09T06:00:00"],
  ],
  [
    "a time in a gap and the gap's end: one",
    "30 2,3 * * *",
    `${SPRING}05:00:00`,
    [`${SPRING}07:00:00`, `${SPRING}07:30:00`],
  ],
  ["the gap's end itself: one", "0 2,3 * * *", `${SPRING}05:00:00`, [`${SPRING}07:00:00`, "2026-03-09T06:00:00"]],
  ["from the gap's end itself: not again", "30 2 * * *", `${SPRING}07:00:00`, ["2026-03-09T06:30:00"]],
  ["step in the gap: nothing", "*/15 2 * * *", `${SPRING}05:00:00`, ["2026-03-09T06:00:00"]],
  ["with seconds, in the gap", "15,45 30 2 * * *", `${SPRING}05:00:00`, [`${SPRING}07:00:00`, "2026-03-09T06:30:15"]],
])("%s", (_, expression, from, expected) => {
  expect(firings(expression, "America/New_York", from, expected.length)).toEqual(expected);
  const [first] = expected as [string];
  expect(lastFiring(parseCron(expression), "America/New_York", utc(first))).toBe(utc(first));
  expect(countFirings(parseCron(expression), "America/New_York", utc(from), utc(expected.at(-1) ?? ""))).toBe(
    expected.length,
  );
});

// --- The calendar ----------------------------------------------------------------------------------------------------------

test("rare dates are found, far ones in both directions", () => {
  expect(firings("0 0 29 2 *", "UTC", "2096-03-01T00:00:00", 2)).toEqual([
    "2104-02-29T00:00:00",
    "2108-02-29T00:00:00",
  ]);
  // Five Mondays in February, around a year that is no leap year.
  expect(firings("0 0 ? 2 1#5", "UTC", "2052-01-01T00:00:00", 3)).toEqual([
    "2072-02-29T00:00:00",
    "2112-02-29T00:00:00",
    "2140-02-29T00:00:00",
  ]);
  const cron = parseCron("0 0 ? 2 1#5");
  expect(lastFiring(cron, "Europe/Rome", utc("2112-02-28T00:00:00"))).toBe(utc("2072-02-28T23:00:00"));
  expect(countFirings(cron, "UTC", utc("2000-01-01T00:00:00"), utc("2400-01-01T00:00:00"))).toBe(15);
});

test("at the ends of the calendar there is nothing, and no error", () => {
  const cron = parseCron("* * * * *");
  expect(nextFiring(cron, "UTC", LAST_INSTANT)).toBeNull();
  expect(nextFiring(cron, "UTC", Number.POSITIVE_INFINITY)).toBeNull();
  expect(nextFiring(cron, "UTC", Number.NEGATIVE_INFINITY)).toBe(FIRST_INSTANT);
  expect(nextFiring(cron, "Asia/Tokyo", LAST_INSTANT - 30_000)).toBeNull();
  expect(lastFiring(cron, "UTC", FIRST_INSTANT - 1)).toBeNull();
  expect(lastFiring(parseCron("0 0 29 2 *"), "UTC", utc("1901-01-01T00:00:00"))).toBeNull();
  expect(nextFiring(parseCron("0 0 29 2 *"), "UTC", utc("9999-03-01T00:00:00"))).toBeNull();
});

// --- Properties ------------------------------------------------------------------------------------------------------------

/** A piece of an expression: its text, and which values it means, said again in other words. */
interface Piece {
  readonly text: string;
  readonly holds: (value: number) => boolean;
  /** A number, a range, or a list of them. */
  readonly plain: boolean;
}

function element(min: number, max: number, likely: readonly number[]): fc.Arbitrary<Piece> {
  const value = fc.oneof(fc.integer({ min, max }), fc.constantFrom(...likely));
  const step = fc.integer({ min: 1, max: max - min + 1 });
  const pair = fc.tuple(value, value).map(([a, b]) => [Math.min(a, b), Math.max(a, b)] as const);
  return fc.oneof(
    fc.constant({ text: "*", holds: () => true, plain: false }),
    step.map((s) => ({ text: `*/${s}`, holds: (v: number) => (v - min) % s === 0, plain: false })),
    value.map((n) => ({ text: `${n}`, holds: (v: number) => v === n, plain: true })),
    pair.map(([a, b]) => ({ text: `${a}-${b}`, holds: (v: number) => a <= v && v <= b, plain: true })),
    fc.tuple(pair, step).map(([[a, b], s]) => ({
      text: `${a}-${b}/${s}`,
      holds: (v: number) => a <= v && v <= b && (v - a) % s === 0,
      plain: false,
    })),
    fc
      .tuple(value, step)
      .map(([n, s]) => ({ text: `${n}/${s}`, holds: (v: number) => v >= n && (v - n) % s === 0, plain: false })),
  );
}

const list = (each: fc.Arbitrary<Piece>): fc.Arbitrary<Piece> =>
  fc.array(each, { minLength: 1, maxLength: 3 }).map((pieces) => ({
    text: pieces.map(({ text }) => text).join(","),
    holds: (value) => pieces.some(({ holds }) => holds(value)),
    plain: pieces.every(({ plain }) => plain),
  }));

const plainList = (min: number, max: number, likely: readonly number[]) =>
  list(element(min, max, likely).filter(({ plain }) => plain));

interface Local {
  readonly ms: number;
  readonly month: number;
  readonly day: number;
  readonly weekday: number;
  readonly lastDay: number;
}

/** A day field: text, and whether a local day matches. */
interface DayPiece {
  readonly text: string;
  readonly holds: (local: Local) => boolean;
}

const starOr = <T>(star: T, other: fc.Arbitrary<T>) =>
  fc.oneof({ weight: 3, arbitrary: fc.constant(star) }, { weight: 2, arbitrary: other });
const anyDay = (text: string): DayPiece => ({ text, holds: () => true });
const monthday: fc.Arbitrary<DayPiece> = starOr<DayPiece>(
  anyDay("*"),
  fc.oneof(
    fc.constant(anyDay("?")),
    fc.constant<DayPiece>({ text: "L", holds: (local) => local.day === local.lastDay }),
    list(element(1, 31, [28, 29, 30, 31])).map((piece) => ({
      text: piece.text,
      holds: (local: Local) => piece.holds(local.day),
    })),
  ),
);
const NAMES = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const weekday: fc.Arbitrary<DayPiece> = starOr<DayPiece>(
  anyDay("*"),
  fc.oneof(
    fc.constant(anyDay("?")),
    fc
      .constantFrom(...NAMES.keys())
      .map((n) => ({ text: NAMES[n] ?? "", holds: (local: Local) => local.weekday === n })),
    fc.integer({ min: 0, max: 7 }).map((n) => ({
      text: `${n}L`,
      holds: (local: Local) => local.weekday === n % 7 && local.day > local.lastDay - 7,
    })),
    fc.tuple(fc.integer({ min: 0, max: 7 }), fc.integer({ min: 1, max: 5 })).map(([n, k]) => ({
      text: `${n}#${k}`,
      holds: (local: Local) => local.weekday === n % 7 && local.day > 7 * (k - 1) && local.day <= 7 * k,
    })),
    // Sunday is 0 and 7: it matches when either does.
    list(element(0, 7, [0, 7]))
      .filter(({ text }) => !/\/8/.test(text))
      .map((piece) => ({
        text: piece.text,
        holds: (local: Local) => piece.holds(local.weekday) || (local.weekday === 0 && piece.holds(7)),
      })),
  ),
);
const month = starOr<Piece>({ text: "*", holds: () => true, plain: false }, list(element(1, 12, [2, 3, 10])));

interface Made {
  readonly expression: string;
  readonly fixedTime: boolean;
  readonly holds: (local: Local) => boolean;
}

function made(
  second: fc.Arbitrary<Piece>,
  minute: fc.Arbitrary<Piece>,
  hour: fc.Arbitrary<Piece>,
  withSeconds: boolean,
): fc.Arbitrary<Made> {
  return fc.tuple(second, minute, hour, monthday, month, weekday).map(([s, m, h, dom, mon, dow]) => {
    const restricted = (text: string) => text !== "*" && text !== "?";
    return {
      expression: `${withSeconds ? `${s.text} ` : ""}${m.text} ${h.text} ${dom.text} ${mon.text} ${dow.text}`,
      fixedTime: s.plain && m.plain && h.plain,
      holds: (local) => {
        const of = (unitMs: number, size: number) => Math.floor(local.ms / unitMs) % size;
        if (
          !s.holds(of(1_000, 60)) ||
          !m.holds(of(60_000, 60)) ||
          !h.holds(of(3_600_000, 24)) ||
          !mon.holds(local.month)
        )
          return false;
        return restricted(dom.text) && restricted(dow.text)
          ? dom.holds(local) || dow.holds(local)
          : dom.holds(local) && dow.holds(local);
      },
    };
  });
}

const zero: Piece = { text: "0", holds: (value) => value === 0, plain: true };
const minutes = made(
  fc.constant(zero),
  fc.oneof(list(element(0, 59, [0, 15, 30, 45, 59])), plainList(0, 59, [0, 15, 30, 45, 59])),
  fc.oneof(list(element(0, 23, [0, 1, 2, 3])), plainList(0, 23, [0, 1, 2, 3, 23])),
  false,
);
const seconds = made(
  fc.oneof(list(element(0, 59, [0, 30, 59])), plainList(0, 59, [0, 30, 59])),
  fc.oneof(list(element(0, 59, [0, 30, 59])), plainList(0, 59, [0, 29, 30, 59])),
  fc.oneof(list(element(0, 23, [0, 1, 2, 3])), plainList(0, 23, [0, 1, 2, 3, 23])),
  true,
);

/** The real instants of a stretch of time at a fixed step, each with what the wall clock shows. */
interface Walk {
  readonly zone: string;
  readonly stepMs: number;
  readonly instants: readonly { readonly at: number; readonly local: Local }[];
}

const localOf = (ms: number): Local => {
  const date = new Date(ms);
  return {
    ms,
    month: date.getUTCMonth() + 1,
    day: date.getUTCDate(),
    weekday: date.getUTCDay(),
    lastDay: new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 0)).getUTCDate(),
  };
};

function walk(zone: string, around: string, hours: number, stepMs: number): Walk {
  const formatter = new Intl.DateTimeFormat("sv-SE", { timeZone: zone, dateStyle: "short", timeStyle: "medium" });
  const from = utc(around) - hours * 3_600_000;
  const instants = Array.from({ length: (2 * hours * 3_600_000) / stepMs + 1 }, (_, index) => {
    const at = from + index * stepMs;
    return { at, local: localOf(Date.parse(`${formatter.format(at).replace(" ", "T")}Z`)) };
  });
  return { zone, stepMs, instants };
}

/** The rule's words, minute by minute: what matches now fires, unless a fixed time shows again; a fixed time that was jumped over fires now. */
function walkFirings({ holds, fixedTime }: Made, { instants, stepMs }: Walk): number[] {
  const shown = new Set<number>();
  const found: number[] = [];
  for (const [index, { at, local }] of instants.entries()) {
    let fires = holds(local) && !(fixedTime && shown.has(local.ms));
    const before = instants[index - 1]?.local.ms;
    if (fixedTime && before !== undefined)
      for (let skipped = before + stepMs; skipped < local.ms; skipped += stepMs) fires ||= holds(localOf(skipped));
    if (fires) found.push(at);
    shown.add(local.ms);
  }
  return found;
}

/** Null for a date that never comes; nothing else that is made here may be refused. */
function parsed(expression: string): Cron | null {
  try {
    return parseCron(expression);
  } catch (error) {
    expect(String(error)).toContain("never fires");
    return null;
  }
}

function agrees(one: Made, over: Walk, low: number, high: number): void {
  const cron = parsed(one.expression);
  if (cron === null) return;
  expect(cron.fixedTime).toBe(one.fixedTime);
  // The walk's first half day only shows times, so that it knows what comes a second time.
  const from = Math.floor(over.instants.length * (0.25 + 0.4 * low));
  const until = Math.min(over.instants.length - 1, from + Math.floor(over.instants.length * 0.35 * high));
  const [after, last] = [over.instants[from]?.at ?? 0, over.instants[until]?.at ?? 0];
  const expected = walkFirings(one, over).filter((at) => at > after && at <= last);

  const found: number[] = [];
  for (let at = nextFiring(cron, over.zone, after); at !== null && at <= last; at = nextFiring(cron, over.zone, at)) {
    expect(at).toBeGreaterThan(found.at(-1) ?? after);
    found.push(at);
  }
  const back: number[] = [];
  for (let at = lastFiring(cron, over.zone, last); at !== null && at > after; at = lastFiring(cron, over.zone, at - 1))
    back.push(at);
  const context = `${one.expression} ${over.zone} ${new Date(after).toISOString()} ${new Date(last).toISOString()}`;
  expect(found, context).toEqual(expected);
  expect(back.reverse(), context).toEqual(expected);
  expect(countFirings(cron, over.zone, after, last), context).toBe(expected.length);
}

const unit = fc.double({ min: 0, max: 1, noNaN: true });

test("firings by the minute are those of a walk over the minutes, in both directions and in number", () => {
  const walks = [
    walk("Europe/Rome", "2026-03-29T01:00:00", 60, 60_000),
    walk("Europe/Rome", "2026-10-25T01:00:00", 60, 60_000),
    walk("America/New_York", "2028-11-05T06:00:00", 60, 60_000),
    walk("Australia/Lord_Howe", "2026-10-03T15:30:00", 60, 60_000),
    walk("Australia/Lord_Howe", "2026-04-04T15:00:00", 60, 60_000),
    walk("America/Santiago", "2026-09-06T04:00:00", 60, 60_000),
    walk("America/Santiago", "2026-04-05T03:00:00", 60, 60_000),
    walk("Africa/Cairo", "2026-10-29T21:00:00", 60, 60_000),
    walk("Africa/Casablanca", "2026-02-15T02:00:00", 60, 60_000),
    walk("Antarctica/Troll", "2026-10-25T01:00:00", 60, 60_000),
    walk("Pacific/Apia", "2011-12-30T10:00:00", 84, 60_000),
    walk("Pacific/Kwajalein", "1993-08-21T12:00:00", 84, 60_000),
    walk("America/St_Johns", "2011-11-06T02:31:00", 60, 60_000),
    walk("Asia/Pyongyang", "2018-05-04T15:00:00", 60, 60_000),
    walk("Asia/Kathmandu", "2028-02-29T00:00:00", 60, 60_000),
    walk("UTC", "2026-12-31T12:00:00", 60, 60_000),
  ];
  fc.assert(fc.property(minutes, fc.constantFrom(...walks), unit, unit, agrees), { numRuns: 1_500 });
}, 180_000);

test("firings by the second are those of a walk over the seconds", () => {
  const walks = [
    walk("Europe/Rome", "2026-03-29T01:00:00", 4, 1_000),
    walk("Europe/Rome", "2026-10-25T01:00:00", 4, 1_000),
    walk("Australia/Lord_Howe", "2026-04-04T15:00:00", 4, 1_000),
    walk("America/Santiago", "2026-09-06T04:00:00", 4, 1_000),
    walk("Africa/Cairo", "2026-10-29T21:00:00", 4, 1_000),
  ];
  fc.assert(fc.property(seconds, fc.constantFrom(...walks), unit, unit, agrees), { numRuns: 300 });
}, 180_000);

test("over years, firings grow, are strictly after, and are counted", () => {
  const zones = [
    "Europe/Rome",
    "America/New_York",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Asia/Gaza",
    "UTC",
  ];
  const moment = fc.integer({ min: utc("1995-01-01T00:00:00"), max: utc("2045-01-01T00:00:00") });
  fc.assert(
    fc.property(minutes, fc.constantFrom(...zones), moment, ({ expression }, zone, after) => {
      const cron = parsed(expression);
      if (cron === null) return;
      const found = [after];
      while (found.length < 200) {
        const at = nextFiring(cron, zone, found.at(-1) ?? 0);
        if (at === null) break;
        expect(at).toBeGreaterThan(found.at(-1) ?? 0);
        expect(at % 1_000).toBe(0);
        expect(nextFiring(cron, zone, at - 1)).toBe(at);
        expect(lastFiring(cron, zone, at)).toBe(at);
        found.push(at);
      }
      expect(countFirings(cron, zone, after, found.at(-1) ?? 0)).toBe(found.length - 1);
      expect(countFirings(cron, zone, after, (found.at(-1) ?? 0) - 1)).toBe(Math.max(0, found.length - 2));
    }),
    { numRuns: 300 },
  );
});

test("counts add up, and every real minute of a year is one, whatever the clock does", () => {
  const [from, until] = [utc("2026-01-01T00:00:00"), utc("2027-01-01T00:00:00")];
  for (const zone of Intl.supportedValuesOf("timeZone")) {
    expect(countFirings(parseCron("* * * * *"), zone, from, until), zone).toBe(525_600);
    // Once each local day, also when the day has 23 or 25 hours.
    expect(countFirings(parseCron("30 2 * * *"), zone, from, until), zone).toBe(365);
  }
  const cron = parseCron("*/7 1-9/2 * * *");
  const middle = utc("2026-10-25T00:30:00");
  const count = (low: number, high: number) => countFirings(cron, "Europe/Rome", low, high);
  expect(count(from, middle) + count(middle, until)).toBe(count(from, until));
  expect(count(until, from)).toBe(0);
});

test("a change of the clock where two blocks of the calendar meet is one change", () => {
  // In these years Chisinau's clock goes back at the very instant at which a block of zone.ts begins.
  for (const year of [2224, 2231, 2238, 2245]) {
    const [from, until] = [utc(`${year}-01-01T00:00:00`), utc(`${year + 1}-01-01T00:00:00`)];
    const days = (until - from) / 86_400_000;
    expect(countFirings(parseCron("30 2 * * *"), "Europe/Chisinau", from, until)).toBe(days);
    expect(countFirings(parseCron("*/10 * * * *"), "Europe/Chisinau", from, until)).toBe(days * 144);
  }
});

test("a range of any length is counted without walking it", () => {
  const seconds = parseCron("* * * * * *");
  expect(countFirings(seconds, "UTC", utc("2000-01-01T00:00:00"), utc("2400-01-01T00:00:00"))).toBe(146_097 * 86_400);
});

test("days and times agree with croner where both read the expression", () => {
  const common = minutes.filter(({ expression }) => !/\d\/\d|\?/.test(expression.replace(/-\d+\//g, "")));
  let compared = 0;
  fc.assert(
    fc.property(
      common,
      fc.integer({ min: utc("1999-01-01T00:00:00"), max: utc("2038-01-01T00:00:00") }),
      ({ expression }, after) => {
        let other: Croner;
        try {
          other = new Croner(expression, { paused: true, timezone: "UTC" });
          parseCron(expression);
        } catch {
          // One of the two does not read it: nothing to compare.
          return;
        }
        const expected = other.nextRuns(3, new Date(after)).map((date) => date.getTime());
        if (expected.length < 3) return;
        const found = firings(expression, "UTC", new Date(after).toISOString().slice(0, 23), 3).map(utc);
        expect(found, expression).toEqual(expected);
        compared++;
      },
    ),
    { numRuns: 300 },
  );
  expect(compared).toBeGreaterThan(100);
});

// --- Words -----------------------------------------------------------------------------------------------------------------

test.each([
  ["30 2 * * *", "at 02:30, every day"],
  ["0,30 9,17 * * MON-FRI", "at 09:00, 09:30, 17:00 and 17:30, on Monday to Friday"],
  ["*/15 * * * *", "every 15 minutes, every day"],
  ["*/7 * * * *", "every 7 minutes, counted anew each hour, every day"],
  ["* * * * *", "every minute, every day"],
  ["* * * * * *", "every second, every day"],
  ["*/10 30 2 * * *", "every 10 seconds, at minute 30, when the hour is 2, every day"],
  ["5/15 8-18/5 L * *", "at minute 5, 20, 35 and 50, when the hour is 8, 13 and 18, on the last day of the month"],
  ["@hourly", "at minute 0 of every hour, every day"],
  ["15 30 9 * * *", "at 09:30:15, every day"],
  ["0 0 15,L * *", "at 00:00, on day 15 and the last day of the month"],
  ["0 0 1 1,7 *", "at 00:00, on day 1 of the month in January and July"],
  ["0 0 * * 5L,1#2", "at 00:00, on the last Friday and Monday number 2"],
  ["0 0 * 6-8 *", "at 00:00, every day in June to August"],
  ["59 23 31 12 ?", "at 23:59, on day 31 of the month in December"],
])("%s in words", (expression, words) => {
  expect(cronInWords(parseCron(expression))).toBe(words);
});

test("an unknown zone is refused, not read as UTC", () => {
  expect(() => nextFiring(parseCron("* * * * *"), "Mars/Olympus", 0)).toThrow(
    expect.objectContaining({ code: "unknown_zone" }),
  );
  expect(offsetAt("UTC", 0)).toBe(0);
});
