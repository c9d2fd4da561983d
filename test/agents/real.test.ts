/**
 * The facts that the adapters stand on, seen at the real command lines: how many requests a failure costs, what the exit
 * status and the closing event are, and what is left. One level below drover; `table.test.ts` has what drover makes of it.
 */
import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { FailureClass } from "../../src/core/run.ts";
import { until } from "../e2e/drover.ts";
import { describeInstalled } from "./installed.ts";
import { type ModelServer, openModelServer } from "./model-server.ts";
import { folderOutside, gone, openRealHome, type RealHome, type RealProvider } from "./real.ts";

let server: ModelServer;
beforeAll(async () => {
  server = await openModelServer();
});
afterAll(() => server.close());

let home: RealHome;
beforeEach(() => {
  home = openRealHome();
});
afterEach(() => {
  home.close();
  rmSync(outside(), { force: true }); // what a test that fails has let through
});

let tests = 0;
const fresh = () => `real${++tests}`;

/** One failure: what the server does, what comes of it. `requests` with the retries that the adapter leaves to the provider. */
interface Row {
  readonly scenario: string;
  readonly requests: number;
  readonly class: FailureClass | null;
  readonly token?: boolean;
  readonly env?: Readonly<Record<string, string>>;
}

const inAnHour = Math.floor(Date.now() / 1000) + 3600;
const rows: { readonly [P in RealProvider]: readonly Row[] } = {
  claude: [
    { scenario: "ok", requests: 1, class: null },
    { scenario: "429", requests: 3, class: "rate_limited" },
    { scenario: "429long", requests: 1, class: "rate_limited" },
    { scenario: `quota~${inAnHour}`, requests: 1, class: "quota", token: true },
    { scenario: "401", requests: 3, class: "auth" },
    { scenario: "401", requests: 2, class: "auth", token: true, env: { CLAUDE_CODE_MAX_RETRIES: "0" } },
    { scenario: "403", requests: 1, class: "auth" },
    { scenario: "404", requests: 2, class: "env_invalid" },
    { scenario: "500", requests: 3, class: "overloaded" },
    { scenario: "529", requests: 3, class: "overloaded" },
    { scenario: "credit", requests: 1, class: "quota" },
    { scenario: "context", requests: 1, class: "context" },
    { scenario: "drop", requests: 3, class: "network" },
    { scenario: "droponce", requests: 2, class: null },
    { scenario: "errevent", requests: 1, class: "overloaded" },
    { scenario: "flaky~2", requests: 3, class: null },
    { scenario: "flaky429~1", requests: 2, class: null },
    {
      scenario: "hangstart",
      requests: 1,
      class: "network",
      env: { API_TIMEOUT_MS: "3000", CLAUDE_CODE_MAX_RETRIES: "0" },
    },
  ],
  codex: [
    { scenario: "ok", requests: 1, class: null },
    { scenario: "429", requests: 2, class: "rate_limited" },
    { scenario: `quota~${inAnHour}`, requests: 1, class: "quota" },
    { scenario: "401", requests: 2, class: "auth" },
    { scenario: "403", requests: 2, class: "auth" },
    { scenario: "404", requests: 1, class: "env_invalid" },
    { scenario: "500", requests: 4, class: "overloaded" },
    { scenario: "503", requests: 2, class: "overloaded" },
    { scenario: "credit", requests: 1, class: "quota" },
    { scenario: "context", requests: 1, class: "context" },
    { scenario: "drop", requests: 2, class: "network" },
    { scenario: "droponce", requests: 2, class: null },
    { scenario: "errevent", requests: 1, class: "overloaded" },
    { scenario: "flaky~1", requests: 2, class: null },
    { scenario: "flaky429~1", requests: 2, class: null },
  ],
};

const closing = {
  claude: (event: Readonly<Record<string, unknown>> | undefined) => event?.["type"] === "result",
  codex: (event: Readonly<Record<string, unknown>> | undefined) =>
    /^turn\.(completed|failed)$/.test(String(event?.["type"])),
};

describeInstalled.each(["claude", "codex"] as const)("%s", (provider) => {
  test.each(rows[provider])("$scenario: $requests requests, $class", async (row) => {
    const id = fresh();
    const { exit, events, verdict, left } = await home.run(provider, {
      base: server.base(row.scenario, id),
      prompt: "say OK",
      ...(row.token === undefined ? {} : { token: row.token }),
      ...(row.env === undefined ? {} : { env: row.env }),
    });
    expect(verdict.class, verdict.message ?? "").toBe(row.class);
    expect(exit).toBe(row.class === null ? 0 : 1);
    expect(closing[provider](events.at(-1))).toBe(true);
    expect(server.requests(id)).toHaveLength(row.requests);
    expect(left).toEqual([]);
    if (row.class === null) {
      expect(verdict.text).toBe("OK");
      expect(verdict.usage).toMatchObject({ outputTokens: expect.any(Number) });
    }
    if (row.scenario.startsWith("quota~")) {
      const resetAt = (verdict.resetAt ?? 0) / 1000;
      // Codex says the minute only, in words.
      if (provider === "codex") expect(Math.abs(resetAt - inAnHour)).toBeLessThanOrEqual(60);
      else expect(resetAt).toBe(inAnHour);
    }
    if (row.scenario === "context") expect(verdict.ok).toBe(false);
  });

  test("writes a file in its folder, and reads a prompt that begins with a dash", async () => {
    const id = fresh();
    const file = join(home.cwd, "made.txt");
    const { exit, verdict, left } = await home.run(provider, {
      base: server.base("tool", id),
      prompt: `--dangerous\nFILE=${file}\n`,
    });
    expect([exit, verdict.ok]).toEqual([0, true]);
    expect(readFileSync(file, "utf8")).toBe("written by the model");
    expect(server.requests(id)).toHaveLength(2);
    expect(server.requests(id)[0]?.talk?.userTexts.join("\n")).toContain("--dangerous");
    expect(left).toEqual([]);
  });

  test("B-036 a long prompt arrives whole, and one that is too long for it is said to be", async () => {
    const id = fresh();
    const base = server.base("ok", id);
    const long = (characters: number) => `${"ž".repeat(characters - 3)}END`;
    // Characters that each takes: Claude Code 10 MB (its model's window ends before), Codex 1,048,576 characters.
    const { whole, over, says } = {
      claude: { whole: 1_500_000, over: 10_500_000, says: "piped stdin input exceeds 10MB" },
      codex: { whole: 1_048_576, over: 1_048_577, says: "maximum length of 1048576 characters" },
    }[provider];
    expect((await home.run(provider, { base, prompt: long(whole) })).verdict.ok).toBe(true);
    expect(server.requests(id)[0]?.talk?.userTexts.some((text) => text.includes(long(1000)))).toBe(true);
    const { exit, verdict } = await home.run(provider, { base, prompt: long(over) });
    expect([exit, verdict.class]).toEqual([1, "env_invalid"]);
    expect(verdict.message).toContain(says);
    expect(server.requests(id)).toHaveLength(1);
  });

  test("read-only writes nothing, in its folder or elsewhere", async () => {
    for (const file of [join(home.cwd, "inside.txt"), outside()]) {
      await home.run(provider, {
        base: server.base("tool", fresh()),
        prompt: `FILE=${file}`,
        permission: "read-only",
      });
      expect(existsSync(file)).toBe(false);
    }
  });

  test("workspace-write writes nothing outside of its folder", async () => {
    const { verdict } = await home.run(provider, { base: server.base("tool", fresh()), prompt: `FILE=${outside()}` });
    expect(existsSync(outside())).toBe(false);
    // Codex says nothing of a command that its sandbox kept from writing: only the work tells.
    expect(verdict.class).toBe(provider === "claude" ? "refused" : null);
  });

  test("TERM in the middle of a tool ends it and its command, and it goes on by its id with the history", async () => {
    const id = fresh();
    const mark = join(home.cwd, "began");
    const session = { id: randomUUID(), resume: false };
    const { exit, signal, events, verdict } = await home.run(provider, {
      base: server.base("shell", id),
      prompt: `the first prompt\nSHELL=echo began > ${mark}; tail -f /dev/null`,
      session,
      stop: until(() => existsSync(mark), "the command runs"),
    });
    expect(provider === "claude" ? exit : signal).toBe(provider === "claude" ? 143 : "SIGTERM");
    expect(closing[provider](events.at(-1))).toBe(false);
    expect(verdict.ok).toBe(false);
    await gone(home.folder);

    const sessionId = verdict.sessionId ?? "";
    if (provider === "claude") expect(sessionId).toBe(session.id);
    server.become(id, "ok");
    const again = await home.run(provider, {
      base: server.base("ok", id),
      prompt: "the second prompt",
      session: { id: sessionId, resume: true },
    });
    expect(again.verdict).toMatchObject({ ok: true, sessionId });
    const talk = server.requests(id).at(-1)?.talk;
    expect(talk?.userTexts.join("\n")).toMatch(/the first prompt[\s\S]*the second prompt/);
    expect(talk).toMatchObject({ allResults: 1, newResults: 0 });
  });

  test("a session that is not there is told apart from every other failure", async () => {
    const id = fresh();
    const { exit, verdict } = await home.run(provider, {
      base: server.base("ok", id),
      prompt: "go on",
      session: { id: randomUUID(), resume: true },
    });
    expect(exit).toBe(1);
    expect(verdict).toMatchObject({ ok: false, class: "protocol", sessionId: null });
    expect(verdict.message).toContain("session");
    expect(server.requests(id)).toEqual([]);
  });

  test("a port where nobody listens is no place to wait for ever", async () => {
    const { exit, verdict } = await home.run(provider, { base: await nobody(), prompt: "say OK" });
    expect([exit, verdict.class]).toEqual([1, "network"]);
  });

  test("three at once on one home have a session each", async () => {
    const ids = [fresh(), fresh(), fresh()];
    const ended = await Promise.all(
      ids.map((id) => home.run(provider, { base: server.base("slow~300", id), prompt: `prompt of ${id}` })),
    );
    expect(ended.map(({ exit }) => exit)).toEqual([0, 0, 0]);
    expect(new Set(ended.map(({ verdict }) => verdict.sessionId)).size).toBe(3);
    for (const id of ids) {
      expect(server.requests(id)).toHaveLength(1);
      expect(server.requests(id)[0]?.talk?.userTexts.join("\n")).toContain(`prompt of ${id}`);
    }
  });

  test("asks nobody but the model", async () => {
    const id = fresh();
    await home.run(provider, { base: server.base("ok", id), prompt: "say OK" });
    expect(server.asides(id).filter(({ path }) => !path.endsWith("/models"))).toEqual([]);
  });
});

/** A file outside of every folder that may be written: Codex may write in the system's temporary folder. */
const outside = () => join(folderOutside(), `drover-outside-${process.pid}.txt`);

/** The address of a port that was free a moment ago. */
async function nobody(): Promise<string> {
  const listening = createServer().listen(0, "127.0.0.1");
  await new Promise((done) => listening.once("listening", done));
  const address = listening.address();
  await new Promise((done) => listening.close(done));
  return `http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 1}`;
}
