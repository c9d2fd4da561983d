/** The next instants of a schedule with their local times, as `loop show`, `loop add` and `schedule next` print them. */
import type { Instant } from "../../core/ports.ts";
import type { Schedule } from "../../core/schedule.ts";
import { iso } from "../documents.ts";
import { boolean, instant, object, type Shape, string } from "../shape.ts";

/** How many instants are shown where none is said. */
export const SHOWN_INSTANTS = 5;

export interface UpcomingDocument {
  readonly at: string;
  /** Local time with its offset. */
  readonly local: string;
  /** The clock changes between this instant and the one before, or at it. */
  readonly clockChange: boolean;
}
export const upcomingShape: Shape = object({ at: instant, local: string, clockChange: boolean });

/** The zone in which a schedule's instants are shown. */
export const zoneOf = (schedule: Schedule, hostZone: string): string =>
  schedule.kind === "cron" ? schedule.zone : hostZone;

/** The next instants after `from`, by the function that the scheduler uses. */
export async function upcoming(
  schedule: Schedule,
  from: Instant,
  count: number,
  hostZone: string,
): Promise<readonly UpcomingDocument[]> {
  const { instantsBetween } = await import("../../core/schedule.ts");
  const { formatLocal, offsetAt, LAST_INSTANT } = await import("../../core/zone.ts");
  const zone = zoneOf(schedule, hostZone);
  let before = from;
  return instantsBetween(schedule, from, LAST_INSTANT, count).map((at) => {
    const clockChange = offsetAt(zone, before) !== offsetAt(zone, at);
    before = at;
    return { at: iso(at), local: formatLocal(zone, at), clockChange };
  });
}
