/** Trees on their way out: set aside while it is decided, then removed. A death at any moment is mended by `recover`. */
import { lstatSync, mkdirSync, readdirSync, renameSync } from "node:fs";
import { chmod, readdir, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { isAbsent } from "../attempt-folder.ts";
import { workspaceError } from "./git.ts";
import { gitFolderOf, treeOf } from "./marker.ts";

/** Where trees are while it is decided whether they go, and once that is decided. On the root's own file system. */
const LEAVING = ".leaving";
const GONE = ".gone";

/** Puts back what waited for a verdict when its daemon died, and removes what had got one. */
export async function recover(root: string, log: (message: string) => void): Promise<void> {
  for (const aside of entriesOf(join(root, LEAVING))) {
    const gitFolder = gitFolderOf(aside);
    const path = gitFolder === null ? null : treeOf(gitFolder);
    if (path === null || lstatSync(path, { throwIfNoEntry: false }) !== undefined) {
      log(`${aside} was about to be removed, and its place cannot be told or is taken: it stays there`);
      continue;
    }
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    renameSync(aside, path);
  }
  for (const aside of entriesOf(join(root, GONE))) await removeFolder(aside, log);
}

/** Trees that were on their way out, whoever left them there. */
export const treesAside = (root: string): readonly string[] =>
  [LEAVING, GONE].flatMap((folder) => entriesOf(join(root, folder)));

/** Takes a tree from its place while it is decided whether it goes; answers where it is. Errors: `workspace`. */
export const setAside = (root: string, path: string): string => moveTo(path, join(root, LEAVING));

/** Takes a tree of which nothing is wanted to where the next start removes it; answers where it is. Errors: `workspace`. */
export const condemn = (root: string, path: string): string => moveTo(path, join(root, GONE));

/** Moves a folder into another under a free name. */
function moveTo(path: string, folder: string): string {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  for (let number = 1; ; number++) {
    const target = join(folder, `${basename(path)}${number === 1 ? "" : `.${number}`}`);
    if (lstatSync(target, { throwIfNoEntry: false }) !== undefined) continue;
    try {
      renameSync(path, target);
      return target;
    } catch (error) {
      throw workspaceError(`${path} cannot be moved: ${error instanceof Error ? error.message : ""}`, {
        path,
        cause: error,
      });
    }
  }
}

/** Removes a folder of which nothing is wanted, with what was made read-only in it. What stays is tried again at the next start. */
export async function removeFolder(folder: string, log: (message: string) => void): Promise<void> {
  const attempt = () => rm(folder, { recursive: true, force: true, maxRetries: 3 });
  try {
    await attempt().catch(async () => {
      await openFolders(folder);
      await attempt();
    });
  } catch (error) {
    log(`${folder} could not be removed: ${error instanceof Error ? error.message : String(error)}`);
  }
}

function entriesOf(folder: string): readonly string[] {
  try {
    return readdirSync(folder).map((name) => join(folder, name));
  } catch (error) {
    if (isAbsent(error)) return [];
    throw error;
  }
}

async function openFolders(folder: string): Promise<void> {
  await chmod(folder, 0o700);
  for (const entry of await readdir(folder, { withFileTypes: true }))
    if (entry.isDirectory()) await openFolders(join(folder, entry.name));
}
