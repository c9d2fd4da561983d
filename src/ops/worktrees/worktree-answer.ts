/** Worktrees as documents, and the one way to remove one by hand. */
import type { RemovedWorktree } from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { type RunStatus, runStatuses } from "../../core/run.ts";
import { iso, toWorktreeDocument, worktreeKeys } from "../documents.ts";
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
