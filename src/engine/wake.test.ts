import { describe, expect, test } from "vitest";
import { clockOf, createContext, createHostTime, createTime } from "../../test/sim/time.ts";
import { byOurClock } from "./scheduler.ts";
import { causeOf, createWake, gapBetween, type Gap } from "./wake.ts";

const limits = { longestSleepMs: 30_000, clockStepMs: 2_000 };

describe("the three clocks tell apart", () => {
  const before = { now: 1_000_000, awakeMs: 50_000, uptimeMs: 90_000 };
  test.each([
    ["nothing", 30_000, 30_000, 30_000, null, { asleepMs: 0, steppedMs: 0, lateMs: 0 }],
    ["a suspend", 3_630_000, 30_000, 3_630_000, "asleep", { asleepMs: 3_600_000, steppedMs: 0, lateMs: 0 }],
    ["a step forward", 3_630_000, 30_000, 30_000, "clock_step", { asleepMs: 0, steppedMs: 3_600_000, lateMs: 0 }],
    ["a step back", -3_570_000, 30_000, 30_000, "clock_step", { asleepMs: 0, steppedMs: -3_600_000, lateMs: 0 }],
    ["a stopped process", 90_000, 90_000, 90_000, "late", { asleepMs: 0, steppedMs: 0, lateMs: 60_000 }],
    ["a slewed clock", 30_015, 30_000, 30_000, null, { asleepMs: 0, steppedMs: 15, lateMs: 0 }],
  ] as const)("%s", (_, nowMs, awakeMs, uptimeMs, cause, gap) => {
    const after = { now: before.now + nowMs, awakeMs: before.awakeMs + awakeMs, uptimeMs: before.uptimeMs + uptimeMs };
    const found = gapBetween(before, after, 30_000);
    expect(found).toEqual(gap);
    expect(causeOf(found, limits)).toBe(cause);
  });
});

function stage() {
  const time = createTime();
  const host = createHostTime(time, 1_000_000_000);
  const context = createContext(host);
  const gaps: [string, Gap][] = [];
  const mishaps: unknown[] = [];
  let wakes = 0;
  const wake = createWake({
    clock: clockOf(host, context),
    limits,
    onWake: () => wakes++,
    onGap: (cause, gap) => gaps.push([cause, gap]),
    onMishap: (_, error) => {
      mishaps.push(error);
      return 500;
    },
  });
  const ticks: number[] = [];
  const run = async (ms: number) => {
    const until = time.now + ms;
    await time.settle();
    while (await time.step(until));
  };
  return { time, host, context, wake, ticks, gaps, mishaps, run, wakes: () => wakes };
}

describe("wishes", () => {
  test("an actor is woken at its wall instant, within its awake milliseconds, and at once when poked", async () => {
    const { wake, host, time, ticks, run } = stage();
    wake.add({ name: "a", tick: async () => void ticks.push(time.now) });
    void wake.run();
    await run(1);
    wake.at("a", host.now() + 70_000);
    await run(100_000);
    wake.within("a", 45_000);
    await run(100_000);
    wake.poke("a");
    await run(0);
    expect(ticks).toEqual([70_001, 145_001, 200_001]);
  });

  test("no sleep is longer than the longest, and nobody is woken for it", async () => {
    const { wake, ticks, run, wakes } = stage();
    wake.add({ name: "a", tick: async () => void ticks.push(1) });
    void wake.run();
    await run(10 * 30_000);
    expect(wakes()).toBe(11);
    expect(ticks).toEqual([]);
  });

  test("a tick that runs is not entered again; a poke meanwhile is served afterwards, once", async () => {
    const { wake, run, time } = stage();
    let inside = 0;
    let most = 0;
    let ticks = 0;
    wake.add({
      name: "a",
      async tick() {
        ticks++;
        most = Math.max(most, ++inside);
        await new Promise<void>((resolve) => time.at(time.now + 100, resolve));
        inside--;
      },
    });
    void wake.run();
    for (let i = 0; i < 5; i++) {
      wake.poke("a");
      await run(10);
    }
    await run(1_000);
    expect([ticks, most]).toEqual([2, 1]);
  });

  test("a tick that fails costs a pause, and the others nothing", async () => {
    const { wake, run, time, ticks, mishaps } = stage();
    let failures = 2;
    wake.add({
      name: "bad",
      async tick() {
        if (failures-- > 0) throw new Error("no");
        ticks.push(time.now);
      },
    });
    wake.add({ name: "good", tick: async () => void ticks.push(-1) });
    void wake.run();
    wake.poke("bad", "good");
    await run(5_000);
    expect(mishaps).toHaveLength(2);
    expect(ticks).toEqual([-1, 1_000]);
  });

  test("B-045 a wall clock that is set back two hours makes no wait longer", async () => {
    const { wake, host, run, ticks, time, gaps } = stage();
    wake.add({ name: "a", tick: async () => void ticks.push(time.now) });
    void wake.run();
    await run(1);
    wake.within("a", 60_000);
    host.step(-2 * 3_600_000);
    await run(70_000);
    expect(ticks).toEqual([60_001]);
    expect(gaps).toMatchObject([["clock_step", { steppedMs: -7_200_000 }]]);
  });

  test("a suspend is noticed at the first wake-up after it", async () => {
    const { wake, host, run, gaps } = stage();
    void wake.run();
    await run(10_000);
    host.suspend(3_600_000);
    await run(3_600_000 + 40_000);
    expect(gaps).toMatchObject([["asleep", { asleepMs: 3_600_000 }]]);
  });

  test("stop waits for the tick that is under way, and wakes nobody afterwards", async () => {
    const { wake, run, time, ticks } = stage();
    wake.add({
      name: "a",
      async tick() {
        await new Promise<void>((resolve) => time.at(time.now + 100, resolve));
        ticks.push(time.now);
      },
    });
    void wake.run();
    wake.poke("a");
    await run(1);
    let stopped = false;
    void wake.stop().then(() => (stopped = true));
    await run(50);
    expect(stopped).toBe(false);
    await run(100);
    wake.poke("a");
    await run(1_000);
    expect([stopped, ticks.length]).toEqual([true, 1]);
  });
});

test("an instant of the store's clock is understood by ours", () => {
  expect(byOurClock(null, 5, 0, 9)).toBeNull();
  // What the way there and back explains is no difference.
  expect(byOurClock(100, 55, 50, 60)).toBe(100);
  // The store is an hour behind: what is due there in 100 ms is due here in 100 ms.
  expect(byOurClock(1_000_100, 1_000_000, 4_600_000, 4_600_010)).toBe(4_600_105);
});
