import { expect, test, vi } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { Store } from "../core/ports.ts";
import type { RunTree } from "../core/records.ts";
import type { Outcome } from "../core/run.ts";
import type { Schedule } from "../core/schedule.ts";
import { forEachStore, type OpenTestStore } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql, type Sql } from "./sql.ts";

const limits = defaultLimits;
const target = commandOf(["true"]);
const ended = (over: Partial<Outcome> = {}): Outcome => outcomeOf({ tail: "", startedAt: 1, ...over });
const failed = ended({ kind: "failed", class: "exit", exitStatus: 1, message: "exit 1" });

interface Stage {
  readonly store: Store;
  readonly hostId: string;
  now(): number;
  setNow(at: number): void;
  rows<Row>(query: Sql): Promise<readonly Row[]>;
}

const T0 = Date.UTC(2026, 0, 1);

/** A stage over one kind of store. The clock is the test's, so instants count from `T0` on every store. */
async function openStage(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const { store: ported, clock, rows } = await open();
  const store = asStore(ported);
  clock.set(T0);
  const hostId = "host_00000000000000000000000001";
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
  return { store, hostId, now: clock.now, setNow: clock.set, rows };
}

const addLoop = (stage: Stage, schedule: Schedule, policy: object = {}, name = "one") =>
  stage.store.loops.add({
    draft: { name, schedule, target, policy: loopPolicy.parse(policy), hostPin: stage.hostId, managedBy: null },
    limits,
  });
const every = (everyMs: number): Schedule => ({ kind: "interval", everyMs, anchorAt: T0 });
const plan = (stage: Stage, cause: "down" | "late" = "late") => stage.store.loops.planDue({ cause, limits });
const slots = async (stage: Stage, loopId: string) =>
  (await stage.store.slots.list({ loopId, limit: 100, cursor: null })).items.toReversed();
const words = async (stage: Stage, loopId: string) =>
  (await slots(stage, loopId)).map(
    (slot) =>
      `${(slot.at - T0) / 1000}${slot.count > 1 ? `..${(slot.untilAt - T0) / 1000}x${slot.count}` : ""} ${slot.outcome ?? slot.runStatus}${slot.reason === null ? "" : `(${slot.reason})`}${slot.coalescedInto === null ? "" : `->${(slot.coalescedInto - T0) / 1000}`}`,
  );
const pass = (stage: Stage) => stage.store.admission.pass({ hostId: stage.hostId, limits });

/** Starts all that may start, and ends it in the given way. */
async function work(stage: Stage, outcome: Outcome = ended()): Promise<number> {
  const { mine } = await pass(stage);
  for (const { attempt } of mine) {
    const at = { attemptId: attempt.id, token: attempt.token };
    expect(
      await stage.store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.${attempt.token}`, awakeAt: 0 }),
    ).toBe("done");
    expect(await stage.store.attempts.run({ ...at, pid: 100, pidStarted: "1", startedAt: stage.now() })).toBe("done");
    expect((await stage.store.attempts.settle({ ...at, outcome, limits })).answer).toBe("done");
  }
  return mine.length;
}

forEachStore("loops and slots", (open) => {
  test("loops that arrive paused are all there or none, fire nothing, and go on from when they are resumed", async () => {
    const stage = await openStage(open);
    const draft = (name: string) => ({
      name,
      schedule: every(60_000),
      target,
      policy: loopPolicy.parse({}),
      hostPin: stage.hostId,
      managedBy: null,
    });
    const drafts = Array.from({ length: 250 }, (_, n) => draft(`n-${n}`));
    const made = await stage.store.loops.addPaused({ drafts, reason: "imported", limits });
    expect(made.map(({ name }) => name)).toEqual(drafts.map(({ name }) => name));
    const loopId = made[0]?.id ?? "";
    expect(await stage.store.loops.get({ loopId })).toMatchObject({
      status: "paused",
      pausedReason: "imported",
      pausedAt: T0,
      revision: 1,
      eventNumber: 2,
    });
    stage.setNow(T0 + 150_000);
    expect(await plan(stage)).toMatchObject({ loops: 0, wakeAt: null });
    expect((await stage.store.loops.resume({ loopId, limits })).nextAt).toBe(T0 + 180_000);
    expect(await words(stage, loopId)).toEqual(["60..120x2 skipped(paused)"]);

    const taken = stage.store.loops.addPaused({ drafts: [draft("free"), draft("n-3")], reason: "again", limits });
    await expect(taken).rejects.toMatchObject({ kind: "conflict", code: "name_taken" });
    const { items } = await stage.store.loops.list({ limit: 1_000, cursor: null, archived: false, label: null });
    expect(items).toHaveLength(250);
  });

  test("an interval loop fires at creation plus its period, and every slot ends in one word", async () => {
    const stage = await openStage(open);
    const loop = await addLoop(stage, every(60_000));
    expect(loop.nextAt).toBe(T0 + 60_000);
    expect(await plan(stage)).toMatchObject({ loops: 0, wakeAt: T0 + 60_000 });
    stage.setNow(T0 + 60_000);
    expect(await plan(stage)).toMatchObject({ loops: 1, runs: 1, wakeAt: T0 + 120_000 });
    expect(await work(stage)).toBe(1);
    stage.setNow(T0 + 120_500);
    await plan(stage);
    expect(await work(stage, failed)).toBe(1);
    expect(await words(stage, loop.id)).toEqual(["60 succeeded", "120 failed(exit)"]);
    expect((await stage.store.loops.get({ loopId: loop.id }))?.failureStreak).toBe(1);
  });

  test("B-048 sleep over three slots: latest runs once and coalesces two, none records three missed, all runs each in turn", async () => {
    const stage = await openStage(open);
    const latest = await addLoop(stage, every(600_000), { catchUp: "latest" }, "latest");
    const none = await addLoop(stage, every(600_000), { catchUp: "none" }, "none");
    const each = await addLoop(stage, every(600_000), { catchUp: "all", catchUpLimit: 2 }, "all");
    stage.setNow(T0 + 1_900_000);
    expect(await plan(stage, "down")).toMatchObject({ loops: 3, runs: 3 });
    expect(await work(stage)).toBe(2);
    expect(await work(stage)).toBe(1);
    expect(await work(stage)).toBe(0);
    expect(await words(stage, latest.id)).toEqual(["600..1200x2 coalesced(down)->1800", "1800 succeeded"]);
    expect(await words(stage, none.id)).toEqual(["600..1800x3 missed(down)"]);
    expect(await words(stage, each.id)).toEqual(["600 succeeded", "1200 succeeded", "1800 missed(limit)"]);
  });

  test("overlap: skip joins neighbours, queue waits its turn and is bounded, cancel supersedes, allow runs beside", async () => {
    const stage = await openStage(open);
    const skip = await addLoop(stage, every(10_000), { overlap: "skip" }, "skip");
    const queue = await addLoop(stage, every(10_000), { overlap: "queue", queueLimit: 1 }, "queue");
    const cancel = await addLoop(stage, every(10_000), { overlap: "cancel" }, "cancel");
    const allow = await addLoop(stage, every(10_000), { overlap: "allow" }, "allow");
    stage.setNow(T0 + 10_000);
    await plan(stage);
    const first = (await pass(stage)).mine;
    expect(first).toHaveLength(4);
    for (const { attempt } of first)
      await stage.store.attempts.start({
        attemptId: attempt.id,
        token: attempt.token,
        bootId: "b",
        folder: attempt.id,
        awakeAt: 0,
      });
    for (const at of [20_000, 30_000]) {
      stage.setNow(T0 + at);
      await plan(stage);
    }
    expect((await pass(stage)).mine.map(({ run }) => run.loopName)).toEqual(["allow", "allow"]);
    expect(await words(stage, skip.id)).toEqual(["10 running", "20..30x2 skipped(overlap)"]);
    expect(await words(stage, queue.id)).toEqual(["10 running", "20 queued", "30 skipped(queue_full)"]);
    expect(await words(stage, cancel.id)).toEqual(["10 running", "20 cancelled(superseded)", "30 queued"]);
    expect(await words(stage, allow.id)).toEqual(["10 running", "20 running", "30 running"]);
    const toEnd = await stage.store.attempts.toEnd({ hostId: stage.hostId });
    expect(toEnd).toMatchObject([{ superseded: true }]);
    for (const { attempt, run } of first) {
      const outcome =
        run.loopName === "cancel" ? ended({ kind: "cancelled", class: "cancelled", endedBy: "cancel" }) : ended();
      expect(
        (await stage.store.attempts.settle({ attemptId: attempt.id, token: attempt.token, outcome, limits })).answer,
      ).toBe("done");
    }
    expect((await pass(stage)).mine.map(({ run }) => run.loopName)).toEqual(
      expect.arrayContaining(["cancel", "queue"]),
    );
    expect((await words(stage, cancel.id))[0]).toBe("10 cancelled(superseded)");
  });

  test("cancel: of two slots that are on time in one look the newer runs, alone, and after what is made up for", async () => {
    const stage = await openStage(open);
    const late = await addLoop(stage, every(600_000), { overlap: "cancel", catchUp: "all" }, "late");
    stage.setNow(T0 + 1_210_000);
    await plan(stage);
    expect(await words(stage, late.id)).toEqual(["600 queued", "1200 queued"]);
    expect(await work(stage)).toBe(1);
    expect(await words(stage, late.id)).toEqual(["600 succeeded", "1200 queued"]);
    const often = await addLoop(stage, every(10_000), { overlap: "cancel" }, "often");
    stage.setNow(T0 + 1_230_000);
    expect(await plan(stage)).toMatchObject({ runs: 2 });
    expect(await words(stage, often.id)).toEqual(["1220 cancelled(superseded)", "1230 queued"]);
    expect((await pass(stage)).mine.map(({ run }) => run.loopName)).toEqual(expect.arrayContaining(["late", "often"]));
  });

  test("a loop that became a once loop supersedes what an earlier slot left waiting, and is over with its own slot", async () => {
    const stage = await openStage(open);
    const loop = await addLoop(stage, every(10_000), { overlap: "cancel" });
    stage.setNow(T0 + 10_000);
    await plan(stage);
    const once = { kind: "once", at: T0 + 15_000 } as const;
    await stage.store.loops.edit({ loopId: loop.id, change: { schedule: once }, limits });
    stage.setNow(T0 + 15_000);
    expect(await plan(stage)).toMatchObject({ loops: 1, runs: 1 });
    expect(await words(stage, loop.id)).toEqual(["10 cancelled(superseded)", "15 queued"]);
    expect((await stage.store.loops.get({ loopId: loop.id }))?.status).toBe("active");
    // By hand, what its one slot left waiting is superseded too: the loop is over by that, and says so once.
    const byHand = await stage.store.loops.runNow({ loopId: loop.id, by: "person", parentRunId: null, limits });
    expect(byHand).toMatchObject({ source: "ad_hoc", skipped: null });
    expect(await words(stage, loop.id)).toEqual(["10 cancelled(superseded)", "15 cancelled(superseded)"]);
    expect((await stage.store.loops.get({ loopId: loop.id }))?.status).toBe("finished");
    // From the table: the feed of PostgreSQL waits for every writer of the cluster, also for those of other tests.
    const events = await stage.rows<{ type: string; number: number }>(
      sql`select type, number from events where subject_kind = 'loop' and subject_id = ${loop.id} order by number`,
    );
    expect(events.map(({ type }) => type)).toEqual(["loop.added", "loop.edited", "loop.finished", "loop.run_now"]);
    expect(events.map(({ number }) => number)).toEqual([1, 2, 3, 4]);
    expect(await work(stage)).toBe(1);
  });

  test("a paused loop records what passed as skipped, an edit records it as missed, and neither starts past work", async () => {
    const stage = await openStage(open);
    const paused = await addLoop(stage, every(60_000), {}, "paused");
    const edited = await addLoop(stage, every(60_000), {}, "edited");
    await stage.store.loops.pause({ loopId: paused.id, reason: "lunch", limits });
    stage.setNow(T0 + 300_500);
    await stage.store.loops.edit({ loopId: edited.id, change: { schedule: every(90_000) }, limits });
    const back = await stage.store.loops.resume({ loopId: paused.id, limits });
    expect(back).toMatchObject({ status: "active", nextAt: T0 + 360_000 });
    expect(await words(stage, paused.id)).toEqual(["60..300x5 skipped(paused)"]);
    expect(await words(stage, edited.id)).toEqual(["60..300x5 missed(edited)"]);
    expect((await stage.store.loops.get({ loopId: edited.id }))?.nextAt).toBe(T0 + 300_500 + 90_000);
    expect(await work(stage)).toBe(0);
  });

  test("the breaker pauses after equal failures, and resuming begins a fresh streak", async () => {
    const stage = await openStage(open);
    const loop = await addLoop(stage, every(10_000), { breaker: 3 });
    for (let i = 1; i <= 3; i++) {
      stage.setNow(T0 + i * 10_000);
      await plan(stage);
      await work(stage, failed);
    }
    const tripped = await stage.store.loops.get({ loopId: loop.id });
    expect(tripped).toMatchObject({
      status: "paused",
      failureStreak: 3,
      pausedReason: expect.stringContaining("circuit breaker: 3 failures in a row (exit)"),
    });
    expect(await plan(stage)).toMatchObject({ loops: 0, wakeAt: null });
    expect(await stage.store.loops.resume({ loopId: loop.id, limits })).toMatchObject({
      status: "active",
      failureStreak: 0,
    });
  });

  test("a once loop in the past fires at once and finishes; a dynamic one goes on when its run says", async () => {
    const stage = await openStage(open);
    const once = await addLoop(stage, { kind: "once", at: T0 - 86_400_000 }, { catchUp: "none" }, "once");
    const dynamic = await addLoop(stage, { kind: "dynamic", firstAt: T0 + 5_000 }, {}, "dynamic");
    await plan(stage);
    expect(await work(stage)).toBe(1);
    expect(await words(stage, once.id)).toEqual(["-86400 succeeded"]);
    expect(await stage.store.loops.get({ loopId: once.id })).toMatchObject({ status: "finished", nextAt: null });
    stage.setNow(T0 + 5_000);
    await plan(stage);
    expect((await stage.store.loops.get({ loopId: dynamic.id }))?.nextAt).toBeNull();
    await work(stage, ended({ output: '{"nextAfterMs": 120000}' }));
    expect((await stage.store.loops.get({ loopId: dynamic.id }))?.nextAt).toBe(T0 + 125_000);
  });

  test("expiry by successes and by time", async () => {
    const stage = await openStage(open);
    const successes = await addLoop(stage, every(10_000), { expiresAfterRuns: 2 }, "successes");
    const time = await addLoop(stage, every(10_000), { expiresAt: T0 + 25_000 }, "time");
    for (const at of [10_000, 20_000, 30_000]) {
      stage.setNow(T0 + at);
      await plan(stage);
      await work(stage);
    }
    expect((await stage.store.loops.get({ loopId: successes.id }))?.status).toBe("expired");
    expect((await stage.store.loops.get({ loopId: time.id }))?.status).toBe("expired");
    expect(await words(stage, time.id)).toEqual(["10 succeeded", "20 succeeded"]);
  });

  test("a loop that ended while it was paused lets in what waits when an edit brings it back", async () => {
    const stage = await openStage(open);
    const { id } = await addLoop(stage, every(60_000), { overlap: "queue" });
    stage.setNow(T0 + 60_000);
    await plan(stage);
    await stage.store.loops.pause({ loopId: id, reason: null, limits });
    await stage.store.loops.edit({ loopId: id, change: { schedule: { kind: "once", at: T0 + 90_000 } }, limits });
    stage.setNow(T0 + 120_000);
    const policy = loopPolicy.parse({ overlap: "queue", attempts: 2 });
    const over = await stage.store.loops.edit({ loopId: id, change: { policy }, limits });
    expect(over.status).toBe("finished");
    expect(await work(stage)).toBe(0);
    const revived = await stage.store.loops.edit({ loopId: id, change: { schedule: every(60_000) }, limits });
    expect(revived.status).toBe("active");
    expect(await work(stage)).toBe(1);
    expect((await words(stage, id))[0]).toBe("60 succeeded");
  });

  test("run now: the due slot first, then a try that waits, else beside the schedule; a busy skip loop says so", async () => {
    const stage = await openStage(open);
    const loop = await addLoop(stage, every(60_000), { attempts: 2 });
    const now = () => stage.store.loops.runNow({ loopId: loop.id, by: "person", parentRunId: null, limits });
    expect(await now()).toMatchObject({ source: "ad_hoc", skipped: null });
    expect(await now()).toMatchObject({ source: "ad_hoc", skipped: "overlap", runId: null });
    await work(stage);
    stage.setNow(T0 + 60_000);
    expect(await now()).toMatchObject({ source: "due_slot", skipped: null });
    await work(stage, failed);
    expect(await words(stage, loop.id)).toEqual(["60 waiting"]);
    expect(await now()).toMatchObject({ source: "retry_slot" });
    await work(stage);
    expect(await words(stage, loop.id)).toEqual(["60 succeeded"]);
  });
});

forEachStore("attempts under tokens", (open) => {
  const draft = (stage: Stage) =>
    runDraft(target, { policy: runPolicy.parse({ attempts: 2, backoffMs: 1_000 }), hostPin: stage.hostId });

  test("B-064 a settled attempt answers a repeat from its receipt, and other evidence is an event", async () => {
    const stage = await openStage(open);
    const { run } = await stage.store.runs.add(draft(stage));
    const [one] = (await pass(stage)).mine;
    if (one === undefined) throw new Error("granted");
    const at = { attemptId: one.attempt.id, token: one.attempt.token };
    await stage.store.attempts.start({ ...at, bootId: "b", folder: "f", awakeAt: 0 });
    const first = await stage.store.attempts.settle({ ...at, outcome: ended(), limits });
    expect(first).toEqual({ answer: "done", step: "succeeded", run: "succeeded" });
    expect(await stage.store.attempts.settle({ ...at, outcome: ended(), limits })).toEqual(first);
    expect(await stage.store.attempts.settle({ ...at, outcome: failed, limits })).toMatchObject({
      answer: "already_ended",
      run: "succeeded",
    });
    const tree = await stage.store.runs.get({ runId: run.id });
    expect(tree?.run.status).toBe("succeeded");
    // On PostgreSQL the feed waits for every writer of the cluster, also for those of other tests' databases.
    const events = await vi.waitFor(
      async () => {
        const { items } = await stage.store.events.list({ after: null, limit: 100, runId: run.id });
        expect(items.at(-1)?.type).toBe("attempt.late_evidence");
        return items;
      },
      { timeout: 20_000, interval: 20 },
    );
    expect(events.map((event) => event.number)).toEqual(events.map((_, i) => i + 1));
    expect(events.at(-1)?.type).toBe("attempt.late_evidence");
  });

  test("a daemon that has been replaced is granted nothing: its successor would never hear of it", async () => {
    const stage = await openStage(open);
    await addLoop(stage, every(10_000));
    stage.setNow(T0 + 10_000);
    await plan(stage);
    const host = { hostId: stage.hostId, name: "h", machineId: "m", bootId: "b2", version: "0", leaseMs: 60_000 };
    const { incarnation } = await stage.store.hosts.join({ ...host, commandCap: 8, agentCap: 2 });
    // What another host's daemon is numbered is its own affair.
    const other = { ...host, hostId: "host_00000000000000000000000000", commandCap: 8, agentCap: 2 };
    const last = [];
    for (let again = 0; again < 3; again++) last.push((await stage.store.hosts.join(other)).incarnation);
    const asked = { hostId: stage.hostId, limits };
    expect(await stage.store.admission.pass({ ...asked, incarnation: incarnation - 1 })).toMatchObject({
      granted: 0,
      mine: [],
      superseded: true,
    });
    const { granted, mine } = await stage.store.admission.pass({ ...asked, incarnation });
    expect([granted, mine[0]?.attempt.incarnation]).toEqual([1, incarnation]);
    const others = { hostId: other.hostId, incarnation: last.at(-1) ?? 0, limits };
    expect(await stage.store.admission.pass(others)).not.toHaveProperty("superseded");
  });

  test("B-062 a daemon that was replaced starts nothing more, also where nobody has taken the token", async () => {
    const stage = await openStage(open);
    await stage.store.runs.add(draft(stage));
    const [one] = (await pass(stage)).mine;
    if (one === undefined) throw new Error("granted");
    const held = { attemptId: one.attempt.id, token: one.attempt.token };
    const host = {
      name: "one",
      machineId: "m",
      bootId: "b",
      version: "0",
      leaseMs: 60_000,
      commandCap: 1,
      agentCap: 1,
    };
    await stage.store.hosts.join({ hostId: stage.hostId, ...host });
    expect(await stage.store.attempts.start({ ...held, bootId: "b", folder: "f", awakeAt: 0 })).toBe("superseded");
    const tree = await stage.store.runs.get({ runId: one.run.id });
    expect(tree?.attempts).toMatchObject([{ status: "reserved" }]);
    // Another host has its own count of daemons.
    const other = "host_00000000000000000000000002";
    await stage.store.hosts.join({ hostId: other, ...host, name: "two" });
    await stage.store.runs.add({ ...draft(stage), hostPin: other });
    const [theirs] = (await stage.store.admission.pass({ hostId: other, limits })).mine;
    if (theirs === undefined) throw new Error("granted");
    const start = { attemptId: theirs.attempt.id, token: theirs.attempt.token, bootId: "b", folder: "g", awakeAt: 0 };
    expect(await stage.store.attempts.start(start)).toBe("done");
  });

  test("an attempt that is not there is answered as one that somebody else has", async () => {
    const { store, hostId } = await openStage(open);
    const at = { attemptId: "att_00000000000000000000000001", token: 1 };
    const gone = "superseded";
    expect(await store.attempts.start({ ...at, bootId: "b", folder: "f", awakeAt: 0 })).toBe(gone);
    expect(await store.attempts.run({ ...at, pid: 5, pidStarted: "1", startedAt: 1 })).toBe(gone);
    expect(await store.attempts.session({ ...at, sessionId: "s" })).toBe(gone);
    expect(await store.attempts.ending({ ...at, by: "cancel" })).toBe(gone);
    expect(await store.attempts.adopt({ ...at, hostId, incarnation: 1, leaseMs: 1 })).toMatchObject({ answer: gone });
    expect(await store.attempts.settle({ ...at, outcome: ended(), limits })).toMatchObject({ answer: gone });
  });

  test("what is asked again after a lost answer is answered again, and leaves one event", async () => {
    const stage = await openStage(open);
    const { attempts } = stage.store;
    const { run } = await stage.store.runs.add(draft(stage));
    const [one] = (await pass(stage)).mine;
    if (one === undefined) throw new Error("granted");
    const at = { attemptId: one.attempt.id, token: one.attempt.token };
    const next = { ...at, token: at.token + 1 };
    const twice = async (ask: () => Promise<unknown>) => [await ask(), await ask()];
    const start = { ...at, bootId: "b", folder: "f", awakeAt: 0 };
    expect(await twice(() => attempts.start(start))).toEqual(["done", "done"]);
    expect(await attempts.start({ ...start, folder: "another" })).toBe("already_ended");
    expect(await attempts.start({ ...start, token: next.token })).toBe("superseded");
    const ticket = { ...at, pid: 5, pidStarted: "1", startedAt: 1 };
    expect(await twice(() => attempts.run(ticket))).toEqual(["done", "done"]);
    expect(await attempts.run({ ...ticket, token: next.token })).toBe("superseded");
    const adoption = { ...at, hostId: stage.hostId, incarnation: 2, leaseMs: 1 };
    expect(await attempts.adopt({ ...adoption, hostId: "host_00000000000000000000000002" })).toMatchObject({
      answer: "superseded",
    });
    expect(await twice(() => attempts.adopt(adoption))).toEqual([
      { answer: "done", token: next.token },
      { answer: "done", token: next.token },
    ]);
    expect(await twice(() => attempts.ending({ ...next, by: "timeout" }))).toEqual(["done", "done"]);
    expect(await attempts.settle({ ...next, outcome: ended(), limits })).toMatchObject({ answer: "done" });
    expect(await attempts.ending({ ...next, by: "timeout" })).toBe("already_ended");
    expect(await attempts.run({ ...next, pid: 5, pidStarted: "1", startedAt: 1 })).toBe("already_ended");
    expect(await attempts.session({ ...next, sessionId: "s" })).toBe("already_ended");
    expect(await attempts.session({ ...at, sessionId: "s" })).toBe("superseded");
    const rows = await stage.rows<{ type: string; n: number }>(
      sql`select type, count(*) as n from events where subject_id = ${run.id} group by type order by type`,
    );
    expect(Object.fromEntries(rows.map(({ type, n }) => [type, Number(n)]))).toEqual({
      "attempt.adopted": 1,
      "attempt.ending": 1,
      "attempt.reserved": 1,
      "attempt.running": 1,
      "attempt.starting": 1,
      "attempt.succeeded": 1,
      "attempt.superseded_write": 4,
      "run.queued": 1,
      "run.succeeded": 1,
    });
  });

  test("B-062 an adopted attempt refuses the old token everywhere", async () => {
    const stage = await openStage(open);
    await stage.store.runs.add(draft(stage));
    const [one] = (await pass(stage)).mine;
    if (one === undefined) throw new Error("granted");
    const old = { attemptId: one.attempt.id, token: one.attempt.token };
    await stage.store.attempts.start({ ...old, bootId: "b", folder: "f", awakeAt: 0 });
    const again = await stage.store.hosts.join({
      hostId: stage.hostId,
      name: "one",
      machineId: "m",
      bootId: "b",
      version: "0",
      leaseMs: 60_000,
      commandCap: 1,
      agentCap: 1,
    });
    expect(again.incarnation).toBe(2);
    const adopted = await stage.store.attempts.adopt({ ...old, hostId: stage.hostId, incarnation: 2, leaseMs: 60_000 });
    expect(adopted).toEqual({ answer: "done", token: old.token + 1 });
    expect(await stage.store.attempts.run({ ...old, pid: 5, pidStarted: "1", startedAt: 1 })).toBe("superseded");
    expect(await stage.store.attempts.ending({ ...old, by: "cancel" })).toBe("superseded");
    expect((await stage.store.attempts.settle({ ...old, outcome: ended(), limits })).answer).toBe("superseded");
    expect((await stage.store.attempts.settle({ ...old, token: adopted.token, outcome: ended(), limits })).answer).toBe(
      "done",
    );
  });

  test("B-061 what renews its lease is nobody else's, and what is taken over is not its old host's any more", async () => {
    const stage = await openStage(open);
    const other = "host_00000000000000000000000002";
    const host = { machineId: "n", bootId: "b", version: "0", leaseMs: limits.leaseMs, commandCap: 1, agentCap: 1 };
    await stage.store.hosts.join({ hostId: other, name: "two", ...host });
    const { run } = await stage.store.runs.add({ ...draft(stage), hostPin: null });
    const [one] = (await pass(stage)).mine;
    if (one === undefined) throw new Error("granted");
    const old = { attemptId: one.attempt.id, token: one.attempt.token };
    await stage.store.attempts.start({ ...old, bootId: "b", folder: "f", awakeAt: 0 });
    await stage.store.attempts.run({ ...old, pid: 5, pidStarted: "1", startedAt: stage.now() });
    const renew = () => stage.store.hosts.renew({ hostId: stage.hostId, incarnation: 1, leaseMs: limits.leaseMs });
    const takeOver = () => stage.store.attempts.takeOver({ hostId: other, limits });
    // Much longer than a takeover takes, and never silent.
    for (let at = 0; at < 3 * limits.takeoverMs; at += limits.renewMs) {
      stage.setNow(stage.now() + limits.renewMs);
      await renew();
      expect(await takeOver()).toEqual({ taken: 0 });
    }
    // An ended lease alone takes nothing away.
    stage.setNow(stage.now() + limits.takeoverMs - 1);
    expect(await takeOver()).toEqual({ taken: 0 });
    stage.setNow(stage.now() + limits.leaseMs);
    expect(await takeOver()).toEqual({ taken: 1 });
    expect(await takeOver()).toEqual({ taken: 0 });
    expect(await stage.store.attempts.ending({ ...old, by: "cancel" })).toBe("superseded");
    expect((await stage.store.attempts.settle({ ...old, outcome: ended(), limits })).answer).toBe("already_ended");
    expect((await stage.store.runs.get({ runId: run.id }))?.attempts).toMatchObject([
      { status: "lost", endedBy: "fence" },
    ]);
  });

  test("B-120 a program that is away is waited for from the first start that missed it, then the run says for how long", async () => {
    const stage = await openStage(open);
    const { run } = await stage.store.runs.add(draft(stage));
    const away = ended({
      kind: "never_started",
      class: "spawn",
      exitStatus: null,
      startedAt: null,
      message: "claude is not there",
      programAway: true,
    });
    const full = ended({ kind: "never_started", class: "storage", exitStatus: null, startedAt: null });
    const end = async (outcome: Outcome, passes: number) => {
      const [one] = (await pass(stage)).mine;
      if (one === undefined) throw new Error("granted");
      const { id: attemptId, token } = one.attempt;
      await stage.store.attempts.settle({ attemptId, token, outcome, limits });
      stage.setNow(stage.now() + passes);
      await stage.store.steps.wake({ limit: 10 });
      return (await stage.store.runs.get({ runId: run.id })) as RunTree;
    };
    // Long before: what another cause took says nothing about the program.
    await end(away, limits.programAwayMs / 2);
    await end(full, limits.programAwayMs);
    const third = limits.programAwayMs / 3;
    for (let i = 1; i <= 3; i++) {
      const { steps, attempts } = await end(away, third);
      expect(steps[0]).toMatchObject({ triesCounted: 0, reason: null });
      expect(attempts.at(-1)).toMatchObject({ status: "failed", class: "spawn", counted: false });
    }
    const { run: over, steps, attempts } = await end(away, 0);
    expect(over).toMatchObject({ status: "failed", reason: "not_found", error: { class: "not_found" } });
    expect(over.error?.message).toBe("it could not be started for 15m: claude is not there");
    expect(steps[0]?.triesCounted).toBe(1);
    expect(attempts.at(-1)).toMatchObject({ status: "failed", class: "not_found", counted: true });
  });

  test("what never started goes back uncounted, and twenty in a row are a crash loop", async () => {
    const stage = await openStage(open);
    const { run } = await stage.store.runs.add(draft(stage));
    const never = ended({ kind: "never_started", class: "spawn", exitStatus: null, startedAt: null });
    for (let i = 1; i <= 20; i++) {
      const [one] = (await pass(stage)).mine;
      if (one === undefined) throw new Error(`granted ${i}`);
      expect(one.attempt.number).toBe(i);
      await stage.store.attempts.settle({
        attemptId: one.attempt.id,
        token: one.attempt.token,
        outcome: never,
        limits,
      });
      stage.setNow(stage.now() + 3_600_000);
      await stage.store.steps.wake({ limit: 10 });
    }
    const tree = await stage.store.runs.get({ runId: run.id });
    expect(tree?.run).toMatchObject({ status: "failed", reason: "crash_loop", error: { class: "crash_loop" } });
    expect(tree?.steps[0]?.triesCounted).toBe(0);
  });

  test("a run ends when its attempt ended, not when we heard of it", async () => {
    const stage = await openStage(open);
    const { run } = await stage.store.runs.add(draft(stage));
    const [one] = (await pass(stage)).mine;
    if (one === undefined) throw new Error("granted");
    stage.setNow(T0 + 9_000);
    const outcome = ended({ startedAt: T0 + 100, endedAt: T0 + 2_100 });
    const at = { attemptId: one.attempt.id, token: one.attempt.token };
    await stage.store.attempts.start({ ...at, bootId: "b", folder: "f", awakeAt: 0 });
    await stage.store.attempts.settle({ ...at, outcome, limits });
    const tree = await stage.store.runs.get({ runId: run.id });
    expect(tree?.run.finishedAt).toBe(T0 + 2_100);
    expect(tree?.attempts[0]).toMatchObject({ startedAt: T0 + 100, finishedAt: T0 + 2_100 });
  });

  test("a failed try waits for its pause, then tries again up to its limit", async () => {
    const stage = await openStage(open);
    const { run } = await stage.store.runs.add(draft(stage));
    await work(stage, failed);
    const waiting = await stage.store.runs.get({ runId: run.id });
    expect(waiting?.run).toMatchObject({ status: "waiting", reason: "retry" });
    expect(await work(stage, failed)).toBe(0);
    const wakeAt = waiting?.run.wakeAt ?? 0;
    expect(wakeAt - stage.now()).toBeGreaterThanOrEqual(500);
    expect(wakeAt - stage.now()).toBeLessThanOrEqual(1_500);
    stage.setNow(wakeAt);
    expect(await stage.store.steps.wake({ limit: 10 })).toMatchObject({ woken: 1 });
    expect(await work(stage, failed)).toBe(1);
    expect((await stage.store.runs.get({ runId: run.id }))?.run).toMatchObject({
      status: "failed",
      reason: "exit",
      error: { class: "exit", message: "exit 1" },
    });
  });

  test("a host cap of one lets one in, says why the other waits, and the claim goes with the attempt", async () => {
    const stage = await openStage(open);
    await stage.store.admission.setLimit({ resource: `host:${stage.hostId}:command`, limit: 1 });
    await stage.store.runs.add(draft(stage));
    stage.setNow(stage.now() + 1);
    const second = await stage.store.runs.add(draft(stage));
    const one = await pass(stage);
    expect(one.mine).toHaveLength(1);
    expect(await pass(stage)).toMatchObject({ granted: 0, refused: [{ refusal: { code: "cap", used: 1, limit: 1 } }] });
    const step = (await stage.store.runs.get({ runId: second.run.id }))?.steps[0];
    expect(await stage.store.admission.explain({ stepId: step?.id ?? "" })).toMatchObject({
      refusal: { code: "cap", used: 1, limit: 1 },
      ahead: 0,
    });
    const attempt = one.mine[0]?.attempt;
    await stage.store.attempts.settle({
      attemptId: attempt?.id ?? "",
      token: attempt?.token ?? 0,
      outcome: ended({ kind: "cancelled", class: "cancelled" }),
      limits,
    });
    expect((await pass(stage)).mine).toHaveLength(1);
  });

  test("cancel ends at once what has not started, and asks the host of what has", async () => {
    const stage = await openStage(open);
    const idle = await stage.store.runs.add(draft(stage));
    expect(await stage.store.runs.cancel({ runId: idle.run.id, by: "person", reason: "no need", limits })).toBe(
      "cancelled",
    );
    expect(await stage.store.runs.cancel({ runId: idle.run.id, by: "person", reason: "no need", limits })).toBe(
      "already_ended",
    );
    const busy = await stage.store.runs.add(draft(stage));
    const [one] = (await pass(stage)).mine;
    expect(await stage.store.runs.cancel({ runId: busy.run.id, by: "person", reason: "no need", limits })).toBe(
      "requested",
    );
    expect(
      await stage.store.attempts.start({
        attemptId: one?.attempt.id ?? "",
        token: one?.attempt.token ?? 0,
        bootId: "b",
        folder: "f",
        awakeAt: 0,
      }),
    ).toBe("cancelled");
    await stage.store.attempts.settle({
      attemptId: one?.attempt.id ?? "",
      token: one?.attempt.token ?? 0,
      outcome: ended({ kind: "never_started", class: "cancelled" }),
      limits,
    });
    expect((await stage.store.runs.get({ runId: busy.run.id }))?.run).toMatchObject({
      status: "cancelled",
      reason: "no need",
    });
  });

  test("ids answer to prefixes, suffixes and names", async () => {
    const stage = await openStage(open);
    const loop = await addLoop(stage, every(60_000), {}, "nightly");
    const { run } = await stage.store.runs.add(draft(stage));
    const find = async (kind: "loop" | "run", ref: string) =>
      (await stage.store.things.resolve({ kind, ref, limit: 5 })).map((thing) => thing.id);
    expect(await find("loop", "nightly")).toEqual([loop.id]);
    expect(await find("loop", loop.id.slice(-6))).toEqual([loop.id]);
    expect(await find("run", run.id.slice(-6))).toEqual([run.id]);
    expect(await find("run", run.id.slice(0, 20))).toEqual([run.id]);
    expect(await find("run", "nothing")).toEqual([]);
  });

  test("what is being typed is offered: loops by name, runs newest first, sorted out by what they are", async () => {
    const stage = await openStage(open);
    for (const name of ["nightly b", "nightly:a", "nightlyé", "other"]) await addLoop(stage, every(60_000), {}, name);
    const [paused, archived] = [
      await addLoop(stage, every(60_000), {}, "nightly-paused"),
      await addLoop(stage, every(60_000), {}, "nightly-archived"),
    ];
    await stage.store.loops.pause({ loopId: paused.id, reason: null, limits });
    await stage.store.loops.archive({ loopId: archived.id, limits });
    const offered = async (input: Partial<Parameters<typeof stage.store.things.offer>[0]>) =>
      stage.store.things.offer({ kind: "loop", prefix: "", which: "any", among: 20, limit: 10, ...input });
    const names = async (input: Parameters<typeof offered>[0]) => (await offered(input)).map((thing) => thing.name);
    expect(await names({ prefix: "nightly" })).toEqual(["nightly b", "nightly-paused", "nightly:a", "nightlyé"]);
    expect(await names({ prefix: "nightly", which: "paused" })).toEqual(["nightly-paused"]);
    expect(await names({ prefix: "nightly", which: "active" })).toEqual(["nightly b", "nightly:a", "nightlyé"]);
    expect(await names({ which: "archived" })).toEqual(["nightly-archived"]);
    expect(await names({ prefix: "night", limit: 1 })).toEqual(["nightly b"]);
    // Looked at are the first two names only.
    expect(await names({ which: "paused", among: 1 })).toEqual([]);
    expect(await names({ prefix: "x" })).toEqual([]);

    const { run: older } = await stage.store.runs.add(draft(stage));
    stage.setNow(stage.now() + 1);
    const { run: newer } = await stage.store.runs.add(draft(stage));
    const ids = async (input: Parameters<typeof offered>[0]) =>
      (await offered({ kind: "run", ...input })).map((thing) => thing.id);
    expect(await ids({})).toEqual([newer.id, older.id]);
    expect(await ids({ prefix: older.id })).toEqual([older.id]);
    await stage.store.runs.cancel({ runId: newer.id, by: "person", reason: "", limits });
    expect(await ids({ which: "live" })).toEqual([older.id]);
    expect(await ids({ which: "ended" })).toEqual([newer.id]);
    expect(await offered({ kind: "run", which: "ended" })).toMatchObject([{ name: "true", status: "cancelled" }]);
  });
});
