/** `why` has words for every reason, class, refusal and status that core knows, and a command wherever one mends it. */
import { describe, expect, test } from "vitest";
import { commandOf } from "../../../test/drafts.ts";
import { testAgents, testLeftovers, testOutput, testTrees } from "../../../test/operations.ts";
import type { Refusal } from "../../core/admission.ts";
import { defaultLimits } from "../../core/limits.ts";
import { loopPolicy, runPolicy } from "../../core/loop.ts";
import { loopStatuses } from "../../core/loop-states.ts";
import { slotReasons } from "../../core/plan.ts";
import type { AccountView, Store } from "../../core/ports.ts";
import type { AttemptRecord, LoopRecord, RunRecord, RunTree, SlotRecord, StepRecord } from "../../core/records.ts";
import { type FailureClass, failureClasses, heldReasons, runStatuses, waitReasons } from "../../core/run.ts";
import { agentTarget, workflowTarget } from "../../core/target.ts";
import { operations as table } from "../../store/operations.ts";
import { openMemoryStore } from "../../store/sqlite.ts";
import { emptyStore } from "../empty-store.ts";
import type { StoreContext } from "../operation.ts";
import { placesOf } from "../places.ts";
import { remedyForRun } from "./remedy.ts";
import { whyAccount } from "./why-account.ts";
import type { Why } from "./why-answer.ts";
import { whyLoop, whySlot } from "./why-loop.ts";
import { whyRun } from "./why-run.ts";

const NOW = Date.UTC(2026, 4, 1);
const FILE = "/repo/drover.yaml";
const RUN = "run_01m8nza66yna0r24xmpt4xdt29";

function contextOf(store: Partial<{ [N in keyof Store]: Partial<Store[N]> }> = {}): StoreContext {
  const merged = Object.fromEntries(
    Object.entries(emptyStore).map(([noun, verbs]) => [noun, { ...verbs, ...store[noun as keyof Store] }]),
  );
  return {
    clock: { now: () => NOW },
    hostZone: "UTC",
    build: { version: "0.0.0", id: "test" },
    places: placesOf({ DROVER_HOME: "/nowhere" }),
    settings: { store: "memory", limits: defaultLimits, all: [] },
    store: merged as unknown as Store,
    hostId: "host_x",
    caller: { by: "person", parentRunId: null },
    daemon: async () => ({ mode: "full" }),
    output: testOutput,
    findProgram: async () => "/bin/true",
    isFolder: () => true,
    isRoot: false,
    agents: testAgents,
    trees: testTrees,
    leftovers: testLeftovers,
  };
}

const target = commandOf(["pyton", "x.py"]);
const agent = agentTarget.parse({
  kind: "agent",
  provider: "claude",
  prompt: { digest: "a".repeat(64), bytes: 1, head: "do it" },
  cwd: "/",
});

const workflow = workflowTarget.parse({
  kind: "workflow",
  name: "fix",
  file: "/w.yaml",
  definition: { digest: "a".repeat(64), bytes: 1, head: "" },
  cwd: "/",
});

const loopOf = (over: Partial<LoopRecord> = {}): LoopRecord => ({
  id: "loop_1",
  name: "nightly",
  managedBy: null,
  schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 },
  target,
  policy: loopPolicy.parse({}),
  hostPin: null,
  revision: 1,
  status: "active",
  nextAt: NOW + 60_000,
  plannedUntil: NOW,
  anchoredAt: 0,
  successStreak: 0,
  failureStreak: 0,
  failureClass: null,
  breakerAt: null,
  pausedReason: null,
  pausedAt: null,
  archivedAt: null,
  createdAt: 0,
  updatedAt: 0,
  ...over,
});

function treeOf(
  run: Partial<RunRecord>,
  attempt: Partial<AttemptRecord> = {},
  step: Partial<StepRecord> = {},
): RunTree {
  const whole = {
    id: RUN,
    kind: "command",
    originKind: "slot",
    loopId: "loop_1",
    loopName: "nightly",
    slotAt: NOW - 60_000,
    rootRunId: RUN,
    depth: 0,
    target,
    policy: runPolicy.parse({}),
    status: "failed",
    reason: null,
    wakeAt: null,
    queuedAt: NOW - 60_000,
    createdAt: NOW - 60_000,
    startedAt: NOW - 50_000,
    finishedAt: NOW - 40_000,
    accountWish: null,
    cancelRequestedAt: null,
    cancelBy: null,
    cancelReason: null,
    exitStatus: 1,
    error: null,
    parentRunId: null,
    retryOf: null,
    ...run,
  } as RunRecord;
  return {
    run: whole,
    steps: [{ id: "step_1", status: "ready", triesCounted: 1, maxAttempts: 1, ...step } as StepRecord],
    attempts: [
      {
        number: 1,
        status: "failed",
        class: null,
        message: null,
        stdoutBytes: 0,
        stderrBytes: 9,
        ...attempt,
      } as AttemptRecord,
    ],
  };
}

/** A sentence for people: it begins and ends like one, and no word of the code stands bare in it. */
function isSaid({ sentence, remedy }: Pick<Why, "sentence" | "remedy">, codes: readonly string[]): void {
  expect(sentence).toMatch(/^[A-Z`].*[.)]( |$)/);
  expect(sentence).not.toMatch(/undefined|null|no reason is recorded|unknown reason/);
  for (const code of codes) if (code.includes("_")) expect(sentence.replaceAll(/\([^)]*\)/g, "")).not.toContain(code);
  if (remedy === null) return;
  expect(remedy.words).not.toMatch(/undefined|null|  /);
  if (remedy.command !== null) expect(remedy.command).toMatch(/^drover [a-z]/);
  if (remedy.command !== null && !remedy.command.includes(" && ")) expect(remedy.words).toContain(remedy.command);
}

describe("runs", () => {
  test("one of no loop that timed out is told which flag to change", async () => {
    const failed = {
      status: "timed_out",
      loopId: null,
      loopName: null,
      error: { class: "timeout", message: "late" },
    } as const;
    const { remedy } = await whyRun(contextOf({}), treeOf(failed));
    expect(remedy?.words).toBe("no loop starts it: start it anew with another `--timeout D`");
  });

  test.each([
    ["person", "cancelled by a person", "It was cancelled by a person."],
    ["person", "interrupted (Ctrl-C)", "It was cancelled by a person: interrupted (Ctrl-C)."],
    ["run run_0", "no need", "It was cancelled by run run_0: no need."],
    [null, null, "It was cancelled by somebody: no reason."],
  ])("one that %s cancelled (%s) says so once", async (cancelBy, cancelReason, sentence) => {
    const tree = treeOf({ status: "cancelled", cancelRequestedAt: NOW - 50_000, cancelBy, cancelReason });
    expect((await whyRun(contextOf({}), tree)).sentence).toBe(sentence);
  });

  test.each(waitReasons)("one that waits for %s", async (reason) => {
    const account = { kind: "agent", target: agent, accountWish: "claude:default" } as const;
    const tree = treeOf({ ...account, status: "waiting", reason, wakeAt: NOW + 60_000, finishedAt: null });
    const given = await whyRun(contextOf({ loops: { get: async () => loopOf() } }), tree);
    expect(given.sentence).toMatch(/^It waits /);
    isSaid(given, waitReasons);
    // Time ends the others.
    expect(given.remedy === null).toBe(reason === "capacity" || reason === "timer");
  });

  test.each(heldReasons)("one that is held back by %s", async (reason) => {
    const store = contextOf({
      loops: { get: async () => loopOf(reason === "paused" ? { status: "paused", pausedReason: "lunch" } : {}) },
      runs: { beforeTurn: async () => [{ id: "run_before", status: "running", startedAt: NOW - 1_000 }] },
    });
    const ofWorkflow = reason === "judge" ? { target: workflow } : {};
    const tree = treeOf(
      {
        status: "queued",
        reason: reason === "judge" ? null : reason,
        finishedAt: null,
        startedAt: null,
        ...ofWorkflow,
      },
      {},
      { status: "pending", reason },
    );
    const given = await whyRun(store, tree);
    isSaid(given, heldReasons);
    if (reason === "paused") expect(given.remedy?.command).toBe("drover loop resume nightly");
    else if (reason === "judge") expect(given.sentence).toContain("its definition is about to be asked");
    else
      expect(given.sentence).toBe(
        "It is queued until earlier runs of its loop have ended: run_before is running for 1s.",
      );
  });

  const refusals: { readonly [C in Refusal["code"]]: { readonly refusal: Refusal; readonly command: string | null } } =
    {
      cap: {
        refusal: { code: "cap", resource: "provider:claude", used: 1, limit: 1 },
        command: "drover limit set provider:claude N",
      },
      host_disk: { refusal: { code: "host_disk", hostId: "h" }, command: "drover doctor" },
      host_draining: { refusal: { code: "host_draining", hostId: "h" }, command: null },
      host_down: { refusal: { code: "host_down", hostId: "h" }, command: "drover up" },
      no_host: { refusal: { code: "no_host" }, command: "drover up" },
      held: {
        refusal: { code: "held", subject: "account:claude:work", untilAt: NOW + 1_000, reason: "lunch" },
        command: "drover account release claude:work",
      },
      account_disabled: {
        refusal: { code: "account_disabled", accountId: "claude:work" },
        command: "drover account enable claude:work",
      },
      account_missing: {
        refusal: { code: "account_missing", accountId: "claude:work" },
        command: "drover account add claude work",
      },
      probing: { refusal: { code: "probing", accountId: "claude:work", status: "quota" }, command: null },
      turn: { refusal: { code: "turn" }, command: null },
    };
  test.each(Object.entries(refusals))("one that admission refuses: %s", async (code, { refusal, command }) => {
    const store = contextOf({ admission: { explain: async () => ({ refusal, ahead: 2 }) } });
    const given = await whyRun(store, treeOf({ status: "queued", finishedAt: null, startedAt: null }));
    isSaid(given, [code]);
    expect(given.sentence).toMatch(/^It is queued because .*; 2 stand before it/);
    expect(given.remedy?.command ?? null).toBe(command);
  });

  test.each(runStatuses)("one that is %s", async (status) => {
    const live = status === "queued" || status === "running" || status === "waiting";
    isSaid(
      await whyRun(
        contextOf(),
        treeOf({
          status,
          reason: status === "waiting" ? "retry" : live ? null : "exit",
          finishedAt: live ? null : NOW,
          error:
            status === "failed" || status === "timed_out" ? { class: "exit", message: "exited with status 1" } : null,
        }),
      ),
      [],
    );
  });

  /** Ends for which something has to be set otherwise. */
  const set: readonly FailureClass[] = [
    "not_found",
    "timeout",
    "idle_timeout",
    "workspace",
    "env_invalid",
    "refused",
    "context",
    "turn_limit",
    "budget",
  ];
  test.each(failureClasses)(
    "one that failed with %s says what mends it, with its file where one sets it",
    async (of) => {
      const message =
        of === "not_found" ? "the command was not found: pyton is not on the PATH of the daemon" : "it did";
      const tree = treeOf({ status: "failed", error: { class: of, message }, reason: of }, { class: of, message });
      const filed = contextOf({ loops: { get: async () => loopOf({ managedBy: FILE }) } });
      const given = await whyRun(filed, tree);
      isSaid(given, []);
      expect(given.sentence).toContain(`It failed: ${message} (${of}, try 1 of 1).`);
      expect(given.remedy).not.toBeNull();
      expect(given.facts).toMatchObject({ file: FILE });
      if (set.includes(of)) {
        expect(given.remedy).toMatchObject({ file: FILE, command: `drover apply ${FILE}` });
        expect(given.remedy?.words).toContain(`nightly is set in ${FILE}: edit it, then \`drover apply ${FILE}\``);
      }
      const byHand = await whyRun(contextOf({ loops: { get: async () => loopOf() } }), tree);
      isSaid(byHand, []);
      if (set.includes(of)) expect(byHand.remedy?.command).toMatch(/^drover loop edit nightly -/);
      expect((await whyRun(contextOf(), treeOf({ ...tree.run, loopId: null, loopName: null }))).remedy).not.toBeNull();
    },
  );

  test("one whose loop was edited since is mended by running the loop, and one that succeeded has nothing to mend", async () => {
    const message = "the command was not found: pyton is not on the PATH of the daemon";
    const tree = treeOf({ error: { class: "not_found", message } });
    const edited = loopOf({ managedBy: FILE, target: commandOf(["python3", "x.py"]) });
    const world = { agents: testAgents };
    expect(await remedyForRun(world, tree, edited, null)).toMatchObject({
      command: "drover loop run nightly",
      file: null,
    });
    expect(await remedyForRun(world, treeOf({ status: "succeeded", error: null }), edited, null)).toBeNull();
  });

  test("an agent whose program is not there is mended by installing it, not by its file", async () => {
    const tree = treeOf({
      target: agent,
      accountWish: "claude:default",
      error: { class: "not_found", message: "the program claude of claude is not found" },
    });
    expect(await remedyForRun({ agents: testAgents }, tree, loopOf({ managedBy: FILE, target: agent }), null)).toEqual({
      words: `install the agent's program, or put it on the PATH of the daemon; \`drover retry ${RUN}\` runs it again`,
      command: `drover retry ${RUN}`,
      file: null,
    });
  });

  test("names and files with blanks are written as a shell takes them", async () => {
    const loop = loopOf({ name: "my loop", managedBy: "/my repo/drover.yaml" });
    const tree = treeOf({ status: "timed_out", error: { class: "timeout", message: "it took too long" } });
    expect((await remedyForRun({ agents: testAgents }, tree, loop, null))?.command).toBe(
      "drover apply '/my repo/drover.yaml'",
    );
    const byHand = await remedyForRun({ agents: testAgents }, tree, { ...loop, managedBy: null }, null);
    expect(byHand?.command).toBe("drover loop edit 'my loop' --timeout D");
  });
});

describe("slots", () => {
  const at = "2026-04-30T23:59:00Z";
  const slotOf = (over: Partial<SlotRecord>): SlotRecord => ({
    at: Date.parse(at),
    untilAt: Date.parse(at),
    count: 1,
    outcome: "missed",
    reason: null,
    coalescedInto: null,
    runId: null,
    runStatus: null,
    startedAt: null,
    finishedAt: null,
    lateMs: 0,
    schedule: null,
    ...over,
  });
  const why = (slot: SlotRecord, loop: LoopRecord) =>
    whySlot(contextOf({ slots: { list: async () => ({ items: [slot], next: null }) } }), loop, at);

  test.each(slotReasons)("one that started nothing because of %s", async (reason) => {
    for (const outcome of ["skipped", "missed", "coalesced"] as const)
      for (const managedBy of [null, FILE])
        for (const status of loopStatuses) {
          const loop = loopOf({ managedBy, status, archivedAt: reason === "archived" ? NOW : null });
          const given = await why(slotOf({ outcome, reason, coalescedInto: NOW }), loop);
          isSaid(given, slotReasons);
          expect(given.sentence).toMatch(/^It was (skipped|missed)/);
          if (["overlap", "queue_full", "limit"].includes(reason))
            expect(given.remedy?.command).toMatch(managedBy === null ? /^drover loop edit/ : /^drover apply/);
        }
  });

  test.each(["succeeded", "failed", "timed_out", "cancelled"] as const)(
    "one that %s and whose run is gone",
    async (outcome) => {
      isSaid(await why(slotOf({ outcome, runId: null }), loopOf()), []);
    },
  );
});

test("what is said of an instant that is due is what the daemon then records", async () => {
  for (const catchUp of ["none", "latest", "all"] as const)
    for (const overlap of ["skip", "queue", "cancel", "allow"] as const)
      for (const cause of ["asleep"] as const) {
        let now = NOW;
        const clock = { now: () => now };
        const { store } = openMemoryStore({ table, clock });
        const loop = await store.loops.add({
          draft: {
            name: "a",
            schedule: { kind: "interval", everyMs: 60_000, anchorAt: NOW },
            target,
            policy: loopPolicy.parse({ catchUp, overlap, catchUpLimit: 2 }),
            hostPin: null,
            managedBy: null,
          },
          limits: defaultLimits,
        });
        for (const minutes of [1, 5.5]) {
          now = NOW + minutes * 60_000;
          const plan = await store.loops.preview({ loopId: loop.id, cause, limits: defaultLimits });
          await store.loops.planDue({ cause, limits: defaultLimits });
          const { items } = await store.slots.list({ loopId: loop.id, limit: 50, cursor: null });
          for (const planned of plan?.slots ?? []) {
            const row = items.find((one) => one.at <= planned.at && planned.at <= one.untilAt);
            expect([row?.outcome ?? null, row?.reason ?? null], `${catchUp} ${overlap} ${cause}`).toEqual(
              planned.decision.kind === "run" ? [null, null] : [planned.decision.outcome, planned.decision.reason],
            );
          }
          expect(plan?.slots.length).toBeGreaterThan(0);
        }
      }
});

describe("loops", () => {
  test.each(loopStatuses)("one that is %s", async (status) => {
    const given = await whyLoop(contextOf(), loopOf({ status, pausedAt: status === "paused" ? NOW - 1_000 : null }));
    isSaid(given, []);
    expect(given.remedy === null).toBe(status === "active");
  });

  test("one that its breaker has paused names the run, its file and what then lets it fire", async () => {
    const message = "the command was not found: pyton is not on the PATH of the daemon";
    const tree = treeOf({ error: { class: "not_found", message } });
    const context = contextOf({
      runs: { list: async () => ({ items: [tree.run], next: null }), get: async () => tree },
    });
    const given = await whyLoop(
      context,
      loopOf({
        managedBy: FILE,
        status: "paused",
        breakerAt: NOW - 1_000,
        pausedAt: NOW - 1_000,
        pausedReason: "circuit breaker: 5 failures in a row (not_found); mend the cause, then resume the loop",
        failureStreak: 5,
        failureClass: "not_found",
      }),
    );
    expect(given.sentence).toContain(`\`drover why ${RUN}\` says more`);
    expect(given.remedy).toMatchObject({ file: FILE, command: `drover apply ${FILE}` });
    expect(given.remedy?.words).toContain("then `drover loop resume nightly` lets it fire again");
  });
});

describe("accounts", () => {
  const viewOf = (over: Partial<AccountView["account"]>, more: Partial<AccountView> = {}): AccountView => ({
    account: {
      id: "claude:work",
      provider: "claude",
      name: "work",
      home: "/h",
      enabled: true,
      status: "ok",
      limitEnds: 0,
      env: {},
      secrets: {},
      lastUsedAt: null,
      createdAt: 1,
      ...over,
    },
    holds: [],
    providerHolds: [],
    active: 0,
    cap: null,
    ...more,
  });
  const hold = { untilAt: null, reason: "lunch", source: "person", createdAt: NOW } as const;

  test.each(["ok", "throttled", "quota", "auth", "unknown"] as const)("one whose status is %s", async (status) => {
    isSaid(await whyAccount(contextOf(), viewOf({ status })), []);
    const held = await whyAccount(
      contextOf(),
      viewOf({ status }, { holds: [{ subjectKind: "account", subjectId: "claude:work", ...hold }] }),
    );
    isSaid(held, []);
    expect(held.remedy?.command).toContain("drover account release claude:work");
    expect(held.remedy?.command?.startsWith("drover account login")).toBe(status === "auth");
  });

  test("one that is disabled, at its cap, or whose provider is held", async () => {
    expect((await whyAccount(contextOf(), viewOf({ enabled: false }))).remedy?.command).toBe(
      "drover account enable claude:work",
    );
    expect((await whyAccount(contextOf(), viewOf({}, { active: 2, cap: 2 }))).sentence).toContain("2 is its cap");
    const providerHolds = [{ subjectKind: "provider", subjectId: "claude", ...hold } as const];
    expect((await whyAccount(contextOf(), viewOf({}, { providerHolds }))).remedy?.command).toBe(
      "drover agent release claude",
    );
  });
});
