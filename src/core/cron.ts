/** Cron expressions: read, in words, and as exact arithmetic on local time and on the instants of a zone. */
import { AppError, ensure } from "./errors.ts";
import type { Instant } from "./ports.ts";
import { FIRST_INSTANT, LAST_INSTANT, stretchAt } from "./zone.ts";

/** Long enough for every field listed value by value. */
export const MAX_EXPRESSION_LENGTH = 1_000;
/** Parsed expressions that are remembered, least recently used out first. */
export const KEPT_EXPRESSIONS = 256;
/** Parsed fields that are remembered, for each of the six. */
const KEPT_FIELDS = 256;

const DAY_MS = 86_400_000;
const DAY_S = 86_400;
/** The Gregorian calendar repeats after 400 years: a date that does not come within them never comes. */
const CALENDAR_MONTHS = 4_800;

// --- Reading -----------------------------------------------------------------------------------------------------------

type FieldName = "second" | "minute" | "hour" | "day-of-month" | "month" | "day-of-week";

interface FieldRule {
  readonly name: FieldName;
  readonly min: number;
  readonly max: number;
  readonly names: readonly string[];
}

const MONTHS = "January February March April May June July August September October November December".split(" ");
const WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const short = (names: readonly string[]) => names.map((name) => name.slice(0, 3).toUpperCase());

const FIELDS: readonly FieldRule[] = [
  { name: "second", min: 0, max: 59, names: [] },
  { name: "minute", min: 0, max: 59, names: [] },
  { name: "hour", min: 0, max: 23, names: [] },
  { name: "day-of-month", min: 1, max: 31, names: [] },
  { name: "month", min: 1, max: 12, names: short(MONTHS) },
  { name: "day-of-week", min: 0, max: 7, names: short(WEEKDAYS) },
];

const MACROS = new Map([
  ["@yearly", "0 0 1 1 *"],
  ["@annually", "0 0 1 1 *"],
  ["@monthly", "0 0 1 * *"],
  ["@weekly", "0 0 * * 0"],
  ["@daily", "0 0 * * *"],
  ["@midnight", "0 0 * * *"],
  ["@hourly", "0 * * * *"],
]);

/** One element of a field's list. `every` is `*` or `?`; `from` is `n/s`, open to the field's end. */
type Element =
  | { readonly kind: "every"; readonly step: number | null }
  | { readonly kind: "value"; readonly value: number }
  | { readonly kind: "range"; readonly low: number; readonly high: number; readonly step: number | null }
  | { readonly kind: "from"; readonly low: number; readonly step: number }
  | { readonly kind: "last_day" }
  | { readonly kind: "last_weekday"; readonly weekday: number }
  | { readonly kind: "nth_weekday"; readonly weekday: number; readonly nth: number };

/** A set of the numbers below a bound, ready for steps and counts. */
interface Ring {
  /** Smallest member at or above the index; the bound when there is none. */
  readonly next: Int8Array;
  /** Largest member at or below the index; -1 when there is none. */
  readonly previous: Int8Array;
  /** How many members lie below the index, 0 to the bound. */
  readonly below: Int8Array;
  readonly bound: number;
}

interface Field {
  readonly rule: FieldRule;
  readonly text: string;
  readonly elements: readonly Element[];
  /** Members of 0..max, by index. */
  readonly has: readonly boolean[];
  readonly ring: Ring;
}

/** A parsed expression. Only functions of this file look inside. */
export interface Cron {
  /** As written, with single spaces. */
  readonly expression: string;
  /** Hour and minute (and second) hold only numbers, lists and ranges without a step: fires by the clock on the wall, once a day each. */
  readonly fixedTime: boolean;
  readonly fields: readonly Field[];
  readonly seconds: Ring;
  readonly minutes: Ring;
  readonly hours: Ring;
  /** Firings of a day that matches. */
  readonly perDay: number;
  /** Days of a month as bits, by length of the month and weekday of its first; -1 until computed. */
  readonly monthDays: Int32Array;
}

function refuse(message: string, hint: string, path: string | undefined): never {
  throw new AppError("invalid", "bad_cron", message, { hint, ...(path === undefined ? {} : { path }) });
}

function readField(rule: FieldRule, text: string, path: string | undefined): Field {
  const has = Array.from({ length: rule.max + 1 }, () => false);
  const size = rule.name === "day-of-week" ? 7 : rule.max - rule.min + 1;
  const wrong = (what: string, hint: string) =>
    refuse(`${rule.name} field ${JSON.stringify(text)}: ${what}`, hint, path);
  const bounds = `${rule.min} to ${rule.max}${rule.names.length > 0 ? `, or a name such as ${rule.names[1]}` : ""}`;

  const read = (word: string): number => {
    const named = rule.names.indexOf(word.toUpperCase());
    if (named >= 0) return named + rule.min;
    if (!/^\d+$/.test(word))
      return wrong(`${JSON.stringify(word)} is no value of this field`, `Use a number from ${bounds}.`);
    const value = Number(word);
    if (value < rule.min || value > rule.max) wrong(`${word} is out of range`, `Use a number from ${bounds}.`);
    return value;
  };
  const readStep = (word: string): number => {
    if (!/^\d+$/.test(word) || Number(word) === 0)
      wrong(`the step ${JSON.stringify(word)} is not a positive number`, "Write a step as in */15.");
    if (Number(word) > size)
      wrong(`the step ${word} is larger than the field`, "For a period that the field cannot hold use an interval.");
    return Number(word);
  };
  const fill = (low: number, high: number, step: number) => {
    for (let value = low; value <= high; value += step) has[value] = true;
  };

  const readElement = (element: string): Element => {
    if (element === "") return wrong("an element of the list is empty", "Remove the extra comma.");
    const [base = "", stepText, ...more] = element.split("/");
    if (more.length > 0) return wrong(`${JSON.stringify(element)} has two steps`, "Write one step as in */15.");
    const step = stepText === undefined ? null : readStep(stepText);
    if (base === "*" || (base === "?" && element === text && rule.name.startsWith("day"))) {
      if (base === "?" && step !== null) return wrong("? takes no step", "Write */STEP.");
      fill(rule.min, rule.max, step ?? 1);
      return { kind: "every", step };
    }
    if (rule.name === "day-of-month" && /^L$/i.test(element)) return { kind: "last_day" };
    if (rule.name === "day-of-week") {
      const last = /^(\w+)L$/i.exec(element);
      if (last?.[1] !== undefined) return { kind: "last_weekday", weekday: read(last[1]) % 7 };
      const nth = /^(\w+)#(\w+)$/.exec(element);
      if (nth?.[1] !== undefined) {
        if (!/^[1-5]$/.test(nth[2] ?? ""))
          return wrong(`${JSON.stringify(element)} has no such week`, "Write 1#1 to 1#5.");
        return { kind: "nth_weekday", weekday: read(nth[1]) % 7, nth: Number(nth[2]) };
      }
    }
    if (base.includes("?"))
      return wrong("? is not understood", "? stands alone in one of the day fields; elsewhere write *.");
    if (/[LWH#]/i.test(base) && !rule.names.some((name) => base.toUpperCase().includes(name)))
      return wrong(
        `${JSON.stringify(element)} is not understood`,
        "L is the last day in day-of-month, 5L the last Friday and 1#2 the second Monday in day-of-week; W, H and L-n do not exist here.",
      );
    const [lowText = "", highText, ...rest] = base.split("-");
    if (rest.length > 0 || (highText !== undefined && (lowText === "" || highText === "")))
      return wrong(`${JSON.stringify(base)} is not a range`, "Write a range as in 1-5.");
    const low = read(lowText);
    if (highText === undefined) {
      if (step === null) {
        has[low] = true;
        return { kind: "value", value: low };
      }
      fill(low, rule.max, step);
      return { kind: "from", low, step };
    }
    // Sunday ends a week as well as it begins one: FRI-SUN is 5-7.
    const high = highText.toUpperCase() === "SUN" && low > 0 ? 7 : read(highText);
    if (high < low) wrong(`the range ${base} is reversed`, `Write the smaller value first, or two ranges in a list.`);
    fill(low, high, step ?? 1);
    return { kind: "range", low, high, step };
  };

  const elements = text.split(",").map(readElement);
  return { rule, text, elements, has, ring: makeRing(has, rule.max + 1) };
}

function makeRing(has: readonly boolean[], bound: number): Ring {
  const next = new Int8Array(bound + 1).fill(bound);
  const previous = new Int8Array(bound + 1).fill(-1);
  const below = new Int8Array(bound + 1);
  for (let i = bound - 1; i >= 0; i--) next[i] = has[i] ? i : (next[i + 1] as number);
  for (let i = 0; i < bound; i++) {
    previous[i] = has[i] ? i : i > 0 ? (previous[i - 1] as number) : -1;
    below[i + 1] = (below[i] as number) + (has[i] ? 1 : 0);
  }
  previous[bound] = previous[bound - 1] as number;
  return { next, previous, below, bound };
}

const isFixed = (field: Field) =>
  field.elements.every((element) => element.kind === "value" || (element.kind === "range" && element.step === null));

/** In 400 years each month begins on each weekday, February in both its lengths: so this decides for all time. */
const comes = (cron: Cron) =>
  [2023, 2024].some((year) =>
    MONTHS.some((_, index) =>
      WEEKDAYS.some(
        (_, first) => cron.fields[4]?.has[index + 1] && daysOf(cron, lengthOf(year, index + 1), first) !== 0,
      ),
    ),
  );

function read(text: string, path: string | undefined): Cron {
  const expression = text
    .trim()
    .split(/[ \t]+/)
    .join(" ");
  const syntax = "Write five fields (minute hour day-of-month month day-of-week), or six with seconds first.";
  if (expression === "") refuse("the cron expression is empty", syntax, path);
  if (text.length > MAX_EXPRESSION_LENGTH)
    refuse(`the cron expression is longer than ${MAX_EXPRESSION_LENGTH} characters`, syntax, path);
  if (expression.startsWith("@") && !MACROS.has(expression.toLowerCase()))
    refuse(`${JSON.stringify(expression)} is not understood`, `Use one of ${[...MACROS.keys()].join(" ")}.`, path);

  const words = (MACROS.get(expression.toLowerCase()) ?? expression).split(" ");
  if (words.length !== 5 && words.length !== 6)
    refuse(
      `the cron expression ${JSON.stringify(expression)} has ${words.length} field${words.length === 1 ? "" : "s"}`,
      syntax,
      path,
    );
  const fields = (words.length === 5 ? ["0", ...words] : words).map((word, index) =>
    fieldOf(FIELDS[index] as FieldRule, word, path),
  );
  const [second, minute, hour] = fields as [Field, Field, Field];
  const [seconds, minutes, hours] = [second.ring, minute.ring, hour.ring];
  const cron: Cron = {
    expression,
    fixedTime: isFixed(second) && isFixed(minute) && isFixed(hour),
    fields,
    seconds,
    minutes,
    hours,
    perDay: (seconds.below[60] as number) * (minutes.below[60] as number) * (hours.below[24] as number),
    monthDays: new Int32Array(28).fill(-1),
  };
  if (!comes(cron))
    refuse(
      `the cron expression ${JSON.stringify(expression)} never fires: day-of-month ${JSON.stringify(fields[3]?.text)} does not come in month ${JSON.stringify(fields[4]?.text)}`,
      "Choose a day that the month has.",
      path,
    );
  return cron;
}

/** Adds to a bounded map; the oldest entry leaves. */
function keep<V>(map: Map<string, V>, key: string, value: V, limit: number): V {
  if (map.size >= limit) for (const oldest of map.keys()) if (map.delete(oldest)) break;
  map.set(key, value);
  return value;
}

const keptFields = new Map(FIELDS.map((rule) => [rule, new Map<string, Field>()]));

/** Ten thousand loops hold far fewer fields than expressions: what costs in reading is done once for each. */
function fieldOf(rule: FieldRule, text: string, path: string | undefined): Field {
  const known = keptFields.get(rule) as Map<string, Field>;
  return known.get(text) ?? keep(known, text, readField(rule, text, path), KEPT_FIELDS);
}

const kept = new Map<string, Cron>();

/**
 * Reads an expression of 5 fields, 6 with seconds first, or `@daily` and its kin. Cached.
 * Errors: AppError `bad_cron`, naming the field and its text.
 * @param path where the text stands in the input, for the error
 */
export function parseCron(text: string, path?: string): Cron {
  const known = kept.get(text);
  if (known !== undefined) {
    kept.delete(text);
    kept.set(text, known);
    return known;
  }
  return keep(kept, text, read(text, path), KEPT_EXPRESSIONS);
}

// --- Days --------------------------------------------------------------------------------------------------------------

/** Days of a month of the Gregorian calendar; `month` from 1. */
function lengthOf(year: number, month: number): number {
  if (month === 2) return year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0) ? 29 : 28;
  return month === 4 || month === 6 || month === 9 || month === 11 ? 30 : 31;
}

/** The matching days of a month, day 1 in the lowest bit, whatever the month field says. */
function daysOf(cron: Cron, length: number, firstWeekday: number): number {
  const slot = (length - 28) * 7 + firstWeekday;
  const known = cron.monthDays[slot] as number;
  if (known >= 0) return known;
  const [, , , monthDay, , weekDay] = cron.fields as [Field, Field, Field, Field, Field, Field];
  const restricted = (field: Field) => field.text !== "*" && field.text !== "?";
  let days = 0;
  for (let day = 1; day <= length; day++) {
    const weekday = (firstWeekday + day - 1) % 7;
    const byMonthDay =
      monthDay.has[day] || (day === length && monthDay.elements.some(({ kind }) => kind === "last_day"));
    const byWeekDay =
      weekDay.has[weekday] ||
      (weekday === 0 && weekDay.has[7]) ||
      weekDay.elements.some(
        (element) =>
          (element.kind === "last_weekday" && element.weekday === weekday && day > length - 7) ||
          (element.kind === "nth_weekday" && element.weekday === weekday && Math.ceil(day / 7) === element.nth),
      );
    const matches = restricted(monthDay) && restricted(weekDay) ? byMonthDay || byWeekDay : byMonthDay && byWeekDay;
    if (matches) days |= 1 << (day - 1);
  }
  cron.monthDays[slot] = days;
  return days;
}

/** A month of the calendar on its way forward or back. */
interface Month {
  year: number;
  month: number;
  length: number;
  /** Day number of its first day. */
  first: number;
}

function monthOf(day: number): Month {
  const date = new Date(day * DAY_MS);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth() + 1];
  return { year, month, length: lengthOf(year, month), first: day - date.getUTCDate() + 1 };
}

function toNextMonth(at: Month): void {
  at.first += at.length;
  at.month = at.month === 12 ? 1 : at.month + 1;
  if (at.month === 1) at.year++;
  at.length = lengthOf(at.year, at.month);
}

function toPreviousMonth(at: Month): void {
  at.month = at.month === 1 ? 12 : at.month - 1;
  if (at.month === 12) at.year--;
  at.length = lengthOf(at.year, at.month);
  at.first -= at.length;
}

const daysIn = (cron: Cron, at: Month): number =>
  (cron.fields[4] as Field).has[at.month] ? daysOf(cron, at.length, (((at.first + 4) % 7) + 7) % 7) : 0;

/** The first matching day at or after `day`. */
function nextDay(cron: Cron, day: number): number {
  const at = monthOf(day);
  let from = day - at.first;
  for (let month = 0; month <= CALENDAR_MONTHS; month++) {
    const rest = daysIn(cron, at) & (-1 << from);
    if (rest !== 0) return at.first + 31 - Math.clz32(rest & -rest);
    from = 0;
    toNextMonth(at);
  }
  ensure(false, `a date of ${cron.expression} comes within 400 years`);
}

/** The last matching day at or before `day`. */
function previousDay(cron: Cron, day: number): number {
  const at = monthOf(day);
  let until = day - at.first;
  for (let month = 0; month <= CALENDAR_MONTHS; month++) {
    const rest = daysIn(cron, at) & (-1 >>> (31 - until));
    if (rest !== 0) return at.first + 31 - Math.clz32(rest);
    toPreviousMonth(at);
    until = at.length - 1;
  }
  ensure(false, `a date of ${cron.expression} came within 400 years`);
}

function ones(bits: number): number {
  let rest = bits - ((bits >>> 1) & 0x55555555);
  rest = (rest & 0x33333333) + ((rest >>> 2) & 0x33333333);
  return (((rest + (rest >>> 4)) & 0x0f0f0f0f) * 0x01010101) >>> 24;
}

/** How many days of [low, high) match. */
function countDays(cron: Cron, low: number, high: number): number {
  let count = 0;
  if (low >= high) return 0;
  for (const at = monthOf(low); at.first < high; toNextMonth(at)) {
    let days = daysIn(cron, at);
    if (at.first < low) days &= -1 << (low - at.first);
    if (at.first + at.length > high) days &= ~(-1 << (high - at.first));
    count += ones(days);
  }
  return count;
}

function dayMatches(cron: Cron, day: number): boolean {
  const at = monthOf(day);
  return (daysIn(cron, at) & (1 << (day - at.first))) !== 0;
}

// --- Times of a day, in seconds ----------------------------------------------------------------------------------------

/** The first match at or after that second of a matching day; -1 when the day has no more. */
function firstInDay({ hours, minutes, seconds }: Cron, from: number): number {
  const [h, m, s] = [Math.floor(from / 3_600), Math.floor(from / 60) % 60, from % 60];
  const minMinute = minutes.next[0] as number;
  const minSecond = seconds.next[0] as number;
  const hour = hours.next[h] as number;
  if (hour === hours.bound) return -1;
  if (hour > h) return hour * 3_600 + minMinute * 60 + minSecond;
  const second = minutes.next[m] === m ? (seconds.next[s] as number) : seconds.bound;
  if (second < seconds.bound) return h * 3_600 + m * 60 + second;
  const minute = minutes.next[m + 1] as number;
  if (minute < minutes.bound) return h * 3_600 + minute * 60 + minSecond;
  const later = hours.next[h + 1] as number;
  return later === hours.bound ? -1 : later * 3_600 + minMinute * 60 + minSecond;
}

/** The last match at or before that second of a matching day; -1 when there is none. */
function lastInDay({ hours, minutes, seconds }: Cron, until: number): number {
  const [h, m, s] = [Math.floor(until / 3_600), Math.floor(until / 60) % 60, until % 60];
  const maxMinute = minutes.previous[59] as number;
  const maxSecond = seconds.previous[59] as number;
  const hour = hours.previous[h] as number;
  if (hour < 0) return -1;
  if (hour < h) return hour * 3_600 + maxMinute * 60 + maxSecond;
  const second = minutes.previous[m] === m ? (seconds.previous[s] as number) : -1;
  if (second >= 0) return h * 3_600 + m * 60 + second;
  const minute = m > 0 ? (minutes.previous[m - 1] as number) : -1;
  if (minute >= 0) return h * 3_600 + minute * 60 + maxSecond;
  const earlier = h > 0 ? (hours.previous[h - 1] as number) : -1;
  return earlier < 0 ? -1 : earlier * 3_600 + maxMinute * 60 + maxSecond;
}

/** How many matches of a matching day lie before that second. */
function countInDay({ hours, minutes, seconds }: Cron, before: number): number {
  const [h, m, s] = [Math.floor(before / 3_600), Math.floor(before / 60) % 60, before % 60];
  const perMinute = seconds.below[60] as number;
  const inHour = (minutes.below[m] as number) * perMinute + (minutes.next[m] === m ? (seconds.below[s] as number) : 0);
  return (hours.below[h] as number) * (minutes.below[60] as number) * perMinute + (hours.next[h] === h ? inHour : 0);
}

// --- Local time --------------------------------------------------------------------------------------------------------

/** The first matching local time at or after this one (both as if UTC). */
function firstLocal(cron: Cron, localMs: number): number {
  const from = Math.ceil(localMs / 1_000);
  let day = Math.floor(from / DAY_S);
  if (dayMatches(cron, day)) {
    const second = firstInDay(cron, from - day * DAY_S);
    if (second >= 0) return (day * DAY_S + second) * 1_000;
  }
  day = nextDay(cron, day + 1);
  return (day * DAY_S + firstInDay(cron, 0)) * 1_000;
}

/** The last matching local time at or before this one (both as if UTC). */
function lastLocal(cron: Cron, localMs: number): number {
  const until = Math.floor(localMs / 1_000);
  let day = Math.floor(until / DAY_S);
  if (dayMatches(cron, day)) {
    const second = lastInDay(cron, until - day * DAY_S);
    if (second >= 0) return (day * DAY_S + second) * 1_000;
  }
  day = previousDay(cron, day - 1);
  return (day * DAY_S + lastInDay(cron, DAY_S - 1)) * 1_000;
}

/** How many matching local times lie in [lowMs, highMs), both as if UTC, whatever a zone does with them. */
export function countLocal(cron: Cron, lowMs: number, highMs: number): number {
  const [low, high] = [Math.ceil(lowMs / 1_000), Math.ceil(highMs / 1_000)];
  if (low >= high) return 0;
  const [lowDay, highDay] = [Math.floor(low / DAY_S), Math.floor(high / DAY_S)];
  const before = dayMatches(cron, lowDay) ? countInDay(cron, low - lowDay * DAY_S) : 0;
  const within = dayMatches(cron, highDay) ? countInDay(cron, high - highDay * DAY_S) : 0;
  return countDays(cron, lowDay, highDay) * cron.perDay - before + within;
}

// --- Instants in a zone ------------------------------------------------------------------------------------------------

// Two clocks never differ by more than a day and some hours: what lies three days off in local time is off in real time too.
const APART_MS = 3 * DAY_MS;
const NEAR_MS = 2 * DAY_MS;

/**
 * The first instant strictly after `after` at which the expression fires in the zone; null beyond the year 9999.
 * A fixed-time expression fires at each of its local times once: those inside a gap together at the gap's end, those of a
 * repeated hour in its first pass. Others fire at each real instant whose local time matches.
 */
export function nextFiring(cron: Cron, zone: string, after: Instant): Instant | null {
  let from = Math.max(Math.floor(after) + 1, FIRST_INSTANT);
  while (from <= LAST_INSTANT) {
    const { startAt, endAt, offsetMs, gapMs, repeatedUntil } = stretchAt(zone, from);
    if (
      cron.fixedTime &&
      gapMs > 0 &&
      from === startAt &&
      firstLocal(cron, startAt + offsetMs - gapMs) < startAt + offsetMs
    )
      return startAt;
    const low = cron.fixedTime ? Math.max(from, repeatedUntil) : from;
    const at = firstLocal(cron, low + offsetMs) - offsetMs;
    if (at < endAt) return at <= LAST_INSTANT ? at : null;
    const far = firstLocal(cron, endAt + offsetMs - NEAR_MS);
    from = Math.max(endAt, far - offsetMs - APART_MS);
  }
  return null;
}

/** The last firing at or before `until`; null before the year 1900. The same rules as `nextFiring`. */
export function lastFiring(cron: Cron, zone: string, until: Instant): Instant | null {
  let upTo = Math.min(Math.floor(until), LAST_INSTANT);
  while (upTo >= FIRST_INSTANT) {
    const { startAt, offsetMs, gapMs, repeatedUntil } = stretchAt(zone, upTo);
    const low = cron.fixedTime ? Math.max(startAt, repeatedUntil) : startAt;
    const at = upTo >= low ? lastLocal(cron, upTo + offsetMs) - offsetMs : startAt - 1;
    if (at >= low) return at >= FIRST_INSTANT ? at : null;
    if (cron.fixedTime && gapMs > 0 && firstLocal(cron, startAt + offsetMs - gapMs) < startAt + offsetMs)
      return startAt;
    const far = lastLocal(cron, startAt + offsetMs + NEAR_MS);
    upTo = Math.min(startAt - 1, far - offsetMs + APART_MS);
  }
  return null;
}

/** How many firings lie in (after, until]; by arithmetic, so the length of the range costs only its months and clock changes. */
export function countFirings(cron: Cron, zone: string, after: Instant, until: Instant): number {
  const end = Math.min(Math.floor(until), LAST_INSTANT) + 1;
  let count = 0;
  let from = Math.max(Math.floor(after) + 1, FIRST_INSTANT);
  while (from < end) {
    const { startAt, endAt, offsetMs, gapMs, repeatedUntil } = stretchAt(zone, from);
    const local = startAt + offsetMs;
    if (
      cron.fixedTime &&
      gapMs > 0 &&
      from === startAt &&
      firstLocal(cron, local - gapMs) < local &&
      firstLocal(cron, local) !== local
    )
      count++;
    const low = cron.fixedTime ? Math.max(from, repeatedUntil) : from;
    count += countLocal(cron, low + offsetMs, Math.min(endAt, end) + offsetMs);
    from = endAt;
  }
  return count;
}

// --- Words -------------------------------------------------------------------------------------------------------------

const two = (value: number) => String(value).padStart(2, "0");

function join(words: readonly string[], last = "and"): string {
  return words.length < 2 ? (words[0] ?? "") : `${words.slice(0, -1).join(", ")} ${last} ${words.at(-1)}`;
}

/** The values of a field in words, ranges as ranges, stepped elements member by member. */
function valuesOf(field: Field, name: (value: number) => string): string {
  const stepped = (low: number, high: number, step: number) =>
    Array.from({ length: Math.floor((high - low) / step) + 1 }, (_, index) => name(low + index * step));
  const words = field.elements.flatMap((element): string[] => {
    switch (element.kind) {
      case "every":
        return stepped(field.rule.min, field.rule.name === "day-of-week" ? 6 : field.rule.max, element.step ?? 1);
      case "value":
        return [name(element.value)];
      case "range":
        return element.step === null || element.step === 1
          ? [`${name(element.low)} to ${name(element.high)}`]
          : stepped(element.low, element.high, element.step);
      case "from":
        return stepped(element.low, field.rule.max, element.step);
      case "last_day":
        return ["the last day"];
      case "last_weekday":
        return [`the last ${WEEKDAYS[element.weekday]}`];
      case "nth_weekday":
        return [`${WEEKDAYS[element.weekday]} number ${element.nth}`];
    }
  });
  return join([...new Set(words)]);
}

const isEvery = (field: Field) => field.text === "*" || field.text === "?";

/** `every minute`, `every 15 minutes`, `at minute 5 and 35`. A step that does not divide the field begins anew with it. */
function unitOf(field: Field, per: string): string {
  const unit = field.rule.name;
  const [first, ...more] = field.elements;
  if (isEvery(field)) return `every ${unit}`;
  if (first?.kind === "every" && more.length === 0) {
    const step = first.step ?? 1;
    if (step === 1) return `every ${unit}`;
    const anew = (field.rule.max + 1) % step === 0 ? "" : `, counted anew each ${per}`;
    return `every ${step} ${unit}s${anew}`;
  }
  return `at ${unit} ${valuesOf(field, String)}`;
}

/** Times of a day are listed one by one up to this many. */
const LISTED_TIMES = 8;

function timesInWords(cron: Cron): string {
  const [second, minute, hour] = cron.fields as [Field, Field, Field];
  const withSeconds = second.text !== "0";
  if (cron.fixedTime && cron.perDay <= LISTED_TIMES) {
    const times: string[] = [];
    for (let at = firstInDay(cron, 0); at >= 0; at = at < DAY_S - 1 ? firstInDay(cron, at + 1) : -1)
      times.push(
        `${two(Math.floor(at / 3_600))}:${two(Math.floor(at / 60) % 60)}${withSeconds ? `:${two(at % 60)}` : ""}`,
      );
    return `at ${join(times)}`;
  }
  // "every 10 seconds" says all there is to say about the minutes.
  const seconds = withSeconds ? [unitOf(second, "minute")] : [];
  const units = seconds[0]?.startsWith("every") && isEvery(minute) ? seconds : [...seconds, unitOf(minute, "hour")];
  if (isEvery(hour)) return units.join(", ").replace(/^(at minute .*)$/, "$1 of every hour");
  return `${units.join(", ")}, when the hour is ${valuesOf(hour, String)}`;
}

function daysInWords(cron: Cron): string {
  const [, , , monthDay, month, weekDay] = cron.fields as [Field, Field, Field, Field, Field, Field];
  const months = isEvery(month) ? "" : ` in ${valuesOf(month, (value) => MONTHS[value - 1] ?? "")}`;
  const byMonthDay = `on day ${valuesOf(monthDay, String)} of the month`.replace("day the last day", "the last day");
  const byWeekDay = `on ${valuesOf(weekDay, (value) => WEEKDAYS[value % 7] ?? "")}`;
  if (isEvery(monthDay) && isEvery(weekDay)) return months === "" ? "every day" : `every day${months}`;
  if (isEvery(weekDay)) return `${byMonthDay}${months}`;
  if (isEvery(monthDay)) return `${byWeekDay}${months}`;
  return `${byMonthDay} or ${byWeekDay}${months}: either is enough`;
}

/** The expression in words, without the zone: `at 02:30, every day`. */
export function cronInWords(cron: Cron): string {
  return `${timesInWords(cron)}, ${daysInWords(cron)}`;
}
