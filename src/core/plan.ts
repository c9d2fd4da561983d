/** What becomes of a loop's due instants: one pure decision for the scheduler, for edits, for `why` and for the simulator. */
import { stableFraction } from "./chance.ts";
import type { Limits } from "./limits.ts";
import type { LoopPolicy } from "./loop.ts";
import type { LoopStatus } from "./loop-states.ts";
import type { Instant } from "./ports.ts";
import { countBetween, instantsBetween, lastInstants, nextInstant, periodAt, type Schedule } from "./schedule.ts";

/** Why instants were noticed late: the daemon was down, the host slept, the clock was stepped, or nothing that we know of. */
export const lateCauses = ["down", "asleep", "clock_step", "disk", "store", "late"] as const;
export type LateCause = (typeof lateCauses)[number];

/** Why an instant starts nothing. Closed: `why` has a sentence for each. */
export const slotReasons = [
  ...lateCauses,
  "overlap",
  "queue_full",
  "limit",
  "edited",
  "restored",
  "paused",
  "expired",
  "finished",
  "archived",
] as const;
export type SlotReason = (typeof slotReasons)[number];

export interface PlanView {
  readonly loopId: string;
  readonly status: LoopStatus | "archived";
  readonly schedule: Schedule;
  readonly policy: LoopPolicy;
  /** Every instant up to and including this one is recorded. */
  readonly plannedUntil: Instant;
  /** When this schedule was set: an instant cannot have been due before. */
  readonly anchoredAt: Instant;
  /** The next slot; for a dynamic loop the only place where it is kept. */
  readonly nextAt: Instant | null;
  /** Runs of this loop that may be at work: released and not ended. */
  readonly active: number;
  /** Runs of this loop that wait until earlier ones have ended. */
  readonly waitingTurn: number;
}

/** One row of `slots`: an instant, or neighbours that end in the same word. */
export interface PlannedSlot {
  readonly at: Instant;
  readonly untilAt: Instant;
  readonly count: number;
  readonly lateMs: number;
  readonly decision: /** `turn`: the run waits until the loop's earlier runs have ended. */
    | {
        readonly kind: "run";
        readonly start: "now" | "turn";
        readonly notBefore: Instant;
        readonly supersede: boolean;
        readonly chained: boolean;
      }
    | {
        readonly kind: "end";
        readonly outcome: "skipped" | "missed" | "coalesced";
        readonly reason: SlotReason;
        readonly into: Instant | null;
      };
}

export interface Plan {
  readonly slots: readonly PlannedSlot[];
  readonly plannedUntil: Instant;
  readonly nextAt: Instant | null;
  readonly becomes: "expired" | "finished" | null;
}

/**
 * Plans every instant in (plannedUntil, now]. Late instants follow the catch-up policy, on-time ones the overlap policy.
 * With `forbidPast` (an edit) all of them are recorded as missed and start nothing.
 */
export function planDue(
  view: PlanView,
  now: Instant,
  cause: LateCause,
  limits: Limits,
  forbidPast: SlotReason | null = null,
): Plan {
  const { policy } = view;
  const schedule: Schedule | null =
    view.schedule.kind !== "dynamic" ? view.schedule : view.nextAt === null ? null : { kind: "once", at: view.nextAt };
  const end = policy.expiresAt === null ? now : Math.min(now, policy.expiresAt - 1);
  const from = view.plannedUntil;
  const expired = policy.expiresAt !== null && now >= policy.expiresAt;
  if (schedule === null || end <= from) {
    const upcoming = schedule === null || expired ? null : nextInstant(schedule, from);
    return {
      slots: [],
      plannedUntil: from,
      nextAt: withinLife(upcoming, policy.expiresAt),
      becomes: expired ? "expired" : null,
    };
  }

  if (view.status !== "active") {
    // Recorded when the loop comes back to life: one row for all that passed meanwhile.
    const slots = summary(schedule, from, end, now, "skipped", view.status);
    return close(view, schedule, slots, end, now, expired, limits);
  }

  // A once loop that is added for the past is due when it is added; so lateness never counts from before the anchor.
  const lateness = (at: Instant) => now - Math.max(at, view.anchoredAt);
  const recentFrom = schedule.kind === "once" ? from : Math.max(from, now - limits.onTimeMs - 1);
  // What was due before an edit is past, however short ago.
  const punctual =
    forbidPast !== null
      ? []
      : instantsBetween(schedule, recentFrom, end, 1_000).filter(
          (at) => lateness(at) <= Math.min(limits.onTimeMs, periodAt(schedule, at)),
        );
  const firstPunctual = punctual[0];
  const lateEnd = firstPunctual === undefined ? end : firstPunctual - 1;

  const slots: PlannedSlot[] = [];
  let active = view.active;
  let queued = view.waitingTurn;
  const startOf = (at: Instant, start: "now" | "turn", supersede = false, chained = false): PlannedSlot => {
    if (start === "now") active++;
    else queued++;
    const putOff = policy.jitterMs === 0 ? 0 : Math.floor(policy.jitterMs * stableFraction(`${view.loopId}:${at}`));
    return {
      at,
      untilAt: at,
      count: 1,
      lateMs: Math.max(0, now - at),
      decision: { kind: "run", start, notBefore: Math.max(now, at + putOff), supersede, chained },
    };
  };
  const ended = (
    at: Instant,
    outcome: "skipped" | "missed" | "coalesced",
    reason: SlotReason,
    into: Instant | null = null,
  ): PlannedSlot => ({
    at,
    untilAt: at,
    count: 1,
    lateMs: Math.max(0, now - at),
    decision: { kind: "end", outcome, reason, into },
  });
  /** How an on-time instant meets the runs that are there. */
  const meets = (at: Instant): PlannedSlot => {
    if (active + queued === 0 || policy.overlap === "allow") return startOf(at, "now");
    if (policy.overlap === "queue")
      return queued >= policy.queueLimit ? ended(at, "skipped", "queue_full") : startOf(at, "turn");
    if (policy.overlap === "cancel") return startOf(at, "turn", true);
    return ended(at, "skipped", "overlap");
  };
  const aside = policy.overlap === "allow" ? "now" : "turn";

  const lateCount = countBetween(schedule, from, lateEnd);
  if (lateCount > 0) {
    if (forbidPast !== null) slots.push(...summary(schedule, from, lateEnd, now, "missed", forbidPast));
    else if (policy.catchUp === "none") slots.push(...summary(schedule, from, lateEnd, now, "missed", cause));
    else if (policy.catchUp === "latest") {
      const newest = lastInstants(schedule, from, lateEnd, 1)[0] ?? lateEnd;
      const onTimeRuns =
        firstPunctual !== undefined &&
        (policy.overlap !== "skip" || active + queued === 0) &&
        !(policy.overlap === "queue" && queued >= policy.queueLimit);
      const into = onTimeRuns ? firstPunctual : newest;
      const before = onTimeRuns ? lateEnd : newest - 1;
      slots.push(...summary(schedule, from, before, now, "coalesced", cause, into));
      if (!onTimeRuns)
        slots.push(
          startOf(newest, active + queued === 0 ? "now" : aside, policy.overlap === "cancel" && active + queued > 0),
        );
    } else {
      const taken = instantsBetween(schedule, from, lateEnd, policy.catchUpLimit);
      for (const at of taken) slots.push(startOf(at, active + queued === 0 ? "now" : "turn", false, true));
      const last = taken.at(-1) ?? from;
      slots.push(...summary(schedule, last, lateEnd, now, "missed", "limit"));
    }
  }
  for (const at of punctual) slots.push(meets(at));
  return close(view, schedule, slots, end, now, expired, limits);
}

/** One row for all instants in (from, until]; none when there is none. */
function summary(
  schedule: Schedule,
  from: Instant,
  until: Instant,
  now: Instant,
  outcome: "skipped" | "missed" | "coalesced",
  reason: SlotReason,
  into: Instant | null = null,
): PlannedSlot[] {
  const count = countBetween(schedule, from, until);
  if (count === 0) return [];
  const at = nextInstant(schedule, from) ?? until;
  const untilAt = lastInstants(schedule, from, until, 1)[0] ?? at;
  return [{ at, untilAt, count, lateMs: Math.max(0, now - at), decision: { kind: "end", outcome, reason, into } }];
}

function close(
  view: PlanView,
  schedule: Schedule,
  slots: readonly PlannedSlot[],
  end: Instant,
  now: Instant,
  expired: boolean,
  limits: Limits,
): Plan {
  const starts = slots.some((slot) => slot.decision.kind === "run");
  let upcoming = nextInstant(schedule, end);
  let becomes: Plan["becomes"] = expired ? "expired" : null;
  if (view.schedule.kind === "dynamic" && slots.length > 0)
    // The run's end says when the next one is; where nothing runs, the usual pause does.
    upcoming = starts ? null : now + limits.dynamicGapMs;
  if (view.schedule.kind === "once" && slots.length > 0 && !starts) becomes = "finished";
  return {
    slots,
    plannedUntil: end,
    nextAt: becomes === null ? withinLife(upcoming, view.policy.expiresAt) : null,
    becomes,
  };
}

const withinLife = (at: Instant | null, expiresAt: Instant | null) =>
  at !== null && expiresAt !== null && at >= expiresAt ? null : at;

/** Each instant of a row that stands for several. The schedule is the one that the row was written under. */
export const expandSlot = (schedule: Schedule, at: Instant, untilAt: Instant, limit: number): Instant[] =>
  instantsBetween(schedule, at - 1, untilAt, limit);
