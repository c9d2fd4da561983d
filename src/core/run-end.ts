/** What the end of a run means for the loop that it belongs to. */
import type { Limits } from "./limits.ts";
import type { LoopPolicy } from "./loop.ts";
import type { LoopStatus } from "./loop-states.ts";
import type { Instant } from "./ports.ts";
import type { FailureClass, FinalStatus } from "./run.ts";
import type { Schedule } from "./schedule.ts";

export interface LoopAtEnd {
  readonly status: LoopStatus;
  readonly schedule: Schedule;
  readonly policy: LoopPolicy;
  readonly plannedUntil: Instant;
  /** Since when the schedule is what it is. */
  readonly anchoredAt: Instant;
  readonly successStreak: number;
  readonly failureStreak: number;
  readonly failureClass: FailureClass | null;
}

export interface RunAtEnd {
  readonly status: FinalStatus;
  readonly class: FailureClass | null;
  readonly output: string | null;
  /** The slot that it ran for. Null by hand: such runs count for streaks, and leave the schedule alone. */
  readonly slotAt: Instant | null;
}

export interface LoopAfterRun {
  readonly successStreak: number;
  readonly failureStreak: number;
  readonly failureClass: FailureClass | null;
  /** `pause` by the breaker, `expire` by its successes, `finish` of a once loop. */
  readonly becomes: { readonly event: "trip" | "expire" | "finish"; readonly reason: string } | null;
  /** For a dynamic loop, when its next slot is; undefined leaves the schedule alone. */
  readonly nextAt: Instant | undefined;
  /** Whether this end is the first failure after a success, or the recovery from failures: the ends that `--on-failure` tells. */
  readonly turned: boolean;
}

export function afterRun(loop: LoopAtEnd, run: RunAtEnd, now: Instant, limits: Limits): LoopAfterRun {
  const failed = run.status === "failed" || run.status === "timed_out";
  const succeeded = run.status === "succeeded";
  const sameFailure = failed && loop.failureStreak > 0 && loop.failureClass === run.class;
  const successStreak = succeeded ? loop.successStreak + 1 : failed ? 0 : loop.successStreak;
  const failureStreak = failed ? (sameFailure ? loop.failureStreak + 1 : 1) : succeeded ? 0 : loop.failureStreak;
  const failureClass = failed ? run.class : succeeded ? null : loop.failureClass;
  const turned = (failed && loop.failureStreak === 0) || (succeeded && loop.failureStreak > 0);

  let becomes: LoopAfterRun["becomes"] = null;
  const { breaker, expiresAfterRuns } = loop.policy;
  if (loop.status === "active" && failed && breaker > 0 && failureStreak >= breaker)
    becomes = {
      event: "trip",
      reason: `circuit breaker: ${failureStreak} failures in a row (${failureClass ?? "unknown"}); mend the cause, then resume the loop`,
    };
  else if (
    (loop.status === "active" || loop.status === "paused") &&
    expiresAfterRuns !== null &&
    succeeded &&
    successStreak >= expiresAfterRuns
  )
    becomes = { event: "expire", reason: `${successStreak} successes in a row` };
  else if (
    loop.schedule.kind === "once" &&
    run.slotAt === loop.schedule.at &&
    (loop.status === "active" || loop.status === "paused")
  )
    becomes = { event: "finish", reason: "its one slot is over" };

  // A slot from before the schedule was edited says nothing of what the schedule is now.
  const nextAt =
    loop.schedule.kind === "dynamic" && run.slotAt !== null && run.slotAt >= loop.anchoredAt
      ? dynamicNext(run.output, loop.plannedUntil, now, limits)
      : undefined;
  return { successStreak, failureStreak, failureClass, becomes, nextAt, turned };
}

/** `nextAt` (ISO-8601 or milliseconds) or `nextAfterMs` of a run's output; the usual pause when neither makes sense. Never before now. */
export function dynamicNext(output: string | null, plannedUntil: Instant, now: Instant, limits: Limits): Instant {
  const floor = Math.max(now, plannedUntil + 1);
  const usual = Math.max(floor, now + limits.dynamicGapMs);
  if (output === null) return usual;
  let said: unknown;
  try {
    said = JSON.parse(output);
  } catch {
    return usual; // an output that is not JSON has already failed the run; the schedule goes on
  }
  if (typeof said !== "object" || said === null) return usual;
  const { nextAt, nextAfterMs } = said as { nextAt?: unknown; nextAfterMs?: unknown };
  if (typeof nextAfterMs === "number" && Number.isFinite(nextAfterMs) && nextAfterMs >= 0)
    return Math.max(floor, Math.round(now + nextAfterMs));
  const at = typeof nextAt === "number" ? nextAt : typeof nextAt === "string" ? Date.parse(nextAt) : Number.NaN;
  return Number.isFinite(at) ? Math.max(floor, Math.round(at)) : usual;
}
