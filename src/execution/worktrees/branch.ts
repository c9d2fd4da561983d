/** The branch of a tree: taken in one write, dropped when nothing is lost by it. */
import { AppError } from "../../core/errors.ts";
import type { WorktreeOrder } from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { commitOf } from "./base.ts";
import { type Workspace, workspaceError } from "./git.ts";
import { BRANCH_PATTERNS, branchNames } from "./names.ts";

/**
 * Puts the tree on a branch of its own; answers its name. HEAD names it before it exists, so a kill in between leaves no
 * branch behind. Errors: `workspace`.
 * @param intend is told of the branch before it exists, and of null when none was to be had
 */
export async function takeBranch(
  order: WorktreeOrder,
  tree: Workspace,
  intend: (branch: string | null) => void,
): Promise<string> {
  const doing = "its branch could not be made";
  const listed = await tree.ask(doing, ["for-each-ref", "--format=%(refname)", ...BRANCH_PATTERNS]);
  const existing = listed.split("\n").map((ref) => ref.replace(/^refs\/heads\//, ""));
  const names = branchNames(order.name, order.runId, existing);
  const base = await tree.ask(doing, ["rev-parse", "HEAD"]);
  const none = "0".repeat(base.length);
  let refused: unknown = workspaceError(`${doing}: every name for it is taken`);
  for (const branch of names) {
    if ((await tree.run(["check-ref-format", `refs/heads/${branch}`])).exit !== 0) continue;
    intend(branch);
    await tree.ask(doing, ["symbolic-ref", "-m", "drover: a branch of its own", "HEAD", `refs/heads/${branch}`]);
    try {
      // With the old value none it is refused when another process has made it since.
      await tree.ask(doing, ["update-ref", "-m", "drover: a branch of its own", `refs/heads/${branch}`, base, none]);
      return branch;
    } catch (error) {
      refused = error;
      if (!(error instanceof AppError) || error.code !== "workspace" || !isTaken(error.message)) throw error;
    }
  }
  // The last one is another's too: it must not go with this tree.
  intend(null);
  throw refused;
}

/**
 * Removes a tree's branch when nothing is lost by it, or what it has was given up and is kept. Always before the tree is
 * unregistered: nobody would find the branch again.
 */
export async function dropBranch(
  repository: Workspace,
  { branch, base, given, tree }: Pick<WorktreeRecord, "branch" | "base"> & { given: boolean; tree: string },
): Promise<void> {
  const tip = branch === null ? null : await commitOf(repository, `refs/heads/${branch}`);
  if (branch === null || tip === null) return;
  const merged = base !== null && (await repository.run(["merge-base", "--is-ancestor", tip, base])).exit === 0;
  if (!(merged || given) || (await isCheckedOut(repository, branch, tree))) return;
  // Only at the value that was judged, and without the configuration, which others may hold.
  await repository.ask("its branch could not be removed", ["update-ref", "-d", `refs/heads/${branch}`, tip]);
}

/** How many commits a branch has since `base` that no other branch, tag or remote has; 0 when there is no such branch. Errors: `workspace`. */
export async function commitsOnlyOn(repository: Workspace, branch: string, base: string | null): Promise<number> {
  if ((await commitOf(repository, `refs/heads/${branch}`)) === null) return 0;
  const said = await repository.ask("its commits cannot be counted", [
    "rev-list",
    "--count",
    `refs/heads/${branch}`,
    ...(base === null ? [] : [`^${base}`]),
    "--not",
    `--exclude=${branch}`,
    "--branches",
    "--tags",
    "--remotes",
  ]);
  return Number(said);
}

/** Whether another tree works on a branch. @param except the tree that it was made for */
async function isCheckedOut(repository: Workspace, branch: string, except: string): Promise<boolean> {
  const list = await repository.ask("its trees cannot be listed", ["worktree", "list", "--porcelain", "-z"]);
  return list.split("\0\0").some((entry) => {
    const lines = entry.split("\0").filter((line) => line !== "");
    return lines.includes(`branch refs/heads/${branch}`) && lines[0] !== `worktree ${except}`;
  });
}

/** Whether a name was refused because another branch has it, or is in its way. */
const isTaken = (message: string): boolean =>
  /reference already exists|exists; cannot create|unable to resolve reference|but expected/.test(message);
