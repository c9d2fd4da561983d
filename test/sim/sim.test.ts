/** The simulator on many seeds, and the proof that it would notice: each planted fault is found. */
import { describe, expect, test } from "vitest";
import type { Plant } from "./plants.ts";
import { simulate, type SimOptions } from "./simulate.ts";

/** Named so that a failure says which command shows it again. */
async function holds(options: SimOptions): Promise<void> {
  const report = await simulate(options);
  expect(report.broken, `seed ${options.seed}`).toBeNull();
}

describe("a month under faults", () => {
  // Four at a time: a test that runs for minutes says nothing while it does.
  for (let first = 1; first <= 100; first += 4)
    test(`seeds ${first} to ${first + 3}`, { timeout: 300_000 }, async () => {
      for (let seed = first; seed < first + 4; seed++)
        await holds({ seed, days: 30, loops: 3, hosts: seed % 5 === 0 ? 2 : 1 });
    });
});

test("without faults everything drains, and nothing is missed", { timeout: 120_000 }, async () => {
  const report = await simulate({ seed: 7, days: 30, loops: 6, faults: false });
  expect(report.broken).toBeNull();
  expect(report.crashes).toBe(0);
  expect(report.slots["succeeded"]).toBeGreaterThan(100);
});

test("one seed is one history, step by step", async () => {
  const trace = async () => {
    const lines: string[] = [];
    await simulate({ seed: 11, days: 3, loops: 5, hosts: 2, trace: (line) => lines.push(line) });
    return lines;
  };
  const [one, other] = [await trace(), await trace()];
  expect(one.length).toBeGreaterThan(1_000);
  expect(other).toEqual(one);
});

describe("a planted fault is found", () => {
  /** The first seed that breaks, of at most that many. */
  async function findsWithin(seeds: number, plant: Plant, hosts: number): Promise<string> {
    for (let seed = 1; seed <= seeds; seed++) {
      const { broken } = await simulate({ seed, days: 30, loops: 5, hosts, plant, crashEvery: 400 });
      if (broken !== null) return broken;
    }
    return `not found within ${seeds} seeds`;
  }

  test("a dropped token check", { timeout: 300_000 }, async () => {
    expect(await findsWithin(12, "drop_token", 2)).toMatch(/^I2 .*was accepted with token/);
  });
  test("a skipped ticket", { timeout: 300_000 }, async () => {
    expect(await findsWithin(12, "skip_ticket", 1)).toMatch(/^(started after its end|started twice|I1) /);
  });
  test("a slot that is written without advancing planned_until", { timeout: 120_000 }, async () => {
    expect(await findsWithin(1, "keep_planned_until", 1)).toMatch(/^I4 .*planned until/);
  });
  test("a settled attempt that is settled again", { timeout: 300_000 }, async () => {
    expect(await findsWithin(12, "settle_twice", 1)).toMatch(/^I6 .*was .* and became/);
  });
});
