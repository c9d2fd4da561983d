/** Statements take what stands as they ask for it, and leave what does not: each test has something of both. */
import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { runPolicy } from "../core/loop.ts";
import type { Store } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
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
    expect(await explain("step_00000000000000000000000001")).toBeNull();
    await addRun(stage);
    const { attempt } = await granted(stage);
    expect(await explain(attempt.stepId)).toBeNull();
    const runId = await addRun(stage);
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
