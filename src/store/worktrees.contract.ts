import { expect, test } from "vitest";
import { commandOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import type { MadeWorktree, Store } from "../core/ports.ts";
import type { RunRecord } from "../core/records.ts";
import { forEachStore, type OpenTestStore, type StoreClock } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql, type Sql } from "./sql.ts";

const T0 = Date.UTC(2026, 0, 1);
const HOST = "host_00000000000000000000000001";
const made: MadeWorktree = {
  repository: "/repo",
  branch: "drover/nightly/abc",
  base: "1".repeat(40),
  baseNote: "origin/main, fetched",
};

interface Stage {
  readonly store: Store;
  readonly clock: StoreClock;
  rows<Row>(query: Sql): Promise<readonly Row[]>;
}

async function openStage(open: OpenTestStore<typeof operations>): Promise<Stage> {
  const { store: ported, clock, rows } = await open();
  clock.set(T0);
  const store = asStore(ported);
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
  return { store, clock, rows };
}

async function addRun({ store, clock }: Stage): Promise<RunRecord> {
  clock.advance(1);
  const target = commandOf(["true"], { cwd: "/repo/deep", worktree: "auto" });
  const { run } = await store.runs.add(runDraft(target, { hostPin: HOST }));
  return run;
}

const begin = ({ store }: Stage, runId: string) =>
  store.worktrees.begin({ runId, hostId: HOST, cwd: "/repo/deep", path: `/trees/${runId}` });
const end = ({ store }: Stage, runId: string) => store.runs.cancel({ runId, by: "person", reason: "r", limits });
const looked = (runId: string, state: "kept" | "removed", keptBecause: string | null = null) => ({
  runId,
  state,
  keptBecause,
  commits: state === "kept" ? 3 : 0,
  diffStat: state === "kept" ? "2 files changed" : null,
});
/** From the table: the feed of PostgreSQL waits for every writer of the cluster, also for those of other tests. */
const typesOf = async ({ rows }: Stage, runId: string) =>
  (
    await rows<{ type: string }>(
      sql`select type from events where subject_kind = 'run' and subject_id = ${runId} order by number`,
    )
  ).map((event) => event.type);

forEachStore("worktrees", (open) => {
  test("the row is there before the folder, is made once, and stands in the run's tree and with its attempt", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const { id: runId } = await addRun(stage);
    await expect(begin(stage, "run_nothing")).rejects.toMatchObject({ kind: "not_found", code: "run_not_found" });
    expect(await store.worktrees.get({ runId })).toBeNull();
    expect((await store.runs.get({ runId }))?.worktree).toBeNull();
    const first = await begin(stage, runId);
    expect(first).toMatchObject({
      state: "making",
      path: `/trees/${runId}`,
      branch: null,
      createdAt: stage.clock.now(),
    });
    stage.clock.advance(5);
    expect(await store.worktrees.begin({ runId, hostId: HOST, cwd: "/other", path: "/other" })).toEqual(first);
    const whole = { ...first, ...made, state: "made" };
    expect(await store.worktrees.made({ runId, made })).toEqual(whole);
    expect(await store.worktrees.made({ runId, made: { ...made, branch: "another" } })).toEqual(whole);
    expect(await store.worktrees.made({ runId, made: null })).toEqual(whole);
    expect(await store.worktrees.get({ runId })).toEqual(whole);
    expect((await store.runs.get({ runId }))?.worktree).toEqual(whole);
    expect((await store.admission.pass({ hostId: HOST, limits })).mine[0]?.worktree).toEqual(whole);
    expect((await store.attempts.ofHost({ hostId: HOST }))[0]?.worktree).toEqual(whole);
    expect((await typesOf(stage, runId)).filter((type) => type.startsWith("worktree."))).toEqual(["worktree.made"]);
  });

  test("a folder in no repository has none after all", async () => {
    const stage = await openStage(open);
    const { id: runId } = await addRun(stage);
    await begin(stage, runId);
    expect(await stage.store.worktrees.made({ runId, made: null })).toBeNull();
    expect(await stage.store.worktrees.get({ runId })).toBeNull();
    expect(await stage.store.worktrees.made({ runId, made })).toBeNull();
    expect(await begin(stage, runId)).toMatchObject({ state: "making" });
  });

  test("what was found is kept with it; removed is final", async () => {
    const stage = await openStage(open);
    const { store, clock } = stage;
    const { id: runId } = await addRun(stage);
    expect(await store.worktrees.looked(looked(runId, "kept", "dirty"))).toBeNull();
    await begin(stage, runId);
    await store.worktrees.made({ runId, made });
    expect(await store.worktrees.looked(looked(runId, "kept", "3 commits of its own"))).toMatchObject({
      state: "kept",
      keptBecause: "3 commits of its own",
      commits: 3,
      diffStat: "2 files changed",
      finishedAt: null,
    });
    await store.worktrees.looked(looked(runId, "kept", "uncommitted changes"));
    clock.advance(1_000);
    const gone = await store.worktrees.looked(looked(runId, "removed"));
    expect(gone).toMatchObject({ state: "removed", finishedAt: clock.now(), keptBecause: null });
    clock.advance(1_000);
    expect(await store.worktrees.looked(looked(runId, "kept", "late"))).toEqual(gone);
    expect(await store.worktrees.get({ runId })).toEqual(gone);
    expect((await typesOf(stage, runId)).filter((type) => type.startsWith("worktree."))).toEqual([
      "worktree.made",
      "worktree.kept",
      "worktree.removed",
    ]);
  });

  test("lists those that are there, newest first, page by page, of one host or of all", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const runs: string[] = [];
    for (let i = 0; i < 5; i++) {
      const { id } = await addRun(stage);
      runs.unshift(id);
      await begin(stage, id);
    }
    await end(stage, runs[0] ?? "");
    await store.worktrees.looked(looked(runs[4] ?? "", "removed"));
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<Store["worktrees"]["list"]>> = await store.worktrees.list({
        limit: 2,
        cursor,
        hostId: null,
      });
      seen.push(...page.items.map((one) => `${one.runId} ${one.runStatus}`));
      cursor = page.next;
    } while (cursor !== null);
    expect(seen).toEqual(runs.slice(0, 4).map((id, i) => `${id} ${i === 0 ? "cancelled" : "queued"}`));
    const of = async (hostId: string) => (await store.worktrees.list({ limit: 9, cursor: null, hostId })).items.length;
    expect([await of(HOST), await of("host_other")]).toEqual([4, 0]);
  });

  test("to be tidied are those of ended runs of this host that nobody has looked at", async () => {
    const stage = await openStage(open);
    const { store } = stage;
    const [live, ended, half] = [await addRun(stage), await addRun(stage), await addRun(stage)].map((run) => run.id);
    if (live === undefined || ended === undefined || half === undefined) throw new Error("three runs");
    for (const runId of [live, ended, half]) await begin(stage, runId);
    for (const runId of [live, ended]) await store.worktrees.made({ runId, made });
    for (const runId of [ended, half]) await end(stage, runId);
    const due = async (limit = 10, hostId = HOST) =>
      (await store.worktrees.toTidy({ hostId, limit })).map((one) => one.runId);
    expect(await due()).toEqual([ended, half].toSorted());
    expect(await due(1)).toHaveLength(1);
    expect(await due(10, "host_other")).toEqual([]);
    await store.worktrees.looked(looked(ended, "kept", "dirty"));
    await store.worktrees.looked(looked(half, "removed"));
    expect(await due()).toEqual([]);
  });
});
