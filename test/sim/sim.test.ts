/** What the seeds rest on: a world without faults drains, a seed is one history, and what is broken is made smaller. */
import { expect, test } from "vitest";
import { shrink, type SimOptions, simulate } from "./simulate.ts";

test("without faults everything drains, and nothing is missed", { timeout: 120_000 }, async () => {
  const report = await simulate({ seed: 7, days: 14, loops: 8, faults: false });
  expect(report.broken).toBeNull();
  expect(report.crashes).toBe(0);
  expect(report.struck).toEqual([]);
  expect(report.slots["succeeded"]).toBeGreaterThan(100);
});

test("one seed is one history, step by step", { timeout: 120_000 }, async () => {
  const trace = async () => {
    const lines: string[] = [];
    await simulate({ seed: 11, days: 3, loops: 5, hosts: 2, trace: (line) => lines.push(line) });
    return lines;
  };
  const [one, other] = [await trace(), await trace()];
  expect(one.length).toBeGreaterThan(500);
  expect(other).toEqual(one);
});

test("no decision depends on the order of rows that no statement says", { timeout: 120_000 }, async () => {
  const trace = async (shuffled: boolean) => {
    const lines: string[] = [];
    await simulate({ seed: 4, days: 3, loops: 8, hosts: 2, shuffled, trace: (line) => lines.push(line) });
    // A set of attempts, for the janitor's eyes only.
    return lines.filter((line) => !line.includes(" store attempts.endedAmong "));
  };
  const [ordered, shuffled] = [await trace(false), await trace(true)];
  expect(ordered.length).toBeGreaterThan(500);
  expect(shuffled).toEqual(ordered);
});

test("a fault that does not happen leaves the chance of the others as it was", { timeout: 120_000 }, async () => {
  const options: SimOptions = { seed: 3, days: 2, loops: 3 };
  const whole = await simulate(options);
  const single = whole.struck.at(-1) ?? "";
  expect(single).toMatch(/^[a-z_]+#\d+$/);
  const { struck } = await simulate({ ...options, without: [single] });
  // What came before it is the same.
  expect(struck.slice(0, whole.struck.length - 1)).toEqual(whole.struck.slice(0, -1));
  expect(struck).not.toContain(single);
  const calm = await simulate({ ...options, without: ["crash", "slow_call"] });
  expect(calm.struck.filter((name) => /^(crash|slow_call)#/.test(name))).toEqual([]);
});

test("what is broken is made smaller, and is still broken in the same way", { timeout: 300_000 }, async () => {
  const found = await simulate({ seed: 1, days: 10, loops: 4, hosts: 2, plant: "forget_slot" });
  expect(found.broken?.invariant).toBe("I4");
  const small = await shrink(found, (tries) => tries < 40);
  const { days, loops = 0, hosts = 0 } = small.options;
  expect(days * loops * hosts).toBeLessThan(10 * 4 * 2);
  // Nothing of what the plant needs is a fault.
  expect(small.struck.length).toBeLessThan(Math.max(1, found.struck.length));
  const again = await simulate(small.options);
  expect(again.broken).toEqual(small.broken);
  expect(again.broken?.again).toContain(`--for ${days}d`);
});
