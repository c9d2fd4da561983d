/** Statements take what stands as they ask for it, and leave what does not: each test has something of both. */
import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { Store } from "../core/ports.ts";
import type { Assignment, LoopRecord } from "../core/records.ts";
import type { Outcome } from "../core/run.ts";
import { agentTarget } from "../core/target.ts";
import { forEachStore, type OpenTestStore, type StoreClock } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql, type Sql } from "./sql.ts";

const T0 = Date.UTC(2026, 0, 1);
const HOST = "host_00000000000000000000000001";
const AWAY = "host_00000000000000000000000002";

interface Stage {
  readonly store: Store;
  readonly clock: StoreClock;
  rows<Row>(query: Sql): Promise<readonly Row[]>;
  run(...queries: readonly Sql[]): Promise<readonly number[]>;
}

const join = (store: Store, hostId: string) =>
  store.hosts.join({
    hostId,
    name: hostId,
    machineId: "m",
    bootId: "b",
    version: "0",
    leaseMs: limits.leaseMs,
    commandCap: 50,
    agentCap: 50,
  });

async function openStage(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const { store: ported, clock, rows, run } = await open();
  clock.set(T0);
  const store = asStore(ported);
  await join(store, HOST);
  return { store, clock, rows, run };
}

const agent = agentTarget.parse({
  kind: "agent",
  provider: "claude",
  prompt: { digest: "a".repeat(64), bytes: 1, head: "p" },
  account: "work",
  cwd: "/repo",
});

async function addRun(
  { store, clock }: Stage,
  hostPin = HOST,
  target: Parameters<typeof runDraft>[0] = commandOf(["true"]),
) {
  clock.advance(1);
  const { run } = await store.runs.add(runDraft(target, { policy: runPolicy.parse({ attempts: 9 }), hostPin }));
  return run.id;
}

const pass = ({ store }: Stage, hostId = HOST) => store.admission.pass({ hostId, limits });
const at = ({ attempt }: Assignment) => ({ attemptId: attempt.id, token: attempt.token });

async function granted(stage: Stage): Promise<Assignment> {
  const [one] = (await pass(stage)).mine;
  if (one === undefined) throw new Error("nothing was let in");
  return one;
}

/** Ends an attempt that was not started. */
const settle = ({ store }: Stage, one: Assignment, over: Partial<Outcome> = {}) =>
  store.attempts.settle({ ...at(one), outcome: outcomeOf({ kind: "never_started", class: "spawn", ...over }), limits });

const cancel = ({ store }: Stage, runId: string) => store.runs.cancel({ runId, by: "p", reason: "r", limits });

const leaseOf = async ({ rows }: Stage, hostId: string) =>
  (await rows<{ lease_until: number }>(sql`select lease_until from hosts where id = ${hostId}`))[0]?.lease_until;

const account = ({ store }: Stage, cap: number | null = null) =>
  store.accounts.add({ provider: "claude", name: "work", home: "/h", env: {}, secrets: {}, cap });

forEachStore("what stands as it is asked for, in admission", (open) => {
  test("what is over is in no queue", async () => {
    const stage = await openStage(open);
    const { incarnation } = await join(stage.store, AWAY);
    await cancel(stage, await addRun(stage, AWAY));
    await stage.store.hosts.leave({ hostId: AWAY, incarnation, backBy: null });
    // Nothing waits: nothing is refused.
    expect(await pass(stage)).toMatchObject({ granted: 0, refused: [] });
    // Behind the queue that is served there is none.
    await addRun(stage);
    expect(await pass(stage)).toMatchObject({ granted: 1, refused: [] });
  });

  test("of more queues than are looked at, those come first whose first waiting step has waited longest", async () => {
    const stage = await openStage(open);
    const [late, ...hosts] = Array.from({ length: 51 }, (_, n) => `host_${String(n + 100).padStart(26, "0")}`);
    if (late === undefined) throw new Error("there are hosts");
    for (const host of [late, ...hosts]) await join(stage.store, host);
    // The oldest of all is over.
    await cancel(stage, await addRun(stage, late));
    for (const host of hosts) await addRun(stage, host);
    const last = await addRun(stage, late);
    expect(await pass(stage)).toMatchObject({ granted: 50 });
    expect((await stage.store.runs.get({ runId: last }))?.run.status).toBe("queued");
  });

  test("a pass that lets something in shows that its own host lives, where that is not known yet", async () => {
    const stage = await openStage(open);
    await join(stage.store, AWAY);
    await addRun(stage);
    await pass(stage);
    expect(await leaseOf(stage, HOST)).toBe(T0 + limits.leaseMs);
    stage.clock.set(T0 + limits.leaseMs);
    await addRun(stage);
    await pass(stage);
    expect(await leaseOf(stage, HOST)).toBe(stage.clock.now() + limits.leaseMs);
    expect(await leaseOf(stage, AWAY)).toBe(T0 + limits.leaseMs);
  });

  test("what is let in on another host is that host's to start", async () => {
    const stage = await openStage(open);
    await join(stage.store, AWAY);
    await addRun(stage, AWAY);
    expect(await pass(stage)).toMatchObject({ granted: 1, mine: [] });
    expect(await stage.store.attempts.ofHost({ hostId: HOST })).toEqual([]);
    const [there] = await stage.store.attempts.ofHost({ hostId: AWAY });
    if (there === undefined) throw new Error("it was let in");
    await settle(stage, there);
    expect(await stage.store.attempts.ofHost({ hostId: AWAY })).toEqual([]);
  });

  test("only what is in a queue is told why it waits", async () => {
    const stage = await openStage(open);
    const explain = (stepId: string) => stage.store.admission.explain({ stepId });
    await addRun(stage);
    const { attempt } = await granted(stage);
    const runId = await addRun(stage);
    expect(await explain("step_00000000000000000000000001")).toBeNull();
    expect(await explain(attempt.stepId)).toBeNull();
    const stepId = (await stage.store.runs.get({ runId }))?.steps[0]?.id ?? "";
    expect(await explain(stepId)).toEqual({ refusal: null, ahead: 0 });
    await stage.run(sql`delete from cap_sets`);
    expect(await explain(stepId)).toBeNull();
  });
});

forEachStore("what stands as it is asked for, of accounts", (open) => {
  test("an account's own cap takes the place of one that was there before it", async () => {
    const stage = await openStage(open);
    await stage.store.admission.setLimit({ resource: "account:claude:work", limit: 1 });
    await account(stage, 3);
    expect(await stage.store.accounts.get({ accountId: "claude:work" })).toMatchObject({ cap: 3 });
  });

  test("what is over is not at work under it any more", async () => {
    const stage = await openStage(open);
    await account(stage);
    await addRun(stage, HOST, agent);
    const one = await granted(stage);
    expect(await stage.store.accounts.get({ accountId: "claude:work" })).toMatchObject({ active: 1 });
    await settle(stage, one);
    expect(await stage.store.accounts.get({ accountId: "claude:work" })).toMatchObject({ active: 0 });
  });
});

forEachStore("what stands as it is asked for, of attempts", (open) => {
  type Write = (store: Store, of: { attemptId: string; token: number }) => Promise<unknown>;
  const start: Write = (store, of) => store.attempts.start({ ...of, bootId: "b", folder: "f", awakeAt: 0 });
  const run: Write = (store, of) => store.attempts.run({ ...of, pid: 1, pidStarted: "1", startedAt: 1 });
  const adopt = { hostId: HOST, incarnation: 2, leaseMs: 1 };

  test.each<[string, readonly Write[], Write]>([
    ["start", [], start],
    ["run", [start], run],
    ["session", [start], (store, of) => store.attempts.session({ ...of, sessionId: "s" })],
    ["ending", [start], (store, of) => store.attempts.ending({ ...of, by: "timeout" })],
    ["adopt", [start, run], async (store, of) => (await store.attempts.adopt({ ...of, ...adopt })).answer],
    [
      "settle",
      [start, run],
      async (store, of) => (await store.attempts.settle({ ...of, outcome: outcomeOf(), limits })).answer,
    ],
  ])("B-062 %s needs the token of its step and that of its attempt", async (_, before, write) => {
    const stage = await openStage(open);
    for (const taken of [sql`update steps set token = token + 1`, sql`update attempts set token = token + 1`]) {
      await addRun(stage);
      const of = at(await granted(stage));
      for (const one of before) await one(stage.store, of);
      await stage.run(taken);
      expect(await write(stage.store, of)).toBe("superseded");
    }
  });

  test("what went before an attempt that is at work is the one that ended before it", async () => {
    const stage = await openStage(open);
    await account(stage);
    await addRun(stage, HOST, agent);
    const first = at(await granted(stage));
    await stage.store.attempts.start({ ...first, bootId: "b", folder: "first", awakeAt: 0 });
    const outcome = outcomeOf({ kind: "failed", class: "network", exitStatus: 1 });
    await stage.store.attempts.settle({ ...first, outcome, limits });
    stage.clock.advance(600_000);
    await stage.store.steps.wake({ limit: 9 });
    await stage.store.attempts.start({ ...at(await granted(stage)), bootId: "b", folder: "second", awakeAt: 0 });
    expect(await stage.store.attempts.ofHost({ hostId: HOST })).toMatchObject([{ before: { folder: "first" } }]);
  });

  test("a takeover takes one attempt of a silent host, and none that is its own or whose lease goes on", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    const folders = ["/one", "/other"];
    for (const cwd of folders) await addRun(stage, HOST, commandOf(["true"], { cwd }));
    const { mine } = await pass(stage);
    const [first, second] = mine.map(({ attempt }) => attempt).toSorted((a, b) => (a.id < b.id ? -1 : 1));
    if (first === undefined || second === undefined) throw new Error("both were let in");
    clock.advance(limits.takeoverMs + 2 * limits.leaseMs);
    await join(store, AWAY);
    const take = (hostId: string) => store.attempts.takeOver({ hostId, limits });
    expect(await take(HOST)).toEqual({ taken: 0 });
    await stage.run(sql`update attempts set lease_until = ${clock.now() + 1} where id = ${first.id}`);
    expect(await take(AWAY)).toEqual({ taken: 1 });
    expect(await take(AWAY)).toEqual({ taken: 0 });
    expect(await stage.rows(sql`select token from steps where id = ${first.stepId}`)).toEqual([{ token: first.token }]);
    const among = await store.attempts.endedAmong({ attemptIds: [first.id, second.id] });
    expect(among.map(({ attemptId }) => attemptId)).toEqual([second.id]);
  });

  test("an attempt's end lets its own session go, and tells of its own tree alone", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    await account(stage);
    const begin = (runId: string) =>
      store.worktrees.begin({ runId, hostId: HOST, cwd: "/repo", path: `/trees/${runId}` });
    const earlier = await addRun(stage, HOST, agent);
    await begin(earlier);
    const kept = JSON.stringify({ headMoved: true, paths: ["earlier"], count: 1 });
    await stage.run(sql`update worktrees set escaped = ${kept}`);
    await cancel(stage, earlier);
    const runId = await addRun(stage, HOST, agent);
    await begin(runId);
    const one = at(await granted(stage));
    await store.attempts.start({ ...one, bootId: "b", folder: "f", awakeAt: 0, sessionId: "s" });
    await stage.run(
      sql`insert into sessions (provider, account_id, session_id, owner_step_id, live_attempt_id, created_at)
          values ('claude', 'claude:work', 'another', 's', ${one.attemptId}, 1), ('claude', 'claude:other', 's', 's', ${one.attemptId}, 1)`,
    );
    const escaped = { headMoved: false, paths: ["a"], count: 1 };
    const outcome = outcomeOf({ kind: "failed", class: "exit", exitStatus: 1, escaped });
    await store.attempts.settle({ ...one, outcome, limits });
    const live = sql`select account_id, session_id from sessions where live_attempt_id is not null order by account_id`;
    expect(await stage.rows(live)).toEqual([
      { account_id: "claude:other", session_id: "s" },
      { account_id: "claude:work", session_id: "another" },
    ]);
    expect(await store.worktrees.get({ runId })).toMatchObject({ escaped });
    expect(await stage.rows(sql`select escaped from worktrees where run_id = ${earlier}`)).toEqual([{ escaped: kept }]);
  });

  test("a label that is said twice is kept once", async () => {
    const stage = await openStage(open);
    const policy = runPolicy.parse({ labels: ["a", "a"] });
    const { run } = await stage.store.runs.add(runDraft(commandOf(["true"]), { policy, hostPin: HOST }));
    expect(await stage.rows(sql`select run_id from run_labels`)).toEqual([{ run_id: run.id }]);
  });

  test("when the next step's time comes is told, past those that wait for something else", async () => {
    const stage = await openStage(open);
    for (let nth = 0; nth < 3; nth++) {
      await addRun(stage);
      await settle(stage, await granted(stage));
    }
    const [first, second, third] = (await stage.rows<{ id: string }>(sql`select id from steps order by id`)).map(
      ({ id }) => id,
    );
    const now = stage.clock.now();
    // For a person; for a time; over, with a time that came before.
    await stage.run(
      sql`update steps set wake_at = null, reason = 'account' where id = ${first ?? ""}`,
      sql`update steps set wake_at = ${now + 5_000} where id = ${second ?? ""}`,
      sql`update steps set wake_at = ${now + 1_000}, status = 'failed', finished_at = 1 where id = ${third ?? ""}`,
    );
    await addRun(stage);
    await settle(stage, await granted(stage));
    await stage.run(
      sql`update steps set wake_at = ${now} where id not in (${first ?? ""}, ${second ?? ""}, ${third ?? ""})`,
    );
    expect(await stage.store.steps.wake({ limit: 9 })).toMatchObject({ woken: 1, wakeAt: now + 5_000 });
  });

  test("what was used in a session counts for its own account", async () => {
    const stage = await openStage(open);
    await account(stage);
    await stage.store.accounts.add({ provider: "claude", name: "other", home: "/o", env: {}, secrets: {}, cap: null });
    const used = async (name: string, outputTokens: number) => {
      const runId = await addRun(stage, HOST, { ...agent, account: name });
      const one = at(await granted(stage));
      await stage.store.attempts.start({ ...one, bootId: "b", folder: "f", awakeAt: 0, sessionId: "s" });
      await stage.store.attempts.run({ ...one, pid: 1, pidStarted: "1", startedAt: 1 });
      const usage = { inputTokens: 0, cachedInputTokens: 0, outputTokens, costUsd: null, of: "session" as const };
      const said = { sessionId: "s", usage, resetAt: null, resetSource: null, httpStatus: null, refusedTools: [] };
      await stage.store.attempts.settle({ ...one, outcome: outcomeOf({ agent: said }), limits });
      const [attempt] = (await stage.store.runs.get({ runId }))?.attempts ?? [];
      return (JSON.parse(attempt?.usageTotal ?? "null") as typeof usage | null)?.outputTokens;
    };
    expect(await used("other", 100)).toBe(100);
    expect(await used("work", 130)).toBe(130);
  });

  test("a session is kept once, and one whose attempt is over is free, whatever it says", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    await account(stage);
    await addRun(stage, HOST, agent);
    const first = at(await granted(stage));
    await store.attempts.start({ ...first, bootId: "b", folder: "first", awakeAt: 0 });
    for (let nth = 0; nth < 2; nth++) expect(await store.attempts.session({ ...first, sessionId: "s" })).toBe("done");
    expect(await stage.rows(sql`select type from events where type = 'attempt.session'`)).toHaveLength(1);
    await addRun(stage, HOST, { ...agent, cwd: "/other" });
    const second = at(await granted(stage));
    const start = { ...second, bootId: "b", folder: "second", awakeAt: 0, sessionId: "s" };
    expect(await store.attempts.start(start)).toBe("session_busy");
    await store.attempts.settle({
      ...first,
      outcome: outcomeOf({ kind: "failed", class: "exit", exitStatus: 1 }),
      limits,
    });
    await stage.run(sql`update sessions set live_attempt_id = ${first.attemptId}`);
    expect(await store.attempts.start(start)).toBe("done");
  });
});

forEachStore("what stands as it is asked for, of loops", (open) => {
  const addLoop = async ({ store }: Stage, name: string, policy: object = {}) => {
    const draft = {
      name,
      schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 } as const,
      target: commandOf(["true"]),
      policy: loopPolicy.parse(policy),
      hostPin: HOST,
      managedBy: null,
    };
    return (await store.loops.add({ draft, limits })).id;
  };
  const plan = async ({ store, clock }: Stage) => {
    clock.advance(60_000);
    return store.loops.planDue({ cause: "late", limits });
  };

  test("a loop that is not there is said not to be, whatever is asked of it", async () => {
    const { store } = await openStage(open);
    const loopId = "loop_00000000000000000000000001";
    for (const ask of [
      () => store.loops.edit({ loopId, change: {}, limits }),
      () => store.loops.rename({ loopId, name: "n" }),
      () => store.loops.pause({ loopId, reason: null, limits }),
      () => store.loops.remove({ loopId }),
    ])
      await expect(ask()).rejects.toMatchObject({ kind: "not_found", code: "loop_not_found" });
  });

  test("a slot that ends like the one before joins that row alone", async () => {
    const stage = await openStage(open);
    const loopId = await addLoop(stage, "one", { overlap: "skip" });
    for (let nth = 0; nth < 2; nth++) await plan(stage);
    // One that ends where the last does, as no plan makes it.
    await stage.run(
      sql`insert into slots (loop_id, at, until_at, count, outcome, reason, late_ms, created_at)
          select loop_id, 1, until_at, 1, 'missed', 'down', 0, 1 from slots where loop_id = ${loopId} order by at desc limit 1`,
    );
    await plan(stage);
    const rows = await stage.rows<{ at: number; count: number }>(
      sql`select at, count from slots where loop_id = ${loopId} order by at`,
    );
    expect(rows.map(({ count }) => count)).toEqual([1, 1, 2]);
  });

  test("a name is free once its loop is put away, and taken while it is not", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const taken = { kind: "conflict", code: "name_taken" };
    const first = await addLoop(stage, "one");
    await expect(addLoop(stage, "one")).rejects.toMatchObject(taken);
    await store.loops.archive({ loopId: first, limits });
    const second = await addLoop(stage, "one");
    await expect(store.loops.unarchive({ loopId: first, limits })).rejects.toMatchObject(taken);
    await store.loops.archive({ loopId: second, limits });
    const { schedule, target, policy } = (await store.loops.get({ loopId: first })) as LoopRecord;
    const draft = { name: "one", schedule, target, policy, hostPin: HOST, managedBy: null };
    expect(await store.loops.addPaused({ drafts: [draft], reason: "r", limits })).toHaveLength(1);
    const other = await addLoop(stage, "other");
    await expect(store.loops.rename({ loopId: other, name: "one" })).rejects.toMatchObject(taken);
    expect(await store.things.resolve({ kind: "loop", ref: "one", limit: 9 })).toHaveLength(1);
  });

  test("a loop that is put away is not changed, and putting it away or bringing it back twice is once", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const loopId = await addLoop(stage, "one");
    for (let nth = 0; nth < 2; nth++) expect((await store.loops.unarchive({ loopId, limits })).archivedAt).toBeNull();
    for (let nth = 0; nth < 2; nth++) await store.loops.archive({ loopId, limits });
    for (const ask of [
      () => store.loops.edit({ loopId, change: {}, limits }),
      () => store.loops.rename({ loopId, name: "n" }),
      () => store.loops.pause({ loopId, reason: null, limits }),
      () => store.loops.resume({ loopId, limits }),
      () => store.loops.runNow({ loopId, by: "p", parentRunId: null, limits }),
    ])
      await expect(ask()).rejects.toMatchObject({ kind: "conflict", code: "archived" });
    expect(await store.loops.get({ loopId })).toMatchObject({ eventNumber: 2 });
  });

  test("a pause or a resume of what is so already changes nothing; what is over is neither paused nor resumed", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    const loopId = await addLoop(stage, "one", { expiresAt: T0 + 90_000 });
    for (let nth = 0; nth < 2; nth++)
      expect(await store.loops.resume({ loopId, limits })).toMatchObject({ eventNumber: 1 });
    for (let nth = 0; nth < 2; nth++)
      expect(await store.loops.pause({ loopId, reason: null, limits })).toMatchObject({ eventNumber: 2 });
    clock.advance(120_000);
    await expect(store.loops.resume({ loopId, limits })).rejects.toMatchObject({ code: "expired" });
    const policy = loopPolicy.parse({ expiresAt: T0 + 100_000 });
    await expect(store.loops.edit({ loopId, change: { policy }, limits })).rejects.toMatchObject({
      code: "already_expired",
    });
    await expect(store.loops.edit({ loopId, change: {}, revision: 7, limits })).rejects.toMatchObject({
      code: "changed_meanwhile",
    });
    await stage.run(sql`update loops set status = 'finished'`);
    await expect(store.loops.pause({ loopId, reason: null, limits })).rejects.toMatchObject({ code: "not_active" });
    await expect(store.loops.resume({ loopId, limits })).rejects.toMatchObject({ code: "finished" });
    expect(await store.loops.preview({ loopId: "loop_none", cause: "late", limits })).toBeNull();
  });

  test("a loop with a run that has not ended is not removed", async () => {
    const stage = await openStage(open);
    const loopId = await addLoop(stage, "one");
    await plan(stage);
    await expect(stage.store.loops.remove({ loopId })).rejects.toMatchObject({ code: "loop_busy" });
  });

  test("an edit takes its own labels away, not those of a name-sake or of another name", async () => {
    const stage = await openStage(open);
    const first = await addLoop(stage, "one", { labels: ["x"] });
    await stage.store.loops.archive({ loopId: first, limits });
    const second = await addLoop(stage, "one", { labels: ["x"] });
    await stage.run(sql`insert into loop_labels (label, name, loop_id) values ('x', 'another', ${second})`);
    await stage.store.loops.edit({ loopId: second, change: { policy: loopPolicy.parse({}) }, limits });
    const left = await stage.rows<{ name: string; loop_id: string }>(
      sql`select name, loop_id from loop_labels order by name`,
    );
    expect(left).toEqual([
      { name: "another", loop_id: second },
      { name: "one", loop_id: first },
    ]);
  });

  test("a pause holds what is due and has not started of that loop, and nothing else", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const loopId = await addLoop(stage, "one", { overlap: "allow", attempts: 9 });
    await addLoop(stage, "other");
    await store.loops.runNow({ loopId, by: "p", parentRunId: null, limits });
    for (let nth = 0; nth < 5; nth++) await plan(stage);
    const runs = await stage.rows<{ id: string; origin_kind: string }>(
      sql`select id, origin_kind from runs where loop_id = ${loopId} order by id`,
    );
    const [over, turn, tried, waiting, due] = runs.filter((run) => run.origin_kind === "slot").map(({ id }) => id);
    if (over === undefined || turn === undefined || tried === undefined || waiting === undefined)
      throw new Error("there are five");
    // As no operation leaves them: each lacks one thing that a run has which is held.
    await stage.run(
      sql`update runs set finished_at = 1, status = 'failed' where id = ${over}`,
      sql`update runs set waits_turn = 1, reason = 'turn' where id = ${turn}`,
      sql`update steps set attempts_made = 1 where run_id = ${tried}`,
      sql`update steps set status = 'waiting', reason = 'retry' where run_id = ${waiting}`,
    );
    const look = () =>
      stage.rows<{ id: string }>(
        sql`select r.id as id, r.status as status, r.reason as reason, r.waits_turn as turn, s.status as step
            from runs r join steps s on s.run_id = r.id order by r.id`,
      );
    const before = await look();
    await store.loops.pause({ loopId, reason: null, limits });
    const changed = (await look()).filter((row, nth) => JSON.stringify(row) !== JSON.stringify(before[nth]));
    expect(changed).toEqual([{ id: due, status: "queued", reason: "paused", turn: 1, step: "pending" }]);
  });

  test("a loop that comes back lets its first held run in where none is at work, whatever is over", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const loopId = await addLoop(stage, "one", { overlap: "queue" });
    for (let nth = 0; nth < 4; nth++) {
      await plan(stage);
      const live = await stage.rows<{ id: string }>(sql`select id from runs where finished_at is null`);
      if (nth < 2) await cancel(stage, live[0]?.id ?? "");
    }
    await store.loops.pause({ loopId, reason: null, limits });
    const [over, , held, second] = (
      await stage.rows<{ id: string }>(sql`select id from runs where loop_id = ${loopId} order by slot_at`)
    ).map(({ id }) => id);
    if (over === undefined || held === undefined || second === undefined) throw new Error("there are four");
    // What no operation leaves: one that is over and says that it waits, and a step beside the one that waits.
    await stage.run(
      sql`update runs set waits_turn = 1 where id = ${over}`,
      sql`update steps set status = 'pending' where run_id = ${over}`,
      sql`insert into steps (id, run_id, key, kind, status, cap_key, turn_at, max_attempts, created_at)
          select 'beside', run_id, 'a', kind, 'succeeded', cap_key, turn_at, max_attempts, created_at from steps where run_id = ${held}`,
    );
    await store.loops.resume({ loopId, limits });
    const rows = await stage.rows<{ run_id: string; key: string; status: string }>(
      sql`select run_id, key, status from steps order by run_id, key`,
    );
    const statusOf = (id: string, key = "main") => rows.find((row) => row.run_id === id && row.key === key)?.status;
    expect([statusOf(over), statusOf(held), statusOf(second)]).toEqual(["pending", "ready", "pending"]);
  });

  test("the end of a run lets in the step of the next one that waits", async () => {
    const stage = await openStage(open);
    await addLoop(stage, "one", { overlap: "queue" });
    await plan(stage);
    const first = await granted(stage);
    await plan(stage);
    // As no operation leaves it: a step that ended, before the one that waits.
    await stage.run(
      sql`insert into steps (id, run_id, key, kind, status, cap_key, turn_at, max_attempts, created_at)
          select 'beside', run_id, 'a', kind, 'succeeded', cap_key, turn_at, max_attempts, created_at from steps where status = 'pending'`,
    );
    await stage.store.attempts.start({ ...at(first), bootId: "b", folder: "f", awakeAt: 0 });
    await stage.store.attempts.settle({ ...at(first), outcome: outcomeOf(), limits });
    expect(await stage.rows(sql`select key, status from steps where run_id <> ${first.run.id} order by key`)).toEqual([
      { key: "a", status: "succeeded" },
      { key: "main", status: "ready" },
    ]);
  });

  test("a loop that comes back and lets all in leaves the steps of what is at work", async () => {
    const stage = await openStage(open);
    const loopId = await addLoop(stage, "one", { overlap: "allow" });
    await stage.store.loops.runNow({ loopId, by: "p", parentRunId: null, limits });
    await stage.run(sql`update steps set status = 'pending'`);
    await stage.store.loops.pause({ loopId, reason: null, limits });
    await stage.store.loops.resume({ loopId, limits });
    expect(await stage.rows(sql`select status from steps`)).toEqual([{ status: "pending" }]);
  });

  test("by hand a loop takes its own slot, and a try of its own that waits for its pause", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    const loopId = await addLoop(stage, "one", { overlap: "allow", attempts: 9 });
    const other = await addLoop(stage, "other");
    const byHand = async () => (await store.loops.runNow({ loopId, by: "p", parentRunId: null, limits })).source;
    const planned = (await store.loops.get({ loopId: other }))?.plannedUntil;
    clock.advance(60_000);
    expect(await byHand()).toBe("due_slot");
    expect((await store.loops.get({ loopId: other }))?.plannedUntil).toBe(planned);
    // At work with the reason of one that waits, as no operation leaves it; then waiting for something else.
    await stage.run(sql`update steps set reason = 'retry'`);
    expect(await byHand()).toBe("ad_hoc");
    await stage.run(sql`update steps set status = 'waiting', reason = 'disk'`);
    expect(await byHand()).toBe("ad_hoc");
  });

  test("loops of a label are sorted out by the file that they were read from", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const one = await addLoop(stage, "one", { labels: ["x"] });
    await addLoop(stage, "other", { labels: ["x"] });
    await stage.run(sql`update loops set managed_by = '/f' where id = ${one}`);
    const { items } = await store.loops.list({ limit: 9, cursor: null, archived: false, label: "x", managedBy: "/f" });
    expect(items.map(({ id }) => id)).toEqual([one]);
  });
});

forEachStore("what stands as it is asked for, of declarations, history and prompts", (open) => {
  const draftOf = (name: string, managedBy: string) => ({
    name,
    schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 } as const,
    target: commandOf(["true"]),
    policy: loopPolicy.parse({}),
    hostPin: HOST,
    managedBy,
  });
  const nothing = {
    loops: { add: [], change: [], adopt: [], archive: [] },
    accounts: { add: [], change: [], remove: [] },
  };

  test("what was put away is declared by nobody, and other files declare for themselves", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const made: LoopRecord[] = [];
    for (const [name, file] of [
      ["a", "/a"],
      ["b", "/b"],
      ["c", "/b"],
    ] as const)
      made.push(await store.loops.add({ draft: draftOf(name, file), limits }));
    const [, kept, away] = made;
    if (kept === undefined || away === undefined) throw new Error("they were made");
    await store.loops.archive({ loopId: away.id, limits });
    expect((await store.declared.loops({ names: ["b", "c"] })).map(({ name }) => name)).toEqual(["b"]);
    expect((await store.declared.owned({ from: "/b", to: "/c" })).map(({ name }) => name)).toEqual(["b"]);
    const seen = [{ loopId: away.id, name: "c", revision: away.revision }];
    const changes = { seen, ...nothing, limits: { set: [], remove: [] } };
    await expect(store.declared.apply({ changes, limits })).rejects.toMatchObject({ code: "changed_meanwhile" });
  });

  test("a limit that a file declares takes the place of the one that was there", async () => {
    const { store } = await openStage(open);
    await store.admission.setLimit({ resource: "folder:/x", limit: 1 });
    const set = [{ resource: "folder:/x", limit: 2, before: 1, managedBy: "/f" }];
    await store.declared.apply({ changes: { seen: [], ...nothing, limits: { set, remove: [] } }, limits });
    expect((await store.declared.rest({})).limits).toMatchObject([
      { resource: "folder:/x", limit: 2, managedBy: "/f" },
    ]);
  });

  test.each(["interval", "dynamic"] as const)(
    "the slots of an %s loop are folded, not those of another",
    async (kind) => {
      const stage = await openStage(open);
      const { store, clock } = stage;
      const schedule =
        kind === "interval"
          ? ({ kind, everyMs: 60_000, anchorAt: 0 } as const)
          : ({ kind, firstAt: T0 + 60_000 } as const);
      const { id } = await store.loops.add({ draft: { ...draftOf("one", "/f"), schedule }, limits });
      for (let nth = 0; nth < 2; nth++) {
        clock.advance(60_000);
        if (kind === "dynamic")
          await stage.run(sql`update loops set next_at = ${clock.now()}, wake_at = ${clock.now()}`);
        await store.loops.planDue({ cause: "late", limits });
        const one = at(await granted(stage));
        await store.attempts.start({ ...one, bootId: "b", folder: "f", awakeAt: 0 });
        await store.attempts.run({ ...one, pid: 1, pidStarted: "1", startedAt: clock.now() });
        await store.attempts.settle({ ...one, outcome: outcomeOf(), limits });
      }
      await stage.run(
        sql`insert into slots (loop_id, at, until_at, count, outcome, late_ms, run_id, created_at)
          select 'another', at, until_at, count, 'missed', 0, 'r', 1 from slots`,
      );
      const others = () => stage.rows(sql`select * from slots where loop_id = 'another' order by at`);
      const before = await others();
      expect(before).toHaveLength(2);
      clock.advance(86_400_000);
      expect(await store.history.prune({ ageMs: 1_000, keep: 0, limit: 9, after: null })).toMatchObject({ runs: 2 });
      expect(await stage.rows(sql`select at from slots where loop_id = ${id}`)).toHaveLength(
        kind === "interval" ? 1 : 0,
      );
      expect(await others()).toEqual(before);
    },
  );

  test("a run that is removed takes its own labels along", async () => {
    const stage = await openStage(open);
    const policy = runPolicy.parse({ labels: ["x"] });
    const { run } = await stage.store.runs.add(runDraft(commandOf(["true"]), { policy, hostPin: HOST }));
    await cancel(stage, run.id);
    await stage.run(
      sql`insert into run_labels (label, queued_at, run_id) values ('x', 1, ${run.id}), ('x', ${run.queuedAt}, 'another')`,
    );
    stage.clock.advance(86_400_000);
    expect(await stage.store.history.prune({ ageMs: 1_000, keep: 0, limit: 9, after: null })).toMatchObject({
      runs: 1,
    });
    const left = await stage.rows(sql`select queued_at, run_id from run_labels order by queued_at`);
    expect(left).toEqual([
      { queued_at: 1, run_id: run.id },
      { queued_at: run.queuedAt, run_id: "another" },
    ]);
  });

  test("a prompt that is needed for long is not looked at sooner because it is put again", async () => {
    const { store, rows, run } = await openStage(open);
    const prompt = { digest: "a".repeat(64), content: "p", bytes: 1 };
    await store.prompts.put(prompt);
    const far = T0 + 99 * 86_400_000;
    await run(sql`update prompt_looks set look_at = ${far}`);
    await store.prompts.put(prompt);
    expect(await rows(sql`select look_at from prompt_looks`)).toEqual([{ look_at: far }]);
  });

  test("slots since a time are those that reach into it; missed ones of what was put away are not told", async () => {
    const { store, run } = await openStage(open);
    const { id: loopId } = await store.loops.add({ draft: draftOf("one", "/f"), limits });
    const slot = (at: number, untilAt: number) =>
      sql`insert into slots (loop_id, at, until_at, count, outcome, reason, late_ms, created_at)
          values (${loopId}, ${at}, ${untilAt}, 1, 'missed', 'down', 0, 1)`;
    await run(slot(T0, T0 + 10), slot(T0 + 50, T0 + 60));
    const since = async (at: number) =>
      (await store.slots.list({ loopId, limit: 9, cursor: null, since: at })).items.map((one) => one.at - T0);
    expect(await since(T0 + 5)).toEqual([50, 0]);
    expect(await since(T0 + 20)).toEqual([50]);
    expect(await store.slots.missed({ since: T0, limit: 9 })).toHaveLength(2);
    await store.loops.archive({ loopId, limits });
    expect(await store.slots.missed({ since: T0, limit: 9 })).toEqual([]);
  });

  test("a restore ends what was under way, run by run, and leaves what had ended", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    await addRun(stage);
    await settle(stage, await granted(stage));
    stage.clock.advance(600_000);
    await store.steps.wake({ limit: 9 });
    const first = await granted(stage);
    await addRun(stage);
    const second = await granted(stage);
    const earlier = () => stage.rows(sql`select * from attempts where run_id = ${first.run.id} and number = 1`);
    const before = await earlier();
    expect(await store.restores.endLive({ limit: 1, limits })).toMatchObject({ ended: 1, atWork: 1 });
    expect(await earlier()).toEqual(before);
    const live = await stage.rows(sql`select id from attempts where finished_at is null`);
    expect(live).toEqual([{ id: second.attempt.id }]);
    const claims = await stage.rows(sql`select distinct attempt_id from claims`);
    expect(claims).toEqual([{ attempt_id: second.attempt.id }]);
    // One that is down already, with a lease that goes on.
    const { incarnation } = await join(store, AWAY);
    await store.hosts.leave({ hostId: AWAY, incarnation, backBy: null });
    await store.restores.standDown({ hostId: null });
    expect(await stage.rows(sql`select status, lease_until from hosts where id = ${AWAY}`)).toEqual([
      { status: "down", lease_until: 0 },
    ]);
  });
});

forEachStore("what stands as it is asked for, of runs", (open) => {
  const missing = { kind: "not_found", code: "run_not_found" };
  const none = "run_00000000000000000000000001";
  const add = ({ store }: Stage, over: Partial<Parameters<Store["runs"]["add"]>[0]> = {}) =>
    store.runs.add({ ...runDraft(commandOf(["true"]), { hostPin: HOST }), ...over });

  test("a run that is not there is said not to be", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    await expect(cancel(stage, none)).rejects.toMatchObject(missing);
    await expect(store.runs.retry({ runId: none, by: "p", limits })).rejects.toMatchObject(missing);
    await expect(add(stage, { parentRunId: none })).rejects.toMatchObject(missing);
    expect(await store.runs.get({ runId: none })).toBeNull();
    await store.runs.hooksDone({ runId: none, note: null });
  });

  test("a run that starts others is refused one too deep, and one too many", async () => {
    const stage = await openStage(open);
    const { run } = await add(stage);
    const child = { parentRunId: run.id };
    await expect(add(stage, { ...child, limits: { ...limits, maxDepth: 0 } })).rejects.toMatchObject({
      code: "too_deep",
    });
    const few = { ...child, limits: { ...limits, maxDescendants: 1 } };
    await add(stage, few);
    await expect(add(stage, few)).rejects.toMatchObject({ code: "too_many_descendants" });
  });

  test("a key belongs to one piece of work", async () => {
    const stage = await openStage(open);
    const { run } = await add(stage, { idempotencyKey: "k" });
    expect(await add(stage, { idempotencyKey: "k" })).toMatchObject({ run: { id: run.id }, repeated: true });
    const other = add(stage, { idempotencyKey: "k", target: commandOf(["false"]) });
    await expect(other).rejects.toMatchObject({ code: "key_taken" });
  });

  test("what goes on is not tried again, nor what has lost its prompt", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const runId = await addRun(stage, HOST, agent);
    const retry = () => store.runs.retry({ runId, by: "p", limits });
    await store.prompts.put({ digest: agent.prompt.digest, content: "p", bytes: 1 });
    await expect(retry()).rejects.toMatchObject({ code: "run_live" });
    await cancel(stage, runId);
    expect(await retry()).toMatchObject({ retryOf: runId });
    await stage.run(sql`update prompts set digest = ${"b".repeat(64)}`);
    await expect(retry()).rejects.toMatchObject({ code: "prompt_gone" });
  });

  test("an end that is asked for twice is asked for once", async () => {
    const stage = await openStage(open);
    await addRun(stage);
    const { run } = await granted(stage);
    for (let nth = 0; nth < 2; nth++) expect(await cancel(stage, run.id)).toBe("requested");
    expect(await stage.rows(sql`select id from events where type = 'run.cancel_requested'`)).toHaveLength(1);
  });

  test("what has ended is not at work any more: its run is cancelled at once", async () => {
    const stage = await openStage(open);
    await addRun(stage);
    const one = await granted(stage);
    await settle(stage, one);
    expect(await cancel(stage, one.run.id)).toBe("cancelled");
    expect(await cancel(stage, one.run.id)).toBe("already_ended");
  });

  test("the end of a run ends its own slot", async () => {
    const stage = await openStage(open);
    const draft = { name: "one", schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 } as const };
    await stage.store.loops.add({
      draft: { ...draft, target: commandOf(["true"]), policy: loopPolicy.parse({}), hostPin: HOST, managedBy: null },
      limits,
    });
    stage.clock.advance(60_000);
    await stage.store.loops.planDue({ cause: "late", limits });
    // Of another loop, and at another time: no plan writes one run twice.
    await stage.run(
      sql`insert into slots (loop_id, at, until_at, count, late_ms, run_id, created_at)
          select 'another', at, until_at, 1, 0, run_id, 1 from slots union all select loop_id, 1, 1, 1, 0, run_id, 1 from slots`,
    );
    await cancel(stage, (await granted(stage)).run.id);
    const [one] = await stage.store.attempts.ofHost({ hostId: HOST });
    if (one === undefined) throw new Error("it is at work");
    await stage.store.attempts.settle({
      ...at(one),
      outcome: outcomeOf({ kind: "cancelled", class: "cancelled", endedBy: "cancel" }),
      limits,
    });
    const rows = await stage.rows<{ at: number; outcome: string | null }>(
      sql`select at, outcome from slots order by loop_id, at`,
    );
    expect(rows.filter(({ outcome }) => outcome !== null)).toEqual([{ at: T0 + 60_000, outcome: "cancelled" }]);
  });

  test("a run is listed once, and one that is over is not among those that wait", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const labelled = { policy: runPolicy.parse({ labels: ["x"] }) };
    const [one, turn, over] = [await add(stage, labelled), await add(stage, labelled), await add(stage, labelled)];
    await stage.run(
      sql`update runs set loop_id = 'loop', reason = 'timer'`,
      sql`update runs set waits_turn = 1 where id = ${turn.run.id}`,
      sql`update runs set finished_at = 1, status = 'failed' where id = ${over.run.id}`,
    );
    const wanted = { limit: 9, cursor: null, since: null };
    const ids = async (filter: {
      loopId: string | null;
      status: "queued" | null;
      label: string | null;
      reason?: string;
    }) => (await store.runs.list({ ...wanted, ...filter })).items.map(({ id }) => id).toSorted();
    const live = [one.run.id, turn.run.id].toSorted();
    expect(await ids({ loopId: "loop", status: "queued", label: null })).toEqual(live);
    expect(await ids({ loopId: null, status: null, label: "x", reason: "timer" })).toEqual(live);
  });

  test("of trees those that are kept are listed alone where that is asked", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const made = { repository: "/repo", branch: "b", base: "1", baseNote: "n" };
    const runIds = [await addRun(stage), await addRun(stage)];
    for (const runId of runIds) {
      await store.worktrees.begin({ runId, hostId: HOST, cwd: "/repo", path: `/trees/${runId}` });
      await store.worktrees.made({ runId, made });
    }
    const [runId = ""] = runIds;
    await store.worktrees.looked({ runId, state: "kept", keptBecause: "dirty", commits: 1, diffStat: "1" });
    const listed = async (kept: boolean) =>
      (await store.worktrees.list({ hostId: null, kept, limit: 9, cursor: null })).items.map((tree) => tree.runId);
    expect(await listed(true)).toEqual([runId]);
    expect((await listed(false)).toSorted()).toEqual(runIds.toSorted());
  });

  test("hooks are done once, and listed for their own host", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const runId = await addRun(stage);
    await addRun(stage, AWAY);
    await stage.run(sql`update runs set hooks_due = '["on_finish"]'`);
    const due = async () => (await store.runs.hooksDue({ hostId: HOST, limit: 9 })).map(({ run }) => run.id);
    expect(await due()).toEqual([runId]);
    for (let nth = 0; nth < 2; nth++) await store.runs.hooksDone({ runId, note: null });
    expect(await due()).toEqual([]);
    expect(await stage.rows(sql`select id from events where type = 'run.hooks'`)).toHaveLength(1);
  });
});

forEachStore("what stands as it is asked for, of hosts", (open) => {
  const leaseOfAttempt = async ({ rows }: Stage) => await rows(sql`select lease_until from attempts`);

  test("a host reports, leaves and renews under its own incarnation alone", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const nobody = { hostId: AWAY, incarnation: 1 };
    expect(await store.hosts.report({ ...nobody, status: "disk" })).toBe("superseded");
    expect(await store.hosts.leave({ ...nobody, backBy: null })).toBe("superseded");
    await addRun(stage);
    await pass(stage);
    await join(store, HOST);
    stage.clock.advance(1_000);
    const before = [await leaseOf(stage, HOST), await leaseOfAttempt(stage)];
    const old = { hostId: HOST, incarnation: 1 };
    expect(await store.hosts.report({ ...old, status: "disk" })).toBe("superseded");
    expect(await store.hosts.leave({ ...old, backBy: null })).toBe("superseded");
    expect(await store.hosts.renew({ ...old, leaseMs: limits.leaseMs })).toEqual({ superseded: true, lost: [] });
    expect((await store.hosts.list({}))[0]).toMatchObject({ status: "up" });
    expect(await leaseOf(stage, HOST)).toBe(before[0]);
    const next = { hostId: HOST, incarnation: 2 };
    for (let nth = 0; nth < 2; nth++) expect(await store.hosts.report({ ...next, status: "disk" })).toBe("done");
    expect(await stage.rows(sql`select id from events where type = 'host.disk'`)).toHaveLength(1);
  });

  test("a renewal is for what the daemon has itself, and tells what another has taken of that", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    await addRun(stage);
    await pass(stage);
    const renew = (incarnation: number) => store.hosts.renew({ hostId: HOST, incarnation, leaseMs: limits.leaseMs });
    expect(await renew(1)).toEqual({ superseded: false, lost: [] });
    await stage.run(sql`update steps set token = token + 1`);
    const [attempt] = await stage.rows<{ id: string }>(sql`select id from attempts`);
    expect(await renew(1)).toEqual({ superseded: false, lost: [attempt?.id] });
    await join(store, HOST);
    const before = await leaseOfAttempt(stage);
    stage.clock.advance(1_000);
    expect(await renew(2)).toEqual({ superseded: false, lost: [] });
    expect(await leaseOfAttempt(stage)).toEqual(before);
  });
});
