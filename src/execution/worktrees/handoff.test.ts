import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { AppError } from "../../core/errors.ts";
import { defaultLimits } from "../../core/limits.ts";
import type { HandoffWish } from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { openProcessTable } from "../processes.ts";
import { fingerprint } from "../scrub.ts";
import { type HostWorktrees, openWorktrees } from "./open-worktrees.ts";
import { gitFolderOf } from "./marker.ts";

const RUN = "run_01k2m3n4p5q6r7s8t9v0wxyz12";
const WISH: HandoffWish = { title: null, body: null, base: null, draft: false, open: true };

let folder: string;
let shop: string;
let bare: string;
let trees: HostWorktrees;
let server: Server | null = null;

const person = {
  GIT_AUTHOR_NAME: "drover tests",
  GIT_AUTHOR_EMAIL: "tests@drover.invalid",
  GIT_COMMITTER_NAME: "drover tests",
  GIT_COMMITTER_EMAIL: "tests@drover.invalid",
};
const environment = (): Record<string, string> => ({
  PATH: join(folder, "bin"),
  HOME: join(folder, "home"),
  GIT_CONFIG_NOSYSTEM: "1",
  GH_TOKEN: "gh-token-of-the-tests",
  GH_REPO: "somebody/else",
});
const git = (cwd: string, ...args: string[]): string =>
  execFileSync("git", args, {
    cwd,
    env: { ...environment(), ...person, PATH: process.env["PATH"] ?? "" },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  }).trim();
const commit = (cwd: string, text: string): string => {
  writeFileSync(join(cwd, "README.md"), text);
  git(cwd, "add", "-A");
  git(cwd, "commit", "-q", "-m", text);
  return git(cwd, "rev-parse", "HEAD");
};
const onRemote = (branch: string | null): string =>
  git(bare, "for-each-ref", "--format=%(objectname)", `refs/heads/${branch}`);

/** A program in the folder that is all of the PATH. */
function program(name: string, text: string): void {
  const file = join(folder, "bin", name);
  rmSync(file, { force: true });
  writeFileSync(file, `#!/bin/sh\n${text}\n`);
  chmodSync(file, 0o755);
}

/**
 * What `gh` 2 does of what is asked of it, with pull requests as lines of a file. `how` is a file: what it says instead of
 * answering `create`, after it has opened one.
 */
const GH = `
pulls=FOLDER/pulls; printf '%s\\n' "$*" >> FOLDER/calls; env > FOLDER/environment
[ -n "$GH_TOKEN" ] || { echo 'To get started with GitHub CLI, please run:  gh auth login' >&2; exit 4; }
[ -z "$GH_REPO" ] || { echo "$GH_REPO" >&2; exit 1; }
case "$1 $2" in
"pr list")
  printf '['; comma=; while read -r branch number state; do [ "$branch" = "$4" ] || continue
    printf '%s{"headRefOid":"%s","state":"%s","url":"https://github.com/me/shop/pull/%s"}' "$comma" "$(git --git-dir=FOLDER/shop.git rev-parse "refs/heads/$branch")" "$state" "$number"; comma=,
  done < "$pulls"; echo ']';;
"pr create")
  cat > FOLDER/body; echo "$4 $(($(grep -c . "$pulls") + 1)) OPEN" >> "$pulls"
  if [ -e FOLDER/how ]; then cat FOLDER/how >&2; exit 1; fi
  echo "https://github.com/me/shop/pull/$(grep -c . "$pulls")";;
*) echo "unknown command" >&2; exit 1;;
esac`;

const calls = (): string[] => {
  const file = join(folder, "calls");
  return existsSync(file) ? readFileSync(file, "utf8").trimEnd().split("\n") : [];
};
const opened = (): number => calls().filter((one) => one.startsWith("pr create")).length;

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "drover-handoff-")));
  for (const name of ["home", "bin"]) mkdirSync(join(folder, name));
  for (const name of ["git", "sh", "cat", "env", "grep"])
    symlinkSync(
      execFileSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8" }).trim(),
      join(folder, "bin", name),
    );
  writeFileSync(join(folder, "pulls"), "");
  program("gh", GH.replaceAll("FOLDER", folder));
  shop = join(folder, "shop");
  mkdirSync(shop);
  git(shop, "init", "-q", "-b", "main");
  commit(shop, "first");
  bare = join(folder, "shop.git");
  git(folder, "clone", "-q", "--bare", shop, bare);
  git(shop, "remote", "add", "origin", bare);
  git(shop, "fetch", "-q", "origin");
  trees = openWorktrees({
    root: join(folder, "worktrees"),
    runs: join(folder, "runs"),
    environment: environment(),
    limits: defaultLimits,
    table: openProcessTable(),
    log: () => {},
  });
});
afterEach(() => {
  server?.close();
  server?.closeAllConnections();
  server = null;
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});

/** A run's tree. */
async function tree(): Promise<WorktreeRecord> {
  const order = { runId: RUN, name: "nightly", cwd: shop, mode: "required" as const };
  const path = trees.place(order);
  const made = await trees.make({ ...order, path });
  if (made === null) throw new Error("no tree was made");
  const rest = { keptBecause: null, commits: null, diffStat: null, escaped: null, createdAt: 0, finishedAt: null };
  return { runId: RUN, hostId: "host_1", cwd: shop, path, state: "made", ...made, ...rest };
}
/** The error that a handoff ends with; null where it ends well. */
async function refusal(record: WorktreeRecord): Promise<AppError | null> {
  try {
    await trees.handOff(record, WISH);
    return null;
  } catch (error) {
    if (error instanceof AppError) return error;
    throw error;
  }
}

test("a branch is pushed and its pull request opened; again finds both, and a new commit goes after them", async () => {
  const record = await tree();
  const first = commit(record.path, "shorter start");
  writeFileSync(join(record.path, "notes"), "x");
  const pullRequest = { url: "https://github.com/me/shop/pull/1", state: "open" };
  expect(await trees.handOff(record, { ...WISH, base: "main", draft: true })).toEqual({
    branch: record.branch,
    commit: first,
    commits: 1,
    pushed: "now",
    pullRequest: { ...pullRequest, found: false },
    because: null,
    uncommitted: 1,
  });
  expect(calls()[1]).toBe(`pr create --head ${record.branch} --title=shorter start --body-file - --base=main --draft`);
  expect(readFileSync(join(folder, "body"), "utf8")).toBe(`- shorter start\n\nRun ${RUN}.`);
  expect(onRemote(record.branch)).toBe(first);
  expect(await trees.handOff(record, WISH)).toMatchObject({
    pushed: "before",
    pullRequest: { ...pullRequest, found: true },
  });
  const second = commit(record.path, "and its test");
  expect(await trees.handOff(record, WISH)).toMatchObject({ pushed: "now", commits: 2, pullRequest: { found: true } });
  expect(onRemote(record.branch)).toBe(second);
  expect(opened()).toBe(1);
});

describe("a death on the way leads to the same end", () => {
  test("after the push", async () => {
    const record = await tree();
    const done = commit(record.path, "work");
    git(record.path, "push", "-q", "origin", `${record.branch}`);
    expect(await trees.handOff(record, WISH)).toMatchObject({
      commit: done,
      pushed: "before",
      pullRequest: { found: false },
    });
    expect(opened()).toBe(1);
  });

  test("after the pull request was opened, before anybody heard of it", async () => {
    const record = await tree();
    commit(record.path, "work");
    writeFileSync(join(folder, "how"), "connection reset by peer");
    expect(await trees.handOff(record, WISH)).toMatchObject({ pullRequest: { found: true, state: "open" } });
    expect(await trees.handOff(record, WISH)).toMatchObject({ pullRequest: { found: true } });
    expect(opened()).toBe(1);
  });

  test("two at a time open one", async () => {
    const record = await tree();
    commit(record.path, "work");
    const both = await Promise.all([trees.handOff(record, WISH), trees.handOff(record, WISH)]);
    expect(both.map(({ pullRequest }) => pullRequest?.url)).toEqual(Array(2).fill("https://github.com/me/shop/pull/1"));
    expect(opened()).toBe(1);
  });
});

test("what was closed or merged is not opened again", async () => {
  const record = await tree();
  commit(record.path, "work");
  await trees.handOff(record, WISH);
  writeFileSync(join(folder, "pulls"), `${record.branch} 1 CLOSED\n${record.branch} 2 MERGED\n`);
  expect(await trees.handOff(record, WISH)).toMatchObject({ pullRequest: { state: "merged", found: true } });
  expect(opened()).toBe(1);
});

test("without a remote the branch is left, and that is said", async () => {
  git(shop, "remote", "remove", "origin");
  const record = await tree();
  commit(record.path, "work");
  expect(await trees.handOff(record, WISH)).toMatchObject({
    pushed: "left",
    pullRequest: null,
    because: "the repository has no remote `origin`",
  });
  expect(calls()).toEqual([]);
});

describe("a branch that somebody else has on the remote is not touched", () => {
  const another = (): string => {
    git(folder, "clone", "-q", bare, "another");
    return join(folder, "another");
  };

  test("when their commit is behind ours", async () => {
    const record = await tree();
    commit(record.path, "work");
    await trees.handOff(record, WISH);
    const there = another();
    git(there, "checkout", "-q", record.branch ?? "");
    const theirs = commit(there, "theirs");
    git(there, "push", "-q", "origin", "HEAD");
    for (const more of ["", "more work"]) {
      if (more !== "") commit(record.path, more);
      expect(await refusal(record)).toMatchObject({ code: "branch_moved", kind: "conflict" });
      expect(onRemote(record.branch)).toBe(theirs);
    }
  });

  test("when it only has the name, at a commit that we began at", async () => {
    const record = await tree();
    git(another(), "push", "-q", "origin", `HEAD:refs/heads/${record.branch}`);
    const theirs = onRemote(record.branch);
    commit(record.path, "work");
    expect(await refusal(record)).toMatchObject({ code: "branch_moved" });
    expect(onRemote(record.branch)).toBe(theirs);
  });

  test("when they push between our look and our push", async () => {
    const record = await tree();
    commit(record.path, "work");
    const there = another();
    const theirs = commit(there, "theirs");
    git(there, "push", "-q", "origin", "HEAD:refs/heads/aside");
    const hook = join(bare, "hooks/pre-receive");
    writeFileSync(
      hook,
      `#!/bin/sh\nunset GIT_QUARANTINE_PATH\ngit update-ref refs/heads/${record.branch} ${theirs}\nexit 0\n`,
    );
    chmodSync(hook, 0o755);
    expect(await refusal(record)).toMatchObject({ code: "branch_moved" });
    expect(onRemote(record.branch)).toBe(theirs);
    expect(opened()).toBe(0);
  });
});

test("what the remote refuses is said in its words", async () => {
  const hook = join(bare, "hooks/pre-receive");
  writeFileSync(hook, "#!/bin/sh\necho 'no branches of robots' >&2\nexit 1\n");
  chmodSync(hook, 0o755);
  const record = await tree();
  commit(record.path, "work");
  const error = await refusal(record);
  expect(error).toMatchObject({ code: "push_refused", kind: "conflict" });
  expect(error?.message).toContain("pre-receive hook declined");
  expect(error?.hint).toContain("no branches of robots");
});

describe("gh", () => {
  // A PATH is completed with the system's folders.
  test.skipIf(existsSync("/usr/bin/gh"))("is not there: the branch is pushed all the same", async () => {
    rmSync(join(folder, "bin/gh"));
    const record = await tree();
    const done = commit(record.path, "work");
    expect(await trees.handOff(record, WISH)).toMatchObject({
      pushed: "now",
      pullRequest: null,
      because: "gh is not installed here",
    });
    expect(onRemote(record.branch)).toBe(done);
  });

  test("knows no such remote: that is why there is none", async () => {
    program(
      "gh",
      "echo 'none of the git remotes configured for this repository point to a known GitHub host. To tell gh' >&2; exit 1",
    );
    const record = await tree();
    commit(record.path, "work");
    const { pullRequest, because } = await trees.handOff(record, WISH);
    expect([pullRequest, because]).toEqual([null, expect.stringContaining("none of the git remotes")]);
  });

  test.each([
    ["is not logged in", "echo 'please run:  gh auth login' >&2; exit 4", "gh auth login"],
    ["answers no list", "echo '{}'", "no list"],
    ["answers half a list", `echo '[{"url": "https://github.com/me/shop/pull/1"}]'`, "no list"],
  ])("%s: an error, and the branch is pushed", async (_what, text, words) => {
    program("gh", text);
    const record = await tree();
    const done = commit(record.path, "work");
    const error = await refusal(record);
    expect(error).toMatchObject({ code: "pull_request_failed", kind: "unreachable" });
    expect(error?.message).toContain(words);
    expect(onRemote(record.branch)).toBe(done);
  });

  test("is not asked where none is wanted", async () => {
    const record = await tree();
    commit(record.path, "work");
    expect(await trees.handOff(record, { ...WISH, open: false })).toMatchObject({
      pushed: "now",
      because: "none was wanted",
    });
    expect(calls()).toEqual([]);
  });

  test("gets its own login and no question; a title is no flag", async () => {
    const record = await tree();
    commit(record.path, "--web");
    await trees.handOff(record, WISH);
    expect(calls()[1]).toContain("--title=--web --body-file -");
    const given = readFileSync(join(folder, "environment"), "utf8").split("\n");
    expect(given).toEqual(expect.arrayContaining(["GH_TOKEN=gh-token-of-the-tests", "GH_PROMPT_DISABLED=1"]));
    expect(given.filter((one) => one.startsWith("GH_REPO"))).toEqual([]);
  });
});

test("there is nothing to hand over, and what is not committed is named", async () => {
  const record = await tree();
  writeFileSync(join(record.path, "notes"), "x");
  expect(await refusal(record)).toMatchObject({ code: "no_commits" });
  expect(await refusal({ ...record, branch: "drover/none" })).toMatchObject({ code: "branch_gone" });
  expect(calls()).toEqual([]);
});

test("a branch whose folder is gone is handed over", async () => {
  const record = await tree();
  commit(record.path, "work");
  rmSync(record.path, { recursive: true });
  expect(await trees.handOff(record, WISH)).toMatchObject({ pushed: "now", uncommitted: null });
});

test("I13: neither the address of the remote nor what gh says tells a secret, and nobody is asked for one", async () => {
  const record = await tree();
  commit(record.path, "work");
  const canary = "canary-of-the-run-5f2a";
  writeFileSync(join(gitFolderOf(record.path) ?? "", "drover-scrub-att_1.1"), JSON.stringify(fingerprint([canary])));
  program("gh", `echo 'https://me:hunter2secret@github.com fails: ${canary}' >&2; exit 1`);
  const said = [await refusal(record)];
  server = createServer((_request, response) => response.writeHead(401, { "www-authenticate": "Basic" }).end());
  await new Promise<void>((resolve) => server?.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  git(shop, "remote", "set-url", "origin", `http://me:hunter2secret@127.0.0.1:${port}/shop.git`);
  said.push(await refusal(record));
  expect(said.map((one) => one?.code)).toEqual(["pull_request_failed", "push_failed"]);
  for (const one of said) {
    const told = `${one?.message} ${one?.hint}`;
    expect(told).not.toContain("hunter2secret");
    expect(told).not.toContain(canary);
  }
});
