import fc from "fast-check";
import { expect, test } from "vitest";
import { commandOf, outcomeOf } from "../../../test/drafts.ts";
import { contextOf } from "../../../test/operations.ts";
import { defaultLimits as limits } from "../../core/limits.ts";
import { loopPolicy } from "../../core/loop.ts";
import { asStore, operations } from "../../store/operations.ts";
import { openMemoryStore } from "../../store/sqlite.ts";
import { checkInput } from "../fields.ts";
import { operation } from "./list-slots.ts";

const START = Date.UTC(2026, 0, 1);
const MINUTE = 60_000;
const hostId = "host_00000000000000000000000001";

async function openStage() {
  let now = START;
  const handle = openMemoryStore({ table: operations, clock: { now: () => now } });
  const store = asStore(handle.store);
  const host = { hostId, name: "one", machineId: "m", bootId: "b", version: "0", leaseMs: limits.leaseMs };
  await store.hosts.join({ ...host, commandCap: 9, agentCap: 1 });
  const schedule = { kind: "interval", everyMs: MINUTE, anchorAt: START } as const;
  const policy = loopPolicy.parse({ catchUp: "none" });
  await store.loops.add({
    draft: { name: "a", schedule, target: commandOf(["true"]), policy, hostPin: hostId, managedBy: null },
    limits,
  });
  return {
    close: () => handle.close(),
    /** Some minutes pass, of which the last is noticed on time, and what starts then ends well. */
    async live(minutes: number) {
      now += minutes * MINUTE;
      await store.loops.planDue({ cause: "down", limits });
      const { mine } = await store.admission.pass({ hostId, limits });
      for (const { attempt } of mine) {
        const at = { attemptId: attempt.id, token: attempt.token };
        await store.attempts.start({ ...at, bootId: "b", folder: "f.1", awakeAt: 0 });
        await store.attempts.settle({ ...at, outcome: outcomeOf({ startedAt: now }), limits });
      }
    },
    /** Its runs go, but for so many, and slots that say the same become one row. */
    async prune(keep: number) {
      now += 1_000;
      await store.history.prune({ ageMs: 1, keep, limit: 100, after: null });
      now -= 1_000;
    },
    async page(input: object) {
      const context = contextOf(store, { now: () => now });
      const given = checkInput(operation.input, { loop: "a", each: true, ...input });
      const { items, next } = await operation.run(context, given);
      return { minutes: items.map(({ at }) => (Date.parse(at) - START) / MINUTE), next };
    },
  };
}

test("pages of single slots go on where they were, whatever is planned, and becomes one row, between two of them", async () => {
  const change = fc.oneof(
    fc.record({ live: fc.integer({ min: 1, max: 5 }) }),
    fc.record({ prune: fc.integer({ min: 0, max: 2 }) }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 8 }),
      fc.array(fc.array(change, { maxLength: 2 }), { maxLength: 8 }),
      fc.integer({ min: 1, max: 6 }),
      async (before, between, limit) => {
        const stage = await openStage();
        for (const minutes of before) await stage.live(minutes);
        const seen: number[] = [];
        let cursor: string | null = null;
        for (let pages = 0; ; pages++) {
          const page = await stage.page({ limit, ...(cursor === null ? {} : { cursor }) });
          seen.push(...page.minutes);
          expect(page.minutes.length === limit || page.next === null).toBe(true);
          cursor = page.next;
          if (cursor === null) break;
          for (const one of between[pages] ?? []) await ("live" in one ? stage.live(one.live) : stage.prune(one.prune));
        }
        const all = before.reduce((sum, minutes) => sum + minutes, 0);
        expect(seen).toEqual(Array.from({ length: all }, (_, nth) => all - nth));
        await stage.close();
      },
    ),
    { numRuns: 25 },
  );
});

test("a span of single slots begins and ends within rows that stand for many", async () => {
  const stage = await openStage();
  await stage.live(20);
  const since = new Date(START + 4 * MINUTE).toISOString();
  const until = new Date(START + 9 * MINUTE).toISOString();
  expect((await stage.page({ since, until })).minutes).toEqual([9, 8, 7, 6, 5, 4]);
  const first = await stage.page({ since, until, limit: 4 });
  expect(first.minutes).toEqual([9, 8, 7, 6]);
  expect(await stage.page({ since, until, limit: 4, cursor: first.next })).toEqual({ minutes: [5, 4], next: null });
});
