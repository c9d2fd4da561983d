/** What a tree knows of itself: a file of ours in its part of the repository, which git keeps and removes with it. */
import { existsSync, readdirSync, rmdirSync } from "node:fs";
import { rm } from "node:fs/promises";
import { basename, dirname, join, resolve } from "node:path";
import { z } from "zod";
import { AppError } from "../../core/errors.ts";
import { readAs, readText, writeText } from "../attempt-folder.ts";

const FILE = "drover.json";

const markerFile = z.object({
  runId: z.string(),
  cwd: z.string(),
  base: z.string(),
  baseNote: z.string(),
  branch: z.string().nullable(),
  /** Digest of what git called changed in the untouched tree (line ends, filters); null when nothing was. */
  untouched: z.string().nullable(),
  /** Files that its run is to leave, as paths in the tree. */
  expected: z.array(z.string()).optional(),
});

/** Written before a branch is made, so that a tree whose row is lost can still be understood. */
export type Marker = z.infer<typeof markerFile>;

/** Writes it in one step. @param gitFolder the tree's own part of the repository, `.git/worktrees/<id>` */
export function writeMarker(gitFolder: string, marker: Marker): void {
  writeText(join(gitFolder, FILE), `${JSON.stringify(marker)}\n`);
}

/** null when there is none, or it is not whole. */
export function readMarker(gitFolder: string): Marker | null {
  try {
    return readAs(join(gitFolder, FILE), (text) => markerFile.parse(JSON.parse(text)));
  } catch {
    return null; // git decides without it, and more carefully
  }
}

/** Where the `.git` of a tree points; null when it is no file of that form. */
export function gitFolderOf(tree: string): string | null {
  let text: string | null;
  try {
    text = readText(join(tree, ".git"));
  } catch {
    return null; // a folder, or something else
  }
  const target = /^gitdir: (.+)\n?$/s.exec(text ?? "")?.[1]?.replace(/\n$/, "");
  return target === undefined ? null : resolve(tree, target);
}

/** The tree that a part of a repository belongs to, whether or not it is there; null when it does not say. */
export function treeOf(gitFolder: string): string | null {
  try {
    const text = readText(join(gitFolder, "gitdir"))?.replace(/\n$/, "");
    return text === undefined || text === "" ? null : dirname(resolve(gitFolder, text));
  } catch (error) {
    if (error instanceof AppError) return null; // no plain file
    throw error;
  }
}

/**
 * Parts of the repository that belong to a tree at this path. Also those of which git had only made the folder when it was
 * killed: their names come from the path's, which holds a run's id.
 */
export function registrationsOf(commonFolder: string, path: string): readonly string[] {
  const parent = join(commonFolder, "worktrees");
  if (!existsSync(parent)) return [];
  const name = basename(path);
  return readdirSync(parent)
    .map((id) => join(parent, id))
    .filter((folder) => {
      const tree = treeOf(folder);
      if (tree !== null) return tree === path;
      const id = basename(folder);
      return id.startsWith(name) && /^\d*$/.test(id.slice(name.length));
    });
}

/**
 * Takes a part of a repository away, and the folder above it with the last one, as git does. A git that a dead daemon left
 * may still write into it for a moment.
 */
export async function unregister(gitFolder: string): Promise<void> {
  await rm(gitFolder, { recursive: true, force: true, maxRetries: 5 });
  try {
    rmdirSync(dirname(gitFolder));
  } catch {
    // another tree is registered, or another process took it away
  }
}
