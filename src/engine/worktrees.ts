/** Looks at the worktrees of runs that have ended: what holds nothing goes, everything else stays and says why. */
import { AppError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { Store, Worktrees } from "../core/ports.ts";
import type { WorktreeRecord } from "../core/records.ts";
import type { Log } from "./ports.ts";
import type { Actor } from "./wake.ts";
import type { Weather } from "./weather.ts";

export interface TidierOptions {
  readonly store: Store;
  readonly worktrees: Worktrees;
  readonly limits: Limits;
  readonly weather: Weather;
  readonly log: Log;
  readonly hostId: string;
  readonly again: () => void;
  readonly onDone: () => void;
}

export interface Tidier extends Actor {
  /** Nothing is left to look at. */
  isDone(): Promise<boolean>;
}

/** The actor `worktrees`: one tree at a time, which delays nothing else. */
export function createTidier({ store, worktrees, limits, weather, log, hostId, again, onDone }: TidierOptions): Tidier {
  /** Looked at in vain since this daemon started: once is enough. */
  const failed = new Set<string>();

  async function tidy(record: WorktreeRecord): Promise<void> {
    const { runId } = record;
    try {
      const { removed, state, note = null } = await worktrees.remove(record, false);
      await store.worktrees.looked({
        runId,
        state: removed ? "removed" : "kept",
        keptBecause: removed ? note : state.holds.join(", "),
        commits: state.commits,
        diffStat: state.diffStat,
      });
      log("info", removed ? "worktree_removed" : "worktree_kept", { run: runId, holds: state.holds });
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      failed.add(runId);
      log("warn", "worktree_unclear", { run: runId, code: error.code, message: error.message });
      const keptBecause = `could not be looked at: ${error.message}`;
      await store.worktrees.looked({ runId, state: "kept", keptBecause, commits: null, diffStat: null });
    }
  }

  async function left(): Promise<readonly WorktreeRecord[]> {
    const due = await store.worktrees.toTidy({ hostId, limit: limits.janitorBatch });
    return due.filter((record) => !failed.has(record.runId));
  }

  return {
    name: "worktrees",
    async tick() {
      const todo = await left();
      for (const record of todo.slice(0, 1)) {
        await tidy(record).catch((error: unknown) => {
          failed.add(record.runId);
          weather.mishap(`worktree of ${record.runId}`, error, 1);
        });
      }
      if (todo.length > 1) again();
      else if (todo.length === 1) onDone();
    },
    isDone: async () => (await left()).length === 0,
  };
}
