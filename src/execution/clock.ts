import { readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import type { Clock } from "../core/ports.ts";

/** The real clock. `awake` is CLOCK_MONOTONIC: it stands still in suspend and does not see steps of the wall clock. */
export function systemClock(): Clock {
  const awake = () => Number(process.hrtime.bigint() / 1_000_000n);
  return {
    now: Date.now,
    awake,
    uptime: () => uptimeMs() ?? awake(),
    sleep: async (ms, signal) => {
      try {
        await delay(Math.max(0, ms), undefined, signal === undefined ? {} : { signal });
        return true;
      } catch (error) {
        if (signal?.aborted === true) return false;
        throw error;
      }
    },
  };
}

/** Milliseconds since boot with suspend counted, by Linux; null elsewhere. */
function uptimeMs(): number | null {
  try {
    return Math.round(Number.parseFloat(readFileSync("/proc/uptime", "latin1")) * 1000);
  } catch {
    return null; // no /proc here: the caller falls back to the monotonic clock
  }
}
