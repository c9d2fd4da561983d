import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { defaultLimits } from "../../core/limits.ts";
import type { MadeWorktree, WorktreeOrder } from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { isAlive, openProcessTable } from "../processes.ts";
import { fingerprint } from "../scrub.ts";
import { type HostWorktrees, openWorktrees, type WorktreesOptions } from "./open-worktrees.ts";

const table = openProcessTable();
const RUN = "run_01k2m3n4p5q6r7s8t9v0wxyz12";

let folder: string;
let root: string;
let trees: HostWorktrees;
let said: string[];
const children: ReturnType<typeof spawn>[] = [];
const servers: Server[] = [];

/** An empty home: no identity, no configuration. */
const environment = (): Record<string, string> => ({
  PATH: process.env["PATH"] ?? "",
  HOME: join(folder, "home"),
  GIT_CONFIG_NOSYSTEM: "1",
});
const person = {
  GIT_AUTHOR_NAME: "drover tests",
  GIT_AUTHOR_EMAIL: "tests@drover.invalid",
  GIT_COMMITTER_NAME: "drover tests",
  GIT_COMMITTER_EMAIL: "tests@drover.invalid",
};
const git = (cwd: string, ...args: string[]): string =>
  execFileSync("git", args, {
    cwd,
    env: { ...environment(), ...person },
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  }).trim();
const open = (more: Partial<WorktreesOptions> = {}): HostWorktrees =>
  openWorktrees({
    root,
    runs: join(folder, "runs"),
    environment: environment(),
    limits: defaultLimits,
    table,
    log: (message) => said.push(message),
    ...more,
  });

beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "drover-trees-")));
  root = join(folder, "worktrees");
  mkdirSync(join(folder, "home"));
  said = [];
  trees = open();
});
afterEach(async () => {
  for (const child of children.splice(0)) child.kill("SIGKILL");
  for (const server of servers.splice(0)) server.close();
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});

/** A repository with one commit, a subfolder, and a bare origin that has it. */
function repository(name = "shop", origin = true): string {
  const path = join(folder, name);
  mkdirSync(join(path, "api"), { recursive: true });
  git(path, "init", "-q", "-b", "main");
  writeFileSync(join(path, "README.md"), "first\n");
  writeFileSync(join(path, "api/index.js"), "1\n");
  writeFileSync(join(path, ".gitignore"), "ignored/\n");
  git(path, "add", "-A");
  git(path, "commit", "-q", "-m", "first");
  if (!origin) return path;
  git(folder, "clone", "-q", "--bare", path, `${name}.git`);
  git(path, "remote", "add", "origin", join(folder, `${name}.git`));
  git(path, "fetch", "-q", "origin");
  return path;
}

const orderFor = (cwd: string, more: Partial<WorktreeOrder> = {}): WorktreeOrder => {
  const order = { runId: RUN, name: "nightly", cwd, mode: "required" as const, ...more };
  return { ...order, path: more.path ?? trees.place(order) };
};
const recordOf = (order: WorktreeOrder, made: MadeWorktree | null): WorktreeRecord => ({
  runId: order.runId,
  hostId: "host_1",
  cwd: order.cwd,
  path: order.path,
  repository: made?.repository ?? null,
  branch: made?.branch ?? null,
  base: made?.base ?? null,
  baseNote: made?.baseNote ?? null,
  state: made === null ? "making" : "made",
  keptBecause: null,
  commits: null,
  diffStat: null,
  escaped: null,
  createdAt: 0,
  finishedAt: null,
});
/** Makes a tree, as a run does, and answers its record. */
async function makeTree(cwd: string, more: Partial<WorktreeOrder> = {}): Promise<WorktreeRecord> {
  const order = orderFor(cwd, more);
  return recordOf(order, await trees.make(order));
}
const branches = (path: string): string[] =>
  git(path, "for-each-ref", "--format=%(refname:short)", "refs/heads").split("\n");
const registered = (path: string): string[] =>
  git(path, "worktree", "list", "--porcelain")
    .split("\n")
    .filter((line) => line.startsWith("worktree "))
    .map((line) => line.slice("worktree ".length));
const commit = (tree: string, file = "README.md"): void => {
  appendFileSync(join(tree, file), "more\n");
  git(tree, "add", "-A");
  git(tree, "commit", "-q", "-m", "more");
};
/** A process of nobody that works in a folder, once it is there. */
async function shellIn(cwd: string): Promise<number> {
  const child = spawn("sh", ["-c", "echo up; read line"], { cwd, stdio: ["pipe", "pipe", "ignore"] });
  children.push(child);
  await new Promise((resolve) => child.stdout?.once("data", resolve));
  return child.pid ?? 0;
}

describe("a tree", () => {
  test("begins at origin's default branch on a branch of its own, and changes nothing else", async () => {
    const shop = repository();
    const config = readFileSync(join(shop, ".git/config"), "utf8");
    const record = await makeTree(join(shop, "api"));
    expect(record).toMatchObject({
      repository: shop,
      branch: "drover/nightly/wxyz12",
      base: git(shop, "rev-parse", "HEAD"),
      baseNote: "origin/main, fetched",
    });
    expect(await trees.enter(record)).toBe(join(record.path, "api"));
    expect(git(record.path, "status", "--porcelain=v2", "--branch")).toContain("branch.head drover/nightly/wxyz12");
    expect(readFileSync(join(shop, ".git/config"), "utf8")).toBe(config);
    expect(git(shop, "status", "--porcelain")).toBe("");
    expect(await trees.look(record)).toEqual({ there: "whole", holds: [], commits: 0, diffStat: null });
  });

  test("that holds nothing goes, with branch, registration and folder", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    mkdirSync(join(record.path, "ignored/deep"), { recursive: true });
    writeFileSync(join(record.path, "ignored/deep/build"), "x");
    chmodSync(join(record.path, "ignored/deep"), 0o500);
    expect(await trees.remove(record, false)).toMatchObject({ removed: true, state: { holds: [] } });
    expect(branches(shop)).toEqual(["main"]);
    expect(registered(shop)).toEqual([shop]);
    expect(existsSync(join(shop, ".git/worktrees"))).toBe(false);
    expect(readdirSync(root).filter((name) => !name.startsWith("."))).toEqual([]);
    expect(readdirSync(join(root, ".gone"))).toEqual([]);
    expect(await trees.look(record)).toMatchObject({ there: "gone" });
    // Again is no error.
    expect(await trees.remove(record, false)).toMatchObject({ removed: true, state: { there: "gone" } });
  });

  test("counts its commits and the size of its change", async () => {
    const record = await makeTree(repository());
    commit(record.path);
    appendFileSync(join(record.path, "README.md"), "and more\n");
    expect(await trees.look(record)).toEqual({
      there: "whole",
      holds: ["1 commit of its own", "1 uncommitted change (README.md)"],
      commits: 1,
      diffStat: "1 file changed, 2 insertions(+)",
    });
  });

  test("is asked for in no repository: null by auto, refused by required", async () => {
    const plain = join(folder, "plain");
    mkdirSync(plain);
    expect(await trees.make(orderFor(plain, { mode: "auto" }))).toBeNull();
    await expect(trees.make(orderFor(plain))).rejects.toMatchObject({ code: "workspace", kind: "conflict" });
    // And without any git.
    mkdirSync(join(folder, "bin"));
    trees = open({ environment: { ...environment(), PATH: join(folder, "bin") } });
    expect(await trees.make(orderFor(plain, { mode: "auto" }))).toBeNull();
  });

  test("of a folder that git knows nothing of is not made by auto: what is in it would be missing", async () => {
    const shop = repository();
    mkdirSync(join(shop, "scratch"));
    writeFileSync(join(shop, "scratch/notes"), "x");
    expect(await trees.make(orderFor(join(shop, "scratch"), { mode: "auto" }))).toBeNull();
    await expect(trees.make(orderFor(join(shop, "scratch")))).rejects.toThrow(
      /scratch.* is not in the commit .*origin\/main/,
    );
    expect(registered(shop)).toEqual([shop]);
    expect(branches(shop)).toEqual(["main"]);
  });

  test("is not led to another repository by what the daemon inherited", async () => {
    const [shop, other] = [repository(), repository("other")];
    trees = open({
      environment: {
        ...environment(),
        GIT_DIR: join(other, ".git"),
        GIT_WORK_TREE: other,
        GIT_INDEX_FILE: join(folder, "index"),
      },
    });
    expect((await makeTree(shop)).repository).toBe(shop);
    expect(registered(other)).toEqual([other]);
  });

  test("needs no identity, no signature and no hook of the repository", async () => {
    const shop = repository();
    for (const [name, value] of [
      ["commit.gpgSign", "true"],
      ["gpg.program", "/bin/false"],
      ["user.useConfigOnly", "true"],
      ["core.hooksPath", join(folder, "hooks")],
    ] as const)
      git(shop, "config", name, value);
    mkdirSync(join(folder, "hooks"));
    for (const hook of ["post-checkout", "reference-transaction", "pre-commit"]) {
      writeFileSync(join(folder, "hooks", hook), `#!/bin/sh\ntouch ${folder}/ran\nexit 1\n`, { mode: 0o755 });
    }
    const record = await makeTree(shop);
    writeFileSync(join(record.path, "new"), "x");
    expect(await trees.remove(record, true)).toMatchObject({ removed: true });
    expect(existsSync(join(folder, "ran"))).toBe(false);
  });
});

describe("where it begins", () => {
  test.each([true, false])(
    "B-104 a remote that is 77 commits ahead: the tree begins at its head (the clone knows the default branch: %s)",
    async (known) => {
      const shop = repository();
      if (known) git(shop, "remote", "set-head", "origin", "main");
      const other = join(folder, "other");
      git(folder, "clone", "-q", "shop.git", "other");
      for (let i = 0; i < 77; i++) git(other, "commit", "-q", "--allow-empty", "-m", String(i));
      git(other, "push", "-q", "origin", "main");
      const record = await makeTree(shop);
      expect(record.base).toBe(git(other, "rev-parse", "HEAD"));
      expect(git(shop, "rev-parse", "HEAD")).not.toBe(record.base);
      expect(record.baseNote).toBe("origin/main, fetched");
    },
  );

  test("B-104 offline: what was fetched last, said so, with git's words", async () => {
    const shop = repository();
    git(shop, "remote", "set-url", "origin", join(folder, "away.git"));
    commit(shop);
    const record = await makeTree(shop);
    expect(record.base).toBe(git(shop, "rev-parse", "refs/remotes/origin/main"));
    expect(record.baseNote).toMatch(
      /^origin\/main as last fetched, perhaps behind: origin could not be reached: fatal: .*away\.git/,
    );
  });

  test("offline and never fetched, or no origin: local HEAD, said so", async () => {
    const shop = repository("shop", false);
    expect(await makeTree(shop)).toMatchObject({
      base: git(shop, "rev-parse", "HEAD"),
      baseNote: "local HEAD: no origin",
    });
    git(shop, "remote", "add", "origin", join(folder, "away.git"));
    const second = await makeTree(shop, { runId: `${RUN}2` });
    expect(second.baseNote).toMatch(/^local HEAD: origin could not be reached: /);
  });

  test("the default branch was renamed at origin since the clone", async () => {
    const shop = repository();
    git(shop, "remote", "set-head", "origin", "main");
    git(join(folder, "shop.git"), "branch", "-m", "main", "trunk");
    git(join(folder, "shop.git"), "symbolic-ref", "HEAD", "refs/heads/trunk");
    expect((await makeTree(shop)).baseNote).toBe("origin/trunk, fetched");
  });

  test("an origin without commits, and one whose HEAD is on no branch", async () => {
    const shop = repository("shop", false);
    git(folder, "init", "-q", "--bare", "-b", "main", "empty.git");
    git(shop, "remote", "add", "origin", join(folder, "empty.git"));
    expect((await makeTree(shop)).baseNote).toBe("local HEAD: origin has no commits");
    git(shop, "push", "-q", "origin", "main");
    writeFileSync(join(folder, "empty.git/HEAD"), `${git(shop, "rev-parse", "HEAD")}\n`);
    expect((await makeTree(shop, { runId: `${RUN}2` })).baseNote).toBe("HEAD of origin, fetched");
  });

  test("no commits at all: refused in clear words, nothing left", async () => {
    const empty = join(folder, "empty");
    mkdirSync(empty);
    git(empty, "init", "-q");
    await expect(trees.make(orderFor(empty))).rejects.toThrow(/no commits yet/);
    expect(existsSync(orderFor(empty).path)).toBe(false);
  });

  test("a detached head, a bare repository and somebody's own worktree will do", async () => {
    const shop = repository("shop", false);
    git(shop, "checkout", "-q", "--detach");
    expect((await makeTree(shop)).repository).toBe(shop);
    git(shop, "worktree", "add", "-q", "-b", "mine", join(folder, "mine"));
    commit(join(folder, "mine"));
    const second = await makeTree(join(folder, "mine", "api"), { runId: `${RUN}2` });
    expect(second).toMatchObject({ repository: shop, base: git(shop, "rev-parse", "mine") });
    expect(await trees.enter(second)).toBe(join(second.path, "api"));
    git(folder, "clone", "-q", "--bare", "shop", "bare.git");
    const third = await makeTree(join(folder, "bare.git"), { runId: `${RUN}3` });
    expect(await trees.enter(third)).toBe(third.path);
    expect(await trees.remove(third, false)).toMatchObject({ removed: true });
  });

  test("submodules are left out, and said to be", async () => {
    const [shop, part] = [repository("shop", false), repository("part", false)];
    git(shop, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", part, "part");
    git(shop, "commit", "-q", "-m", "part");
    const record = await makeTree(shop);
    expect(record.baseNote).toBe("local HEAD: no origin; submodules are not in it");
    expect(readdirSync(join(record.path, "part"))).toEqual([]);
    git(record.path, "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init");
    expect((await trees.look(record)).holds).toEqual([]);
    commit(join(record.path, "part"));
    git(record.path, "submodule", "--quiet", "update"); // HEAD of the submodule goes back; the commit is in its log alone
    git(join(record.path, "part"), "branch", "kept", "HEAD@{1}");
    expect((await trees.look(record)).holds).toEqual(["a repository inside it with work: part"]);
    await expect(trees.remove(record, true)).rejects.toThrow(/part.*which git cannot keep/);
    expect(await trees.look(record)).toMatchObject({ there: "whole" });
  });
});

describe("B-115 git is never let ask", () => {
  const listen = async (answer: (text: string) => string | null): Promise<number> => {
    const server = createServer((socket) => {
      socket.on("error", () => {});
      socket.on("data", (data) => {
        const text = answer(data.toString());
        if (text !== null) socket.end(text);
      });
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    return typeof address === "object" && address !== null ? address.port : 0;
  };

  test("a remote that wants a password is away, with git's words and without what the address holds", async () => {
    const shop = repository();
    const port = await listen(
      () => 'HTTP/1.1 401 no\r\nWWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n\r\n',
    );
    git(shop, "remote", "set-url", "origin", `http://127.0.0.1:${port}/shop.git`);
    // A program that would ask a person, in both places where git looks for one.
    git(shop, "config", "core.askPass", join(folder, "ask"));
    writeFileSync(join(folder, "ask"), `#!/bin/sh\ntouch ${folder}/asked; sleep 100\n`, { mode: 0o755 });
    trees = open({ environment: { ...environment(), SSH_ASKPASS: join(folder, "ask"), DISPLAY: ":0" } });
    expect((await makeTree(shop)).baseNote).toMatch(/origin could not be reached: fatal: could not read Username/);
    git(shop, "remote", "set-url", "origin", `http://me:hunter2secret@127.0.0.1:${port}/shop.git`);
    const { baseNote } = await makeTree(shop, { runId: `${RUN}2` });
    expect(baseNote).toMatch(/origin could not be reached: fatal: /);
    expect(baseNote).not.toContain("hunter2secret");
    expect(existsSync(join(folder, "asked"))).toBe(false);
  });

  test("a remote that never answers is away after the limit", async () => {
    const shop = repository();
    const port = await listen(() => null);
    git(shop, "remote", "set-url", "origin", `http://127.0.0.1:${port}/shop.git`);
    trees = open({ limits: { ...defaultLimits, gitFetchMs: 500 } });
    expect((await makeTree(shop)).baseNote).toMatch(/git did not end within 0\.5 s/);
  });

  test("a key with a passphrase: the ssh that is configured is told not to ask, and has no terminal", async () => {
    const shop = repository();
    mkdirSync(join(folder, "tools"));
    writeFileSync(
      join(folder, "tools/ssh"),
      `#!/bin/sh\necho "$@" > ${folder}/words\nif ( : < /dev/tty ) 2> /dev/null; then touch ${folder}/terminal; fi\necho 'Permission denied (publickey).' >&2\nexit 255\n`,
      { mode: 0o755 },
    );
    git(shop, "config", "core.sshCommand", `${folder}/tools/ssh -i mine`);
    git(shop, "remote", "set-url", "origin", "ssh://git@127.0.0.1:1/shop.git");
    expect((await makeTree(shop)).baseNote).toMatch(/Permission denied \(publickey\)/);
    expect(readFileSync(join(folder, "words"), "utf8")).toMatch(/^-i mine -oBatchMode=yes .*git@127\.0\.0\.1/);
    expect(existsSync(join(folder, "terminal"))).toBe(false);
  });
});

describe("what is in the way", () => {
  test("B-102 its branch is checked out in somebody's tree: another name, and theirs is not touched", async () => {
    const shop = repository();
    git(shop, "worktree", "add", "-q", "-b", "drover/nightly/wxyz12", join(folder, "theirs"));
    writeFileSync(join(folder, "theirs/work"), "x");
    const record = await makeTree(shop);
    expect(record.branch).toBe("drover/nightly-wxyz12");
    await trees.remove(record, false);
    expect(branches(shop)).toEqual(["drover/nightly/wxyz12", "main"]);
    expect(existsSync(join(folder, "theirs/work"))).toBe(true);
  });

  test.each([
    ["drover", "drover-nightly-wxyz12"],
    ["drover/nightly", "drover/nightly-wxyz12"],
    ["drover/nightly/wxyz12/x", "drover/nightly-wxyz12"],
    ["release/2026.4", "drover/nightly/wxyz12"],
  ])("B-113 a branch %s is in the way of the namespace: %s", async (taken, chosen) => {
    const shop = repository();
    git(shop, "branch", taken);
    expect((await makeTree(shop)).branch).toBe(chosen);
    expect(branches(shop)).toEqual([taken, chosen, "main"].toSorted());
  });

  test("B-106 somebody holds the repository's configuration: a tree is made and removed all the same", async () => {
    const shop = repository();
    writeFileSync(join(shop, ".git/config.lock"), "");
    const record = await makeTree(shop);
    expect(branches(shop)).toEqual(["drover/nightly/wxyz12", "main"]);
    expect(await trees.remove(record, false)).toMatchObject({ removed: true });
    expect(branches(shop)).toEqual(["main"]);
  });

  test("a lock of another git is waited for; one that stays is named", async () => {
    const shop = repository();
    const lock = join(shop, ".git/refs/heads/drover/nightly/wxyz12.lock");
    mkdirSync(dirname(lock), { recursive: true });
    writeFileSync(lock, "");
    const making = makeTree(shop);
    const released = setTimeout(() => rmSync(lock), 600);
    expect((await making).branch).toBe("drover/nightly/wxyz12");
    clearTimeout(released);
    const second = lock.replace("wxyz12", "wxyz99");
    writeFileSync(second, "");
    await expect(makeTree(shop, { runId: RUN.replace("12", "99") })).rejects.toThrow(second);
    expect(registered(shop)).toHaveLength(2);
  });

  test("B-103 a leftover of ours is cleared: folder, registration and branch", async () => {
    const shop = repository();
    const order = orderFor(shop);
    mkdirSync(order.path, { recursive: true });
    const first = await makeTree(shop);
    const again = await makeTree(shop);
    expect(again).toEqual(first);
    // The tree is deleted behind git's back: the registration is stale, the branch is there.
    rmSync(first.path, { recursive: true });
    git(shop, "worktree", "add", "-q", "--detach", join(folder, "theirs"));
    rmSync(join(folder, "theirs"), { recursive: true });
    expect(await makeTree(shop)).toEqual(first);
    expect(branches(shop)).toEqual(["drover/nightly/wxyz12", "main"]);
    expect(registered(shop).toSorted(), "another's stale registration is not ours to prune").toEqual(
      [shop, first.path, join(folder, "theirs")].toSorted(),
    );
  });

  test("what is not ours stays: a link, a file, files, another repository, another run's tree", async () => {
    const [shop, other] = [repository(), repository("other")];
    const { path } = orderFor(shop);
    mkdirSync(dirname(path), { recursive: true });
    const refused = async (pattern: RegExp) => {
      await expect(trees.make(orderFor(shop))).rejects.toThrow(pattern);
      expect(branches(shop)).toEqual(["main"]);
    };
    symlinkSync(other, path);
    await refused(/is a link/);
    rmSync(path);
    writeFileSync(path, "");
    await refused(/is a file/);
    rmSync(path);
    mkdirSync(path);
    writeFileSync(join(path, "mine"), "");
    await refused(/no worktree of drover's/);
    rmSync(path, { recursive: true });
    git(other, "worktree", "add", "-q", "--detach", path);
    await refused(/another repository/);
    git(other, "worktree", "remove", path);
    git(folder, "clone", "-q", "other.git", path);
    await refused(/no worktree of drover's/);
    rmSync(path, { recursive: true });
    await makeTree(shop, { path, runId: "run_another" });
    await expect(trees.make(orderFor(shop))).rejects.toThrow(/worktree of run_another/);
  });

  test("B-105 30 parallel starts on one repository give 30 trees, 30 branches and no other", async () => {
    const shop = repository();
    const second = open(); // as another process: it shares no queue
    const ids = Array.from({ length: 30 }, (_, i) => `run_${String(i).padStart(6, "0")}`);
    const made = await Promise.all(
      ids.map((runId, i) => (i % 2 === 0 ? trees : second).make(orderFor(shop, { runId }))),
    );
    expect(new Set(made.map((one) => one?.branch)).size).toBe(30);
    expect(branches(shop)).toEqual([...ids.map((id) => `drover/nightly/${id.slice(-6)}`), "main"].toSorted());
    expect(registered(shop)).toHaveLength(31);
    const removed = await Promise.all(
      ids.map((runId, i) => trees.remove(recordOf(orderFor(shop, { runId }), made[i] ?? null), false)),
    );
    expect(removed.map((one) => one.state.holds.join(", "))).toEqual(ids.map(() => ""));
    expect(branches(shop)).toEqual(["main"]);
    expect(registered(shop)).toEqual([shop]);
  }, 120_000);
});

describe("B-108 what holds work stays, and discard keeps all of it under a ref", () => {
  interface Kept {
    readonly work: (tree: string, shop: string) => void;
    readonly because: RegExp;
    /** Paths with their content that the rescue holds. */
    readonly files?: Record<string, string>;
  }
  const kept: Record<string, Kept> = {
    dirty: {
      work: (tree) => appendFileSync(join(tree, "README.md"), "more\n"),
      because: /^1 uncommitted change \(README\.md\)$/,
      files: { "README.md": "first\nmore\n" },
    },
    staged: {
      work: (tree) => {
        writeFileSync(join(tree, "README.md"), "staged\n");
        git(tree, "add", "-A");
      },
      because: /uncommitted/,
      files: { "README.md": "staged\n" },
    },
    deleted: { work: (tree) => rmSync(join(tree, "README.md")), because: /1 uncommitted change/ },
    untracked: {
      work: (tree) => writeFileSync(join(tree, "new file"), "new\n"),
      because: /^1 untracked file \(new file\)$/,
      files: { "new file": "new\n" },
    },
    "an untracked folder": {
      work: (tree) => {
        mkdirSync(join(tree, "new"));
        writeFileSync(join(tree, "new/file"), "new\n");
      },
      because: /^1 untracked file \(new\/file\)$/,
      files: { "new/file": "new\n" },
    },
    "untracked, hidden by the configuration": {
      work: (tree, shop) => {
        git(shop, "config", "status.showUntrackedFiles", "no");
        writeFileSync(join(tree, "new"), "new\n");
      },
      because: /untracked/,
      files: { new: "new\n" },
    },
    ahead: { work: (tree) => commit(tree), because: /^1 commit of its own$/, files: { "README.md": "first\nmore\n" } },
    "on another branch": {
      work: (tree) => {
        git(tree, "checkout", "-q", "-b", "feature");
        commit(tree);
      },
      because: /^1 commit of its own$/,
      files: { "README.md": "first\nmore\n" },
    },
    detached: {
      work: (tree) => {
        git(tree, "checkout", "-q", "--detach");
        commit(tree);
      },
      because: /^1 commit of its own on no branch$/,
      files: { "README.md": "first\nmore\n" },
    },
    "its branch is left behind": {
      work: (tree) => {
        commit(tree);
        git(tree, "checkout", "-q", "--detach", "HEAD~1");
      },
      because: /^1 commit of its own$/,
    },
    stash: {
      work: (tree) => {
        appendFileSync(join(tree, "README.md"), "more\n");
        git(tree, "stash", "-q");
      },
      because: /^1 stash made in it$/,
    },
    "a stash with a message, while detached": {
      work: (tree) => {
        git(tree, "checkout", "-q", "--detach");
        appendFileSync(join(tree, "README.md"), "more\n");
        git(tree, "stash", "push", "-q", "-m", "later");
      },
      because: /^1 stash made in it$/,
    },
    "taken for unchanged": {
      work: (tree) => {
        git(tree, "update-index", "--assume-unchanged", "README.md");
        appendFileSync(join(tree, "README.md"), "hidden\n");
      },
      because: /^1 uncommitted change \(README\.md\)$/,
      files: { "README.md": "first\nhidden\n" },
    },
    "a merge under way": {
      work: (tree) => {
        git(tree, "checkout", "-q", "-b", "side");
        commit(tree);
        git(tree, "checkout", "-q", "drover/nightly/wxyz12");
        writeFileSync(join(tree, "README.md"), "other\n");
        git(tree, "commit", "-qam", "other");
        spawnSync("git", ["merge", "side"], { cwd: tree, env: { ...environment(), ...person } });
      },
      because: /a merge under way/,
    },
    "an orphan branch": {
      work: (tree) => {
        git(tree, "checkout", "-q", "--orphan", "fresh");
      },
      because: /uncommitted/,
      files: { "README.md": "first\n" },
    },
  };

  test.each(Object.entries(kept))("%s", async (_, { work, because, files = {} }) => {
    const shop = repository();
    const record = await makeTree(shop);
    work(record.path, shop);
    const before = git(record.path, "status", "--porcelain", "-uall");
    const head = spawnSync("git", ["rev-parse", "HEAD"], { cwd: record.path, encoding: "utf8" });
    const answer = await trees.remove(record, false);
    expect(answer.removed).toBe(false);
    expect(answer.state.holds.join(", ")).toMatch(because);
    expect(git(record.path, "status", "--porcelain", "-uall"), "nothing was changed").toBe(before);
    expect(registered(shop)).toContain(record.path);
    const stashes = git(shop, "stash", "list");

    expect(await trees.remove(record, true)).toMatchObject({ removed: true });
    expect(existsSync(record.path)).toBe(false);
    expect(registered(shop)).toEqual([shop]);
    const ref = `refs/drover/rescue/${RUN}`;
    for (const [path, content] of Object.entries(files))
      expect(git(shop, "show", `${ref}:${path}`)).toBe(content.trim());
    if (head.status === 0) git(shop, "merge-base", "--is-ancestor", head.stdout.trim(), ref);
    expect(git(shop, "stash", "list")).toBe(stashes);
    for (const stash of git(shop, "stash", "list", "--format=%H").split("\n").filter(Boolean))
      git(shop, "merge-base", "--is-ancestor", stash, ref);
    expect(said.join()).toContain(ref);
  });

  test("pushed commits do not hold it, and its branch stays", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    commit(record.path);
    git(record.path, "push", "-q", "origin", "HEAD");
    expect(await trees.look(record)).toMatchObject({ holds: [], commits: 1 });
    expect(await trees.remove(record, false)).toMatchObject({ removed: true });
    expect(branches(shop)).toEqual(["drover/nightly/wxyz12", "main"]);
  });

  test("its branch stays when another tree works on it", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    git(record.path, "checkout", "-q", "--detach");
    git(shop, "worktree", "add", "-q", join(folder, "theirs"), record.branch ?? "");
    expect(await trees.remove(record, false)).toMatchObject({ removed: true });
    expect(branches(shop)).toEqual([record.branch, "main"]);
  });

  test("stashes of the main checkout and of other trees do not hold it", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    const other = await makeTree(shop, { runId: `${RUN}2` });
    for (const tree of [shop, other.path]) {
      appendFileSync(join(tree, "README.md"), "more\n");
      git(tree, "stash", "-q");
    }
    expect((await trees.look(record)).holds).toEqual([]);
    expect((await trees.look(other)).holds).toEqual(["1 stash made in it"]);
  });

  test("what is staged and what was changed after are both kept", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    writeFileSync(join(record.path, "README.md"), "staged\n");
    git(record.path, "add", "-A");
    writeFileSync(join(record.path, "README.md"), "later\n");
    await trees.remove(record, true);
    const ref = `refs/drover/rescue/${RUN}`;
    expect(git(shop, "show", `${ref}:README.md`)).toBe("later");
    expect(git(shop, "show", `${ref}^2:README.md`)).toBe("staged");
  });

  test("a repository inside it, ignored or not, is work that git cannot keep", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    const inside = join(record.path, "ignored/clone");
    mkdirSync(inside, { recursive: true });
    git(inside, "clone", "-q", join(folder, "shop.git"), ".");
    expect((await trees.look(record)).holds).toEqual([]);
    commit(inside);
    expect((await trees.look(record)).holds).toEqual(["a repository inside it with work: ignored/clone"]);
    git(record.path, "init", "-q", "plain");
    writeFileSync(join(record.path, "plain/x"), "");
    expect((await trees.look(record)).holds.join()).toContain("work: plain");
    await expect(trees.remove(record, true)).rejects.toMatchObject({ code: "workspace", kind: "conflict" });
    expect(existsSync(join(inside, "README.md"))).toBe(true);
  });

  test("a locked tree stays", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    git(shop, "worktree", "lock", "--reason", "on a stick", record.path);
    expect(await trees.remove(record, false)).toMatchObject({
      removed: false,
      state: { holds: ["a lock by `git worktree lock`: on a stick"] },
    });
  });

  test("a process in it is named and never loses the ground, whatever a person said", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    const pid = await shellIn(join(record.path, "api"));
    const touched = statSync(dirname(record.path), { bigint: true }).mtimeNs;
    for (const discard of [false, true]) {
      const { removed, state } = await trees.remove(record, discard);
      expect(removed).toBe(false);
      expect(state.holds).toEqual([expect.stringMatching(new RegExp(`^pid ${pid} works in it \\(\\w+\\)$`))]);
    }
    expect(existsSync(join(record.path, "api"))).toBe(true);
    expect(statSync(dirname(record.path), { bigint: true }).mtimeNs, "it was not even moved").toBe(touched);
    // Also a tree that nobody has worked in yet.
    expect(await trees.remove({ ...record, state: "making" }, false)).toMatchObject({ removed: false });
    expect(existsSync(join(record.path, "api"))).toBe(true);
  });

  test("when git cannot say, it holds", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    rmSync(join(record.path, ".git"));
    expect((await trees.look(record)).holds).toEqual([expect.stringMatching(/^could not be looked at: /)]);
    await expect(trees.remove(record, true)).rejects.toMatchObject({ code: "workspace" });
    expect(existsSync(join(record.path, "README.md"))).toBe(true);
    const second = await makeTree(shop, { runId: `${RUN}2` });
    rmSync(shop, { recursive: true });
    expect(await trees.remove(second, false)).toMatchObject({
      removed: false,
      state: { there: "whole", holds: [expect.stringMatching(/^could not be looked at: .*not a git repository/)] },
    });
    // The disk of all trees is away: none is gone.
    const elsewhere = open({ root: join(folder, "unmounted") });
    expect(await elsewhere.look({ ...second, path: join(folder, "unmounted/a/b") })).toMatchObject({ there: "whole" });
  });

  test("a tree that somebody deleted loses its traces, and a commit that only its HEAD had is kept", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    git(record.path, "checkout", "-q", "--detach");
    commit(record.path);
    const head = git(record.path, "rev-parse", "HEAD");
    rmSync(record.path, { recursive: true });
    expect(await trees.remove(record, false)).toMatchObject({ removed: true, state: { there: "gone" } });
    expect(registered(shop)).toEqual([shop]);
    expect(git(shop, "rev-parse", `refs/drover/rescue/${RUN}`)).toBe(head);
    expect(branches(shop)).toEqual(["main"]);
  });

  test("files that git calls changed from the first moment do not hold it; a change of them does", async () => {
    const shop = repository("shop", false);
    writeFileSync(join(shop, "lines.txt"), "a\r\nb\r\n");
    git(shop, "add", "-A");
    git(shop, "commit", "-q", "-m", "line ends");
    writeFileSync(join(shop, ".gitattributes"), "*.txt text eol=crlf\n");
    git(shop, "add", ".gitattributes");
    git(shop, "commit", "-q", "-m", "attributes");
    const record = await makeTree(shop);
    expect(git(record.path, "status", "--porcelain")).toContain("lines.txt");
    expect(record.baseNote).toContain("git calls 1 of its files changed");
    expect((await trees.look(record)).holds).toEqual([]);
    appendFileSync(join(record.path, "lines.txt"), "c\r\n");
    expect((await trees.look(record)).holds).toEqual(["1 uncommitted change (lines.txt)"]);
  });

  test("a tree that is older than a day is registered at its own place, also after it was set aside", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    const gitdir = join(shop, ".git/worktrees", readdirSync(join(shop, ".git/worktrees"))[0] ?? "", "gitdir");
    utimesSync(gitdir, new Date(0), new Date(0));
    const flawed = open({
      environment: { ...environment(), PATH: `${failing("add")}:${process.env["PATH"]}` },
    });
    writeFileSync(join(record.path, "new"), "x");
    await expect(flawed.remove(record, true)).rejects.toThrow(/could not be kept/);
    expect(registered(shop)).toEqual([shop, record.path]);
    expect(readFileSync(join(record.path, "new"), "utf8")).toBe("x");
  });
});

/** A folder with a git that fails at one word. */
function failing(word: string): string {
  const bin = join(folder, `bin-${word}`);
  const real = execFileSync("sh", ["-c", "command -v git"], { encoding: "utf8" }).trim();
  mkdirSync(bin);
  writeFileSync(
    join(bin, "git"),
    `#!/bin/sh\nfor w in "$@"; do [ "$w" = ${word} ] && { echo 'fatal: no' >&2; exit 1; }; done\nexec ${real} "$@"\n`,
    { mode: 0o755 },
  );
  return bin;
}

describe("to go on in a tree", () => {
  test("B-109 what was edited is there after a restart", async () => {
    const record = await makeTree(repository());
    appendFileSync(join(record.path, "README.md"), "200 lines\n");
    expect(await open().enter(record)).toBe(record.path);
    expect(readFileSync(join(record.path, "README.md"), "utf8")).toBe("first\n200 lines\n");
  });

  test("B-111 a tree that is not there is refused, with the command that makes it again", async () => {
    const shop = repository();
    const record = await makeTree(join(shop, "api"));
    commit(record.path);
    rmSync(record.path, { recursive: true });
    const refused = await trees.enter(record).then(
      () => null,
      (error: unknown) => error,
    );
    expect(refused).toMatchObject({ code: "workspace", message: expect.stringContaining("is not there any more") });
    const command = /`(.*)`/.exec((refused as { hint: string }).hint)?.[1] ?? "";
    execFileSync("sh", ["-c", command], { env: environment(), stdio: "ignore" });
    expect(await trees.enter(record)).toBe(join(record.path, "api"));
    expect(readFileSync(join(record.path, "README.md"), "utf8")).toBe("first\nmore\n");
    // Without its branch too.
    rmSync(record.path, { recursive: true });
    git(shop, "update-ref", "-d", `refs/heads/${record.branch}`);
    const second = await trees.enter(record).catch((error: unknown) => error as { hint: string });
    execFileSync("sh", ["-c", /`(.*)`/.exec((second as { hint: string }).hint)?.[1] ?? ""], {
      env: environment(),
      stdio: "ignore",
    });
    expect(await trees.enter(record)).toBe(join(record.path, "api"));
  });

  test("another branch is fine; another repository, a lost branch, a lost folder and a way out are not", async () => {
    const [shop, other] = [repository(), repository("other")];
    const record = await makeTree(join(shop, "api"));
    git(record.path, "checkout", "-q", "-b", "feature");
    expect(await trees.enter(record)).toBe(join(record.path, "api"));
    git(shop, "update-ref", "-d", `refs/heads/${record.branch}`);
    await expect(trees.enter(record)).rejects.toThrow(/has lost its branch/);
    git(shop, "branch", record.branch ?? "", record.base ?? "");
    rmSync(join(record.path, "api"), { recursive: true });
    await expect(trees.enter(record)).rejects.toThrow(/has no folder api/);
    symlinkSync(join(shop, "api"), join(record.path, "api"));
    await expect(trees.enter(record)).rejects.toThrow(/leads out of it/);
    rmSync(record.path, { recursive: true });
    git(other, "worktree", "add", "-q", "--detach", record.path);
    await expect(trees.enter(record)).rejects.toThrow(/belongs to another repository/);
    await expect(trees.enter({ ...record, repository: null })).rejects.toThrow(/was not made/);
  });

  test("B-112 what happens in the main checkout meanwhile is seen and told", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    writeFileSync(join(shop, "mine"), "x");
    expect(await trees.escaped(record), "nothing was noted").toBeNull();
    await trees.watch(record, "att_1.1");
    commit(record.path);
    expect(await trees.escaped(record)).toBeNull();
    appendFileSync(join(shop, "README.md"), "escaped\n");
    appendFileSync(join(shop, "mine"), "y");
    const changed = { headMoved: false, paths: ["README.md", "mine"], count: 2 };
    expect(await trees.escaped(record)).toEqual(changed);
    expect(await open().escaped(record), "a later daemon has what an earlier one noted").toEqual(changed);
    git(shop, "commit", "-qam", "escaped");
    expect(await trees.escaped(record)).toEqual({ headMoved: true, paths: ["mine"], count: 1 });
    await trees.watch(record, "att_1.1");
    expect(await trees.escaped(record), "the next attempt begins with what is there").toBeNull();
    rmSync(join(shop, "mine"));
    expect(await trees.escaped(record)).toEqual({ headMoved: false, paths: ["mine"], count: 1 });
    rmSync(shop, { recursive: true });
    expect(await trees.escaped(record), "nothing is worse than this").toEqual({
      headMoved: true,
      paths: ["."],
      count: 1,
    });
  });

  test("B-112 a file that git ignores is seen too, a folder that it ignores whole is not looked into", async () => {
    const shop = repository();
    writeFileSync(join(shop, ".gitignore"), ".env\ncache/\n*.key\n");
    git(shop, "add", "-A");
    git(shop, "commit", "-qm", "ignores");
    for (const name of ["cache", "conf"]) mkdirSync(join(shop, name));
    for (const name of [".env", "cache/a", "conf/b.key"]) writeFileSync(join(shop, name), "secret\n");
    const record = await makeTree(shop);
    await trees.watch(record, "att_1.1");
    expect(await trees.escaped(record)).toBeNull();
    for (const name of [".env", "cache/a", "conf/b.key"]) appendFileSync(join(shop, name), "more\n");
    writeFileSync(join(shop, "conf/new.key"), "x");
    rmSync(join(shop, "cache"), { recursive: true });
    expect(await trees.escaped(record)).toEqual({
      headMoved: false,
      paths: [".env", "conf/b.key", "conf/new.key"],
      count: 3,
    });
  });

  test("B-112 the tree that the person works in is watched too, and a bare repository has none", async () => {
    const shop = repository();
    git(shop, "worktree", "add", "-q", "--detach", join(folder, "mine"));
    const record = await makeTree(join(folder, "mine"));
    await trees.watch(record, "att_1.1");
    appendFileSync(join(folder, "mine/README.md"), "escaped\n");
    appendFileSync(join(shop, "README.md"), "escaped\n");
    expect((await trees.escaped(record))?.paths).toEqual([join(folder, "mine/README.md"), "README.md"].toSorted());

    const bare = await makeTree(join(folder, "shop.git"), { runId: `${RUN}2` });
    await trees.watch(bare, "att_1.1");
    expect(await trees.escaped(bare)).toBeNull();
    expect(await trees.remove(bare, false)).toMatchObject({ removed: true });
  });
});

describe("trees that no record knows", () => {
  test("B-110 git and the processes decide: a commit and a live shell are both named, and it stays", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    const known = await makeTree(shop, { runId: `${RUN}2` });
    const empty = await makeTree(shop, { runId: `${RUN}3` });
    commit(record.path);
    const pid = await shellIn(record.path);
    mkdirSync(join(root, "shop/not-a-tree"));
    writeFileSync(join(root, "shop/not-a-tree/file"), "");
    mkdirSync(join(root, "shop/left-empty"));
    expect(await trees.strays([]), "what this process has just made may have a record by now").toHaveLength(2);
    const later = open();
    const strays = await later.strays([known.path]);
    const of = (path: string) => strays.find((one) => one.record.path === path);
    expect(strays).toHaveLength(4);
    expect(of(record.path)?.state.holds).toEqual([
      expect.stringContaining(`pid ${pid} works in it`),
      "1 commit of its own",
    ]);
    expect(of(record.path)?.record).toMatchObject({ runId: "", branch: record.branch, base: record.base, commits: 1 });
    expect(of(join(root, "shop/not-a-tree"))?.state.holds).toEqual([expect.stringMatching(/^could not be looked at/)]);
    for (const { record: stray } of strays) await later.remove(stray, false);
    expect(existsSync(record.path)).toBe(true);
    expect(existsSync(known.path)).toBe(true);
    expect(existsSync(empty.path)).toBe(false);
    expect(existsSync(join(root, "shop/left-empty"))).toBe(false);
    expect(existsSync(join(root, "shop/not-a-tree/file"))).toBe(true);
    expect(branches(shop)).toEqual(
      [record.branch, known.branch, "main"].toSorted((a, b) => ((a ?? "") < (b ?? "") ? -1 : 1)),
    );
  });
});

const mayMount = process.platform === "linux" && process.getuid?.() === 0;
test.skipIf(!mayMount)(
  "a disk that fills up in the middle of a checkout is no_space, and nothing is left",
  async () => {
    const shop = repository("shop", false);
    writeFileSync(join(shop, "large"), Buffer.alloc(3 * 1024 * 1024, "x"));
    git(shop, "add", "-A");
    git(shop, "commit", "-q", "-m", "large");
    mkdirSync(root);
    execFileSync("/bin/mount", ["-t", "tmpfs", "-o", "size=2m", "tmpfs", root]);
    try {
      await expect(trees.make(orderFor(shop))).rejects.toMatchObject({ code: "no_space", kind: "unreachable" });
      expect(registered(shop)).toEqual([shop]);
      expect(branches(shop)).toEqual(["main"]);
      expect(statfsSync(root).bavail * statfsSync(root).bsize).toBeGreaterThan(1024 * 1024);
    } finally {
      execFileSync("/bin/umount", ["-l", root]);
    }
  },
);

describe("what somebody met who had never seen it", () => {
  /** A repository whose checkout never ends by itself; its filter writes its pid first. */
  function endless(): { shop: string; filter: () => number } {
    const shop = repository();
    writeFileSync(join(folder, "filter"), `#!/bin/sh\necho $$ > ${folder}/pid\nsleep 300 & wait\ncat\n`, {
      mode: 0o755,
    });
    git(shop, "config", "filter.slow.smudge", join(folder, "filter"));
    writeFileSync(join(shop, ".gitattributes"), "*.bin filter=slow\n");
    writeFileSync(join(shop, "a.bin"), "x\n");
    git(shop, "add", "-A");
    git(shop, "commit", "-q", "-m", "slow");
    git(shop, "push", "-q", "origin", "main");
    return { shop, filter: () => Number(readFileSync(join(folder, "pid"), "utf8")) };
  }
  const until = async (condition: () => boolean): Promise<void> => {
    const deadline = performance.now() + 20_000;
    while (!condition() && performance.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 10));
    expect(condition()).toBe(true);
  };

  test("a tree in the making that nobody wants any more: its git ends with all it started, and nothing is left", async () => {
    const { shop, filter } = endless();
    const stop = new AbortController();
    const order = orderFor(shop);
    const made = trees.make(order, stop.signal);
    await until(() => existsSync(join(folder, "pid")) && filter() > 0);
    const at = performance.now();
    stop.abort();
    await expect(made).rejects.toThrow(/not wanted any more/);
    expect(performance.now() - at).toBeLessThan(5000);
    expect(isAlive(table.read(filter()))).toBe(false);
    expect(existsSync(order.path)).toBe(false);
    expect(registered(shop)).toEqual([shop]);
    expect(branches(shop)).toEqual(["main"]);
  });

  test("a fetch that several wait for goes on while one of them wants it, and ends with the last", async () => {
    const shop = repository();
    writeFileSync(join(folder, "ssh"), `#!/bin/sh\necho $$ >> ${folder}/ssh-pids\nsleep 300 & wait\n`, { mode: 0o755 });
    git(shop, "config", "core.sshCommand", join(folder, "ssh"));
    git(shop, "remote", "set-url", "origin", "ssh://nobody@drover.invalid/x.git");
    const pids = () =>
      existsSync(join(folder, "ssh-pids")) ? readFileSync(join(folder, "ssh-pids"), "utf8").trim().split("\n") : [];
    const [one, two] = [new AbortController(), new AbortController()];
    // The first round is the first's alone; the two after it share one.
    const first = trees.make(orderFor(shop, { runId: `${RUN}1` }), one.signal);
    await until(() => pids().length === 1);
    const second = trees.make(orderFor(shop, { runId: `${RUN}2` }), two.signal);
    two.abort();
    await expect(second).rejects.toThrow(/not wanted/);
    expect(isAlive(table.read(Number(pids()[0])))).toBe(true);
    one.abort();
    await expect(first).rejects.toThrow(/not wanted/);
    await until(() => !isAlive(table.read(Number(pids()[0]))));
    expect(pids()).toHaveLength(1);
  });

  test("a file that its run was to leave keeps it although git ignores it, and is kept when it is given up", async () => {
    const shop = repository();
    const record = await makeTree(join(shop, "api"), { expected: ["../ignored/report.txt", "../ignored", "none.txt"] });
    expect(await trees.look(record)).toMatchObject({ holds: [] });
    mkdirSync(join(record.path, "ignored"));
    writeFileSync(join(record.path, "ignored/report.txt"), "evidence\n");
    expect(await trees.remove(record, false)).toMatchObject({
      removed: false,
      state: { holds: ["2 expected files that git ignores (ignored/report.txt, ignored)"] },
    });
    expect(await trees.remove(record, true)).toMatchObject({ removed: true });
    expect(git(shop, "show", `refs/drover/rescue/${RUN}:ignored/report.txt`)).toBe("evidence");
  });

  test("what git ignores goes with a tree that holds nothing else, and is said", async () => {
    const record = await makeTree(repository());
    mkdirSync(join(record.path, "ignored/deep"), { recursive: true });
    writeFileSync(join(record.path, "ignored/deep/cache"), "x");
    expect(await trees.remove(record, false)).toMatchObject({
      removed: true,
      note: "1 path that git ignores went with it (ignored/)",
    });
  });

  test("a tree that its agent removed after a commit: the branch holds it, until somebody gives it up", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    commit(record.path);
    const tip = git(record.path, "rev-parse", "HEAD");
    git(shop, "worktree", "remove", record.path);
    const holds = ["1 commit of its own on the branch drover/nightly/wxyz12; its folder was removed"];
    expect(await trees.look(record)).toMatchObject({ there: "gone", holds, commits: 1 });
    expect(await trees.remove(record, false)).toMatchObject({ removed: false, state: { holds } });
    expect(branches(shop)).toContain("drover/nightly/wxyz12");
    expect(await trees.remove(record, true)).toMatchObject({ removed: true });
    expect(git(shop, "rev-parse", `refs/drover/rescue/${RUN}`)).toBe(tip);
    expect(branches(shop)).toEqual(["main"]);
  });

  test("a tree that somebody took away is not said to have held nothing, and one that never was made neither", async () => {
    const shop = repository();
    const record = await makeTree(shop);
    rmSync(record.path, { recursive: true });
    expect(await trees.remove(record, false)).toMatchObject({
      removed: true,
      note: "its folder had been removed by somebody else",
    });
    expect(await trees.remove(recordOf(orderFor(shop), null), false)).toMatchObject({ note: "it was never made" });
  });

  test("a tree that git does not know any more is said to be blind, so that nobody is led to give it up", async () => {
    const record = await makeTree(repository());
    rmSync(join(record.path, ".git"));
    expect(await trees.look(record)).toMatchObject({ there: "whole", blind: true });
    await expect(trees.remove(record, true)).rejects.toMatchObject({ hint: expect.stringContaining("by hand") });
    rmSync(record.path, { recursive: true });
    expect(await trees.remove(record, false)).toMatchObject({ removed: true });
  });

  test("a secret in the name of a file is told nowhere", async () => {
    const shop = repository();
    const canary = "canary-7f3a91";
    const record = await makeTree(shop);
    mkdirSync(join(folder, "runs/att_1.1"), { recursive: true });
    writeFileSync(join(folder, "runs/att_1.1/scrub"), JSON.stringify(fingerprint([canary])));
    await trees.watch(record, "att_1.1");
    for (const place of [record.path, shop]) writeFileSync(join(place, `leak-${canary}.txt`), "x");
    mkdirSync(join(record.path, `nested-${canary}`));
    git(join(record.path, `nested-${canary}`), "init", "-q");
    const told = [await trees.look(record), await trees.remove(record, false), await trees.escaped(record)];
    const refused = await trees.remove(record, true).catch((error: unknown) => String(error));
    expect(JSON.stringify([told, refused, said])).not.toContain(canary);
    expect(JSON.stringify(told[2])).toContain("leak-[secret].txt");
    expect(JSON.stringify(told[0])).toContain("leak-[secret].txt");
    expect(refused).toContain("nested-[secret]");
  });
});

/** Every so manieth call of git is the one that kills; 1 for all of them, which takes minutes. */
const EVERY = Number(process.env["DROVER_KILL_EVERY"] ?? 6);

describe("kill -9 at any call of git", () => {
  /** The same code in a process of its own, which a git on its PATH kills. */
  let program: string;
  let place: string;
  beforeAll(async () => {
    place = mkdtempSync(join(tmpdir(), "drover-kill-"));
    program = join(place, "program.mjs");
    const here = dirname(fileURLToPath(import.meta.url));
    await build({
      stdin: {
        contents: `
          import { openWorktrees } from "./open-worktrees.ts";
          import { isAlive, openProcessTable } from "../processes.ts";
          import { defaultLimits } from "../../core/limits.ts";
          const { root, what, argument, discard } = JSON.parse(process.argv[2]);
          const trees = openWorktrees({ root, environment: process.env, limits: defaultLimits, table: openProcessTable(), log: () => {} });
          const answer = what === "make" ? await trees.make(argument) : await trees.remove(argument, discard);
          console.log(JSON.stringify(answer));`,
        resolveDir: here,
        loader: "ts",
      },
      bundle: true,
      platform: "node",
      format: "esm",
      outfile: program,
    });
  });
  afterAll(() => rmSync(place, { recursive: true, force: true }));

  /** Runs it; the n-th call of git kills it first, and then is done or not. Answers whether it was killed. */
  async function killAt(call: number, goesOn: boolean, request: Record<string, unknown>): Promise<boolean> {
    const bin = join(folder, `bin-${call}`);
    const real = execFileSync("sh", ["-c", "command -v git"], { encoding: "utf8" }).trim();
    mkdirSync(bin, { recursive: true });
    for (const file of ["calls", "over"]) rmSync(join(bin, file), { force: true });
    writeFileSync(
      join(bin, "git"),
      `#!/bin/sh
echo x >> ${bin}/calls
if [ "$(wc -l < ${bin}/calls)" -eq ${call} ]; then kill -9 $PPID; ${goesOn ? `${real} "$@"; touch ${bin}/over; exit 0` : `touch ${bin}/over; exit 1`}; fi
exec ${real} "$@"
`,
      { mode: 0o755 },
    );
    const child = spawn(process.execPath, [program, JSON.stringify({ root, ...request })], {
      env: { ...environment(), PATH: `${bin}:${process.env["PATH"]}` },
      stdio: "ignore",
    });
    const signal = await new Promise((resolve) => child.once("exit", (_, by) => resolve(by)));
    if (signal !== "SIGKILL") return false;
    const deadline = performance.now() + 10_000;
    while (!existsSync(join(bin, "over")) && performance.now() < deadline)
      await new Promise((resolve) => setTimeout(resolve, 5));
    return true;
  }

  test.each([false, true])(
    "B-103 while a tree is made (that call is done: %s)",
    async (goesOn) => {
      const shop = repository();
      let calls = 0;
      for (let call = goesOn ? 1 : Math.min(4, EVERY); ; call += EVERY) {
        trees = open();
        const order = orderFor(shop, { runId: `run_${String(call).padStart(6, "0")}` });
        if (!(await killAt(call, goesOn, { what: "make", argument: order }))) break;
        calls = call;
        const record = recordOf(order, await trees.make(order));
        const state = `killed at call ${call}`;
        expect(record.branch, state).toBe(`drover/nightly/${order.runId.slice(-6)}`);
        expect(registered(shop), state).toEqual([shop, record.path]);
        expect(readdirSync(join(shop, ".git/worktrees")), state).toHaveLength(1);
        expect(branches(shop), state).toEqual([record.branch, "main"]);
        expect((await trees.look(record)).holds, state).toEqual([]);
        // Killed once more, and given up instead.
        await trees.remove(record, false);
        await killAt(call, goesOn, { what: "make", argument: order });
        trees = open();
        expect(await trees.remove(recordOf(order, null), false), state).toMatchObject({ removed: true });
        expect(registered(shop), state).toEqual([shop]);
        expect(existsSync(join(shop, ".git/worktrees")), state).toBe(false);
        expect(branches(shop), state).toEqual(["main"]);
        expect(existsSync(order.path), state).toBe(false);
      }
      expect(calls).toBeGreaterThan(10);
    },
    240_000,
  );

  test.each([
    [false, false],
    [true, false],
    [true, true],
  ])(
    "while a tree is removed (discard: %s, that call is done: %s): nothing is lost, and the next goes through",
    async (discard, goesOn) => {
      const shop = repository();
      let calls = 0;
      for (let call = goesOn ? 1 : Math.min(4, EVERY); ; call += EVERY) {
        trees = open();
        const record = await makeTree(shop, { runId: `run_${String(call).padStart(6, "0")}` });
        if (discard) {
          git(record.path, "checkout", "-q", "--detach");
          commit(record.path);
          writeFileSync(join(record.path, "new"), "new\n");
        }
        if (!(await killAt(call, goesOn, { what: "remove", argument: record, discard }))) break;
        calls = call;
        const state = `killed at call ${call}`;
        trees = open();
        const ref = `refs/drover/rescue/${record.runId}`;
        const looked = await trees.look(record);
        // Either it is there as it was, or all of it is under the ref.
        if (discard && looked.there === "whole") expect(looked.holds, state).toHaveLength(2);
        if (discard && looked.there === "gone") expect(git(shop, "show", `${ref}:new`), state).toBe("new");
        expect(await trees.remove(record, discard), state).toMatchObject({ removed: true });
        expect(registered(shop), state).toEqual([shop]);
        expect(existsSync(join(shop, ".git/worktrees")), state).toBe(false);
        expect(branches(shop), state).toEqual(["main"]);
        expect(existsSync(record.path), state).toBe(false);
        expect(
          readdirSync(root).flatMap((name) => readdirSync(join(root, name))),
          state,
        ).toEqual([]);
        if (discard) {
          expect(git(shop, "show", `${ref}:new`), state).toBe("new");
          expect(git(shop, "show", `${ref}:README.md`), state).toBe("first\nmore");
        }
      }
      expect(calls).toBeGreaterThan(10);
    },
    240_000,
  );
});
