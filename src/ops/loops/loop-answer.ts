/** What operations on one loop answer: the loop, its next instants, and what keeps it from firing. */
import { formatDuration } from "../../core/duration.ts";
import type { LoopRecord } from "../../core/records.ts";
import { type LoopDocument, loopKeys, toLoopDocument, type Warning, warningShape } from "../documents.ts";
import type { DaemonView, StoreContext } from "../operation.ts";
import { listOf, object, type Shape } from "../shape.ts";
import { SHOWN_INSTANTS, type UpcomingDocument, upcoming, upcomingShape } from "./upcoming.ts";

export interface LoopAnswer extends LoopDocument {
  readonly upcoming: readonly UpcomingDocument[];
  readonly warnings: readonly Warning[];
}
export const loopAnswerShape: Shape = object({
  ...loopKeys,
  upcoming: listOf(upcomingShape),
  warnings: listOf(warningShape),
});

export const notFiring = (daemon: DaemonView): readonly Warning[] =>
  daemon.mode === "full"
    ? []
    : [
        {
          code: "not_firing",
          message:
            daemon.mode === "none"
              ? "no daemon is running: loops will not fire"
              : "the daemon only finishes what is queued: loops will not fire",
          hint: "drover up",
        },
      ];

/** A cron expression has no one period: its next instants show whether the jitter reaches over them. */
function longJitter(next: readonly UpcomingDocument[], jitterMs: number): readonly Warning[] {
  const instants = next.map((one) => Date.parse(one.at));
  const closestMs = Math.min(...instants.slice(1).map((at, index) => at - (instants[index] ?? at)));
  if (jitterMs === 0 || jitterMs < closestMs) return [];
  return [
    {
      code: "long_jitter",
      message: `a jitter of ${formatDuration(jitterMs)} may carry a start past the next instant, ${formatDuration(closestMs)} later`,
      hint: "Choose a shorter --jitter.",
    },
  ];
}

/** @param more what else is worth saying of what was done */
export async function answerLoop(
  context: StoreContext,
  loop: LoopRecord,
  more: readonly Warning[] = [],
): Promise<LoopAnswer> {
  const { schedule, status, archivedAt, nextAt } = loop;
  const now = context.clock.now();
  const fires = status === "active" && archivedAt === null;
  // A dynamic loop's one next instant is kept on the loop; all others follow from the schedule.
  const next = !fires
    ? []
    : schedule.kind === "dynamic"
      ? nextAt === null
        ? []
        : await upcoming({ kind: "once", at: nextAt }, nextAt - 1, 1, context.hostZone)
      : await upcoming(schedule, Math.max(now, loop.plannedUntil), SHOWN_INSTANTS, context.hostZone);
  const { expiresAt } = loop.policy;
  return {
    ...toLoopDocument(loop),
    upcoming: expiresAt === null ? next : next.filter((one) => Date.parse(one.at) < expiresAt),
    warnings: [...more, ...(fires ? notFiring(await context.daemon()) : []), ...longJitter(next, loop.policy.jitterMs)],
  };
}
