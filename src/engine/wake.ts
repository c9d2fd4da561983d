/** The one place that waits: actors name when they want to be woken, and each wake-up compares the clocks. */
import type { Limits } from "../core/limits.ts";
import type { LateCause } from "../core/plan.ts";
import type { Clock, Instant } from "../core/ports.ts";

/** Something that acts when it is woken: one bounded tick at a time. */
export interface Actor {
  readonly name: string;
  tick(): Promise<void>;
}

/** The three clocks at one moment. */
export interface Clocks {
  readonly now: Instant;
  readonly awakeMs: number;
  readonly uptimeMs: number;
}

export interface Gap {
  /** Milliseconds in which the host was suspended. */
  readonly asleepMs: number;
  /** By how much the wall clock was set forward; negative for backward. */
  readonly steppedMs: number;
  /** Awake milliseconds by which the wake-up came later than wished: stopped, starved or busy. */
  readonly lateMs: number;
}

/** What happened between two readings of the clocks, of which `intendedMs` were meant to pass. */
export function gapBetween(before: Clocks, after: Clocks, intendedMs: number): Gap {
  const awakeMs = after.awakeMs - before.awakeMs;
  const uptimeMs = after.uptimeMs - before.uptimeMs;
  return {
    asleepMs: Math.max(0, uptimeMs - awakeMs),
    steppedMs: after.now - before.now - uptimeMs,
    lateMs: Math.max(0, awakeMs - intendedMs),
  };
}

/** Why instants that are noticed now are late; null when nothing out of the ordinary happened. */
export function causeOf(gap: Gap, limits: Pick<Limits, "clockStepMs">): LateCause | null {
  if (gap.asleepMs > limits.clockStepMs) return "asleep";
  if (Math.abs(gap.steppedMs) > limits.clockStepMs) return "clock_step";
  if (gap.lateMs > limits.clockStepMs) return "late";
  return null;
}

export interface Wake {
  add(actor: Actor): void;
  /** From now on this actor is not woken. */
  drop(name: string): void;
  /** Wakes the actor at that wall instant; null withdraws the wish. The last wish counts, until it is woken. */
  at(name: string, instant: Instant | null): void;
  /** Wakes the actor within that many milliseconds of awake time; the earliest wish counts, until it is woken. */
  within(name: string, ms: number): void;
  poke(...names: readonly string[]): void;
  /** Serves wishes until `stop`. */
  run(): Promise<void>;
  /** Wakes nobody any more. Resolves when no tick is under way. */
  stop(): Promise<void>;
}

export interface WakeOptions {
  readonly clock: Clock;
  readonly limits: Pick<Limits, "longestSleepMs" | "clockStepMs">;
  readonly onWake: () => void;
  readonly onGap: (cause: LateCause, gap: Gap) => void;
  /** A tick failed: answers the pause after which it is tried again. */
  readonly onMishap: (name: string, error: unknown) => number;
}

interface Wish {
  readonly actor: Actor;
  at: Instant | null;
  awakeAt: number | null;
  poked: boolean;
  busy: boolean;
}

export function createWake({ clock, limits, onWake, onGap, onMishap }: WakeOptions): Wake {
  const wishes = new Map<string, Wish>();
  const ticks = new Set<Promise<void>>();
  let stopped = false;
  let ended: Promise<void> = Promise.resolve();
  /** Ends the sleep under way. */
  let rouse: AbortController | null = null;
  let sleepsUntil = 0;

  const readClocks = (): Clocks => ({ now: clock.now(), awakeMs: clock.awake(), uptimeMs: clock.uptime() });

  function nudge(awakeAt: number): void {
    if (rouse === null || awakeAt >= sleepsUntil) return;
    rouse.abort("roused");
    rouse = null;
  }

  const isDue = (wish: Wish, now: Instant, awake: number) =>
    !wish.busy &&
    (wish.poked || (wish.at !== null && wish.at <= now) || (wish.awakeAt !== null && wish.awakeAt <= awake));

  /** Starts all due ticks in one turn of the event loop, so that their first calls of the store share a commit. */
  function fire(now: Instant, awake: number): void {
    for (const wish of wishes.values()) {
      if (!isDue(wish, now, awake)) continue;
      wish.at = null;
      wish.awakeAt = null;
      wish.poked = false;
      wish.busy = true;
      const tick = attend(wish);
      ticks.add(tick);
      void tick.finally(() => ticks.delete(tick));
    }
  }

  async function attend(wish: Wish): Promise<void> {
    try {
      await wish.actor.tick();
    } catch (error) {
      const pauseMs = onMishap(wish.actor.name, error);
      const awakeAt = clock.awake() + pauseMs;
      wish.awakeAt = wish.awakeAt === null ? awakeAt : Math.min(wish.awakeAt, awakeAt);
    } finally {
      wish.busy = false;
      // What it wished for while it was at work is looked at now.
      nudge(Number.NEGATIVE_INFINITY);
    }
  }

  function pauseMs(now: Instant, awake: number): number {
    let pause = limits.longestSleepMs;
    for (const wish of wishes.values()) {
      if (wish.busy) continue;
      if (wish.poked) return 0;
      if (wish.at !== null) pause = Math.min(pause, wish.at - now);
      if (wish.awakeAt !== null) pause = Math.min(pause, wish.awakeAt - awake);
    }
    return pause;
  }

  async function serve(): Promise<void> {
    let before = readClocks();
    let intendedMs = 0;
    while (!stopped) {
      onWake();
      const clocks = readClocks();
      const gap = gapBetween(before, clocks, intendedMs);
      const cause = causeOf(gap, limits);
      if (cause !== null) onGap(cause, gap);
      before = clocks;
      fire(clocks.now, clocks.awakeMs);
      intendedMs = pauseMs(clocks.now, clocks.awakeMs);
      if (intendedMs <= 0) {
        intendedMs = 0;
        continue;
      }
      const controller = new AbortController();
      rouse = controller;
      sleepsUntil = clocks.awakeMs + intendedMs;
      await clock.sleep(intendedMs, controller.signal);
      rouse = null;
    }
  }

  const wishOf = (name: string): Wish | null => (stopped ? null : (wishes.get(name) ?? null));

  return {
    add(actor) {
      wishes.set(actor.name, { actor, at: null, awakeAt: null, poked: false, busy: false });
    },
    drop(name) {
      wishes.delete(name);
    },
    at(name, instant) {
      const wish = wishOf(name);
      if (wish === null) return;
      wish.at = instant;
      if (instant !== null) nudge(clock.awake() + (instant - clock.now()));
    },
    within(name, ms) {
      const wish = wishOf(name);
      if (wish === null) return;
      const awakeAt = clock.awake() + ms;
      wish.awakeAt = wish.awakeAt === null ? awakeAt : Math.min(wish.awakeAt, awakeAt);
      nudge(awakeAt);
    },
    poke(...names) {
      for (const name of names) {
        const wish = wishOf(name);
        if (wish !== null) wish.poked = true;
      }
      nudge(Number.NEGATIVE_INFINITY);
    },
    run() {
      ended = serve();
      return ended;
    },
    async stop() {
      stopped = true;
      rouse?.abort("stopped");
      rouse = null;
      await ended;
      await Promise.all(ticks);
    },
  };
}
