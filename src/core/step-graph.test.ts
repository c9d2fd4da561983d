import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { finalStatuses, isFinal } from "./run.ts";
import {
  endTable,
  followed,
  type NeedState,
  readiness,
  type Readiness,
  type SkipReason,
  skipReasons,
} from "./step-graph.ts";

/** A step of a workflow: what it needs, what its `if` reads and is, how it ends when it starts. */
interface PlayedStep {
  readonly needs: readonly number[];
  readonly condition: "none" | "plain" | "asks";
  readonly holds: (asked: { readonly failed: boolean; readonly met: boolean }) => boolean;
  readonly ends: NeedState["status"];
  readonly reason: SkipReason | null;
  readonly continueOnFailure: boolean;
}

const CONDITIONS: readonly Pick<PlayedStep, "condition" | "holds">[] = [
  { condition: "none", holds: () => true },
  { condition: "plain", holds: () => true },
  { condition: "plain", holds: () => false },
  { condition: "asks", holds: () => true },
  { condition: "asks", holds: ({ failed }) => failed },
  { condition: "asks", holds: ({ met }) => met },
  { condition: "asks", holds: ({ failed, met }) => failed && !met },
];
const ENDS: readonly Pick<PlayedStep, "ends" | "reason">[] = [
  { ends: "succeeded", reason: null },
  { ends: "succeeded", reason: null },
  { ends: "failed", reason: null },
  { ends: "timed_out", reason: null },
  { ends: "skipped", reason: "blocked" },
];

const played = fc.integer({ min: 1, max: 10 }).chain((count) =>
  fc.tuple(
    ...Array.from({ length: count }, (_, index) =>
      fc
        .record({
          needs: index === 0 ? fc.constant([]) : fc.uniqueArray(fc.nat(index - 1), { maxLength: 3 }),
          condition: fc.constantFrom(...CONDITIONS),
          end: fc.constantFrom(...ENDS),
          continueOnFailure: fc.boolean(),
        })
        .map(({ condition, end, ...rest }): PlayedStep => ({ ...rest, ...condition, ...end })),
    ),
  ),
);

/** Plays a workflow to its end. @param pick which of those goes on that can */
function play(
  steps: readonly PlayedStep[],
  pick: (count: number) => number,
): { readonly states: readonly NeedState[]; readonly started: ReadonlySet<number> } {
  const started = new Set<number>();
  const states: NeedState[] = steps.map(({ continueOnFailure }) => ({
    status: "pending",
    reason: null,
    continueOnFailure,
  }));
  const become = (index: number, status: NeedState["status"], reason: SkipReason | null = null): void => {
    states[index] = { status, reason, continueOnFailure: steps[index]?.continueOnFailure === true };
  };
  for (;;) {
    const moves: (() => void)[] = [];
    for (const [index, step] of steps.entries()) {
      if (states[index]?.status === "running") moves.push(() => become(index, step.ends, step.reason));
      if (states[index]?.status !== "pending") continue;
      const needs = step.needs.map((need) => states[need] as NeedState);
      const ready = readiness(needs, step.condition);
      if (ready.does === "start" || (ready.does === "ask" && step.holds(ready)))
        moves.push(() => {
          started.add(index);
          become(index, "running");
        });
      else if (ready.does === "ask") moves.push(() => become(index, "skipped", "condition"));
      else if (ready.does === "skip") moves.push(() => become(index, "skipped", ready.reason));
    }
    if (moves.length === 0) return { states, started };
    moves[pick(moves.length)]?.();
  }
}

describe("the truth table", () => {
  test("has one row for each way in which a step can end", () => {
    const rows = endTable.map(({ status, reason }) => `${status} ${reason ?? ""}`);
    expect(new Set(rows).size).toBe(rows.length);
    expect(new Set(endTable.map(({ status }) => status))).toEqual(new Set(finalStatuses));
    expect(endTable.flatMap(({ reason }) => reason ?? []).toSorted()).toEqual([...skipReasons].toSorted());
  });

  const need = (
    status: NeedState["status"],
    reason: SkipReason | null = null,
    continueOnFailure = false,
  ): NeedState => ({
    status,
    reason,
    continueOnFailure,
  });
  const ok = need("succeeded");

  test.each<[name: string, needs: readonly NeedState[], then: Readiness]>([
    ["nothing is needed", [], { does: "start" }],
    ["one has not ended", [ok, need("running")], { does: "wait" }],
    ["one failed, another has not ended", [need("failed"), need("waiting")], { does: "wait" }],
    ["all succeeded", [ok, ok], { does: "start" }],
    ["one failed", [ok, need("failed")], { does: "skip", reason: "needs" }],
    ["one ran out of time", [need("timed_out")], { does: "skip", reason: "needs" }],
    ["one failed, and goes on all the same", [need("failed", null, true)], { does: "start" }],
    ["one ran out of time, and goes on all the same", [need("timed_out", null, true)], { does: "start" }],
    ["a condition skipped one", [need("skipped", "condition")], { does: "skip", reason: "needs_skipped" }],
    [
      "what a condition skipped skipped one",
      [need("skipped", "needs_skipped")],
      { does: "skip", reason: "needs_skipped" },
    ],
    ["a gate blocked", [need("skipped", "blocked")], { does: "skip", reason: "blocked" }],
    ["a failure skipped one", [need("skipped", "needs")], { does: "skip", reason: "needs" }],
    ["a failure skipped one that goes on all the same", [need("skipped", "needs", true)], { does: "start" }],
    ["a gate blocked that goes on all the same", [need("skipped", "blocked", true)], { does: "start" }],
    ["one was cancelled that goes on all the same", [need("cancelled", null, true)], { does: "skip", reason: "needs" }],
    ["a failure is worse than a gate", [need("skipped", "blocked"), need("failed")], { does: "skip", reason: "needs" }],
    [
      "a gate is worse than a condition",
      [need("skipped", "condition"), need("skipped", "blocked")],
      { does: "skip", reason: "blocked" },
    ],
    ["a reason that is not known", [need("skipped", "else" as SkipReason)], { does: "skip", reason: "needs" }],
  ])("%s", (_name, needs, then) => {
    expect(readiness(needs, "none")).toEqual(then);
    // A condition changes nothing but that it is asked where the step would start.
    expect(readiness(needs, "plain")).toEqual(then.does === "start" ? { does: "ask", failed: false, met: true } : then);
  });

  test.each<[needs: readonly NeedState[], asked: { failed: boolean; met: boolean }]>([
    [[], { failed: false, met: true }],
    [[ok], { failed: false, met: true }],
    [[ok, need("failed")], { failed: true, met: false }],
    [[need("skipped", "needs")], { failed: true, met: false }],
    [[need("skipped", "condition")], { failed: false, met: false }],
    [[need("skipped", "blocked")], { failed: false, met: false }],
    [[need("failed", null, true)], { failed: false, met: true }],
  ])("an `if` that asks how they ended decides in any case: %j", (needs, asked) => {
    expect(readiness(needs, "asks")).toEqual({ does: "ask", ...asked });
  });

  test("the same becomes of every step in whatever order they end, and nothing is left", () => {
    fc.assert(
      fc.property(played, fc.infiniteStream(fc.nat(1_000)), fc.infiniteStream(fc.nat(1_000)), (steps, one, other) => {
        const pickBy = (order: typeof one) => (count: number) => (order.next().value ?? 0) % count;
        const first = play(steps, pickBy(one));
        expect(first.states.every(({ status }) => isFinal(status))).toBe(true);
        expect(play(steps, pickBy(other))).toEqual(first);
      }),
      { numRuns: 500 },
    );
  });

  test("a step starts behind a failure only where somebody said so", () => {
    fc.assert(
      fc.property(played, (steps) => {
        const { states, started } = play(steps, () => 0);
        for (const index of started) {
          const step = steps[index];
          if (step === undefined || step.condition === "asks") continue;
          for (const of of step.needs)
            expect(states[of]?.status === "succeeded" || steps[of]?.continueOnFailure === true).toBe(true);
        }
      }),
      { numRuns: 500 },
    );
  });

  test("the store's graph asks where a definition has a say, and lets the rest go on", () => {
    expect(followed(null, [ok])).toEqual({ event: "unblock" });
    expect(followed("none", [ok])).toEqual({ event: "ask" });
    expect(followed("asks", [need("failed")])).toEqual({ event: "ask" });
    expect(followed(null, [ok, need("failed")])).toEqual({ event: "skip", reason: "needs" });
    expect(() => followed("none", [need("running")])).toThrow("has ended");
  });
});
