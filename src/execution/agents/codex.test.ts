import { describe, expect, test } from "vitest";
import { AppError } from "../../core/errors.ts";
import { codex } from "./codex.ts";
import { describeAdapter, NOW, replay, samplesOf, targetOf } from "../../../test/agents/replay.ts";

const thread = { type: "thread.started", thread_id: "th-1" };
const begun = { type: "turn.started" };
const item = (more: object) => ({ type: "item.completed", item: { id: "item_1", ...more } });
const said = (text: string) => item({ type: "agent_message", text });
const command = (more: object) =>
  item({
    type: "command_execution",
    command: "make",
    aggregated_output: "",
    exit_code: 0,
    status: "completed",
    ...more,
  });
const completed = { type: "turn.completed", usage: { input_tokens: 1234, cached_input_tokens: 100, output_tokens: 7 } };
const failed = (message: string) => ({ type: "turn.failed", error: { message } });

describeAdapter("codex");

describe("the command line of Codex", () => {
  const build = (
    wanted: Parameters<typeof targetOf>[1] = {},
    session: { id: string; resume: boolean } | null = null,
    environment: Record<string, string> = {},
    isRoot = false,
  ) => codex.build({ target: targetOf("codex", wanted), program: "codex", session, environment, isRoot }).argv;

  test("reads the prompt on standard input and keeps the sandbox, resumed or not", () => {
    expect(build().slice(0, 4)).toEqual(["codex", "exec", "--json", "--skip-git-repo-check"]);
    expect(build().at(-1)).toBe("-");
    expect(build().join(" ")).toContain('-c sandbox_mode="workspace-write"');
    const resumed = build({ permission: "read-only" }, { id: "th-1", resume: true });
    expect(resumed.slice(0, 3)).toEqual(["codex", "exec", "resume"]);
    expect(resumed.slice(-2)).toEqual(["th-1", "-"]);
    expect(resumed.join(" ")).toContain('sandbox_mode="read-only"');
    expect(build({ permission: "full" }).join(" ")).toContain('sandbox_mode="danger-full-access"');
    expect(build({}, { id: "ours", resume: false })).not.toContain("ours");
  });

  test("lets a commit in a tree of ours be made, by a sandbox that is otherwise that of a workspace", () => {
    const commit = { writes: ["/r/.git/objects", '/r/a "quoted" folder'], keeps: ["/r/.git/objects/pack"] };
    const built = (permission: "read-only" | "workspace-write") =>
      codex
        .build({
          target: targetOf("codex", { permission }),
          program: "codex",
          session: null,
          environment: {},
          isRoot: false,
          commit,
        })
        .argv.join(" ");
    const line = built("workspace-write");
    expect(line).toContain('permissions.drover.extends=":workspace"');
    expect(line).toContain(
      String.raw`{"/r/.git/objects"="write","/r/a \"quoted\" folder"="write","/r/.git/objects/pack"="read"}`,
    );
    // Together they would be the older sandbox alone.
    expect(line).not.toContain("sandbox_mode");
    expect(built("read-only")).toContain('sandbox_mode="read-only"');
    expect(built("read-only")).not.toContain("permissions.drover");
  });

  test("does not wait for a network without end", () => {
    expect(build()).toContain("features.unbounded_connection_retries=false");
  });

  test("with full as root needs to be allowed in so many words", () => {
    expect(() => build({ permission: "full" }, null, {}, true)).toThrow(AppError);
    expect(() => build({ permission: "full", allowRoot: true }, null, {}, true)).not.toThrow();
  });

  test("takes a base address that was set for it, without a password on the command line", () => {
    const line = build({}, null, { OPENAI_BASE_URL: "http://127.0.0.1:8080/v1" });
    expect(line).toContain('model_provider="drover"');
    expect(line).toContain('model_providers.drover.base_url="http://127.0.0.1:8080/v1"');
    expect(build().join(" ")).not.toContain("model_provider");
    for (const address of ["http://user:word@host/v1", "nonsense"])
      expect(() => build({}, null, { OPENAI_BASE_URL: address })).toThrow(AppError);
    expect(codex.keys).not.toContain("OPENAI_BASE_URL");
  });

  test("says whether it is logged in; a key in the environment is a login", () => {
    const read = (exit: number, stderr: string, environment = {}) =>
      codex.probeLogin?.read({ exit, stdout: "", stderr, environment });
    expect(read(1, "Not logged in")).toEqual({ loggedIn: false, detail: "not logged in" });
    expect(read(0, "Logged in using ChatGPT")).toEqual({ loggedIn: true, detail: "using ChatGPT" });
    expect(read(0, "Logged in using an API key - sk-proj-***ABCD")?.detail).toBe("using an API key");
    expect(read(1, "Not logged in", { CODEX_API_KEY: "k" })).toEqual({
      loggedIn: true,
      detail: "a key in CODEX_API_KEY",
    });
  });
});

describe("the recorded ends of Codex", () => {
  const expected: Record<string, string | null> = {
    "codex-401": "auth",
    "codex-403": "auth",
    "codex-404": "env_invalid",
    "codex-429": "rate_limited",
    "codex-500": "overloaded",
    "codex-529": "overloaded",
    "codex-context": "context",
    "codex-credit": "quota",
    "codex-drop": "network",
    "codex-errevent": "overloaded",
    "codex-ok": null,
    "codex-ok-builtin": null,
    "codex-quota": "quota",
    "codex-quota-days": "quota",
    // It says nothing of a tool that it refused: what is expected of the work has to tell.
    "codex-refused": null,
    "codex-term": "no_result",
    "codex-tool": null,
  };

  test("are all known here", () => {
    expect(samplesOf("codex").map(({ name }) => name)).toEqual(Object.keys(expected).toSorted());
  });

  test.each(samplesOf("codex").map((sample) => [sample.name, sample] as const))("%s", (name, sample) => {
    const { verdict } = replay("codex", sample.bytes, sample);
    expect([verdict.class, verdict.ok]).toEqual([expected[name], expected[name] === null]);
    expect(verdict.sessionId).toBe("00000001-0000-4000-8000-000000000000");
  });

  test("have the reset of a usage limit out of the sentence", () => {
    for (const name of ["codex-quota", "codex-quota-days"]) {
      const sample = samplesOf("codex").find((one) => one.name === name);
      const { resetAt, resetSource } = replay("codex", sample?.bytes ?? "", sample ?? {}).verdict;
      expect(resetAt).toBeGreaterThan(NOW);
      expect(resetSource).toMatch(/^text ".+" in UTC$/);
    }
  });
});

describe("what Codex says", () => {
  test("B-101 success needs the end of the turn, and survives a signal of ours", () => {
    expect(replay("codex", [thread, begun, said("OK"), completed]).verdict).toMatchObject({ ok: true, text: "OK" });
    expect(replay("codex", [thread, begun, said("OK"), completed], { exit: null }).verdict.ok).toBe(true);
    expect(replay("codex", [thread, begun, said("OK"), completed], { exit: 1 }).verdict.class).toBe("exit");
    expect(replay("codex", [thread, begun, said("OK"), completed], { exit: 143 }).verdict.class).toBe("signal");
  });

  test("B-098 without the end of the turn there is none", () => {
    expect(replay("codex", [thread, begun, said("OK")]).verdict.class).toBe("no_result");
    expect(replay("codex", [thread, begun, said("OK")], { exit: 1 }).verdict.class).toBe("exit");
  });

  test("a command that fails is work; one that was declined is refused", () => {
    expect(
      replay("codex", [thread, command({ exit_code: 2, status: "failed" }), said("x"), completed]).verdict.ok,
    ).toBe(true);
    expect(replay("codex", [thread, command({ status: "declined" }), said("x"), completed]).verdict).toMatchObject({
      class: "refused",
      refusedTools: ["command"],
    });
  });

  test("reconnecting is trouble of the kind that it names, until it works again", () => {
    const again = (why: string) => ({ type: "error", message: `Reconnecting... ${why}` });
    const trouble = (why: string) => replay("codex", [thread, begun, again(why)]).reading.trouble?.class;
    expect(trouble("1/5 (stream disconnected before completion)")).toBe("network");
    expect(trouble("waiting for network (Connection failed: error sending request)")).toBe("network");
    expect(trouble("1/1 (exceeded retry limit, last status: 429 Too Many Requests)")).toBe("rate_limited");
    expect(trouble("2/5 (We’re currently experiencing high demand, which may cause temporary errors.)")).toBe(
      "overloaded",
    );
    const recovered = replay("codex", [thread, begun, again("1/5 (x)"), said("OK"), completed]);
    expect(recovered.reading.trouble).toBeNull();
    expect(recovered.verdict.ok).toBe(true);
  });

  test("a warning as an item is none of its ends", () => {
    const warning = item({ type: "error", message: "Model metadata for `x` not found." });
    const { verdict, reading } = replay("codex", [thread, warning, begun]);
    expect([verdict.class, reading.progress]).toEqual(["no_result", 0]);
  });

  test("a session that is gone is named so, and not kept", () => {
    const stderr = "Error: thread/resume: thread/resume failed: no rollout found for thread id th-9 (code -32600)";
    expect(replay("codex", [], { exit: 1, stderr }).verdict).toMatchObject({ class: "protocol", sessionId: null });
  });

  test("what it would say every time is not tried again", () => {
    for (const stderr of [
      "Failed to read prompt from stdin: input is not valid UTF-8 (invalid byte at offset 1).",
      "Error loading config.toml: x",
    ])
      expect(replay("codex", [], { exit: 1, stderr }).verdict.class).toBe("env_invalid");
  });

  test("an error without the turn's end tells why it ended", () => {
    const error = { type: "error", message: "unexpected status 401 Unauthorized: x" };
    expect(replay("codex", [thread, begun, error], { exit: 1 }).verdict).toMatchObject({
      class: "auth",
      httpStatus: 401,
    });
    expect(replay("codex", [thread, begun, failed("nobody knows this")], { exit: 1 }).verdict).toMatchObject({
      class: "unknown",
      message: "nobody knows this",
    });
  });

  test("its transcript has the same words as any", () => {
    const start = {
      type: "item.started",
      item: { id: "item_1", type: "command_execution", command: "make", exit_code: null },
    };
    const { entries } = replay("codex", [
      thread,
      begun,
      start,
      command({ exit_code: 2, status: "failed", aggregated_output: "no rule" }),
      said("x"),
      completed,
    ]);
    expect(entries).toMatchObject([
      { kind: "session", sessionId: "th-1" },
      { kind: "tool_call", id: "item_1", tool: "command", input: "make" },
      { kind: "tool_result", id: "item_1", ok: false, text: "exit 2\nno rule" },
      { kind: "text", text: "x" },
      { kind: "usage", usage: { inputTokens: 1234, cachedInputTokens: 100, outputTokens: 7, costUsd: null } },
      { kind: "result", ok: true, text: "x" },
    ]);
  });
});
