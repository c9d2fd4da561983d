import { describe, expect, test } from "vitest";
import { AppError } from "../../core/errors.ts";
import { custom } from "./custom.ts";
import { describeAdapter, replay, targetOf } from "../../../test/agents/replay.ts";

describeAdapter("custom");

describe("a custom agent", () => {
  const build = (wanted: Parameters<typeof targetOf>[1], session: { id: string; resume: boolean } | null = null) =>
    custom.build({ target: targetOf("custom", wanted), program: "x", session, environment: {}, isRoot: false });

  test("runs the words that it was given, and is told the rest by variables", () => {
    const line = build({ command: ["./agent", "--flag"], model: "m" }, { id: "s-1", resume: true });
    expect(line.argv).toEqual(["./agent", "--flag"]);
    expect(line.env).toEqual({ DROVER_PERMISSION: "workspace-write", DROVER_MODEL: "m", DROVER_SESSION: "s-1" });
    expect(build({ command: ["./agent"] }, { id: "s-1", resume: false }).env).not.toHaveProperty("DROVER_SESSION");
  });

  test("is refused what nothing would hold it to", () => {
    expect(() => build({ command: null })).toThrow(AppError);
    expect(() => build({ command: ["./agent"], permission: "read-only" })).toThrow(/reading only/);
  });

  test("succeeds with status 0 and something on standard output", () => {
    expect(replay("custom", "one\n\ntwo\n").verdict).toMatchObject({ ok: true, text: "one\n\ntwo" });
    expect(replay("custom", "one\n", { exit: 3, stderr: "why\n" }).verdict).toMatchObject({
      class: "exit",
      message: expect.stringContaining("why"),
    });
    expect(replay("custom", "one\n", { exit: 137 }).verdict.class).toBe("signal");
    expect(replay("custom", "one\n", { exit: null }).verdict.class).toBe("no_result");
  });

  test("B-097 prints nothing: that is no success", () => {
    expect(replay("custom", " \n\n").verdict).toMatchObject({ ok: false, class: "no_result", text: null });
  });

  test("may say more in one JSON document, on one line or several", () => {
    const said = { result: { n: 1 }, session: "s-1", usage: { input_tokens: 3, output_tokens: 2, cost_usd: 0.1 } };
    for (const text of [JSON.stringify(said), JSON.stringify(said, null, 2)])
      expect(replay("custom", text).verdict).toMatchObject({
        ok: true,
        text: '{"n":1}',
        sessionId: "s-1",
        usage: { inputTokens: 3, cachedInputTokens: 0, outputTokens: 2, costUsd: 0.1 },
      });
    expect(replay("custom", '{"error":"no way"}').verdict).toMatchObject({
      ok: false,
      class: "exit",
      message: "no way",
    });
    expect(replay("custom", "{not json}").verdict).toMatchObject({ ok: true, text: "{not json}" });
  });

  test("keeps the end of what is too much", () => {
    const { text } = replay("custom", `${"line of some length\n".repeat(100_000)}the end\n`).verdict;
    expect(text?.endsWith("the end")).toBe(true);
    expect(text?.length).toBeLessThanOrEqual(262_144);
  });
});
