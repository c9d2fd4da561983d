import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { commitAccess } from "./commit-access.ts";
import { type Marker, writeMarker } from "./marker.ts";

let folder: string;
let shop: string;
let tree: string;
let own: string;

const git = (cwd: string, ...args: string[]): string =>
  execFileSync("git", args, {
    cwd,
    encoding: "utf8",
    env: {
      PATH: process.env["PATH"],
      HOME: folder,
      GIT_CONFIG_NOSYSTEM: "1",
      GIT_AUTHOR_NAME: "drover tests",
      GIT_AUTHOR_EMAIL: "tests@drover.invalid",
      GIT_COMMITTER_NAME: "drover tests",
      GIT_COMMITTER_EMAIL: "tests@drover.invalid",
    },
  }).trim();

const marker: Marker = {
  runId: "run_1",
  cwd: "/",
  base: "0",
  baseNote: "",
  branch: "drover/deps/abc123",
  untouched: null,
};

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "drover-access-")));
  shop = join(folder, "shop");
  tree = join(folder, "tree");
  mkdirSync(shop);
  git(shop, "init", "-q", "-b", "main");
  mkdirSync(join(shop, "sub"));
  writeFileSync(join(shop, "sub/file"), "first\n");
  git(shop, "add", "-A");
  git(shop, "commit", "-q", "-m", "first");
  git(shop, "worktree", "add", "-q", "-b", "drover/deps/abc123", tree);
  own = join(shop, ".git/worktrees/tree");
  writeMarker(own, marker);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("a tree of ours: its part of the repository, the folder of its branch, and objects; not what leads git elsewhere", () => {
  const access = commitAccess(join(tree, "sub"));
  const common = join(shop, ".git");
  expect(access?.writes).toEqual([
    own,
    join(common, "objects"),
    join(common, "refs/heads/drover/deps"),
    join(common, "logs/refs/heads/drover/deps"),
  ]);
  expect(access?.keeps).toEqual([
    ...["commondir", "gitdir", "config.worktree", "drover.json"].map((name) => join(own, name)),
    join(common, "objects/pack"),
    join(common, "objects/info"),
  ]);
});

test("folders that git took away when it packed refs are there again", () => {
  git(shop, "pack-refs", "--all", "--prune");
  expect(existsSync(join(shop, ".git/refs/heads/drover/deps"))).toBe(false);
  commitAccess(tree);
  expect(existsSync(join(shop, ".git/refs/heads/drover/deps"))).toBe(true);
});

test("nothing is opened for a checkout, a worktree of somebody's, or a tree that leads to another one's part", () => {
  expect(commitAccess(shop)).toBeNull();
  expect(commitAccess(folder)).toBeNull();
  const theirs = join(folder, "theirs");
  git(shop, "worktree", "add", "-q", "-b", "theirs", theirs);
  expect(commitAccess(theirs)).toBeNull();
  writeFileSync(join(theirs, ".git"), `gitdir: ${own}\n`);
  expect(commitAccess(theirs)).toBeNull();
});
