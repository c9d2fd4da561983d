/** Agents that behave as real ones do once in a thousand runs, through the built program: the stand-in on the PATH. */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Home, openHome, until } from "../e2e/drover.ts";
import { livingOf, type RunSeen } from "./harness.ts";

const STAND_IN = resolve(fileURLToPath(import.meta.url), "../stand-in.mjs");

const CONFIG = `limits:
  agentCap: 4
  agentLookMs: 100ms
  idleLookMs: 100ms
  agentExitMs: 1s
  agentTroubleMs: 2s
  watchMs: 1s
`;

let home: Home;
beforeAll(async () => {
  home = openHome({
    prefix: "drover-odd-",
    env: { PATH: `${process.env["PATH"] ?? "/usr/bin:/bin"}` },
  });
  const bin = join(home.folder, "bin"); // one of a user's own folders, which a daemon looks into by itself
  mkdirSync(bin);
  for (const name of ["claude", "codex"]) symlinkSync(STAND_IN, join(bin, name));
  mkdirSync(join(home.folder, "home"), { mode: 0o700 });
  writeFileSync(join(home.folder, "home/config.yaml"), CONFIG);
  await home.json(["up"], { env: { PATH: `${bin}${delimiter}${process.env["PATH"] ?? ""}` } });
});
afterAll(() => home.close());

let folders = 0;
/** Each account is a test's own: a limit of one holds no other. */
async function run(provider: string, mode: string, flags: readonly string[] = [], prompt = ""): Promise<RunSeen> {
  const name = `t${++folders}`;
  const cwd = join(home.folder, name);
  mkdirSync(cwd);
  await home.json(["account", "add", provider, name]);
  const words = ["--agent", provider, "--account", name, "--cwd", cwd, "--grace", "1s", ...flags];
  const ended = await home.run(["run", "--json", ...words, "--prompt", "-"], {
    input: `${prompt}Do it.\nMODE=${mode}\n`,
  });
  expect(ended.out, ended.err).toContain('"id"');
  const { id } = JSON.parse(ended.out) as RunSeen;
  const seen = await home.json<RunSeen>(["show", id]);
  await until(() => livingOf(seen).length === 0, "no process is left");
  return seen;
}
const attemptsOf = (of: RunSeen) => of.steps.flatMap(({ attempts }) => attempts);
const transcript = async ({ id }: RunSeen): Promise<string> => (await home.run(["logs", "--transcript", id])).out;
const said = (text: string) => ({ status: "succeeded", output: { result: text } });
const failed = (of: string) => ({ status: "failed", error: { class: of } });

/** The daemon's memory in bytes. */
async function daemonBytes(): Promise<number> {
  const { pid } = (await home.json<{ daemon: { pid: number } }>(["status"])).daemon;
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
}

test.each(["claude", "codex"])("%s ends well whatever it prints", async (provider) => {
  expect(await run(provider, "ok so it is")).toMatchObject(said("so it is"));
  expect(await run(provider, "split")).toMatchObject(said("žluťoučký kůň 🐎 čte"));
  expect(await run(provider, "noise")).toMatchObject(said("done"));
});

test.each(["claude", "codex"])(
  "B-008 %s has said its result and stays: the result counts, the tree is ended",
  async (provider) => {
    for (const mode of ["result-stays", "result-clings"]) {
      const ended = await run(provider, mode);
      expect(ended).toMatchObject(said("done"));
      expect(attemptsOf(ended)).toMatchObject([
        { endedBy: "exit_timer", message: expect.stringContaining("forced exit") },
      ]);
      expect((await home.run(["show", ended.id])).out).toContain(
        "forced exit: it did not exit within 1 s of its result",
      );
      expect((await home.run(["why", ended.id])).out).toContain("did not exit by itself after its result");
    }
    const own = await run(provider, "ok");
    expect(attemptsOf(own)).toMatchObject([{ endedBy: "self", message: null }]);
    expect((await home.run(["why", own.id])).out).not.toContain("did not exit");
  },
);

test("B-101 a signal of ours after the result changes nothing, an exit status of its own does", async () => {
  const ended = await run("claude", "result-stays");
  expect(ended.status).toBe("succeeded");
  expect(attemptsOf(ended)).toMatchObject([{ class: null, counted: true }]);
  expect((await run("claude", "result-exit 1")).status).toBe("failed");
});

test("what an agent leaves in sessions of their own is ended, and its result kept", async () => {
  expect(await run("claude", "children")).toMatchObject(said("done"));
});

test("B-022 floods of both outputs are read to the end", async () => {
  expect(await run("codex", "flood-stderr 5")).toMatchObject(said("done"));
  const before = await daemonBytes();
  expect(await run("claude", "flood-stdout 300")).toMatchObject(said("done"));
  expect((await daemonBytes()) - before).toBeLessThan(32 * 1024 * 1024);
});

test("B-024 an oversized line is kept short, and what follows is read", async () => {
  const ended = await run("claude", `big-line ${10 * 1024 * 1024}`);
  expect(ended).toMatchObject(said("done"));
  expect(await transcript(ended)).toMatch(/truncated: \d{8} -> \d+/);
  expect((await run("codex", `big-result ${2 * 1024 * 1024}`)).status).toBe("succeeded");
});

test.each(["claude", "codex"])("B-025 lines of %s around usual limits, the last without an end", async (provider) => {
  expect((await run(provider, "lines")).status).toBe("succeeded");
});

test("B-026 a flood without a line end costs no memory and is said to be one", async () => {
  const before = await daemonBytes();
  const ended = await run("claude", "no-newline 200");
  expect(ended).toMatchObject(failed("no_result"));
  expect((await daemonBytes()) - before).toBeLessThan(32 * 1024 * 1024);
  expect(await transcript(ended)).toContain("unframed output");
});

test("B-028 an agent that never reads its prompt is its own failure only", async () => {
  const flags = ["--env", "STAND_IN_MODE=unread"];
  const runs = await Promise.all([1, 2, 3, 4].map(() => run("claude", "", flags, "x".repeat(1024 * 1024))));
  for (const one of runs) expect(one).toMatchObject(failed("exit"));
  expect((await home.json<{ daemon: unknown }>(["status"])).daemon).not.toBeNull();
});

test("B-032 U+FFFD of the agent's own is counted, not mended", async () => {
  expect(await transcript(await run("claude", "replacement"))).toMatch(/U\+FFFD.*3|3.*U\+FFFD/);
});

test("B-039 control sequences reach no terminal", async () => {
  const ended = await run("claude", "ansi");
  for (const words of [["show"], ["logs"], ["logs", "--stderr"], ["logs", "--transcript"], ["why"]]) {
    const { out } = await home.run([...words, ended.id]);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    expect(out, words.join(" ")).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202e]/);
  }
});

test("B-096 success with an error and a 429 inside is a limit", async () => {
  expect(await run("claude", "success-error")).toMatchObject({ status: "waiting", reason: "limit" });
});

test.each(["claude", "codex"])("B-098 %s ends with 0 and without a closing event", async (provider) => {
  expect(await run(provider, "no-result")).toMatchObject(failed("no_result"));
});

test("B-100 a refused tool is no success", async () => {
  expect(await run("claude", "denied")).toMatchObject(failed("refused"));
});

/** Fails the first time that it is asked. */
const SECOND_TIME = ["--expect", "cmd:echo x >> tries; test $(wc -l < tries) -ge 2", "--backoff", "1s"];

test("B-116 a try goes on with the session before it; one that is gone is begun afresh, once", async () => {
  const resumed = await run("claude", "ok", [...SECOND_TIME, "--attempts", "2"]);
  expect(resumed.status).toBe("succeeded");
  expect(new Set(attemptsOf(resumed).map(({ sessionId }) => sessionId)).size).toBe(1);

  const gone = await run("claude", "", [...SECOND_TIME, "--attempts", "3", "--env", "STAND_IN_MODE=session-gone"]);
  expect(gone.status).toBe("succeeded");
  expect(attemptsOf(gone).map((attempt) => attempt.class)).toEqual(["check_failed", "protocol", null]);
  expect(attemptsOf(gone)[2]?.sessionId).not.toBe(attemptsOf(gone)[0]?.sessionId);
});

test("silence, retries without end and TERM without effect are all ended by our clocks", async () => {
  expect(await run("claude", "silent-start", ["--idle-timeout", "1s"])).toMatchObject({ status: "timed_out" });
  expect(await run("codex", "silence", ["--idle-timeout", "1s"])).toMatchObject({ status: "timed_out" });
  expect(await run("claude", "ignore-term", ["--timeout", "1s"])).toMatchObject({ status: "timed_out" });
  expect(await run("codex", "retries", ["--idle-timeout", "30s"])).toMatchObject(failed("network"));
});

test.each([
  ["claude", 3],
  // Said under the name of a window of five hours, without doubt.
  ["claude", 48],
  ["codex", 48],
])("B-085 a usage limit of %s that ends in %i h is waited for", async (provider, hours) => {
  const resetAt = Math.ceil(Date.now() / 60_000) * 60 + hours * 3600;
  const { late, ...ended } = await limited(provider, resetAt);
  expect(ended).toMatchObject({ status: "waiting", reason: "limit" });
  expect(late).toBeGreaterThanOrEqual(0);
  expect(late).toBeLessThan(600);
});

test("B-085 a reset further away than any limit is not believed", async () => {
  const resetAt = Math.floor(Date.now() / 1000) + 9 * 24 * 3600;
  expect((await limited("claude", resetAt)).late).toBeLessThan(-8 * 24 * 3600);
});

/** A run that met a usage limit, and how many seconds after the stated reset it goes on. */
async function limited(provider: string, resetAt: number): Promise<RunSeen & { readonly late: number }> {
  const ended = await run(provider, `usage-limit ${resetAt}`);
  return { ...ended, late: Date.parse(ended.wakeAt ?? "") / 1000 - resetAt };
}
