/** Ends a process whose main thread hangs: a loop without an end cannot be seen from within, and no test's limit ends it. */
import { Worker } from "node:worker_threads";

/** No single input may keep the main thread, or anybody who waits, for longer. */
export const PATIENCE_MS = 20_000;
const TEXT_BYTES = 16_384;

/** Says on standard error what was under way, and kills the process, when nothing was said for the time of its patience. */
const WATCH = `
  const { workerData: { beat, text, patienceMs } } = require("node:worker_threads");
  const beats = new Int32Array(beat);
  let before = -1;
  setInterval(() => {
    const now = Atomics.load(beats, 0);
    if (now === before && Atomics.load(beats, 1) === 1) {
      const said = Buffer.from(new Uint8Array(text).slice(0, Atomics.load(beats, 2))).toString();
      require("node:fs").writeSync(2, "HANGS: " + said + "\\n");
      process.kill(process.pid, "SIGKILL");
    }
    before = now;
  }, patienceMs);
`;

export interface Watchdog {
  /** What is tried now: said when it hangs. */
  trying(what: string): void;
  /** Nothing is tried: however long that lasts, it is no hang. */
  resting(): void;
  close(): Promise<void>;
}

export function openWatchdog(patienceMs = PATIENCE_MS): Watchdog {
  const [beat, text] = [new SharedArrayBuffer(12), new SharedArrayBuffer(TEXT_BYTES)];
  const beats = new Int32Array(beat);
  const bytes = new Uint8Array(text);
  const worker = new Worker(WATCH, { eval: true, workerData: { beat, text, patienceMs } });
  worker.unref();
  return {
    trying(what) {
      const said = Buffer.from(what).subarray(0, TEXT_BYTES);
      bytes.set(said);
      Atomics.store(beats, 2, said.length);
      Atomics.store(beats, 1, 1);
      Atomics.add(beats, 0, 1);
    },
    resting: () => void Atomics.store(beats, 1, 0),
    close: async () => void (await worker.terminate()),
  };
}
