/** What to do about errors: those that pass by themselves are waited out, the others are bugs, told and counted. */
import { AppError } from "../core/errors.ts";
import { backoffMs } from "../core/run.ts";
import type { Limits } from "../core/limits.ts";
import type { Clock, Random } from "../core/ports.ts";
import type { Log } from "./ports.ts";

/** The engine is going down: work under way stops where it is, and the next daemon finds it. */
export class Halted extends Error {
  override readonly name = "Halted";
}

export interface Weather {
  /** Repeats work until it is done, waiting while the store is away. Throws `Halted` when the engine goes down, and every other error at once. */
  persist<T>(what: string, work: () => Promise<T>): Promise<T>;
  /** Does it if the store is there; null when it is away. */
  attempt<T>(what: string, work: () => Promise<T>): Promise<T | null>;
  /** The store answered. */
  fine(): void;
  /** Tells an error and answers the pause before another try. @param nth failures in a row, from 1 */
  mishap(what: string, error: unknown, nth: number): number;
  /** Errors that were bugs, since the start. */
  bugs(): number;
}

export interface WeatherOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly limits: Pick<Limits, "storeBackoffMs" | "storeBackoffCapMs">;
  readonly log: Log;
  readonly halted: AbortSignal;
  /** The store said that its disk is full. */
  readonly onFull: () => void;
  /** The store could not do what was asked: what is planned late because of it is explained by it. */
  readonly onAway?: (cause: "disk" | "store") => void;
}

/** Whether an error passes by itself: the store is away, busy or full. */
export const passes = (error: unknown): error is AppError =>
  error instanceof AppError && (error.kind === "unreachable" || error.code === "store_busy");

export function createWeather({ clock, random, limits, log, halted, onFull, onAway }: WeatherOptions): Weather {
  /** Failures of the store since it last answered, folded into two lines of the log. */
  let storm: { readonly since: number; failures: number } | null = null;
  let bugs = 0;

  function chance(): string {
    const [a = 0, b = 0, c = 0, d = 0] = random.bytes(4);
    return `${a}.${b}.${c}.${d}`;
  }
  /** Pauses under way. One signal for all would be listened to by as many attempts as wait for the store. */
  const pauses = new Set<AbortController>();
  halted.addEventListener("abort", () => {
    for (const pause of pauses) pause.abort("halted");
  });

  async function rest(ms: number): Promise<void> {
    const pause = new AbortController();
    pauses.add(pause);
    await clock.sleep(ms, pause.signal);
    pauses.delete(pause);
  }

  const pauseFor = (nth: number) => backoffMs(limits.storeBackoffMs, nth, limits.storeBackoffCapMs, chance());

  function blow(what: string, error: AppError): void {
    const full = error.code === "disk_full";
    if (full) onFull();
    onAway?.(full ? "disk" : "store");
    if (storm === null) {
      storm = { since: clock.awake(), failures: 0 };
      log("warn", "store_away", { what, code: error.code, message: error.message });
    }
    storm.failures++;
  }

  function clear(): void {
    if (storm === null) return;
    log("info", "store_back", { failures: storm.failures, afterMs: Math.round(clock.awake() - storm.since) });
    storm = null;
  }

  /** Does it if the store is there; null when it is away. The answer in an object, since it may be null itself. */
  async function once<T>(what: string, work: () => Promise<T>): Promise<{ readonly answer: T } | null> {
    try {
      const answer = await work();
      clear();
      return { answer };
    } catch (error) {
      if (!passes(error)) throw error;
      blow(what, error);
      return null;
    }
  }

  return {
    async persist(what, work) {
      for (let nth = 1; ; nth++) {
        if (halted.aborted) throw new Halted(what);
        const done = await once(what, work);
        if (done !== null) return done.answer;
        await rest(pauseFor(nth));
      }
    },
    async attempt(what, work) {
      const done = await once(what, work);
      return done === null ? null : done.answer;
    },
    fine: clear,
    mishap(what, error, nth) {
      if (passes(error)) blow(what, error);
      else if (!(error instanceof Halted)) {
        bugs++;
        log("error", "bug", {
          what,
          bugs,
          message: error instanceof Error ? error.message : String(error),
          stack: error instanceof Error ? error.stack : undefined,
        });
      }
      return pauseFor(nth);
    },
    bugs: () => bugs,
  };
}
