import fc from "fast-check";
import { expect, test } from "vitest";
import { ancestryOf, circlesOf, type Needs, orderOf } from "./graph.ts";

/** Any graph, with circles or without. */
const graphs = fc
  .integer({ min: 1, max: 14 })
  .chain((count) =>
    fc
      .array(fc.uniqueArray(fc.nat(count - 1), { maxLength: 3 }), { minLength: count, maxLength: count })
      .map((needs) => needs.map((of, step) => of.filter((need) => need !== step))),
  );

/** Whom a step reaches along its needs, one step after another. */
function reached(needs: Needs, from: number): ReadonlySet<number> {
  const found = new Set<number>();
  const look = (step: number): void => {
    for (const need of needs[step] ?? []) {
      if (found.has(need)) continue;
      found.add(need);
      look(need);
    }
  };
  look(from);
  return found;
}

test("steps come after what they need, else as they were written", () => {
  expect(orderOf([[2], [], [1], []])).toEqual([1, 3, 2, 0]);
});

test("a circle is named whole, and circles with steps in common each", () => {
  expect(circlesOf([[1], [2], [0], [0]])).toEqual([[0, 1, 2]]);
  expect(circlesOf([[1], [0, 2], [0]])).toEqual([
    [0, 1],
    [0, 1, 2],
  ]);
});

test("every circle that is named is one, none is named where there is none, and what is in or behind one has no place in the order", () => {
  fc.assert(
    fc.property(graphs, (needs) => {
      const order = orderOf(needs);
      const circles = circlesOf(needs);
      expect(circles.length === 0).toBe(order.length === needs.length);
      for (const circle of circles)
        for (const [at, step] of circle.entries()) expect(needs[step]).toContain(circle[(at + 1) % circle.length]);
      for (const step of needs.keys()) {
        const inCircle = reached(needs, step).has(step);
        const behind = [...reached(needs, step)].some((one) => reached(needs, one).has(one));
        expect(order.includes(step)).toBe(!inCircle && !behind);
      }
      for (const [at, step] of order.entries())
        for (const need of needs[step] ?? []) expect(order.indexOf(need)).toBeLessThan(at);
    }),
  );
});

test("who comes before whom is known through any number of others", () => {
  const chain = Array.from({ length: 100 }, (_, step) => (step === 0 ? [] : [step - 1]));
  const ancestry = ancestryOf(chain, orderOf(chain));
  expect([ancestry.has(99, 0), ancestry.has(0, 99), ancestry.has(50, 50)]).toEqual([true, false, false]);
  fc.assert(
    fc.property(graphs, (needs) => {
      const order = orderOf(needs);
      const known = ancestryOf(needs, order);
      for (const step of order)
        for (const other of needs.keys()) expect(known.has(step, other)).toBe(reached(needs, step).has(other));
    }),
  );
});
