import { openSync, readSync } from "node:fs";
import type { Clock } from "../core/ports.ts";

/** The real clock. `awake` is CLOCK_MONOTONIC: it stands still in suspend and does not see steps of the wall clock. */
export function systemClock(): Clock {
  const awake = () => Number(process.hrtime.bigint() / 1_000_000n);
  return {
    now: Date.now,
    awake,
    uptime: () => uptimeMs() ?? awake(),
    // Node's own promise makes an error with a stack for each sleep that is cut short, and most of ours are.
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted === true) return resolve(false);
        const rouse = (): void => {
          clearTimeout(timer);
          resolve(false);
        };
        const timer = setTimeout(
          () => {
            signal?.removeEventListener("abort", rouse);
            resolve(true);
          },
          Math.max(0, ms),
        );
        signal?.addEventListener("abort", rouse, { once: true });
      }),
  };
}

/** /proc/uptime, held open: it is read at each wake-up. Undefined until it is asked for, null where there is none. */
let uptimeFile: number | null | undefined;
const uptimeText = Buffer.alloc(64);

/** Milliseconds since boot with suspend counted, by Linux; null elsewhere. */
function uptimeMs(): number | null {
  try {
    if (uptimeFile === undefined) uptimeFile = openSync("/proc/uptime", "r");
    if (uptimeFile === null) return null;
    const length = readSync(uptimeFile, uptimeText, 0, uptimeText.length, 0);
    return Math.round(Number.parseFloat(uptimeText.toString("latin1", 0, length)) * 1000);
  } catch {
    uptimeFile = null; // no /proc here: the caller falls back to the monotonic clock
    return null;
  }
}
