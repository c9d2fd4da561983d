import { expect, test } from "vitest";
import { usageText } from "./transcript.ts";

const usage = { inputTokens: 12, cachedInputTokens: 0, outputTokens: 3, costUsd: null };

test("usage says what it counts, unknown money is left out", () => {
  expect(usageText(usage)).toBe("12 in, 3 out");
  expect(usageText({ ...usage, cachedInputTokens: 5, costUsd: 0.25 })).toBe("12 and 5 cached in, 3 out, $0.2500");
  expect(usageText({ ...usage, of: "session" })).toBe("12 in, 3 out, of the whole session");
  expect(usageText({ ...usage, costUsd: 2, costOf: "session" })).toBe("12 in, 3 out, $2.00 of the whole session");
  expect(usageText({ ...usage, costUsd: 2, of: "attempts" })).toBe(
    "12 in, 3 out, $2.00, with attempts before that stated none",
  );
});
