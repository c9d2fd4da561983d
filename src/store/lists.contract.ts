/** Lists: each combination of filters gives what a plain look through everything gives, page by page, while rows come and end. */
import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { RunRecord } from "../core/records.ts";
import type { FailureClass, RunStatus } from "../core/run.ts";
import { forEachStore, type OpenTestStore } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql } from "./sql.ts";

const T0 = Date.UTC(2026, 0, 1);
const hostId = "host_00000000000000000000000001";
const target = commandOf(["true"]);

async function openStage(open: OpenTestStore<typeof operations>) {
  const { store: raw, clock, run } = await open();
  const store = asStore(raw);
  clock.set(T0);
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
  const loop = (name: string, policy: object = {}) =>
    store.loops.add({
      draft: {
        name,
        schedule: { kind: "interval", everyMs: 3_600_000, anchorAt: T0 },
        target,
        policy: loopPolicy.parse({ overlap: "allow", ...policy }),
        hostPin: hostId,
        managedBy: name.startsWith("filed") ? "/drover.yaml" : null,
      },
      limits,
    });
  /** Starts what may start; ends each as said, or leaves it running. */
  const work = async (how: (run: RunRecord) => FailureClass | "succeeded" | null) => {
    const { mine } = await store.admission.pass({ hostId, limits });
    for (const { attempt, run } of mine) {
      const at = { attemptId: attempt.id, token: attempt.token };
      await store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.1`, awakeAt: 0 });
      await store.attempts.run({ ...at, pid: 100, pidStarted: "1", startedAt: clock.now() });
      const end = how(run);
      if (end === null) continue;
      const outcome =
        end === "succeeded"
          ? outcomeOf({ startedAt: clock.now() })
          : outcomeOf({ kind: "failed", class: end, message: "m", exitStatus: 1, startedAt: clock.now() });
      await store.attempts.settle({ ...at, outcome, limits });
    }
    return mine.length;
  };
  return { raw, store, clock, loop, work, run };
}
type Stage = Awaited<ReturnType<typeof openStage>>;

const nothing = { loopId: null, status: null, label: null, since: null } as const;

async function pagesOf(stage: Stage, filters: object, limit: number, walk: number): Promise<RunRecord[]> {
  const seen: RunRecord[] = [];
  let cursor: string | null = null;
  for (let page = 0; page < 200; page++) {
    const given: { readonly items: readonly RunRecord[]; readonly next: string | null } = await stage.raw.runs.list({
      ...nothing,
      ...filters,
      limit,
      cursor,
      walk,
    });
    expect(given.items.length).toBeLessThanOrEqual(limit);
    seen.push(...given.items);
    cursor = given.next;
    if (cursor === null) return seen;
  }
  throw new Error("the pages have no end");
}

forEachStore("lists", (open) => {
  test("runs: each combination of filters, in pages of any size, however few rows a page looks through", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    const [one, two] = [await stage.loop("one", { labels: ["a"] }), await stage.loop("two", { attempts: 2 })];
    for (let i = 0; i < 12; i++) {
      clock.set(T0 + i * 1_000);
      await store.loops.runNow({ loopId: one.id, by: "p", parentRunId: null, limits });
      await store.loops.runNow({ loopId: two.id, by: "p", parentRunId: null, limits });
      await store.runs.add(
        runDraft(target, { policy: runPolicy.parse({ labels: i % 2 === 0 ? ["a"] : ["b"] }), hostPin: hostId }),
      );
      const ends = ["succeeded", "exit", "lost", null, "succeeded", "exit"] as const;
      await stage.work(() => ends[i % ends.length] ?? null);
    }
    // Not started: they stay queued.
    clock.set(T0 + 20_000);
    await store.loops.runNow({ loopId: one.id, by: "p", parentRunId: null, limits });
    const all = await pagesOf(stage, {}, 1_000, 5_000);
    expect(all.length).toBeGreaterThan(30);
    expect(new Set(all.map((run) => run.status)).size).toBeGreaterThan(3);
    const statuses: readonly (readonly RunStatus[] | null)[] = [
      null,
      ["failed"],
      ["running"],
      ["waiting", "queued"],
      ["succeeded", "running", "failed"],
    ];
    for (const loopId of [null, one.id, two.id])
      for (const status of statuses)
        for (const label of [null, "a", "none"])
          for (const more of [{}, { class: "exit" as const }, { reason: "retry" }, { kind: "command" as const }]) {
            const span = { since: T0 + 1_000, until: T0 + 10_000 };
            const wanted = all.filter(
              (run) =>
                (loopId === null || run.loopId === loopId) &&
                (status === null || status.includes(run.status)) &&
                (label === null || run.policy.labels.includes(label)) &&
                (!("class" in more) || run.error?.class === more.class) &&
                (!("reason" in more) || (run.finishedAt === null && run.reason === more.reason)) &&
                run.queuedAt >= span.since &&
                run.queuedAt <= span.until,
            );
            const filters = { loopId, status, label, ...more, ...span };
            const ids = (runs: readonly RunRecord[]) => runs.map((run) => run.id);
            const said = JSON.stringify(filters);
            expect(ids(await pagesOf(stage, filters, 50, 5_000)), said).toEqual(ids(wanted));
            expect(ids(await pagesOf(stage, filters, 3, 4)), said).toEqual(ids(wanted));
          }
  });

  test("a filter by none of the words finds nothing, and is no fault", async () => {
    const { raw, store, loop: add } = await openStage(open);
    const loop = await add("one");
    await store.loops.runNow({ loopId: loop.id, by: "p", parentRunId: null, limits });
    const none = { items: [], next: null };
    const page = { limit: 5, cursor: null };
    for (const label of [null, "a"]) {
      expect(await raw.runs.list({ ...nothing, ...page, label, status: [] })).toEqual(none);
      expect(await raw.loops.list({ ...page, archived: false, label, status: [] })).toEqual(none);
    }
    expect(await raw.slots.list({ ...page, loopId: loop.id, outcome: [] })).toEqual(none);
  });

  test("runs: what comes, ends or goes on between two pages neither repeats a row nor hides one", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    for (let i = 0; i < 20; i++) {
      // Several at one instant: the id tells them apart.
      clock.set(T0 + Math.floor(i / 3) * 1_000);
      await store.runs.add(runDraft(target, { hostPin: hostId }));
    }
    const before = (await store.runs.list({ ...nothing, limit: 100, cursor: null })).items.map((run) => run.id);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page: { readonly items: readonly RunRecord[]; readonly next: string | null } = await store.runs.list({
        ...nothing,
        limit: 3,
        cursor,
      });
      seen.push(...page.items.map((run) => run.id));
      cursor = page.next;
      clock.set(T0 + 60_000 + seen.length);
      await store.runs.add(runDraft(target, { hostPin: hostId }));
      await stage.work(() => "succeeded");
    } while (cursor !== null);
    expect(seen).toEqual(before);
  });

  test("B-131 a list holds short outputs and the sizes of the others, and is small whatever runs hand over", async () => {
    const { store, clock } = await openStage(open);
    const sizes = [2, 4_096, 4_097, limits.outputBytes, limits.outputBytes];
    for (const _ of sizes)
      await store.runs.add(runDraft(target, { policy: runPolicy.parse({ labels: ["big"] }), hostPin: hostId, limits }));
    const { mine } = await store.admission.pass({ hostId, limits });
    expect(mine).toHaveLength(sizes.length);
    for (const [nth, { attempt }] of mine.entries()) {
      const at = { attemptId: attempt.id, token: attempt.token };
      await store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.1`, awakeAt: 0 });
      const output = JSON.stringify(
        "é".repeat(((sizes[nth] ?? 0) - 2) / 2).padEnd(((sizes[nth] ?? 0) - 2 + 1) >> 1, "e"),
      );
      await store.attempts.settle({ ...at, outcome: outcomeOf({ output, startedAt: clock.now() }), limits });
    }
    const ask = { loopId: null, status: null, limit: 50, cursor: null, since: null };
    for (const label of [null, "big"]) {
      const { items } = await store.runs.list({ ...ask, label });
      expect(JSON.stringify(items).length).toBeLessThan(300_000);
      const said = items.map(({ output, outputBytes }) => [outputBytes, output === null]);
      expect(said.toSorted((a, b) => Number(a[0]) - Number(b[0]))).toEqual(sizes.map((size) => [size, size > 4_096]));
      for (const { outputBytes: _bytes, ...item } of items.filter(({ output }) => output !== null))
        expect((await store.runs.get({ runId: item.id }))?.run).toMatchObject(item);
    }
  });

  test("how long runs like it took: of its loop, or of the same work, without itself and without failures", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    const loop = await stage.loop("one");
    const byHand: string[] = [];
    for (const [index, end] of (["succeeded", "exit", "succeeded"] as const).entries()) {
      clock.set(T0 + index * 100_000);
      await store.loops.runNow({ loopId: loop.id, by: "p", parentRunId: null, limits });
      byHand.push((await store.runs.add(runDraft(target, { hostPin: hostId }))).run.id);
      await store.runs.add(runDraft(commandOf(["false"]), { hostPin: hostId }));
      const { mine } = await store.admission.pass({ hostId, limits });
      const startedAt = clock.now();
      for (const { attempt } of mine) {
        const at = { attemptId: attempt.id, token: attempt.token };
        await store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.1`, awakeAt: 0 });
        await store.attempts.run({ ...at, pid: 1, pidStarted: "1", startedAt });
      }
      clock.set(startedAt + 10_000 * (index + 1));
      for (const { attempt } of mine)
        await store.attempts.settle({
          attemptId: attempt.id,
          token: attempt.token,
          outcome:
            end === "succeeded"
              ? outcomeOf({ startedAt })
              : outcomeOf({ kind: "failed", class: end, message: "m", startedAt }),
          limits,
        });
    }
    const newest = (await store.runs.list({ ...nothing, loopId: loop.id, limit: 1, cursor: null })).items[0];
    expect(await store.runs.durationsLike({ runId: newest?.id ?? "", limit: 5 })).toEqual([10_000]);
    expect(await store.runs.durationsLike({ runId: byHand[1] ?? "", limit: 5 })).toEqual([30_000, 10_000]);
    expect(await store.runs.durationsLike({ runId: "run_x", limit: 5 })).toEqual([]);
  });

  test("what a run that waits for its turn waits for", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const loop = await stage.loop("one", { overlap: "queue" });
    const first = await store.loops.runNow({ loopId: loop.id, by: "p", parentRunId: null, limits });
    const second = await store.loops.runNow({ loopId: loop.id, by: "p", parentRunId: null, limits });
    await stage.work(() => null);
    expect(await store.runs.beforeTurn({ runId: second.runId ?? "" })).toMatchObject([
      { id: first.runId, status: "running", startedAt: T0 },
    ]);
  });

  test("loops: by status, label, file, and those in trouble, in pages of any size", async () => {
    const stage = await openStage(open);
    const { raw, store } = stage;
    for (let i = 0; i < 9; i++)
      await stage.loop(`${i % 3 === 0 ? "filed" : "loop"}-${i}`, { labels: i % 2 === 0 ? ["even"] : [], breaker: 1 });
    const list = async (filters: object): Promise<string[]> => {
      const names: string[] = [];
      let cursor: string | null = null;
      do {
        const page: Awaited<ReturnType<typeof raw.loops.list>> = await raw.loops.list({
          archived: false,
          label: null,
          ...filters,
          limit: 2,
          cursor,
          walk: 3,
        });
        names.push(...page.items.map((loop) => loop.name));
        cursor = page.next;
      } while (cursor !== null);
      return names;
    };
    const all = await list({});
    expect(all).toHaveLength(9);
    const ids = new Map(
      (await store.loops.list({ archived: false, label: null, limit: 50, cursor: null })).items.map((one) => [
        one.name,
        one.id,
      ]),
    );
    await store.loops.pause({ loopId: ids.get("loop-1") ?? "", reason: null, limits });
    await store.loops.archive({ loopId: ids.get("loop-2") ?? "", limits });
    await store.loops.runNow({ loopId: ids.get("loop-4") ?? "", by: "p", parentRunId: null, limits });
    await stage.work(() => "exit");
    expect(await list({ status: ["paused"] })).toEqual(["loop-1", "loop-4"]);
    expect(await list({ label: "even" })).toEqual(["filed-0", "filed-6", "loop-4", "loop-8"]);
    expect(await list({ managedBy: "/drover.yaml" })).toEqual(["filed-0", "filed-3", "filed-6"]);
    expect(await list({ trouble: "failing" })).toEqual(["loop-4"]);
    expect(await list({ trouble: "tripped" })).toEqual(["loop-4"]);
    expect(await list({ archived: true })).toEqual(all);
    expect(await list({})).toEqual(all.filter((name) => name !== "loop-2"));
  });

  test("loops: a label is followed through a rename, an edit, an archive and a removal; the end of an id finds its loop", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const labelled = async (label: string, archived = false) =>
      (await store.loops.list({ archived, label, limit: 50, cursor: null })).items.map(({ name }) => name);
    const m = await stage.loop("m", { labels: ["a", "b"] });
    const b = await stage.loop("b", { labels: ["a"] });
    await stage.loop("x", { labels: ["ab"] });
    expect(await labelled("a")).toEqual(["b", "m"]);
    await store.loops.rename({ loopId: m.id, name: "aa" });
    expect(await labelled("a")).toEqual(["aa", "b"]);
    await store.loops.edit({ loopId: m.id, change: { policy: { ...m.policy, labels: ["b", "c"] } }, limits });
    expect([await labelled("a"), await labelled("b"), await labelled("c")]).toEqual([["b"], ["aa"], ["aa"]]);
    await store.loops.archive({ loopId: b.id, limits });
    expect([await labelled("a"), await labelled("a", true)]).toEqual([[], ["b"]]);
    expect(await store.things.resolve({ kind: "loop", ref: m.id.slice(-8), limit: 5 })).toMatchObject([{ id: m.id }]);
    await store.loops.remove({ loopId: m.id });
    expect([await labelled("b"), await labelled("c")]).toEqual([[], []]);
  });

  test("slots: of a row that reaches into the page before, the part behind it; whole where its schedule is not known", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    const loop = await stage.loop("one");
    for (let hour = 1; hour <= 5; hour++) {
      clock.set(T0 + hour * 3_600_000);
      await store.loops.planDue({ cause: "down", limits });
      await stage.work(() => "succeeded");
    }
    const ask = { loopId: loop.id, limit: 2 };
    const { next } = await store.slots.list({ ...ask, cursor: null });
    clock.advance(1_000);
    await store.history.prune({ ageMs: 1, keep: 0, limit: 10, after: null });
    const row = async () =>
      (await store.slots.list({ ...ask, cursor: next })).items.map(({ at, untilAt, count }) => [
        (at - T0) / 3_600_000,
        (untilAt - T0) / 3_600_000,
        count,
      ]);
    expect(await row()).toEqual([[1, 3, 3]]);
    // As stores have them that were made before rows carried it.
    await stage.run(sql`update slots set schedule = null where loop_id = ${loop.id}`);
    expect(await row()).toEqual([[1, 5, 5]]);
  });

  test("slots: by outcome and time, and those that were missed of any loop", async () => {
    const stage = await openStage(open);
    const { raw, store, clock } = stage;
    const loop = await stage.loop("one", { catchUp: "none", overlap: "skip" });
    for (let hour = 1; hour <= 8; hour++) {
      // Every second one is noticed on time; the others are late.
      clock.set(T0 + hour * 3_600_000 + (hour % 2 === 0 ? 0 : 120_000));
      await store.loops.planDue({ cause: "down", limits });
      await stage.work(() => "succeeded");
    }
    const list = async (filters: object): Promise<number[]> => {
      const hours: number[] = [];
      let cursor: string | null = null;
      do {
        const page: Awaited<ReturnType<typeof raw.slots.list>> = await raw.slots.list({
          loopId: loop.id,
          ...filters,
          limit: 2,
          cursor,
          walk: 3,
        });
        hours.push(...page.items.map((slot) => (slot.at - T0) / 3_600_000));
        cursor = page.next;
      } while (cursor !== null);
      return hours;
    };
    expect(await list({})).toEqual([8, 7, 6, 5, 4, 3, 2, 1]);
    expect(await list({ outcome: ["missed"] })).toEqual([7, 5, 3, 1]);
    expect(await list({ outcome: ["succeeded", "failed"], since: T0 + 3 * 3_600_000 })).toEqual([8, 6, 4]);
    expect(await list({ until: T0 + 3.5 * 3_600_000 })).toEqual([3, 2, 1]);
    const missed = await store.slots.missed({ since: T0 + 4 * 3_600_000, limit: 5 });
    expect(missed.map(({ slot, loop: name }) => [name, (slot.at - T0) / 3_600_000])).toEqual([
      ["one", 7],
      ["one", 5],
    ]);
  });
});
