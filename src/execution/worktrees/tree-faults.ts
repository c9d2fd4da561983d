/** What is wrong with trees without anybody's record of it: locks that git left, trees that were on their way out. Only looks. */
import { lstatSync } from "node:fs";
import { join } from "node:path";
import { gitFolderOf } from "./marker.ts";
import { treesAside } from "./aside.ts";

export interface TreeFault {
  readonly kind: "locked" | "half_removed";
  /** The lock's file, or where the tree is now. */
  readonly path: string;
}

/** @param trees paths of trees that are looked at @param before what has changed since then may be of somebody who works */
export function treeFaults(root: string, trees: readonly string[], before: number): readonly TreeFault[] {
  const isOld = (path: string): boolean => {
    const found = lstatSync(path, { throwIfNoEntry: false });
    return found !== undefined && found.ctimeMs < before;
  };
  const locks = trees.flatMap((tree) => {
    const gitFolder = gitFolderOf(tree);
    return gitFolder === null ? [] : [join(gitFolder, "index.lock"), join(gitFolder, "HEAD.lock")];
  });
  return [
    ...locks.filter(isOld).map((path) => ({ kind: "locked" as const, path })),
    ...treesAside(root)
      .filter(isOld)
      .map((path) => ({ kind: "half_removed" as const, path })),
  ];
}
