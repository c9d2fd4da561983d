import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { AccountRecord } from "../../core/records.ts";
import type { AgentTarget } from "../../core/target.ts";
import { type Arena, openArena } from "../../../test/fixtures/hostile/arena.ts";
import { scrubOf } from "../logs.ts";
import { scrubText } from "../scrub.ts";

/** What is in the daemon's environment: keys of several providers, and what changes how they behave. */
const KEYS = {
  ANTHROPIC_API_KEY: "sk-ant-of-the-user",
  ANTHROPIC_BASE_URL: "http://127.0.0.1:9/user",
  ANTHROPIC_CUSTOM_HEADERS: "x-key: header-of-the-user",
  CLAUDE_CONFIG_DIR: "/nowhere/claude",
  CODEX_API_KEY: "sk-codex-of-the-user",
  OPENAI_API_KEY: "sk-openai-of-the-user",
  CODEX_HOME: "/nowhere/codex",
  GEMINI_API_KEY: "sk-gemini-of-the-user",
  IS_SANDBOX: "1",
  CLAUDE_CODE_MAX_RETRIES: "10",
};

let home: string;
let bin: string;
let arena: Arena;

/** Puts a program there that says its version when it is asked, and else tells its arguments, environment and input. */
function install(name: string, version: string): void {
  const script = `#!/bin/sh
if [ "$1" = --version ]; then echo asked >>'${join(home, "versions")}'; echo '${version}'; exit 0; fi
printf '%s\\n' "$@"; echo '--env'; env; echo '--input'; cat; pwd
`;
  writeFileSync(join(bin, name), script, { mode: 0o755 });
}

beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "drover-agent-"));
  bin = join(home, "bin");
  mkdirSync(bin);
  install("claude", "2.1.332 (Claude Code)");
  install("codex", "codex-cli 0.171.0");
  arena = openArena({ environment: { HOME: home, PATH: `${bin}:/usr/bin:/bin`, ...KEYS } });
});
afterEach(async () => {
  await arena.close();
  rmSync(home, { recursive: true, force: true });
});

const account = (over: Partial<AccountRecord> = {}): AccountRecord => ({
  id: "claude:work",
  provider: "claude",
  name: "work",
  home: join(home, "accounts", "work"),
  enabled: true,
  status: "ok",
  limitEnds: 0,
  env: {},
  secrets: {},
  lastUsedAt: null,
  createdAt: 0,
  ...over,
});
const session = { id: "11111111-2222-4333-8444-555555555555", resume: false };

/** Runs it to its end; what it was started with. */
async function started(
  folder: string,
  over: Partial<AgentTarget> = {},
  under: AccountRecord | null = null,
  cwd?: string,
) {
  const more = { agent: { account: under, session }, ...(cwd === undefined ? {} : { cwd }) };
  await arena.spawner.prepare(arena.agent(folder, over, more));
  await arena.spawner.ask(folder);
  await arena.ended(folder);
  const out = arena.text(folder, "out");
  const [words = "", rest = ""] = out.split("--env\n");
  const [variables = "", input = ""] = rest.split("--input\n");
  const env = Object.fromEntries(
    variables
      .split("\n")
      .flatMap((line) =>
        line.includes("=") ? [[line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]] : [],
      ),
  ) as Readonly<Record<string, string | undefined>>;
  return { argv: words.trimEnd().split("\n"), env, input };
}

const prepare = (over: Partial<AgentTarget> = {}, under: AccountRecord | null = null) =>
  arena.spawner.prepare(arena.agent("att_refused.1", over, { agent: { account: under, session } }));
const refusal = (code: string, more: Record<string, unknown> = {}) => expect.objectContaining({ code, ...more });

describe("what an agent inherits", () => {
  test("B-122 the user's own login has its provider's keys and addresses, and nobody else's", async () => {
    const { env } = await started("att_own.1");
    expect(env).toMatchObject({
      ANTHROPIC_API_KEY: KEYS.ANTHROPIC_API_KEY,
      ANTHROPIC_BASE_URL: KEYS.ANTHROPIC_BASE_URL,
      CLAUDE_CONFIG_DIR: KEYS.CLAUDE_CONFIG_DIR,
      HOME: home,
    });
    for (const name of ["CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_HOME", "GEMINI_API_KEY", "IS_SANDBOX"])
      expect(env, name).not.toHaveProperty(name);
    // Our switch, not what was inherited.
    expect(env["CLAUDE_CODE_MAX_RETRIES"]).toBe("2");
    const codex = await started("att_owncodex.1", { provider: "codex" });
    expect(codex.env).toMatchObject({ CODEX_API_KEY: KEYS.CODEX_API_KEY, CODEX_HOME: KEYS.CODEX_HOME });
    expect(codex.env).not.toHaveProperty("ANTHROPIC_API_KEY");
  });

  test("a named account has its own home, variables and secrets, and none of the user's", async () => {
    writeFileSync(join(home, "key"), "sk-of-the-account\n");
    const under = account({
      env: { ANTHROPIC_BASE_URL: "http://127.0.0.1:9/account", CLAUDE_CODE_MAX_RETRIES: "0" },
      secrets: { ANTHROPIC_API_KEY: `file:${join(home, "key")}` },
    });
    const { env } = await started("att_named.1", { account: "work" }, under);
    expect(env).toMatchObject({
      ANTHROPIC_API_KEY: "sk-of-the-account",
      ANTHROPIC_BASE_URL: "http://127.0.0.1:9/account",
      CLAUDE_CONFIG_DIR: under.home,
      CLAUDE_CODE_MAX_RETRIES: "0",
      HOME: home,
    });
    expect(Object.values(env).join("\n")).not.toContain("of-the-user");
    expect(statSync(under.home ?? "").mode & 0o777).toBe(0o700);
  });

  test("not even a name that is passed on brings the user's key to a named account", async () => {
    const over = { account: "work", envPass: ["ANTHROPIC_API_KEY", "CLAUDE_CONFIG_DIR", "GEMINI_API_KEY"] };
    const { env } = await started("att_passed.1", over, account());
    expect(env).not.toHaveProperty("ANTHROPIC_API_KEY");
    expect(env["CLAUDE_CONFIG_DIR"]).toBe(account().home);
    // Another provider's key that somebody asked for by name is theirs to give.
    expect(env["GEMINI_API_KEY"]).toBe(KEYS.GEMINI_API_KEY);
  });

  test("the target's own variables come over the account's, but never another home", async () => {
    const under = account({ env: { A: "account", B: "account" } });
    const over = { account: "work", env: { B: "target", CLAUDE_CONFIG_DIR: "/elsewhere" } };
    const { env } = await started("att_over.1", over, under);
    expect(env).toMatchObject({ A: "account", B: "target", CLAUDE_CONFIG_DIR: under.home });
  });

  test("every key that it inherits or is given is scrubbed, and on no command line and in no file of ours", async () => {
    writeFileSync(join(home, "key"), "sk-of-the-account");
    await started("att_canary.1");
    const own = scrubText(scrubOf(arena.path("att_canary.1")), arena.text("att_canary.1", "out"));
    for (const name of ["ANTHROPIC_API_KEY", "ANTHROPIC_CUSTOM_HEADERS"] as const)
      expect(own).not.toContain(KEYS[name]);
    const under = account({ secrets: { CLAUDE_CODE_OAUTH_TOKEN: `file:${join(home, "key")}` } });
    const { argv } = await started("att_canary.2", { account: "work" }, under);
    expect(argv.join(" ")).not.toContain("sk-of-the-account");
    const named = scrubText(scrubOf(arena.path("att_canary.2")), arena.text("att_canary.2", "out"));
    expect(named).not.toContain("sk-of-the-account");
    for (const file of ["prepared", "scrub", "stdin", "run", "id"]) {
      if (statSync(arena.path("att_canary.2", file), { throwIfNoEntry: false }) === undefined) continue;
      expect(arena.text("att_canary.2", file), file).not.toContain("sk-of-the-account");
    }
  });

  test("its prompt on standard input, its session on the command line, and where it works", async () => {
    const place = join(home, "tree");
    mkdirSync(place);
    const { argv, input } = await started("att_place.1", {}, null, place);
    expect(input).toBe(`Do it.${place}\n`);
    expect(argv).toContain(session.id);
    expect(argv.join(" ")).not.toContain("Do it.");
  });
});

describe("an account's home", () => {
  test("that others can look into is refused, with what mends it", async () => {
    const under = account();
    mkdirSync(under.home ?? "", { recursive: true });
    chmodSync(under.home ?? "", 0o750);
    await expect(prepare({ account: "work" }, under)).rejects.toEqual(
      refusal("env_invalid", { path: under.home, hint: `Take that right away: chmod 700 ${under.home}` }),
    );
    chmodSync(under.home ?? "", 0o700);
    await prepare({ account: "work" }, under);
  });

  test("that is a link is refused, also one to a folder that could be used", async () => {
    const under = account();
    mkdirSync(join(home, "elsewhere"), { mode: 0o700 });
    mkdirSync(join(home, "accounts"));
    symlinkSync(join(home, "elsewhere"), under.home ?? "");
    await expect(prepare({ account: "work" }, under)).rejects.toEqual(refusal("env_invalid", { path: under.home }));
  });

  test("that is a file is refused", async () => {
    const under = account({ home: join(home, "file") });
    writeFileSync(under.home ?? "", "");
    await expect(prepare({ account: "work" }, under)).rejects.toEqual(refusal("env_invalid"));
    await expect(prepare({ account: "work" }, { ...under, home: join(home, "file", "below") })).rejects.toEqual(
      refusal("env_invalid"),
    );
  });
});

describe("an agent's program", () => {
  const versionsAsked = () => statSync(join(home, "versions"), { throwIfNoEntry: false })?.size ?? 0;

  test("B-120 a link to nowhere is an agent that is not found, until it is mended", async () => {
    rmSync(join(bin, "claude"));
    symlinkSync(join(home, "gone"), join(bin, "claude"));
    await expect(prepare()).rejects.toEqual(refusal("agent_not_found", { kind: "not_found" }));
    rmSync(join(bin, "claude"));
    install("claude", "2.1.332 (Claude Code)");
    await prepare();
  });

  test("B-121 a link that is moved on in the middle of the day leads to the new one", async () => {
    for (const version of ["2.1.332", "2.1.333"]) {
      mkdirSync(join(home, version));
      writeFileSync(
        join(home, version, "claude"),
        `#!/bin/sh\n[ "$1" = --version ] && { echo '${version} (Claude Code)'; exit 0; }\necho 'i am ${version}'\n`,
        { mode: 0o755 },
      );
      rmSync(join(bin, "claude"));
      symlinkSync(join(home, version, "claude"), join(bin, "claude"));
      await started(`att_moved.${version.at(-1)}`);
      expect(arena.text(`att_moved.${version.at(-1)}`, "out")).toBe(`i am ${version}\n`);
      rmSync(join(home, version), { recursive: true });
    }
  });

  test("a version that was not tried is refused unless somebody says so", async () => {
    install("claude", "9.0.0 (Claude Code)");
    await expect(prepare()).rejects.toEqual(refusal("agent_untested", { kind: "invalid" }));
    await prepare({ untested: true });
  });

  test("one that does not say its version is like one that is not there", async () => {
    install("claude", "hello");
    await expect(prepare()).rejects.toEqual(refusal("agent_not_found"));
  });

  test("one that hangs when it is asked for its version is given up", async () => {
    writeFileSync(join(bin, "claude"), "#!/bin/sh\nexec sleep 1000\n", { mode: 0o755 });
    const spawner = arena.again({ agentProbeMs: 300 });
    await expect(spawner.prepare(arena.agent("att_hangs.1"))).rejects.toEqual(refusal("agent_not_found"));
  });

  test("it is asked once for as long as it is the same, also by starts that come together", async () => {
    await Promise.all(Array.from({ length: 8 }, (_, i) => arena.spawner.prepare(arena.agent(`att_many.${i}`))));
    await arena.spawner.prepare(arena.agent("att_many.9"));
    expect(versionsAsked()).toBe("asked\n".length);
    install("claude", "2.1.400 (Claude Code)");
    await arena.spawner.prepare(arena.agent("att_many.10"));
    expect(versionsAsked()).toBe(2 * "asked\n".length);
  });

  test("a custom one is the command that it names", async () => {
    install("mine", "no version");
    const { argv, input, env } = await started("att_custom.1", {
      provider: "custom",
      command: ["mine", "-x", "two words"],
    });
    expect(argv).toEqual(["-x", "two words"]);
    expect(input.startsWith("Do it.")).toBe(true);
    for (const name of ["ANTHROPIC_API_KEY", "CODEX_API_KEY"]) expect(env).not.toHaveProperty(name);
    await expect(prepare({ provider: "custom", command: ["not-there"] })).rejects.toEqual(refusal("agent_not_found"));
  });

  test.runIf(process.getuid?.() === 0)(
    "as root full permission needs to be allowed, and only then says so to the agent",
    async () => {
      await expect(prepare({ permission: "full" })).rejects.toEqual(refusal("agent_refused"));
      const { env } = await started("att_root.1", { permission: "full", allowRoot: true });
      expect(env["IS_SANDBOX"]).toBe("1");
    },
  );
});
