/** Agents that cannot start, or could never do what is asked of them: said at the door, counted like a command, or waited for. */
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome } from "./drover.ts";

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
    programAwayMs: "3s",
    uncountedBackoffMs: "100ms",
    uncountedBackoffCapMs: "500ms",
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
