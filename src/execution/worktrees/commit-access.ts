/** What a commit in a tree of ours writes outside of it, for a provider whose sandbox has to be told. */
import { existsSync, mkdirSync, readdirSync, realpathSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { gitFolderOf, readMarker, treeOf } from "./marker.ts";

/** Absolute paths, real ones. */
export interface CommitAccess {
  /** Folders that a commit writes into. */
  readonly writes: readonly string[];
  /** Within them, what no commit changes; it need not be there. */
  readonly keeps: readonly string[];
}

/**
 * From these git takes commands to run, or the place of such a configuration: whoever writes them has whatever runs git in the
 * tree afterwards, people and drover, run commands outside of the sandbox.
 */
const LEADING = ["commondir", "gitdir", "config.worktree"];

/**
 * What a commit in the tree around a folder needs: the tree's own part of the repository, the folder of its branch, and
 * loose objects. Not the configuration, hooks, other branches, packs, or borrowed objects; a rebase that the agent leaves
 * unfinished is in the tree's part, and whoever continues one looks at its list. null: it is in no tree of ours, where
 * the repository's hooks and configuration lie in the very folder that a commit writes into.
 */
export function commitAccess(cwd: string): CommitAccess | null {
  const top = treeAround(realpathSync(cwd));
  if (top === null) return null;
  const named = gitFolderOf(top);
  if (named === null || !existsSync(named)) return null;
  const own = realpathSync(named);
  const branch = readMarker(own)?.branch ?? null;
  // The tree is what the agent may write: what leads out of it counts where the repository says the same.
  if (branch === null || basename(dirname(own)) !== "worktrees" || treeOf(own) !== top) return null;
  const common = dirname(dirname(own));
  const ofBranch = dirname(`heads/${branch}`);
  const ours = readdirSync(own).filter((name) => name.startsWith("drover"));
  const ofRef = [join(common, "refs", ofBranch), join(common, "logs/refs", ofBranch)];
  // git takes them away when it packs refs, and no sandbox lets them be made again.
  for (const folder of ofRef) mkdirSync(folder, { recursive: true });
  return {
    writes: [own, join(common, "objects"), ...ofRef],
    keeps: [
      ...[...LEADING, ...ours].map((name) => join(own, name)),
      ...["pack", "info"].map((name) => join(common, "objects", name)),
    ],
  };
}

function treeAround(folder: string): string | null {
  for (let at = folder; ; at = dirname(at)) {
    if (existsSync(join(at, ".git"))) return at;
    if (dirname(at) === at) return null;
  }
}
