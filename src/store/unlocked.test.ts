/**
 * Writes compare what they were decided upon, also where the lock under which that was read did not hold: a change is made
 * between the reads and the writes of an operation, as nobody can while the lock holds. What was changed stays so.
 */
import { afterEach, describe, expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { BrokenAssert } from "../core/errors.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { Store } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
import type { Outcome } from "../core/run.ts";
import { agentTarget } from "../core/target.ts";
import { storeClock, type StoreClock } from "./contract.ts";
import type { StoreHandle } from "./driver.ts";
import { all, operation, read, runAll, type Operation, type Steps } from "./operation.ts";
import { asStore, operations } from "./operations.ts";
import { render, sql, type Sql } from "./sql.ts";
import { openMemoryStore } from "./sqlite.ts";

const MINUTE = 60_000;
const HOST = "host_00000000000000000000000001";
const AWAY = "host_00000000000000000000000002";

interface Meanwhile {
  readonly of: Operation<never, unknown>;
  readonly input: unknown;
  /** The statement before which the change is made; absent: the first that writes. */
  readonly before?: RegExp;
  readonly change: readonly Sql[];
  readonly look: Sql;
}

const WRITES = /^\s*(?:insert|update|delete)/;

const table = {
  ...operations,
  meanwhile: {
    /** Runs another operation with a change in its middle. Answers also what is to be seen right after the change. */
    run: operation("meanwhile.run", function* (input: Meanwhile, ctx): Steps<{
      seen: readonly unknown[];
      answer: unknown;
    }> {
      const { of, before = WRITES, change, look } = input;
      const body = of.steps(input.input as never, ctx);
      let seen: readonly unknown[] | null = null;
      for (let at = body.next(); at.done !== true; ) {
        if (seen === null && at.value.queries.some((query) => before.test(render(query, "sqlite").text))) {
          yield* runAll(...change);
          seen = yield* all(look);
        }
        const results = yield at.value;
        at = body.next(results);
        if (at.done === true && seen !== null) return { seen, answer: at.value };
      }
      throw new Error("the operation has no such statement");
    }),
    rows: read("meanwhile.rows", function* ({ query }: { readonly query: Sql }): Steps<readonly unknown[]> {
      return yield* all(query);
    }),
    /** Runs another operation. Answers its statements. */
    asked: operation("meanwhile.asked", function* (input: Pick<Meanwhile, "of" | "input">, ctx): Steps<string[]> {
      const body = input.of.steps(input.input as never, ctx);
      const asked: string[] = [];
      for (let at = body.next(); at.done !== true; ) {
        asked.push(...at.value.queries.map((query) => render(query, "sqlite").text));
        const results = yield at.value;
        at = body.next(results);
      }
      return asked;
    }),
    /** Runs another operation. Answers how many rows its statements changed. */
    changes: operation("meanwhile.changes", function* (input: Pick<Meanwhile, "of" | "input">, ctx): Steps<number> {
      const body = input.of.steps(input.input as never, ctx);
      let changes = 0;
      for (let at = body.next(); at.done !== true; ) {
        const results = yield at.value;
        for (const result of results) changes += result.changes;
        at = body.next(results);
      }
      return changes;
    }),
    change: operation("meanwhile.change", function* ({ queries }: { readonly queries: readonly Sql[] }): Steps<void> {
      yield* runAll(...queries);
    }),
  },
};

const opened: StoreHandle<typeof table>[] = [];
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});

interface Stage {
  readonly store: Store;
  readonly clock: StoreClock;
  readonly own: StoreHandle<typeof table>["store"]["meanwhile"];
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

async function openStage(): Promise<Stage> {
  const clock = storeClock();
  const handle = openMemoryStore({ table, clock });
  opened.push(handle);
  const store = asStore(handle.store);
  await join(store, HOST);
  return { store, clock, own: handle.store.meanwhile };
}

const agent = agentTarget.parse({
  kind: "agent",
  provider: "claude",
  prompt: { digest: "a".repeat(64), bytes: 1, head: "p" },
  cwd: "/repo",
});

const at = ({ attempt }: Assignment) => ({ attemptId: attempt.id, token: attempt.token });

async function granted({ store }: Stage): Promise<Assignment> {
  const [one] = (await store.admission.pass({ hostId: HOST, limits })).mine;
  if (one === undefined) throw new Error("nothing was let in");
  return one;
}

/** A run up to a point of its life. */
async function going(stage: Stage, upTo: "reserved" | "starting" | "running", sessionId?: string): Promise<Assignment> {
  const { store, clock } = stage;
  const policy = runPolicy.parse({ attempts: 9 });
  await store.runs.add(runDraft(sessionId === undefined ? commandOf(["true"]) : agent, { policy, hostPin: HOST }));
  const one = await granted(stage);
  if (upTo === "reserved") return one;
  await store.attempts.start({ ...at(one), bootId: "b", folder: "f", awakeAt: 0, sessionId: sessionId ?? null });
  if (upTo === "starting") return one;
  await store.attempts.run({ ...at(one), pid: 1, pidStarted: "1", startedAt: clock.now() });
  return one;
}

/** Lets one in, and starts it. */
async function started(stage: Stage): Promise<Assignment> {
  const one = await granted(stage);
  await stage.store.attempts.start({ ...at(one), bootId: "b", folder: "f", awakeAt: 0 });
  await stage.store.attempts.run({ ...at(one), pid: 1, pidStarted: "1", startedAt: stage.clock.now() });
  return one;
}

const failed = outcomeOf({ kind: "failed", class: "exit", exitStatus: 1 });
const settle = (one: Assignment, outcome = outcomeOf()) => ({ ...at(one), outcome, limits });

async function waiting(stage: Stage): Promise<Assignment> {
  const one = await going(stage, "running");
  await stage.store.attempts.settle(settle(one, failed));
  return one;
}

async function addLoop({ store }: Stage, policy: object = {}): Promise<string> {
  const { id } = await store.loops.add({
    draft: {
      name: "one",
      schedule: { kind: "interval", everyMs: MINUTE, anchorAt: 0 },
      target: commandOf(["true"]),
      policy: loopPolicy.parse(policy),
      hostPin: HOST,
      managedBy: null,
    },
    limits,
  });
  return id;
}

async function turn({ store, clock }: Stage): Promise<void> {
  clock.advance(MINUTE);
  await store.loops.planDue({ cause: "late", limits });
}

interface Case {
  /** Makes the stage, and answers what is asked and changed there. */
  arrange(stage: Stage): Promise<Omit<Meanwhile, "of">>;
  readonly of: Operation<never, unknown>;
}

const wide = <In, Out>(of: Operation<In, Out>) => of as unknown as Operation<never, unknown>;

const attempts = sql`select * from attempts`;
const steps = sql`select * from steps`;
const runs = sql`select id, status, reason, wake_at, finished_at, cancel_requested_at, waits_turn from runs`;
const loops = sql`select id, planned_until, next_at, revision, status from loops`;

const taken = sql`update attempts set token = token + 1`;
const ended = sql`update attempts set status = 'lost', finished_at = 1`;
const stepTaken = sql`update steps set token = token + 5`;
const stepEnded = sql`update steps set status = 'cancelled', finished_at = 1`;
const runEnded = sql`update runs set status = 'cancelled', finished_at = 1`;

/** One change at a time on the way of an operation, and the rows that must keep it. */
function cases(
  name: string,
  of: Operation<never, unknown>,
  arrange: (stage: Stage) => Promise<unknown>,
  changes: Readonly<Record<string, readonly [change: Sql, look: Sql, before?: RegExp]>>,
): [string, Case][] {
  return Object.entries(changes).map(([what, [change, look, before]]) => [
    `${name}: ${what}`,
    {
      of,
      arrange: async (stage) => {
        const input = await arrange(stage);
        return {
          input,
          change: [change],
          look,
          ...(before === undefined ? {} : { before }),
        };
      },
    },
  ]);
}

const everyCase: [string, Case][] = [
  ...cases(
    "a start",
    wide(operations.attempts.start),
    async (stage) => ({ ...at(await going(stage, "reserved")), bootId: "b", folder: "f", awakeAt: 0 }),
    {
      "another token": [taken, attempts],
      "an end": [ended, attempts],
    },
  ),
  ...cases(
    "a ticket",
    wide(operations.attempts.run),
    async (stage) => ({ ...at(await going(stage, "starting")), pid: 1, pidStarted: "1", startedAt: 1 }),
    { "another token": [taken, attempts], "an end": [ended, attempts] },
  ),
  ...cases(
    "an adoption",
    wide(operations.attempts.adopt),
    async (stage) => ({ ...at(await going(stage, "running")), hostId: HOST, incarnation: 2, leaseMs: 1 }),
    {
      "another token": [taken, attempts],
      "an end": [ended, attempts],
      "another token of the step": [stepTaken, sql`select token from steps`],
    },
  ),
  ...cases(
    "a stop",
    wide(operations.attempts.ending),
    async (stage) => ({ ...at(await going(stage, "running")), by: "timeout" }),
    { "another token": [taken, attempts], "an end": [ended, attempts] },
  ),
  ...cases(
    "a session",
    wide(operations.attempts.session),
    async (stage) => ({ ...at(await going(stage, "running", "first")), sessionId: "second" }),
    {
      "another token": [taken, attempts, /^update sessions/],
      "an end": [ended, attempts, /^update sessions/],
      "another token of the step": [stepTaken, steps, /^update sessions/],
    },
  ),
  ...cases(
    "an end",
    wide(operations.attempts.settle),
    async (stage) => settle(await going(stage, "running", "first")),
    {
      "another token": [taken, attempts, /^update attempts/],
      "an end": [ended, attempts, /^update attempts/],
      "another token of the step": [stepTaken, sql`select status, token from steps`, /^update attempts/],
      "an end of the step": [stepEnded, steps, /^update attempts/],
      "an end of the run": [runEnded, runs, /^update attempts/],
      "a session that another has": [
        sql`update sessions set live_attempt_id = 'another'`,
        sql`select live_attempt_id from sessions`,
        /^update attempts/,
      ],
    },
  ),
  ...cases(
    "an end before another try",
    wide(operations.attempts.settle),
    async (stage) => settle(await going(stage, "running"), failed),
    { "an end of the run": [runEnded, runs, /^update attempts/] },
  ),
  ...cases(
    "an end in a slot",
    wide(operations.attempts.settle),
    async (stage) => {
      await addLoop(stage);
      await turn(stage);
      return settle(await started(stage));
    },
    {
      "another run of the slot": [sql`update slots set run_id = 'another'`, sql`select * from slots`],
      "an outcome of the slot": [sql`update slots set outcome = 'missed'`, sql`select * from slots`],
    },
  ),
  ...cases(
    "an end that lets the next one in",
    wide(operations.attempts.settle),
    async (stage) => {
      await addLoop(stage, { overlap: "queue" });
      await turn(stage);
      const one = await started(stage);
      await turn(stage);
      return settle(one);
    },
    {
      "an end of the next": [
        sql`update runs set status = 'cancelled', finished_at = 1 where waits_turn = 1`,
        sql`select status, finished_at, waits_turn from runs where finished_at = 1`,
      ],
      "an end of the next one's step": [
        sql`update steps set status = 'cancelled', finished_at = 1 where status = 'pending'`,
        sql`select * from steps where finished_at = 1`,
      ],
    },
  ),
  ...cases(
    "a takeover",
    wide(operations.attempts.takeOver),
    async (stage) => {
      await going(stage, "running");
      stage.clock.advance(limits.takeoverMs + 2 * limits.leaseMs);
      await join(stage.store, AWAY);
      return { hostId: AWAY, limits };
    },
    {
      "another token of the step": [stepTaken, sql`select token from steps`],
      "an end": [ended, attempts, /^select \* from runs/],
    },
  ),
  ...cases(
    "a step whose time has come",
    wide(operations.steps.wake),
    async (stage) => {
      await waiting(stage);
      stage.clock.advance(10 * MINUTE);
      return { limit: 9 };
    },
    {
      "an end of the step": [stepEnded, steps],
      "an end of the step before it is read again": [
        stepEnded,
        sql`select type from events where type = 'step.ready'`,
        /^select id, run_id from steps/,
      ],
      "a later time": [sql`update steps set wake_at = wake_at + 86400000`, steps, /^select id, run_id from steps/],
      "an end of the run": [runEnded, runs],
      "a run that goes on": [sql`update runs set status = 'running'`, runs],
    },
  ),
  ...cases(
    "a release",
    wide(operations.accounts.release),
    async (stage) => {
      const one = await going(stage, "running", "first");
      const limit = outcomeOf({ kind: "failed", class: "rate_limited", exitStatus: 1, message: "slow down" });
      await stage.store.attempts.settle(settle(one, limit));
      return { accountId: "claude:default" };
    },
    {
      "an end of the step": [stepEnded, steps, /^update holds/],
      "an end of the step before it is read again": [
        stepEnded,
        sql`select type from events where type = 'step.ready'`,
        /^select \* from runs/,
      ],
      "a reason of another kind": [sql`update steps set reason = 'disk'`, steps, /^select \* from runs/],
    },
  ),
  ...cases(
    "a pass",
    wide(operations.admission.pass),
    async (stage) => {
      await stage.store.runs.add(runDraft(commandOf(["true"]), { hostPin: HOST }));
      return { hostId: HOST, limits };
    },
    {
      "an end of the step before it is locked": [stepEnded, sql`select id from attempts`, /^select \* from runs/],
      "an end of the step": [stepEnded, steps],
      "another token of the step": [stepTaken, steps],
      "an end of the run": [runEnded, runs],
    },
  ),
  ...cases(
    "a plan",
    wide(operations.loops.planDue),
    async (stage) => {
      await addLoop(stage);
      stage.clock.advance(MINUTE);
      return { cause: "late", limits };
    },
    {
      "a plan of another": [sql`update loops set planned_until = planned_until + 1`, loops],
      "an edit": [sql`update loops set revision = revision + 1`, loops],
    },
  ),
  ...cases(
    "a second slot that ends like the one before",
    wide(operations.loops.planDue),
    async (stage) => {
      await addLoop(stage, { overlap: "skip" });
      for (let nth = 0; nth < 2; nth++) await turn(stage);
      stage.clock.advance(MINUTE);
      return { cause: "late", limits };
    },
    { "a longer one": [sql`update slots set until_at = until_at + 1`, sql`select * from slots`] },
  ),
  ...cases(
    "a slot by hand",
    wide(operations.loops.runNow),
    async (stage) => {
      const loopId = await addLoop(stage);
      stage.clock.advance(MINUTE);
      return { loopId, by: "p", parentRunId: null, limits };
    },
    { "a plan of another": [sql`update loops set planned_until = planned_until + 1`, loops] },
  ),
  ...cases(
    "a try by hand",
    wide(operations.loops.runNow),
    async (stage) => {
      const loopId = await addLoop(stage, { attempts: 9 });
      await turn(stage);
      await stage.store.attempts.settle(
        settle(await granted(stage), outcomeOf({ kind: "never_started", class: "spawn" })),
      );
      return { loopId, by: "p", parentRunId: null, limits };
    },
    { "an end of the step": [stepEnded, steps], "an end of the run": [runEnded, runs] },
  ),
  ...cases(
    "a pause",
    wide(operations.loops.pause),
    async (stage) => {
      const loopId = await addLoop(stage);
      await turn(stage);
      return { loopId, reason: null, limits };
    },
    { "an end of the step": [stepEnded, steps], "an end of the run": [runEnded, runs] },
  ),
  ...cases(
    "a cancel of what waits",
    wide(operations.runs.cancel),
    async (stage) => ({ runId: (await waiting(stage)).run.id, by: "p", reason: "r", limits }),
    {
      "an end of the step": [sql`update steps set status = 'failed', finished_at = 1`, steps],
      "an end of the run": [
        sql`update runs set status = 'failed', finished_at = 1`,
        sql`select status, finished_at from runs`,
      ],
    },
  ),
  ...cases(
    "a cancel of what is at work",
    wide(operations.runs.cancel),
    async (stage) => ({ runId: (await going(stage, "running")).run.id, by: "p", reason: "r", limits }),
    { "an end of the run": [runEnded, runs] },
  ),
  ...cases(
    "a host's report",
    wide(operations.hosts.report),
    async () => ({ hostId: HOST, incarnation: 1, status: "disk" }),
    { "another daemon": [sql`update hosts set incarnation = 2`, sql`select status from hosts`] },
  ),
  ...cases(
    "a host's leave",
    wide(operations.hosts.leave),
    async () => ({ hostId: HOST, incarnation: 1, backBy: null }),
    { "another daemon": [sql`update hosts set incarnation = 2`, sql`select status from hosts`] },
  ),
  ...(["made", "not made", "looked at"] as const).flatMap((what) =>
    cases(
      `a tree that is ${what}`,
      what === "looked at" ? wide(operations.worktrees.looked) : wide(operations.worktrees.made),
      async (stage) => {
        const { run } = await going(stage, "reserved");
        await stage.store.worktrees.begin({ runId: run.id, hostId: HOST, cwd: "/repo", path: "/tree" });
        const made = { repository: "/repo", branch: "b", base: "1", baseNote: "n" };
        if (what !== "looked at") return { runId: run.id, made: what === "made" ? made : null };
        return { runId: run.id, state: "kept", keptBecause: "dirty", commits: 1, diffStat: "1" };
      },
      { "a removal": [sql`update worktrees set state = 'removed'`, sql`select * from worktrees`] },
    ),
  ),
  ...cases(
    "a slot that is let go of",
    wide(operations.stuck.release),
    async (stage) => {
      const loopId = await addLoop(stage);
      await turn(stage);
      const [slot] = (await stage.own.rows({ query: sql`select at from slots` })) as { at: number }[];
      await stage.own.change({ queries: [sql`delete from runs`] });
      return { hostId: HOST, claimsOf: [], slots: [{ loopId, at: slot?.at ?? 0 }] };
    },
    { "an outcome": [sql`update slots set outcome = 'succeeded'`, sql`select * from slots`] },
  ),
];

describe("a change between the reads and the writes stays, at", () => {
  test.each(everyCase)("%s", async (_, { of, arrange }) => {
    const stage = await openStage();
    const { look, ...given } = await arrange(stage);
    let seen: readonly unknown[];
    try {
      ({ seen } = await stage.own.run({ of, look, ...given }));
    } catch (error) {
      // It saw that it had changed nothing, and took everything back.
      expect(error).toBeInstanceOf(BrokenAssert);
      expect((error as BrokenAssert).message).toContain("under its lock");
      return;
    }
    expect(await stage.own.rows({ query: look })).toEqual(seen);
  });
});

test.each<
  [string, (stage: Stage, one: Assignment) => Promise<[of: Operation<never, unknown>, input: unknown, answer: unknown]>]
>([
  [
    "a start",
    async (_, one) => [
      wide(operations.attempts.start),
      { ...at(one), bootId: "b", folder: "f", awakeAt: 0 },
      "superseded",
    ],
  ],
  [
    "an end",
    async (_, one) => [wide(operations.attempts.settle), settle(one), { answer: "superseded", step: null, run: null }],
  ],
  [
    "a takeover",
    async (stage) => {
      stage.clock.advance(limits.takeoverMs + 2 * limits.leaseMs);
      await join(stage.store, AWAY);
      return [wide(operations.attempts.takeOver), { hostId: AWAY, limits }, { taken: 0 }];
    },
  ],
])("a run that is removed before it is locked is one that is not there, at %s", async (_, arrange) => {
  const stage = await openStage();
  const [of, input, expected] = await arrange(stage, await going(stage, "reserved"));
  const change = [sql`delete from steps`, sql`delete from attempts`, sql`delete from runs`];
  const before = /^select [^()]* from runs where id = /;
  expect(await stage.own.run({ of, input, change, before, look: steps })).toEqual({ seen: [], answer: expected });
});

test("an account whose limits are over already is not written to by an answer under it", async () => {
  const stage = await openStage();
  const asked = { of: wide(operations.accounts.answered), input: { accountId: "claude:work" } };
  await stage.store.accounts.add({ provider: "claude", name: "work", home: "/h", env: {}, secrets: {}, cap: null });
  const writes = async () => (await stage.own.asked(asked)).filter((text) => WRITES.test(text));
  expect(await writes()).not.toEqual([]);
  expect(await writes()).toEqual([]);
});

const beside = (needs: boolean): readonly Sql[] => [
  sql`insert into steps (id, run_id, key, kind, status, needs_left, cap_key, turn_at, max_attempts, created_at)
      select 'other', run_id, 'other', kind, 'pending', 1, cap_key, turn_at, max_attempts, created_at from steps`,
  ...(needs
    ? [
        sql`insert into step_needs (step_id, needs_step_id, created_at) select 'other', id, 1 from steps where id <> 'other'`,
      ]
    : []),
];

test("a step that ended meanwhile does not go on because another has succeeded", async () => {
  const stage = await openStage();
  const input = settle(await going(stage, "running"));
  await stage.own.change({ queries: beside(true) });
  const { seen } = await stage.own.run({
    of: wide(operations.attempts.settle),
    input,
    change: [sql`update steps set status = 'cancelled', finished_at = 1 where id = 'other'`],
    before: /^update attempts/,
    look: sql`select * from steps where id = 'other'`,
  });
  expect(await stage.own.rows({ query: sql`select * from steps where id = 'other'` })).toEqual(seen);
});

test("a takeover of what has ended meanwhile takes nothing", async () => {
  const stage = await openStage();
  await going(stage, "running");
  stage.clock.advance(limits.takeoverMs + 2 * limits.leaseMs);
  await join(stage.store, AWAY);
  const input = { hostId: AWAY, limits };
  const of = wide(operations.attempts.takeOver);
  const { answer } = await stage.own.run({
    of,
    input,
    change: [ended],
    before: /^select \* from runs/,
    look: steps,
  });
  expect(answer).toEqual({ taken: 0 });
});

test("a restore that has nothing left to end writes nothing", async () => {
  const stage = await openStage();
  await going(stage, "running", "first");
  const again = async () => {
    const counted = { of: wide(operations.restores.standDown), input: { hostId: AWAY } };
    return stage.own.changes(counted);
  };
  await addLoop(stage);
  await stage.own.change({ queries: [sql`update runs set hooks_due = '[]'`] });
  expect(await again()).toBe(4);
  expect(await again()).toBe(0);
});

test("what a step's end means for others is asked only where others wait for it", async () => {
  const stage = await openStage();
  const needs = async (outcome: Outcome, others: readonly Sql[] = []) => {
    const one = await going(stage, "running");
    await stage.own.change({ queries: others });
    const asked = await stage.own.asked({ of: wide(operations.attempts.settle), input: settle(one, outcome) });
    await stage.own.change({ queries: [sql`delete from runs`, sql`delete from steps`] });
    return asked.filter((text) => text.includes("step_needs")).length;
  };
  expect(await needs(outcomeOf())).toBe(0);
  expect(await needs(failed, beside(false))).toBe(0);
  expect(await needs(outcomeOf(), beside(false))).toBe(1);
});

test.each([
  [
    "a start",
    "reserved",
    (one: Assignment) => [wide(operations.attempts.start), { ...at(one), bootId: "b", folder: "f", awakeAt: 0 }],
  ],
  [
    "a ticket",
    "starting",
    (one: Assignment) => [wide(operations.attempts.run), { ...at(one), pid: 1, pidStarted: "1", startedAt: 1 }],
  ],
  [
    "an adoption",
    "running",
    (one: Assignment) => [wide(operations.attempts.adopt), { ...at(one), hostId: HOST, incarnation: 2, leaseMs: 1 }],
  ],
  ["an end", "running", (one: Assignment) => [wide(operations.attempts.settle), settle(one)]],
] as const)("%s whose attempt was taken meanwhile is taken back whole, its event included", async (_, upTo, ask) => {
  const stage = await openStage();
  const [of, input] = ask(await going(stage, upTo)) as [Operation<never, unknown>, unknown];
  const before = await stage.own.rows({ query: sql`select id from events` });
  const run = stage.own.run({ of, input, change: [taken], before: /^update attempts/, look: attempts });
  await expect(run).rejects.toBeInstanceOf(BrokenAssert);
  expect(await stage.own.rows({ query: sql`select id from events` })).toEqual(before);
});
