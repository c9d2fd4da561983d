import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { AppError } from "../../core/errors.ts";
import { defaultLimits } from "../../core/limits.ts";
import {
  formOfAccount,
  formOfLoop,
  inFormWords,
  type LoopDefinition,
  promptForm,
  readAccountForm,
  readLoopForm,
} from "./declared-form.ts";
import { draftLoop } from "../loops/draft-loop.ts";
import { type Field, type Json, type Reading } from "../fields.ts";
import { type LoopInput, loopFields } from "../runs/work.ts";

const NOW = Date.UTC(2026, 3, 1);
const limits = { ...defaultLimits, agentTimeoutMs: 7_000_000 };
const around = {
  settings: { store: "memory", limits, all: [] },
  isRoot: false,
  clock: { now: () => NOW },
  hostZone: "Europe/Rome",
};
const reading: Reading = { cwd: "/srv/shop", readBytes: (file) => Buffer.from(`what ${file} says`).toString("base64") };

async function define(input: LoopInput): Promise<LoopDefinition & { readonly prompt: Json }> {
  const { draft, faults } = await draftLoop(around, "a", input);
  if (draft === null) throw faults[0] ?? new Error("a draft or a fault");
  const { schedule, policy, target } = draft;
  return {
    schedule: schedule.kind === "dynamic" ? { kind: "dynamic", firstAt: 0 } : schedule,
    policy,
    // Of a command, none said is off.
    target: { worktree: "off", ...target.target },
    prompt: target.prompt === null ? null : promptForm(target.prompt.content),
  };
}

const read = (form: unknown): LoopInput => {
  const { input, faults } = readLoopForm(form, reading);
  if (input === null) throw faults[0] ?? new Error("an input or a fault");
  return input;
};
const faultsOf = (form: unknown) =>
  (readLoopForm(form, reading).faults ?? []).map(({ path, code, message, hint }) => ({ path, code, message, hint }));

// --- Every loop has a form that means the same ------------------------------------------------------------------------------

const word = fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/);
const line = fc.string({ minLength: 1, maxLength: 40, unit: "grapheme" }).filter((text) => !/\0/.test(text));
const name = fc.stringMatching(/^[A-Z][A-Z0-9]{0,6}$/).map((text) => `X_${text}`);
const durationMs = fc.integer({ min: 0, max: 90_000_000 });
const sources = fc.oneof(
  word.map((text) => `env:${text}`),
  line.map((text) => `cmd:${text}`),
  word.map((text) => `file:/run/${text}`),
);
const bytes = fc.oneof(
  line.filter((text) => text.trim() !== "").map((text) => ({ base64: Buffer.from(text).toString("base64") })),
  fc.constant({ base64: Buffer.from([0x61, 0xff, 0x62]).toString("base64") }),
  fc.constant({ base64: Buffer.from("two lines\r\nwith ends\n\n  and spaces \t\n").toString("base64") }),
);

const folder = mkdtempSync(join(tmpdir(), "drover-form-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const workflow = join(folder, "w.yaml");
writeFileSync(
  workflow,
  "name: w\ninputs: { text: { type: string }, n: { type: integer, default: 3 } }\nsteps:\n  - { id: a, type: command, command: [a] }\n",
);

/** Values of each field; those that go together are chosen below. */
const values: { readonly [key: string]: fc.Arbitrary<unknown> } = {
  cwd: word.map((text) => `/srv/${text}`),
  env: fc.dictionary(
    name,
    fc.string({ unit: "grapheme" }).filter((text) => !/\0/.test(text)),
    { maxKeys: 3 },
  ),
  envPass: fc.array(name, { maxLength: 2 }),
  secret: fc.dictionary(name, sources, { maxKeys: 2 }),
  expect: fc.array(fc.constantFrom("output", "changes", "file:a b.txt", "cmd:test -s x"), { maxLength: 3 }),
  output: fc.constantFrom("files", "pipe"),
  worktree: fc.constantFrom("off", "auto", "required"),
  attempts: fc.integer({ min: 1, max: 9 }),
  backoffMs: durationMs,
  timeoutMs: durationMs,
  idleTimeoutMs: durationMs,
  graceMs: durationMs,
  priority: fc.integer({ min: -9, max: 9 }),
  onLost: fc.constantFrom("auto", "retry", "fail"),
  onFinish: fc.oneof(fc.constant(""), line),
  onFailure: fc.oneof(fc.constant(""), line),
  label: fc.array(word, { maxLength: 3 }),
  catchUp: fc.constantFrom("latest", "all", "none"),
  catchUpLimit: fc.integer({ min: 1, max: 60 }),
  overlap: fc.constantFrom("skip", "queue", "allow", "cancel"),
  queueLimit: fc.integer({ min: 1, max: 200 }),
  jitterMs: fc.integer({ min: 0, max: 900 }),
  expiresAt: fc.constantFrom("none", "2027-01-01T00:00:00Z", "2028-02-03 04:05"),
  expiresAfterRuns: fc.integer({ min: 0, max: 4 }),
  breaker: fc.integer({ min: 0, max: 6 }),
  model: word,
  permission: fc.constantFrom("read-only", "workspace-write"),
  untested: fc.boolean(),
  account: word,
};
const schedules = fc.oneof(
  fc.constantFrom("1s", "90s", "1h30m", "2w", "36h").map((every) => ({ every })),
  fc.record({
    cron: fc.constantFrom("*/5 * * * *", "30 2 * * MON-FRI", "@daily"),
    tz: fc.constantFrom("UTC", "Asia/Tokyo"),
  }),
  fc.constant({ cron: "0 3 * * *" }),
  fc.constantFrom("2027-01-01T00:00:00.250Z", "2026-05-01 02:30").map((at) => ({ at })),
  fc.constant({ dynamic: true }),
);
const argv = fc.tuple(word, fc.string(), line).map((words) => words.filter((text) => !/\0/.test(text)));
const targets = fc.oneof(
  argv.map((command) => ({ command })),
  line.map((shell) => ({ shell })),
  fc.record({ agent: fc.constantFrom("claude", "codex"), prompt: bytes }),
  fc.record({
    agent: fc.constant("codex"),
    promptFile: bytes,
    permission: fc.constant("full"),
    reason: word,
    allowRoot: fc.boolean(),
  }),
  fc.record({ agent: fc.constant("custom"), prompt: bytes, agentCommand: line, command: argv }),
  fc.record({
    workflow: fc.constant(workflow),
    input: fc.record({ text: line, n: fc.integer().map(String) }, { requiredKeys: ["text"] }),
  }),
);
const CHOSEN_TOGETHER = [
  "every",
  "cron",
  "tz",
  "at",
  "dynamic",
  "command",
  "shell",
  "agent",
  "prompt",
  "promptFile",
  "agentCommand",
  "reason",
  "allowRoot",
  "workflow",
  "input",
];
/** What a workflow says for each step. */
const OF_STEPS = ["expect", "attempts", "backoffMs", "timeoutMs", "idleTimeoutMs"];
const OF_AGENTS = ["model", "permission", "untested", "account"];

const inputs = fc.tuple(schedules, targets, fc.record(values, { requiredKeys: [] })).map(([schedule, target, more]) => {
  const left = [...("agent" in target ? [] : OF_AGENTS), ...("workflow" in target ? OF_STEPS : [])];
  const rest = Object.fromEntries(Object.entries(more).filter(([key]) => !left.includes(key)));
  const given: { readonly [key: string]: unknown } = { cwd: "/srv", ...rest, ...schedule, ...target };
  return Object.fromEntries(
    Object.entries(loopFields).map(([key, field]: [string, Field<unknown>]) => [key, field.check(given[key], key)]),
  ) as unknown as LoopInput;
});

test("every field of a loop is part of the property below, or needs a part that is not there yet", () => {
  const tried = [...Object.keys(values), ...CHOSEN_TOGETHER];
  const rest = Object.entries(loopFields).filter(([key]) => !tried.includes(key));
  expect(rest.filter(([, field]) => !field.later).map(([key]) => key)).toEqual([]);
});

test("a loop's form, written as YAML and as JSON and read again, is the same loop", async () => {
  await fc.assert(
    fc.asyncProperty(inputs, async (input) => {
      const before = await define(input);
      const form = formOfLoop(before, { limits, prompt: before.prompt });
      for (const again of [parse(stringify(form)), JSON.parse(JSON.stringify(form))])
        expect(await define(read(again))).toEqual(before);
      // And of the same loop it is the same form.
      const twice = await define(read(form));
      expect(formOfLoop(twice, { limits, prompt: twice.prompt })).toEqual(form);
    }),
    { numRuns: 100 },
  );
});

test("a form says only what differs from the usual", async () => {
  const usual = await define(read({ every: "60m", command: ["date"], cwd: "/srv", timeout: "0s", catchUp: "latest" }));
  expect(formOfLoop(usual, { limits, prompt: null })).toEqual({ every: "1h", command: ["date"], cwd: "/srv" });
  const agent = await define(read({ every: "1d", cwd: "/", agent: { provider: "codex", prompt: "Tidy up." } }));
  expect(agent.policy.timeoutMs).toBe(7_000_000);
  expect(formOfLoop(agent, { limits, prompt: agent.prompt })).toEqual({
    every: "1d",
    cwd: "/",
    agent: { provider: "codex", prompt: "Tidy up." },
  });
  const unlimited = await define(
    read({ every: "1d", cwd: "/", timeout: "0s", agent: { provider: "codex", prompt: "x" } }),
  );
  expect(formOfLoop(unlimited, { limits, prompt: "x" })).toMatchObject({ timeout: "0s" });
});

test("places are meant from where the form lies", () => {
  const input = read({
    every: "1d",
    cwd: "./api/../web",
    agent: { provider: "claude", promptFile: "prompts/deps.md" },
    secrets: { A: "file:keys/a", B: "file:/etc/b", C: "file:~/c", D: "env:D" },
  });
  expect(input.cwd).toBe("/srv/shop/web");
  expect(Buffer.from(input.promptFile?.base64 ?? "", "base64").toString()).toBe("what /srv/shop/prompts/deps.md says");
  expect(input.secret).toEqual({ A: "file:/srv/shop/keys/a", B: "file:/etc/b", C: "file:~/c", D: "env:D" });
  expect(read({ every: "1d", shell: "date" }).cwd).toBe("/srv/shop");
});

test("a command that is written as one text is told how a list looks, and of the shell", () => {
  const words = (form: unknown) => faultsOf(form).map(({ path, hint }) => [path, hint]);
  expect(words({ every: "1h", command: "echo hi" })).toEqual([
    ["command", 'Write a list, as in [one, "two words"]. A line for the shell is `shell`.'],
  ]);
  expect(words({ every: "1h", command: ["true"], expect: "commit" })).toEqual([
    ["expect", 'Write a list, as in [one, "two words"].'],
  ]);
});

test("every fault of a form is told with its place", () => {
  expect(
    faultsOf({
      evry: "5m",
      timeout: 90,
      attempts: "three",
      overlap: "skipp",
      labels: ["a", 7],
      env: { PORT: 8080 },
      pool: "x",
      agent: { provider: "gpt", modle: "x" },
    }),
  ).toMatchInlineSnapshot(`
    [
      {
        "code": "unknown_key",
        "hint": "Did you mean every?",
        "message": "there is no "evry" here",
        "path": "evry",
      },
      {
        "code": "bad_input",
        "hint": "Write it with its unit, as in 90s or 1h30m.",
        "message": "timeout must be text",
        "path": "timeout",
      },
      {
        "code": "bad_input",
        "hint": "Give a whole number from 1 to 1000.",
        "message": "attempts must be a whole number",
        "path": "attempts",
      },
      {
        "code": "bad_choice",
        "hint": "Choose one of skip, queue, allow, cancel.",
        "message": "overlap cannot be "skipp"",
        "path": "overlap",
      },
      {
        "code": "bad_input",
        "hint": "Numbers, true, false and null are text only in quotes.",
        "message": "labels[1] must be text",
        "path": "labels[1]",
      },
      {
        "code": "bad_input",
        "hint": "Numbers, true, false and null are text only in quotes.",
        "message": "env.PORT must be text",
        "path": "env.PORT",
      },
      {
        "code": "not_available",
        "hint": "Leave it out. \`drover version\` says which version this is.",
        "message": "pool needs pools, which this version does not have",
        "path": "pool",
      },
      {
        "code": "bad_choice",
        "hint": "Choose one of claude, codex, custom.",
        "message": "agent.provider cannot be "gpt"",
        "path": "agent.provider",
      },
      {
        "code": "unknown_key",
        "hint": "Did you mean model?",
        "message": "there is no "modle" here",
        "path": "agent.modle",
      },
    ]
  `);
});

test("a loop has one schedule and one target", () => {
  const said = (form: unknown) => faultsOf(form).map(({ path, code, message }) => `${path} ${code}: ${message}`);
  expect(said({ shell: "date" })).toEqual([" bad_schedule: no schedule is given"]);
  expect(said({ every: "5m", cron: "* * * * *", shell: "date" })).toEqual([
    "cron bad_schedule: every and cron contradict one another",
  ]);
  expect(said({ every: "5m" })).toEqual([" missing_target: there is nothing to run"]);
  expect(said({ every: "5m", command: ["a"], agent: { provider: "codex", prompt: "x" } })).toEqual([
    "agent contradiction: command and agent contradict one another",
  ]);
  expect(said({ every: "5m", agent: { prompt: "x" } })).toEqual([
    "agent.provider missing_value: agent.provider is missing",
  ]);
});

test("what is counted from now is refused: a file is read more than once", () => {
  expect(faultsOf({ at: "+2h", shell: "date", expiresAt: "+1w" }).map(({ path, code }) => [path, code])).toEqual([
    ["at", "bad_time"],
    ["expiresAt", "bad_time"],
  ]);
});

test("errors of `loop add` are told in the words of a form", async () => {
  const drafted = async (form: unknown) =>
    ((await draftLoop(around, "a", read(form))).faults ?? []).map((error) => {
      const { path, message, hint } = inFormWords(error, "loop");
      return `${path}: ${message}. ${hint}`;
    });
  expect(
    await drafted({ every: "5m", jitter: "10m", agent: { provider: "claude", prompt: "x", permission: "full" } }),
  ).toMatchInlineSnapshot(`
    [
      "agent.reason: an agent that may do everything needs a reason. Write it as in agent.permission full agent.reason "runs in a container of its own".",
      "jitter: a jitter of 10m is not shorter than the period of 5m. Choose one that is shorter than every.",
    ]
  `);
  expect(await drafted({ cron: "61 * * * *", shell: "x", env: { IFS: "x" }, labels: ["a b"] })).toMatchInlineSnapshot(`
    [
      "cron: minute field "61": 61 is out of range. Use a number from 0 to 59.",
      "env.IFS: env IFS: this name is kept by the shell and cannot be set. Choose another name, as in env MODE=fast.",
      "labels: labels: a label is up to 64 letters, digits and . _ : / -. Write it as in labels nightly,team/build.",
    ]
  `);
});

test("an account's form is what `account add` takes", () => {
  const places = { state: "/state" };
  const record = { provider: "claude", name: "work", env: {}, secrets: { K: "env:K" } } as const;
  expect(formOfAccount({ ...record, home: "/state/accounts/claude/work" }, 2, places)).toEqual({
    cap: 2,
    secrets: { K: "env:K" },
  });
  expect(readAccountForm({ cap: 2, secrets: { K: "env:K" }, home: "logins/a" }, reading)).toEqual({
    input: { cap: 2, secret: { K: "env:K" }, home: "/srv/shop/logins/a", env: undefined },
    faults: null,
  });
  expect(readAccountForm({ caps: 2 }, reading).faults?.[0]).toBeInstanceOf(AppError);
});
