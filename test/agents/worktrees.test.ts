/** Worktrees through the real binary: what holds work stays, what holds none goes, and thirty at once are thirty. */
import { execFileSync } from "node:child_process";
import { appendFileSync, chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "../e2e/drover.ts";

interface RunAnswer {
  readonly id: string;
  readonly status: string;
  readonly error: { readonly class: string; readonly message: string } | null;
  readonly worktree: {
    readonly path: string;
    readonly branch: string | null;
    readonly base: string | null;
    readonly commits: number | null;
    readonly diffStat: string | null;
    readonly kept: boolean | null;
    readonly state: string;
  } | null;
}

let home: Home;
let repository: string;

/** No configuration of this machine, and an identity for what stands for a person's own commits. */
const env = () => ({
  PATH: home.env["PATH"],
  HOME: home.folder,
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_AUTHOR_NAME: "drover tests",
  GIT_AUTHOR_EMAIL: "tests@drover.invalid",
  GIT_COMMITTER_NAME: "drover tests",
  GIT_COMMITTER_EMAIL: "tests@drover.invalid",
});
const git = (cwd: string, ...args: string[]): string =>
  execFileSync("git", args, { cwd, env: env(), encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }).trim();

/** A repository with one commit and an origin. */
function makeRepository(name: string): string {
  const path = join(home.folder, name);
  const origin = join(home.folder, `${name}.git`);
  mkdirSync(path);
  git(path, "init", "-q", "-b", "main");
  writeFileSync(join(path, "README.md"), "first\n");
  git(path, "add", "-A");
  git(path, "commit", "-q", "-m", "first");
  git(home.folder, "clone", "-q", "--bare", path, origin);
  git(path, "remote", "add", "origin", origin);
  git(path, "fetch", "-q", "origin");
  return path;
}

/** An agent whose work is the shell text of its prompt. */
const AGENT = `#!/bin/sh
export GIT_AUTHOR_NAME=agent GIT_AUTHOR_EMAIL=a@drover.invalid GIT_COMMITTER_NAME=agent GIT_COMMITTER_EMAIL=a@drover.invalid
. /dev/stdin
echo done
`;

beforeAll(async () => {
  home = openHome({ prefix: "drover-worktrees-" });
  writeFileSync(join(home.folder, "agent"), AGENT);
  chmodSync(join(home.folder, "agent"), 0o755);
  repository = makeRepository("shop");
  mkdirSync(join(home.folder, "home"), { recursive: true, mode: 0o700 });
  writeFileSync(join(home.folder, "home/config.yaml"), "limits:\n  agentCap: 8\n");
  await home.json(["up"]);
});
afterAll(() => home.close());

const words = (prompt: string, cwd = repository): string[] => [
  ...["--agent", "custom", "--agent-command", join(home.folder, "agent")],
  ...["--cwd", cwd, "--prompt", prompt],
];
async function run(prompt: string, cwd = repository, ...more: string[]): Promise<RunAnswer> {
  const ended = await home.run(["run", "--json", ...more, ...words(prompt, cwd)]);
  expect(ended.out, ended.err).not.toBe("");
  return JSON.parse(ended.out) as RunAnswer;
}
async function untilFound<T>(look: () => Promise<T | null>, what: string, patienceMs?: number): Promise<T> {
  let found: T | null = null;
  await until(async () => (found = await look()) !== null, what, patienceMs);
  return found as T;
}

/** The run once its tree was looked at. */
const tidied = (id: string): Promise<RunAnswer> =>
  untilFound(async () => {
    const shown = await home.json<RunAnswer>(["show", id]);
    return ["kept", "removed"].includes(shown.worktree?.state ?? "removed") ? shown : null;
  }, `the tree of ${id} was looked at`);
const branches = (cwd = repository): string[] =>
  git(cwd, "for-each-ref", "--format=%(refname:short)", "refs/heads").split("\n");

test("a tree without changes goes with its branch, and yours is as it was", async () => {
  const { id, status, worktree } = await run("test -f README.md && pwd > /dev/null");
  expect(status).toBe("succeeded");
  expect(worktree?.branch).toMatch(/^drover\//);
  await tidied(id);
  expect(existsSync(worktree?.path ?? "/")).toBe(false);
  expect(branches()).toEqual(["main"]);
  expect(git(repository, "status", "--porcelain")).toBe("");
});

describe("B-108 what holds work stays, and says why", () => {
  const kept: Record<string, readonly [prompt: string, why: RegExp]> = {
    dirty: ["echo more >> README.md", /uncommitted|change/i],
    untracked: ["echo new > notes.txt", /untracked/i],
    ahead: ["echo more >> README.md; git commit -qam more", /commit/i],
    detached: [
      "git checkout -q --detach; echo more >> README.md; git commit -qam more; git checkout -q -b aside; git checkout -q --detach; git branch -qD aside",
      /commit/i,
    ],
    stash: ["echo more >> README.md; git stash -q", /stash/i],
  };
  test.each(Object.entries(kept))("%s", async (_, [prompt, why]) => {
    const { id, status } = await run(prompt);
    expect(status).toBe("succeeded");
    const shown = await tidied(id);
    expect(shown.worktree).toMatchObject({ kept: true });
    const path = shown.worktree?.path ?? "";
    expect(existsSync(path)).toBe(true);
    const refused = await home.refused(4, ["worktree", "rm", id]);
    expect(`${refused.message} ${refused.hint ?? ""}`).toMatch(why);
    await home.json(["worktree", "prune"]);
    expect(existsSync(path), "prune keeps it").toBe(true);
    const head = git(path, "rev-parse", "HEAD");
    const removed = await home.run(["worktree", "rm", id, "--discard", id]);
    expect(removed.status, removed.err).toBe(0);
    expect(existsSync(path)).toBe(false);
    const rescue = git(repository, "for-each-ref", "--format=%(refname) %(objectname)", "refs/drover/rescue");
    expect(rescue).toContain(id);
    // What was committed is below what was rescued.
    const ref = rescue.split("\n").find((line) => line.includes(id)) ?? "";
    expect(() => git(repository, "merge-base", "--is-ancestor", head, ref.split(" ")[1] ?? "none")).not.toThrow();
  });
});

test("--expect changes fails an agent that says that it is done and wrote nothing", async () => {
  const { status, error } = await run("true", repository, "--expect", "changes");
  expect(status).toBe("failed");
  expect(error?.class).toBe("check_failed");
  const wrote = await run("echo more >> README.md", repository, "--expect", "changes");
  expect(wrote.status).toBe("succeeded");
  await home.run(["worktree", "rm", wrote.id, "--discard", wrote.id]);
});

test("B-104 the base is what origin has now, not what was fetched last", async () => {
  const other = join(home.folder, "other");
  git(home.folder, "clone", "-q", join(home.folder, "shop.git"), other);
  appendFileSync(join(other, "README.md"), "second\n");
  git(other, "commit", "-q", "-am", "second");
  git(other, "push", "-q", "origin", "HEAD:main");
  const { worktree, status } = await run("grep -q second README.md");
  expect(status).toBe("succeeded");
  expect(worktree?.base).toBe(git(other, "rev-parse", "HEAD"));
});

test("B-105 30 parallel starts on one repository give 30 trees and no stray branch", async () => {
  const busy = makeRepository("busy");
  const starts = await Promise.all(
    Array.from({ length: 30 }, async (_, i) => {
      const started = await home.json<RunAnswer>(["run", "--detach", ...words(`echo ${i} > mine-${i}`, busy)]);
      return started.id;
    }),
  );
  const ended = await Promise.all(starts.map((id) => tidiedAfterEnd(id)));
  expect(ended.map((one) => `${one.status} ${one.error?.message ?? ""}`)).toEqual(starts.map(() => "succeeded "));
  const paths = ended.map((one) => one.worktree?.path ?? "");
  expect(new Set(paths).size).toBe(30);
  for (const [i, path] of paths.entries()) {
    expect(readdirSync(path).filter((name) => name.startsWith("mine-"))).toEqual([`mine-${i}`]);
  }
  const own = ended.map((one) => one.worktree?.branch ?? "").toSorted();
  expect(
    branches(busy)
      .filter((name) => name !== "main")
      .toSorted(),
  ).toEqual(own);
  expect(git(busy, "worktree", "list", "--porcelain").match(/^worktree /gm)).toHaveLength(31);
}, 240_000);

const tidiedAfterEnd = (id: string): Promise<RunAnswer> =>
  untilFound(
    async () => {
      const shown = await home.json<RunAnswer>(["show", id]);
      return ["succeeded", "failed", "timed_out"].includes(shown.status) && shown.worktree?.kept === true
        ? shown
        : null;
    },
    `${id} has ended and its tree was looked at`,
    200_000,
  );

describe("a repository that cannot give a tree", () => {
  test("no commits: class workspace, in clear words", async () => {
    const empty = join(home.folder, "empty");
    mkdirSync(empty);
    git(empty, "init", "-q", "-b", "main");
    const { status, error } = await run("true", empty);
    expect(status).toBe("failed");
    expect(error?.class).toBe("workspace");
    expect(error?.message).toMatch(/commit/);
  });

  test("no repository: auto works in the folder, required is refused", async () => {
    const plain = join(home.folder, "plain");
    mkdirSync(plain);
    const { status, worktree } = await run("echo here > found", plain);
    expect(status).toBe("succeeded");
    expect(worktree).toBeNull();
    expect(existsSync(join(plain, "found"))).toBe(true);
    const refused = await home.refused(2, ["run", "--worktree", "required", ...words("true", plain)]);
    expect(refused.message).toMatch(/repository/);
  });
});
