/** What a tree holds: everything that would be lost, or that works in it, when it went. */
import { existsSync, lstatSync, readdirSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { AppError } from "../../core/errors.ts";
import type { WorktreeState } from "../../core/ports.ts";
import { readText } from "../attempt-folder.ts";
import { runErrand } from "../errand.ts";
import type { ProcessTable } from "../processes.ts";
import { readRepository } from "../repository.ts";
import { commitOf } from "./base.ts";
import { type GitAt, type GitLimits, printed, type Workspace, workspaceError, wordsOf } from "./git.ts";
import { type Marker, readMarker } from "./marker.ts";
import { type Occupant, occupantsOf } from "./occupants.ts";

/** What looking needs. */
export interface Eyes {
  readonly at: GitAt;
  readonly table: ProcessTable;
  readonly limits: GitLimits;
  readonly environment: Readonly<Record<string, string>>;
}

/** What is known of a tree from elsewhere: a record, or the tree's marker. */
export interface Origins {
  readonly branch: string | null;
  readonly base: string | null;
}

/** A tree's state, and what a rescue needs of it. */
export interface Inventory {
  readonly state: WorktreeState;
  readonly occupants: readonly Occupant[];
  /** Commits that may be nowhere else: HEAD, the tree's branch, refs of the tree alone, its stashes. */
  readonly tips: readonly string[];
  /** Repositories inside it that hold work, as paths in it. */
  readonly nested: readonly string[];
  /** Files that its run was to leave and that git ignores. */
  readonly expected: readonly string[];
  /** What else git ignores and what goes with the tree; a folder with all that is in it as one, with `/` at the end. */
  readonly ignored: readonly string[];
  /** It could not be looked at as a whole, so nothing of it is certain. */
  readonly blind: boolean;
}

/** Files of a tree's part of the repository that say that git is in the middle of something. */
const UNDER_WAY: readonly (readonly [file: string, what: string])[] = [
  ["rebase-merge", "a rebase under way"],
  ["rebase-apply", "a rebase under way"],
  ["MERGE_HEAD", "a merge under way"],
  ["CHERRY_PICK_HEAD", "a cherry-pick under way"],
  ["REVERT_HEAD", "a revert under way"],
  ["BISECT_LOG", "a bisect under way"],
];

/** Names of files that are told. */
const NAMES_TOLD = 3;
/** Folders that one `find` is given. */
const FOLDERS_AT_ONCE = 200;
const FIND_BYTES = 1024 * 1024;
/** A submodule in a listing of the index. */
const SUBMODULE = /^160000 /;

const GONE: WorktreeState = { there: "gone", holds: [], commits: 0, diffStat: null };

/** Looks at the tree at `path`. Never throws for what git says: what cannot be told is held. */
export async function takeInventory(path: string, origins: Origins, eyes: Eyes): Promise<Inventory> {
  try {
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined || (found.isDirectory() && readdirSync(path).length === 0)) return blank(GONE, false);
    if (!found.isDirectory()) throw workspaceError("it is no folder");
    const real = realpathSync(path);
    const occupants = await occupantsOf(real, eyes.table);
    const { findings, ...rest } = await lookInside(real, origins, eyes);
    const holds = [...occupants.map(({ pid, program }) => `pid ${pid} works in it (${program})`), ...findings];
    const { commits, diffStat, ...more } = rest;
    return { state: { there: "whole", holds, commits, diffStat }, occupants, ...more, blind: false };
  } catch (error) {
    if (!(error instanceof AppError) && !isSystemError(error)) throw error;
    const why = `could not be looked at: ${error.message}`;
    return blank({ there: "whole", holds: [why], commits: 0, diffStat: null, blind: true }, true);
  }
}

const blank = (state: WorktreeState, blind: boolean): Inventory => ({
  state,
  occupants: [],
  tips: [],
  nested: [],
  expected: [],
  ignored: [],
  blind,
});

const isSystemError = (error: unknown): error is Error => error instanceof Error && "code" in error;

interface Inside {
  readonly findings: readonly string[];
  readonly commits: number;
  readonly diffStat: string | null;
  readonly tips: readonly string[];
  readonly nested: readonly string[];
  readonly expected: readonly string[];
  readonly ignored: readonly string[];
}

async function lookInside(tree: string, origins: Origins, eyes: Eyes): Promise<Inside> {
  const git = eyes.at(tree);
  const gitFolder = await ownGitFolder(git, tree);
  const marker = readMarker(gitFolder);
  const branch = origins.branch ?? marker?.branch ?? null;
  const base = origins.base ?? marker?.base ?? null;
  const status = await readStatus(git);
  const stashes = await ownStashes(git, branch);
  const ignored = await listFiles(git, "--others", "--ignored", "--exclude-standard", "--directory");
  const nested = await nestedWithWork(git, status.untracked, ignored, eyes);
  const commits = await ownCommits(git, branch, base);
  const untouched = marker?.untouched ?? null;
  const changed =
    status.changed.length > 0 && untouched !== null && (await readRepository(git.run))?.digest === untouched
      ? []
      : status.changed;
  const isIgnored = (path: string) =>
    ignored.some((one) => path === one || `${path}/` === one || (one.endsWith("/") && path.startsWith(one))) &&
    existsSync(join(tree, path));
  const expected = (marker?.expected ?? []).filter(isIgnored);
  const locked = readText(join(gitFolder, "locked"));
  const findings = [
    ...new Set(UNDER_WAY.filter(([file]) => existsSync(join(gitFolder, file))).map(([, what]) => what)),
    ...(locked === null ? [] : [`a lock by \`git worktree lock\`${locked.trim() === "" ? "" : `: ${locked.trim()}`}`]),
    ...(commits.own === 0
      ? []
      : [`${count(commits.own, "commit")} of its own${commits.adrift ? " on no branch" : ""}`]),
    ...told(changed, "uncommitted change"),
    ...told(status.untracked, "untracked file"),
    ...told(expected, "expected file", " that git ignores"),
    ...(stashes.length === 0
      ? []
      : [stashes.length === 1 ? "1 stash made in it" : `${stashes.length} stashes made in it`]),
    ...nested.map((path) => `a repository inside it with work: ${path}`),
  ];
  const stat = base === null ? "" : await diffStatOf(git, base);
  return {
    findings,
    commits: commits.sinceBase,
    diffStat: stat === "" ? null : stat,
    tips: [...new Set([...commits.tips, ...stashes])],
    nested,
    expected,
    ignored,
  };
}

const count = (number: number, what: string): string => `${number} ${what}${number === 1 ? "" : "s"}`;

function told(paths: readonly string[], what: string, which = ""): readonly string[] {
  return paths.length === 0 ? [] : [`${count(paths.length, what)}${which} (${namesOf(paths)})`];
}

/** The first of some paths, in one line. */
export function namesOf(paths: readonly string[]): string {
  const names = paths.slice(0, NAMES_TOLD).map((path) => path.replaceAll(/[\u0000-\u001f\u007f]/g, "?"));
  return `${names.join(", ")}${paths.length > NAMES_TOLD ? ", ..." : ""}`;
}

/** The tree's part of its repository. Errors: `workspace` when `tree` is not the top of a linked tree, as after somebody removed its `.git`. */
export async function ownGitFolder(git: Workspace, tree: string): Promise<string> {
  const said = await git.ask("git does not know it", [
    "rev-parse",
    "--path-format=absolute",
    "--show-toplevel",
    "--git-dir",
    "--git-common-dir",
  ]);
  const [top, gitFolder, common] = said.split("\n");
  if (top === undefined || gitFolder === undefined || common === undefined || realpathSync(top) !== tree)
    throw workspaceError("it is no worktree any more, and there are files in it");
  if (gitFolder === common) throw workspaceError("it is a repository of its own, no worktree");
  return gitFolder;
}

interface Status {
  /** Paths that differ from HEAD, staged or not. */
  readonly changed: readonly string[];
  /** Paths that git does not know and does not ignore; of a repository inside with `/` at the end. */
  readonly untracked: readonly string[];
  /** Files that git ignores, each by itself: none of a folder that is ignored whole. Only where they were asked for. */
  readonly ignored: readonly string[];
}

/** What `git status` finds, with nothing hidden by the configuration. Errors: `workspace`. */
export async function readStatus(git: Workspace, { ignored: withIgnored = false } = {}): Promise<Status> {
  const said = await git.ask("its changes cannot be listed", [
    "status",
    "--porcelain=v2",
    "-z",
    "--untracked-files=all",
    "--ignore-submodules=none",
    "--no-renames",
    // A folder that is ignored whole is named and not looked into: caches change all the time, and cost time.
    ...(withIgnored ? ["--ignored=matching"] : []),
  ]);
  const changed: string[] = [];
  const untracked: string[] = [];
  const ignored: string[] = [];
  for (const entry of said.split("\0")) {
    if (entry.startsWith("? ")) untracked.push(entry.slice(2));
    else if (entry.startsWith("! ") && !entry.endsWith("/")) ignored.push(entry.slice(2));
    else if (/^[12u] /.test(entry))
      changed.push(
        entry
          .split(" ")
          .slice(entry.startsWith("u ") ? 10 : 8)
          .join(" "),
      );
  }
  // Files that git was told to take for unchanged; of those that a sparse checkout leaves out there is nothing on the disk.
  const listed = await git.ask("its index cannot be read", ["ls-files", "-z", "-v"]);
  const flagged = listed
    .split("\0")
    .filter((entry) => /^(?:[a-z]|S) /.test(entry))
    .map((entry) => entry.slice(2))
    .filter((path) => lstatSync(join(git.folder, path), { throwIfNoEntry: false }) !== undefined);
  if (flagged.length > 0) changed.push(...(await changedUnderFlags(git, flagged)));
  return { changed, untracked, ignored };
}

async function changedUnderFlags(git: Workspace, paths: readonly string[]): Promise<readonly string[]> {
  const staged = new Map<string, string>();
  for (const entry of (await git.ask("its index cannot be read", ["ls-files", "-z", "-s"])).split("\0")) {
    const tab = entry.indexOf("\t");
    if (tab > 0) staged.set(entry.slice(tab + 1), entry.split(" ")[1] ?? "");
  }
  const files = paths.filter((path) => !path.includes("\n") && lstatSync(join(git.folder, path)).isFile());
  const ids = await git.ask("its files cannot be read", ["hash-object", "--stdin-paths"], { input: files.join("\n") });
  const now = ids.split("\n");
  // What cannot be compared this way is taken for changed.
  return paths.filter((path) => !files.includes(path) || now[files.indexOf(path)] !== staged.get(path));
}

interface Commits {
  /** Commits that go with the tree and its branch: on no other branch, tag or remote, and not in the base. */
  readonly own: number;
  readonly sinceBase: number;
  /** HEAD is on no branch and none has its commit. */
  readonly adrift: boolean;
  readonly tips: readonly string[];
}

/** Refs that each tree has for itself. */
const TREE_REFS = ["refs/worktree", "refs/rewritten", "refs/bisect"];

/** Errors: `workspace`. */
export async function ownCommits(git: Workspace, branch: string | null, base: string | null): Promise<Commits> {
  const head = await commitOf(git, "HEAD");
  const on = await git.run(["symbolic-ref", "--quiet", "HEAD"]);
  const current = on.exit === 0 ? printed(on).replace(/^refs\/heads\//, "") : null;
  const tip = branch === null ? null : await commitOf(git, `refs/heads/${branch}`);
  const refs = await git.ask("its refs cannot be read", ["for-each-ref", "--format=%(objectname)", ...TREE_REFS]);
  const tips = [...new Set([head, tip, ...refs.split("\n")])].filter((one): one is string => Boolean(one));
  if (tips.length === 0) return { own: 0, sinceBase: 0, adrift: false, tips };
  const others = (excluded: readonly (string | null)[]): string[] => [
    "--not",
    ...excluded.filter((one) => one !== null).map((one) => `--exclude=${one}`),
    "--branches",
    "--tags",
    "--remotes",
  ];
  const counted = async (arguments_: readonly string[]): Promise<number> =>
    Number(await git.ask("its commits cannot be counted", ["rev-list", "--count", ...arguments_]));
  const known = base === null ? [] : [`^${base}`];
  return {
    own: await counted([...tips, ...known, ...others([branch, current])]),
    sinceBase: head === null || base === null ? 0 : await counted([head, ...known]),
    adrift: head !== null && current === null && (await counted([head, ...known, ...others([])])) > 0,
    tips,
  };
}

/**
 * Stashes that were made in this tree. All trees of a repository share one list: a stash is of the tree whose HEAD was at its
 * commit and on its branch, by the tree's own log.
 */
async function ownStashes(git: Workspace, branch: string | null): Promise<readonly string[]> {
  const list = await git.ask("its stashes cannot be listed", ["stash", "list", "-z", "--format=%H %P%x09%gs"]);
  if (list === "") return [];
  const log = await git.run(["reflog", "show", "--format=%H%x09%gs", "HEAD"]);
  const visited = new Set<string>(branch === null ? [] : [branch]);
  const commits = new Set<string>();
  let detached = false;
  for (const line of printed(log).split("\n")) {
    const [commit, what] = line.split("\t");
    commits.add(commit ?? "");
    const [, from, to] = /^checkout: moving from (\S+) to (\S+)$/.exec(what ?? "") ?? [];
    for (const name of [from, to]) {
      if (name === undefined) continue;
      visited.add(name);
      detached ||= /^[0-9a-f]{7,64}$/.test(name) || (await commitOf(git, `refs/heads/${name}`)) === null;
    }
  }
  const on = await git.run(["symbolic-ref", "--quiet", "--short", "HEAD"]);
  if (on.exit === 0) visited.add(printed(on));
  else detached = true;
  commits.add((await commitOf(git, "HEAD")) ?? "");
  return list
    .split("\0")
    .filter((entry) => {
      const [ids, what = ""] = entry.split("\t");
      const parent = ids?.split(" ")[1];
      const name = /^(?:WIP on|On) (.+?): /.exec(what)?.[1];
      if (name === undefined) return commits.has(parent ?? "");
      return name === "(no branch)" ? detached && commits.has(parent ?? "") : visited.has(name);
    })
    .map((entry) => entry.split(" ")[0] ?? "")
    .filter((id) => id !== "");
}

async function listFiles(git: Workspace, ...options: string[]): Promise<readonly string[]> {
  const said = await git.ask("its files cannot be listed", ["ls-files", "-z", ...options]);
  return said.split("\0").filter((entry) => entry !== "");
}

/** Repositories inside the tree, wherever git itself does not look, that hold something. */
async function nestedWithWork(
  git: Workspace,
  untracked: readonly string[],
  ignored: readonly string[],
  eyes: Eyes,
): Promise<readonly string[]> {
  const submodules = (await listFiles(git, "-s"))
    .filter((entry) => SUBMODULE.test(entry))
    .map((entry) => entry.split("\t")[1] ?? "");
  const found = [
    ...submodules.filter((path) => existsSync(join(git.folder, path, ".git"))),
    ...(await repositoriesBelow(
      git.folder,
      ignored.filter((path) => path.endsWith("/")),
      eyes,
    )),
  ];
  const held: string[] = [];
  for (const path of found) if (await holdsWork(join(git.folder, path), eyes)) held.push(path);
  // An untracked one is work as a whole.
  return [...new Set([...untracked.filter((path) => path.endsWith("/")).map((path) => path.slice(0, -1)), ...held])];
}

async function repositoriesBelow(tree: string, folders: readonly string[], eyes: Eyes): Promise<readonly string[]> {
  const found: string[] = [];
  for (let from = 0; from < folders.length; from += FOLDERS_AT_ONCE) {
    const some = folders.slice(from, from + FOLDERS_AT_ONCE).map((path) => `./${path}`);
    const end = await runErrand(
      {
        argv: ["find", ...some, "-name", ".git", "-prune", "-print0"],
        cwd: tree,
        environment: eyes.environment,
        timeoutMs: eyes.limits.gitCheckoutMs,
        keepBytes: FIND_BYTES,
        keep: "head",
      },
      eyes.table,
      false,
    );
    if (end.exit !== 0 || end.cut || !end.whole)
      throw workspaceError(`what git ignores cannot be looked through: ${wordsOf(end, eyes.limits.gitCheckoutMs)}`);
    for (const path of end.stdout.toString().split("\0"))
      if (path !== "") found.push(path.replace(/^\.\//, "").replace(/\/?\.git$/, ""));
  }
  return found;
}

/** Whether a repository inside a tree has anything that no remote has. */
async function holdsWork(folder: string, eyes: Eyes): Promise<boolean> {
  const git = eyes.at(folder);
  const top = await git.run(["rev-parse", "--show-toplevel"]);
  // A `.git` that git does not take for one.
  if (top.exit !== 0) return true;
  if (realpathSync(printed(top)) !== realpathSync(folder)) return false;
  const { changed, untracked } = await readStatus(git);
  if (changed.length + untracked.length > 0) return true;
  if ((await git.ask("its stashes cannot be listed", ["stash", "list"])) !== "") return true;
  const head = (await commitOf(git, "HEAD")) === null ? [] : ["HEAD"];
  return (
    (await git.ask("its commits cannot be counted", [
      "rev-list",
      "--count",
      ...head,
      "--branches",
      "--not",
      "--remotes",
    ])) !== "0"
  );
}

async function diffStatOf(git: Workspace, base: string): Promise<string> {
  return (
    await git.ask("its changes cannot be measured", [
      "diff",
      "--shortstat",
      "--no-ext-diff",
      "--no-textconv",
      base,
      "--",
    ])
  ).trim();
}

/** What a marker says, as origins. */
export const originsOf = (marker: Marker | null): Origins => ({
  branch: marker?.branch ?? null,
  base: marker?.base ?? null,
});
