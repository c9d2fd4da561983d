import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { HistoryPlace, PastRun, PastSlot, Store } from "../core/ports.ts";
import type { Schedule } from "../core/schedule.ts";
import { agentTarget } from "../core/target.ts";
import { forEachStore, START, type OpenTestStore, type StoreClock } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql } from "./sql.ts";

const MINUTE = 60_000;
const DAY = 86_400_000;
const hostId = "host_00000000000000000000000001";
const target = commandOf(["true"]);

interface Stage {
  readonly store: Store;
  readonly clock: StoreClock;
  rows<Row>(query: ReturnType<typeof sql>): Promise<readonly Row[]>;
  run(...queries: readonly ReturnType<typeof sql>[]): Promise<readonly number[]>;
}

async function openStage(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const { store: opened, clock, rows, run } = await open();
  const store = asStore(opened);
  await store.hosts.join({
    hostId,
    name: "one",
    machineId: "m",
    bootId: "b",
    version: "0",
    leaseMs: limits.leaseMs,
    commandCap: 256,
    agentCap: 2,
  });
  return { store, clock, rows, run };
}

const addLoop = (
  { store }: Stage,
  name: string,
  schedule: Schedule = { kind: "interval", everyMs: MINUTE, anchorAt: START },
) =>
  store.loops.add({
    draft: {
      name,
      schedule,
      target,
      policy: loopPolicy.parse({ labels: ["nightly"] }),
      hostPin: hostId,
      managedBy: null,
    },
    limits,
  });

/** Starts all that may start, and ends it. */
async function work({ store, clock }: Stage): Promise<void> {
  const { mine } = await store.admission.pass({ hostId, limits });
  for (const { attempt } of mine) {
    const at = { attemptId: attempt.id, token: attempt.token };
    await store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.1`, awakeAt: 0 });
    await store.attempts.run({ ...at, pid: 1, pidStarted: "1", startedAt: clock.now() });
    await store.attempts.settle({ ...at, outcome: outcomeOf(), limits });
  }
}

async function minutes(stage: Stage, count: number): Promise<void> {
  for (let nth = 0; nth < count; nth++) {
    stage.clock.advance(MINUTE);
    await stage.store.loops.planDue({ cause: "late", limits });
    await work(stage);
  }
}

/** A whole round. */
async function prune({ store }: Stage, keep: number, limit = 3, ageMs = 30 * DAY): Promise<number> {
  let removed = 0;
  let after: HistoryPlace | null = null;
  do {
    const cut = { ageMs, keep, limit, after };
    const wouldBe = await store.history.prunable(cut);
    const part: Awaited<ReturnType<Store["history"]["prune"]>> = await store.history.prune(cut);
    expect(part).toEqual(wouldBe);
    removed += part.runs;
    after = part.next;
  } while (after !== null);
  return removed;
}

const TABLES = ["runs", "steps", "attempts", "run_labels", "receipts", "sessions"] as const;
const counts = async ({ rows }: Stage): Promise<Record<string, number>> => {
  const of = async (query: ReturnType<typeof sql>) => Number((await rows<{ n: number }>(query))[0]?.n);
  return {
    runs: await of(sql`select count(*) as n from runs`),
    steps: await of(sql`select count(*) as n from steps`),
    attempts: await of(sql`select count(*) as n from attempts`),
    run_labels: await of(sql`select count(*) as n from run_labels`),
    receipts: await of(sql`select count(*) as n from receipts`),
    sessions: await of(sql`select count(*) as n from sessions`),
    events: await of(sql`select count(*) as n from events where subject_kind = 'run'`),
  };
};
const slotWords = async ({ store }: Stage, loopId: string) =>
  (await store.slots.list({ loopId, limit: 100, cursor: null })).items
    .toReversed()
    .map(
      ({ at, count, outcome, runId }) => `${(at - START) / MINUTE}x${count} ${outcome}${runId === null ? "" : " kept"}`,
    );

forEachStore("history that is not kept", (open) => {
  test("old runs beyond the last of their loop go with all that is theirs; each instant stays explained", async () => {
    const stage = await openStage(open);
    const loop = await addLoop(stage, "often");
    await minutes(stage, 6);
    const full = await counts(stage);
    expect(full).toMatchObject({ runs: 6, steps: 6, attempts: 6, run_labels: 6, receipts: 6 });
    expect(await prune(stage, 2)).toBe(0); // not old enough
    await stage.store.loops.pause({ loopId: loop.id, reason: null, limits });
    stage.clock.advance(31 * DAY);
    expect(await prune(stage, 2)).toBe(4);
    const left = await counts(stage);
    for (const table of TABLES) expect([table, left[table]]).toEqual([table, (full[table] ?? 0) / 3]);
    expect(left["events"]).toBe((full["events"] ?? 0) / 3);
    expect(await slotWords(stage, loop.id)).toEqual(["1x4 succeeded", "5x1 succeeded kept", "6x1 succeeded kept"]);
    expect(await prune(stage, 2)).toBe(0);
    expect(await prune(stage, 0)).toBe(2);
    expect(await slotWords(stage, loop.id)).toEqual(["1x6 succeeded"]);
    expect(await counts(stage)).toMatchObject({ runs: 0, steps: 0, attempts: 0, events: 0, receipts: 0 });
    // The loop goes on as if nothing had been.
    await stage.store.loops.resume({ loopId: loop.id, limits });
    await minutes(stage, 1);
    expect((await slotWords(stage, loop.id)).at(-1)).toContain("succeeded kept");
  });

  test("what is live, due, or holds work stays however old: a run, a hook, a tree, the root of a live run", async () => {
    const stage = await openStage(open);
    const add = (over: Parameters<typeof runDraft>[1] = {}) =>
      stage.store.runs.add(runDraft(target, { hostPin: hostId, ...over }));
    const plain = (await add()).run.id;
    const hooked = (await add({ policy: runPolicy.parse({ onFinish: "true" }) })).run.id;
    const tree = (await add()).run.id;
    const gone = (await add()).run.id;
    const root = (await add()).run.id;
    await work(stage);
    for (const runId of [tree, gone]) await stage.store.worktrees.begin({ runId, hostId, cwd: "/", path: `/${runId}` });
    for (const runId of [tree, gone])
      await stage.store.worktrees.made({ runId, made: { repository: "/", branch: "b", base: "c", baseNote: "n" } });
    const looked = { keptBecause: null, commits: 0, diffStat: null };
    await stage.store.worktrees.looked({ runId: tree, state: "kept", ...looked });
    await stage.store.worktrees.looked({ runId: gone, state: "removed", ...looked });
    const below = (await add({ parentRunId: root })).run.id;
    stage.clock.advance(31 * DAY);
    expect(await prune(stage, 20)).toBe(2);
    const there = async () =>
      (await stage.rows<{ id: string }>(sql`select id from runs order by id`)).map(({ id }) => id);
    expect(new Set(await there())).toEqual(new Set([hooked, tree, root, below]));
    expect(plain).not.toBe(gone);
    expect(await stage.store.worktrees.get({ runId: gone })).toBeNull();
    await stage.store.runs.hooksDone({ runId: hooked, note: null });
    await stage.store.worktrees.looked({ runId: tree, state: "removed", ...looked });
    await work(stage);
    expect(await prune(stage, 20)).toBe(3);
    expect(await there()).toEqual([below]); // it has ended just now
  });

  test("runs of a loop that is gone, sessions of agents, and slots of a dynamic loop go with their runs", async () => {
    const stage = await openStage(open);
    const loop = await addLoop(stage, "short");
    const dynamic = await addLoop(stage, "own", { kind: "dynamic", firstAt: START + MINUTE });
    await minutes(stage, 3);
    await stage.store.loops.pause({ loopId: loop.id, reason: null, limits });
    await stage.store.loops.pause({ loopId: dynamic.id, reason: null, limits });
    await stage.store.loops.remove({ loopId: loop.id });
    const work_ = agentTarget.parse({
      kind: "agent",
      provider: "claude",
      prompt: { digest: "a".repeat(64), bytes: 1, head: "" },
      cwd: "/",
      permission: "read-only",
    });
    await stage.store.runs.add(runDraft(work_, { hostPin: hostId }));
    const { mine } = await stage.store.admission.pass({ hostId, limits });
    for (const { attempt } of mine) {
      const at = { attemptId: attempt.id, token: attempt.token };
      await stage.store.attempts.start({ ...at, bootId: "b", folder: "f", awakeAt: 1, sessionId: "s" });
      await stage.store.attempts.session({ ...at, sessionId: "s" });
      await stage.store.attempts.settle({ ...at, outcome: outcomeOf(), limits });
    }
    expect(await counts(stage)).toMatchObject({ sessions: 1 });
    const slotsBefore = (await slotWords(stage, dynamic.id)).length;
    expect(slotsBefore).toBeGreaterThan(1);
    stage.clock.advance(31 * DAY);
    expect(await prune(stage, 1)).toBeGreaterThan(3);
    expect(await counts(stage)).toMatchObject({ sessions: 0, runs: 1 });
    expect(await slotWords(stage, dynamic.id)).toHaveLength(1);
  });
});

forEachStore("finished runs on their way to another store", (open) => {
  test("arrive whole and once, with slots from before their loop was there; mixed ids are refused", async () => {
    const from = await openStage(open);
    const loop = await addLoop(from, "often");
    await minutes(from, 5);
    await from.store.runs.add(runDraft(target, { hostPin: hostId })); // not finished: it stays where it is
    const items: PastRun[] = [];
    for (let after: HistoryPlace | null = null; ; ) {
      const page: Awaited<ReturnType<Store["history"]["page"]>> = await from.store.history.page({ after, limit: 2 });
      items.push(...page.items);
      after = page.next;
      if (after === null) break;
    }
    expect(items).toHaveLength(5);

    const to = await openStage(open);
    to.clock.set(from.clock.now());
    const there = await addLoop(to, "often");
    const slots = (await from.store.slots.list({ loopId: loop.id, limit: 10, cursor: null })).items.map((slot) => ({
      ...slot,
      loopId: there.id,
      outcome: slot.outcome ?? "missed",
    }));
    const runs = items.map((past) => ({ ...past, run: { ...past.run, loopId: there.id } }));
    const late = { ...slots[0], loopId: there.id, at: to.clock.now() + 1, untilAt: to.clock.now() + 1 } as PastSlot;
    expect(await to.store.history.add({ runs: runs.slice(0, 2), slots: [...slots, late] })).toEqual({
      runs: 2,
      slots: 5,
    });
    expect(await to.store.history.add({ runs, slots })).toEqual({ runs: 3, slots: 0 });
    expect(await slotWords(to, there.id)).toEqual(await slotWords(from, loop.id));
    for (const { run } of items) {
      const [here, was] = await Promise.all([
        to.store.runs.get({ runId: run.id }),
        from.store.runs.get({ runId: run.id }),
      ]);
      // Where it was pinned, its key and how often it was written are of its old store.
      const own = { hostPin: null, idempotencyKey: null, revision: 1 };
      expect(here?.run).toEqual({ ...was?.run, loopId: there.id, ...own });
      expect(here?.steps.map(({ status, output, attemptsMade }) => [status, output, attemptsMade])).toEqual(
        was?.steps.map(({ status, output, attemptsMade }) => [status, output, attemptsMade]),
      );
      expect(here?.attempts.map(({ id, status, exitStatus }) => [id, status, exitStatus])).toEqual(
        was?.attempts.map(({ id, status, exitStatus }) => [id, status, exitStatus]),
      );
    }
    const page = await to.store.history.page({ after: null, limit: 10 });
    expect(page.items.map(({ events }) => events)).toEqual(items.map(({ events }) => events));
    const [first] = runs;
    if (first === undefined) throw new Error("there is none");
    const mixed = { ...first, run: { ...first.run, id: `run_${"9".repeat(26)}` } };
    await expect(to.store.history.add({ runs: [mixed], slots: [] })).rejects.toMatchObject({ code: "id_clash" });
    // They are old history like any other.
    to.clock.advance(31 * DAY);
    expect(await prune(to, 1)).toBe(4);
  });
});
