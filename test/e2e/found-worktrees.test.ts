/** Worktrees as somebody met them who had never seen them: what is made is cut short, and what is said is checked by hand. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

interface Shown {
  readonly id: string;
  readonly status: string;
  readonly error: { readonly class: string; readonly message: string } | null;
  readonly steps: readonly { readonly triesCounted: number }[];
  readonly worktree: {
    readonly path: string;
    readonly branch: string | null;
    readonly state: string;
    readonly keptBecause: string | null;
    readonly goneBecause: string | null;
  } | null;
}

let home: Home;
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

beforeEach(() => {
  home = openHome({ prefix: "drover-found-trees-" });
  // What an agent does is the shell text of its prompt, in lines that begin with `do `: drover may add words of its own.
  writeFileSync(join(home.folder, "agent"), `#!/bin/sh\neval "$(sed -n 's/^do //p')"\necho done\n`, { mode: 0o755 });
});
afterEach(() => home.close());

function repository(files: Readonly<Record<string, string>> = {}): string {
  const path = join(home.folder, "shop");
  mkdirSync(path);
  git(path, "init", "-q", "-b", "main");
  for (const [name, text] of Object.entries({ "README.md": "first\n", ...files }))
    writeFileSync(join(path, name), text);
  git(path, "add", "-A");
  git(path, "commit", "-q", "-m", "first");
  return path;
}

/** A repository whose checkout waits for the file `go`; each filter writes its pid first. */
function slowRepository() {
  const path = repository({ ".gitattributes": "*.bin filter=slow\n", "a.bin": "x\n" });
  const [pids, go] = [join(home.folder, "pids"), join(home.folder, "go")];
  writeFileSync(
    join(home.folder, "filter"),
    `#!/bin/sh\necho $$ >> '${pids}'\nuntil [ -e '${go}' ]; do sleep 0.1; done\ncat\n`,
    { mode: 0o755 },
  );
  git(path, "config", "filter.slow.smudge", join(home.folder, "filter"));
  const filters = (): number[] => (existsSync(pids) ? readFileSync(pids, "utf8").trim().split("\n").map(Number) : []);
  return { path, filters, letGo: () => writeFileSync(go, "") };
}

const isAlive = (pid: number): boolean => {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false;
  }
};
const words = (cwd: string, prompt: string, ...more: string[]): string[] => [
  ...["--agent", "custom", "--agent-command", join(home.folder, "agent")],
  ...["--cwd", cwd, "--prompt", `do ${prompt}`, ...more],
];
const show = (id: string) => home.json<Shown>(["show", id]);
async function detach(cwd: string, prompt: string, ...more: string[]): Promise<string> {
  return (await home.json<{ id: string }>(["run", "--detach", ...words(cwd, prompt, ...more)])).id;
}
/** The run once it has ended and its tree was looked at. */
async function ended(id: string): Promise<Shown> {
  let shown = await show(id);
  await until(async () => {
    shown = await show(id);
    const over = ["succeeded", "failed", "cancelled"].includes(shown.status);
    return over && ["kept", "removed"].includes(shown.worktree?.state ?? "removed");
  }, `${id} has ended`);
  return shown;
}

test.runIf(process.platform === "linux")(
  "a daemon that is killed while a tree is made: the next one ends its git, makes the tree anew, and no try is counted",
  async () => {
    const { path, filters, letGo } = slowRepository();
    const id = await detach(path, "cat a.bin");
    await until(() => filters().length === 1, "the first checkout is under way");
    const { daemon } = await home.json<{ daemon: { pid: number } }>(["status"]);
    process.kill(daemon.pid, "SIGKILL");
    await until(() => !isAlive(daemon.pid), "the daemon is gone");
    await home.json(["up"]);
    await until(() => filters().length === 2, "the next checkout is under way");
    expect(isAlive(filters()[0] ?? 0)).toBe(false);
    letGo();
    const shown = await ended(id);
    expect(shown, JSON.stringify(shown.error)).toMatchObject({ status: "succeeded", steps: [{ triesCounted: 1 }] });
  },
);

test.runIf(process.platform === "linux")(
  "a run that is cancelled while its tree is made: `why` says so, git ends within seconds, and nothing is left",
  async () => {
    const { path, filters } = slowRepository();
    const id = await detach(path, "true");
    await until(() => filters().length === 1, "the checkout is under way");
    const { sentence } = await home.json<{ sentence: string }>(["why", id]);
    expect(sentence).toMatch(/^Its worktree is being made since 2\S+Z \(.*ago\); it runs because/);
    expect((await home.run(["show", id])).out).toMatch(/worktree +not made yet/);
    const at = performance.now();
    await home.json(["cancel", id]);
    const shown = await ended(id);
    expect(shown).toMatchObject({
      status: "cancelled",
      steps: [{ triesCounted: 0 }],
      worktree: { state: "removed", goneBecause: "it was never made" },
    });
    expect(performance.now() - at).toBeLessThan(12_000);
    expect(filters().some(isAlive)).toBe(false);
    expect(existsSync(shown.worktree?.path ?? "/")).toBe(false);
    expect(git(path, "worktree", "list").split("\n")).toHaveLength(1);
    expect((await home.run(["show", id])).out).toMatch(/worktree +gone: it was never made/);
  },
);

test("evidence that git ignores keeps its tree, and what else git ignores is said to have gone", async () => {
  const path = repository({ ".gitignore": "out/\ncache/\n" });
  const writes = "mkdir -p out cache && echo evidence > out/report.txt && echo x > cache/x";
  const kept = await ended(await detach(path, writes, "--expect", "file:out/report.txt"));
  expect(kept).toMatchObject({
    status: "succeeded",
    worktree: { state: "kept", keptBecause: "1 expected file that git ignores (out/report.txt)" },
  });
  expect(readFileSync(join(kept.worktree?.path ?? "", "out/report.txt"), "utf8")).toBe("evidence\n");
  const gone = await ended(await detach(path, writes));
  expect(gone.worktree).toMatchObject({
    state: "removed",
    goneBecause: "2 paths that git ignores went with it (cache/, out/)",
  });
  expect((await home.run(["show", gone.id])).out).toContain(
    "gone: 2 paths that git ignores went with it (cache/, out/)",
  );
});

test("a tree that its agent removed after a commit is listed with its branch, and rm leads to it", async () => {
  const path = repository();
  const commits = `echo more >> README.md && git -c user.name=a -c user.email=a@drover.invalid commit -qam more && git worktree remove --force "$PWD"`;
  const { id, worktree } = await ended(await detach(path, commits));
  const holds = `1 commit of its own on the branch ${worktree?.branch}; its folder was removed`;
  expect(worktree).toMatchObject({ state: "kept", keptBecause: holds });
  const { items } = await home.json<{ items: readonly { runId: string; keptBecause: string }[] }>(["worktree", "ls"]);
  expect(items).toMatchObject([{ runId: id, keptBecause: holds }]);
  const refused = await home.refused(4, ["worktree", "rm", id]);
  expect(refused.hint).toContain(`--discard ${id}`);
  const removed = await home.json<{ rescueRef: string }>(["worktree", "rm", id, "--discard", id]);
  expect(git(path, "show", `${removed.rescueRef}:README.md`)).toBe("first\nmore");
});

test("a tree that cannot be looked at is not led into giving up, and is not said to have held nothing", async () => {
  const path = repository();
  const { id, worktree } = await ended(await detach(path, "rm .git; echo new > new.txt"));
  expect(worktree).toMatchObject({ state: "kept", keptBecause: expect.stringContaining("could not be looked at") });
  const refused = await home.refused(4, ["worktree", "rm", id]);
  expect(refused.hint).not.toContain("--discard");
  expect(refused.hint).toContain("by hand");
  rmSync(worktree?.path ?? "", { recursive: true });
  await home.json(["worktree", "prune"]);
  expect((await home.run(["show", id])).out).toContain("gone: its folder had been removed by somebody else");
});

test("a secret in the name of a file is neither stored nor shown nor logged", async () => {
  const path = repository();
  const canary = "canary-9d41c7e2";
  const id = await detach(
    path,
    'touch "leak-$TOKEN.txt"',
    "--secret",
    `TOKEN=cmd:echo ${canary.slice(0, 6)}""${canary.slice(6)}`,
  );
  const shown = await ended(id);
  expect(shown.worktree?.keptBecause).toBe("1 untracked file (leak-[secret].txt)");
  const texts = [
    home.dump(),
    readFileSync(join(home.folder, "home/logs/daemon.log"), "utf8"),
    (await home.run(["show", id])).out,
    (await home.run(["worktree", "ls", "--json"])).out,
    (await home.run(["worktree", "rm", id])).err,
  ];
  for (const text of texts) expect(text).not.toContain(canary);
  expect(texts[1]).toContain("worktree_kept");
});

describe("where the work is done", () => {
  test("a folder of which nothing is committed: said at the start, in show, and refused by required in plain words", async () => {
    const path = repository({ ".gitignore": "ignored/\n" });
    for (const name of ["scratch", "ignored"]) {
      const folder = join(path, name);
      mkdirSync(folder);
      writeFileSync(join(folder, "notes.txt"), "x\n");
      const started = await home.run(["run", ...words(folder, "cat notes.txt && touch made.txt")]);
      expect(started.status, started.err).toBe(0);
      expect(started.err).toContain(
        `nothing in ${folder} is committed: the work is done in the folder itself, in your checkout`,
      );
      expect(existsSync(join(folder, "made.txt"))).toBe(true);
      const refused = await home.refused(2, ["run", ...words(folder, "true", "--worktree", "required")]);
      expect(refused.message).toBe(
        `nothing in ${JSON.stringify(folder)} is committed, so a worktree would not have it`,
      );
    }
    const { items } = await home.json<{ items: readonly { id: string }[] }>(["runs"]);
    expect((await home.run(["show", items[0]?.id ?? ""])).out).toMatch(/worktree +none: it works in the folder itself/);
  });

  test("a loop whose folder is not committed any more says so where its run is explained", async () => {
    const path = repository({ ".gitignore": "later/\n" });
    mkdirSync(join(path, "api"));
    writeFileSync(join(path, "api/x"), "x\n");
    git(path, "add", "-A");
    git(path, "commit", "-qm", "api");
    await home.json(["loop", "add", "nightly", "--every", "1d", ...words(join(path, "api"), "true")]);
    git(path, "rm", "-rq", "--cached", "api");
    await home.json(["up"]);
    const { runId } = await home.json<{ runId: string }>(["loop", "run", "nightly"]);
    const shown = await ended(runId);
    expect(shown).toMatchObject({ status: "succeeded", worktree: null });
    expect((await home.json<{ sentence: string }>(["why", runId])).sentence).toContain(
      "no worktree could be made of it",
    );
    expect((await home.run(["show", runId])).out).toContain("no worktree could be made (in no repository");
  });

  test("a bare repository is one: auto makes a tree of it", async () => {
    const path = repository();
    git(home.folder, "clone", "-q", "--bare", path, "shop.git");
    const shown = await ended(await detach(join(home.folder, "shop.git"), "cat README.md && echo new > new.txt"));
    expect(shown).toMatchObject({ status: "succeeded", worktree: { state: "kept" } });
    expect(existsSync(join(home.folder, "shop.git/new.txt"))).toBe(false);
  });

  test.each([
    ["objects", /is broken: git does not take it for one any more/],
    ["objects/*", /is damaged: its commit [0-9a-f]+ cannot be read/],
  ])(
    "a repository without its %s is damaged, not without commits, and nothing works in it by auto",
    async (what, why) => {
      const path = repository();
      execFileSync("sh", ["-c", `rm -rf .git/${what}`], { cwd: path });
      const shown = await ended(await detach(path, "touch made.txt"));
      expect(shown).toMatchObject({ status: "failed", error: { class: "workspace" } });
      expect(shown.error?.message).toMatch(why);
      expect(existsSync(join(path, "made.txt"))).toBe(false);
    },
  );

  test("a line break in the path is refused in words", async () => {
    const path = repository();
    const odd = join(home.folder, "two\nlines");
    execFileSync("mv", [path, odd]);
    const shown = await ended(await detach(odd, "true"));
    expect(shown.error?.message).toContain("has a line break in its path");
    expect(shown.error?.message).toContain("--worktree off");
  });
});
