/** When a loop is due: pure arithmetic from a stored schedule to instants. The scheduler and `schedule next` call the same functions. */
import { countFirings, countLocal, cronInWords, lastFiring, nextFiring, parseCron } from "./cron.ts";
import { describeDuration, formatDuration, parseDuration } from "./duration.ts";
import { AppError, unreachable } from "./errors.ts";
import { defaultLimits } from "./limits.ts";
import type { Instant } from "./ports.ts";
import { checkZone, formatLocal, formatOffset, instantOf, LAST_INSTANT, nextTransition } from "./zone.ts";

/** Bounds of an interval. */
export const SCHEDULE_LIMITS = {
  minEveryMs: 1_000,
  /** Ten years of 365 days, and their leap days. */
  maxEveryMs: 3_653 * 86_400_000,
} as const;

/** How far `explainSchedule` looks for changes of the clock. */
const EXPLAINED_MS = 3 * 366 * 86_400_000;

/** A schedule as it is stored on a loop. `parseSchedule` makes one of what a person says. */
export type Schedule =
  | { readonly kind: "once"; readonly at: Instant }
  /** Due at `anchorAt + n * everyMs`, n from 1. */
  | { readonly kind: "interval"; readonly everyMs: number; readonly anchorAt: Instant }
  | { readonly kind: "cron"; readonly expression: string; readonly zone: string }
  /** First due at `firstAt`; then the run says when. */
  | { readonly kind: "dynamic"; readonly firstAt: Instant };

// --- Instants ----------------------------------------------------------------------------------------------------------

/** How many instants `anchor + n * every`, n from 1, lie at or before `until`. */
const intervalsUntil = ({ everyMs, anchorAt }: Schedule & { kind: "interval" }, until: Instant): number =>
  Math.max(0, Math.floor((until - anchorAt) / everyMs));

const within = (at: Instant, after: Instant, until: Instant): Instant[] => (at > after && at <= until ? [at] : []);

/** The first instant strictly after `after`; null when there is none. Errors: AppError `bad_cron`, `unknown_zone` for what no door let in. */
export function nextInstant(schedule: Schedule, after: Instant): Instant | null {
  switch (schedule.kind) {
    case "once":
      return schedule.at > after ? schedule.at : null;
    case "interval": {
      const at = schedule.anchorAt + (intervalsUntil(schedule, after) + 1) * schedule.everyMs;
      return at <= LAST_INSTANT ? at : null;
    }
    case "cron":
      return nextFiring(parseCron(schedule.expression), schedule.zone, after);
    case "dynamic":
      return schedule.firstAt > after ? schedule.firstAt : null;
    default:
      return unreachable(schedule);
  }
}

/** The oldest `limit` instants in (after, until], ascending. */
export function instantsBetween(schedule: Schedule, after: Instant, until: Instant, limit: number): Instant[] {
  const found: Instant[] = [];
  let at = limit > 0 ? nextInstant(schedule, after) : null;
  while (at !== null && at <= until && found.length < limit) {
    found.push(at);
    at = found.length < limit ? nextInstant(schedule, at) : null;
  }
  return found;
}

/** The newest `limit` instants in (after, until], ascending. */
export function lastInstants(schedule: Schedule, after: Instant, until: Instant, limit: number): Instant[] {
  switch (schedule.kind) {
    case "once":
      return limit > 0 ? within(schedule.at, after, until) : [];
    case "dynamic":
      return limit > 0 ? within(schedule.firstAt, after, until) : [];
    case "interval": {
      const found: Instant[] = [];
      const newest = intervalsUntil(schedule, Math.min(until, LAST_INSTANT));
      for (let n = newest; n > 0 && found.length < limit; n--) {
        const at = schedule.anchorAt + n * schedule.everyMs;
        if (at <= after) break;
        found.push(at);
      }
      return found.reverse();
    }
    case "cron": {
      const cron = parseCron(schedule.expression);
      const found: Instant[] = [];
      // A rare expression may have fired long before `after`: looking for it there would cost and answer nothing.
      const first = limit > 0 ? nextFiring(cron, schedule.zone, after) : null;
      if (first === null || first > until) return found;
      for (let upTo = until; found.length < limit; ) {
        const at = lastFiring(cron, schedule.zone, upTo);
        if (at === null || at < first) break;
        found.push(at);
        upTo = at - 1;
      }
      return found.reverse();
    }
    default:
      return unreachable(schedule);
  }
}

/** How many instants lie in (after, until]. Exact, by arithmetic: a year of seconds costs microseconds. */
export function countBetween(schedule: Schedule, after: Instant, until: Instant): number {
  if (until <= after) return 0;
  switch (schedule.kind) {
    case "once":
      return within(schedule.at, after, until).length;
    case "dynamic":
      return within(schedule.firstAt, after, until).length;
    case "interval":
      return (
        intervalsUntil(schedule, Math.min(until, LAST_INSTANT)) -
        intervalsUntil(schedule, Math.min(after, LAST_INSTANT))
      );
    case "cron":
      return countFirings(parseCron(schedule.expression), schedule.zone, after, until);
    default:
      return unreachable(schedule);
  }
}

/** Milliseconds from `at` to the next instant after it; Infinity when there is none. */
export function periodAt(schedule: Schedule, at: Instant): number {
  const next = nextInstant(schedule, at);
  return next === null ? Number.POSITIVE_INFINITY : next - at;
}

// --- From what people write ----------------------------------------------------------------------------------------------

/** The flags that choose a schedule. */
export interface ScheduleFlags {
  readonly every?: string | undefined;
  readonly cron?: string | undefined;
  readonly tz?: string | undefined;
  readonly at?: string | undefined;
  readonly dynamic?: boolean | undefined;
}

/** What a schedule is read against. */
export interface ScheduleSurroundings {
  readonly now: Instant;
  /** The zone of the host, for local times without `--tz`. */
  readonly hostZone: string;
}

const badSchedule = (message: string, hint: string) => new AppError("invalid", "bad_schedule", message, { hint });

function parseEvery(text: string, now: Instant): Schedule {
  const everyMs = parseDuration(text, "--every");
  const { minEveryMs, maxEveryMs } = SCHEDULE_LIMITS;
  if (everyMs < minEveryMs || everyMs > maxEveryMs)
    throw new AppError(
      "invalid",
      "bad_schedule",
      `an interval of ${JSON.stringify(text)} is too ${everyMs < minEveryMs ? "short" : "long"}`,
      {
        hint: `Choose an interval from ${formatDuration(minEveryMs)} to ${formatDuration(maxEveryMs)}.`,
        path: "--every",
      },
    );
  return { kind: "interval", everyMs, anchorAt: now };
}

/**
 * Reads exactly one of `every`, `cron`, `at`, `dynamic` as a schedule; `tz` goes with `cron` and with a local `at`.
 * An interval is anchored at `now`. Errors: AppError `bad_schedule`, `bad_duration`, `bad_cron`, `unknown_zone`, `bad_time`, with the flag as path.
 */
export function parseSchedule(flags: ScheduleFlags, { now, hostZone }: ScheduleSurroundings): Schedule {
  const given = [
    ...(flags.every === undefined ? [] : ["--every"]),
    ...(flags.cron === undefined ? [] : ["--cron"]),
    ...(flags.at === undefined ? [] : ["--at"]),
    ...(flags.dynamic === true ? ["--dynamic"] : []),
  ];
  if (given.length !== 1)
    throw badSchedule(
      given.length === 0 ? "no schedule is given" : `${given.join(" and ")} contradict one another`,
      "Give exactly one of --every DURATION, --cron EXPRESSION, --at TIME, --dynamic.",
    );
  if (flags.tz !== undefined && flags.cron === undefined && flags.at === undefined)
    throw badSchedule(`--tz says nothing with ${given[0]}`, "Leave out --tz, or use --cron or --at.");
  if (flags.every !== undefined) return parseEvery(flags.every, now);
  if (flags.cron !== undefined) {
    const { expression } = parseCron(flags.cron, "--cron");
    return { kind: "cron", expression, zone: checkZone(flags.tz ?? hostZone, "--tz") };
  }
  if (flags.at !== undefined)
    return {
      kind: "once",
      at: parseTime(flags.at, { now, hostZone, ...(flags.tz === undefined ? {} : { tz: flags.tz }) }),
    };
  return { kind: "dynamic", firstAt: now + defaultLimits.dynamicGapMs };
}

/**
 * Reads what `schedule next` and `schedule explain` take: a duration (an interval anchored at `now`) or a cron expression.
 * With a duration `tz` only says in which zone the instants are shown.
 * Errors: AppError `bad_duration`, `bad_schedule`, `bad_cron`, `unknown_zone`, with the path `expression` where it is at fault.
 */
export function parseExpression(
  text: string,
  surroundings: ScheduleSurroundings & { readonly tz?: string | undefined },
): Schedule {
  const isDuration = /^\d+[a-z][0-9a-z]*$/i.test(text.trim());
  try {
    return parseSchedule(isDuration ? { every: text.trim() } : { cron: text, tz: surroundings.tz }, surroundings);
  } catch (error) {
    if (!(error instanceof AppError) || (error.path !== "--every" && error.path !== "--cron")) throw error;
    const { kind, code, message, hint } = error; // said of the word that was typed, which is no flag
    throw new AppError(kind, code, message, { path: "expression", ...(hint === undefined ? {} : { hint }) });
  }
}

const TIME =
  /^(\d{4})-(\d{2})-(\d{2})(?:[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,3}))?)?(?:([Zz])|([+-])(\d{2}):?(\d{2}))?)?$/;

/**
 * Reads an instant: ISO-8601 with `Z` or an offset; a local date and time, or a date (its midnight), in `tz` or the host's zone;
 * or `+30m`, from now. A local time that the clock skips is the end of the gap, one that comes twice is the first.
 * Errors: AppError `bad_time` for other forms, for dates that do not exist and years before 1970; `unknown_zone`; `bad_schedule` for a zone with no local time.
 * @param path where the text stands in the input, for errors
 */
export function parseTime(
  text: string,
  {
    now,
    hostZone,
    tz,
    path = "--at",
  }: ScheduleSurroundings & { readonly tz?: string | undefined; readonly path?: string },
): Instant {
  const wrong = (what: string, hint: string): AppError =>
    new AppError("invalid", "bad_time", `${JSON.stringify(text)} ${what}`, { hint, path });
  const noZone = () =>
    badSchedule(`--tz says nothing about ${JSON.stringify(text)}, which is no local time`, "Leave out --tz.");

  if (text.startsWith("+")) {
    if (tz !== undefined) throw noZone();
    const at = now + parseDuration(text.slice(1), path);
    if (at > LAST_INSTANT) throw wrong("lies too far ahead", "Choose a time before the year 10000.");
    return at;
  }
  const found = TIME.exec(text);
  if (found === null)
    throw wrong(
      "is not a time",
      "Write 2026-05-01T02:30:00Z, 2026-05-01T02:30+02:00, a local 2026-05-01T02:30, or +30m for a time from now.",
    );
  const number = (index: number) => Number(found[index] ?? 0);
  const [year, month, day, hour, minute, second] = [1, 2, 3, 4, 5, 6].map(number) as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const local = Date.UTC(year, month - 1, day, hour, minute, second, Number((found[7] ?? "0").padEnd(3, "0")));
  const shown = new Date(local);
  if (
    shown.getUTCFullYear() !== year ||
    shown.getUTCMonth() !== month - 1 ||
    shown.getUTCDate() !== day ||
    hour > 23 ||
    minute > 59 ||
    second > 59
  )
    throw wrong("does not exist in the calendar", "Check the day of the month, the hour and the minute.");
  if (year < 1970) throw wrong("lies before 1970", "Choose a later time.");
  if (found[8] === undefined && found[9] === undefined) return instantOf(checkZone(tz ?? hostZone, "--tz"), local);
  if (tz !== undefined) throw noZone();
  if (number(10) > 23 || number(11) > 59) throw wrong("has an impossible offset", "Write an offset as in +02:00.");
  return local - (found[9] === "-" ? -1 : 1) * (number(10) * 60 + number(11)) * 60_000;
}

// --- In words ----------------------------------------------------------------------------------------------------------

/** One short text for tables: `every 15m`, `cron 30 2 * * * Europe/Rome`, `at 2026-05-01T02:30:00.000Z`, `dynamic`. */
export function describeSchedule(schedule: Schedule): string {
  switch (schedule.kind) {
    case "once":
      return `at ${new Date(schedule.at).toISOString()}`;
    case "interval":
      return `every ${formatDuration(schedule.everyMs)}`;
    case "cron":
      return `cron ${schedule.expression} ${schedule.zone}`;
    case "dynamic":
      return "dynamic";
    default:
      return unreachable(schedule);
  }
}

/** Firings around a change of the clock are listed up to this many. */
const LISTED_FIRINGS = 4;

function changeEffect(forward: boolean, fixedTime: boolean, gapEnd: string): string {
  if (forward) return fixedTime ? `it fires once, at ${gapEnd}` : "it does not fire then";
  return fixedTime ? "only the first pass fires" : "both passes fire";
}

function explainChanges({ expression, zone }: Schedule & { kind: "cron" }, from: Instant): string[] {
  const cron = parseCron(expression);
  const lines: string[] = [];
  let after = from;
  for (let change = 0; change < 2; change++) {
    const next = nextTransition(zone, after, from + EXPLAINED_MS);
    if (next === null) break;
    after = next.at;
    const { at, beforeMs, afterMs } = next;
    const [low, high] = [at + Math.min(beforeMs, afterMs), at + Math.max(beforeMs, afterMs)];
    const forward = afterMs > beforeMs;
    const affected = countLocal(cron, low, high);
    const clock = (localMs: number) =>
      new Date(localMs).toISOString().slice(0, 19).replace(/:00$/, "").replace("T", " ");
    const what = forward ? "skipped" : "repeated";
    const head = `${formatLocal(zone, at)}: the clock goes ${forward ? "forward" : "back"} by ${describeDuration(high - low)} (${formatOffset(beforeMs)} to ${formatOffset(afterMs)}); local times from ${clock(low)} to before ${clock(high)} are ${what}.`;
    const times = `${affected} of its local times ${affected === 1 ? "is" : "are"} ${what}`;
    const effect =
      affected === 0
        ? "It does not touch this schedule."
        : `${times}: ${changeEffect(forward, cron.fixedTime, formatLocal(zone, at))}.`;
    lines.push(`${head} ${effect}`);
    const around = instantsBetween(
      { kind: "cron", expression, zone },
      at - (high - low) - 1,
      at + (high - low),
      LISTED_FIRINGS + 1,
    );
    if (affected > 0 && around.length > 0 && around.length <= LISTED_FIRINGS)
      lines.push(`Around it: ${around.map((each) => formatLocal(zone, each)).join(", ")}.`);
  }
  if (lines.length === 0) lines.push(`${zone} has no change of the clock in the next three years.`);
  return lines;
}

/**
 * The schedule in words, a sentence a line, then what the next two changes of the zone's clock do to it.
 * @param from changes after this instant are named
 */
export function explainSchedule(schedule: Schedule, from: Instant): string[] {
  switch (schedule.kind) {
    case "once":
      return [`Once, at ${new Date(schedule.at).toISOString()}.`];
    case "interval":
      return [
        `Every ${formatDuration(schedule.everyMs)} of real time, counted from ${new Date(schedule.anchorAt).toISOString()}.`,
        "Changes of the clock do not touch it: it keeps its spacing, and its local time moves.",
      ];
    case "dynamic":
      return [
        `First at ${new Date(schedule.firstAt).toISOString()}; then each run says when the next one is, or it follows after ${formatDuration(defaultLimits.dynamicGapMs)} (dynamicGapMs).`,
      ];
    case "cron": {
      const cron = parseCron(schedule.expression);
      const words = cronInWords(cron);
      return [
        `${words.charAt(0).toUpperCase()}${words.slice(1)}; local time of ${schedule.zone}.`,
        cron.fixedTime
          ? "Fixed times: each fires once a day. Those that the clock skips fire together once at the end of the gap; of a repeated hour only the first pass fires."
          : "Real spacing: it fires whenever the local time matches. What the clock skips does not fire; a repeated hour fires in both passes.",
        ...explainChanges(schedule, from),
      ];
    }
    default:
      return unreachable(schedule);
  }
}
