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
      const { loops, runs, wakeAt: next, more } = await store.loops.planDue({ cause: told, limits });
      if (runs > 0) onRuns();
      if (more) return again();
      if (cause === told) cause = "late";
      wakeAt(soonest(next, loops, clock));
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
      const { woken, wakeAt: next, more } = await store.steps.wake({ limit: limits.wakeSteps });
      if (woken > 0) onReady();
      if (more) return again();
      wakeAt(soonest(next, woken, clock));
    },
  };
}

/** Where the store's clock is behind ours, what is due here is not due there: it is asked again after this, not at once. */
const SKEW_PAUSE_MS = 1_000;

function soonest(next: Instant | null, done: number, clock: Clock): Instant | null {
  if (next === null || done > 0) return next;
  const now = clock.now();
  return next > now ? next : now + SKEW_PAUSE_MS;
}
