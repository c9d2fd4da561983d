import type { HistoryPlace } from "../../core/ports.ts";
import { duration, flag, integer as wholeNumber } from "../fields.ts";
import { defineOperation, type StoreContext } from "../operation.ts";
import { boolean, integer, listOf, object, string } from "../shape.ts";

/** A round ends after this, and says that there is more: whoever asked waits for the answer only so long. */
const ROUND_MS = 40_000;
/** Folders that the store is asked about at a time. */
const AT_ONCE = 500;

export const operation = defineOperation({
  name: "gc",
  where: "write",
  summary: "Remove what is past its time: ended runs, logs, prompts, what was left half written",
  input: {
    dryRun: flag("only say what would be removed"),
    olderThanMs: duration("runs that ended longer ago", { fallback: "limits.retentionMs" }),
    keep: wholeNumber("runs of each loop that stay, however old", {
      min: 0,
      max: 100_000,
      fallback: "limits.retentionRuns",
    }),
    replaced: flag("also the stores that a restore has replaced"),
  },
  output: object({
    /** Ended runs, with all that is theirs. */
    runs: integer,
    /** Old enough, and staying: the last of their loop, or with a tree, a due hook or a live run below them. */
    keptRuns: integer,
    /** Folders of attempts, and those among them that no run knows. */
    folders: integer,
    orphans: integer,
    prompts: integer,
    files: listOf(string),
    /** Stores that a restore has replaced and that stay. */
    replacedStores: listOf(string),
    more: boolean,
    dryRun: boolean,
  }),
  cli: {
    examples: ["gc --dry-run", "gc", "gc --older-than 7d --keep 5"],
    notes: [
      "The daemon does the same by itself, with limits.retentionMs, limits.retentionRuns and limits.logRetentionMs.",
      "Never removed: what has not ended, worktrees that hold work, slots (those of runs that are gone become rows of several),",
      "backups that were asked for. The store's file keeps its size; its pages are used again.",
    ],
  },
  async run(context, input) {
    const { settings, store } = context;
    const { limits } = settings;
    const { dryRun } = input;
    const until = performance.now() + ROUND_MS;
    const isOver = (): boolean => performance.now() > until;
    const history = await oldRuns(
      context,
      { ageMs: input.olderThanMs ?? limits.retentionMs, keep: input.keep ?? limits.retentionRuns },
      dryRun,
      isOver,
    );
    const folders = await oldFolders(context, dryRun, isOver);
    let prompts = 0;
    for (let more = !dryRun; more && !isOver(); ) {
      const done = await store.prompts.collect({ limits });
      prompts += done.removed;
      more = done.more;
    }
    const left = await context.leftovers.ofStore(limits.backupsKept);
    const files = [...left.unfinished, ...left.upgrades, ...(input.replaced ? left.replaced : [])];
    if (!dryRun) for (const path of files) await context.leftovers.remove(path);
    return {
      runs: history.runs,
      keptRuns: history.kept,
      ...folders,
      prompts,
      files,
      replacedStores: input.replaced ? [] : left.replaced,
      more: isOver(),
      dryRun,
    };
  },
});

async function oldRuns(
  { store, settings }: StoreContext,
  cut: { readonly ageMs: number; readonly keep: number },
  dryRun: boolean,
  isOver: () => boolean,
): Promise<{ readonly runs: number; readonly kept: number }> {
  let [runs, kept] = [0, 0];
  let after: HistoryPlace | null = null;
  do {
    const request = { ...cut, limit: settings.limits.retentionBatch, after };
    const part: Awaited<ReturnType<typeof store.history.prune>> = await (dryRun
      ? store.history.prunable(request)
      : store.history.prune(request));
    runs += part.runs;
    kept += part.kept;
    after = part.next;
  } while (after !== null && !isOver());
  return { runs, kept };
}

/** Folders of attempts that ended long ago, or that no run knows and that nothing has touched for as long. */
async function oldFolders(
  { store, settings, clock, leftovers }: StoreContext,
  dryRun: boolean,
  isOver: () => boolean,
): Promise<{ readonly folders: number; readonly orphans: number }> {
  const before = clock.now() - settings.limits.logRetentionMs;
  const found = await leftovers.attemptFolders();
  let [folders, orphans] = [0, 0];
  for (let from = 0; from < found.length && !isOver(); from += AT_ONCE) {
    const batch = found.slice(from, from + AT_ONCE);
    const known = new Map(
      (await store.attempts.among({ attemptIds: [...new Set(batch.map(({ attemptId }) => attemptId))] })).map(
        ({ attemptId, finishedAt }) => [attemptId, finishedAt],
      ),
    );
    for (const { name, attemptId, changedAt } of batch) {
      const finishedAt = known.get(attemptId);
      // null: it has not ended. One that is not known is as old as what was last written there.
      const age = finishedAt === undefined ? changedAt : finishedAt;
      if (age === null || age >= before) continue;
      folders++;
      if (finishedAt === undefined) orphans++;
      if (!dryRun) await leftovers.removeFolder(name);
    }
  }
  return { folders, orphans };
}
