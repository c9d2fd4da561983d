/** Plans what is due: loops whose next slot has come, and waiting steps whose time has come. */
import type { Limits } from "../core/limits.ts";
import type { LateCause } from "../core/plan.ts";
import type { Clock, Instant, Store } from "../core/ports.ts";
import type { Actor } from "./wake.ts";

export interface Scheduler extends Actor {
  /** Why instants that are noticed from now on are late. */
  explain(cause: LateCause): void;
}

export interface SchedulerOptions {
  readonly clock: Clock;
  readonly store: Store;
  readonly limits: Limits;
  readonly wakeAt: (instant: Instant | null) => void;
  readonly again: () => void;
  /** Runs were made, and perhaps older ones asked to end. */
  readonly onRuns: () => void;
}

/** The actor `plan`. Its first tick stands for the time in which no daemon was there. */
export function createScheduler({ clock, store, limits, wakeAt, again, onRuns }: SchedulerOptions): Scheduler {
  let cause: LateCause = "down";
  return {
    name: "plan",
    explain(found) {
      // What the absence explains is explained by it until it has been planned.
      if (cause !== "down") cause = found;
    },
    async tick() {
      const told = cause;
      const askedAt = clock.now();
      const { runs, wakeAt: next, more, now } = await store.loops.planDue({ cause: told, limits });
      if (runs > 0) onRuns();
      if (more) return again();
      if (cause === told) cause = "late";
      wakeAt(byOurClock(next, now, askedAt, clock.now()));
    },
  };
}

export interface TimersOptions {
  readonly clock: Clock;
  readonly store: Store;
  readonly limits: Limits;
  readonly wakeAt: (instant: Instant | null) => void;
  readonly again: () => void;
  readonly onReady: () => void;
}

/** The actor `timers`: makes waiting steps ready. */
export function createTimers({ clock, store, limits, wakeAt, again, onReady }: TimersOptions): Actor {
  return {
    name: "timers",
    async tick() {
      const askedAt = clock.now();
      const { woken, wakeAt: next, more, now } = await store.steps.wake({ limit: limits.wakeSteps });
      if (woken > 0) onReady();
      if (more) return again();
      wakeAt(byOurClock(next, now, askedAt, clock.now()));
    },
  };
}

/** An instant of the store's clock by ours, which may be wrong. What the way to the store and back explains is no difference. */
export function byOurClock(
  instant: Instant | null,
  storeNow: Instant,
  askedAt: Instant,
  answeredAt: Instant,
): Instant | null {
  if (instant === null || (storeNow >= askedAt && storeNow <= answeredAt)) return instant;
  return instant - storeNow + Math.round((askedAt + answeredAt) / 2);
}
