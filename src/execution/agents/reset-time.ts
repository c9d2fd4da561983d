/** When a limit is over, out of what providers say about it: fields, headers, sentences, with zones and without. */
import { describeDuration } from "../../core/duration.ts";
import type { Instant } from "../../core/ports.ts";
import { checkZone, FIRST_INSTANT, instantOf, LAST_INSTANT, localFields } from "../../core/zone.ts";

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 86_400_000;

/** What a provider said. */
export interface ResetHints {
  /** An instant in a field of an event: seconds or milliseconds since 1970, with the field's name. */
  readonly field?: { readonly name: string; readonly value: number } | null;
  /** Everything else that was said, as text. */
  readonly text?: string | null;
  /** The length of the limit's window where it is known. */
  readonly windowMs?: number | null;
}

export interface ResetSurroundings {
  readonly now: Instant;
  /** The zone of texts that name none. */
  readonly zone: string;
  /** What is further away makes no sense. */
  readonly longestMs: number;
}

export interface ResetTime {
  readonly at: Instant;
  /**
   * Where it comes from, and the words: `event resetsAt 1796000226`, `retry-after 997`; with what its window made of it:
   * `..., kept although its window is 5h`, `..., cut to its window of 5h`.
   */
  readonly source: string;
}

/** A reset that was said. `guessed`: without a zone, so that it may be hours off. */
interface Stated extends ResetTime {
  readonly guessed?: boolean;
}

/**
 * The reset that is believed: a field before a relative text, that before a time with a zone, that before one without.
 * What lies in the past or further away than `longestMs` is passed over. The window only decides about a guess: an instant
 * that was said without doubt is kept, because clocks differ and limits of several windows are told under one name.
 */
export function resetTime(hints: ResetHints, { now, zone, longestMs }: ResetSurroundings): ResetTime | null {
  const text = (hints.text ?? "").slice(0, 4_000);
  const windowMs = hints.windowMs ?? windowIn(text);
  const candidates: readonly Stated[] = [
    ...fromField(hints.field ?? null),
    ...fields(text),
    ...relative(text, now),
    ...absolute(text, now, zone),
  ];
  for (const { at, source, guessed } of candidates) {
    if (!Number.isFinite(at) || at <= now || at > now + longestMs) continue;
    if (windowMs === null || at <= now + windowMs) return { at, source };
    const window = describeDuration(windowMs);
    return guessed === true
      ? { at: now + windowMs, source: `${source}, cut to its window of ${window}` }
      : { at, source: `${source}, kept although its window is ${window}` };
  }
  return null;
}

/** The length of the window that a limit's kind names: `five_hour`, `seven_day`, `seven_day_opus`. */
export function windowOf(kind: string | null): number | null {
  if (kind === null) return null;
  if (kind.startsWith("five_hour")) return 5 * HOUR_MS;
  if (kind.startsWith("seven_day")) return 7 * DAY_MS;
  return null;
}

function windowIn(text: string): number | null {
  const hours = /\b(\d{1,3})[- ]hour (?:usage )?(?:limit|window)/i.exec(text);
  if (hours !== null) return Number(hours[1]) * HOUR_MS;
  if (/\bweekly (?:usage )?limit/i.test(text)) return 7 * DAY_MS;
  if (/\bdaily (?:usage )?limit/i.test(text)) return DAY_MS;
  return null;
}

/** Seconds or milliseconds since 1970: ten digits are seconds until the year 2286. */
const instantIn = (value: number): Instant => Math.round(value < 100_000_000_000 ? value * SECOND_MS : value);

const fromField = (field: ResetHints["field"]): ResetTime[] =>
  field === null || field === undefined
    ? []
    : [{ at: instantIn(field.value), source: `event ${field.name} ${field.value}` }];

/** Fields that stand in a text: a quoted body, or the old form `limit reached|1755806400`. */
function fields(text: string): ResetTime[] {
  const found: ResetTime[] = [];
  for (const match of text.matchAll(/["']?(resets?_?at)["']?\s*[:=]\s*["']?(\d{10}(?:\d{3})?)\b/gi))
    found.push({ at: instantIn(Number(match[2])), source: `text ${match[1]} ${match[2]}` });
  const piped = /\|\s?(\d{10}(?:\d{3})?)\b/.exec(text);
  if (piped !== null) found.push({ at: instantIn(Number(piped[1])), source: `text ${piped[0]}` });
  return found;
}

const UNITS: readonly (readonly [RegExp, number])[] = [
  [/^(?:ms|milli)/i, 1],
  [/^s/i, SECOND_MS],
  [/^m/i, MINUTE_MS],
  [/^h/i, HOUR_MS],
  [/^d/i, DAY_MS],
  [/^w/i, 7 * DAY_MS],
];
const PART = String.raw`\d{1,9}(?:\.\d{1,9})?\s*(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|hr|h|days?|d|weeks?|w)(?![a-z])`;
const DURATION = `${PART}(?:(?:\\s*,?\\s*(?:and\\s+)?)${PART})*`;

function durationOf(text: string): number {
  let ms = 0;
  for (const match of text.matchAll(/(\d+(?:\.\d+)?)\s*([a-z]+)/gi))
    ms += Number(match[1]) * (UNITS.find(([unit]) => unit.test(match[2] ?? ""))?.[1] ?? 0);
  return Math.ceil(ms);
}

const RETRY_AFTER = new RegExp(
  String.raw`\b(?:retry[-_ ]?after(?:[-_ ](ms))?|resets?_(?:in|after)_seconds|retrydelay)["']?\s*[:=]?\s*["']?(\d{1,9}(?:\.\d{1,9})?)(?![\d:]|-\d)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)?(?![a-z])`,
  "i",
);
const RELATIVE = new RegExp(
  String.raw`\b(?:again|retry(?:ing)?|resets?|wait|available|back|after)\b[^.;\n\d]{0,60}?(${DURATION})`,
  "i",
);
const PLAIN_RELATIVE = new RegExp(String.raw`\bin\s+(${DURATION})`, "i");

/** `retry-after 997` before `try again in 2h 13m` before a bare `in 997 s`. */
function relative(text: string, now: Instant): ResetTime[] {
  const found: ResetTime[] = [];
  const after = RETRY_AFTER.exec(text);
  if (after !== null) {
    const ms = after[1] !== undefined ? Number(after[2]) : durationOf(`${after[2]} ${after[3] ?? "s"}`);
    found.push({ at: now + ms, source: `retry-after ${after[2]}${after[3] ?? after[1] ?? ""}` });
  }
  for (const form of [RELATIVE, PLAIN_RELATIVE]) {
    const match = form.exec(text);
    if (match !== null) found.push({ at: now + durationOf(match[1] ?? ""), source: `text "${match[0]}"` });
  }
  return found;
}

const MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTH = `(?<month>${MONTHS.join("|")})[a-z]*\\.?`;
const DAY = String.raw`(?<day>\d{1,2})(?:st|nd|rd|th)?`;
const CLOCK = String.raw`(?<hour>\d{1,2})(?::(?<minute>\d{2}))?(?::(?<second>\d{2})(?:\.\d+)?)?\s*(?<half>[ap]\.?m\b)?`;
const ZONE = String.raw`(?:\s*\(?(?<zone>Z\b|UTC\b|GMT\b|[A-Z][A-Za-z_]+(?:\/[A-Za-z0-9_+-]+){1,2}|[+-]\d{2}:?\d{2}\b|[PMCE][SD]?T\b|CES?T\b)\)?)?`;

/** Dates and times of day, most telling first. A time of day needs a minute or a half of the day, and a word in front. */
const FORMS: readonly RegExp[] = [
  new RegExp(String.raw`(?<year>\d{4})-(?<monthNumber>\d{2})-(?<day>\d{2})[T ]+${CLOCK}${ZONE}`),
  new RegExp(String.raw`\b${MONTH}\s+${DAY}(?:,?\s+(?<year>\d{4}))?,?(?:\s+at)?\s+${CLOCK}${ZONE}`, "i"),
  new RegExp(String.raw`\b${DAY}\s+${MONTH}(?:,?\s+(?<year>\d{4}))?,?(?:\s+at)?\s+${CLOCK}${ZONE}`, "i"),
  new RegExp(String.raw`\b(?<weekday>${WEEKDAYS.join("|")})[a-z]*,?(?:\s+at)?\s+${CLOCK}${ZONE}`, "i"),
  new RegExp(String.raw`\b(?:resets?|again|until|at|after)\s+(?:at\s+)?${CLOCK}${ZONE}`, "i"),
];

function absolute(text: string, now: Instant, zone: string): Stated[] {
  const found: Stated[] = [];
  let rest = text;
  for (const form of FORMS) {
    const match = form.exec(rest);
    const groups = match?.groups;
    if (match === null || groups === undefined) continue;
    // Later forms would read parts of what this one has read.
    rest = rest.replace(match[0], " ");
    const local = clockOf(groups);
    if (local === null) continue;
    const offsetMs = offsetIn(groups["zone"]);
    const name = offsetMs === null ? namedZone(groups["zone"]) : null;
    // What is said to the minute is over when that minute is: else it would be tried, and refused, a moment too early,
    // and by then the words mean the same time tomorrow.
    const spareMs = groups["second"] === undefined ? MINUTE_MS : 0;
    const toInstant = (localMs: number): Instant =>
      spareMs + (offsetMs !== null ? localMs - offsetMs : instantWithin(name ?? zone, localMs));
    const at = place(groups, local, toInstant, now, offsetMs === null ? (name ?? zone) : "UTC", offsetMs ?? 0);
    if (at === null) continue;
    const named = offsetMs !== null || name !== null;
    found.push({ at, guessed: !named, source: `text "${match[0].trim()}"${named ? "" : ` in ${zone}`}` });
  }
  return [...found.filter(({ guessed }) => guessed !== true), ...found.filter(({ guessed }) => guessed === true)];
}

/** Milliseconds of the day. */
function clockOf(groups: Readonly<Record<string, string | undefined>>): number | null {
  const half = groups["half"]?.toLowerCase()[0];
  if (half === undefined && groups["minute"] === undefined) return null;
  let hour = Number(groups["hour"]);
  const minute = Number(groups["minute"] ?? 0);
  if (half !== undefined) {
    if (hour < 1 || hour > 12) return null;
    hour = (hour % 12) + (half === "p" ? 12 : 0);
  }
  if (hour > 23 || minute > 59) return null;
  return hour * HOUR_MS + minute * MINUTE_MS + Math.min(59, Number(groups["second"] ?? 0)) * SECOND_MS;
}

/** Offsets that are written out, and abbreviations that mean one thing to the providers that write them. */
const OFFSETS: Readonly<Record<string, number>> = {
  z: 0,
  utc: 0,
  gmt: 0,
  est: -5,
  edt: -4,
  cst: -6,
  cdt: -5,
  mst: -7,
  mdt: -6,
  pst: -8,
  pdt: -7,
  cet: 1,
  cest: 2,
};
const REGIONS: Readonly<Record<string, string>> = {
  et: "America/New_York",
  ct: "America/Chicago",
  mt: "America/Denver",
  pt: "America/Los_Angeles",
};

function offsetIn(zone: string | undefined): number | null {
  if (zone === undefined) return null;
  const known = OFFSETS[zone.toLowerCase()];
  if (known !== undefined) return known * HOUR_MS;
  const written = /^([+-])(\d{2}):?(\d{2})$/.exec(zone);
  if (written === null) return null;
  const ms = Number(written[2]) * HOUR_MS + Number(written[3]) * MINUTE_MS;
  return written[1] === "-" ? -ms : ms;
}

function namedZone(zone: string | undefined): string | null {
  if (zone === undefined) return null;
  try {
    return checkZone(REGIONS[zone.toLowerCase()] ?? zone);
  } catch {
    return null; // a word that looks like a zone
  }
}

const instantWithin = (zone: string, localMs: number): Instant =>
  localMs - 2 * DAY_MS < FIRST_INSTANT || localMs + 2 * DAY_MS > LAST_INSTANT ? Number.NaN : instantOf(zone, localMs);

/** The instant of a date, or of the next day that has that time, in a zone or at a fixed offset to UTC. */
function place(
  groups: Readonly<Record<string, string | undefined>>,
  clockMs: number,
  toInstant: (localMs: number) => Instant,
  now: Instant,
  zone: string,
  offsetMs: number,
): Instant | null {
  const today = localFields(zone, now + offsetMs);
  const month =
    groups["monthNumber"] === undefined
      ? MONTHS.indexOf(groups["month"]?.toLowerCase() ?? "")
      : Number(groups["monthNumber"]) - 1;
  if (groups["day"] !== undefined) {
    const day = Number(groups["day"]);
    const on = (year: number) => (isDay(year, month, day) ? toInstant(Date.UTC(year, month, day) + clockMs) : null);
    if (groups["year"] !== undefined) return on(Number(groups["year"]));
    // Without a year it is the next such day.
    const thisYear = on(today.year);
    return thisYear !== null && thisYear > now ? thisYear : on(today.year + 1);
  }
  const weekday = groups["weekday"] === undefined ? -1 : WEEKDAYS.indexOf(groups["weekday"].toLowerCase());
  const midnight = Date.UTC(today.year, today.month - 1, today.day);
  for (let days = 0; days <= 8; days++) {
    if (weekday >= 0 && (today.weekday + days) % 7 !== weekday) continue;
    const at = toInstant(midnight + days * DAY_MS + clockMs);
    if (at > now) return at;
  }
  return null;
}

function isDay(year: number, month: number, day: number): boolean {
  const made = new Date(Date.UTC(year, month, day));
  return month >= 0 && made.getUTCMonth() === month && made.getUTCDate() === day;
}
