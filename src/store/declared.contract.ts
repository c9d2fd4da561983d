import { expect, test } from "vitest";
import { commandOf } from "../../test/drafts.ts";
import { defaultLimits } from "../core/limits.ts";
import { loopPolicy } from "../core/loop.ts";
import type { AccountDraft, DeclaredChanges, LoopDraft, Store } from "../core/ports.ts";
import type { LoopRecord } from "../core/records.ts";
import type { Schedule } from "../core/schedule.ts";
import { agentTarget } from "../core/target.ts";
import { forEachStore, type OpenTestStore } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql } from "./sql.ts";

const limits = defaultLimits;
const T0 = Date.UTC(2026, 0, 1);
const every = (everyMs: number): Schedule => ({ kind: "interval", everyMs, anchorAt: 0 });

async function openAt(open: OpenTestStore<typeof operations>) {
  const { store, clock, rows } = await open();
  clock.set(T0);
  const eventsOf = async (id: string) =>
    (await rows<{ type: string }>(sql`select type from events where subject_id = ${id} order by number`)).map(
      ({ type }) => type,
    );
  return { store: asStore(store), clock, eventsOf };
}

const draftOf = (name: string, over: Partial<LoopDraft> = {}): LoopDraft => ({
  name,
  schedule: every(60_000),
  target: commandOf(["true"]),
  policy: loopPolicy.parse({}),
  hostPin: null,
  managedBy: "/repo/drover.yaml",
  ...over,
});
const accountOf = (name: string, over: Partial<AccountDraft> = {}): AccountDraft => ({
  provider: "claude",
  name,
  home: `/h/${name}`,
  env: {},
  secrets: {},
  cap: null,
  ...over,
});

interface Parts {
  readonly seen?: readonly LoopRecord[];
  readonly loops?: Partial<DeclaredChanges["loops"]>;
  readonly accounts?: Partial<DeclaredChanges["accounts"]>;
  readonly limits?: Partial<DeclaredChanges["limits"]>;
}
const apply = (store: Store, { seen = [], loops, accounts, limits: caps }: Parts) =>
  store.declared.apply({
    changes: {
      seen: seen.map(({ id, name, revision }) => ({ loopId: id, name, revision })),
      loops: { add: [], change: [], adopt: [], archive: [], ...loops },
      accounts: { add: [], change: [], remove: [], ...accounts },
      limits: { set: [], remove: [], ...caps },
    },
    limits,
  });
const adding = (...names: string[]): Parts => ({
  loops: { add: names.map((name) => ({ draft: draftOf(name), paused: null })) },
});
const named = async (store: Store, ...names: string[]) => store.declared.loops({ names });
const all = async (store: Store) =>
  (await store.loops.list({ limit: 500, cursor: null, archived: false, label: null })).items;

forEachStore("what files declare", (open) => {
  test("loops are made as one by one, more than fit into one round trip", async () => {
    const { store, eventsOf } = await openAt(open);
    const names = Array.from({ length: 450 }, (_, i) => `loop-${String(i).padStart(3, "0")}`);
    const { made } = await apply(store, adding(...names));
    expect(made.map(({ name }) => name)).toEqual(names);
    const found = await named(store, ...names, "nobody");
    expect(found.map(({ name }) => name)).toEqual(names);
    expect(found[449]).toMatchObject({
      id: made[449]?.loopId,
      status: "active",
      revision: 1,
      nextAt: T0 + 60_000,
      plannedUntil: T0,
      managedBy: "/repo/drover.yaml",
      schedule: { anchorAt: T0 },
    });
    expect(await eventsOf(made[0]?.loopId ?? "")).toEqual(["loop.added"]);
  });

  test("a loop that is made paused starts nothing until it is resumed", async () => {
    const { store, clock, eventsOf } = await openAt(open);
    await apply(store, { loops: { add: [{ draft: draftOf("a"), paused: "imported" }] } });
    const [loop] = await named(store, "a");
    expect(loop).toMatchObject({ status: "paused", pausedReason: "imported", pausedAt: T0 });
    expect(await eventsOf(loop?.id ?? "")).toEqual(["loop.added", "loop.paused"]);
    clock.set(T0 + 300_000);
    expect(await store.loops.planDue({ cause: "late", limits })).toMatchObject({ loops: 0 });
    expect(await store.loops.resume({ loopId: loop?.id ?? "", limits })).toMatchObject({ status: "active" });
  });

  test("an edit is a loop's edit: what was due before it starts nothing", async () => {
    const { store, clock, eventsOf } = await openAt(open);
    await apply(store, adding("a", "b"));
    const [a, b] = (await named(store, "a", "b")) as [LoopRecord, LoopRecord];
    clock.set(T0 + 90_000);
    await apply(store, {
      seen: [a, b],
      loops: { change: [{ loopId: a.id, change: { schedule: every(30_000) }, managedBy: "/repo/drover.yaml" }] },
    });
    const [after, same] = (await named(store, "a", "b")) as [LoopRecord, LoopRecord];
    expect(after).toMatchObject({
      revision: 2,
      nextAt: T0 + 120_000,
      schedule: { everyMs: 30_000, anchorAt: T0 + 90_000 },
    });
    expect((await store.slots.list({ loopId: a.id, limit: 5, cursor: null })).items).toMatchObject([
      { at: T0 + 60_000, outcome: "missed", reason: "edited", runId: null },
    ]);
    expect(same).toEqual(b);
    expect(await eventsOf(b.id)).toEqual(["loop.added"]);
  });

  test("all or nothing: a loop that was changed, archived, renamed or made meanwhile leaves everything as it was", async () => {
    const { store } = await openAt(open);
    await apply(store, adding("a", "b"));
    const seen = (await named(store, "a", "b")) as [LoopRecord, LoopRecord];
    const change = { loopId: seen[0].id, change: { schedule: every(5_000) }, managedBy: null };
    const refused = async (parts: Parts, message: string) => {
      const before = await all(store);
      await expect(apply(store, parts)).rejects.toMatchObject({ kind: "conflict", code: "changed_meanwhile", message });
      expect(await all(store)).toEqual(before);
    };
    await store.loops.edit({ loopId: seen[1].id, change: { schedule: every(9_000) }, limits });
    await refused(
      { seen, loops: { change: [change], add: [{ draft: draftOf("c"), paused: null }] } },
      "the loop b was changed meanwhile",
    );
    await store.loops.rename({ loopId: seen[1].id, name: "b2" });
    await refused({ seen, loops: { change: [change] } }, "the loop b was changed meanwhile");
    await store.loops.archive({ loopId: seen[1].id, limits });
    await refused({ seen, loops: { archive: [{ loopId: seen[0].id }] } }, "the loop b was changed meanwhile");
    await store.loops.remove({ loopId: seen[1].id });
    await refused({ seen, loops: { archive: [{ loopId: seen[0].id }] } }, "the loop b was changed meanwhile");
    await refused(adding("x", "a"), "the loop a was made meanwhile");
    await apply(store, { limits: { set: [{ resource: "folder:/srv", limit: 2, before: null, managedBy: null }] } });
    await refused(
      {
        loops: { add: [{ draft: draftOf("y"), paused: null }] },
        limits: { set: [{ resource: "folder:/srv", limit: 3, before: null, managedBy: null }] },
      },
      "the limit of folder:/srv was changed meanwhile",
    );
    await refused(
      { ...adding("z"), accounts: { remove: [{ ...accountOf("gone"), home: null }] } },
      "the account claude:gone was changed meanwhile",
    );
  });

  test("a loop that cannot be made leaves nothing of the others", async () => {
    const { store } = await openAt(open);
    const late = draftOf("late", { policy: loopPolicy.parse({ expiresAt: T0 - 1 }) });
    const add = [draftOf("a"), late].map((draft) => ({ draft, paused: null }));
    await expect(apply(store, { loops: { add } })).rejects.toMatchObject({
      code: "already_expired",
      message: "the loop late would expire before it begins",
    });
    expect(await all(store)).toEqual([]);
  });

  test("a name that is given up is free in the same change", async () => {
    const { store } = await openAt(open);
    const { made } = await apply(store, adding("a"));
    const [before] = (await named(store, "a")) as [LoopRecord];
    await expect(
      apply(store, {
        seen: [before],
        loops: { archive: [{ loopId: before.id }], add: [{ draft: draftOf("a"), paused: null }] },
      }),
    ).resolves.toMatchObject({ made: [{ name: "a" }] });
    expect((await store.loops.get({ loopId: made[0]?.loopId ?? "" }))?.archivedAt).toBe(T0);
  });

  test("owners: which loops a file or a folder declares, and another file that takes one over", async () => {
    const { store, eventsOf } = await openAt(open);
    const add = [
      draftOf("a"),
      draftOf("b", { managedBy: "/repo/sub/drover.yaml" }),
      draftOf("c", { managedBy: "/repository/drover.yaml" }),
      draftOf("d", { managedBy: null }),
    ].map((draft) => ({ draft, paused: null }));
    await apply(store, { loops: { add } });
    const owned = async (from: string, to: string) =>
      (await store.declared.owned({ from, to })).map(({ name, managedBy }) => `${name} ${managedBy}`);
    expect(await owned("/repo/", "/repo0")).toEqual(["a /repo/drover.yaml", "b /repo/sub/drover.yaml"]);
    const [d] = (await named(store, "d")) as [LoopRecord];
    await apply(store, { seen: [d], loops: { adopt: [{ loopId: d.id, managedBy: "/repo/drover.yaml" }] } });
    const [after] = (await named(store, "d")) as [LoopRecord];
    expect(after).toEqual({ ...d, managedBy: "/repo/drover.yaml", eventNumber: 2 });
    expect(await eventsOf(d.id)).toEqual(["loop.added", "loop.adopted"]);
  });

  test("accounts and limits come, change and go with their owners; one that a loop names stays", async () => {
    const { store, eventsOf } = await openAt(open);
    const work = accountOf("work", { cap: 2, env: { A: "1" } });
    const agent = agentTarget.parse({
      kind: "agent",
      provider: "claude",
      prompt: { digest: "a".repeat(64), bytes: 1, head: "x" },
      account: "work",
      cwd: "/",
    });
    await apply(store, {
      accounts: { add: [{ draft: work, managedBy: "/f" }] },
      limits: { set: [{ resource: "provider:codex", limit: 4, before: null, managedBy: "/f" }] },
      loops: { add: [{ draft: draftOf("agent", { target: agent }), paused: null }] },
    });
    const rest = async () => {
      const { accounts, limits: caps } = await store.declared.rest({});
      return {
        accounts: accounts.map(({ account, managedBy }) => [account.id, account.home, account.env, managedBy]),
        limits: caps.map(({ resource, limit, managedBy }) => [resource, limit, managedBy]),
      };
    };
    expect(await rest()).toEqual({
      accounts: [["claude:work", "/h/work", { A: "1" }, "/f"]],
      limits: [
        ["account:claude:work", 2, "/f"],
        ["provider:codex", 4, "/f"],
      ],
    });
    const to = { ...work, env: { A: "2" }, home: "/h/other", cap: 3 };
    await apply(store, {
      accounts: { change: [{ before: work, draft: { ...to, cap: null }, keepsCap: true, managedBy: "/g" }] },
    });
    await apply(store, { accounts: { change: [{ before: to, draft: to, keepsCap: false, managedBy: "/g" }] } });
    expect(await rest()).toMatchObject({
      accounts: [["claude:work", "/h/other", { A: "2" }, "/g"]],
      limits: [
        ["account:claude:work", 3, "/g"],
        ["provider:codex", 4, "/f"],
      ],
    });
    expect(await eventsOf("claude:work")).toEqual(["account.added", "account.edited", "account.edited"]);

    await expect(apply(store, { accounts: { remove: [to] } })).rejects.toMatchObject({ code: "account_in_use" });
    const [loop] = (await named(store, "agent")) as [LoopRecord];
    await apply(store, {
      seen: [loop],
      loops: { archive: [{ loopId: loop.id }] },
      accounts: { remove: [to] },
      limits: { remove: [{ resource: "provider:codex", before: 4 }] },
    });
    expect(await rest()).toEqual({ accounts: [], limits: [] });
  });
});
