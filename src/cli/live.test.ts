/** The line below a run's output: what it says of each state, and that it fits whatever there is to say. */
import { describe, expect, test } from "vitest";
import { commandOf } from "../../test/drafts.ts";
import type { AttemptRecord, RunRecord, RunTree, StepRecord } from "../core/records.ts";
import { columnsOf, composeLine, type Standing, tokens } from "./live.ts";
import { widthOf } from "./text.ts";
import { standingOf } from "./wait.ts";

const NOW = Date.UTC(2026, 4, 1);
const whole: Standing = {
  state: "running",
  since: NOW - 250_000,
  usualMs: 840_000,
  words: "building 世界 of the morning",
  notes: ["try 2 of 3", "12.3k tokens"],
};

describe("composeLine", () => {
  test.each([
    [120, "running 4m 10s of usually 14m, try 2 of 3, 12.3k tokens: building 世界 of the morning"],
    [70, "running 4m 10s of usually 14m, try 2 of 3, 12.3k tokens: building 世…"],
    [60, "running 4m 10s of usually 14m, try 2 of 3, 12.3k tokens"],
    [45, "running 4m 10s of usually 14m, try 2 of 3"],
    [19, "running 4m 10s"],
    [10, "running 4…"],
  ])("on %i columns", (columns, line) => {
    expect(composeLine(whole, NOW, columns)).toBe(line);
  });

  test("fits every width, and has no character that a terminal obeys", () => {
    const words = "\u001b[2Jevil\r\n\t世界🙂";
    for (let columns = 1; columns <= 100; columns++) {
      const line = composeLine({ ...whole, words }, NOW, columns);
      expect(widthOf(line), String(columns)).toBeLessThanOrEqual(columns);
      expect([...line].every((one) => (one.codePointAt(0) ?? 0) >= 32)).toBe(true);
    }
  });

  test("a clock that was set back counts no negative time", () => {
    expect(composeLine({ ...whole, since: NOW + 5_000, usualMs: null, notes: [], words: null }, NOW, 80)).toBe(
      "running 0s",
    );
  });
});

test("tokens in short", () => {
  expect([1, 999, 1_000, 12_345, 123_456, 1_234_567].map(tokens)).toEqual([
    "1 tokens",
    "999 tokens",
    "1k tokens",
    "12.3k tokens",
    "123k tokens",
    "1.2M tokens",
  ]);
});

test("columns of a line of output: tabs go to their stops, wide characters take two", () => {
  expect(columnsOf("")).toBe(0);
  expect(columnsOf("a\tb")).toBe(9);
  expect(columnsOf("12345678\t")).toBe(16);
  expect(columnsOf("世\t")).toBe(8);
});

describe("standingOf", () => {
  const told = { usualMs: 60_000, why: null, last: "the last line", tokens: 10 };
  function treeOf(
    run: Partial<RunRecord>,
    attempt: Partial<AttemptRecord> | null = null,
    more: Partial<RunTree> = {},
  ): RunTree {
    return {
      run: {
        status: "running",
        reason: null,
        target: commandOf(["true"]),
        queuedAt: NOW - 9_000,
        startedAt: NOW - 5_000,
        finishedAt: null,
        cancelRequestedAt: null,
        ...run,
      } as RunRecord,
      steps: [{ maxAttempts: 1, triesCounted: 0 } as StepRecord],
      attempts:
        attempt === null
          ? []
          : [
              {
                number: 1,
                status: "running",
                startedAt: NOW - 5_000,
                finishedAt: null,
                endingSince: null,
                usageTotal: null,
                ...attempt,
              } as AttemptRecord,
            ],
      ...more,
    };
  }

  test("queued, with why; behind runs of its loop", () => {
    const queued = treeOf({ status: "queued", startedAt: null });
    expect(standingOf(queued, NOW, { ...told, why: "command cap 1/1 is reached" })).toMatchObject({
      state: "queued",
      since: NOW - 9_000,
      usualMs: null,
      words: "command cap 1/1 is reached",
      notes: [],
    });
    expect(standingOf(treeOf({ status: "queued", reason: "turn" }), NOW, told)?.words).toBe(
      "earlier runs of its loop have not ended",
    );
  });

  test("starting, and while its worktree is made", () => {
    const starting = treeOf({ startedAt: null }, { status: "starting", startedAt: null });
    expect(standingOf(starting, NOW, told)).toMatchObject({ state: "starting", words: null });
    const making = { ...starting, worktree: { state: "making" } } as unknown as RunTree;
    expect(standingOf(making, NOW, told)?.words).toBe("its worktree is being made");
  });

  test("running, against the usual time, with what it said last and its tokens", () => {
    expect(standingOf(treeOf({}, {}), NOW, told)).toEqual({
      state: "running",
      since: NOW - 5_000,
      usualMs: 60_000,
      words: "the last line",
      notes: ["10 tokens"],
    });
  });

  test("ending, by a cancel or a limit", () => {
    const cancelled = standingOf(treeOf({ cancelRequestedAt: NOW - 1_000 }, {}), NOW, told);
    expect(cancelled).toMatchObject({ state: "ending", since: NOW - 1_000, usualMs: null });
    expect(standingOf(treeOf({}, { endingSince: NOW - 2_000 }), NOW, told)).toMatchObject({
      state: "ending",
      since: NOW - 2_000,
    });
  });

  test("waiting between two tries, with what was used so far and never twice", () => {
    const usageTotal = JSON.stringify({ inputTokens: 900, cachedInputTokens: 90, outputTokens: 10, costUsd: null });
    const tree = treeOf(
      { status: "waiting", reason: "retry" },
      { status: "failed", finishedAt: NOW - 3_000, usageTotal },
      { steps: [{ maxAttempts: 3, triesCounted: 1 } as StepRecord] },
    );
    expect(standingOf(tree, NOW, told)).toMatchObject({
      state: "waiting",
      since: NOW - 3_000,
      notes: ["try 1 of 3", "1k tokens"],
    });
  });

  test("nothing, once it has ended", () => {
    expect(standingOf(treeOf({ status: "succeeded", finishedAt: NOW }), NOW, told)).toBeNull();
  });
});
