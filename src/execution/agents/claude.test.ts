import { describe, expect, test } from "vitest";
import { AppError } from "../../core/errors.ts";
import { claude } from "./claude.ts";
import { describeAdapter, NOW, replay, samplesOf, targetOf } from "../../../test/agents/replay.ts";

const init = { type: "system", subtype: "init", session_id: "s-1", model: "opus" };
const said = (text: string) => ({ type: "assistant", message: { model: "opus", content: [{ type: "text", text }] } });
const used = (name: string) => ({
  type: "assistant",
  message: { model: "opus", content: [{ type: "tool_use", id: "t-1", name, input: { file_path: "/x" } }] },
});
const answer = (is_error: boolean) => ({
  type: "user",
  message: {
    content: [{ type: "tool_result", tool_use_id: "t-1", content: [{ type: "text", text: "done" }], is_error }],
  },
});
const result = (more: object = {}) => ({
  type: "result",
  subtype: "success",
  is_error: false,
  result: "OK",
  session_id: "s-1",
  num_turns: 1,
  terminal_reason: "completed",
  permission_denials: [],
  usage: { input_tokens: 1234, cache_read_input_tokens: 100, cache_creation_input_tokens: 10, output_tokens: 7 },
  total_cost_usd: 0.005,
  ...more,
});
const apiError = (more: object, text: string) => ({
  type: "assistant",
  is_api_error_message: true,
  message: { model: "<synthetic>", content: [{ type: "text", text }] },
  ...more,
});

describeAdapter("claude");

describe("the command line of Claude Code", () => {
  const build = (
    wanted: Parameters<typeof targetOf>[1] = {},
    session: { id: string; resume: boolean } | null = null,
    isRoot = false,
  ) => claude.build({ target: targetOf("claude", wanted), program: "/bin/claude", session, environment: {}, isRoot });

  test("begins a session under our id, goes on with one, or neither", () => {
    expect(build().argv.slice(0, 5)).toEqual(["/bin/claude", "-p", "--output-format", "stream-json", "--verbose"]);
    expect(build().argv).not.toContain("--resume");
    expect(build({}, { id: "u-1", resume: false }).argv.join(" ")).toContain("--session-id u-1");
    expect(build({}, { id: "u-1", resume: true }).argv.join(" ")).toContain("--resume u-1");
  });

  test("takes a model that looks like an option as a model", () => {
    expect(build({ model: "--dangerously-skip-permissions" }).argv).toContain("--model=--dangerously-skip-permissions");
  });

  test("with read-only has no tool that writes, with full every one", () => {
    const reading = build({ permission: "read-only" }).argv;
    const tools = reading[reading.indexOf("--tools") + 1]?.split(",") ?? [];
    for (const tool of ["Bash", "Write", "Edit", "NotebookEdit"]) expect(tools).not.toContain(tool);
    expect(reading).toContain("--strict-mcp-config");
    expect(build().argv.join(" ")).toContain("--permission-mode acceptEdits --allowedTools Bash,");
    expect(build({ permission: "full" }).argv).toContain("--dangerously-skip-permissions");
    for (const permission of ["read-only", "workspace-write"] as const)
      expect(build({ permission }).argv).not.toContain("--dangerously-skip-permissions");
  });

  test("with full as root needs to be allowed in so many words", () => {
    expect(() => build({ permission: "full" }, null, true)).toThrow(AppError);
    expect(build({ permission: "full", allowRoot: true }, null, true).env).toEqual({ IS_SANDBOX: "1" });
    expect(build({ permission: "full", allowRoot: true }).env).toEqual({});
    expect(build({ allowRoot: true }, null, true).env).toEqual({});
  });

  test("says whether it is logged in", () => {
    const read = (stdout: string) => claude.probeLogin?.read({ exit: 0, stdout, stderr: "", environment: {} });
    expect(read('{"loggedIn": true, "authMethod": "api_key"}')).toEqual({
      loggedIn: true,
      detail: "logged in (api_key)",
    });
    expect(read('{"loggedIn": false, "authMethod": "none"}')).toEqual({ loggedIn: false, detail: "not logged in" });
    expect(read("what?")?.loggedIn).toBe(false);
  });
});

describe("the recorded ends of Claude Code", () => {
  const expected: Record<string, string | null> = {
    "claude-401": "auth",
    "claude-401-oauth": "auth",
    "claude-403": "auth",
    "claude-404": "env_invalid",
    "claude-429": "rate_limited",
    "claude-429-oauth": "rate_limited",
    "claude-500": "overloaded",
    "claude-529": "overloaded",
    "claude-context": "context",
    "claude-credit": "quota",
    "claude-denied": "refused",
    "claude-drop": "network",
    "claude-droponce": null,
    "claude-errevent": "overloaded",
    "claude-max-turns": "turn_limit",
    "claude-ok": null,
    "claude-quota": "quota",
    "claude-quota-days": "quota",
    "claude-quota-oauth": "quota",
    "claude-term": "signal",
    "claude-tool": null,
  };

  test("are all known here", () => {
    expect(samplesOf("claude").map(({ name }) => name)).toEqual(Object.keys(expected).toSorted());
  });

  test.each(samplesOf("claude").map((sample) => [sample.name, sample] as const))("%s", (name, sample) => {
    const { verdict } = replay("claude", sample.bytes, sample);
    expect([verdict.class, verdict.ok]).toEqual([expected[name], expected[name] === null]);
    expect(verdict.sessionId).toBe("00000001-0000-4000-8000-000000000000");
  });

  test("have the reset of a usage limit from its field, and say when it is beyond its window", () => {
    const of = (name: string) => {
      const sample = samplesOf("claude").find((one) => one.name === name);
      if (sample === undefined) throw new Error(name);
      return replay("claude", sample.bytes, sample).verdict;
    };
    expect(of("claude-quota-oauth").resetSource).toMatch(/^event resetsAt \d+$/);
    expect(of("claude-quota-oauth").resetAt).toBeGreaterThan(NOW);
    expect(of("claude-quota-days").resetAt).toBeGreaterThan(NOW + 5 * 3_600_000);
    expect(of("claude-quota-days").resetSource).toMatch(/^event resetsAt \d+, kept although its window is 5h$/);
    expect(of("claude-429").resetAt).toBeNull();
    expect(of("claude-529").httpStatus).toBe(529);
  });

  test("say the same in the transcript", () => {
    const sample = samplesOf("claude").find(({ name }) => name === "claude-tool");
    expect(replay("claude", sample?.bytes ?? "").entries.map(({ kind }) => kind)).toEqual([
      "session",
      "text",
      "tool_call",
      "tool_result",
      "text",
      "usage",
      "result",
    ]);
  });
});

describe("B-096 structured error before result before exit status", () => {
  const limited = apiError({ error: "rate_limit", api_error_status: 429 }, "API Error: Request rejected (429)");
  const error = {
    subtype: "error_max_turns",
    terminal_reason: "max_turns",
    result: undefined,
    errors: ["Reached maximum number of turns (2)"],
  };
  const failed = {
    is_error: true,
    terminal_reason: "api_error",
    api_error_status: 429,
    result: "API Error: Request rejected (429)",
  };
  const rows: [number, "ok" | "error" | "none", boolean, string | null][] = [
    [0, "ok", false, null],
    [1, "ok", false, "exit"],
    [143, "ok", false, "signal"],
    [0, "ok", true, "rate_limited"],
    [1, "ok", true, "rate_limited"],
    [143, "ok", true, "rate_limited"],
    [0, "error", false, "turn_limit"],
    [1, "error", false, "turn_limit"],
    [143, "error", false, "turn_limit"],
    [0, "error", true, "turn_limit"],
    [1, "error", true, "turn_limit"],
    [143, "error", true, "turn_limit"],
    [0, "none", false, "no_result"],
    [1, "none", false, "exit"],
    [143, "none", false, "signal"],
    [0, "none", true, "rate_limited"],
    [1, "none", true, "rate_limited"],
    [143, "none", true, "rate_limited"],
  ];

  test.each(rows)("exit %i, result %s, is_error %s: %s", (exit, kind, isError, expected) => {
    const closing =
      kind === "none" ? [] : [result(kind === "error" ? { ...error, is_error: isError } : isError ? failed : {})];
    const before = isError && kind !== "error" ? [limited] : [];
    const { verdict } = replay("claude", [init, said("working"), ...before, ...closing], { exit });
    expect([verdict.class, verdict.ok]).toEqual([expected, expected === null]);
  });
});

describe("what Claude Code says", () => {
  test("B-096 an error is one by each of its three marks alone", () => {
    for (const mark of [{ is_error: true }, { subtype: "error_during_execution" }, { terminal_reason: "api_error" }])
      expect(replay("claude", [init, said("x"), result(mark)]).verdict.ok).toBe(false);
  });

  test("B-101 a signal of ours after the result changes nothing", () => {
    const { verdict } = replay("claude", [init, said("x"), result()], { exit: null });
    expect(verdict).toMatchObject({ ok: true, text: "OK", sessionId: "s-1" });
  });

  test("B-098 events and exit 0 without a result", () => {
    const { verdict, reading } = replay("claude", [init, said("a"), used("Write"), answer(false)]);
    expect(reading.closed).toBe(false);
    expect(verdict).toMatchObject({ ok: false, class: "no_result", sessionId: "s-1", text: "a" });
  });

  test("B-097 silence and exit 0", () => {
    expect(replay("claude", []).verdict).toMatchObject({ ok: false, class: "no_result", text: null, sessionId: null });
  });

  test("B-100 a refused tool is no success", () => {
    const denial = { type: "system", subtype: "permission_denied", tool_name: "Bash", message: "no" };
    const listed = result({ permission_denials: [{ tool_name: "Write" }] });
    expect(replay("claude", [init, used("Write"), answer(true), said("done"), listed]).verdict).toMatchObject({
      ok: false,
      class: "refused",
      refusedTools: ["Write"],
      text: "done",
    });
    expect(replay("claude", [init, denial, said("done"), result()]).verdict).toMatchObject({
      class: "refused",
      refusedTools: ["Bash"],
    });
  });

  test("B-116 a session that is gone, or is there already, is named so, and not kept", () => {
    const gone = result({
      subtype: "error_during_execution",
      is_error: true,
      session_id: "new",
      num_turns: 0,
      errors: ["No conversation found with session ID: s-9"],
    });
    for (const [stream, stderr] of [
      [[gone], "No conversation found with session ID: s-9"],
      [[gone], ""],
      [[], "Error: Session ID s-9 is already in use."],
    ] as const) {
      const { verdict } = replay("claude", stream, { exit: 1, stderr });
      expect(verdict).toMatchObject({ class: "protocol", sessionId: null });
      expect(verdict.message).toContain("session");
    }
  });

  test("a prompt that it took for a command of its own is no work", () => {
    const { verdict } = replay("claude", [
      result({ num_turns: 0, terminal_reason: undefined, result: "/help isn't available in this environment." }),
    ]);
    expect(verdict).toMatchObject({ ok: false, class: "no_result" });
    expect(verdict.message).toContain("/help");
  });

  test("its own retries are trouble, not work, until the model answers", () => {
    const retry = {
      type: "system",
      subtype: "api_retry",
      attempt: 1,
      max_retries: 2,
      error_status: 529,
      error: "overloaded",
    };
    const before = replay("claude", [init, retry, retry]).reading;
    expect(before).toMatchObject({ progress: 0, answered: false, trouble: { class: "overloaded" } });
    expect(replay("claude", [init, retry, said("x")]).reading).toMatchObject({
      progress: 1,
      answered: true,
      trouble: null,
    });
  });

  test("it goes on after a result: the last one counts, and without one there is none", () => {
    const last = result({ result: "second" });
    expect(replay("claude", [init, said("a"), result(), said("b"), last]).verdict).toMatchObject({
      ok: true,
      text: "second",
    });
    const open = replay("claude", [init, said("a"), result(), said("b")]);
    expect([open.reading.closed, open.verdict.class]).toEqual([false, "no_result"]);
    const note = { type: "system", subtype: "task_notification" };
    expect(replay("claude", [init, said("a"), result(), note]).verdict.ok).toBe(true);
  });

  test("a subagent's words are not its own", () => {
    const sub = { ...said("inner"), parent_tool_use_id: "t-1" };
    const { verdict } = replay("claude", [init, said("outer"), sub, result({ result: undefined })]);
    expect(verdict).toMatchObject({ ok: true, text: "outer" });
  });

  test("usage counts what was written to the cache as input", () => {
    expect(replay("claude", [init, said("x"), result()]).verdict.usage).toEqual({
      inputTokens: 1244,
      cachedInputTokens: 100,
      outputTokens: 7,
      costUsd: 0.005,
      costOf: "session",
    });
  });

  test("B-024 a closing event of 10 MB ends it like any other", () => {
    const big = result({ result: "r".repeat(10_000_000) });
    const { verdict, entries } = replay("claude", [init, said("x"), big]);
    expect(verdict).toMatchObject({ ok: true, sessionId: "s-1" });
    expect(entries.find((entry) => entry.kind === "note")).toMatchObject({
      text: expect.stringMatching(/^truncated: \d+ -> 262144$/),
    });
  });

  test("B-031 B-039 colours, plain lines and odd bytes in between are notes", () => {
    const stream = `\u001b[33mwarning\u001b[0m\n${JSON.stringify(init)}\n\n\u001b[1m${JSON.stringify(said("😀"))}\u001b[0m\nTrace: x\n${JSON.stringify(result())}`;
    const { entries, verdict } = replay("claude", stream, {}, [1]);
    expect(entries.map(({ kind }) => kind)).toEqual(["note", "session", "text", "note", "usage", "result"]);
    expect(verdict.ok).toBe(true);
  });

  test("kinds that nobody knows are passed over", () => {
    const odd = [{ type: "hologram", x: 1 }, { type: "system", subtype: "mood" }, { type: 7 }, {}];
    expect(replay("claude", [init, ...odd, said("x"), ...odd, result()]).verdict.ok).toBe(true);
  });
});
