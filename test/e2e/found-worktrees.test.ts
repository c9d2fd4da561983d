/** Worktrees as somebody met them who had never seen them: what is made is cut short, and what is said is checked by hand. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
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
