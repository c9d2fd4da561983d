/** The pulse between a main thread and the thread that renews its leases. */
import { writeSync } from "node:fs";

/** Where a main thread and its heartbeat meet: beats counted, whether attempts are live, and the Clock's distance from the system's. */
export interface Pulse {
  readonly counts: Int32Array;
  readonly skewMs: Float64Array;
}

const PULSE_BYTES = 16;
export const newPulse = (): SharedArrayBuffer => new SharedArrayBuffer(PULSE_BYTES);
export const pulseOf = (shared: SharedArrayBuffer): Pulse => ({
  counts: new Int32Array(shared, 0, 2),
  skewMs: new Float64Array(shared, 8, 1),
});

/** The main thread's side of a pulse. `now` is the Clock's. */
export function beatInto(pulse: Pulse, live: boolean, now: number): void {
  pulse.skewMs[0] = now - Date.now();
  Atomics.store(pulse.counts, 1, live ? 1 : 0);
  Atomics.add(pulse.counts, 0, 1);
}

/**
 * Calls `renew` every `everyMs` while the main thread beats; ends the process when it has been silent for `patienceMs`.
 * Time in which this thread did not run either (a suspended or stopped process) is not the main thread's silence.
 */
export function watchPulse(
  pulse: Pulse,
  { everyMs, patienceMs }: { readonly everyMs: number; readonly patienceMs: number },
  renew: (live: boolean, now: number) => void,
): () => void {
  let seen = Atomics.load(pulse.counts, 0);
  let silentMs = 0;
  let lookedAt = performance.now();
  const look = (): void => {
    const at = performance.now();
    const count = Atomics.load(pulse.counts, 0);
    silentMs = count === seen ? silentMs + Math.min(at - lookedAt, 2 * everyMs) : 0;
    seen = count;
    lookedAt = at;
    if (silentMs >= patienceMs) {
      writeSync(
        2,
        `drover: the main thread has not answered for ${Math.round(silentMs / 1000)} s; ending the process\n`,
      );
      // Not a signal that could be handled: the one who would handle it is stuck.
      process.kill(process.pid, "SIGKILL");
      return;
    }
    renew(Atomics.load(pulse.counts, 1) === 1, Date.now() + (pulse.skewMs[0] ?? 0));
  };
  const timer = setInterval(look, everyMs);
  return () => clearInterval(timer);
}
