import { expect, test } from "vitest";
import { outcomeOf, runDraft } from "../../test/drafts.ts";
import type { AgentOutcome, Usage } from "../core/agent.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { Store } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
import type { FailureClass, Outcome } from "../core/run.ts";
import { agentTarget, type AgentTarget } from "../core/target.ts";
import { forEachStore, type OpenTestStore, type StoreClock } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql, type Sql } from "./sql.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const T0 = Date.UTC(2026, 0, 1);
const HOST = "host_00000000000000000000000001";
const WORK = "claude:work";

const agent = (over: Partial<AgentTarget> = {}): AgentTarget =>
  agentTarget.parse({
    kind: "agent",
    provider: "claude",
    prompt: { digest: "a".repeat(64), bytes: 5, head: "do it" },
    account: "work",
    cwd: "/repo",
    ...over,
  });

const said = (over: Partial<AgentOutcome> = {}): AgentOutcome => ({
  sessionId: null,
  usage: null,
  resetAt: null,
  resetSource: null,
  httpStatus: null,
  refusedTools: [],
  ...over,
});

const ended = (over: Partial<Outcome> = {}): Outcome =>
  outcomeOf({ output: '{"result":"done"}', tail: "", agent: said(), ...over });
const failed = (why: FailureClass, over: Partial<AgentOutcome> = {}): Outcome =>
  ended({ kind: "failed", class: why, exitStatus: 1, message: `the words of ${why}`, agent: said(over) });

interface Stage {
  readonly store: Store;
  readonly clock: StoreClock;
  rows<Row>(query: Sql): Promise<readonly Row[]>;
  run(...queries: readonly Sql[]): Promise<readonly number[]>;
}

const join = (store: Store, agentCap = 50) =>
  store.hosts.join({
    hostId: HOST,
    name: "one",
    machineId: "m",
    bootId: "b",
    version: "0",
    // No test is about the host's own silence.
    leaseMs: 365 * 24 * HOUR,
    commandCap: 10,
    agentCap,
  });

const account = (store: Store, name = "work", cap: number | null = null) =>
  store.accounts.add({ provider: "claude", name, home: `/homes/${name}`, env: {}, secrets: {}, cap });

async function openStage(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const { store: ported, clock, rows, run } = await open();
  clock.set(T0);
  const store = asStore(ported);
  await join(store);
  return { store, clock, rows, run };
}

/** With the account `claude:work`. */
async function openWork(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const stage = await openStage(open);
  await account(stage.store);
  return stage;
}

async function addRun({ store }: Stage, over: Partial<AgentTarget> = {}, policy: object = {}): Promise<string> {
  const { run } = await store.runs.add(runDraft(agent(over), { policy: runPolicy.parse(policy), hostPin: HOST }));
  return run.id;
}

const pass = ({ store }: Stage) => store.admission.pass({ hostId: HOST, limits });
const guarded = ({ attempt }: Assignment) => ({ attemptId: attempt.id, token: attempt.token });

async function start({ store, clock }: Stage, one: Assignment, sessionId: string | null = null) {
  const at = guarded(one);
  const folder = `${at.attemptId}.${at.token}`;
  const answer = await store.attempts.start({ ...at, bootId: "b", folder, awakeAt: 0, sessionId });
  if (answer === "done") await store.attempts.run({ ...at, pid: 1, pidStarted: "1", startedAt: clock.now() });
  return answer;
}

/** Ends an attempt, which is started first where that has not been done. */
async function settle(stage: Stage, one: Assignment, outcome: Outcome) {
  await start(stage, one);
  return stage.store.attempts.settle({ ...guarded(one), outcome, limits });
}

async function work(stage: Stage, outcome: Outcome | ((one: Assignment) => Outcome)): Promise<number> {
  const { mine } = await pass(stage);
  for (const one of mine) {
    expect(await settle(stage, one, typeof outcome === "function" ? outcome(one) : outcome)).toMatchObject({
      answer: "done",
    });
  }
  return mine.length;
}

async function only(stage: Stage): Promise<Assignment> {
  const { mine, refused } = await pass(stage);
  if (mine[0] === undefined || mine.length > 1) throw new Error(`${mine.length} granted: ${JSON.stringify(refused)}`);
  return mine[0];
}

const tree = async ({ store }: Stage, runId: string) => {
  const found = await store.runs.get({ runId });
  if (found === null) throw new Error(`no run ${runId}`);
  return found;
};
const view = async ({ store }: Stage, accountId = WORK) => {
  const found = await store.accounts.get({ accountId });
  if (found === null) throw new Error(`no account ${accountId}`);
  return found;
};
const wake = ({ store }: Stage) => store.steps.wake({ limit: 100 });
/** From the table: the feed of PostgreSQL waits for every writer of the cluster, also for those of other tests. */
const eventsOf = ({ rows }: Stage, accountId = WORK) =>
  rows<{ number: number; type: string }>(
    sql`select number, type from events where subject_kind = 'account' and subject_id = ${accountId} order by number`,
  );

forEachStore("accounts", (open) => {
  test("are added, listed, switched off and on, held and released, each with its event", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const made = await store.accounts.add({
      provider: "claude",
      name: "work",
      home: "/homes/work",
      env: { A: "1" },
      secrets: { B: "env:B" },
      cap: 2,
    });
    expect(made).toMatchObject({ id: WORK, provider: "claude", name: "work", home: "/homes/work", enabled: true });
    expect(made).toMatchObject({ status: "unknown", limitEnds: 0, env: { A: "1" }, secrets: { B: "env:B" } });
    await expect(account(store)).rejects.toMatchObject({ kind: "conflict", code: "name_taken" });
    await account(store, "other");
    expect((await store.accounts.list({})).map((one) => [one.account.id, one.cap, one.active])).toEqual([
      ["claude:other", null, 0],
      [WORK, 2, 0],
    ]);
    expect(await store.accounts.enable({ accountId: WORK, enabled: false })).toMatchObject({ enabled: false });
    expect(await store.accounts.enable({ accountId: WORK, enabled: false })).toMatchObject({ enabled: false });
    expect(await store.accounts.enable({ accountId: WORK, enabled: true })).toMatchObject({ enabled: true });
    await store.accounts.hold({ accountId: WORK, untilAt: T0 + HOUR, reason: "rest" });
    expect((await view(stage)).holds).toMatchObject([{ source: "person", untilAt: T0 + HOUR, reason: "rest" }]);
    expect((await view(stage, "claude:other")).holds).toEqual([]);
    await store.accounts.release({ accountId: WORK });
    expect((await view(stage)).holds).toEqual([]);
    const events = await eventsOf(stage);
    expect(events.map((event) => [event.number, event.type])).toEqual([
      [1, "account.added"],
      [2, "account.disabled"],
      [3, "account.enabled"],
      [4, "account.held"],
      [5, "account.released"],
    ]);
    await store.accounts.hold({ accountId: WORK, untilAt: null, reason: "again" });
    expect((await view(stage)).holds).toMatchObject([{ source: "person", untilAt: null, reason: "again" }]);
  });

  test("a hold is over by itself when its time has come", async () => {
    const stage = await openWork(open);
    await stage.store.accounts.hold({ accountId: WORK, untilAt: T0 + HOUR, reason: "rest" });
    stage.clock.advance(HOUR);
    expect((await view(stage)).holds).toEqual([]);
  });

  test("what is not there is said so; the user's own login is there, and gets a row when something is kept about it", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const missing = { kind: "not_found", code: "account_not_found" };
    for (const call of [
      () => store.accounts.enable({ accountId: WORK, enabled: true }),
      () => store.accounts.hold({ accountId: WORK, untilAt: null, reason: "r" }),
      () => store.accounts.release({ accountId: WORK }),
      () => store.accounts.remove({ accountId: WORK }),
    ])
      await expect(call()).rejects.toMatchObject(missing);
    await store.accounts.answered({ accountId: WORK });
    const own = "claude:default";
    expect(await store.accounts.get({ accountId: own })).toBeNull();
    await addRun(stage, { account: "default" });
    const first = await only(stage);
    expect(first.account).toBeNull();
    await settle(stage, first, failed("rate_limited"));
    expect(await view(stage, own)).toMatchObject({
      account: { home: null, status: "throttled", limitEnds: 1 },
      holds: [{ source: "rate_limited" }],
    });
  });

  test("is not removed while a loop or a run names it; removed, it leaves nothing but its events", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    await account(store, "work", 3);
    await store.accounts.hold({ accountId: WORK, untilAt: null, reason: "rest" });
    const runId = await addRun(stage);
    const used = { kind: "conflict", code: "account_in_use" };
    await expect(store.accounts.remove({ accountId: WORK })).rejects.toMatchObject(used);
    await store.runs.cancel({ runId, by: "person", reason: "r", limits });
    const loop = await store.loops.add({
      draft: {
        name: "nightly",
        schedule: { kind: "interval", everyMs: HOUR, anchorAt: T0 },
        target: agent(),
        policy: loopPolicy.parse({}),
        hostPin: HOST,
        managedBy: null,
      },
      limits,
    });
    await expect(store.accounts.remove({ accountId: WORK })).rejects.toMatchObject(used);
    await store.loops.remove({ loopId: loop.id });
    await store.accounts.remove({ accountId: WORK });
    expect(await store.accounts.get({ accountId: WORK })).toBeNull();
    await account(store);
    expect(await view(stage)).toMatchObject({ holds: [], cap: null });
    const numbers = (await eventsOf(stage)).map((event) => event.number);
    expect(numbers).toEqual(numbers.map((_, i) => i + 1));
  });
});

forEachStore("admission of agents", (open) => {
  test("a held account starts nothing, says until when and why, and the pass says when to look again", async () => {
    const stage = await openWork(open);
    const { store, clock } = stage;
    const runId = await addRun(stage);
    await store.accounts.hold({ accountId: WORK, untilAt: T0 + HOUR, reason: "rest" });
    const refusal = { code: "held", subject: `account:${WORK}`, untilAt: T0 + HOUR, reason: "rest" };
    expect(await pass(stage)).toMatchObject({ granted: 0, refused: [{ refusal }], wakeAt: T0 + HOUR, now: T0 });
    const stepId = (await tree(stage, runId)).steps[0]?.id ?? "";
    expect(await store.admission.explain({ stepId })).toMatchObject({ refusal, ahead: 0 });
    clock.advance(HOUR);
    expect(await pass(stage)).toMatchObject({ granted: 1, wakeAt: null });
  });

  test("the earliest end of a hold is when to look again; what only a person ends is none", async () => {
    const stage = await openWork(open);
    await account(stage.store, "other");
    await addRun(stage);
    await stage.store.accounts.hold({ accountId: WORK, untilAt: null, reason: "rest" });
    expect(await pass(stage)).toMatchObject({ granted: 0, wakeAt: null });
    await addRun(stage, { account: "other" });
    await stage.store.accounts.hold({ accountId: "claude:other", untilAt: T0 + MINUTE, reason: "rest" });
    expect(await pass(stage)).toMatchObject({ granted: 0, wakeAt: T0 + MINUTE });
    await account(stage.store, "third");
    await addRun(stage, { account: "third" });
    await stage.store.accounts.hold({ accountId: "claude:third", untilAt: T0 + HOUR, reason: "rest" });
    expect(await pass(stage)).toMatchObject({ granted: 0, wakeAt: T0 + MINUTE });
    await stage.store.accounts.release({ accountId: WORK });
    expect(await pass(stage)).toMatchObject({ granted: 1, wakeAt: T0 + MINUTE });
  });

  test("a held provider holds every account of it, is told as the provider, and lets go when it is released", async () => {
    const stage = await openWork(open);
    const { accounts } = stage.store;
    const held = { provider: "claude", untilAt: T0 + HOUR, reason: "outage" } as const;
    expect(await accounts.holdProvider(held)).toMatchObject([{ subjectKind: "provider", subjectId: "claude" }]);
    await addRun(stage);
    await addRun(stage, { account: "default" });
    await addRun(stage, { provider: "codex", account: "default" });
    const { mine, refused, wakeAt } = await pass(stage);
    expect(mine.map((one) => one.attempt.accountId)).toEqual(["codex:default"]);
    expect(refused.map((one) => one.refusal)).toMatchObject([
      { code: "held", subject: "provider:claude" },
      { code: "held", subject: "provider:claude" },
    ]);
    expect(wakeAt).toBe(T0 + HOUR);
    const hold = { untilAt: T0 + HOUR, reason: "outage", source: "person" };
    expect(await accounts.providerHolds({})).toMatchObject([hold]);
    expect(await accounts.get({ accountId: WORK })).toMatchObject({ holds: [], providerHolds: [hold] });
    // That of the account alone does not end that of the provider, and the other way round.
    await accounts.hold({ accountId: WORK, untilAt: null, reason: "mine" });
    await accounts.release({ accountId: WORK });
    expect((await pass(stage)).mine).toEqual([]);
    await accounts.hold({ accountId: WORK, untilAt: null, reason: "mine" });
    expect(await accounts.releaseProvider({ provider: "claude" })).toEqual({ ended: 1 });
    expect(await accounts.releaseProvider({ provider: "claude" })).toEqual({ ended: 0 });
    expect((await pass(stage)).mine.map((one) => one.attempt.accountId)).toEqual(["claude:default"]);
    const events = await stage.rows<{ subject_id: string; number: number; type: string }>(
      sql`select subject_id, number, type from events where subject_kind = 'provider' order by number`,
    );
    expect(events.map((one) => [one.subject_id, Number(one.number), one.type])).toEqual([
      ["claude", 1, "provider.held"],
      ["claude", 2, "provider.released"],
    ]);
  });

  test("runs that only a person lets go on are counted apart: a daemon that ends when it is idle leaves them", async () => {
    const stage = await openWork(open);
    const { store } = stage;
    const counts = () => store.runs.counts({});
    await addRun(stage);
    expect(await counts()).toEqual({ running: 0, queued: 1, waiting: 0, forPerson: 0 });
    // Until when is known: time alone lets it go on.
    await store.accounts.hold({ accountId: WORK, untilAt: T0 + HOUR, reason: "r" });
    expect(await counts()).toMatchObject({ queued: 1, forPerson: 0 });
    await store.accounts.hold({ accountId: WORK, untilAt: null, reason: "r" });
    expect(await counts()).toMatchObject({ queued: 1, forPerson: 1 });
    await store.accounts.release({ accountId: WORK });
    expect(await counts()).toMatchObject({ forPerson: 0 });
    await store.accounts.enable({ accountId: WORK, enabled: false });
    expect(await counts()).toMatchObject({ forPerson: 1 });
    await store.accounts.enable({ accountId: WORK, enabled: true });
    await store.accounts.holdProvider({ provider: "claude", untilAt: null, reason: "r" });
    await addRun(stage, { provider: "codex", account: "default" });
    await addRun(stage, { provider: "codex", account: "nobody" });
    expect(await counts()).toEqual({ running: 0, queued: 3, waiting: 0, forPerson: 2 });
    await store.accounts.releaseProvider({ provider: "claude" });
    // What is at work is at work whatever holds its account.
    const { mine } = await pass(stage);
    expect(mine).toHaveLength(2);
    const one = mine.find(({ attempt }) => attempt.accountId === WORK);
    await store.accounts.hold({ accountId: WORK, untilAt: null, reason: "r" });
    expect(await counts()).toEqual({ running: 2, queued: 1, waiting: 0, forPerson: 1 });
    await store.accounts.release({ accountId: WORK });
    if (one !== undefined) await settle(stage, one, failed("auth"));
    expect(await counts()).toEqual({ running: 1, queued: 1, waiting: 1, forPerson: 2 });
    await store.accounts.release({ accountId: WORK });
    expect(await counts()).toEqual({ running: 1, queued: 2, waiting: 0, forPerson: 1 });
  });

  test("a limit is taken away again", async () => {
    const stage = await openWork(open);
    const resource = `account:${WORK}`;
    await stage.store.admission.setLimit({ resource, limit: 1 });
    await addRun(stage);
    await addRun(stage);
    expect((await pass(stage)).mine).toHaveLength(1);
    expect((await pass(stage)).refused).toMatchObject([{ refusal: { code: "cap", resource } }]);
    expect(await stage.store.admission.removeLimit({ resource })).toEqual({ removed: true });
    expect(await stage.store.admission.removeLimit({ resource })).toEqual({ removed: false });
    expect((await pass(stage)).mine).toHaveLength(1);
  });

  test("disabled, not there, over its cap, over the host's cap: each has its word; others go on", async () => {
    const stage = await openWork(open);
    const { store } = stage;
    const code = async () => (await pass(stage)).refused.map(({ refusal }) => refusal.code);
    await addRun(stage);
    await store.accounts.enable({ accountId: WORK, enabled: false });
    expect(await code()).toEqual(["account_disabled"]);
    await addRun(stage, { account: "gone" });
    expect((await code()).toSorted()).toEqual(["account_disabled", "account_missing"]);
    await store.accounts.enable({ accountId: WORK, enabled: true });
    await store.admission.setLimit({ resource: `account:${WORK}`, limit: 1 });
    await addRun(stage);
    const one = await only(stage);
    expect((await pass(stage)).refused.map(({ refusal }) => refusal)).toContainEqual({
      code: "cap",
      resource: `account:${WORK}`,
      used: 1,
      limit: 1,
    });
    expect(await view(stage)).toMatchObject({ active: 1, cap: 1 });
    await settle(stage, one, ended());
    await join(store, 1);
    expect((await only(stage)).account).toMatchObject({ id: WORK, home: "/homes/work" });
    await addRun(stage, { account: "default" });
    expect((await pass(stage)).refused.map(({ refusal }) => refusal)).toContainEqual({
      code: "cap",
      resource: `host:${HOST}:agent`,
      used: 1,
      limit: 1,
    });
  });

  test("who writes in a folder that is not his own has it alone; readers and worktrees do not wait", async () => {
    const stage = await openWork(open);
    const shared = { worktree: "off" } as const;
    await addRun(stage, shared);
    await addRun(stage, { ...shared, account: "default" });
    await addRun(stage, { ...shared, cwd: "/elsewhere" });
    await addRun(stage, { ...shared, permission: "read-only" });
    await addRun(stage, { worktree: "auto" });
    await addRun(stage, { worktree: "required" });
    const { mine, refused } = await pass(stage);
    expect(mine).toHaveLength(5);
    expect(refused).toEqual([]);
    expect((await pass(stage)).refused.map(({ refusal }) => refusal)).toEqual([
      { code: "cap", resource: "folder:/repo", used: 1, limit: 1 },
    ]);
    await stage.store.admission.setLimit({ resource: "folder:/repo", limit: 2 });
    expect((await pass(stage)).mine).toHaveLength(1);
  });
});

forEachStore("ends by a limit", (open) => {
  test("B-086 a usage limit holds its account until the stated reset; no try is used up, others on it wait too", async () => {
    const stage = await openWork(open);
    const { clock } = stage;
    const resetAt = T0 + 2 * HOUR;
    const first = await addRun(stage, {}, { attempts: 1 });
    await work(stage, failed("quota", { resetAt, resetSource: "event resetsAt 7200", httpStatus: 429 }));
    const held = await view(stage);
    expect(held).toMatchObject({
      account: { status: "quota", limitEnds: 1, lastUsedAt: T0 },
      holds: [{ source: "quota", reason: "the words of quota (event resetsAt 7200)" }],
    });
    const untilAt = held.holds[0]?.untilAt ?? 0;
    expect(untilAt).toBeGreaterThanOrEqual(resetAt);
    expect(untilAt).toBeLessThanOrEqual(resetAt + MINUTE + 1);
    expect(await tree(stage, first)).toMatchObject({
      run: { status: "waiting", reason: "limit", wakeAt: untilAt },
      steps: [{ status: "waiting", reason: "limit", wakeAt: untilAt, triesCounted: 0 }],
      attempts: [{ status: "failed", class: "quota", counted: false }],
    });
    clock.advance(1);
    await addRun(stage);
    const other = await addRun(stage, { account: "default" });
    expect((await only(stage)).run.id).toBe(other);
    clock.set(untilAt - 1);
    expect(await wake(stage)).toMatchObject({ woken: 0 });
    expect(await pass(stage)).toMatchObject({ granted: 0, wakeAt: untilAt });
    clock.set(untilAt);
    expect(await wake(stage)).toMatchObject({ woken: 1 });
    // One finds out whether it is over.
    const probe = await only(stage);
    expect(await pass(stage)).toMatchObject({
      granted: 0,
      refused: [{ refusal: { code: "probing", status: "quota" } }],
    });
    await stage.store.accounts.answered({ accountId: WORK });
    expect(await view(stage)).toMatchObject({ account: { status: "ok", limitEnds: 0 }, holds: [] });
    expect(await pass(stage)).toMatchObject({ granted: 1 });
    await settle(stage, probe, ended());
    expect((await tree(stage, first)).run.status).toBe("succeeded");
    expect((await eventsOf(stage)).map((event) => event.type)).toEqual(["account.added", "account.held", "account.ok"]);
  });

  test("B-087 always at a limit: at most four starts in ten minutes, however often the daemon begins anew", async () => {
    const stage = await openWork(open);
    const { store, clock } = stage;
    const runId = await addRun(stage, {}, { attempts: 1 });
    const starts: number[] = [];
    for (let i = 0; clock.now() <= T0 + 10 * MINUTE && i < 100; i++) {
      await join(store);
      await wake(stage);
      const begun = clock.now();
      if ((await work(stage, failed("rate_limited"))) > 0) starts.push(begun);
      clock.set((await tree(stage, runId)).run.wakeAt ?? clock.now() + SECOND);
    }
    expect(starts.length).toBeGreaterThanOrEqual(2);
    expect(starts.length).toBeLessThanOrEqual(4);
    expect((await view(stage)).account.limitEnds).toBe(starts.length);
  });

  test("B-088 twenty at once meet one limit: one pause, then one finds out, then all finish", async () => {
    const stage = await openWork(open);
    const { store, clock } = stage;
    const runs = new Set<string>();
    for (let i = 0; i < 20; i++) runs.add(await addRun(stage, {}, { attempts: 1 }));
    const { mine } = await pass(stage);
    expect(mine).toHaveLength(20);
    for (const one of mine) await start(stage, one);
    for (const one of mine) {
      clock.advance(100);
      await settle(stage, one, failed("rate_limited"));
    }
    const { account: throttled, holds } = await view(stage);
    expect(throttled).toMatchObject({ status: "throttled", limitEnds: 1 });
    expect(holds).toHaveLength(1);
    expect(holds[0]?.untilAt).toBeLessThanOrEqual(T0 + 2 * MINUTE);
    clock.set(holds[0]?.untilAt ?? 0);
    expect(await wake(stage)).toMatchObject({ woken: 20 });
    const probe = await only(stage);
    await start(stage, probe);
    clock.advance(SECOND);
    await settle(stage, probe, ended());
    expect(await work(stage, ended())).toBe(19);
    for (const runId of runs) expect((await tree(stage, runId)).run.status).toBe("succeeded");
    await store.accounts.answered({ accountId: WORK });
  });

  test("B-089 no number of limits ends a run: it succeeds with its one attempt", async () => {
    const stage = await openWork(open);
    const runId = await addRun(stage, {}, { attempts: 1 });
    const classes = ["rate_limited", "quota", "overloaded"] as const;
    for (let i = 0; i < 30; i++) {
      await wake(stage);
      expect(await work(stage, failed(classes[i % 3] ?? "quota")), `start ${i}`).toBe(1);
      const { run, steps } = await tree(stage, runId);
      expect(steps[0]).toMatchObject({ status: "waiting", triesCounted: 0 });
      stage.clock.set(run.wakeAt ?? 0);
      const until = (await view(stage)).holds.map((hold) => hold.untilAt ?? 0);
      stage.clock.set(Math.max(stage.clock.now(), ...until));
    }
    await wake(stage);
    expect(await work(stage, ended())).toBe(1);
    expect((await tree(stage, runId)).run.status).toBe("succeeded");
  });

  test("an overload is not the account's: the step alone waits, others start", async () => {
    const stage = await openWork(open);
    const runId = await addRun(stage);
    await work(stage, failed("overloaded", { httpStatus: 529 }));
    const { run } = await tree(stage, runId);
    expect(run).toMatchObject({ status: "waiting", reason: "capacity" });
    expect(run.wakeAt).toBeGreaterThanOrEqual(T0 + MINUTE);
    expect(run.wakeAt).toBeLessThanOrEqual(T0 + 1.5 * MINUTE);
    expect(await view(stage)).toMatchObject({ account: { status: "unknown", limitEnds: 0 }, holds: [] });
    await addRun(stage);
    expect(await pass(stage)).toMatchObject({ granted: 1 });
  });

  test("a refused login waits for a person, whatever ends well meanwhile; the release wakes what waits", async () => {
    const stage = await openWork(open);
    const { store, clock } = stage;
    for (let i = 0; i < 3; i++) await addRun(stage, {}, { attempts: 1 });
    const [refused, throttled, well] = (await pass(stage)).mine;
    if (refused === undefined || throttled === undefined || well === undefined) throw new Error("three start");
    await settle(stage, refused, failed("auth", { httpStatus: 401 }));
    await settle(stage, throttled, failed("rate_limited"));
    await settle(stage, well, ended());
    await store.accounts.answered({ accountId: WORK });
    expect(await view(stage)).toMatchObject({
      account: { status: "auth" },
      holds: [{ source: "auth", untilAt: null }, { source: "rate_limited" }],
    });
    expect(await tree(stage, refused.run.id)).toMatchObject({
      run: { status: "waiting", reason: "account", wakeAt: null },
      steps: [{ triesCounted: 0 }],
    });
    clock.advance(30 * 24 * HOUR);
    expect(await wake(stage)).toMatchObject({ woken: 1 });
    expect(await pass(stage)).toMatchObject({ granted: 0, wakeAt: null, refused: [{ refusal: { untilAt: null } }] });
    expect(await store.accounts.release({ accountId: WORK })).toMatchObject({
      account: { status: "unknown", limitEnds: 0 },
      woken: 1,
    });
    expect(await store.accounts.release({ accountId: WORK })).toMatchObject({ woken: 0 });
    expect(await view(stage)).toMatchObject({ account: { status: "unknown", limitEnds: 0 }, holds: [] });
    expect((await pass(stage)).granted).toBe(2);
    expect((await tree(stage, refused.run.id)).run.status).toBe("running");
  });

  test("what was at work before a limit proves nothing about its end", async () => {
    const stage = await openWork(open);
    await addRun(stage);
    await addRun(stage);
    const [limited, well] = (await pass(stage)).mine;
    if (limited === undefined || well === undefined) throw new Error("two start");
    await settle(stage, limited, failed("quota", { resetAt: T0 + HOUR }));
    await stage.store.accounts.answered({ accountId: WORK });
    await settle(stage, well, ended());
    expect(await view(stage)).toMatchObject({
      account: { status: "quota", limitEnds: 1 },
      holds: [{ source: "quota" }],
    });
  });

  test("a hold by a person is not ended by what goes well", async () => {
    const stage = await openWork(open);
    await addRun(stage);
    const one = await only(stage);
    await stage.store.accounts.hold({ accountId: WORK, untilAt: null, reason: "rest" });
    await settle(stage, one, ended());
    expect(await view(stage)).toMatchObject({ account: { status: "ok" }, holds: [{ source: "person" }] });
  });

  test("a limit that comes with a time limit of ours counts as the limit", async () => {
    const stage = await openWork(open);
    await addRun(stage);
    await work(stage, { ...failed("rate_limited"), kind: "timed_out" });
    expect((await view(stage)).account.status).toBe("throttled");
  });

  test("a cancelled run ends, and its account is held all the same", async () => {
    const stage = await openWork(open);
    const runId = await addRun(stage);
    const one = await only(stage);
    await stage.store.runs.cancel({ runId, by: "person", reason: "no need", limits });
    await settle(stage, one, failed("rate_limited"));
    expect((await tree(stage, runId)).run.status).toBe("cancelled");
    expect((await view(stage)).holds).toHaveLength(1);
  });

  test("an end that is told twice holds once", async () => {
    const stage = await openWork(open);
    await addRun(stage);
    const one = await only(stage);
    await start(stage, one);
    const answer = await settle(stage, one, failed("rate_limited"));
    stage.clock.advance(SECOND);
    expect(await settle(stage, one, failed("rate_limited"))).toEqual(answer);
    expect((await view(stage)).account.limitEnds).toBe(1);
    expect((await eventsOf(stage)).filter((event) => event.type === "account.held")).toHaveLength(1);
  });
});

forEachStore("sessions and what agents leave", (open) => {
  test("B-117 B-118 a session has one live attempt: a second start is refused until the first has ended", async () => {
    const stage = await openWork(open);
    await addRun(stage);
    await addRun(stage);
    const [first, second] = (await pass(stage)).mine;
    if (first === undefined || second === undefined) throw new Error("two start");
    expect(await start(stage, first, "s-1")).toBe("done");
    expect(await start(stage, second, "s-1")).toBe("session_busy");
    expect((await tree(stage, second.run.id)).attempts[0]).toMatchObject({ status: "reserved", sessionRef: null });
    expect(await start(stage, second, "s-2")).toBe("done");
    // What a provider gives twice stays with the first.
    expect(await stage.store.attempts.session({ ...guarded(second), sessionId: "s-1" })).toBe("superseded");
    await settle(stage, first, ended({ agent: said({ sessionId: "s-1" }) }));
    await settle(stage, second, ended());
    await addRun(stage);
    expect(await start(stage, await only(stage), "s-1")).toBe("done");
    const rows = await stage.rows<{ n: number }>(
      sql`select count(*) as n from sessions where live_attempt_id is not null`,
    );
    expect(Number(rows[0]?.n)).toBe(1);
  });

  test("one id under two accounts is two sessions", async () => {
    const stage = await openWork(open);
    await addRun(stage);
    await addRun(stage, { account: "default" });
    for (const one of (await pass(stage)).mine) expect(await start(stage, one, "s-1")).toBe("done");
  });

  test("a session is kept as soon as it is seen, and the next attempt is told how the one before ended", async () => {
    const stage = await openWork(open);
    const { store, clock } = stage;
    const runId = await addRun(stage, {}, { attempts: 5 });
    const first = await only(stage);
    expect(first.before).toBeNull();
    await start(stage, first);
    expect(await store.attempts.session({ ...guarded(first), token: 99, sessionId: "s-1" })).toBe("superseded");
    expect(await store.attempts.session({ ...guarded(first), sessionId: "s-1" })).toBe("done");
    expect(await store.attempts.session({ ...guarded(first), sessionId: "s-1" })).toBe("done");
    expect((await store.attempts.ofHost({ hostId: HOST }))[0]?.attempt.sessionRef).toBe("s-1");
    await settle(stage, first, failed("check_failed"));
    expect(await store.attempts.session({ ...guarded(first), sessionId: "s-9" })).toBe("already_ended");
    const again = async (): Promise<Assignment> => {
      clock.set((await tree(stage, runId)).run.wakeAt ?? clock.now());
      await wake(stage);
      return only(stage);
    };
    const second = await again();
    expect(second.before).toMatchObject({
      sessionId: "s-1",
      class: "check_failed",
      message: "the words of check_failed",
    });
    // An agent that ended before its session was seen alive says it at its end.
    await start(stage, second, "s-1");
    await settle(stage, second, failed("network", { sessionId: "s-2" }));
    const third = await again();
    expect(third.before).toMatchObject({ sessionId: "s-2", class: "network" });
    await settle(stage, third, failed("exit", { sessionGone: true }));
    const fourth = await again();
    expect(fourth.before).toMatchObject({ sessionId: null, class: "exit" });
    expect((await tree(stage, runId)).steps[0]?.triesCounted).toBe(2);
  });

  test("an agent that was lost is resumed without a try; its session is free for that", async () => {
    const stage = await openWork(open);
    const runId = await addRun(stage, {}, { attempts: 1 });
    const one = await only(stage);
    await start(stage, one, "s-1");
    await settle(stage, one, ended({ kind: "lost", class: "lost", agent: null }));
    const { run, steps } = await tree(stage, runId);
    expect(steps[0]).toMatchObject({ status: "waiting", triesCounted: 0 });
    stage.clock.set(run.wakeAt ?? 0);
    await wake(stage);
    const next = await only(stage);
    expect(next.before).toMatchObject({ sessionId: "s-1", class: "lost" });
    expect(await start(stage, next, "s-1")).toBe("done");
  });

  test("usage and what else is known of an end stand on the attempt", async () => {
    const stage = await openWork(open);
    const runId = await addRun(stage);
    const usage = { inputTokens: 10, cachedInputTokens: 20, outputTokens: 3, costUsd: 0.25 };
    await work(stage, ended({ agent: said({ usage, refusedTools: ["Bash"], sessionId: "s-1" }) }));
    const [attempt] = (await tree(stage, runId)).attempts;
    expect(JSON.parse(attempt?.usageTotal ?? "null")).toEqual(usage);
    expect(JSON.parse(attempt?.agentEnd ?? "null")).toEqual({
      resetAt: null,
      resetSource: null,
      httpStatus: null,
      refusedTools: ["Bash"],
    });
    expect(attempt).toMatchObject({ accountId: WORK, sessionRef: "s-1" });
    expect((await tree(stage, runId)).run).toMatchObject({ kind: "agent", accountWish: WORK });
  });

  /** Attempts of one run, one after another, each with what its provider stated; answers what is kept of each. */
  async function usagesOf(
    stage: Stage,
    stated: readonly (Usage | null)[],
    {
      sessionId = null,
      meanwhile,
    }: { sessionId?: string | null; meanwhile?: (index: number) => Promise<unknown> } = {},
  ) {
    const runId = await addRun(stage, {}, { attempts: 20 });
    for (const [index, usage] of stated.entries()) {
      const one = await only(stage);
      await start(stage, one, one.before?.sessionId ?? sessionId);
      await meanwhile?.(index);
      await settle(stage, one, failed("network", { usage, sessionId: usage === null ? null : "s-1" }));
      stage.clock.advance(10 * HOUR);
      await wake(stage);
    }
    return (await tree(stage, runId)).attempts.map(
      ({ usageTotal }) => JSON.parse(usageTotal ?? "null") as Usage | null,
    );
  }
  const tokens = (outputTokens: number, more: Partial<Usage> = {}): Usage => ({
    inputTokens: 2 * outputTokens,
    cachedInputTokens: 0,
    outputTokens,
    costUsd: null,
    ...more,
  });
  const session = { of: "session" } as const;

  test("tokens that a provider counts over a session are kept as each attempt's own, also where the session is seen at the end only", async () => {
    const stated = [tokens(7, session), tokens(14, session), tokens(30, session)];
    const own = [tokens(7), tokens(7), tokens(16)];
    expect(await usagesOf(await openWork(open), stated)).toEqual(own);
    expect(await usagesOf(await openWork(open), stated, { sessionId: "s-1" })).toEqual(own);
  });

  test("so is a price", async () => {
    const price = (usd: number) => tokens(7, { costUsd: usd, costOf: "session" });
    const kept = await usagesOf(await openWork(open), [price(0.1), price(0.3), price(0.3)], { sessionId: "s-1" });
    expect(kept).toEqual([tokens(7, { costUsd: 0.1 }), tokens(7, { costUsd: 0.2 }), tokens(7, { costUsd: 0 })]);
  });

  test("an attempt that states nothing is in the next one, which says so; the sum stays true", async () => {
    const stated = [tokens(7, session), null, tokens(30, session), tokens(31, session)];
    const kept = await usagesOf(await openWork(open), stated, { sessionId: "s-1" });
    expect(kept).toEqual([tokens(7), null, tokens(23, { of: "attempts" }), tokens(1)]);
  });

  test.each(["live", "end"])("a copy of a session counts on from it, seen at the %s", async (seen) => {
    const stage = await openWork(open);
    const runId = await addRun(stage, {}, { attempts: 20 });
    const ends = async (one: Assignment, usage: Usage, sessionId: string, over: Partial<AgentOutcome> = {}) => {
      await settle(stage, one, failed("network", { usage, sessionId, ...over }));
      stage.clock.advance(10 * HOUR);
      await wake(stage);
    };
    await ends(await only(stage), tokens(7, session), "s-1");
    const copied = await only(stage);
    await start(stage, copied);
    const copyOf = "s-1";
    if (seen === "live") await stage.store.attempts.session({ ...guarded(copied), sessionId: "s-2", copyOf });
    await ends(copied, tokens(14, session), "s-2", { copyOf });
    const next = await only(stage);
    await start(stage, next, "s-2");
    await ends(next, tokens(30, session), "s-2");
    const { attempts } = await tree(stage, runId);
    expect(attempts.map(({ usageTotal }) => JSON.parse(usageTotal ?? "null") as Usage)).toEqual([
      tokens(7),
      tokens(7),
      tokens(16),
    ]);
  });

  test("a session that could not be begun, because it is somebody's, counts what nobody knows", async () => {
    const stage = await openWork(open);
    const runId = await addRun(stage, {}, { attempts: 20 });
    const first = await only(stage);
    await start(stage, first, "s-1");
    await settle(stage, first, failed("protocol", { sessionRefused: "begin" }));
    stage.clock.advance(10 * HOUR);
    await wake(stage);
    const second = await only(stage);
    await start(stage, second, "s-1");
    await settle(stage, second, failed("network", { usage: tokens(14, session), sessionId: "s-1" }));
    const { attempts } = await tree(stage, runId);
    expect(JSON.parse(attempts.at(-1)?.usageTotal ?? "null")).toEqual(tokens(14, session));
  });

  test("a session whose beginning nobody saw, and a count that has fallen, are said to be the session's", async () => {
    const stage = await openWork(open);
    const stated = [tokens(7, session), tokens(14, session), tokens(3, session), tokens(5, session)];
    // As a session that was there before its count was kept.
    const meanwhile = async (index: number) => index === 1 && stage.run(sql`update sessions set usage_total = null`);
    expect(await usagesOf(stage, stated, { sessionId: "s-1", meanwhile })).toEqual([
      tokens(7),
      tokens(14, session),
      tokens(3, session),
      tokens(2),
    ]);
  });

  test("a retried run keeps its account", async () => {
    const stage = await openWork(open);
    const runId = await addRun(stage, {}, { attempts: 1 });
    await work(stage, failed("exit"));
    await stage.store.prompts.put({ digest: "a".repeat(64), content: "aGVsbG8=", bytes: 5 });
    const retried = await stage.store.runs.retry({ runId, by: "person", limits });
    expect(retried.accountWish).toBe(WORK);
    expect((await only(stage)).attempt.accountId).toBe(WORK);
  });
});

forEachStore("prompts", (open) => {
  test("are kept once by their digest", async () => {
    const { store } = await openStage(open);
    const digest = "b".repeat(64);
    expect(await store.prompts.get({ digest })).toBeNull();
    await store.prompts.put({ digest, content: "aGVsbG8=", bytes: 5 });
    await store.prompts.put({ digest, content: "aGVsbG8=", bytes: 5 });
    expect(await store.prompts.get({ digest })).toEqual({ content: "aGVsbG8=" });
  });

  const DAY = 24 * HOUR;
  const keeping = { promptRetentionMs: 30 * DAY, janitorBatch: 2 };
  const collect = ({ store }: Stage) => store.prompts.collect({ limits: keeping });
  const put = async ({ store }: Stage, letter: string) => {
    const digest = letter.repeat(64);
    await store.prompts.put({ digest, content: "aGVsbG8=", bytes: 5 });
    return digest;
  };
  const isThere = async ({ store }: Stage, digest: string) => (await store.prompts.get({ digest })) !== null;
  const naming = (digest: string) => ({ prompt: { digest, bytes: 5, head: "hello" } });

  test("what nothing names is collected a day later, in batches; putting it again begins the day anew", async () => {
    const stage = await openWork(open);
    const [first, second, third] = [await put(stage, "1"), await put(stage, "2"), await put(stage, "3")];
    expect(await collect(stage)).toEqual({ removed: 0, more: false });
    stage.clock.advance(DAY);
    await put(stage, "3");
    expect(await collect(stage)).toEqual({ removed: 2, more: true });
    expect(await collect(stage)).toEqual({ removed: 0, more: false });
    expect([await isThere(stage, first), await isThere(stage, second), await isThere(stage, third)]).toEqual([
      false,
      false,
      true,
    ]);
    stage.clock.advance(DAY);
    expect(await collect(stage)).toMatchObject({ removed: 1 });
  });

  test("what a live run or one that ended lately needs is kept; a retry after that is refused in words", async () => {
    const stage = await openWork(open);
    const digest = await put(stage, "1");
    const runId = await addRun(stage, naming(digest), { attempts: 1 });
    stage.clock.advance(400 * DAY);
    expect(await collect(stage)).toMatchObject({ removed: 0 });
    await work(stage, failed("exit"));
    stage.clock.advance(29 * DAY);
    expect(await collect(stage)).toMatchObject({ removed: 0 });
    const again = await stage.store.runs.retry({ runId, by: "person", limits });
    expect(again.retryOf).toBe(runId);
    stage.clock.advance(30 * DAY);
    expect(await collect(stage)).toMatchObject({ removed: 0 });
    await work(stage, failed("exit"));
    stage.clock.advance(30 * DAY);
    expect(await collect(stage)).toMatchObject({ removed: 1 });
    expect(await isThere(stage, digest)).toBe(false);
    await expect(stage.store.runs.retry({ runId, by: "person", limits })).rejects.toMatchObject({
      kind: "conflict",
      code: "prompt_gone",
    });
  });

  test("what a loop names is kept until it names another or is removed", async () => {
    const stage = await openWork(open);
    const [first, second] = [await put(stage, "1"), await put(stage, "2")];
    const { id } = await stage.store.loops.add({
      draft: {
        name: "nightly",
        schedule: { kind: "dynamic", firstAt: T0 + 999 * DAY },
        target: agent(naming(first)),
        policy: loopPolicy.parse({}),
        hostPin: HOST,
        managedBy: null,
      },
      limits,
    });
    stage.clock.advance(2 * DAY);
    // The one that nothing names yet is gone by then, and is put again, as an edit does.
    expect(await collect(stage)).toMatchObject({ removed: 1 });
    await put(stage, "2");
    await stage.store.loops.edit({ loopId: id, change: { target: agent(naming(second)) }, limits });
    stage.clock.advance(31 * DAY);
    expect(await collect(stage)).toMatchObject({ removed: 1 });
    expect([await isThere(stage, first), await isThere(stage, second)]).toEqual([false, true]);
    await stage.store.loops.archive({ loopId: id, limits });
    stage.clock.advance(31 * DAY);
    expect(await collect(stage)).toMatchObject({ removed: 0 });
    await stage.store.loops.remove({ loopId: id });
    stage.clock.advance(31 * DAY);
    expect(await collect(stage)).toMatchObject({ removed: 1 });
  });

  test("a prompt of sixteen mebibytes goes in and comes out whole", async () => {
    const { store } = await openStage(open);
    const digest = "c".repeat(64);
    const content = Buffer.alloc(limits.promptBytes, 7).toString("base64");
    await store.prompts.put({ digest, content, bytes: limits.promptBytes });
    expect((await store.prompts.get({ digest }))?.content === content).toBe(true);
  });
});
