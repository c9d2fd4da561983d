/** Pages of every list while rows come, end, go and are renamed: what stayed is seen, and nothing is seen twice. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { AppError } from "../core/errors.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { HistoryPlace } from "../core/ports.ts";
import type { LoopRecord, SlotRecord } from "../core/records.ts";
import { lastInstants } from "../core/schedule.ts";
import { forEachStore, type OpenTestStore, START, type StoreKind } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";

const HOUR = 3_600_000;
const hostId = "host_00000000000000000000000001";
const target = commandOf(["true"]);
const LOOPS = 4;

async function openStage(open: OpenTestStore<typeof operations>) {
  const { store: raw, clock } = await open();
  const store = asStore(raw);
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
  let named = 0;
  const addLoop = () => {
    named++;
    return store.loops.add({
      draft: {
        // Names in another order than they came, and ids in that in which they came.
        name: `${"qwertyuiop"[named % 10]}-${named}`,
        schedule: { kind: "interval", everyMs: HOUR, anchorAt: START },
        target,
        policy: loopPolicy.parse({
          overlap: named % 2 === 0 ? "skip" : "allow",
          catchUp: "none",
          labels: named % 3 === 0 ? ["a"] : [],
        }),
        hostPin: hostId,
        managedBy: null,
      },
      limits,
    });
  };
  const loops: LoopRecord[] = [];
  for (let i = 0; i < LOOPS; i++) loops.push(await addLoop());
  const live: { readonly attemptId: string; readonly token: number }[] = [];
  return { raw, store, clock, loops, live, addLoop };
}
type Stage = Awaited<ReturnType<typeof openStage>>;

/** What may happen between two pages; `n` chooses among what is there. */
const CHANGES: { readonly [what: string]: (stage: Stage, n: number) => Promise<unknown> } = {
  async plan({ store, clock }, n) {
    // On time, or so late that the instant is missed.
    clock.set(Math.floor(clock.now() / HOUR) * HOUR + HOUR + (n % 3 === 0 ? 120_000 : 0));
    await store.loops.planDue({ cause: "down", limits });
  },
  async runOne({ store }, n) {
    const policy = runPolicy.parse({ labels: n % 2 === 0 ? ["a"] : [] });
    await store.runs.add(runDraft(target, { hostPin: hostId, policy }));
  },
  async runLoop({ store, loops }, n) {
    const loopId = loops[n % loops.length]?.id ?? "";
    await store.loops.runNow({ loopId, by: "p", parentRunId: null, limits });
  },
  async work({ store, clock, live }, n) {
    clock.advance(1_000);
    const { mine } = await store.admission.pass({ hostId, limits });
    for (const { attempt, run } of mine) {
      const at = { attemptId: attempt.id, token: attempt.token };
      await store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.1`, awakeAt: 0 });
      await store.attempts.run({ ...at, pid: 100, pidStarted: "1", startedAt: clock.now() });
      if (live.length % 4 === 1)
        await store.worktrees.begin({ runId: run.id, hostId, cwd: "/repo", path: `/trees/${run.id}` });
      live.push(at);
    }
    const failure = { kind: "failed", class: "exit", message: "m", exitStatus: 1 } as const;
    // A few stay at work.
    for (const at of live.splice(0, n % 3 === 0 ? live.length - 2 : live.length))
      await store.attempts.settle({
        ...at,
        outcome: outcomeOf({ ...(n % 5 === 0 ? failure : {}), startedAt: clock.now() }),
        limits,
      });
  },
  async cancel({ store }, n) {
    const { items } = await store.runs.list({ ...allRuns, status: ["queued", "running"], limit: 50, cursor: null });
    const runId = items[n % Math.max(1, items.length)]?.id;
    if (runId !== undefined) await store.runs.cancel({ runId, by: "person", reason: "r", limits });
  },
  // All that ended, or all but the last of each loop: rows go, and slots become one.
  async prune({ store, clock }, n) {
    clock.advance(1_000);
    let after: HistoryPlace | null = null;
    do after = (await store.history.prune({ ageMs: 1, keep: n % 3, limit: 1 + (n % 7), after })).next;
    while (after !== null);
  },
  async tree({ store }, n) {
    const { items } = await store.worktrees.list({ hostId, limit: 50, cursor: null });
    const runId = items[n % Math.max(1, items.length)]?.runId;
    const found = { keptBecause: null, commits: 0, diffStat: null };
    if (runId !== undefined) await store.worktrees.looked({ runId, state: n % 3 === 0 ? "removed" : "kept", ...found });
  },
  async addLoop(stage) {
    stage.loops.push(await stage.addLoop());
  },
  async rename({ store, loops }, n) {
    const loopId = loops[n % loops.length]?.id ?? "";
    await store.loops.rename({ loopId, name: `${"mnbvcxz"[n % 7]}-${n}` });
  },
  async archive({ store, loops }, n) {
    await store.loops.archive({ loopId: loops[n % loops.length]?.id ?? "", limits });
  },
  async unarchive({ store, loops }, n) {
    await store.loops.unarchive({ loopId: loops[n % loops.length]?.id ?? "", limits });
  },
  async remove({ store, loops }, n) {
    // The one whose slots are listed stays.
    if (loops.length > LOOPS)
      await store.loops.remove({ loopId: loops.splice(1 + (n % (loops.length - 1)), 1)[0]?.id ?? "" });
  },
  async edit({ store, loops }, n) {
    const loop = loops[n % loops.length];
    if (loop === undefined) return;
    const policy = { ...loop.policy, labels: n % 2 === 0 ? ["a"] : ["b"] };
    await store.loops.edit({ loopId: loop.id, change: { policy }, limits });
  },
};

const change = async (stage: Stage, [what, n]: Change): Promise<void> => {
  try {
    await CHANGES[what]?.(stage, n);
  } catch (error) {
    // Archived, taken or not there: it is not changed then.
    if (!(error instanceof AppError)) throw error;
  }
};

type Change = readonly [what: string, n: number];
const oneChange = fc.tuple(
  fc.oneof(
    { arbitrary: fc.constantFrom("plan", "work", "prune", "runOne", "runLoop"), weight: 2 },
    { arbitrary: fc.constantFrom(...Object.keys(CHANGES)), weight: 2 },
  ),
  fc.nat(1_000),
);

/** A page as keys of what is on it. */
interface Keys {
  readonly keys: readonly string[];
  readonly next: unknown;
}
type List = (stage: Stage, cursor: never, limit: number, walk: number) => Promise<Keys>;

const allRuns = { loopId: null, status: null, label: null, since: null } as const;
const instantsOf = ({ at, untilAt, count, schedule }: SlotRecord): readonly string[] =>
  (count === 1 ? [at] : lastInstants(schedule as NonNullable<typeof schedule>, at - 1, untilAt, 1_000))
    .toReversed()
    .map(String);
const paged = <Row>(
  page: { readonly items: readonly Row[]; readonly next: unknown },
  keysOf: (row: Row) => readonly string[],
): Keys => ({
  keys: page.items.flatMap(keysOf),
  next: page.next,
});

const runs =
  (filters: object): List =>
  async ({ raw }, cursor, limit, walk) =>
    paged(await raw.runs.list({ ...allRuns, ...filters, cursor, limit, walk }), ({ id }) => [id]);
const ofLoops =
  (filters: object): List =>
  async ({ raw }, cursor, limit, walk) =>
    // One that is renamed is another row: it goes from where it was, and comes where it is.
    paged(await raw.loops.list({ archived: false, label: null, ...filters, cursor, limit, walk }), ({ id, name }) => [
      `${id} ${name}`,
    ]);
const slots =
  (filters: object): List =>
  async ({ raw, loops }, cursor, limit, walk) =>
    paged(await raw.slots.list({ loopId: loops[0]?.id ?? "", ...filters, cursor, limit, walk }), instantsOf);
const trees =
  (filters: object): List =>
  async ({ raw }, cursor, limit) =>
    paged(await raw.worktrees.list({ hostId: null, ...filters, cursor, limit }), ({ runId }) => [runId]);

const LISTS: { readonly [name: string]: List } = {
  runs: runs({}),
  "runs by status": runs({ status: ["succeeded", "failed", "running"] }),
  "runs by label": runs({ label: "a", status: ["succeeded", "cancelled"] }),
  "runs by class": runs({ class: "exit" }),
  "runs of a loop": async (stage, ...rest) => runs({ loopId: stage.loops[0]?.id ?? "" })(stage, ...rest),
  loops: ofLoops({}),
  "loops with those that are archived": ofLoops({ archived: true }),
  "loops by status": ofLoops({ status: ["active"] }),
  "loops by label": ofLoops({ label: "a" }),
  slots: slots({}),
  "slots by outcome": slots({ outcome: ["succeeded", "missed"] }),
  worktrees: trees({}),
  "worktrees that are kept": trees({ kept: true }),
  async events({ store }, after, limit) {
    const { items, cursor } = await store.events.list({ after, limit, runId: null });
    return {
      keys: items.map(({ subjectKind, subjectId, number }) => `${subjectKind} ${subjectId} ${number}`),
      next: items.length < limit ? null : cursor,
    };
  },
  "history for an export": async ({ store }, after, limit) =>
    paged(await store.history.page({ after, limit }), ({ run }) => [run.id]),
};

/** A reading of one list, page by page. */
interface Walk {
  readonly name: string;
  /** What was there at every moment since the first page. */
  stayed: ReadonlySet<string>;
  readonly seen: string[];
  cursor: unknown;
  isOver: boolean;
}

const TRIES: { readonly [way in StoreKind["way"]]: number } = { memory: 15, direct: 2, worker: 2, postgres: 2 };

forEachStore("pages", (open, { way }) => {
  test("of each list: what stays is seen once, whatever changes between two of them", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(1_000), { minLength: 3, maxLength: 8 }),
        fc.array(oneChange, { maxLength: 12 }),
        fc.array(fc.array(oneChange, { maxLength: 3 }), { minLength: 3, maxLength: 8 }),
        fc.integer({ min: 1, max: 5 }),
        fc.integer({ min: 1, max: 6 }),
        async (hours, before, between, limit, walk) => {
          const stage = await openStage(open);
          for (const n of hours) for (const what of ["plan", "runOne", "work"]) await change(stage, [what, n]);
          for (const one of before) await change(stage, one);
          const now = async ({ name }: Walk) =>
            new Set((await LISTS[name]?.(stage, null as never, 1_000, 5_000))?.keys);
          const walks: Walk[] = Object.keys(LISTS).map((name) => ({
            name,
            stayed: new Set(),
            seen: [],
            cursor: null,
            isOver: false,
          }));
          for (const one of walks) one.stayed = await now(one);
          for (let pages = 0; walks.some(({ isOver }) => !isOver); pages++) {
            if (pages === 1_000) throw new Error("the pages have no end");
            for (const one of walks.filter(({ isOver }) => !isOver)) {
              const page = await LISTS[one.name]?.(stage, one.cursor as never, limit, walk);
              one.seen.push(...(page?.keys ?? []));
              one.cursor = page?.next ?? null;
              one.isOver = one.cursor === null;
            }
            for (const each of between[pages] ?? []) {
              await change(stage, each);
              for (const one of walks.filter(({ isOver }) => !isOver)) {
                const there = await now(one);
                one.stayed = new Set([...one.stayed].filter((key) => there.has(key)));
              }
            }
          }
          for (const { name, seen, stayed } of walks) {
            expect(seen, `of ${name} nothing twice`).toEqual([...new Set(seen)]);
            expect(
              [...stayed].filter((key) => !seen.includes(key)),
              `of ${name} nothing missed`,
            ).toEqual([]);
          }
        },
      ),
      { numRuns: TRIES[way] },
    );
  });
});
