import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { finalStatuses, isFinal, stepStatuses, type StepStatus } from "./run.ts";
import { follow, type GraphStep, type Need } from "./step-graph.ts";

const step = (id: string, needsLeft: number, status: StepStatus = "pending"): GraphStep => ({ id, needsLeft, status });
const need = (stepId: string, needsStepId: string): Need => ({ stepId, needsStepId });

describe("what follows from the end of a step", () => {
  const diamond = [step("a", 0, "running"), step("b", 1), step("c", 1), step("d", 2)];
  const needs = [need("b", "a"), need("c", "a"), need("d", "b"), need("d", "c")];

  test("a success lets those go on that needed nothing else", () => {
    expect(follow({ id: "a", status: "succeeded" }, diamond, needs)).toEqual([
      { id: "b", needsLeft: 0, event: "unblock" },
      { id: "c", needsLeft: 0, event: "unblock" },
    ]);
    expect(follow({ id: "b", status: "succeeded" }, diamond, needs)).toEqual([{ id: "d", needsLeft: 1, event: null }]);
  });

  test.each(finalStatuses.filter((status) => status !== "succeeded"))(
    "after %s nothing starts that needs it, directly or through others",
    (status) => {
      expect(follow({ id: "a", status }, diamond, needs).map(({ id, event }) => [id, event])).toEqual([
        ["b", "skip"],
        ["c", "skip"],
        ["d", "skip"],
      ]);
      expect(follow({ id: "c", status }, diamond, needs).map(({ id }) => id)).toEqual(["d"]);
    },
  );

  test("what is not over changes nothing", () => {
    for (const status of stepStatuses.filter((one) => !isFinal(one)))
      expect(follow({ id: "a", status }, diamond, needs)).toEqual([]);
  });

  test("what is at work or has ended stays as it is", () => {
    for (const status of stepStatuses.filter((one) => one !== "pending")) {
      expect(follow({ id: "a", status: "succeeded" }, [step("b", 1, status)], [need("b", "a")])).toEqual([]);
      expect(follow({ id: "a", status: "failed" }, [step("b", 1, status)], [need("b", "a")])).toEqual([]);
    }
  });
});

/** Graphs without circles: a step needs only earlier ones. */
const graphs = fc
  .integer({ min: 1, max: 12 })
  .chain((count) =>
    fc.tuple(
      fc.constant(count),
      fc.array(fc.tuple(fc.nat(count - 1), fc.nat(count - 1)), { maxLength: 30 }),
      fc.array(fc.boolean(), { minLength: count, maxLength: count }),
      fc.infiniteStream(fc.nat(1_000)),
    ),
  );

test("any graph comes to its end in any order: a step starts when all that it needs has succeeded, and never else", () => {
  fc.assert(
    fc.property(graphs, ([count, pairs, succeeds, order]) => {
      const needs = [
        ...new Map(
          pairs.filter(([a, b]) => a > b).map(([a, b]) => [`${a} ${b}`, need(String(a), String(b))] as const),
        ).values(),
      ];
      const needed = (id: string) => needs.filter(({ stepId }) => stepId === id).map(({ needsStepId }) => needsStepId);
      let steps = Array.from({ length: count }, (_, i) => {
        const left = needed(String(i)).length;
        return step(String(i), left, left === 0 ? "ready" : "pending");
      });
      const statusOf = (id: string) => steps.find((one) => one.id === id)?.status;
      for (;;) {
        const ready = steps.filter(({ status }) => status === "ready");
        const next = ready[(order.next().value ?? 0) % Math.max(1, ready.length)];
        if (next === undefined) break;
        expect(needed(next.id).every((id) => statusOf(id) === "succeeded")).toBe(true);
        const status = succeeds[Number(next.id)] === true ? "succeeded" : "failed";
        const followed = new Map(follow({ id: next.id, status }, steps, needs).map((one) => [one.id, one] as const));
        steps = steps.map((one) => {
          if (one.id === next.id) return { ...one, status };
          const found = followed.get(one.id);
          if (found === undefined) return one;
          const becomes = found.event === "unblock" ? "ready" : found.event === "skip" ? "skipped" : one.status;
          return { ...one, needsLeft: found.needsLeft, status: becomes };
        });
      }
      for (const { id, status } of steps) {
        expect(isFinal(status)).toBe(true);
        expect(status === "skipped").toBe(needed(id).some((one) => statusOf(one) !== "succeeded"));
      }
    }),
  );
});
