/** Where a folder is: in which checkout of which repository, and below which root. */
import { existsSync, readdirSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { isAbsent } from "../attempt-folder.ts";
import { isNoRepository, printed, type Workspace, workspaceError } from "./git.ts";

/** Where a folder is. */
export interface Place {
  /** Git in the checkout that the folder is in, or in the bare repository. */
  readonly git: Workspace;
  /** The repository's shared part, by its real path. */
  readonly common: string;
  /** The main checkout's top folder; of a bare repository the repository. */
  readonly repository: string;
  /** The folder within its checkout, empty for its top, else with `/` at the end. */
  readonly prefix: string;
}

/** Where a folder is; null when it is in no repository. Errors: `workspace` when git cannot say, or it is not there. */
export async function locate(cwd: string, at: (folder: string) => Workspace): Promise<Place | null> {
  if (!isThere(cwd)) throw workspaceError(`the folder ${cwd} is not there`, { path: cwd });
  const git = at(cwd);
  const asked = ["rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir"];
  const end = await git.run([...asked, "--show-toplevel"]);
  if (end.exit === 0) {
    const [common, gitFolder, top] = printed(end).split("\n");
    if (common === undefined || gitFolder === undefined || top === undefined || printed(end).split("\n").length !== 3)
      throw workspaceError(
        `${JSON.stringify(cwd)}, or its repository, has a line break in its path: git makes no worktree there`,
        {
          path: cwd,
          hint: "Rename the folder, or work in it itself with --worktree off.",
        },
      );
    const prefix = printed(await git.run(["rev-parse", "--show-prefix"]));
    const main = basename(common) === ".git" ? dirname(common) : common;
    const repository = common === gitFolder ? top : main;
    return { git: at(top), common: realpathSync(common), repository, prefix };
  }
  if (isNoRepository(end)) {
    const broken = repositoryAbove(cwd);
    if (broken === null) return null;
    throw workspaceError(`the repository ${broken} is broken: git does not take it for one any more`, {
      path: cwd,
      hint: `\`git -C ${JSON.stringify(broken)} status\` says the same; restore its .git, or work in the folder itself with --worktree off.`,
    });
  }
  // Without git a folder can still be in a repository.
  if (end.fault !== null && repositoryAbove(cwd) === null) return null;
  const bare = await git.run([...asked, "--is-bare-repository"]);
  const [common, , isBare] = printed(bare).split("\n");
  if (bare.exit === 0 && isBare === "true" && common !== undefined)
    return { git: at(common), common: realpathSync(common), repository: common, prefix: "" };
  throw workspaceError(`the repository of ${cwd} cannot be used: ${git.why(end)}`, { path: cwd });
}

/** Whether git knows no file of a folder. */
export async function isUnknown(git: Workspace): Promise<boolean> {
  const end = await git.run(["ls-files", "-z"]);
  return end.exit === 0 && end.stdout.length === 0;
}

/** The checkout that a folder is in by what lies there; null when there is none. A sandbox may leave an empty `.git`: that is none. */
function repositoryAbove(folder: string): string | null {
  for (let path = resolve(folder); ; path = dirname(path)) {
    if (existsSync(join(path, ".git", "HEAD")) || isFile(join(path, ".git"))) return path;
    if (dirname(path) === path) return null;
  }
}

const isFile = (path: string): boolean => statSync(path, { throwIfNoEntry: false })?.isFile() === true;

/** The shared part of the repository that a folder is in, by its real path. Errors: `workspace`. */
export async function commonOf(git: Workspace): Promise<string> {
  const arguments_ = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
  return realpathSync(await git.ask(`the repository of ${git.folder} cannot be used`, arguments_));
}

/** A path whose folders are real and whose last part need not exist, as git names trees. */
export function realPlace(path: string): string {
  try {
    return join(realpathSync(dirname(path)), basename(path));
  } catch {
    return resolve(path); // there is nothing to be real
  }
}

/** Every folder where a tree can be: two below the root. */
export function treesBelow(root: string): readonly string[] {
  if (!isThere(root)) return [];
  const foldersIn = (folder: string) =>
    readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isDirectory() && !entry.name.startsWith("."))
      .map((entry) => join(folder, entry.name));
  return foldersIn(root).flatMap(foldersIn);
}

/** Whether a folder is at a path. Errors: what the file system says, but that nothing is there: not knowing is not absence. */
export const isThere = (folder: string): boolean => {
  try {
    return statSync(folder).isDirectory();
  } catch (error) {
    if (isAbsent(error)) return false;
    throw error;
  }
};
