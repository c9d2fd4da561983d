/** Due instants by walking: the schedule's words read again, sharing nothing with the arithmetic that it checks. */
import type { Schedule } from "../../src/core/schedule.ts";

/** Zones of the simulated loops, with the offset that they have all year. */
export const FIXED_ZONES: Readonly<Record<string, number>> = {
  UTC: 0,
  "Asia/Kolkata": 330 * 60_000,
  "America/Phoenix": -420 * 60_000,
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
      const offsetMs = FIXED_ZONES[schedule.zone];
      if (offsetMs === undefined) throw new Error(`the walk does not know the zone ${schedule.zone}`);
      const [m = "*", h = "*", dom = "*", mon = "*", dow = "*"] = schedule.expression.split(" ");
      const [minutes, hours, days, months] = [field(m, 0, 59), field(h, 0, 23), field(dom, 1, 31), field(mon, 1, 12)];
      const weekdays = field(dow, 0, 6);
      for (let at = Math.ceil((after + 1) / 60_000) * 60_000; at <= until; at += 60_000) {
        const local = new Date(at + offsetMs);
        if (!minutes.has(local.getUTCMinutes()) || !hours.has(local.getUTCHours())) continue;
        if (!days.has(local.getUTCDate()) || !months.has(local.getUTCMonth() + 1) || !weekdays.has(local.getUTCDay()))
          continue;
        yield at;
      }
      return;
    }
    case "dynamic":
      return;
  }
}
