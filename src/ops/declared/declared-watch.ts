/** Looks after the files of `apply --watch`: the system tells of changes where it can, and every so often they are looked at anyway. */
import { type FSWatcher, statSync, watch } from "node:fs";
import { dirname, resolve } from "node:path";
import { AppError } from "../../core/errors.ts";
import { sourcesOf } from "./declared-files.ts";
import type { LocalContext } from "../operation.ts";

/** What became of one round. */
export type Round<Answer> =
  | { readonly answer: Answer; readonly error: null }
  | { readonly answer: null; readonly error: AppError };

/** The pause before what a changed file cannot mend is tried again; doubles up to the longest. */
const LONGEST_PAUSE_MS = 60_000;

/** What of a file changes when it does, also when another file takes its place, or it can be looked at again. */
function traceOf(path: string): string {
  try {
    const { dev, ino, size, mtimeNs } = statSync(path, { bigint: true });
    return `${dev} ${ino} ${size} ${mtimeNs}`;
  } catch (error) {
    return error instanceof Error && "code" in error ? String(error.code) : "-"; // a round says why
  }
}

/** Waits; answers early when the signal or `poke` says so. */
function waitFor(ms: number, signal: AbortSignal, onPoke: (wake: () => void) => void): Promise<void> {
  return new Promise((done) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end, { once: true });
    onPoke(end);
    if (signal.aborted) end();
  });
}

/**
 * Does it at once, and again when a file has changed, one was added, or one went; also, ever more rarely, when what failed is
 * not the files' fault. Ends with the signal, never in the middle of a round.
 * @param apply one round; `onRead` is to be called with every file beside the named ones that it reads or misses
 */
export async function* watchFiles<Answer>(
  { cwd, settings }: Pick<LocalContext, "cwd" | "settings">,
  paths: readonly string[],
  signal: AbortSignal,
  apply: (onRead: (file: string) => void) => Promise<Answer>,
): AsyncGenerator<Round<Answer>> {
  const { declaredLookMs, declaredSettleMs } = settings.limits;
  const whole = paths.map((path) => resolve(cwd, path));
  let beside = new Set<string>();
  const watchers = new Map<string, FSWatcher>();
  let poked = false;
  let wake: () => void = () => {};
  const poke = (): void => {
    poked = true;
    wake();
  };

  /** The files as they are now. */
  const files = (): readonly string[] => {
    try {
      return [...sourcesOf(whole, true).files, ...beside];
    } catch {
      return [...whole, ...beside]; // one of them is away: it is seen when it comes
    }
  };
  const trace = (): string =>
    files()
      .map((file) => `${file} ${traceOf(file)}`)
      .join("\n");

  function listen(): void {
    const folders = new Set([...files().map((file) => dirname(file)), ...whole]);
    for (const [folder, watcher] of watchers)
      if (!folders.has(folder)) {
        watcher.close();
        watchers.delete(folder);
      }
    for (const folder of folders) {
      if (watchers.has(folder)) continue;
      try {
        const watcher = watch(folder, { persistent: false }, poke);
        watcher.on("error", () => {
          watcher.close();
          watchers.delete(folder);
        });
        watchers.set(folder, watcher);
      } catch {
        // no more watches are left, or it is away: the looks find what changes there
      }
    }
  }

  try {
    let pauseMs = declaredLookMs;
    while (!signal.aborted) {
      const before = trace();
      const read = new Set<string>();
      let isFilesFault = true;
      try {
        const answer = await apply((file) => void read.add(file));
        pauseMs = declaredLookMs;
        yield { answer, error: null };
      } catch (error) {
        if (!(error instanceof AppError) || error.kind === "internal") throw error;
        isFilesFault = error.kind === "invalid";
        yield { answer: null, error };
        if (!isFilesFault) pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      }
      const isSame = [...read].every((file) => beside.has(file)) && read.size === beside.size;
      beside = read;
      listen();
      // What changed while it was read is seen at once; what was read for the first time counts as it is now.
      let last = isSame ? before : trace();
      const again = performance.now() + pauseMs;
      while (!signal.aborted) {
        if (!poked) await waitFor(declaredLookMs, signal, (end) => (wake = end));
        poked = false;
        if (signal.aborted) break;
        const now = trace();
        if (now !== last) {
          // An editor writes more than once: what is there when it is quiet is meant.
          let quiet = now;
          for (;;) {
            await waitFor(declaredSettleMs, signal, () => {});
            const later = trace();
            if (later === quiet || signal.aborted) break;
            quiet = later;
          }
          last = quiet;
          pauseMs = declaredLookMs;
          break;
        }
        if (!isFilesFault && performance.now() >= again) break;
      }
    }
  } finally {
    for (const watcher of watchers.values()) watcher.close();
  }
}
