import { expect, test } from "vitest";
import { commandOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import { forEachStore, START } from "./contract.ts";
import { asStore } from "./operations.ts";
import { sql } from "./sql.ts";

const HOUR = 3_600_000;
const hostId = "host_00000000000000000000000001";
const other = "host_00000000000000000000000002";
const target = commandOf(["true"]);

forEachStore("what a copy says was under way", (open) => {
  test("is cancelled for the reason `restored`: at work, queued, waiting; nothing starts, no hook runs, what is due is missed", async () => {
    const { store: opened, clock, rows } = await open();
    const store = asStore(opened);
    const join = (id: string) =>
      store.hosts.join({
        hostId: id,
        name: "one",
        machineId: "m",
        bootId: "b",
        version: "0",
        leaseMs: limits.leaseMs,
        commandCap: 1,
        agentCap: 1,
      });
    await join(hostId);
    const loop = await store.loops.add({
      draft: {
        name: "hourly",
        schedule: { kind: "interval", everyMs: HOUR, anchorAt: START },
        target,
        policy: loopPolicy.parse({ catchUp: "all", overlap: "queue", onFinish: "true", attempts: 3, onLost: "retry" }),
        hostPin: hostId,
        managedBy: null,
      },
      limits,
    });
    clock.advance(HOUR);
    await store.loops.planDue({ cause: "late", limits });
    const { mine } = await store.admission.pass({ hostId, limits });
    const attempt = mine[0]?.attempt;
    if (attempt === undefined) throw new Error("nothing was granted");
    const at = { attemptId: attempt.id, token: attempt.token };
    await store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.1`, awakeAt: 0 });
    await store.attempts.run({ ...at, pid: 1, pidStarted: "1", startedAt: clock.now() });
    clock.advance(HOUR);
    await store.loops.planDue({ cause: "late", limits }); // waits for its turn
    await store.runs.add(runDraft(target, { hostPin: hostId, policy: runPolicy.parse({ onFailure: "true" }) }));
    expect(await store.runs.counts({})).toMatchObject({ running: 1, queued: 2 });

    clock.advance(3 * HOUR + 1);
    expect(await store.restores.endLive({ limit: 2, limits })).toEqual({ ended: 2, atWork: 1, more: true });
    expect(await store.restores.endLive({ limit: 2, limits })).toEqual({ ended: 1, atWork: 0, more: false });
    const planned = await store.loops.planDue({ cause: "late", limits, forbidPast: "restored" });
    expect(planned).toMatchObject({ loops: 1, runs: 0, more: false });
    await store.restores.standDown({ hostId: other });

    // From the table: the feed of PostgreSQL waits for every writer of the cluster, also for those of other tests.
    const told = await rows<{ type: string }>(sql`select type from events`);
    expect(told.map(({ type }) => type)).toContain("run.cancelled");
    expect(told.map(({ type }) => type)).not.toContain("run.turn");
    expect(await store.runs.counts({})).toMatchObject({ running: 0, queued: 0, waiting: 0 });
    const { items } = await store.runs.list({
      loopId: null,
      status: null,
      label: null,
      since: null,
      limit: 10,
      cursor: null,
    });
    expect(items.map(({ status, reason }) => [status, reason])).toEqual(Array(3).fill(["cancelled", "restored"]));
    const tree = await store.runs.get({ runId: attempt.runId });
    expect(tree?.attempts.map((one) => [one.status, one.class, one.counted])).toEqual([["lost", "lost", false]]);
    expect(tree?.steps[0]).toMatchObject({ status: "cancelled", reason: "restored" });
    const slots = await store.slots.list({ loopId: loop.id, limit: 10, cursor: null });
    expect(
      slots.items.map(({ at: slotAt, count, outcome, reason }) => [(slotAt - START) / HOUR, count, outcome, reason]),
    ).toEqual([
      [3, 3, "missed", "restored"],
      [2, 1, "cancelled", "restored"],
      [1, 1, "cancelled", "restored"],
    ]);
    const after = await store.loops.get({ loopId: loop.id });
    expect(after).toMatchObject({ status: "active", nextAt: START + 6 * HOUR, hostPin: other, failureStreak: 0 });
    for (const id of [hostId, other]) expect(await store.runs.hooksDue({ hostId: id, limit: 10 })).toEqual([]);
    expect(await store.hosts.list({})).toMatchObject([{ id: hostId, status: "down", leaseUntil: 0 }]);
    expect(await store.admission.usage({})).toContainEqual({ resource: `host:${hostId}:command`, limit: 1, used: 0 });
    // Late words of what was at work change nothing.
    expect(await store.attempts.run({ ...at, pid: 1, pidStarted: "1", startedAt: clock.now() })).toBe("already_ended");
    await join(other);
    expect(await store.attempts.ofHost({ hostId: other })).toEqual([]);
    expect(await store.admission.pass({ hostId: other, limits })).toMatchObject({ granted: 0 });
  });
});
