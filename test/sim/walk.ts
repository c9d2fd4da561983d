/** Due instants by walking: the schedule's words read again, sharing nothing with the arithmetic that it checks. */
import type { Schedule } from "../../src/core/schedule.ts";

interface Zone {
  readonly offsetMs: number;
  /** Instants from which another offset holds, in order. */
  readonly changes: readonly (readonly [at: number, offsetMs: number])[];
}

const HOUR = 3_600_000;

/** Zones of the simulated loops, as the law has them for the months in which worlds begin. */
export const ZONES: Readonly<Record<string, Zone>> = {
  UTC: { offsetMs: 0, changes: [] },
  "Asia/Kolkata": { offsetMs: 5.5 * HOUR, changes: [] },
  "America/New_York": {
    offsetMs: -5 * HOUR,
    changes: [
      [Date.UTC(2026, 2, 8, 7), -4 * HOUR],
      [Date.UTC(2026, 10, 1, 6), -5 * HOUR],
      [Date.UTC(2027, 2, 14, 7), -4 * HOUR],
    ],
  },
  "Europe/Rome": {
    offsetMs: HOUR,
    changes: [
      [Date.UTC(2026, 2, 29, 1), 2 * HOUR],
      [Date.UTC(2026, 9, 25, 1), HOUR],
      [Date.UTC(2027, 2, 28, 1), 2 * HOUR],
    ],
  },
  // Half an hour, the other way round.
  "Australia/Lord_Howe": {
    offsetMs: 11 * HOUR,
    changes: [
      [Date.UTC(2026, 3, 4, 15), 10.5 * HOUR],
      [Date.UTC(2026, 9, 3, 15, 30), 11 * HOUR],
      [Date.UTC(2027, 3, 3, 15), 10.5 * HOUR],
    ],
  },
};

function field(text: string, from: number, to: number): ReadonlySet<number> {
  const numbers = new Set<number>();
  for (const part of text.split(",")) {
    const [range = "*", step] = part.split("/");
    const [low, high] = range === "*" ? [from, to] : range.split("-").map(Number);
    const first = low ?? from;
    const last = high ?? (step === undefined ? first : to);
    for (let n = first; n <= last; n += step === undefined ? 1 : Number(step)) numbers.add(n);
  }
  return numbers;
}

/** Every instant in (after, until], minute by minute for cron. Five fields, no names; day fields are not both restricted. */
export function* walk(schedule: Schedule, after: number, until: number): Generator<number> {
  switch (schedule.kind) {
    case "once":
      if (schedule.at > after && schedule.at <= until) yield schedule.at;
      return;
    case "interval": {
      const n = Math.max(1, Math.floor((after - schedule.anchorAt) / schedule.everyMs));
      for (let at = schedule.anchorAt + n * schedule.everyMs; at <= until; at += schedule.everyMs)
        if (at > after) yield at;
      return;
    }
    case "cron": {
      const zone = ZONES[schedule.zone];
      if (zone === undefined) throw new Error(`the walk does not know the zone ${schedule.zone}`);
      const [m = "*", h = "*", dom = "*", mon = "*", dow = "*"] = schedule.expression.split(" ");
      const [minutes, hours, days, months] = [field(m, 0, 59), field(h, 0, 23), field(dom, 1, 31), field(mon, 1, 12)];
      const weekdays = field(dow, 0, 6);
      const says = (localMs: number): boolean => {
        const local = new Date(localMs);
        return (
          minutes.has(local.getUTCMinutes()) &&
          hours.has(local.getUTCHours()) &&
          days.has(local.getUTCDate()) &&
          months.has(local.getUTCMonth() + 1) &&
          weekdays.has(local.getUTCDay())
        );
      };
      // Each of its local times comes once a day: what the clock skips at the end of the gap, what it repeats the first time.
      const fixed = !/[*/]/.test(m) && !/[*/]/.test(h);
      for (let at = Math.ceil((after + 1) / 60_000) * 60_000; at <= until; at += 60_000) {
        let { offsetMs } = zone;
        let before = offsetMs;
        let changedAt = Number.NEGATIVE_INFINITY;
        for (const [from, next] of zone.changes) {
          if (from > at) break;
          before = offsetMs;
          offsetMs = next;
          changedAt = from;
        }
        const again = fixed && at + offsetMs < changedAt + before;
        let due = !again && says(at + offsetMs);
        if (fixed && at === changedAt)
          for (let local = at + before; !due && local < at + offsetMs; local += 60_000) due = says(local);
        if (due) yield at;
      }
      return;
    }
    case "dynamic":
      return;
  }
}
