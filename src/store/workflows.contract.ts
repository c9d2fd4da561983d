/** Runs of workflows on each store: their steps by the truth table, whatever ends first, and decided on once. */
import fc from "fast-check";
import { expect, test } from "vitest";
import { outcomeOf, runDraft } from "../../test/drafts.ts";
import { defaultLimits } from "../core/limits.ts";
import { loopPolicy } from "../core/loop.ts";
import type { LoopDraft, RunDraft, StepVerdict } from "../core/ports.ts";
import { isFinal, type Outcome, type StepStatus } from "../core/run.ts";
import { endTable, readiness } from "../core/step-graph.ts";
import type { CommandTarget, WorkflowTarget } from "../core/target.ts";
import type { SkeletonStep } from "../core/workflow/skeleton.ts";
import { forEachStore, type OpenTestStore } from "./contract.ts";
import { asStore, type operations } from "./operations.ts";
import { sql } from "./sql.ts";
import { commandOf } from "../../test/drafts.ts";

const limits = defaultLimits;
const hostId = "host_00000000000000000000000001";
const digest = "d".repeat(64);

const step = (key: string, needs: readonly number[] = [], over: Partial<SkeletonStep> = {}): SkeletonStep => ({
  key,
  kind: "command",
  condition: "none",
  continueOnFailure: false,
  needs,
  ...over,
});
const workflowOf = (of = digest): WorkflowTarget => ({
  kind: "workflow",
  name: "w",
  file: "/w.yaml",
  definition: { digest: of, bytes: 1, head: "" },
  inputs: {},
  cwd: "/",
  env: {},
  envPass: [],
  secrets: {},
  expect: [],
  output: "files",
});
const starts = (stepId: string, target: CommandTarget = commandOf(["true"])): StepVerdict => ({
  stepId,
  does: "start",
  spec: { target, policy: runDraft(target).policy, base: "/" },
});
const skips = (stepId: string): StepVerdict => ({ stepId, does: "skip", reason: "condition" });

/** A store with a run of these steps. */
async function openWorkflow(
  open: OpenTestStore<typeof operations>,
  steps: readonly SkeletonStep[],
  over: Partial<RunDraft> = {},
) {
  const opened = await open();
  const store = asStore(opened.store);
  const host = { hostId, name: "one", machineId: "m", bootId: "b", version: "0" };
  await store.hosts.join({ ...host, leaseMs: limits.leaseMs, commandCap: 256, agentCap: 2 });
  await store.prompts.put({ digest, content: "RA==", bytes: 1 });
  await store.definitions.put({ digest, steps });
  const { run } = await store.runs.add(runDraft(workflowOf(), over));
  const runId = run.id;
  const judge = (...verdicts: readonly StepVerdict[]) => store.steps.judge({ runId, verdicts, limits });
  const asked = async () => (await store.steps.toJudge({ hostId, limit: 1_000 })).filter((one) => one.run.id === runId);
  const idOf = async (key: string) => (await tree()).steps.find((one) => one.key === key)?.id ?? "";
  async function tree() {
    const found = await store.runs.get({ runId });
    if (found === null) throw new Error("the run is there");
    return found;
  }
  const words = async () =>
    Object.fromEntries(
      (await tree()).steps.map(({ key, status, reason }) => [key, reason === null ? status : `${status}(${reason})`]),
    );
  /** Lets every ready step start; answers the attempts by the keys of their steps. */
  async function begin() {
    const { mine } = await store.admission.pass({ hostId, limits });
    for (const { attempt } of mine)
      await store.attempts.start({
        attemptId: attempt.id,
        token: attempt.token,
        bootId: "b",
        folder: `${attempt.id}.${attempt.token}`,
        awakeAt: 0,
      });
    return new Map(
      mine.map((one) => [one.stepKey, { ...one, at: { attemptId: one.attempt.id, token: one.attempt.token } }]),
    );
  }
  const settle = (at: { attemptId: string; token: number } | undefined, outcome = outcomeOf()) =>
    store.attempts.settle({ attemptId: "", token: 0, ...at, outcome, limits });
  const numbers = async () =>
    (
      await opened.rows<{ number: number }>(
        sql`select number from events where subject_kind = 'run' and subject_id = ${runId} order by number`,
      )
    ).map(({ number }) => number);
  return { ...opened, store, runId, judge, asked, idOf, tree, words, begin, settle, numbers };
}

forEachStore("a workflow's run", (open) => {
  test("has the steps of its definition, in their order, and those without needs are asked", async () => {
    const of = await openWorkflow(open, [step("b"), step("a", [0], { condition: "plain" }), step("c", [0, 1])]);
    expect((await of.tree()).steps.map(({ key }) => key)).toEqual(["b", "a", "c"]);
    expect(await of.words()).toEqual({ b: "pending(judge)", a: "pending", c: "pending" });
    expect((await of.asked()).map(({ key, condition, needs }) => [key, condition, needs])).toEqual([["b", "none", []]]);
    // What is bound to another host is that one's to ask about.
    const elsewhere = await of.store.runs.add(runDraft(workflowOf(), { hostPin: "host_00000000000000000000000002" }));
    expect((await of.store.steps.toJudge({ hostId, limit: 10 })).map(({ run }) => run.id)).not.toContain(
      elsewhere.run.id,
    );
    expect((await of.tree()).run).toMatchObject({ status: "queued", kind: "workflow" });
    // Nothing starts that its definition was not asked about.
    expect((await of.begin()).size).toBe(0);
  });

  test("is refused where its definition is not kept", async () => {
    const { store } = await openWorkflow(open, [step("a")]);
    const target = workflowOf("e".repeat(64));
    const gone = { code: "definition_gone" };
    await expect(store.runs.add(runDraft(target))).rejects.toMatchObject(gone);
    const draft: LoopDraft = {
      name: "l",
      schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 },
      target,
      policy: loopPolicy.parse({}),
      hostPin: null,
      managedBy: null,
    };
    await expect(store.loops.add({ draft, limits })).rejects.toMatchObject(gone);
    await expect(store.loops.addPaused({ drafts: [draft], reason: "x", limits })).rejects.toMatchObject(gone);
    const loop = await store.loops.add({ draft: { ...draft, target: workflowOf() }, limits });
    await expect(store.loops.edit({ loopId: loop.id, change: { target }, limits })).rejects.toMatchObject(gone);
  });

  test("with a key that was there is that run", async () => {
    const of = await openWorkflow(open, [step("a"), step("b", [0])], { idempotencyKey: "once" });
    const again = await of.store.runs.add(runDraft(workflowOf(), { idempotencyKey: "once" }));
    expect([again.repeated, again.run.id]).toEqual([true, of.runId]);
    expect(await of.rows(sql`select id from steps`)).toHaveLength(2);
  });

  test("runs each step as it was decided, and its end is what others read", async () => {
    const of = await openWorkflow(open, [step("a"), step("b", [0])]);
    await of.judge(starts(await of.idOf("a"), commandOf(["make", "it"])));
    const a = (await of.begin()).get("a");
    expect(a?.run.target).toMatchObject({ kind: "command", argv: ["make", "it"] });
    expect(a?.spec).toMatchObject({ base: "/" });
    const tails = { stdout: "out", stderr: "err" };
    expect(await of.settle(a?.at, outcomeOf({ output: '{"n":1}', tails }))).toMatchObject({ run: "queued" });
    expect(await of.store.steps.ended({ runId: of.runId, keys: ["a", "b"] })).toEqual([
      {
        key: "a",
        status: "succeeded",
        output: '{"n":1}',
        result: { exitCode: 0, stdoutTail: "out", stderrTail: "err", class: null, message: null },
      },
    ]);
    expect((await of.asked()).map(({ key, needs }) => [key, needs])).toEqual([
      ["b", [{ status: "succeeded", reason: null, continueOnFailure: false }]],
    ]);
    await of.judge(starts(await of.idOf("b")));
    expect(await of.settle((await of.begin()).get("b")?.at)).toMatchObject({ run: "succeeded" });
    expect((await of.tree()).run.output).toBeNull();
    expect(await of.numbers()).toEqual((await of.numbers()).map((_, i) => i + 1));
  });

  test("a step that is judged twice, or by two daemons, has one outcome", async () => {
    const of = await openWorkflow(open, [step("a"), step("b", [0])]);
    const a = await of.idOf("a");
    const answers = await Promise.all([of.judge(skips(a)), of.judge(starts(a)), of.judge(skips(a))]);
    expect(answers.map(({ judged }) => judged).toSorted((a, b) => a - b)).toEqual([0, 0, 1]);
    const before = await of.words();
    await of.judge(starts(a), starts(await of.idOf("b")));
    expect(await of.words()).toEqual(before);
    expect(await of.numbers()).toEqual((await of.numbers()).map((_, i) => i + 1));
  });

  test("a step that is not asked about yet, or was cancelled for whatever reason, is not decided on", async () => {
    const of = await openWorkflow(open, [step("a"), step("b", [0])]);
    expect(await of.judge(starts(await of.idOf("b")))).toMatchObject({ judged: 0 });
    expect(await of.words()).toEqual({ a: "pending(judge)", b: "pending" });
    const a = await of.idOf("a");
    await of.judge(starts(a));
    const begun = (await of.begin()).get("a");
    await of.store.runs.cancel({ runId: of.runId, by: "person", reason: "judge", limits });
    expect(await of.asked()).toEqual([]);
    expect(await of.judge(skips(await of.idOf("b")))).toMatchObject({ judged: 0 });
    expect(await of.words()).toEqual({ a: "running", b: "cancelled(judge)" });
    await of.settle(begun?.at, outcomeOf({ kind: "cancelled", class: "cancelled", exitStatus: null }));
    expect(await of.judge(skips(await of.idOf("b")))).toEqual({ run: "cancelled", judged: 0 });
  });

  test("has the steps that its definition had when it was first kept", async () => {
    const of = await openWorkflow(open, [step("a"), step("b", [0])]);
    await of.store.definitions.put({ digest, steps: [step("x"), step("y", [0]), step("z", [0, 1])] });
    expect(await of.rows(sql`select key from definition_steps where digest = ${digest} order by position`)).toEqual([
      { key: "a" },
      { key: "b" },
    ]);
    const other = "e".repeat(64);
    const put = () => of.store.definitions.put({ digest: other, steps: [step("x"), step("y", [0])] });
    await Promise.all([put(), put(), put()]);
    expect(await of.rows(sql`select key from definition_steps where digest = ${other}`)).toHaveLength(2);
  });

  test("keeps of a step what others read; of a run of one command nothing reads it", async () => {
    const of = await openWorkflow(open, [step("a")]);
    const plain = await of.store.runs.add(runDraft(commandOf(["true"])));
    const begun = await of.begin();
    await of.settle(begun.get("main")?.at, outcomeOf({ tails: { stdout: "out", stderr: "err" } }));
    expect(await of.rows(sql`select result from steps where run_id = ${plain.run.id}`)).toEqual([{ result: null }]);
  });

  test("of which nothing had to be done succeeds", async () => {
    const of = await openWorkflow(open, [step("a"), step("b", [0])]);
    expect(await of.judge(skips(await of.idOf("a")))).toEqual({ run: "succeeded", judged: 1 });
    expect(await of.words()).toEqual({ a: "skipped(condition)", b: "skipped(needs_skipped)" });
    expect((await of.tree()).run).toMatchObject({ status: "succeeded", reason: null, error: null });
  });

  test("a gate that blocks skips what stands behind it, and the run succeeds", async () => {
    const of = await openWorkflow(open, [step("gate", [], { kind: "gate" }), step("b", [0]), step("c", [1])]);
    await of.judge(starts(await of.idOf("gate")));
    const ended = await of.settle(
      (await of.begin()).get("gate")?.at,
      outcomeOf({ kind: "blocked", exitStatus: 75, message: "exited with status 75, which blocks" }),
    );
    expect(ended).toMatchObject({ step: "skipped", run: "succeeded" });
    expect(await of.words()).toEqual({ gate: "skipped(blocked)", b: "skipped(blocked)", c: "skipped(blocked)" });
  });

  test("a step that cannot be decided on fails with its reason, and the run is told by it", async () => {
    const of = await openWorkflow(open, [step("a"), step("b", [0])]);
    await of.judge({
      stepId: await of.idOf("a"),
      does: "fail",
      class: "env_invalid",
      reason: "expression",
      message: "if: steps.x.output is not there",
    });
    expect(await of.words()).toEqual({ a: "failed(expression)", b: "skipped(needs)" });
    expect((await of.tree()).run).toMatchObject({
      status: "failed",
      reason: "expression",
      error: { class: "env_invalid", message: "if: steps.x.output is not there" },
    });
  });

  test("that is cancelled ends what waits at once, and what is at work with its host", async () => {
    const of = await openWorkflow(open, [step("a"), step("b"), step("c", [0])]);
    await of.judge(starts(await of.idOf("a")));
    const a = (await of.begin()).get("a");
    const { runId } = of;
    expect(await of.store.runs.cancel({ runId, by: "person", reason: "enough", limits })).toBe("requested");
    expect(await of.words()).toEqual({ a: "running", b: "cancelled(enough)", c: "cancelled(enough)" });
    expect(await of.judge(starts(await of.idOf("b")))).toMatchObject({ judged: 0 });
    await of.settle(a?.at, outcomeOf({ kind: "cancelled", class: "cancelled", exitStatus: null }));
    expect((await of.tree()).run.status).toBe("cancelled");
  });

  test("waits as the step waits that goes on first", async () => {
    const of = await openWorkflow(open, [step("a"), step("b")]);
    const target = commandOf(["true"]);
    const policy = { ...runDraft(target).policy, attempts: 3 };
    await of.judge(
      ...(await of.asked()).map(
        ({ stepId }): StepVerdict => ({ stepId, does: "start", spec: { target, policy, base: "/" } }),
      ),
    );
    const begun = await of.begin();
    const failed = outcomeOf({ kind: "failed", class: "exit", exitStatus: 3 });
    expect(await of.settle(begun.get("a")?.at, failed)).toMatchObject({ step: "waiting", run: "running" });
    expect(await of.settle(begun.get("b")?.at, outcomeOf())).toMatchObject({ run: "waiting" });
    const { run, steps } = await of.tree();
    expect([run.reason, run.wakeAt]).toEqual(["retry", steps[0]?.wakeAt]);
    of.clock.advance(3_600_000);
    expect((await of.store.steps.wake({ limit: 10 })).woken).toBe(1);
    // It was decided on: it is tried again as it was.
    expect(await of.words()).toMatchObject({ a: "ready" });
  });

  test("a step with a lock waits for the one that holds it, in whatever run", async () => {
    const of = await openWorkflow(open, [step("a"), step("b")]);
    const target = commandOf(["true"]);
    const { policy } = runDraft(target);
    await of.judge(
      ...(await of.asked()).map(
        ({ stepId }): StepVerdict => ({ stepId, does: "start", spec: { target, policy, base: "/", lock: "deploy" } }),
      ),
    );
    const first = await of.begin();
    expect(first.size).toBe(1);
    await of.settle([...first.values()][0]?.at);
    expect((await of.begin()).size).toBe(1);
  });
});

forEachStore("a workflow's run of a loop", (open) => {
  /** A loop that is due each minute, whose first run is there. */
  async function openLoop(steps: readonly SkeletonStep[], policy: Parameters<typeof loopPolicy.parse>[0] = {}) {
    const of = await openWorkflow(open, steps);
    // The run that came with the store is nobody's concern here.
    await of.store.runs.cancel({ runId: of.runId, by: "person", reason: "away", limits });
    const draft: LoopDraft = {
      name: "l",
      schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 },
      target: workflowOf(),
      policy: loopPolicy.parse(policy),
      hostPin: null,
      managedBy: null,
    };
    const loop = await of.store.loops.add({ draft, limits });
    const plan = async () => {
      of.clock.advance(60_000);
      await of.store.loops.planDue({ cause: "late", limits });
    };
    const runs = async () =>
      (await of.rows<{ id: string }>(sql`select id from runs where loop_id = ${loop.id} order by slot_at`)).map(
        ({ id }) => id,
      );
    const partsOf = async (nth: number) =>
      (await of.store.runs.get({ runId: (await runs())[nth] ?? "" }))?.steps.map(({ key, status, reason, wakeAt }) =>
        [key, reason === null ? status : `${status}(${reason})`, wakeAt].filter((one) => one !== null),
      );
    const judge = async (nth: number, key: string, make: (stepId: string) => StepVerdict) => {
      const runId = (await runs())[nth] ?? "";
      const stepId = (await of.store.runs.get({ runId }))?.steps.find((one) => one.key === key)?.id ?? "";
      await of.store.steps.judge({ runId, verdicts: [make(stepId)], limits });
    };
    await plan();
    return { ...of, loop, plan, runs, partsOf, judge };
  }
  const two = [step("a"), step("b", [0])];

  test("is held with all its first steps when the loop is paused, and asked when it comes back", async () => {
    const of = await openLoop(two);
    await of.store.loops.pause({ loopId: of.loop.id, reason: null, limits });
    expect(await of.partsOf(0)).toEqual([
      ["a", "pending(paused)"],
      ["b", "pending"],
    ]);
    await of.store.loops.resume({ loopId: of.loop.id, limits });
    expect(await of.partsOf(0)).toEqual([
      ["a", "pending(judge)"],
      ["b", "pending"],
    ]);
  });

  test("goes on when the loop is paused after it has started", async () => {
    const of = await openLoop(two);
    await of.judge(0, "a", starts);
    await of.settle((await of.begin()).get("a")?.at);
    await of.store.loops.pause({ loopId: of.loop.id, reason: null, limits });
    expect(await of.partsOf(0)).toEqual([
      ["a", "succeeded"],
      ["b", "pending(judge)"],
    ]);
  });

  test("that is put off waits with the steps that need nothing, also when the loop is paused", async () => {
    const of = await openLoop(two, { jitterMs: 3_000_000 });
    const [a, b] = (await of.partsOf(0)) ?? [];
    expect([a?.slice(0, 2), b]).toEqual([
      ["a", "waiting(timer)"],
      ["b", "pending"],
    ]);
    expect(a?.[2]).toBeGreaterThan(of.clock.now());
    await of.store.loops.pause({ loopId: of.loop.id, reason: null, limits });
    expect(await of.partsOf(0)).toEqual([a, b]);
  });

  test("that is put off again when the clock was set back leaves what was decided on as it is", async () => {
    const of = await openLoop([step("a"), step("b")], { jitterMs: 3_000_000 });
    const dueAt = of.clock.now();
    of.clock.advance(3_600_000);
    await of.store.steps.wake({ limit: 10 });
    await of.judge(0, "a", skips);
    await of.store.loops.pause({ loopId: of.loop.id, reason: null, limits });
    expect(await of.partsOf(0)).toEqual([
      ["a", "skipped(condition)"],
      ["b", "pending(paused)"],
    ]);
    of.clock.set(dueAt);
    await of.store.loops.resume({ loopId: of.loop.id, limits });
    const [a, b] = (await of.partsOf(0)) ?? [];
    expect([a, b?.slice(0, 2)]).toEqual([
      ["a", "skipped(condition)"],
      ["b", "waiting(timer)"],
    ]);
  });

  test("that waits for its turn is let in with the steps that need nothing, and by no other run's retry", async () => {
    const of = await openLoop([step("a"), step("b", [0])], { overlap: "queue" });
    await of.plan();
    const waits = [
      ["a", "pending(turn)"],
      ["b", "pending"],
    ];
    expect(await of.partsOf(1)).toEqual(waits);
    const { run } = await of.store.runs.add(runDraft(workflowOf()));
    const asked = async () =>
      (await of.store.steps.toJudge({ hostId, limit: 99 })).filter((one) => one.run.id === run.id);
    for (const [key, outcome] of [
      ["a", outcomeOf()],
      ["b", outcomeOf({ kind: "failed", class: "exit", exitStatus: 1 })],
    ] as const) {
      await of.store.steps.judge({ runId: run.id, verdicts: [starts((await asked())[0]?.stepId ?? "")], limits });
      await of.settle((await of.begin()).get(key)?.at, outcome);
    }
    await of.store.runs.retry({ runId: run.id, by: "person", limits });
    expect(await of.partsOf(1)).toEqual(waits);
    await of.judge(0, "a", skips);
    expect(await of.partsOf(1)).toEqual([
      ["a", "pending(judge)"],
      ["b", "pending"],
    ]);
  });

  test("that is put off and waits for its turn waits on with the steps that need nothing", async () => {
    const of = await openLoop(two, { overlap: "queue", jitterMs: 3_000_000 });
    await of.plan();
    expect(await of.partsOf(1)).toEqual([
      ["a", "pending(turn)"],
      ["b", "pending"],
    ]);
    const before = await of.partsOf(0);
    const { run: other } = await of.store.runs.add(runDraft(workflowOf()));
    await of.store.runs.cancel({ runId: (await of.runs())[0] ?? "", by: "person", reason: "enough", limits });
    const [a, b] = (await of.partsOf(1)) ?? [];
    expect([a?.slice(0, 2), b]).toEqual([
      ["a", "waiting(timer)"],
      ["b", "pending"],
    ]);
    expect(before?.[0]?.slice(0, 2)).toEqual(["a", "waiting(timer)"]);
    expect((await of.store.runs.get({ runId: other.id }))?.steps).toMatchObject([
      { status: "pending", reason: "judge" },
      { status: "pending", reason: null },
    ]);
    expect(await of.partsOf(0)).toEqual([
      ["a", "cancelled(enough)"],
      ["b", "cancelled(enough)"],
    ]);
  });
});

forEachStore("a retry of a workflow's run", (open) => {
  /** a and b succeed, c fails, d needs all of them. */
  async function openFailed() {
    const first = await openWorkflow(open, [step("a"), step("b", [0]), step("c"), step("d", [1, 2])]);
    const failed = outcomeOf({ kind: "failed", class: "exit", exitStatus: 3 });
    // Not the first run of these steps: what is looked for by their keys alone would be that one's.
    const { run: old } = await first.store.runs.add(runDraft(workflowOf()));
    const of = {
      ...first,
      runId: old.id,
      async tree() {
        const found = await first.store.runs.get({ runId: old.id });
        if (found === null) throw new Error("the run is there");
        return found;
      },
    };
    // Earlier runs of the same steps: nothing of theirs is reused, and nothing of theirs changes.
    const others = [first.runId, (await of.store.runs.add(runDraft(workflowOf()))).run.id];
    const partsOf = async (runId: string) => (await of.store.runs.get({ runId }))?.steps ?? [];
    const play = async (runId: string, key: string, outcome: Outcome) => {
      const stepId = (await partsOf(runId)).find((one) => one.key === key)?.id ?? "";
      await of.store.steps.judge({ runId, verdicts: [starts(stepId)], limits });
      await of.settle((await of.begin()).get(key)?.at, outcome);
    };
    for (const runId of others)
      for (const key of ["a", "b"])
        await play(runId, key, outcomeOf({ output: '"other"', tails: { stdout: "other", stderr: "" } }));
    for (const key of ["a", "c", "b"]) {
      const output = JSON.stringify({ of: key });
      await play(of.runId, key, key === "c" ? failed : outcomeOf({ output, tails: { stdout: key, stderr: "" } }));
    }
    expect((await of.tree()).run.status).toBe("failed");
    const retry = async (more: { from?: string; fresh?: boolean } = {}) => {
      const run = await of.store.runs.retry({ runId: of.runId, by: "person", limits, ...more });
      const tree = await of.store.runs.get({ runId: run.id });
      const old = new Map((await of.tree()).steps.map(({ id, key }) => [id, key]));
      return (tree?.steps ?? []).map(({ key, status, reason, output, reusedFrom }) =>
        [key, status, reason, output, reusedFrom === null ? null : old.get(reusedFrom)].filter((one) => one !== null),
      );
    };
    return { ...of, retry, others, partsOf };
  }
  const again = (key: string) => [key, "pending", "judge"];
  const kept = (key: string) => [key, "succeeded", JSON.stringify({ of: key }), key];

  test("begins at what did not succeed", async () => {
    expect(await (await openFailed()).retry()).toEqual([kept("a"), kept("b"), again("c"), ["d", "pending"]]);
  });
  test("has what its steps left, and leaves every other run as it is", async () => {
    const of = await openFailed();
    const before = await Promise.all(of.others.map((runId) => of.partsOf(runId)));
    of.clock.advance(1_000);
    const run = await of.store.runs.retry({ runId: of.runId, by: "person", limits });
    expect(await Promise.all(of.others.map((runId) => of.partsOf(runId)))).toEqual(before);
    const ended = await of.store.steps.ended({ runId: run.id, keys: ["a", "b"] });
    expect(ended.map(({ key, result }) => [key, result?.stdoutTail])).toEqual([
      ["a", "a"],
      ["b", "b"],
    ]);
  });

  test("counts nobody else's needs anew", async () => {
    const of = await openFailed();
    const own = "f".repeat(64);
    await of.store.prompts.put({ digest: own, content: "RA==", bytes: 1 });
    await of.store.definitions.put({
      digest: own,
      steps: [step("x", [], { continueOnFailure: true }), step("y"), step("z", [0, 1])],
    });
    const { run } = await of.store.runs.add(runDraft(workflowOf(own)));
    const asked = async () =>
      (await of.store.steps.toJudge({ hostId, limit: 99 })).filter((one) => one.run.id === run.id);
    const play = async (key: string, outcome: Outcome) => {
      const stepId = (await asked()).find((one) => one.key === key)?.stepId ?? "";
      await of.store.steps.judge({ runId: run.id, verdicts: [starts(stepId)], limits });
      await of.settle((await of.begin()).get(key)?.at, outcome);
    };
    await play("x", outcomeOf({ kind: "failed", class: "exit", exitStatus: 3 }));
    await of.retry();
    await play("y", outcomeOf());
    expect((await asked()).map(({ key }) => key)).toEqual(["z"]);
  });

  test("does a step again that is named, with what needs it", async () => {
    const { retry } = await openFailed();
    expect(await retry({ from: "b" })).toEqual([kept("a"), again("b"), again("c"), ["d", "pending"]]);
    expect(await retry({ from: "a" })).toEqual([again("a"), ["b", "pending"], again("c"), ["d", "pending"]]);
  });
  test("does all of it again where that is asked for", async () => {
    const { retry } = await openFailed();
    expect(await retry({ fresh: true })).toEqual([again("a"), ["b", "pending"], again("c"), ["d", "pending"]]);
  });
  test("comes to its end with what it did not do again", async () => {
    const of = await openFailed();
    const run = await of.store.runs.retry({ runId: of.runId, by: "person", limits });
    const ask = (await of.store.steps.toJudge({ hostId, limit: 10 })).find((one) => one.run.id === run.id);
    await of.store.steps.judge({ runId: run.id, verdicts: [starts(ask?.stepId ?? "")], limits });
    await of.settle((await of.begin()).get("c")?.at);
    const [next] = (await of.store.steps.toJudge({ hostId, limit: 10 })).filter((one) => one.run.id === run.id);
    expect([next?.key, next?.needs.map(({ status }) => status)]).toEqual(["d", ["succeeded", "succeeded"]]);
    expect(await of.store.steps.judge({ runId: run.id, verdicts: [skips(next?.stepId ?? "")], limits })).toMatchObject({
      run: "succeeded",
    });
  });
  test("of one that has nothing left to do does all of it again", async () => {
    const of = await openWorkflow(open, [step("a")]);
    await of.judge(starts(await of.idOf("a")));
    await of.settle((await of.begin()).get("a")?.at);
    const run = await of.store.runs.retry({ runId: of.runId, by: "person", limits });
    expect((await of.store.runs.get({ runId: run.id }))?.steps).toMatchObject([{ status: "pending", reason: "judge" }]);
  });
  test("reuses nothing of what was done in a worktree", async () => {
    const of = await openFailed();
    await of.run(
      sql`insert into worktrees (run_id, host_id, cwd, path, state, created_at) values (${of.runId}, ${hostId}, '/', '/t', 'made', 0)`,
    );
    await expect(of.retry()).rejects.toMatchObject({ code: "tree_not_shared" });
    expect((await of.retry({ fresh: true }))[0]).toEqual(again("a"));
  });
});

forEachStore("a step with items", (open) => {
  const each = (stepId: string, items: readonly unknown[], concurrency: number | null = null): StepVerdict => ({
    stepId,
    does: "each",
    items: items.map((item) => JSON.stringify(item)),
    concurrency,
  });
  const letGo = async (of: Awaited<ReturnType<typeof openWorkflow>>) => {
    for (const { stepId } of await of.asked()) await of.judge(starts(stepId));
    return of.begin();
  };
  const failed = outcomeOf({ kind: "failed", class: "exit", exitStatus: 3 });

  test("is done for each, so many at a time, and hands over what they did, in their order", async () => {
    const of = await openWorkflow(open, [step("e"), step("f", [0])]);
    await of.judge(each(await of.idOf("e"), ["x", { y: 1 }, "z"], 2));
    expect(await of.words()).toEqual({
      e: "pending(items)",
      "e[0]": "pending(judge)",
      "e[1]": "pending(judge)",
      "e[2]": "pending(concurrency)",
      f: "pending",
    });
    expect((await of.asked()).map(({ key, definitionStep, item }) => [key, definitionStep, item])).toEqual([
      ["e[0]", "e", '"x"'],
      ["e[1]", "e", '{"y":1}'],
    ]);
    const first = await letGo(of);
    expect([...first.keys()].toSorted()).toEqual(["e[0]", "e[1]"]);
    await of.settle(first.get("e[1]")?.at, outcomeOf({ output: '{"n":1}' }));
    expect(await of.words()).toMatchObject({ "e[2]": "pending(judge)" });
    await of.settle((await letGo(of)).get("e[2]")?.at, outcomeOf());
    await of.settle(first.get("e[0]")?.at, outcomeOf({ output: '"zero"' }));
    expect(await of.words()).toMatchObject({ e: "succeeded", f: "pending(judge)" });
    const [ended] = await of.store.steps.ended({ runId: of.runId, keys: ["e"] });
    expect(JSON.parse(ended?.output ?? "")).toEqual(["zero", { n: 1 }, null]);
    expect(await of.numbers()).toEqual((await of.numbers()).map((_, i) => i + 1));
  });

  test("is one of its own: others that are asked about stay as they are, and no output but the items' counts", async () => {
    const of = await openWorkflow(open, [step("other"), step("e")]);
    await of.judge(each(await of.idOf("e"), [1]));
    expect(await of.words()).toEqual({ other: "pending(judge)", e: "pending(items)", "e[0]": "pending(judge)" });
    const begun = await letGo(of);
    await of.settle(begun.get("other")?.at, outcomeOf({ output: JSON.stringify("long enough to be too much") }));
    await of.store.attempts.settle({
      attemptId: "",
      token: 0,
      ...begun.get("e[0]")?.at,
      outcome: outcomeOf({ output: "1" }),
      limits: { ...limits, outputBytes: 10 },
    });
    expect((await of.tree()).steps.find(({ key }) => key === "e")?.output).toBe("[1]");
  });

  test("fails when one of them does, after all of them", async () => {
    const of = await openWorkflow(open, [step("e"), step("f", [0])]);
    await of.judge(each(await of.idOf("e"), [1, 2]));
    const begun = await letGo(of);
    expect(await of.settle(begun.get("e[0]")?.at, failed)).toMatchObject({ run: "running" });
    expect(await of.settle(begun.get("e[1]")?.at)).toMatchObject({ run: "failed" });
    expect(await of.words()).toMatchObject({ e: "failed(items)", f: "skipped(needs)" });
    expect((await of.tree()).steps[0]?.output).toBeNull();
    expect((await of.tree()).run.error).toEqual({ class: "exit", message: "1 of 2 items did not succeed: e[0]" });
  });

  test("that goes on all the same fails nothing", async () => {
    const of = await openWorkflow(open, [step("e", [], { continueOnFailure: true }), step("f", [0])]);
    await of.judge(each(await of.idOf("e"), [1]));
    await of.settle((await letGo(of)).get("e[0]")?.at, failed);
    expect(await of.words()).toMatchObject({ e: "failed(items)", f: "pending(judge)" });
    await of.judge(skips(await of.idOf("f")));
    expect((await of.tree()).run.status).toBe("succeeded");
  });

  test("one that fails before it starts lets the next one go", async () => {
    const of = await openWorkflow(open, [step("e")]);
    await of.judge(each(await of.idOf("e"), [1, 2, 3], 1));
    const [first] = await of.asked();
    const fault = { does: "fail", class: "env_invalid", reason: "expression", message: "it is not there" } as const;
    await of.judge({ stepId: first?.stepId ?? "", ...fault });
    expect(await of.words()).toEqual({
      e: "pending(items)",
      "e[0]": "failed(expression)",
      "e[1]": "pending(judge)",
      "e[2]": "pending(concurrency)",
    });
  });

  test("a gate that blocks for one of them blocks", async () => {
    const of = await openWorkflow(open, [step("e", [], { kind: "gate" }), step("f", [0])]);
    await of.judge(each(await of.idOf("e"), [1]));
    await of.settle((await letGo(of)).get("e[0]")?.at, outcomeOf({ kind: "blocked", exitStatus: 75 }));
    expect(await of.words()).toMatchObject({ e: "skipped(blocked)", f: "skipped(blocked)" });
    expect((await of.tree()).run.status).toBe("succeeded");
  });

  test("for none has succeeded at once, with an empty list", async () => {
    const of = await openWorkflow(open, [step("e"), step("f", [0])]);
    await of.judge(each(await of.idOf("e"), []));
    expect(await of.words()).toEqual({ e: "succeeded", f: "pending(judge)" });
    expect((await of.tree()).steps[0]?.output).toBe("[]");
  });

  test("is cancelled with all of them", async () => {
    const of = await openWorkflow(open, [step("e")]);
    await of.judge(each(await of.idOf("e"), [1, 2, 3], 1));
    const begun = await letGo(of);
    await of.store.runs.cancel({ runId: of.runId, by: "person", reason: "enough", limits });
    expect(await of.words()).toMatchObject({ e: "cancelled(enough)", "e[0]": "running", "e[2]": "cancelled(enough)" });
    await of.settle(begun.get("e[0]")?.at, outcomeOf({ kind: "cancelled", class: "cancelled" }));
    expect((await of.tree()).run.status).toBe("cancelled");
  });

  test("hands over nothing where that would be too much", async () => {
    const of = await openWorkflow(open, [step("e")]);
    await of.judge(each(await of.idOf("e"), [1, 2]));
    const begun = await letGo(of);
    const small = { ...limits, outputBytes: 5 };
    for (const key of ["e[0]", "e[1]"])
      await of.store.attempts.settle({
        attemptId: "",
        token: 0,
        ...begun.get(key)?.at,
        outcome: outcomeOf({ output: '"xxx"' }),
        limits: small,
      });
    expect((await of.tree()).steps[0]).toMatchObject({ status: "succeeded", output: null });
  });
});

interface Played {
  readonly needs: readonly number[];
  readonly condition: SkeletonStep["condition"];
  readonly answer: (asked: { readonly failed: boolean; readonly met: boolean }) => boolean;
  readonly end: "succeeded" | "failed" | "timed_out" | "blocked";
  readonly continueOnFailure: boolean;
}
const conditions: readonly Pick<Played, "condition" | "answer">[] = [
  { condition: "none", answer: () => true },
  { condition: "plain", answer: () => true },
  { condition: "plain", answer: () => false },
  { condition: "asks", answer: () => true },
  { condition: "asks", answer: ({ failed }) => failed },
  { condition: "asks", answer: ({ met }) => met },
];
const played = fc.integer({ min: 1, max: 7 }).chain((count) =>
  fc.tuple(
    ...Array.from({ length: count }, (_, index) =>
      fc
        .record({
          needs: index === 0 ? fc.constant([]) : fc.uniqueArray(fc.nat(index - 1), { maxLength: 3 }),
          condition: fc.constantFrom(...conditions),
          end: fc.constantFrom<Played["end"]>("succeeded", "succeeded", "failed", "timed_out", "blocked"),
          continueOnFailure: fc.boolean(),
        })
        .map(({ condition, ...rest }): Played => ({ ...rest, ...condition })),
    ),
  ),
);

/** What the table says becomes of each step, without a store. */
function byTable(steps: readonly Played[]): readonly string[] {
  const states: { status: StepStatus; reason: string | null; continueOnFailure: boolean }[] = [];
  for (const of of steps) {
    const ready = readiness(
      of.needs.map((need) => states[need] ?? { status: "pending", reason: null, continueOnFailure: false }),
      of.condition,
    );
    const ended =
      ready.does === "skip"
        ? { status: "skipped" as const, reason: ready.reason }
        : ready.does === "ask" && !of.answer(ready)
          ? { status: "skipped" as const, reason: "condition" }
          : of.end === "blocked"
            ? { status: "skipped" as const, reason: "blocked" }
            : { status: of.end, reason: null };
    states.push({ ...ended, continueOnFailure: of.continueOnFailure });
  }
  return states.map(({ status, reason }) => (status === "skipped" ? `${status}(${reason})` : status));
}

forEachStore("the truth table", (open, kind) => {
  test("holds in the store under any interleaving of the ends, and the run ends as its steps say", async () => {
    const { store, clock } = await open();
    const ported = asStore(store);
    const host = { hostId, name: "one", machineId: "m", bootId: "b", version: "0" };
    await ported.hosts.join({ ...host, leaseMs: limits.leaseMs, commandCap: 256, agentCap: 2 });
    let nth = 0;
    await fc.assert(
      fc.asyncProperty(played, fc.infiniteStream(fc.nat(1_000)), async (steps, order) => {
        const pick = <T>(of: readonly T[]): T => of[(order.next().value ?? 0) % of.length] as T;
        const ownDigest = String(nth++).padStart(64, "0");
        await ported.definitions.put({
          digest: ownDigest,
          steps: steps.map(({ needs, condition, continueOnFailure }, i) =>
            step(`s${i}`, needs, { condition, continueOnFailure }),
          ),
        });
        const { run } = await ported.runs.add(runDraft(workflowOf(ownDigest)));
        const runId = run.id;
        const live = new Map<number, { readonly attemptId: string; readonly token: number }>();
        const place = (key: string) => Number(key.slice(1));
        for (;;) {
          clock.advance(1);
          const asked = (await ported.steps.toJudge({ hostId, limit: 100 })).filter((one) => one.run.id === runId);
          const moves: (() => Promise<unknown>)[] = [];
          for (const { stepId, key, needs, condition } of asked) {
            const ready = readiness(needs, condition);
            const of = steps[place(key)];
            expect(["start", "ask"]).toContain(ready.does);
            const goes = ready.does !== "ask" || of?.answer(ready) === true;
            moves.push(() => ported.steps.judge({ runId, verdicts: [goes ? starts(stepId) : skips(stepId)], limits }));
          }
          const { mine } = await ported.admission.pass({ hostId, limits });
          for (const { attempt, stepKey } of mine) {
            const at = { attemptId: attempt.id, token: attempt.token };
            await ported.attempts.start({ ...at, bootId: "b", folder: attempt.id, awakeAt: 0 });
            live.set(place(stepKey), at);
          }
          for (const [index, at] of live) {
            const end = steps[index]?.end ?? "succeeded";
            const failure =
              end === "failed"
                ? { class: "exit" as const }
                : end === "timed_out"
                  ? { class: "timeout" as const }
                  : { class: null };
            moves.push(async () => {
              live.delete(index);
              await ported.attempts.settle({ ...at, outcome: outcomeOf({ kind: end, ...failure }), limits });
            });
          }
          if (moves.length === 0) break;
          await pick(moves)();
        }
        const tree = await ported.runs.get({ runId });
        const words = tree?.steps.map(({ status, reason }) => (status === "skipped" ? `${status}(${reason})` : status));
        expect(words).toEqual(byTable(steps));
        const fails = (tree?.steps ?? []).some(
          (one, i) =>
            endTable.find((row) => row.status === one.status && (row.reason === null || row.reason === one.reason))
              ?.failsRun === true && steps[i]?.continueOnFailure !== true,
        );
        expect(isFinal(tree?.run.status ?? "queued")).toBe(true);
        expect(tree?.run.status === "succeeded").toBe(!fails);
      }),
      { numRuns: kind.way === "memory" ? 120 : 12 },
    );
  });
});
