/** IANA zones on `Intl.DateTimeFormat` and epoch milliseconds. "Local" is the wall clock's reading, written as if it were UTC. */
import { AppError } from "./errors.ts";
import type { Instant } from "./ports.ts";

/** The instants that calendars here reach: the years 1900 to 9999. What lies outside has no local time and no schedule. */
export const FIRST_INSTANT: Instant = Date.UTC(1900, 0, 1);
export const LAST_INSTANT: Instant = Date.UTC(10000, 0, 1) - 1;

const DAY_MS = 86_400_000;

/** Since 1970 no zone has changed its offset twice within 6.9 days (Gaza in 2040): a shorter step misses no change. */
const SAMPLE_MS = 5 * DAY_MS;
/** Blocks are computed and kept whole: about a year each, a multiple of the sample. */
const BLOCK_MS = 73 * SAMPLE_MS;
/** No clock has gone back by more than a day, so a repeated hour that reaches into a block began at most this long before. */
const REACH_MS = SAMPLE_MS;

/** Bounds of what is remembered. There are about 600 names of zones; a formatter costs about 26 kB. */
const KEPT_ZONES = 1_024;
const KEPT_BLOCKS_PER_ZONE = 256;
const KEPT_FORMATTERS = 32;

/** A change of a zone's offset. `at` is the first instant of the new one. Forward (a gap) when `afterMs > beforeMs`, else a fold. */
export interface Transition {
  readonly at: Instant;
  readonly beforeMs: number;
  readonly afterMs: number;
}

/** A stretch [startAt, endAt) of constant offset. It may be cut without a change; then it begins with no gap and no fold. */
export interface Stretch {
  readonly startAt: Instant;
  readonly endAt: Instant;
  /** Local minus UTC. */
  readonly offsetMs: number;
  /** Length of the gap in local time that ends at `startAt`; 0 when there is none. */
  readonly gapMs: number;
  /** Until this instant the local times are those of a repeated hour's second pass; at most `startAt` when none are. */
  readonly repeatedUntil: Instant;
}

/** What the clock on the wall shows; `month` from 1, `weekday` 0 for Sunday. */
export interface LocalFields {
  readonly year: number;
  readonly month: number;
  readonly day: number;
  readonly hour: number;
  readonly minute: number;
  readonly second: number;
  readonly weekday: number;
  readonly offsetMs: number;
}

type Measure = (instant: Instant) => number;

interface Block {
  readonly stretches: readonly Stretch[];
  readonly transitions: readonly Transition[];
}

const zones = new Map<string, Map<number, Block>>();
const formatters = new Map<string, Intl.DateTimeFormat>();

/** Adds to a bounded map; the oldest entry leaves. */
function keep<K, V>(map: Map<K, V>, key: K, value: V, limit: number): V {
  if (map.size >= limit) for (const oldest of map.keys()) if (map.delete(oldest)) break;
  map.set(key, value);
  return value;
}

function refuseZone(name: string, path?: string): never {
  throw new AppError("invalid", "unknown_zone", `${JSON.stringify(name)} is not a time zone`, {
    hint: /[+-]\d/.test(name)
      ? "Use a name such as Europe/Rome; for a fixed offset Etc/GMT-2, which is two hours ahead of UTC."
      : "Use a name of the IANA time zone database, such as Europe/Rome, America/New_York or UTC.",
    ...(path === undefined ? {} : { path }),
  });
}

function makeFormatter(zone: string): Intl.DateTimeFormat | null {
  // Newer engines read "+02:00" as a zone; it is no IANA name, and older ones would refuse what these had stored.
  if (!/^[A-Za-z][A-Za-z0-9_+/-]*$/.test(zone)) return null;
  try {
    return new Intl.DateTimeFormat("en-US-u-ca-gregory-nu-latn", {
      timeZone: zone,
      hourCycle: "h23",
      year: "numeric",
      month: "numeric",
      day: "numeric",
      hour: "numeric",
      minute: "numeric",
      second: "numeric",
    });
  } catch {
    // The only thing that can be wrong with these options is the zone.
    return null;
  }
}

function measureOf(zone: string): Measure {
  const formatter =
    formatters.get(zone) ?? keep(formatters, zone, makeFormatter(zone) ?? refuseZone(zone), KEPT_FORMATTERS);
  return (instant) => {
    const shown = /^(\d+)\/(\d+)\/(\d+), (\d+):(\d+):(\d+)$/.exec(formatter.format(instant));
    const field = (index: number) => Number(shown?.[index]);
    return (
      Date.UTC(field(3), field(1) - 1, field(2), field(4), field(5), field(6)) - Math.floor(instant / 1_000) * 1_000
    );
  };
}

/** The changes within (from, until], found by sampling and halving to the second. */
function findTransitions(measure: Measure, from: Instant, until: Instant): Transition[] {
  const found: Transition[] = [];
  let low = from;
  let lowMs = measure(low);
  while (low < until) {
    const high = Math.min(low + SAMPLE_MS, until);
    const highMs = measure(high);
    if (highMs !== lowMs) {
      let before = low;
      let at = high;
      while (at - before > 1_000) {
        const middle = Math.floor((before + at) / 2_000) * 1_000;
        if (measure(middle) === lowMs) before = middle;
        else at = middle;
      }
      found.push({ at, beforeMs: lowMs, afterMs: highMs });
    }
    low = high;
    lowMs = highMs;
  }
  return found;
}

function computeBlock(zone: string, number: number): Block {
  const startAt = number * BLOCK_MS;
  const endAt = startAt + BLOCK_MS;
  const measure = measureOf(zone);
  // The block's last instant belongs to it, its end does not; offsets change on whole seconds.
  const near = findTransitions(measure, startAt - REACH_MS, endAt - 1_000);
  const transitions = near.filter(({ at }) => at >= startAt);
  const earlier = near.findLast(({ at }) => at < startAt);
  const repeatedUntil = (change: Transition) => change.at + Math.max(0, change.beforeMs - change.afterMs);
  // The first is empty when the block begins with a change.
  const stretches = [null, ...transitions].map((change, index, all): Stretch => {
    const next = all[index + 1]?.at ?? endAt;
    if (change === null) {
      const offsetMs = transitions[0]?.beforeMs ?? measure(startAt);
      return { startAt, endAt: next, offsetMs, gapMs: 0, repeatedUntil: earlier ? repeatedUntil(earlier) : startAt };
    }
    const gapMs = Math.max(0, change.afterMs - change.beforeMs);
    return { startAt: change.at, endAt: next, offsetMs: change.afterMs, gapMs, repeatedUntil: repeatedUntil(change) };
  });
  return { stretches, transitions };
}

function blockAt(zone: string, instant: Instant): Block {
  const number = Math.floor(instant / BLOCK_MS);
  const known = zones.get(zone);
  const block = known?.get(number);
  if (block !== undefined) return block;
  const computed = computeBlock(zone, number);
  return keep(known ?? keep(zones, zone, new Map(), KEPT_ZONES), number, computed, KEPT_BLOCKS_PER_ZONE);
}

const spellings = new Map<string, string>();
const accepted = new Map<string, string>();

/**
 * The zone's name in its usual spelling; an alias stays what it is. "UTC" is a zone.
 * Errors: AppError `unknown_zone`; offsets such as `+02:00` and abbreviations that are no IANA names are refused.
 * @param path where the name stands in the input, for the error
 */
export function checkZone(name: string, path?: string): string {
  const known = accepted.get(name);
  if (known !== undefined) return known;
  if (makeFormatter(name) === null) refuseZone(name, path);
  if (spellings.size === 0)
    for (const usual of ["UTC", ...Intl.supportedValuesOf("timeZone")]) spellings.set(usual.toLowerCase(), usual);
  return keep(accepted, name, spellings.get(name.toLowerCase()) ?? name, KEPT_ZONES);
}

/**
 * The stretch of constant offset that holds the instant. Errors: AppError `unknown_zone`.
 * @param instant within FIRST_INSTANT and LAST_INSTANT
 */
export function stretchAt(zone: string, instant: Instant): Stretch {
  const { stretches } = blockAt(zone, instant);
  let index = stretches.length - 1;
  while (index > 0 && (stretches[index] as Stretch).startAt > instant) index--;
  return stretches[index] as Stretch;
}

/** Local minus UTC at that instant, in milliseconds. Errors: AppError `unknown_zone`. */
export function offsetAt(zone: string, instant: Instant): number {
  return stretchAt(zone, instant).offsetMs;
}

/** The first change of the zone's offset in (after, until]; null when there is none. */
export function nextTransition(zone: string, after: Instant, until: Instant): Transition | null {
  const last = Math.min(until, LAST_INSTANT);
  for (
    let from = Math.max(after + 1, FIRST_INSTANT);
    from <= last;
    from = (Math.floor(from / BLOCK_MS) + 1) * BLOCK_MS
  ) {
    const found = blockAt(zone, from).transitions.find(({ at }) => at >= from);
    if (found !== undefined) return found.at <= last ? found : null;
  }
  return null;
}

/**
 * The first instant whose local time is this one; for a local time inside a gap, the gap's end.
 * @param localMs local time as if it were UTC
 */
export function instantOf(zone: string, localMs: number): Instant {
  // Offsets lie between -16 h and +16 h: start with the stretch that holds the earliest candidate.
  let stretch = stretchAt(zone, localMs - DAY_MS);
  for (;;) {
    if (localMs < stretch.startAt + stretch.offsetMs) return stretch.startAt;
    if (localMs < stretch.endAt + stretch.offsetMs) return localMs - stretch.offsetMs;
    stretch = stretchAt(zone, stretch.endAt);
  }
}

/** What the wall clock of the zone shows at that instant. */
export function localFields(zone: string, instant: Instant): LocalFields {
  const offsetMs = offsetAt(zone, instant);
  const shown = new Date(instant + offsetMs);
  return {
    year: shown.getUTCFullYear(),
    month: shown.getUTCMonth() + 1,
    day: shown.getUTCDate(),
    hour: shown.getUTCHours(),
    minute: shown.getUTCMinutes(),
    second: shown.getUTCSeconds(),
    weekday: shown.getUTCDay(),
    offsetMs,
  };
}

/** An offset as people write it: `+01:00`, `-03:30`, `+00:00`; seconds only where there are any. */
export function formatOffset(offsetMs: number): string {
  const two = (value: number) => String(value).padStart(2, "0");
  const seconds = Math.abs(offsetMs) / 1_000;
  const rest = seconds % 60 === 0 ? "" : `:${two(seconds % 60)}`;
  return `${offsetMs < 0 ? "-" : "+"}${two(Math.floor(seconds / 3_600))}:${two(Math.floor(seconds / 60) % 60)}${rest}`;
}

/** The instant in the zone's local time with its offset: `2026-10-25T02:30:00+01:00`; milliseconds only where there are any. */
export function formatLocal(zone: string, instant: Instant): string {
  const offsetMs = offsetAt(zone, instant);
  return `${new Date(instant + offsetMs).toISOString().replace(/(\.000)?Z$/, "")}${formatOffset(offsetMs)}`;
}
