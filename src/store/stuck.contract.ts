import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy } from "../core/loop.ts";
import type { Store } from "../core/ports.ts";
import { forEachStore, type OpenTestStore, type TestStore } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { type Sql, sql } from "./sql.ts";

const T0 = Date.UTC(2026, 0, 1);
const HOST = "host_00000000000000000000000001";
const AWAY = "host_00000000000000000000000002";
const OLD_MS = 600_000;
const GONE_MS = 86_400_000;
const target = commandOf(["true"]);

interface Stage extends Omit<TestStore<typeof operations>, "store"> {
  readonly store: Store;
}

async function openStage(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const opened = await open();
  opened.clock.set(T0);
  const store = asStore(opened.store);
  await store.hosts.join({
    hostId: HOST,
    name: "one",
    machineId: "m",
    bootId: "b",
    version: "0",
    leaseMs: limits.leaseMs,
    commandCap: 50,
    agentCap: 2,
  });
  return { ...opened, store };
}

const find = async ({ store }: Stage, limit = 10) =>
  (await store.stuck.find({ hostId: HOST, limit, looked: 1_000, oldMs: OLD_MS, goneMs: GONE_MS })).map(
    ({ kind, id, runId }) => ({ kind, id, runId }),
  );

async function addRun({ store, clock }: Stage, hostPin = HOST): Promise<string> {
  clock.advance(1);
  return (await store.runs.add(runDraft(target, { hostPin }))).run.id;
}

async function addLoop({ store }: Stage, name: string): Promise<string> {
  const { id } = await store.loops.add({
    draft: {
      name,
      schedule: { kind: "interval", everyMs: 3_600_000, anchorAt: 0 },
      target,
      policy: loopPolicy.parse({}),
      hostPin: HOST,
      managedBy: null,
    },
    limits,
  });
  return id;
}

/** A run that is at work, and its attempt. */
async function atWork(stage: Stage): Promise<{ runId: string; attemptId: string; token: number; stepId: string }> {
  const runId = await addRun(stage);
  const { mine } = await stage.store.admission.pass({ hostId: HOST, limits });
  const one = mine.find(({ run }) => run.id === runId);
  if (one === undefined) throw new Error("it was not admitted");
  const { id: attemptId, token, stepId } = one.attempt;
  await stage.store.attempts.start({ attemptId, token, bootId: "b", folder: `${attemptId}.${token}`, awakeAt: 1 });
  return { runId, attemptId, token, stepId };
}

forEachStore("what is stuck", (open) => {
  test("nothing is, of what is queued, at work, waits for its time or its turn, is held, paused, or over", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    await addRun(stage);
    const over = await atWork(stage);
    await store.attempts.settle({
      ...over,
      outcome: outcomeOf({ kind: "failed", class: "exit", exitStatus: 1, startedAt: T0 }),
      limits,
    });
    await atWork(stage);
    const loopId = await addLoop(stage, "often");
    await store.loops.runNow({ loopId, by: "person", parentRunId: null, limits });
    await store.loops.runNow({ loopId, by: "person", parentRunId: null, limits });
    await store.loops.pause({ loopId: await addLoop(stage, "paused"), reason: null, limits });
    await store.loops.archive({ loopId: await addLoop(stage, "archived"), limits });
    expect(await find(stage)).toEqual([]);
  });

  test("a slot that is let go of is that of the loop that was named", async () => {
    const stage = await openStage(open);
    const slot = (loopId: string) =>
      sql`insert into slots (loop_id, at, until_at, count, run_id, late_ms, created_at) values (${loopId}, 1, 1, 1, 'gone', 0, 1)`;
    await stage.run(slot("one"), slot("another"));
    const asked = { hostId: HOST, claimsOf: [], slots: [{ loopId: "one", at: 1 }] };
    expect(await stage.store.stuck.release(asked)).toEqual({ claims: 0, slots: 1 });
    expect(await stage.rows(sql`select loop_id from slots where outcome is null`)).toEqual([{ loop_id: "another" }]);
  });

  test("what lacks one thing that what is stuck has is not", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const byHand = async (loopId: string) =>
      (await store.loops.runNow({ loopId, by: "person", parentRunId: null, limits })).runId ?? "";
    const waits = (runId: string): readonly Sql[] => [
      sql`update steps set status = 'pending', reason = 'turn' where run_id = ${runId}`,
      sql`update runs set waits_turn = 1 where id = ${runId}`,
    ];
    // At work on this host, which was not seen for long, under caps that are not known any more.
    await atWork(stage);
    await stage.run(sql`update hosts set last_seen_at = 0`);
    // Behind one that is at work; held by a loop that is paused.
    const busy = await addLoop(stage, "busy");
    await byHand(busy);
    await store.admission.pass({ hostId: HOST, limits });
    const held = await addLoop(stage, "held");
    await stage.run(...waits(await byHand(held)), sql`update loops set status = 'paused' where id = ${held}`);
    const second = await addRun(stage);
    await stage.run(sql`update runs set loop_id = ${busy} where id = ${second}`, ...waits(second));
    // Without a next time, but at work.
    await stage.run(sql`update loops set wake_at = null where id = ${busy}`);
    // Waiting for an account that is held.
    const runId = await addRun(stage);
    await stage.run(
      sql`update steps set status = 'waiting', reason = 'account', account_id = 'claude:work' where run_id = ${runId}`,
      sql`insert into holds (subject_kind, subject_id, source, reason, created_at) values ('account', 'claude:work', 'person', 'r', 1)`,
      sql`delete from cap_sets`,
    );
    expect(await find(stage)).toEqual([]);

    // What was in the way is over.
    await stage.run(sql`update holds set cleared_at = 1`);
    expect((await find(stage)).map(({ kind, runId: of }) => [kind, of])).toEqual([["step", runId]]);
    await stage.run(sql`update holds set cleared_at = null, until_at = 1`);
    expect((await find(stage)).map(({ kind, runId: of }) => [kind, of])).toEqual([["step", runId]]);
    await stage.run(
      sql`update steps set wake_at = ${T0 + OLD_MS} where run_id = ${runId}`,
      sql`update runs set finished_at = 1, status = 'failed' where loop_id = ${busy} and id <> ${second}`,
    );
    expect((await find(stage)).filter(({ kind }) => kind === "turn")).toEqual([
      { kind: "turn", id: second, runId: second },
    ]);
    await stage.run(sql`update runs set finished_at = 1, status = 'failed' where id = ${second}`);
    expect((await find(stage)).filter(({ kind }) => kind === "loop")).toEqual([
      { kind: "loop", id: busy, runId: null },
    ]);
  });

  test.each<[string, (stage: Stage) => Promise<{ id: string; runId: string | null; plant: Sql }>]>([
    [
      "run",
      async (stage) => {
        const runId = await addRun(stage);
        return {
          id: runId,
          runId,
          plant: sql`update steps set status = 'failed', finished_at = ${T0} where run_id = ${runId}`,
        };
      },
    ],
    [
      "step",
      async (stage) => {
        const { runId, attemptId, stepId } = await atWork(stage);
        return {
          id: stepId,
          runId,
          plant: sql`update attempts set status = 'lost', finished_at = ${T0} where id = ${attemptId}`,
        };
      },
    ],
    [
      "step",
      async (stage) => {
        const { runId, attemptId, token, stepId } = await atWork(stage);
        await stage.store.attempts.settle({
          attemptId,
          token,
          outcome: outcomeOf({ kind: "failed", class: "spawn", startedAt: null }),
          limits,
        });
        return {
          id: stepId,
          runId,
          plant: sql`update steps set wake_at = null, reason = 'account' where id = ${stepId}`,
        };
      },
    ],
    [
      "overdue",
      async (stage) => {
        const runId = await addRun(stage);
        const [step] = await stage.rows<{ id: string }>(sql`select id from steps where run_id = ${runId}`);
        return {
          id: step?.id ?? "",
          runId,
          plant: sql`update steps set status = 'waiting', reason = 'retry', wake_at = ${T0 - OLD_MS - 60_000} where run_id = ${runId}`,
        };
      },
    ],
    [
      "turn",
      async (stage) => {
        const loopId = await addLoop(stage, "turns");
        const runId = (await stage.store.loops.runNow({ loopId, by: "person", parentRunId: null, limits })).runId ?? "";
        await stage.run(sql`update steps set status = 'pending', reason = 'turn' where run_id = ${runId}`);
        return { id: runId, runId, plant: sql`update runs set waits_turn = 1 where id = ${runId}` };
      },
    ],
    [
      "ending",
      async (stage) => {
        const { runId, attemptId } = await atWork(stage);
        return {
          id: attemptId,
          runId,
          plant: sql`update attempts set ending_since = ${T0 - OLD_MS - 60_000} where id = ${attemptId}`,
        };
      },
    ],
    [
      "host_gone",
      async (stage) => {
        const { runId, attemptId } = await atWork(stage);
        return { id: attemptId, runId, plant: sql`update attempts set host_id = ${AWAY} where id = ${attemptId}` };
      },
    ],
    [
      "claim",
      async () => {
        const gone = "att_00000000000000000000000009";
        return {
          id: gone,
          runId: null,
          plant: sql`insert into claims (attempt_id, resource_key, created_at) values (${gone}, ${`host:${HOST}:command`}, ${T0})`,
        };
      },
    ],
    [
      "loop",
      async (stage) => {
        const id = await addLoop(stage, "asleep");
        return { id, runId: null, plant: sql`update loops set wake_at = null where id = ${id}` };
      },
    ],
    [
      "slot",
      async (stage) => {
        const id = await addLoop(stage, "open");
        return {
          id,
          runId: "run_gone",
          plant: sql`insert into slots (loop_id, at, until_at, count, run_id, late_ms, created_at) values (${id}, ${T0}, ${T0}, 1, 'run_gone', 0, ${T0})`,
        };
      },
    ],
    [
      "account",
      async (stage) => {
        const runId = await addRun(stage);
        return { id: runId, runId, plant: sql`update runs set account_wish = 'claude:gone' where id = ${runId}` };
      },
    ],
    [
      "pinned",
      async (stage) => {
        const runId = await addRun(stage);
        return { id: AWAY, runId, plant: sql`update runs set host_pin = ${AWAY} where id = ${runId}` };
      },
    ],
  ])("%s", async (kind, make) => {
    const stage = await openStage(open);
    const { id, runId, plant } = await make(stage);
    expect(await find(stage)).toEqual([]);
    await stage.run(plant);
    // An attempt that is over without its end has its claims still: that is found too.
    const found = (await find(stage)).filter((one) => kind === "claim" || one.kind !== "claim");
    expect(found).toEqual([{ kind, id, runId }]);
  });

  test("of each kind no more than is asked for", async () => {
    const stage = await openStage(open);
    for (let nth = 0; nth < 3; nth++) {
      const id = await addLoop(stage, `loop${nth}`);
      await stage.run(sql`update loops set wake_at = null where id = ${id}`);
    }
    expect(await find(stage, 2)).toHaveLength(2);
  });

  test("claims and slots that are stuck are let go of, each with its event; what is at work keeps its own", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const { attemptId, runId } = await atWork(stage);
    const loopId = await addLoop(stage, "open");
    const ended = await addRun(stage);
    await store.runs.cancel({ runId: ended, by: "person", reason: "enough", limits });
    const slot = (at: number, runId: string | null) =>
      sql`insert into slots (loop_id, at, until_at, count, run_id, late_ms, created_at) values (${loopId}, ${at}, ${at}, 1, ${runId}, 0, ${T0})`;
    await stage.run(
      sql`insert into claims (attempt_id, resource_key, created_at) values ('att_over', ${`host:${HOST}:command`}, ${T0})`,
      slot(T0, null),
      slot(T0 + 1, ended),
      slot(T0 + 2, runId),
    );
    const before = await store.admission.usage({});
    const given = {
      hostId: HOST,
      claimsOf: ["att_over", attemptId],
      slots: [0, 1, 2].map((ms) => ({ loopId, at: T0 + ms })),
    };
    expect(await store.stuck.release(given)).toEqual({ claims: 1, slots: 2 });
    expect(await find(stage)).toEqual([]);
    const used = (all: typeof before) => all.find(({ resource }) => resource === `host:${HOST}:command`)?.used;
    expect([used(before), used(await store.admission.usage({}))]).toEqual([2, 1]);
    expect((await store.slots.list({ loopId, limit: 5, cursor: null })).items).toMatchObject([
      { at: T0 + 2, outcome: null },
      { at: T0 + 1, outcome: "cancelled", reason: "enough" },
      { at: T0, outcome: "missed", reason: "unknown" },
    ]);
    const types = await stage.rows<{ type: string }>(
      sql`select type from events where subject_kind = 'host' and subject_id = ${HOST} order by number`,
    );
    expect(types.map(({ type }) => type)).toEqual([
      "host.joined",
      "host.claim_released",
      "host.slot_closed",
      "host.slot_closed",
    ]);
    expect(await store.stuck.release(given)).toEqual({ claims: 0, slots: 0 });
  });

  test("the newest instant is that of the last event", async () => {
    const stage = await openStage(open);
    stage.clock.set(T0 + 5_000);
    await addRun(stage);
    expect(await stage.store.stuck.newest({})).toBe(T0 + 5_001);
  });
});
