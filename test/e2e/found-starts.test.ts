/** Agents that cannot start, or could never do what is asked of them: said at the door, counted like a command, or waited for. */
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

const STAND_IN = resolve(fileURLToPath(import.meta.url), "../../agents/stand-in.mjs");

interface Seen {
  readonly id: string;
  readonly status: string;
  readonly reason: string | null;
  readonly error: { readonly class: string; readonly message: string } | null;
  readonly steps: readonly {
    readonly triesCounted: number;
    readonly attempts: readonly { readonly status: string; readonly class: string | null; readonly counted: boolean }[];
  }[];
}

let home: Home;
let shop: string;
let bin: string;

const git = (...args: string[]): string =>
  execFileSync("git", args, {
    cwd: shop,
    encoding: "utf8",
    env: {
      PATH: process.env["PATH"],
      HOME: home.folder,
      GIT_CONFIG_NOSYSTEM: "1",
      GIT_AUTHOR_NAME: "drover tests",
      GIT_AUTHOR_EMAIL: "tests@drover.invalid",
      GIT_COMMITTER_NAME: "drover tests",
      GIT_COMMITTER_EMAIL: "tests@drover.invalid",
    },
  });

/** A program that says a version that was tried, and nothing else. */
const says = (version: string): string => `#!/bin/sh\necho '${version}'\n`;
const install = (name: string, script: string): void => writeFileSync(join(bin, name), script, { mode: 0o755 });

beforeAll(async () => {
  home = openHome({ prefix: "drover-starts-" });
  bin = join(home.folder, "bin"); // one of a user's own folders, which a daemon looks into by itself
  shop = join(home.folder, "shop");
  mkdirSync(bin);
  mkdirSync(shop);
  mkdirSync(join(home.folder, "home"), { mode: 0o700 });
  // Several looks at what is away within some seconds.
  const limits = {
    programAwayMs: "10s",
    uncountedBackoffMs: "500ms",
    uncountedBackoffCapMs: "1s",
    agentProbeMs: "2s",
  };
  const lines = Object.entries(limits).map(([name, value]) => `  ${name}: ${value}\n`);
  writeFileSync(join(home.folder, "home/config.yaml"), `limits:\n${lines.join("")}`);
  git("init", "-q", "-b", "main");
  writeFileSync(join(shop, "README.md"), "first\n");
  git("add", "-A");
  git("commit", "-q", "-m", "first");
  install("codex", says("codex-cli 0.171.0"));
  await home.json(["up"], { env: PATH() });
});
afterAll(() => home.close());

const PATH = () => ({ PATH: `${bin}${delimiter}${process.env["PATH"] ?? ""}` });
const add = (name: string, ...words: string[]): string[] => [
  ...["loop", "add", name, "--every", "1h", "--cwd", shop],
  ...words,
];
const options = () => ({ env: PATH(), cwd: shop });

describe("at the door", () => {
  const codex = ["--agent", "codex", "--prompt"];

  test("a program of the repository that is not committed is not in the tree", async () => {
    writeFileSync(join(shop, "agent"), "#!/bin/sh\necho done\n", { mode: 0o755 });
    const words = ["--agent", "custom", "--agent-command", "./agent", "--prompt", "x"];
    const refused = await home.refused(3, add("mine", ...words), options());
    expect(refused).toMatchObject({ code: "agent_not_found", path: "--agent-command" });
    expect(refused.message).toContain("not committed");
    // In the folder itself it is there.
    await home.json(add("inplace", ...words, "--worktree", "off"), options());
    git("add", "agent");
    git("commit", "-q", "-m", "an agent");
    await home.json(add("mine", ...words), options());
    const ran = await home.run(["run", "--json", "--cwd", shop, ...words], options());
    expect(ran.status, ran.err).toBe(0);
  });

  test("Codex is given a commit to make only where its sandbox lets it", async () => {
    const words = [...codex, "x", "--expect", "commit"];
    const refused = await home.refused(2, add("here", ...words, "--worktree", "off"), options());
    expect(refused).toMatchObject({ code: "agent_refused", path: "--expect" });
    await home.json(add("tree", ...words), options());
    await home.refused(2, ["loop", "edit", "tree", "--worktree", "off"], options());
  });

  test("a prompt that Codex would refuse every night is refused with the reason", async () => {
    const file = join(home.folder, "prompt");
    const given = ["--agent", "codex", "--prompt-file", file];
    writeFileSync(file, Buffer.from([0x61, 0xff, 0x62]));
    const bytes = await home.refused(2, add("bytes", ...given), options());
    expect(bytes).toMatchObject({ code: "prompt_not_text", path: "--prompt-file" });
    // Another provider's prompt may be anything; given to Codex it has to be text.
    install("claude", says("2.1.332 (Claude Code)"));
    await home.json(add("bytes", "--agent", "claude", "--prompt-file", file), options());
    const edited = await home.refused(2, ["loop", "edit", "bytes", "--agent", "codex"], options());
    expect(edited.code).toBe("prompt_not_text");
    writeFileSync(file, "x".repeat(1_048_576));
    const long = await home.refused(2, add("long", ...given), options());
    expect(long.code).toBe("prompt_too_large");
    expect(long.message).toContain("1048576");
    writeFileSync(file, "ž".repeat(1_000_000));
    await home.json(add("long", ...given), options());
    rmSync(join(bin, "claude"));
  });
});

describe("a program that is away", () => {
  const claude = ["--agent", "claude", "--prompt", "do it"];
  const show = (id: string) => home.json<Seen>(["show", id]);
  const over = (id: string): Promise<Seen> =>
    until(async () => {
      const seen = await show(id);
      return ["succeeded", "failed"].includes(seen.status) ? seen : null;
    }, `${id} is over`) as Promise<Seen>;
  /** A loop whose program is there when it is made, and its run once the program is another. */
  const startsWithout = async (name: string, replace: () => void): Promise<string> => {
    works();
    await home.json(add(name, ...claude), options());
    replace();
    return (await home.json<{ runId: string }>(["loop", "run", "--detach", name], options())).runId;
  };
  const works = (): void => {
    const node = join(home.folder, "stand-in/claude");
    rmSync(join(home.folder, "stand-in"), { recursive: true, force: true });
    mkdirSync(join(home.folder, "stand-in"));
    symlinkSync(STAND_IN, node);
    install("claude", `#!/bin/sh\nSTAND_IN_MODE=ok exec ${process.execPath} ${node} "$@"\n`);
  };
  const goes = (): void => rmSync(join(bin, "claude"));

  test("B-120 while an update replaces it no try is used up, and everything says what the run waits for", async () => {
    const id = await startsWithout("updated", goes);
    await until(async () => {
      const { status, reason, steps } = await show(id);
      return status === "waiting" && reason === "program" && (steps[0]?.attempts.length ?? 0) >= 2;
    }, "it was looked for twice");
    // While it is looked for, for a moment, it does not wait.
    const tells = (args: string[], words: RegExp | string) =>
      until(async () => (await home.run(args)).out.match(words) !== null, `${args.join(" ")} says ${words}`);
    await tells(["loop", "ls", "--json"], `"waitsForProgram": ?"${id}"`);
    await tells(["loop", "ls"], "updated\\s+active, program is away");
    await tells(["why", "updated"], `Its run ${id} waits because its agent's program is not there: .*claude`);
    await tells(["why", id], "because its agent's program is not there");
    await tells(["status"], `the run ${id} of updated waits because its agent's program is not there`);
    works();
    const seen = await over(id);
    expect(seen).toMatchObject({ status: "succeeded", steps: [{ triesCounted: 1 }] });
    const before = seen.steps[0]?.attempts.slice(0, -1) ?? [];
    expect(before.length).toBeGreaterThan(1);
    // They certainly did not run: nothing is lost.
    for (const one of before) expect(one).toMatchObject({ status: "failed", class: "spawn", counted: false });
    expect((await home.run(["loop", "ls"])).out).not.toContain("program is away");
  });

  test("one that does not come back fails its run after limits.programAwayMs, with a class and words", async () => {
    const gone = {
      removed: { script: null, words: /claude of claude is not found/ },
      nonsense: { script: "echo nonsense; exit 3", words: /does not say its version/ },
      hangs: { script: "exec tail -f /dev/null", words: /does not say its version/ },
    };
    const runs = Object.entries(gone).map(async ([name, { script, words }]) => {
      const own = join(home.folder, `bin-${name}`);
      const program = join(own, "claude");
      mkdirSync(own);
      writeFileSync(program, says("2.1.332 (Claude Code)"), { mode: 0o755 });
      const path = `PATH=${own}${delimiter}/usr/bin${delimiter}/bin`;
      await home.json(add(name, ...claude, "--env", path), options());
      rmSync(program);
      if (script !== null) writeFileSync(program, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
      const { runId } = await home.json<{ runId: string }>(["loop", "run", "--detach", name], options());
      return { seen: await over(runId), words };
    });
    rmSync(join(bin, "claude"), { force: true });
    for (const { seen, words } of await Promise.all(runs)) {
      expect(seen).toMatchObject({ status: "failed", error: { class: "not_found" }, steps: [{ triesCounted: 1 }] });
      expect(seen.error?.message).toMatch(words);
      expect(seen.error?.message).toMatch(/^it could not be started for [\d.]+s: /);
      expect(seen.steps[0]?.attempts.length).toBeGreaterThan(1);
    }
  });
});
