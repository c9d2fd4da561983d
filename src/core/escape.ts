/** What happened, while a run was at work in a worktree, in the checkout that the tree was made from. */

/** Who did it nobody can tell: people and other runs work there too. */
export interface Escape {
  /** It stands at another commit or on another branch than before. */
  readonly headMoved: boolean;
  /** Files that were changed, made or removed, seen from the repository's top folder; not all when there are very many. */
  readonly paths: readonly string[];
  /** How many there are. */
  readonly count: number;
}

/** Paths that are kept of one run. */
export const ESCAPE_PATHS = 50;
/** Paths that are named in a sentence. */
const PATHS_TOLD = 5;

/** What two attempts of a run saw together. */
export function joinEscapes(one: Escape | null, other: Escape | null): Escape | null {
  if (one === null || other === null) return one ?? other;
  const paths = [...new Set([...one.paths, ...other.paths])].toSorted();
  return {
    headMoved: one.headMoved || other.headMoved,
    paths: paths.slice(0, ESCAPE_PATHS),
    count: Math.max(one.count, other.count, paths.length),
  };
}

/** As the beginning of a sentence: `2 files changed (a.txt, b.txt)`. */
export function describeEscape({ headMoved, paths, count }: Escape): string {
  const named = paths.slice(0, PATHS_TOLD).join(", ") + (count > PATHS_TOLD ? ", ..." : "");
  const files =
    count === 0 ? null : `${count} file${count === 1 ? "" : "s"} changed${named === "" ? "" : ` (${named})`}`;
  return [headMoved ? "HEAD moved" : null, files].filter((part) => part !== null).join(" and ");
}
