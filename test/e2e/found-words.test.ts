/** What the command line takes and says, as a newcomer met it. */
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

/** Says the version in a file, and writes into its folder when it is asked for its login, as the real one does. */
const CLAUDE = `#!/bin/sh
case "$1 $2" in
"--version ") cat "$(dirname "$0")/version" ;;
"auth status") date >"$CLAUDE_CONFIG_DIR/asked"; echo '{"loggedIn":false}' ;;
*) cat >/dev/null
  said='Failed to authenticate. API Error: 401 Invalid authentication credentials'
  echo '{"type":"assistant","error":"authentication_failed","message":{"content":[{"type":"text","text":"'"$said"'"}]},"session_id":"s"}'
  echo '{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"'"$said"'","session_id":"s","num_turns":1}'
  exit 1 ;;
esac
`;

let home: Home;
beforeAll(async () => {
  const bin = mkdtempSync(join(tmpdir(), "drover-found-words-bin-"));
  home = openHome({ prefix: "drover-found-words-", env: { PATH: `${bin}:${process.env["PATH"] ?? "/usr/bin:/bin"}` } });
  writeFileSync(join(bin, "claude"), CLAUDE, { mode: 0o755 });
  version = (text) => writeFileSync(join(bin, "version"), `${text} (Claude Code)\n`);
  removeBin = () => rmSync(bin, { recursive: true });
  version("2.1.332");
  await home.json(["up"]);
});
let version: (text: string) => void;
let removeBin: () => void;
afterAll(async () => {
  await home.close();
  removeBin();
});

/** An agent of a few lines of shell; answers its path. */
function agent(name: string, text: string): string {
  const file = join(home.folder, name);
  writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

describe("what is typed", () => {
  test.each(["--help", "-h", "--json", "--", "--prompt"])("%s is a prompt like any other", async (prompt) => {
    const says = agent("says.sh", "cat");
    const words = ["run", "--agent", "custom", "--agent-command", says];
    for (const given of [["--prompt", prompt], [`--prompt=${prompt}`]])
      expect(await home.run([...words, ...given])).toMatchObject({ status: 0, out: prompt });
  });

  test("help is shown where other words are wrong, an error is a document only where that was asked for", async () => {
    expect(await home.run(["run", "--bogus", "--help"])).toMatchObject({ status: 0, err: "" });
    const { status, err } = await home.run(["cancel", "run_none", "--reason", "--json"]);
    expect([status, err]).toEqual([3, expect.stringMatching(/^drover: /)]);
  });
});

describe("help with --json is one document", () => {
  const document = async (...words: string[]): Promise<{ readonly [key: string]: unknown }> => {
    const { status, out, err } = await home.run(words);
    expect([status, err]).toEqual([0, ""]);
    return JSON.parse(out) as { readonly [key: string]: unknown };
  };

  test.each(["help --json", "--json help", "--help --json", "--json"])("drover %s", async (words) => {
    const { commands, topics } = await document(...words.split(" "));
    expect(commands).toContainEqual(expect.objectContaining({ command: "loop add", group: "Loops and schedules" }));
    expect(topics).toContainEqual({ name: "exit-codes", summary: "What a command ends with" });
  });

  test("of a noun, of a command, of a topic", async () => {
    for (const words of [
      ["help", "loop", "--json"],
      ["loop", "--help", "--json"],
      ["--json", "loop", "--help"],
    ]) {
      const { commands } = await document(...words);
      expect((commands as { command: string }[]).every(({ command }) => command.startsWith("loop "))).toBe(true);
    }
    for (const words of [
      ["help", "loop", "add", "--json"],
      ["loop", "add", "--help", "--json"],
    ])
      expect(await document(...words)).toMatchObject({ command: "loop add", exits: expect.anything() });
    expect(await document("help", "exit-codes", "--json")).toMatchObject({
      name: "exit-codes",
      parts: expect.anything(),
    });
  });
});

describe("accounts", () => {
  const folderOf = async (name: string, ...more: string[]): Promise<string> =>
    (await home.json<{ home: string }>(["account", "add", "claude", name, ...more])).home;
  const accounts = async (fix: readonly string[] = []) => {
    const { out } = await home.run(["doctor", "--json", ...fix]);
    const { findings } = JSON.parse(out) as { findings: { check: string; level: string; message: string }[] };
    return findings.filter(({ check }) => check === "accounts");
  };

  test("a login without a terminal is not done: 7, and words", async () => {
    await folderOf("login");
    const { status, out } = await home.run(["account", "login", "claude:login"]);
    expect([status, out]).toEqual([
      7,
      expect.stringMatching(/^nothing was started.*\nCLAUDE_CONFIG_DIR=\S+ claude auth login\n$/),
    ]);
  });

  test("a folder that is a link is no folder for doctor either: nothing is written where it leads", async () => {
    const folder = await folderOf("linked");
    const elsewhere = join(home.folder, "elsewhere");
    mkdirSync(elsewhere, { mode: 0o700 });
    rmSync(folder, { recursive: true });
    symlinkSync(elsewhere, folder);
    expect(await accounts(["--fix", "--yes"])).toContainEqual(
      expect.objectContaining({ level: "problem", message: expect.stringContaining("it is no folder of its own") }),
    );
    expect(readdirSync(elsewhere)).toEqual([]);
    await home.json(["account", "rm", "claude:linked"]);
  });

  test("doctor says what is open and what is gone, makes neither worse, and mends both", async () => {
    const open = await folderOf("open");
    chmodSync(open, 0o755);
    const gone = await folderOf("gone");
    rmSync(gone, { recursive: true });
    const before = await accounts();
    for (const folder of [open, gone])
      expect(before).toContainEqual(
        expect.objectContaining({ level: "problem", message: expect.stringContaining(folder) }),
      );
    expect(readdirSync(open)).toEqual([]);
    for (const { level, message } of await accounts(["--fix", "--yes"]))
      expect([level, message]).toEqual(["ok", message]);
    for (const folder of [open, gone]) expect(statSync(folder).mode & 0o777).toBe(0o700);
  });

  test("a key is not taken as a variable, and a value whose name says that it is one is not shown", async () => {
    const key = "sk-canary-0123456789";
    const agentWords = ["run", "--agent", "custom", "--agent-command", agent("quiet.sh", "cat"), "--prompt", "x"];
    for (const name of ["ANTHROPIC_API_KEY", "CODEX_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"]) {
      const given = ["--env", `${name}=${key}`];
      for (const words of [
        ["account", "add", "claude", "keyed", ...given],
        [...agentWords, ...given],
      ])
        expect(await home.refused(2, words)).toMatchObject({ code: "secret_in_env", path: `--env ${name}` });
    }
    expect(await home.run(["run", "--env", `DEPLOY_TOKEN=${key}`, "--", "true"])).toMatchObject({
      status: 0,
      err: expect.stringContaining("--secret DEPLOY_TOKEN="),
    });
    await folderOf("named", "--env", `DEPLOY_TOKEN=${key}`, "--env", "MODE=fast");
    const words = ["loop", "add", "named", "--every", "1d", "--env", `DEPLOY_TOKEN=${key}`];
    const shown = [await home.run([...words, "--json", "--", "true"])];
    for (const show of [["account", "show", "named"], ["account", "ls"], ["loop", "show", "named"], ["runs"]])
      for (const json of [[], ["--json"]]) shown.push(await home.run([...show, ...json]));
    const all = shown.map(({ status, out }) => `${status} ${out}`).join("\n");
    expect(all).not.toContain(key);
    expect(all).toContain("DEPLOY_TOKEN=[secret] MODE=fast");
  });

  test("your own login cannot be forgotten; a name that is none is told with an account's name", async () => {
    await home.json(["account", "hold", "claude:default"]);
    expect((await home.run(["account", "show", "claude:default"])).out).toContain(
      "held until it is released: a person holds it\n",
    );
    expect(await home.refused(2, ["account", "rm", "claude:default"])).toMatchObject({ code: "own_login" });
    await home.json(["account", "release", "claude:default"]);
    expect((await home.refused(2, ["account", "add", "claude", "../x"])).hint).toContain("as in work");
  });

  test("an account that has its key by --secret is mended where that comes from", async () => {
    const file = join(home.folder, "team.key");
    writeFileSync(file, "sk-no-good-0123456789\n", { mode: 0o600 });
    await folderOf("team", "--secret", `ANTHROPIC_API_KEY=file:${file}`);
    const { status, out } = await home.run([
      "run",
      "--json",
      "--agent",
      "claude",
      "--account",
      "team",
      "--prompt",
      "x",
    ]);
    const { id } = JSON.parse(out) as { id: string };
    const { sentence } = await home.json<{ sentence: string }>(["why", id]);
    expect([status, sentence]).toEqual([
      7,
      expect.stringContaining(`its key ANTHROPIC_API_KEY comes from file:${file}`),
    ]);
    expect(sentence).not.toContain("account login");
    expect(sentence.split("Failed to authenticate")).toHaveLength(2);
    expect((await home.run(["status"])).out).not.toContain("account login");
    await home.json(["cancel", id]);
    await home.json(["account", "release", "claude:team"]);
    await home.json(["account", "rm", "claude:team"]);
  });
});

describe("at the door", () => {
  test("a version that was not tried is refused when the loop is added, with what takes it", async () => {
    version("9.0.0");
    const words = ["loop", "add", "young", "--every", "1d", "--agent", "claude", "--prompt", "x"];
    expect(await home.refused(2, words)).toMatchObject({
      code: "agent_untested",
      hint: expect.stringContaining("--untested"),
    });
    await home.json([...words, "--untested"]);
    version("2.1.332");
  });

  test("--allow-root is for full, as --reason is; a prompt that is too long by a byte is told in bytes", async () => {
    const words = ["loop", "add", "rooted", "--every", "1d", "--agent", "claude"];
    expect(await home.refused(2, [...words, "--prompt", "x", "--allow-root"])).toMatchObject({ path: "--allow-root" });
    const { message } = await home.refused(2, [...words, "--prompt", "-"], { input: "x".repeat(16 * 2 ** 20 + 1) });
    expect(message).toBe("the prompt has 16777217 bytes, more than 16777216 (16 MiB)");
  });

  test("what waits for its next try says that once", async () => {
    const fails = agent("fails.sh", "cat >/dev/null; echo no; exit 3");
    const words = [
      "--agent",
      "custom",
      "--agent-command",
      fails,
      "--prompt",
      "x",
      "--attempts",
      "2",
      "--backoff",
      "1h",
    ];
    const { id } = await home.json<{ id: string }>(["run", "--detach", ...words]);
    await until(
      async () => (await home.json<{ status: string }>(["show", id])).status === "waiting",
      "its first try has failed",
    );
    expect((await home.json<{ sentence: string }>(["why", id])).sentence).toMatch(
      /^It waits to try again; it goes on in /,
    );
    await home.json(["cancel", id]);
  });
});

describe("secrets in prompts", () => {
  test("the first line is shown without what the run or its account had as a secret, and not before that is known", async () => {
    const canaries = { RUN_KEY: "canary-of-the-run-4711", ACCOUNT_KEY: "canary-of-the-account-4712" };
    for (const [name, value] of Object.entries(canaries))
      writeFileSync(join(home.folder, name), `${value}\n`, { mode: 0o600 });
    const given = (name: string) => ["--secret", `${name}=file:${join(home.folder, name)}`];
    await home.json(["account", "add", "custom", "scrubbed", ...given("ACCOUNT_KEY")]);
    const says = agent("says-output.sh", `umask 022; cat >/dev/null; echo '{"n": 1}' >"$DROVER_OUTPUT"; echo ok`);
    const words = ["--agent", "custom", "--agent-command", says, "--account", "scrubbed", ...given("RUN_KEY")];
    const prompt = ["--prompt", `Use ${canaries.RUN_KEY} and ${canaries.ACCOUNT_KEY}, then stop.`];
    const shown: string[] = [];
    const say = async (args: readonly string[]) => {
      const { out, err } = await home.run(args);
      shown.push(out, err);
      return out;
    };
    await home.json(["account", "hold", "custom:scrubbed"]);
    const { id } = JSON.parse(await say(["run", "--detach", "--json", ...words, ...prompt])) as { id: string };
    await say(["runs"]);
    // Its first line is cut within the secret.
    const long = ["--prompt", `${"word ".repeat(21)}${canaries.ACCOUNT_KEY} and more`];
    const cut = JSON.parse(await say(["run", "--detach", "--json", ...words, ...long])) as { id: string };
    await home.json(["account", "release", "custom:scrubbed"]);
    const run = await until(async () => {
      const seen = await home.json<{ status: string; steps: { attempts: { logs: { stdout: string } }[] }[] }>([
        "show",
        id,
      ]);
      return seen.status === "succeeded" ? seen : null;
    }, "it has run");
    await until(
      async () => (await home.json<{ status: string }>(["show", cut.id])).status === "succeeded",
      "the other one has run",
    );
    for (const list of [["show", id], ["show", cut.id], ["runs"], ["why", id], ["events"]])
      for (const json of [[], ["--json"]]) await say([...list, ...json]);
    await say(["loop", "add", "scrubbed", "--every", "1d", ...words, ...prompt]);
    await say(["loop", "show", "scrubbed", "--json"]);
    const all = shown.join("\n");
    for (const value of Object.values(canaries)) expect(all).not.toContain(value.slice(0, 12));
    expect(all).toContain("a prompt of ");
    expect(all).toContain("Use [secret] and [secret], then stop.");
    const folder = dirname(run?.steps[0]?.attempts[0]?.logs.stdout ?? "");
    const modes = ["", "stdin", "output", "out"].map((name) => statSync(join(folder, name)).mode & 0o777);
    expect(modes).toEqual([0o700, 0o600, 0o600, 0o600]);
  });
});
