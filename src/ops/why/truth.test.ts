/** What slots and `why` say of each way in which an instant can end, over the real operations of the store. */
import { expect, test } from "vitest";
import { defaultLimits } from "../../core/limits.ts";
import { loopPolicy } from "../../core/loop.ts";
import type { Schedule } from "../../core/schedule.ts";
import { commandTarget } from "../../core/target.ts";
import { contextOf } from "../../../test/operations.ts";
import { operations as table } from "../../store/operations.ts";
import { openMemoryStore } from "../../store/sqlite.ts";
import { operation as explainWhy } from "./explain-why.ts";
import { checkInput } from "../fields.ts";
import { operation as listSlots } from "../loops/list-slots.ts";
import { operation as showLoop } from "../loops/show-loop.ts";

const START = Date.UTC(2026, 0, 1);
const MINUTE = 60_000;
const limits = defaultLimits;

async function world(schedule: Schedule, policy: Readonly<Record<string, unknown>> = {}) {
  let now = START;
  const clock = { now: () => now };
  const { store } = openMemoryStore({ table, clock });
  const context = contextOf(store, clock);
  const target = commandTarget.parse({ kind: "command", argv: ["true"], cwd: "/" });
  const loop = await store.loops.add({
    draft: {
      name: "a",
      schedule,
      target,
      policy: loopPolicy.parse(policy),
      hostPin: null,
      managedBy: null,
    },
    limits,
  });
  return {
    context,
    loop,
    store,
    at: (ms: number) => (now = START + ms),
    plan: (cause: "down" | "asleep" | "clock_step" | "late" = "late") => store.loops.planDue({ cause, limits }),
    why: async (thing: string) =>
      (await explainWhy.run(context, { thing })) as { sentence: string; status: string | null; reason: string | null },
    slots: async (input: Readonly<Record<string, unknown>> = {}) =>
      listSlots.run(context, checkInput(listSlots.input, { loop: "a", ...input })),
  };
}

const everyMinute: Schedule = { kind: "interval", everyMs: MINUTE, anchorAt: START };
const time = (minutes: number) => new Date(START + minutes * MINUTE).toISOString();

test("an instant that is not due yet, and one that the schedule does not have", async () => {
  const { why, at } = await world(everyMinute);
  at(10_000);
  expect((await why(`a@${time(2)}`)).sentence).toBe("It is due in 1m 50s.");
  await expect(why("a@2026-01-01T00:02:30Z")).rejects.toMatchObject({ code: "slot_not_found" });
  expect((await why("a")).sentence).toBe("It is active and fires next in 50s.");
});

test("missed while no daemon ran: said, one row for many, each listed singly", async () => {
  const { why, at, plan, slots } = await world(everyMinute, { catchUp: "none" });
  at(60.5 * MINUTE);
  await plan("down");
  const { items } = await slots();
  expect(items.at(-1)).toMatchObject({ at: time(1), untilAt: time(59), count: 59, outcome: "missed", reason: "down" });
  expect(await why(`a@${time(30)}`)).toMatchObject({
    status: "missed",
    reason: "down",
    sentence: "It was missed: no daemon was running (catch-up none).",
  });

  // Every page size lists every instant once, newest first.
  for (const limit of [1, 7, 100]) {
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof slots>> = await slots({
        each: true,
        limit,
        ...(cursor === null ? {} : { cursor }),
      });
      expect(page.items.length).toBeLessThanOrEqual(limit);
      expect(page.items.every((slot) => slot.count === 1 && slot.at === slot.untilAt)).toBe(true);
      seen.push(...page.items.map((slot) => slot.at));
      cursor = page.next;
    } while (cursor !== null);
    expect(seen).toEqual(Array.from({ length: 60 }, (_, index) => time(60 - index)));
  }
});

test("coalesced: which slot makes up for it", async () => {
  const { why, at, plan } = await world(everyMinute);
  at(5.5 * MINUTE);
  await plan("asleep");
  expect((await why(`a@${time(2)}`)).sentence).toMatch(
    /^It was missed because the host was asleep, and is made up for by the slot 2026-01-01T00:05:00\.000Z\.$/,
  );
  expect((await why(`a@${time(5)}`)).sentence).toContain("It is queued");
});

test("skipped because an earlier run was at work", async () => {
  const { why, at, plan } = await world(everyMinute);
  at(MINUTE);
  await plan();
  at(2 * MINUTE);
  await plan();
  expect(await why(`a@${time(2)}`)).toMatchObject({
    status: "skipped",
    sentence: "It was skipped: an earlier run was still at work (overlap skip).",
  });
});

test("paused: the loop says why, and so does the slot afterwards", async () => {
  const { why, at, store, loop } = await world(everyMinute);
  at(0.5 * MINUTE);
  await store.loops.pause({ loopId: loop.id, reason: "moving house", limits });
  at(1.5 * MINUTE);
  expect((await why("a")).sentence).toBe("It is paused for 1m: moving house.");
  expect((await why(`a@${time(1)}`)).sentence).toContain("the loop is paused, it is recorded when that ends");
  await store.loops.resume({ loopId: loop.id, limits });
  expect(await why(`a@${time(1)}`)).toMatchObject({
    status: "skipped",
    sentence: "It was skipped: the loop was paused.",
  });
});

test("without a daemon, a loop and its slots say so", async () => {
  const { why, at, context } = await world(everyMinute);
  const down = { ...context, daemon: async () => ({ mode: "none" as const }) };
  at(1.5 * MINUTE);
  expect(await explainWhy.run(down, { thing: "a" })).toMatchObject({
    sentence: "No daemon fires it: `drover up` starts one. It is active and was due 30s ago.",
  });
  expect(await explainWhy.run(down, { thing: `a@${time(1)}` })).toMatchObject({
    sentence: "It was due 30s ago and is not recorded yet: no daemon is running. As things stand it will be started.",
    facts: { planned: "run" },
    remedy: { command: "drover up" },
  });
  const shown = await showLoop.run(down, { loop: "a" });
  expect(shown.warnings).toMatchObject([{ code: "not_firing", hint: "drover up" }]);
  expect((await why("a")).sentence).not.toContain("drover up");
});

test("the next instants name the one before which the clock changes", async () => {
  const { context } = await world({ kind: "cron", expression: "30 2 * * *", zone: "Europe/Rome" });
  const march = { ...context, clock: { now: () => Date.UTC(2026, 2, 27, 12) } };
  const { upcoming } = await showLoop.run(march, { loop: "a" });
  expect(upcoming.slice(0, 3).map((one) => [one.local, one.clockChange])).toEqual([
    ["2026-03-28T02:30:00+01:00", false],
    ["2026-03-29T03:00:00+02:00", true],
    ["2026-03-30T02:30:00+02:00", false],
  ]);
});
