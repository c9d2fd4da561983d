/** What an agent's input becomes: defaults, refusals, edits; over the real operations of the store. */
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { testAgents, testLeftovers, testOutput, testTrees } from "../../../test/operations.ts";
import { AppError } from "../../core/errors.ts";
import { defaultLimits } from "../../core/limits.ts";
import type { AgentTarget } from "../../core/target.ts";
import { permissions, providers, worktreeModes } from "../../core/target.ts";
import { operations as table } from "../../store/operations.ts";
import { openMemoryStore } from "../../store/sqlite.ts";
import { operation as addAccount } from "./add-account.ts";
import { operation as addLoop } from "../loops/add-loop.ts";
import { PERMISSIONS, PROVIDERS, WORKTREE_MODES } from "./agent-target.ts";
import { operation as editLoop } from "../loops/edit-loop.ts";
import { checkInput } from "../fields.ts";
import type { StoreContext } from "../operation.ts";
import { placesOf } from "../places.ts";

let folder: string;
let repository: string;
let plain: string;
let context: StoreContext;
let missing: Set<string>;
let prompts: string[];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-agent-target-"));
  repository = join(folder, "repository");
  plain = join(folder, "plain");
  mkdirSync(join(repository, ".git"), { recursive: true });
  writeFileSync(join(repository, ".git/HEAD"), "ref: refs/heads/main\n");
  mkdirSync(join(repository, "sub"));
  // Somebody's leftover; git does not take it for a repository either.
  mkdirSync(join(plain, ".git"), { recursive: true });
  missing = new Set();
  prompts = [];
  const clock = { now: () => Date.UTC(2026, 0, 1) };
  const { store } = openMemoryStore({ table, clock });
  context = {
    clock,
    hostZone: "UTC",
    build: { version: "0.0.0", id: "test" },
    places: placesOf({ DROVER_HOME: join(folder, "home") }),
    settings: { store: "memory", limits: { ...defaultLimits, promptBytes: 4_000_000 }, all: [] },
    store: {
      ...store,
      prompts: {
        ...store.prompts,
        put: (input) => {
          prompts.push(input.digest);
          return store.prompts.put(input);
        },
      },
    },
    hostId: "host_x",
    caller: { by: "person", parentRunId: null },
    daemon: async () => ({ mode: "full" }),
    output: testOutput,
    findProgram: async (name) => (missing.has(name) ? null : `/bin/${name}`),
    isFolder: () => true,
    isRoot: false,
    agents: testAgents,
    trees: testTrees,
    leftovers: testLeftovers,
  };
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

type Input = Readonly<Record<string, unknown>>;
const agent = { agent: "claude", prompt: "Fix it.\nThen say what was wrong." };
const add = (input: Input) =>
  addLoop.run(context, checkInput(addLoop.input, { name: "a", every: "1h", cwd: repository, ...input }));
const edit = (input: Input) => editLoop.run(context, checkInput(editLoop.input, { loop: "a", ...input }));
const targetOf = (loop: { readonly target: unknown }) => loop.target as AgentTarget;

async function refused(act: () => Promise<unknown>): Promise<string> {
  try {
    await act();
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    expect(error.hint).toBeTruthy();
    return `${error.kind} ${error.code} ${error.path}`;
  }
  return "done";
}

test("the lists that are written out are those of core", () => {
  expect([PROVIDERS, PERMISSIONS, WORKTREE_MODES]).toEqual([providers, permissions, worktreeModes]);
});

test("defaults: a worktree where there is a repository, no more rights than needed, the agent's clocks", async () => {
  const loop = await add(agent);
  expect(targetOf(loop)).toMatchObject({
    kind: "agent",
    provider: "claude",
    permission: "workspace-write",
    account: "default",
    worktree: "auto",
    command: null,
    prompt: { bytes: 32, head: "Fix it." },
  });
  expect(loop.policy).toMatchObject({ timeoutMs: 7_200_000, idleTimeoutMs: 900_000 });
  expect(loop.warnings).toEqual([]);
  expect(targetOf(await edit({ cwd: join(repository, "sub") })).worktree).toBe("auto");
});

test("0s is no limit, for an agent too", async () => {
  expect((await add({ ...agent, timeoutMs: 0, idleTimeoutMs: 0 })).policy).toMatchObject({
    timeoutMs: null,
    idleTimeoutMs: null,
  });
});

test("auto in no repository is off, and said; required is refused", async () => {
  const loop = await add({ ...agent, cwd: plain });
  expect(targetOf(loop).worktree).toBe("off");
  expect(loop.warnings).toMatchObject([{ code: "no_worktree" }]);
  expect(await refused(() => add({ ...agent, name: "b", cwd: plain, worktree: "required" }))).toBe(
    "invalid no_repository --worktree",
  );
  expect(await refused(() => add({ name: "b", command: ["true"], cwd: plain, worktree: "required" }))).toBe(
    "invalid no_repository --worktree",
  );
});

test.each([
  ["no prompt", { agent: "claude" }, "invalid missing_prompt --prompt"],
  ["a blank prompt", { agent: "claude", prompt: " \n\t" }, "invalid prompt_blank --prompt"],
  ["two prompts", { ...agent, promptFile: "x" }, "invalid contradiction --prompt-file"],
  ["a prompt and no agent", { prompt: "x" }, "invalid missing_target --prompt"],
  ["an agent and a command", { ...agent, command: ["make"] }, "invalid contradiction --agent"],
  ["a command and a prompt", { command: ["make"], prompt: "x" }, "invalid contradiction --prompt"],
  ["an agent and a shell string", { ...agent, shell: "make" }, "invalid contradiction --agent"],
  ["full without a reason", { ...agent, permission: "full" }, "invalid reason_missing --reason"],
  ["a blank reason", { ...agent, permission: "full", reason: "  " }, "invalid reason_missing --reason"],
  ["a reason for nothing", { ...agent, reason: "because" }, "invalid bad_input --reason"],
  ["a custom agent without a program", { agent: "custom", prompt: "x" }, "invalid missing_value --agent-command"],
  ["a program for claude", { ...agent, agentCommand: "./a" }, "invalid bad_input --agent-command"],
  [
    "a custom agent that is to read only",
    { agent: "custom", agentCommand: "a", prompt: "x", permission: "read-only" },
    "invalid agent_refused --permission",
  ],
  ["another provider's account", { ...agent, account: "codex:work" }, "invalid bad_input --account"],
  ["an account with a name that is none", { ...agent, account: "No!" }, "invalid bad_input --account"],
  ["an account that is not there", { ...agent, account: "work" }, "not_found account_not_found --account"],
])("refused: %s, and nothing is stored", async (_what, input, wanted) => {
  expect(await refused(() => add(input))).toBe(wanted);
  expect(prompts).toEqual([]);
  expect((await context.store.loops.list({ limit: 5, cursor: null, archived: false, label: null })).items).toEqual([]);
});

test("B-120 a program that is not there is told with what mends it", async () => {
  missing.add("claude").add("./mine");
  expect(await refused(() => add(agent))).toBe("not_found agent_not_found --agent");
  expect(await refused(() => add({ agent: "custom", agentCommand: "./mine", prompt: "x" }))).toBe(
    "not_found agent_not_found --agent-command",
  );
  expect(prompts).toEqual([]);
});

test("as root full needs a second word", async () => {
  context = { ...context, isRoot: true };
  const full = { ...agent, permission: "full", reason: "in a container" };
  expect(await refused(() => add(full))).toBe("invalid root_not_allowed --allow-root");
  expect(targetOf(await add({ ...full, allowRoot: true }))).toMatchObject({ permission: "full", allowRoot: true });
});

test("an account is named with or without its provider", async () => {
  await addAccount.run(context, checkInput(addAccount.input, { provider: "claude", name: "work" }));
  expect(targetOf(await add({ ...agent, account: "work" })).account).toBe("work");
  expect(targetOf(await edit({ account: "claude:default" })).account).toBe("default");
  expect(targetOf(await edit({ account: "claude:work" })).account).toBe("work");
});

// --- Prompts -----------------------------------------------------------------------------------------------------------

const stored = async (loop: { readonly target: unknown }): Promise<Buffer> => {
  const found = await context.store.prompts.get({ digest: targetOf(loop).prompt.digest });
  return Buffer.from(found?.content ?? "", "base64");
};

test.each(["- do x", "--help", "---\ntitle", "-"])("B-035 the prompt %j is kept as it is", async (prompt) => {
  expect((await stored(await add({ agent: "claude", prompt }))).toString()).toBe(prompt);
});

test.each([131_071, 131_072, 200_000, 3_000_000])("B-037 a prompt of %i bytes is kept whole", async (bytes) => {
  const content = Buffer.alloc(bytes, "0123456789abcdef\n");
  const loop = await add({ agent: "claude", prompt: { base64: content.toString("base64") } });
  expect(targetOf(loop).prompt).toEqual({
    digest: createHash("sha256").update(content).digest("hex"),
    bytes,
    head: "0123456789abcdef",
  });
  expect((await stored(loop)).equals(content)).toBe(true);
});

test("bytes that are no UTF-8 are kept as they are, and their head is text", async () => {
  const content = Buffer.from([0xff, 0xfe, 0x80, 0x41, 0x0a, 0x1b, 0x5b]);
  const loop = await add({ agent: "claude", promptFile: { base64: content.toString("base64") } });
  expect((await stored(loop)).equals(content)).toBe(true);
  expect(targetOf(loop).prompt.head).toBe("\ufffd\ufffd\ufffdA");
});

test("B-033, B-034 a NUL byte is refused however it comes", async () => {
  expect(await refused(async () => add({ agent: "claude", prompt: "a\0b" }))).toBe("invalid nul_byte prompt");
  const base64 = Buffer.from("a\0b").toString("base64");
  expect(await refused(() => add({ agent: "claude", prompt: { base64 } }))).toBe("invalid nul_byte --prompt");
  expect(await refused(() => add({ agent: "claude", promptFile: { base64 } }))).toBe("invalid nul_byte --prompt-file");
  expect(prompts).toEqual([]);
});

test("a prompt up to the limit is taken, one byte more is refused with the setting's name", async () => {
  const of = (bytes: number) => ({ base64: Buffer.alloc(bytes, "x").toString("base64") });
  expect(await refused(() => add({ agent: "claude", prompt: of(4_000_001) }))).toBe(
    "invalid prompt_too_large --prompt",
  );
  expect(targetOf(await add({ agent: "claude", prompt: of(4_000_000) })).prompt.bytes).toBe(4_000_000);
});

// --- Edits ---------------------------------------------------------------------------------------------------------------

test("an edit keeps what is not given, and needs no program to keep a prompt", async () => {
  const before = targetOf(await add({ ...agent, model: "m", permission: "full", reason: "alone", env: { A: "1" } }));
  const model = targetOf(await edit({ model: "n" }));
  expect(model).toEqual({ ...before, model: "n" });
  expect(targetOf(await edit({ prompt: "Another." }))).toMatchObject({ model: "n", reason: "alone", env: { A: "1" } });
  const less = targetOf(await edit({ permission: "read-only" }));
  expect(less).toMatchObject({ permission: "read-only", reason: null, allowRoot: false });
  expect((await edit({ untested: true })).target).toMatchObject({ untested: true });
  expect((await edit({ worktree: "off" })).target).toMatchObject({ worktree: "off", untested: true });
});

test("an edit that gives nothing is refused", async () => {
  await add(agent);
  expect(await refused(() => edit({ allowRoot: false }))).toBe("invalid nothing_to_do loop");
});

test("a command becomes an agent and back: the surroundings stay, time limits that nobody chose go with their kind", async () => {
  await add({ command: ["make"], env: { A: "1" }, expect: ["output"] });
  const asAgent = await edit(agent);
  expect(asAgent.target).toMatchObject({ kind: "agent", env: { A: "1" }, expect: ["output"], worktree: "auto" });
  expect(asAgent.policy).toMatchObject({ timeoutMs: 7_200_000, idleTimeoutMs: 900_000 });
  await edit({ timeoutMs: 60_000 });
  const asCommand = await edit({ command: ["make", "test"] });
  expect(asCommand.target).toMatchObject({ kind: "command", argv: ["make", "test"], env: { A: "1" } });
  expect(asCommand.target).not.toHaveProperty("worktree");
  expect(asCommand.policy).toMatchObject({ timeoutMs: 60_000, idleTimeoutMs: null });
});

test("from one provider to another the prompt stays; model, account and what is untried do not", async () => {
  await addAccount.run(context, checkInput(addAccount.input, { provider: "claude", name: "work" }));
  const before = targetOf(await add({ ...agent, model: "m", account: "work", untested: true }));
  expect(targetOf(await edit({ agent: "codex" }))).toMatchObject({
    provider: "codex",
    prompt: before.prompt,
    model: null,
    account: "default",
    untested: false,
  });
  const custom = targetOf(await edit({ agent: "custom", agentCommand: "./mine", command: ["--fast"] }));
  expect(custom).toMatchObject({ provider: "custom", command: ["./mine", "--fast"], prompt: before.prompt });
  expect(targetOf(await edit({ prompt: "More." })).command).toEqual(["./mine", "--fast"]);
});
