import fc from "fast-check";
import { expect, test } from "vitest";
import type { Usage } from "./agent.ts";
import { noUsage, ownUsage, type SessionUsage, summedUsage } from "./usage.ts";

const used = (inputTokens: number, costUsd: number | null = null, more: Partial<Usage> = {}): Usage => ({
  inputTokens,
  cachedInputTokens: inputTokens,
  outputTokens: inputTokens,
  costUsd,
  ...more,
});
const begun: SessionUsage = { total: noUsage, unstated: false };
const after = (total: Usage | null, unstated = false): SessionUsage => ({ total, unstated });

test("what a provider counts for each attempt is the attempt's, whatever was before", () => {
  expect(ownUsage(used(5, 0.1), after(used(9, 9)))).toEqual(used(5, 0.1));
  expect(ownUsage(used(5, 0.1), after(null, true))).toEqual(used(5, 0.1));
});

test("tokens that count the session lose what it had before", () => {
  const session = { of: "session" } as const;
  expect(ownUsage(used(7, null, session), begun)).toEqual(used(7));
  expect(ownUsage(used(12, null, session), after(used(7)))).toEqual(used(5));
});

test("a price that counts the session loses what it had before, to the last part of a cent", () => {
  const costOf = { costOf: "session" } as const;
  expect(ownUsage(used(5, 0.005096, costOf), begun)).toEqual(used(5, 0.005096));
  expect(ownUsage(used(5, 0.010192000000000001, costOf), after(used(5, 0.005096000000000001)))).toEqual(
    used(5, 0.005096),
  );
});

test("an unknown beginning is said, not guessed: tokens are marked, a price is none", () => {
  expect(ownUsage(used(12, 3, { of: "session" }), after(null))).toEqual(used(12, null, { of: "session" }));
  expect(ownUsage(used(12, 3, { costOf: "session" }), after(null))).toEqual(used(12, null));
});

test("a count that has fallen was begun anew: its beginning is not known either", () => {
  expect(ownUsage(used(3, 1, { of: "session" }), after(used(7, 2)))).toEqual(used(3, null, { of: "session" }));
  expect(ownUsage(used(3, 1, { costOf: "session" }), after(used(7, 2)))).toEqual(used(3, null));
});

test("what may hold earlier attempts that stated nothing is marked", () => {
  expect(ownUsage(used(12, null, { of: "session" }), after(used(7), true))).toEqual(used(5, null, { of: "attempts" }));
  expect(ownUsage(used(5, 2, { costOf: "session" }), after(used(7, 1), true))).toEqual(used(5, 1, { of: "attempts" }));
});

test("the sum of attempts is what the session counts, and no part is negative", () => {
  const growth = fc.array(fc.tuple(fc.nat(1_000), fc.nat(1_000_000), fc.boolean()), { maxLength: 12 });
  fc.assert(
    fc.property(growth, fc.constantFrom("codex", "claude"), (attempts, provider) => {
      let session = begun;
      let tokens = 0;
      let micros = 0;
      let statedTokens = 0;
      let statedMicros = 0;
      const own: Usage[] = [];
      for (const [more, moreMicros, states] of attempts) {
        tokens += more;
        micros += moreMicros;
        if (!states) {
          session = { ...session, unstated: true };
          continue;
        }
        const stated =
          provider === "codex"
            ? used(tokens, null, { of: "session" })
            : used(more, micros / 1e6, { costOf: "session" });
        own.push(ownUsage(stated, session));
        session = { total: stated, unstated: false };
        statedTokens = provider === "codex" ? tokens : statedTokens + more;
        statedMicros = micros;
      }
      for (const one of own) {
        expect(
          Math.min(one.inputTokens, one.cachedInputTokens, one.outputTokens, one.costUsd ?? 0),
        ).toBeGreaterThanOrEqual(0);
        expect(one.of).not.toBe("session");
      }
      const sum = summedUsage(own);
      expect(sum?.inputTokens ?? 0).toBe(statedTokens);
      if (provider === "claude") expect(sum?.costUsd ?? 0).toBeCloseTo(statedMicros / 1e6, 9);
    }),
  );
});

test("a sum says when something may be in it twice, and has no price when one part has none", () => {
  expect(summedUsage([])).toBeNull();
  expect(summedUsage([used(1, 0.1), used(2, 0.2)])).toEqual(used(3, 0.3));
  expect(summedUsage([used(1, 0.1), used(2, null)])).toEqual(used(3, null));
  expect(summedUsage([used(1, 0.1, { of: "session" }), used(2, 0.2)])).toEqual(used(3, 0.3, { of: "session" }));
  expect(summedUsage([used(1, 0.1, { of: "attempts" }), used(2, 0.2)])).toEqual(used(3, 0.3));
});
