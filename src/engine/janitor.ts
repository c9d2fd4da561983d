/** Removes what is not needed any more: the folders of attempts that ended long ago, runs past their retention, prompts that nothing names. */
import type { Limits } from "../core/limits.ts";
import type { Clock, Files, HistoryPlace, Store } from "../core/ports.ts";
import type { Log } from "./ports.ts";
import type { Runner } from "./runner.ts";
import type { Actor } from "./wake.ts";

export interface JanitorOptions {
  readonly clock: Clock;
  readonly store: Store;
  readonly files: Files;
  readonly limits: Limits;
  readonly runner: Runner;
  readonly log: Log;
  readonly within: (ms: number) => void;
}

/** The actor `janitor`: one batch a tick, then a pause. A folder whose attempt the store does not call ended stays. */
export function createJanitor({ clock, store, files, limits, runner, log, within }: JanitorOptions): Actor {
  let rest: string[] = [];
  /** How far the round through old runs has come; null between two rounds. */
  let place: HistoryPlace | null = null;
  let roundAt = Number.NEGATIVE_INFINITY;
  /** A folder is known by its attempt, so it goes no later than that. */
  const logRetentionMs = Math.min(limits.logRetentionMs, limits.retentionMs);
  return {
    name: "janitor",
    async tick() {
      if (rest.length === 0) rest = [...(await files.folders())];
      const live = new Set(runner.lives().map((life) => life.id));
      const batch = rest.splice(0, limits.janitorBatch).filter((folder) => !live.has(attemptOf(folder)));
      const before = clock.now() - logRetentionMs;
      if (batch.length > 0) {
        const ended = await store.attempts.endedAmong({ attemptIds: [...new Set(batch.map(attemptOf))] });
        const old = new Set(ended.filter((one) => one.finishedAt < before).map((one) => one.attemptId));
        const doomed = batch.filter((folder) => old.has(attemptOf(folder)));
        for (const folder of doomed) await files.remove(folder);
        if (doomed.length > 0) log("info", "folders_removed", { count: doomed.length });
      }
      if (place !== null || clock.awake() - roundAt >= limits.retentionRoundMs) {
        if (place === null) roundAt = clock.awake();
        const { retentionMs: ageMs, retentionRuns: keep, retentionBatch: limit } = limits;
        const history = await store.history.prune({ ageMs, keep, limit, after: place });
        place = history.next;
        if (history.runs > 0) log("info", "runs_removed", { count: history.runs });
      }
      const prompts = await store.prompts.collect({ limits });
      if (prompts.removed > 0) log("info", "prompts_removed", { count: prompts.removed });
      within(rest.length > 0 || place !== null || prompts.more ? limits.watchMs : limits.janitorMs);
    },
  };
}

/** The attempt of a folder, which is named `<attempt id>.<token>`. */
export const attemptOf = (folder: string): string => folder.split(".", 1)[0] ?? folder;
