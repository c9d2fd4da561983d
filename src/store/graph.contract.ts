import { expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { type Graph, graphWrites } from "../../test/graphs.ts";
import { defaultLimits } from "../core/limits.ts";
import type { Outcome } from "../core/run.ts";
import { forEachStore, type OpenTestStore } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql } from "./sql.ts";

const limits = defaultLimits;
const hostId = "host_00000000000000000000000001";
const failed = outcomeOf({ kind: "failed", class: "exit", exitStatus: 3, message: "exit 3" });
const diamond: Graph = { a: [], b: ["a"], c: ["a"], d: ["b", "c"] };

/** A store with one run of these steps. */
async function openGraph(open: OpenTestStore<typeof operations>, graph: Graph) {
  const { store: ported, run, rows } = await open();
  const store = asStore(ported);
  const host = { hostId, name: "one", machineId: "m", bootId: "b", version: "0" };
  await store.hosts.join({ ...host, leaseMs: limits.leaseMs, commandCap: 256, agentCap: 2 });
  const made = await store.runs.add(runDraft(commandOf(["true"])));
  const runId = made.run.id;
  await run(...graphWrites(runId, graph));
  /** Lets start what may, by key. */
  async function begin(): Promise<ReadonlyMap<string, { readonly attemptId: string; readonly token: number }>> {
    const { mine } = await store.admission.pass({ hostId, limits });
    const begun = new Map<string, { readonly attemptId: string; readonly token: number }>();
    for (const { attempt, stepKey } of mine) {
      const at = { attemptId: attempt.id, token: attempt.token };
      await store.attempts.start({ ...at, bootId: "b", folder: `${attempt.id}.${attempt.token}`, awakeAt: 0 });
      begun.set(stepKey, at);
    }
    return begun;
  }
  const settle = async (at: { readonly attemptId: string; readonly token: number } | undefined, outcome: Outcome) =>
    at === undefined ? null : await store.attempts.settle({ ...at, outcome, limits });
  const words = async () =>
    Object.fromEntries(
      (
        await rows<{ key: string; status: string; reason: string | null; needs_left: number }>(
          sql`select key, status, reason, needs_left from steps where run_id = ${runId} order by key`,
        )
      ).map(({ key, status, reason, needs_left }) => [
        key,
        `${status}${reason === null ? "" : `(${reason})`}${needs_left === 0 ? "" : ` ${needs_left}`}`,
      ]),
    );
  const numbers = async () =>
    (
      await rows<{ number: number }>(
        sql`select number from events where subject_kind = 'run' and subject_id = ${runId} order by number`,
      )
    ).map(({ number }) => number);
  const runOf = async () =>
    (
      await rows<{ status: string; reason: string | null; error: string | null; exit_status: number | null }>(
        sql`select status, reason, error, exit_status from runs where id = ${runId}`,
      )
    )[0];
  return { store, runId, begin, settle, words, numbers, runOf };
}

forEachStore("steps that need others", (open) => {
  test("start when all that they need has succeeded, those of one pass under one run's events", async () => {
    const { begin, settle, words, numbers, runOf } = await openGraph(open, diamond);
    let begun = await begin();
    expect([...begun.keys()]).toEqual(["a"]);
    expect(await settle(begun.get("a"), outcomeOf())).toEqual({ answer: "done", step: "succeeded", run: "queued" });
    expect(await words()).toEqual({ a: "succeeded", b: "ready", c: "ready", d: "pending 2" });

    begun = await begin();
    expect([...begun.keys()].toSorted()).toEqual(["b", "c"]);
    expect(await settle(begun.get("b"), outcomeOf())).toEqual({ answer: "done", step: "succeeded", run: "running" });
    expect(await words()).toMatchObject({ b: "succeeded", d: "pending 1" });
    expect((await begin()).size).toBe(0);
    expect((await settle(begun.get("c"), outcomeOf()))?.run).toBe("queued");
    expect(await words()).toMatchObject({ d: "ready" });

    begun = await begin();
    expect(await settle(begun.get("d"), outcomeOf())).toEqual({ answer: "done", step: "succeeded", run: "succeeded" });
    expect(await runOf()).toMatchObject({ status: "succeeded", reason: null, error: null });
    const seen = await numbers();
    expect(seen).toEqual(seen.map((_, i) => i + 1));
  });

  test("are skipped when one that they need did not succeed, and the run is told by that one", async () => {
    const { begin, settle, words, numbers, runOf } = await openGraph(open, { ...diamond, e: ["a"] });
    await settle((await begin()).get("a"), outcomeOf());
    const begun = await begin();
    expect((await settle(begun.get("c"), failed))?.run).toBe("running");
    expect(await words()).toEqual({
      a: "succeeded",
      b: "running",
      c: "failed(exit)",
      d: "pending 1",
      e: "running",
    });
    await settle(begun.get("b"), outcomeOf());
    expect(await words()).toMatchObject({ d: "skipped(needs)" });
    expect((await settle(begun.get("e"), outcomeOf()))?.run).toBe("failed");
    const told = await runOf();
    expect(told).toMatchObject({ status: "failed", reason: "exit", exit_status: 3 });
    expect(JSON.parse(told?.error ?? "null")).toEqual({ class: "exit", message: "exit 3" });
    const seen = await numbers();
    expect(seen).toEqual(seen.map((_, i) => i + 1));
  });

  test("are cancelled with the run while another one is at work, and nothing starts after it", async () => {
    const { store, runId, begin, settle, words, runOf } = await openGraph(open, { a: [], b: ["a"] });
    const begun = await begin();
    expect(await store.runs.cancel({ runId, by: "person", reason: "enough", limits })).toBe("requested");
    expect(await words()).toEqual({ a: "running", b: "cancelled(enough) 1" });
    await settle(begun.get("a"), outcomeOf());
    expect((await begin()).size).toBe(0);
    expect(await runOf()).toMatchObject({ status: "cancelled" });
  });

  test("a settlement that is repeated moves nothing twice", async () => {
    const { begin, settle, words } = await openGraph(open, diamond);
    await settle((await begin()).get("a"), outcomeOf());
    const begun = await begin();
    await settle(begun.get("b"), outcomeOf());
    await settle(begun.get("b"), outcomeOf());
    expect(await words()).toMatchObject({ d: "pending 1" });
  });
});
