/** Keeps what a person gives up: one commit that holds all of it, under a ref that nothing of ours removes. */
import { copyFileSync, existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import { commitOf } from "./base.ts";
import { type GitLimits, printed, type Workspace, workspaceError } from "./git.ts";
import { RESCUE_REFS, safeName } from "./names.ts";

/** Commits that git keeps for a tree alone while it is in the middle of something. */
const UNDER_WAY = ["MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "ORIG_HEAD"];

/** What is kept. */
export interface Rescue {
  /** A run's id, or the tree's name. */
  readonly name: string;
  readonly holds: readonly string[];
  /** Commits that have to stay reachable. */
  readonly tips: readonly string[];
  /** Files that are kept although git ignores them. */
  readonly ignored: readonly string[];
}

/**
 * Writes a commit of every file that git does not ignore, and of those that are named, with what is staged and all `tips` as its parents, and points
 * `refs/drover/rescue/<name>` at it. The tree, its index and its branches stay as they are. Answers the ref.
 * Errors: `workspace`, `no_space`; then nothing may be removed.
 * @param gitFolder the tree's part of the repository
 */
export async function rescue(git: Workspace, gitFolder: string, kept: Rescue, limits: GitLimits): Promise<string> {
  const ref = `${RESCUE_REFS}/${safeName(kept.name)}`;
  const index = join(gitFolder, "drover-rescue-index");
  const environment = { GIT_INDEX_FILE: index };
  const doing = "what it holds could not be kept";
  const long = { environment, timeoutMs: limits.gitCheckoutMs };
  try {
    const head = await commitOf(git, "HEAD");
    const parents = [...(head === null ? [] : [head]), ...kept.tips];
    for (const name of UNDER_WAY) parents.push((await commitOf(git, name)) ?? "");
    const staged = await stagedTree(git, gitFolder, index);
    // From HEAD and not from the tree's own index, which may have been told to look away from a file.
    rmSync(index, { force: true });
    if (head !== null) await git.ask(doing, ["read-tree", "HEAD"], long);
    await git.ask(
      doing,
      ["-c", "core.safecrlf=false", "-c", "advice.addEmbeddedRepo=false", "add", "-A", "--", "."],
      long,
    );
    if (kept.ignored.length > 0) await git.ask(doing, ["add", "--force", "--", ...kept.ignored], long);
    const tree = await git.ask(doing, ["write-tree"], long);
    const words = [
      `drover: what the worktree ${kept.name} held`,
      "",
      git.folder,
      ...kept.holds.map((one) => `- ${one}`),
    ];
    const commit = async (of: string, from: readonly string[], message: string) =>
      git.ask(
        doing,
        ["commit-tree", of, ...[...new Set(from)].filter((one) => one !== "").flatMap((one) => ["-p", one]), "-F", "-"],
        { input: message },
      );
    if (staged !== null && staged !== tree)
      parents.push(await commit(staged, head === null ? [] : [head], "drover: what was staged\n"));
    // One that is there from an earlier try stays reachable.
    const before = await commitOf(git, ref);
    if (before !== null) parents.push(before);
    const made = await commit(tree, parents, `${words.join("\n")}\n`);
    await git.ask(doing, ["update-ref", "-m", "drover: rescue", ref, made]);
    return ref;
  } finally {
    rmSync(index, { force: true });
    rmSync(`${index}.lock`, { force: true });
  }
}

/** Keeps a commit that only a vanished tree's HEAD had; null when what was kept of that tree before has it already. */
export async function rescueCommit(git: Workspace, name: string, commit: string): Promise<string | null> {
  const first = `${RESCUE_REFS}/${safeName(name)}`;
  const there = await commitOf(git, first);
  if (there !== null && (await git.run(["merge-base", "--is-ancestor", commit, there])).exit === 0) return null;
  const ref = there === null ? first : `${first}-head`;
  await git.ask("its last commit could not be kept", ["update-ref", "-m", "drover: rescue", ref, commit]);
  return ref;
}

/** The tree of what is staged; null in a conflict, where no such tree exists, and where nothing was ever staged. */
async function stagedTree(git: Workspace, gitFolder: string, copy: string): Promise<string | null> {
  const own = join(gitFolder, "index");
  if (!existsSync(own)) return null;
  copyFileSync(own, copy);
  const end = await git.run(["write-tree"], { environment: { GIT_INDEX_FILE: copy } });
  if (end.exit === 0) return printed(end);
  if (/: unmerged \(/.test(end.stderr.toString())) return null;
  throw workspaceError(`what is staged could not be kept: ${git.why(end)}`, { path: git.folder });
}
