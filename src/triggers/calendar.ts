/**
 * Calendar events and spans of time as systemd writes them (systemd.time(7)): read, and turned into the schedule that starts
 * at the same instants, where there is one. Pure.
 */

/** A calendar event: which local times it names. */
export interface CalendarEvent {
  /** 0 is Sunday; null for every day. */
  readonly weekdays: ReadonlySet<number> | null;
  /** Each null for all. */
  readonly years: readonly Chain[] | null;
  readonly months: readonly Chain[] | null;
  readonly days: readonly Chain[] | null;
  /** The days are counted from the end of the month. */
  readonly fromEnd: boolean;
  readonly hours: readonly Chain[] | null;
  readonly minutes: readonly Chain[] | null;
  readonly seconds: readonly Chain[] | null;
  /** null is the host's. */
  readonly zone: string | null;
}

/** `start`, `start..stop`, `start/step`, `start..stop/step`. */
interface Chain {
  readonly start: number;
  readonly stop: number | null;
  readonly step: number | null;
}

/** What is wrong with it, in words. */
export interface Fault {
  readonly fault: string;
}
export const isFault = (found: object): found is Fault => "fault" in found;

const SHORTHANDS: ReadonlyMap<string, string> = new Map([
  ["minutely", "*-*-* *:*:00"],
  ["hourly", "*-*-* *:00:00"],
  ["daily", "*-*-* 00:00:00"],
  ["weekly", "Mon *-*-* 00:00:00"],
  ["monthly", "*-*-01 00:00:00"],
  ["quarterly", "*-01,04,07,10-01 00:00:00"],
  ...["semiannually", "semi-annually", "biannually", "bi-annually"].map(
    (name) => [name, "*-01,07-01 00:00:00"] as const,
  ),
  ...["yearly", "annually", "anually"].map((name) => [name, "*-01-01 00:00:00"] as const),
]);

const WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
const weekdayOf = (word: string): number =>
  WEEKDAYS.findIndex((name) => name === word.toLowerCase() || name.slice(0, 3) === word.toLowerCase());
/** A week begins with Monday. */
const placeInWeek = (weekday: number): number => (weekday + 6) % 7;

const not = (fault: string): Fault => ({ fault });

/** Reads an event. @param isZone whether a zone is known */
export function readCalendar(text: string, isZone: (zone: string) => boolean): CalendarEvent | Fault {
  const zoned = / ([A-Za-z][\w+/-]*)$/.exec(text);
  // The last word may be `Mon` alone, or a date: a zone is what is known as one.
  const zone = zoned?.[1] !== undefined && weekdayOf(zoned[1]) < 0 ? zoned[1] : null;
  if (zone !== null && !isZone(zone)) return not(`${JSON.stringify(zone)} is no time zone that is known here`);
  const bare = zone === null ? text : text.slice(0, -zone.length - 1);
  const words = (SHORTHANDS.get(bare.toLowerCase()) ?? bare).split(" ").filter((word) => word !== "");
  if (bare !== bare.trim() || words.length === 0) return not("it is empty, or blanks surround it");
  if (bare.startsWith("@")) return not("an instant counted in seconds since 1970 comes once");

  let weekdays: ReadonlySet<number> | null = null;
  if (/^[A-Za-z]/.test(words[0] ?? "")) {
    const read = readWeekdays(words.shift() ?? "");
    if (isFault(read)) return read;
    weekdays = read.size === 7 ? null : read;
  }
  const date = words[0]?.includes(":") === true || words.length === 0 ? null : (words.shift() ?? null);
  const time = words.shift() ?? null;
  if (words.length > 0) return not(`${JSON.stringify(words.join(" "))} is too much`);
  const dated = readDate(date ?? "*-*-*");
  if (isFault(dated)) return dated;
  const timed = readTime(time ?? "0:0:0");
  if (isFault(timed)) return timed;
  return { weekdays, ...dated, ...timed, zone };
}

function readWeekdays(word: string): Set<number> | Fault {
  const found = new Set<number>();
  for (const part of word.replace(/,$/, "").split(",")) {
    const [from = "", to = from, ...more] = part.split(/\.\.|-/);
    const [low, high] = [weekdayOf(from), weekdayOf(to)];
    if (low < 0 || high < 0 || more.length > 0) return not(`${JSON.stringify(part)} is no weekday`);
    if (placeInWeek(low) > placeInWeek(high)) return not(`the range ${part} is reversed`);
    for (let place = placeInWeek(low); place <= placeInWeek(high); place++) found.add((place + 1) % 7);
  }
  return found;
}

const RANGES = {
  year: [1970, 2199],
  month: [1, 12],
  day: [1, 31],
  hour: [0, 23],
  minute: [0, 59],
  second: [0, 59],
} as const;
type Unit = keyof typeof RANGES;

/** Days from the end are counted in every month: the 29th last is not in February. */
const LAST_FROM_END = 28;

function readChains(text: string, unit: Unit, fromEnd = false): { readonly chains: readonly Chain[] | null } | Fault {
  if (text === "*") return { chains: null };
  const [low, top] = RANGES[unit];
  const high = fromEnd ? LAST_FROM_END : top;
  const chains: Chain[] = [];
  for (const part of text.split(",")) {
    const found = /^(\d{1,4})(?:\.\.(\d{1,4}))?(?:\/(\d{1,4}))?$/.exec(part);
    if (found === null)
      return not(
        /\d\.\d/.test(part) && unit === "second"
          ? "a part of a second is too fine for a schedule"
          : `${JSON.stringify(part)} is no ${unit}`,
      );
    const year = (value: number): number =>
      unit !== "year" ? value : value < 70 ? value + 2000 : value < 100 ? value + 1900 : value;
    const start = year(Number(found[1]));
    const stop = found[2] === undefined ? null : year(Number(found[2]));
    const step = found[3] === undefined ? null : Number(found[3]);
    if (start < low || start > high || (stop !== null && (stop < start || stop > high)))
      return not(`${part} is out of range: ${unit}s are from ${low} to ${high}`);
    if (step === 0) return not(`the step of ${part} is nothing`);
    if (step !== null && stop === null && (fromEnd ? start - step < low : start + step > top))
      return not(`the step of ${part} leads out of its ${unit}s`);
    if (unit === "second" && stop === start && step === null) return not(`the range ${part} is one value`);
    chains.push({ start, stop, step });
  }
  return { chains };
}

function readDate(text: string): Pick<CalendarEvent, "years" | "months" | "days" | "fromEnd"> | Fault {
  const found = /^(?:([^-~]+)-)?([^-~]+)([-~])([^-~]+)$/.exec(text);
  if (found === null) return not(`${JSON.stringify(text)} is no date`);
  const [, year = "*", month = "", sign, day = ""] = found;
  // `*-*` has no day, and `*-*~1` has a year.
  const fromEnd = sign === "~";
  const [years, months, days] = [readChains(year, "year"), readChains(month, "month"), readChains(day, "day", fromEnd)];
  for (const one of [years, months, days]) if (isFault(one)) return one;
  return {
    years: (years as { chains: readonly Chain[] | null }).chains,
    months: (months as { chains: readonly Chain[] | null }).chains,
    days: (days as { chains: readonly Chain[] | null }).chains,
    fromEnd,
  };
}

function readTime(text: string): Pick<CalendarEvent, "hours" | "minutes" | "seconds"> | Fault {
  const [hour = "", minute = "", second = "0", ...more] = text.split(":");
  if (more.length > 0 || minute === "") return not(`${JSON.stringify(text)} is no time of the day`);
  const [hours, minutes, seconds] = [
    readChains(hour, "hour"),
    readChains(minute, "minute"),
    readChains(second, "second"),
  ];
  if (isFault(hours)) return hours;
  if (isFault(minutes)) return minutes;
  if (isFault(seconds)) return seconds;
  return { hours: hours.chains, minutes: minutes.chains, seconds: seconds.chains };
}

// --- As a schedule -----------------------------------------------------------------------------------------------------

/** The same instants as a cron expression, or as one instant of local time (as if it were UTC). */
export type CalendarSchedule =
  | { readonly kind: "cron"; readonly expression: string }
  | { readonly kind: "once"; readonly localMs: number };

function valuesOf(chains: readonly Chain[] | null, unit: Unit): Set<number> {
  const [low, high] = RANGES[unit];
  const found = new Set<number>();
  for (const { start, stop, step } of chains ?? [{ start: low, stop: high, step: 1 }])
    for (let value = start; value <= (stop ?? (step === null ? start : high)); value += step ?? 1) found.add(value);
  return found;
}

/** The expression of cron that fires at the same local times; else why there is none. */
export function scheduleOf(event: CalendarEvent): CalendarSchedule | Fault {
  const { weekdays, years, fromEnd } = event;
  const seconds = valuesOf(event.seconds, "second");
  const fields = {
    second: fieldText(seconds, 0, 59),
    minute: fieldText(valuesOf(event.minutes, "minute"), 0, 59),
    hour: fieldText(valuesOf(event.hours, "hour"), 0, 23),
    month: fieldText(valuesOf(event.months, "month"), 1, 12),
  };
  if (years !== null) return once(event);
  const months = valuesOf(event.months, "month");
  const days = fromEnd ? daysFromEnd(event, months) : dayFields(valuesOf(event.days, "day"), weekdays);
  if (isFault(days)) return days;
  const { second, minute, hour, month } = fields;
  const expression = `${minute} ${hour} ${days.day} ${month} ${days.weekday}`;
  return { kind: "cron", expression: second === "0" ? expression : `${second} ${expression}` };
}

interface DayFields {
  readonly day: string;
  readonly weekday: string;
}

const weekdayText = (weekdays: ReadonlySet<number>, suffix = ""): string =>
  suffix === ""
    ? fieldText(new Set([...weekdays].map((day) => (day === 0 ? 7 : day))), 1, 7, false)
    : [...weekdays]
        .toSorted((a, b) => placeInWeek(a) - placeInWeek(b))
        .map((day) => `${day}${suffix}`)
        .join(",");

/** The weeks of a month, the last of them short: what `1#2` counts. */
const WEEKS = [1, 8, 15, 22, 29].map((first) =>
  Array.from({ length: first === 29 ? 3 : 7 }, (_, index) => first + index),
);

/** systemd wants both, the day and the weekday; cron takes either, but has a word for "the second Monday". */
function dayFields(days: ReadonlySet<number>, weekdays: ReadonlySet<number> | null): DayFields | Fault {
  if (weekdays === null) return { day: fieldText(days, 1, 31), weekday: "*" };
  if (days.size === 31) return { day: "*", weekday: weekdayText(weekdays) };
  const weeks = WEEKS.flatMap((week, index) => (week.every((day) => days.has(day)) ? [index] : []));
  const covered = new Set(weeks.flatMap((index) => WEEKS[index] ?? []));
  if (covered.size !== days.size)
    return not(
      "it wants a weekday and a day of the month at once, and drover has that for whole weeks only (1..7, 8..14)",
    );
  return { day: "*", weekday: weeks.map((index) => weekdayText(weekdays, `#${index + 1}`)).join(",") };
}

/** Months without February, by their length. */
const LONG = new Set([1, 3, 5, 7, 8, 10, 12]);

function daysFromEnd({ days, weekdays }: CalendarEvent, months: ReadonlySet<number>): DayFields | Fault {
  const back = new Set<number>();
  // `~07/1` goes on to the end of the month, `~01..03` are the last three.
  for (const { start, stop, step } of days ?? [{ start: 28, stop: null, step: 1 }]) {
    const first = stop ?? start;
    const last = stop === null && step === null ? start : stop === null ? 1 : start;
    for (let value = first; value >= last; value -= step ?? 1) back.add(value);
  }
  if (weekdays !== null) {
    if (back.size === 7 && Math.max(...back) === 7) return { day: "*", weekday: weekdayText(weekdays, "L") };
    return not(
      "it wants a weekday and a day before the end of the month at once, and drover has that for the last seven days only",
    );
  }
  if (back.size === 1 && back.has(1)) return { day: "L", weekday: "*" };
  const lengths = new Set([...months].map((month) => (month === 2 ? 28.5 : LONG.has(month) ? 31 : 30)));
  const [length] = lengths;
  if (lengths.size !== 1 || length === undefined || length === 28.5)
    return not("it counts days from the end of months of different lengths, and drover has only the last day (L)");
  return { day: fieldText(new Set([...back].map((value) => length + 1 - value)), 1, 31), weekday: "*" };
}

function once({
  weekdays,
  years,
  months,
  days,
  fromEnd,
  hours,
  minutes,
  seconds,
}: CalendarEvent): CalendarSchedule | Fault {
  const single = (chains: readonly Chain[] | null): number | null => {
    const [first, ...more] = chains ?? [];
    return first !== undefined && more.length === 0 && first.stop === null && first.step === null ? first.start : null;
  };
  const [year, month, day, hour, minute, second] = [years, months, days, hours, minutes, seconds].map(single);
  if (year == null || month == null || day == null || hour == null || minute == null || second == null || fromEnd)
    return not("it is for certain years, and a schedule of drover is for every year");
  const localMs = Date.UTC(year, month - 1, day, hour, minute, second);
  const at = new Date(localMs);
  if (at.getUTCMonth() !== month - 1 || (weekdays !== null && !weekdays.has(at.getUTCDay())))
    return not("that day does not come");
  return { kind: "once", localMs };
}

/** A set of values as a field of cron, as short as a person would write it. @param stars whether `*` may stand for all of it */
function fieldText(values: ReadonlySet<number>, min: number, max: number, stars = true): string {
  const sorted = [...values].toSorted((a, b) => a - b);
  if (stars && sorted.length === max - min + 1) return "*";
  const [first = min, next = first] = sorted;
  const step = next - first;
  const isEven = sorted.length > 2 && step > 1 && sorted.every((value, index) => value === first + index * step);
  if (isEven && (sorted.at(-1) ?? 0) + step > max)
    return stars && first === min ? `*/${step}` : `${first}-${max}/${step}`;
  const parts: string[] = [];
  for (let from = 0; from < sorted.length; ) {
    let to = from;
    while (sorted[to + 1] === (sorted[to] ?? 0) + 1) to++;
    if (to - from >= 2) parts.push(`${sorted[from]}-${sorted[to]}`);
    else for (let index = from; index <= to; index++) parts.push(String(sorted[index]));
    from = to + 1;
  }
  return parts.join(",");
}

// --- Spans of time -----------------------------------------------------------------------------------------------------

const UNITS: ReadonlyMap<string, number> = new Map(
  (
    [
      [["usec", "us", "\u00b5s", "\u03bcs"], 0.001],
      [["msec", "ms"], 1],
      [["seconds", "second", "sec", "s", ""], 1_000],
      [["minutes", "minute", "min", "m"], 60_000],
      [["hours", "hour", "hr", "h"], 3_600_000],
      [["days", "day", "d"], 86_400_000],
      [["weeks", "week", "w"], 604_800_000],
      [["months", "month", "M"], 2_629_800_000],
      [["years", "year", "y"], 31_557_600_000],
    ] as const
  ).flatMap(([names, ms]) => names.map((name) => [name, ms] as const)),
);

/** A span such as `1h 30min` or `90` (seconds) in milliseconds; Infinity for `infinity`; null for what is none. */
export function readSpan(text: string): number | null {
  const trimmed = text.trim();
  if (trimmed === "infinity") return Number.POSITIVE_INFINITY;
  if (!/^(?:\s*\d+(?:\.\d+)?\s*[A-Za-z\u00b5\u03bc]*)+$/.test(trimmed) || trimmed.length > 200) return null;
  let ms = 0;
  for (const [, number = "", unit = ""] of trimmed.matchAll(/(\d+(?:\.\d+)?)\s*([A-Za-z\u00b5\u03bc]*)/g)) {
    const factor = UNITS.get(unit);
    if (factor === undefined) return null;
    ms += Number(number) * factor;
  }
  return Math.round(ms);
}
