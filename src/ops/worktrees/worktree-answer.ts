/** Worktrees as documents, how one is named, and the one way to remove one by hand. */
import { resolve } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { RemovedWorktree } from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { isFinal, type RunStatus, runStatuses } from "../../core/run.ts";
import { iso, toWorktreeDocument, worktreeKeys } from "../documents.ts";
import { findRun } from "../find.ts";
import type { StoreContext } from "../operation.ts";
import { MAX_PAGE } from "../page.ts";
import { instant, nullable, object, oneOf, type Shape, string } from "../shape.ts";

export const toTreeDocument = (tree: WorktreeRecord & { readonly runStatus: RunStatus | null }) => ({
  runId: tree.runId,
  hostId: tree.hostId,
  runStatus: tree.runStatus,
  createdAt: iso(tree.createdAt),
  ...toWorktreeDocument(tree),
});

export const treeShape: Shape = object({
  runId: string,
  hostId: string,
  runStatus: nullable(oneOf(runStatuses)),
  createdAt: instant,
  ...worktreeKeys,
});

/** Removes a run's tree where it holds nothing or its work is given up, and records what became of it. */
export async function removeTree(
  { store, trees }: StoreContext,
  record: WorktreeRecord,
  discard: boolean,
): Promise<RemovedWorktree> {
  const answer = await trees.remove(record, discard);
  const { removed, note = null } = answer;
  await store.worktrees.looked({
    runId: record.runId,
    state: removed ? "removed" : "kept",
    keptBecause: removed ? note : answer.state.holds.join(", "),
    commits: answer.state.commits,
    diffStat: answer.state.diffStat,
  });
  return answer;
}

/** All worktrees of this host that are there. */
export async function treesOfHost({ store, hostId }: StoreContext) {
  const all: (WorktreeRecord & { readonly runStatus: RunStatus | null })[] = [];
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof store.worktrees.list>> = await store.worktrees.list({
      limit: MAX_PAGE,
      cursor,
      hostId,
    });
    all.push(...page.items);
    cursor = page.next;
  } while (cursor !== null);
  return all;
}

/** By its folder, or by its run. Errors: AppError not_found `no_worktree`, and those of a run. */
export async function findTree(context: StoreContext, ref: string): Promise<WorktreeRecord> {
  const { store } = context;
  if (ref.startsWith("/")) {
    const path = resolve(ref);
    const found = (await treesOfHost(context)).find((one) => one.path === path);
    if (found !== undefined) return found;
    throw new AppError("not_found", "no_worktree", `there is no worktree ${JSON.stringify(path)}`, {
      path: "worktree",
      hint: "`drover worktree ls` lists them; `drover worktree prune` also looks at those that no record knows.",
    });
  }
  const { run } = await findRun(store, ref, "worktree");
  const record = await store.worktrees.get({ runId: run.id });
  if (record !== null && record.state !== "removed") return record;
  throw new AppError(
    "not_found",
    "no_worktree",
    record === null ? `${run.id} has no worktree` : `the worktree of ${run.id} is gone already`,
    { path: "worktree", hint: "`drover worktree ls` lists those that are there." },
  );
}

/** Refuses a tree that lies elsewhere, or whose run is not over. Errors: AppError conflict `other_host`, `run_not_ended`. */
export async function requireEnded(context: StoreContext, record: WorktreeRecord): Promise<void> {
  if (record.hostId !== context.hostId)
    throw new AppError("conflict", "other_host", "this worktree lies on another host", {
      path: "worktree",
      hint: "Do it there.",
    });
  const tree = await context.store.runs.get({ runId: record.runId });
  if (tree !== null && !isFinal(tree.run.status))
    throw new AppError("conflict", "run_not_ended", `${record.runId} has not ended: it is ${tree.run.status}`, {
      path: "worktree",
      hint: `Wait for its end, or \`drover cancel ${record.runId}\`.`,
    });
}
