/** Virtual time: one queue of events for the whole world, and for each host clocks that can part. */
import type { Clock, Instant } from "../../src/core/ports.ts";

/** Ends a wait that is no longer wanted. */
export type Cancel = () => void;

export interface Time {
  /** Milliseconds since the beginning, whatever any host's clock says. */
  readonly now: number;
  /** Events that have happened. */
  readonly steps: number;
  at(instant: number, happen: () => void): Cancel;
  /** Lets all happen that follows at once from what was done outside of events. */
  settle(): Promise<void>;
  /** Lets the next event happen, and all that follows from it at once. Answers false when there is none before `until`. */
  step(until: number): Promise<boolean>;
}

interface Entry {
  readonly at: number;
  readonly order: number;
  happen: (() => void) | null;
}

const earlier = (a: Entry, b: Entry) => a.at < b.at || (a.at === b.at && a.order < b.order);

/** @param busy what is still out and keeps time from moving on; null when nothing is */
export function createTime(busy: () => Promise<void> | null = () => null): Time {
  const heap: Entry[] = [];
  let now = 0;
  let order = 0;
  let steps = 0;

  // All that follows without waiting follows in microtasks; this lets every one of them run.
  const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
  async function settle(): Promise<void> {
    await turn();
    for (let out = busy(); out !== null; out = busy()) {
      await out;
      await turn();
    }
  }

  function push(entry: Entry): void {
    let i = heap.push(entry) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!earlier(entry, heap[parent] as Entry)) break;
      heap[i] = heap[parent] as Entry;
      i = parent;
    }
    heap[i] = entry;
  }

  function pop(): Entry | undefined {
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && earlier(heap[child + 1] as Entry, heap[child] as Entry)) child++;
      if (!earlier(heap[child] as Entry, last)) break;
      heap[i] = heap[child] as Entry;
      i = child;
    }
    heap[i] = last;
    return first;
  }

  return {
    get now() {
      return now;
    },
    get steps() {
      return steps;
    },
    at(instant, happen) {
      const entry: Entry = { at: Math.max(now, instant), order: order++, happen };
      push(entry);
      return () => {
        entry.happen = null;
      };
    },
    settle,
    async step(until) {
      for (;;) {
        const entry = heap[0];
        if (entry === undefined || entry.at > until) {
          now = Math.max(now, until);
          return false;
        }
        pop();
        if (entry.happen === null) continue;
        now = entry.at;
        steps++;
        entry.happen();
        await settle();
        return true;
      }
    },
  };
}

/** The clocks of one host. A suspend stops `awake` and all that runs there; a reboot begins both anew. */
export interface HostTime {
  now(): Instant;
  awake(): number;
  uptime(): number;
  readonly suspended: boolean;
  /** When it last woke from a suspend, in true time. */
  readonly wokeAt: number;
  /** Happens after that many awake milliseconds of this boot; never, when the host is rebooted before. */
  after(ms: number, happen: () => void): Cancel;
  suspend(ms: number): void;
  /** Sets the wall clock forward, or back. */
  step(ms: number): void;
  reboot(): void;
}

export function createHostTime(time: Time, beginsAt: Instant): HostTime {
  let wallStepMs = 0;
  let bootedAt = 0;
  let asleepMs = 0;
  let asleepSince: number | null = null;
  let boot = 0;
  let frozen: (() => void)[] = [];
  let wokeAt = 0;

  const awake = () => (asleepSince ?? time.now) - bootedAt - asleepMs;

  function after(ms: number, happen: () => void): Cancel {
    const dueAt = awake() + Math.max(0, ms);
    const of = boot;
    let cancelled = false;
    let cancel: Cancel = () => {};
    const arrive = () => {
      if (cancelled || of !== boot) return;
      if (asleepSince !== null) {
        frozen.push(arrive);
        return;
      }
      const leftMs = dueAt - awake();
      if (leftMs > 0) cancel = time.at(time.now + leftMs, arrive);
      else happen();
    };
    cancel = time.at(time.now + Math.max(0, ms), arrive);
    return () => {
      cancelled = true;
      cancel();
    };
  }

  return {
    now: () => beginsAt + Math.floor(time.now) + wallStepMs,
    awake,
    uptime: () => time.now - bootedAt,
    get suspended() {
      return asleepSince !== null;
    },
    get wokeAt() {
      return wokeAt;
    },
    after,
    suspend(ms) {
      if (asleepSince !== null) return;
      asleepSince = time.now;
      const of = boot;
      time.at(time.now + ms, () => {
        if (asleepSince === null || of !== boot) return;
        asleepMs += time.now - asleepSince;
        asleepSince = null;
        wokeAt = time.now;
        const thawed = frozen;
        frozen = [];
        for (const arrive of thawed) time.at(time.now, arrive);
      });
    },
    step(ms) {
      wallStepMs += ms;
    },
    reboot() {
      boot++;
      bootedAt = time.now;
      asleepMs = 0;
      asleepSince = null;
      frozen = [];
    },
  };
}

/** One daemon's process as time sees it: it can die, and it can be stopped for a while. */
export interface Context {
  readonly alive: boolean;
  readonly stalled: boolean;
  /** Lets something reach the process: at once, when it is stopped no more, or never. */
  deliver(happen: () => void): void;
  stall(ms: number): void;
  die(): void;
  /** Called when it dies. */
  onEnd(listener: () => void): void;
}

export function createContext(host: HostTime): Context {
  let alive = true;
  let stalled = false;
  let held: (() => void)[] = [];
  const listeners: (() => void)[] = [];
  return {
    get alive() {
      return alive;
    },
    get stalled() {
      return stalled;
    },
    deliver(happen) {
      if (!alive) return;
      if (stalled) held.push(happen);
      else happen();
    },
    stall(ms) {
      if (stalled || !alive) return;
      stalled = true;
      host.after(ms, () => {
        stalled = false;
        const arrived = held;
        held = [];
        if (alive) for (const happen of arrived) happen();
      });
    },
    die() {
      alive = false;
      held = [];
      for (const listener of listeners.splice(0)) listener();
    },
    onEnd: (listener) => listeners.push(listener),
  };
}

/** A promise that nobody ever hears of again: what a call of a dead process answers. */
export const never = <T>(): Promise<T> => new Promise<T>(() => {});

/** The Clock port of one process. */
export function clockOf(host: HostTime, context: Context): Clock {
  return {
    now: host.now,
    awake: host.awake,
    uptime: host.uptime,
    sleep: (ms, signal) =>
      new Promise<boolean>((resolve) => {
        if (signal?.aborted === true) return resolve(false);
        const onAbort = () => {
          cancel();
          resolve(false);
        };
        const cancel = host.after(ms, () =>
          context.deliver(() => {
            signal?.removeEventListener("abort", onAbort);
            resolve(true);
          }),
        );
        signal?.addEventListener("abort", onAbort, { once: true });
      }),
  };
}
