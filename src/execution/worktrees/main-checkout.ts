/** Watches the checkout that a tree was made from: an agent with a tree of its own has no business there. */
import { lstatSync } from "node:fs";
import { join } from "node:path";
import { printed, type Workspace } from "./git.ts";
import { readStatus } from "./inventory.ts";

/** Paths that are kept one by one; of more only the number is. */
const PATHS_KEPT = 5000;
/** Paths that are told. */
const PATHS_TOLD = 5;

interface MainState {
  readonly head: string;
  readonly count: number;
  /** Size and time of each path that git calls changed or new. */
  readonly paths: Readonly<Record<string, string>>;
}

/** The state of a checkout as text, to be compared with a later one. Costs one `git status`. Errors: `workspace`. */
export async function readMain(git: Workspace): Promise<string> {
  const { changed, untracked } = await readStatus(git);
  const all = [...changed, ...untracked];
  const on = printed(await git.run(["symbolic-ref", "--quiet", "HEAD"]));
  const head = printed(await git.run(["rev-parse", "--verify", "--quiet", "HEAD"]));
  const paths = all.slice(0, PATHS_KEPT).map((path) => {
    const found = lstatSync(join(git.folder, path), { throwIfNoEntry: false, bigint: true });
    return [path, found === undefined ? "gone" : `${found.size} ${found.mtimeNs}`] as const;
  });
  const state: MainState = { head: `${on} ${head}`, count: all.length, paths: Object.fromEntries(paths) };
  return JSON.stringify(state);
}

/**
 * What happened in a checkout between two states, in words; null when nothing did. It cannot say who did it: people work
 * there too.
 */
export function describeEscape(before: string, after: string): string | null {
  const [old, now] = [JSON.parse(before) as MainState, JSON.parse(after) as MainState];
  const names = new Set([...Object.keys(old.paths), ...Object.keys(now.paths)]);
  const different = [...names].filter((path) => old.paths[path] !== now.paths[path]).toSorted();
  const told = different.slice(0, PATHS_TOLD).join(", ") + (different.length > PATHS_TOLD ? ", ..." : "");
  const parts = [
    ...(old.head === now.head ? [] : ["HEAD moved"]),
    ...(different.length === 0
      ? []
      : [`${different.length} file${different.length === 1 ? "" : "s"} changed: ${told}`]),
    ...(different.length === 0 && old.count !== now.count ? ["files changed"] : []),
  ];
  return parts.length === 0 ? null : parts.join("; ");
}
