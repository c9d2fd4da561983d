import { expect, test } from "vitest";
import { callerOf, newTokenKey, readRunToken, signRunToken } from "./run-token.ts";

const key = newTokenKey();
const run = { runId: "run_01h00000000000000000000000", depth: 2 };
const token = signRunToken(key, run);

test("a token says whose work it is, to whoever has the key", () => {
  expect(readRunToken(key, token)).toEqual(run);
  expect(callerOf(key, { token, insideRun: true }, true)).toEqual({ by: `run ${run.runId}`, parentRunId: run.runId });
});

test("B-014 a token that was changed, or signed by somebody else, is none", () => {
  const [, , , signature] = token.split(".");
  for (const forged of [
    signRunToken(newTokenKey(), run),
    `v1.${run.runId}.0.${signature}`,
    `v1.run_01h00000000000000000000001.2.${signature}`,
    token.slice(0, -1),
    `${token}x`,
    "",
    "v1.x.1.y",
  ]) {
    expect(readRunToken(key, forged)).toBeNull();
    if (forged !== "")
      expect(() => callerOf(key, { token: forged, insideRun: false }, false)).toThrow(
        /not signed by this installation/,
      );
  }
});

test("B-014 a process of a run starts nothing without its token, and may look", () => {
  expect(() => callerOf(key, { token: null, insideRun: true }, true)).toThrow(/only with its run token/);
  expect(callerOf(key, { token: null, insideRun: true }, false)).toEqual({ by: "person", parentRunId: null });
  expect(callerOf(key, { token: null, insideRun: false }, true)).toEqual({ by: "person", parentRunId: null });
});
