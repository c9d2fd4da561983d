/** Watches the checkout that a tree was made from: an agent with a tree of its own has no business there. */
import { existsSync, lstatSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { ESCAPE_PATHS, type Escape } from "../../core/escape.ts";
import { readAs, writeText } from "../attempt-folder.ts";
import { type GitAt, printed, type Workspace } from "./git.ts";
import { readStatus } from "./inventory.ts";

/** Beside the tree's marker, so that it outlives the daemon and goes with the tree. */
const FILE = "drover-main.json";
/** Paths that are compared one by one; of more only the number is. */
const PATHS_KEPT = 5000;

const checkoutState = z.object({
  /** What HEAD names, and its commit. */
  head: z.string(),
  count: z.number(),
  /** Size and time of each path that git calls changed, new or ignored. */
  paths: z.record(z.string(), z.string()),
});
type CheckoutState = z.infer<typeof checkoutState>;

/** By the checkout's top folder. */
const noted = z.record(z.string(), checkoutState);

/** Notes how checkouts stand. Costs one `git status` for each. Errors: `workspace`. @param gitFolder the tree's part of its repository */
export async function noteCheckouts(gitFolder: string, checkouts: readonly string[], at: GitAt): Promise<void> {
  const states = await Promise.all(
    checkouts.filter(hasFiles).map(async (folder) => [folder, await readCheckout(at(folder))] as const),
  );
  writeText(join(gitFolder, FILE), JSON.stringify(Object.fromEntries(states)));
}

/**
 * What changed since in the noted checkouts; null when nothing did, or nothing was noted. Errors: `workspace`.
 * @param top paths are seen from it; those of another checkout are absolute
 */
export async function changesSince(gitFolder: string, top: string, at: GitAt): Promise<Escape | null> {
  // With the whole repository what was noted in it is gone too.
  if (!existsSync(top)) return { headMoved: true, paths: ["."], count: 1 };
  let before: z.infer<typeof noted> | null;
  try {
    before = readAs(join(gitFolder, FILE), (text) => noted.parse(JSON.parse(text)));
  } catch {
    return null; // what works in the tree may write here too
  }
  if (before === null) return null;
  let headMoved = false;
  let count = 0;
  const paths: string[] = [];
  for (const [folder, was] of Object.entries(before)) {
    const seen = (path: string) => (folder === top ? path : join(folder, path));
    if (!hasFiles(folder)) {
      headMoved = true;
      count++;
      paths.push(seen("."));
      continue;
    }
    const is = await readCheckout(at(folder));
    const different = differentPaths(was, is);
    headMoved ||= is.head !== was.head;
    count += Math.max(different.length, is.count === was.count ? 0 : 1);
    paths.push(...different.map(seen));
  }
  if (!headMoved && count === 0) return null;
  return { headMoved, paths: paths.toSorted().slice(0, ESCAPE_PATHS), count };
}

/** A bare repository has none. */
const hasFiles = (folder: string): boolean => existsSync(join(folder, ".git"));

function differentPaths(was: CheckoutState, is: CheckoutState): readonly string[] {
  const names = new Set([...Object.keys(was.paths), ...Object.keys(is.paths)]);
  // What a commit took up is no change of a file.
  const gone = (name: string) => is.head !== was.head && is.paths[name] === undefined;
  return [...names].filter((name) => was.paths[name] !== is.paths[name] && !gone(name));
}

async function readCheckout(git: Workspace): Promise<CheckoutState> {
  const { changed, untracked, ignored } = await readStatus(git, { ignored: true });
  const all = [...changed, ...untracked, ...ignored];
  const on = printed(await git.run(["symbolic-ref", "--quiet", "HEAD"]));
  const head = printed(await git.run(["rev-parse", "--verify", "--quiet", "HEAD"]));
  const paths = all.slice(0, PATHS_KEPT).map((path) => {
    const found = lstatSync(join(git.folder, path), { throwIfNoEntry: false, bigint: true });
    return [path, found === undefined ? "gone" : `${found.size} ${found.mtimeNs}`] as const;
  });
  return { head: `${on} ${head}`, count: all.length, paths: Object.fromEntries(paths) };
}
