import { describe, expect, test } from "vitest";
import type { AgentReading, AgentVerdict } from "../core/agent.ts";
import { AppError } from "../core/errors.ts";
import type { Escape } from "../core/escape.ts";
import type { Launch, Worktrees } from "../core/ports.ts";
import { sql } from "../store/sql.ts";
import type { AgentPlan, Plan } from "../../test/sim/machine.ts";
import { BEGINS_AT, createStage, PROMPT, type Stage, type StageOptions } from "../../test/sim/stage.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

const ended = (stage: Stage, runId: string) => async () => (await stage.tree(runId)).run.finishedAt !== null;
const attempts = async (stage: Stage, runId: string) => (await stage.tree(runId)).attempts;
const inputs = (stage: Stage) =>
  stage.launches.map(({ input }) => (typeof input === "string" ? input : new TextDecoder().decode(input)));
const sessions = (stage: Stage) => stage.launches.map(({ agent }) => agent?.session);

/** An agent that works, step after step, and says at the end that it is done. */
const works: AgentPlan = {
  says: (ranMs) => ({ sessionId: "S", progress: 1 + Math.floor(ranMs / SECOND), answered: true }),
  concludes: () => ({ sessionId: "S" }),
};
const failing = (of: Partial<AgentVerdict>): AgentPlan => ({
  says: works.says,
  concludes: () => ({ ok: false, sessionId: "S", text: null, ...of }),
});
const limited = (of: Partial<AgentVerdict>) =>
  failing({ class: "rate_limited", message: "Request rejected (429)", httpStatus: 429, ...of });

/** One plan for each attempt of a habit; the last one for all that follow. */
function stageOf(turns: readonly Partial<Plan>[], options: StageOptions = {}): Stage {
  let turn = 0;
  return createStage({ planOf: () => turns[Math.min(turn++, turns.length - 1)] ?? {}, ...options });
}

async function over(stage: Stage, runId: string, withinMs = MINUTE) {
  await stage.until(ended(stage, runId), withinMs);
  return (await stage.tree(runId)).run;
}

describe("a run of an agent", () => {
  test("its prompt on standard input, a session of its own, its result as the run's output", async () => {
    const usage = { inputTokens: 10, cachedInputTokens: 5, outputTokens: 2, costUsd: 0.5 };
    const stage = stageOf([{ agent: { ...works, concludes: () => ({ sessionId: "S", text: "All done.", usage }) } }]);
    await stage.start();
    const runId = await stage.addAgentRun("work");
    expect(await over(stage, runId)).toMatchObject({
      status: "succeeded",
      error: null,
      output: JSON.stringify({ result: "All done." }),
    });
    expect(inputs(stage)).toEqual([PROMPT]);
    expect(sessions(stage)).toEqual([{ id: expect.stringMatching(/^[0-9a-f-]{36}$/), resume: false }]);
    const [attempt] = await attempts(stage, runId);
    expect(attempt).toMatchObject({ status: "succeeded", accountId: "claude:default", sessionRef: "S" });
    expect(JSON.parse(attempt?.usageTotal ?? "")).toEqual(usage);
  });

  test("what it writes to DROVER_OUTPUT comes before what it says", async () => {
    const stage = stageOf([{ agent: works, output: '{"n":1}' }]);
    await stage.start();
    expect(await over(stage, await stage.addAgentRun("work"))).toMatchObject({ output: '{"n":1}' });
  });

  test("B-098 exit 0 without its closing event is no success", async () => {
    const stage = stageOf([
      { exit: 0, agent: failing({ class: "no_result", message: "exited with 0 without a result" }) },
    ]);
    await stage.start();
    expect(await over(stage, await stage.addAgentRun("work"))).toMatchObject({
      status: "failed",
      error: { class: "no_result", message: "exited with 0 without a result" },
    });
  });

  test("B-097 what it says is checked against what was asked for", async () => {
    const stage = stageOf([{ agent: works, unmet: "changes expected, but nothing changed" }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", {}, { expect: ["changes"] });
    expect(await over(stage, runId)).toMatchObject({
      status: "failed",
      error: { class: "check_failed", message: "changes expected, but nothing changed" },
    });
  });

  test("events that cannot be read are no success, and its limits hold", async () => {
    const stage = stageOf([{ durationMs: HOUR, printsForMs: 0 }], {
      wrap: (ports) => ({
        ...ports,
        agents: {
          ...ports.agents,
          read: async () => Promise.reject(new Error("EIO")),
          conclude: async () => Promise.reject(new Error("EIO")),
        },
      }),
    });
    await stage.start();
    const runId = await stage.addAgentRun("work", { idleTimeoutMs: 20 * SECOND, graceMs: 0 });
    expect(await over(stage, runId, 2 * MINUTE)).toMatchObject({
      status: "timed_out",
      error: { class: "idle_timeout" },
    });
    // Told once for as long as it lasts, and once at the end.
    expect(stage.log.filter(({ event }) => event === "bug")).toHaveLength(2);
  });

  test("a prompt that is not in the store any more is said, and not tried again", async () => {
    const stage = stageOf([{ agent: works }], {
      wrap: (ports) => ({
        ...ports,
        store: { ...ports.store, prompts: { ...ports.store.prompts, get: async () => null } },
      }),
    });
    await stage.start();
    expect(await over(stage, await stage.addAgentRun("work", { attempts: 5 }))).toMatchObject({
      status: "failed",
      error: { class: "env_invalid" },
    });
    expect(stage.starts.size).toBe(0);
  });

  test("at rest it is looked at, and the store is asked nothing", async () => {
    const stage = stageOf([{ durationMs: 10 * HOUR, agent: works }]);
    await stage.start();
    await stage.addAgentRun("work");
    await stage.run(10 * SECOND);
    stage.calls.length = 0;
    await stage.run(30 * MINUTE);
    expect(stage.calls).toEqual([]);
  });
});

describe("silence, trouble and ends", () => {
  test("printing is no progress: an agent that only prints reaches its idle limit", async () => {
    const stage = stageOf([{ durationMs: HOUR, printEveryMs: 100, agent: { says: () => ({ progress: 1 }) } }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { idleTimeoutMs: 30 * SECOND, graceMs: 0 });
    expect(await over(stage, runId, 2 * MINUTE)).toMatchObject({
      status: "timed_out",
      error: { class: "idle_timeout", message: "got no further for 30 s" },
    });
    expect(stage.time.now).toBeLessThan(35 * SECOND);
  });

  test("one that makes progress does not", async () => {
    const stage = stageOf([{ durationMs: 3 * MINUTE, agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { idleTimeoutMs: 10 * SECOND });
    expect(await over(stage, runId, 5 * MINUTE)).toMatchObject({ status: "succeeded" });
  });

  const trouble: AgentReading["trouble"] = { class: "network", message: "Reconnecting... 3/5" };
  test.each([
    ["network", "failed", true],
    ["overloaded", "waiting", false],
  ] as const)("a provider that only tries again is ended as %s", async (of, status, counted) => {
    const plan = {
      durationMs: HOUR,
      agent: { says: () => ({ progress: 3, trouble: { class: of, message: "Reconnecting... 3/5" } }) },
    };
    const stage = stageOf([plan]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { graceMs: 0 });
    await stage.until(async () => ((await attempts(stage, runId))[0]?.finishedAt ?? null) !== null, 5 * MINUTE);
    expect(stage.time.now).toBeGreaterThan(stage.limits.agentTroubleMs);
    expect(stage.time.now).toBeLessThan(stage.limits.agentTroubleMs + 10 * SECOND);
    expect((await stage.tree(runId)).run.status).toBe(status);
    expect(await attempts(stage, runId)).toMatchObject([
      { class: of, counted, message: "got no further for 120 s: Reconnecting... 3/5" },
    ]);
  });

  test("a limit that is known when the silence becomes too long is why it ended", async () => {
    const limit = { class: "rate_limited", message: "tries again by itself (1/2): rate_limit 429" } as const;
    const stage = stageOf([{ durationMs: HOUR, agent: { says: () => ({ progress: 3, trouble: limit }) } }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { graceMs: 0, idleTimeoutMs: 30 * SECOND });
    await stage.until(async () => ((await attempts(stage, runId))[0]?.finishedAt ?? null) !== null, 5 * MINUTE);
    expect(stage.time.now).toBeLessThan(40 * SECOND);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "waiting", reason: "limit" });
    expect(await attempts(stage, runId)).toMatchObject([
      { class: "rate_limited", counted: false, message: `got no further for 30 s: ${limit.message}` },
    ]);
  });

  test("trouble that passes ends nothing", async () => {
    const says = (ranMs: number) => ({
      progress: Math.floor(ranMs / (100 * SECOND)),
      trouble: ranMs % (100 * SECOND) > 50 * SECOND ? trouble : null,
    });
    const stage = stageOf([{ durationMs: 10 * MINUTE, agent: { says } }]);
    await stage.start();
    expect(await over(stage, await stage.addAgentRun("work"), HOUR)).toMatchObject({ status: "succeeded" });
  });

  const lingers = (of: Partial<Plan> = {}): Partial<Plan> => ({
    durationMs: HOUR,
    agent: {
      says: (ranMs) => ({ sessionId: "S", progress: 1, answered: true, closed: ranMs >= 5 * SECOND }),
      // What an adapter makes of it: a signal of ours says nothing, every other status does.
      concludes: (exit) => (exit === null || exit === 0 ? {} : { ok: false, class: "signal", message: "killed" }),
    },
    ...of,
  });

  test.each([false, true])(
    "B-008 a result whose process stays is kept, the process is not (deaf to TERM: %s)",
    async (ignoresTerm) => {
      const stage = stageOf([lingers({ ignoresTerm })]);
      await stage.start();
      const runId = await stage.addAgentRun("work", { graceMs: 2 * SECOND });
      expect(await over(stage, runId, 2 * MINUTE)).toMatchObject({ status: "succeeded" });
      expect(stage.time.now).toBeLessThan(5 * SECOND + stage.limits.agentExitMs + 5 * SECOND);
      expect(await attempts(stage, runId)).toMatchObject([
        {
          status: "succeeded",
          endedBy: "exit_timer",
          message: "forced exit: it did not exit within 15 s of its result",
        },
      ]);
      expect(stage.machine.liveProcesses()).toBe(0);
    },
  );

  test("B-101 our own signal after the result makes no failure of it: a limit, a cancel", async () => {
    const stage = stageOf([lingers()]);
    await stage.start();
    const late = await stage.addAgentRun("work", { timeoutMs: 10 * SECOND, graceMs: 0 });
    expect(await over(stage, late, 2 * MINUTE)).toMatchObject({ status: "succeeded" });
    const cancelled = await stage.addAgentRun("work", { graceMs: 0 });
    await stage.run(8 * SECOND);
    await stage.store.runs.cancel({ runId: cancelled, by: "person", reason: "enough", limits: stage.limits });
    expect(await over(stage, cancelled, 2 * MINUTE)).toMatchObject({ status: "succeeded" });
  });

  test("a signal before the result is what ended it, whatever it says after that", async () => {
    const says = (ranMs: number) => ({ progress: Math.floor(ranMs / SECOND), closed: ranMs > 11 * SECOND });
    const stage = stageOf([{ durationMs: HOUR, ignoresTerm: true, agent: { says } }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { timeoutMs: 10 * SECOND, graceMs: 2 * SECOND });
    expect(await over(stage, runId, MINUTE)).toMatchObject({ status: "timed_out", error: { class: "timeout" } });
  });

  test("a result that was there when the daemon went is found by the next one", async () => {
    const stage = stageOf([lingers()]);
    const { context } = await stage.start();
    const runId = await stage.addAgentRun("work", { graceMs: 0 });
    await stage.run(7 * SECOND);
    context.die();
    await stage.run(MINUTE);
    await stage.start();
    expect(await over(stage, runId, MINUTE)).toMatchObject({ status: "succeeded" });
  });

  test("a result outlives its shim", async () => {
    const stage = stageOf([
      {
        durationMs: 3 * SECOND,
        shimDies: "while_running",
        agent: { says: () => ({ progress: 1, closed: true }) },
      },
    ]);
    await stage.start();
    expect(await over(stage, await stage.addAgentRun("work"), 2 * MINUTE)).toMatchObject({ status: "succeeded" });
  });

  test("without a result a dead shim leaves it lost", async () => {
    const stage = stageOf([{ durationMs: 3 * SECOND, shimDies: "while_running", agent: { says: () => ({}) } }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { onLost: "fail" });
    expect(await over(stage, runId, 2 * MINUTE)).toMatchObject({ status: "failed", error: { class: "lost" } });
  });
});

describe("limits of the account", () => {
  test("a limit waits for its reset, uses up no try, and goes on with the session", async () => {
    const resetAt = BEGINS_AT + HOUR;
    const quota = limited({ class: "quota", message: "You've hit your limit", resetAt, resetSource: "event" });
    const stage = stageOf([{ agent: quota }, { agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 1 });
    await stage.until(async () => (await stage.tree(runId)).run.status === "waiting", MINUTE);
    const { run } = await stage.tree(runId);
    expect(run).toMatchObject({ status: "waiting", reason: "limit" });
    expect(run.wakeAt).toBeGreaterThanOrEqual(resetAt);
    await stage.run(10 * SECOND);
    stage.calls.length = 0;
    await stage.run(30 * MINUTE);
    expect(stage.calls).toEqual([]);
    expect(await over(stage, runId, 2 * HOUR)).toMatchObject({ status: "succeeded" });
    expect((await attempts(stage, runId)).map(({ counted, class: of }) => [of, counted])).toEqual([
      ["quota", false],
      [null, true],
    ]);
    expect(sessions(stage)[1]).toEqual({ id: "S", resume: true });
    expect(inputs(stage)[1]).toMatch(/^Your work was interrupted: a usage limit was reached/);
    expect(inputs(stage)[1]).not.toContain(PROMPT);
  });

  test("what is queued under a held account starts when the hold ends, without anybody asking meanwhile", async () => {
    const stage = stageOf([{ agent: works }]);
    await stage.start();
    await stage.store.accounts.hold({
      accountId: "claude:default",
      untilAt: stage.host.now() + HOUR,
      reason: "lunch",
    });
    const runId = await stage.addAgentRun("work");
    await stage.run(MINUTE);
    stage.calls.length = 0;
    await stage.run(50 * MINUTE);
    expect(stage.calls).toEqual([]);
    expect((await stage.tree(runId)).run.status).toBe("queued");
    await over(stage, runId, 11 * MINUTE);
    expect(stage.time.now).toBeLessThan(HOUR + MINUTE);
  });

  test("until idle: what only a person lets go on is left, and the next daemon goes on with it", async () => {
    const turns = [{ agent: failing({ class: "auth", message: "Not logged in" }) }, { agent: works }];
    const stage = stageOf(turns, { untilIdle: true });
    const runId = await stage.addAgentRun("work");
    const { engine } = await stage.start();
    let idle = false;
    void engine.idle().then(() => (idle = true));
    await stage.until(() => idle, MINUTE);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "waiting", reason: "account" });
    await engine.stop({ drainMs: 0, stopRuns: false });
    await stage.store.accounts.release({ accountId: "claude:default" });
    const next = await stage.start();
    idle = false;
    void next.engine.idle().then(() => (idle = true));
    await stage.until(() => idle, MINUTE);
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
  });

  test("until idle: a limit that ends by itself is waited out", async () => {
    const turns = [{ agent: limited({ class: "quota" }) }, { agent: works }];
    const stage = stageOf(turns, { untilIdle: true });
    const runId = await stage.addAgentRun("work");
    const { engine } = await stage.start();
    let idle = false;
    void engine.idle().then(() => (idle = true));
    await stage.until(() => idle, 2 * HOUR);
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
  });

  test("a login that does not work waits for a person, and their release wakes it", async () => {
    const stage = stageOf([{ agent: failing({ class: "auth", message: "Not logged in" }) }, { agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work");
    await stage.run(24 * HOUR);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "waiting", reason: "account", wakeAt: null });
    await stage.store.accounts.release({ accountId: "claude:default" });
    expect(await over(stage, runId)).toMatchObject({ status: "succeeded" });
  });

  test("the model's first answer tells that an account works again, once", async () => {
    const stage = stageOf([{ agent: limited({}) }, { durationMs: MINUTE, agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work");
    await stage.until(async () => (await attempts(stage, runId))[1]?.status === "running", HOUR);
    await stage.run(5 * SECOND);
    expect((await stage.store.accounts.get({ accountId: "claude:default" }))?.account.status).toBe("ok");
    expect(stage.calls.filter((name) => name === "accounts.answered")).toHaveLength(1);
    await over(stage, runId, 5 * MINUTE);
  });
});

describe("sessions", () => {
  test("the session is kept as soon as it is seen", async () => {
    const stage = stageOf([{ durationMs: HOUR, agent: works }]);
    const { context } = await stage.start();
    const runId = await stage.addAgentRun("work");
    await stage.run(5 * SECOND);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "running", sessionRef: "S" }]);
    expect(stage.calls.filter((name) => name === "attempts.session")).toHaveLength(1);
    context.die();
  });

  test("a session that is not there any more uses up no try, and the next attempt begins afresh", async () => {
    const stage = stageOf([
      { agent: limited({ resetAt: null }) },
      {
        agent: {
          says: () => ({}),
          concludes: () => ({ ok: false, class: "protocol", message: "no session S", sessionGone: true }),
        },
      },
      { agent: works },
    ]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 1 });
    expect(await over(stage, runId, HOUR)).toMatchObject({ status: "succeeded" });
    expect(sessions(stage).map((session) => session?.resume)).toEqual([false, true, false]);
    expect(inputs(stage)[2]).toMatch(/^An earlier attempt at the task below ended with protocol/);
    expect(inputs(stage)[2]?.endsWith(PROMPT)).toBe(true);
  });

  test("B-116 a session that is somebody's is gone on with, then copied, then left: once each", async () => {
    const used: AgentPlan = {
      says: () => ({}),
      concludes: () => ({ ok: false, class: "protocol", message: "Session ID is already in use", sessionUsed: true }),
    };
    const stage = stageOf([{ agent: used }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 2, backoffMs: SECOND });
    expect(await over(stage, runId, HOUR)).toMatchObject({ status: "failed", error: { class: "protocol" } });
    const asked = sessions(stage);
    const [first] = asked;
    expect(asked).toEqual([
      { id: first?.id, resume: false },
      { id: first?.id, resume: true },
      { id: first?.id, resume: true, fork: true },
      { id: expect.any(String), resume: false },
      { id: expect.any(String), resume: false },
    ]);
    expect(new Set([first, asked[3], asked[4]].map((session) => session?.id)).size).toBe(3);
    expect((await attempts(stage, runId)).map(({ counted }) => counted)).toEqual([false, false, false, true, true]);
    for (const input of inputs(stage)) expect(input.endsWith(PROMPT)).toBe(true);
  });

  test("a copy that a session is gone on with has its own usage: what the session had before is not in it", async () => {
    const usage = (outputTokens: number) =>
      ({ inputTokens: 0, cachedInputTokens: 0, outputTokens, costUsd: null, of: "session" }) as const;
    const stage = stageOf([
      { agent: failing({ class: "network", message: "gone", usage: usage(7) }) },
      {
        agent: {
          says: () => ({}),
          concludes: () => ({ ok: false, class: "protocol", message: "already in use", sessionUsed: true }),
        },
      },
      { agent: { says: () => ({ sessionId: "C" }), concludes: () => ({ sessionId: "C", usage: usage(14) }) } },
    ]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 3, backoffMs: SECOND });
    expect(await over(stage, runId, HOUR)).toMatchObject({ status: "succeeded" });
    expect(sessions(stage).map((session) => session?.fork)).toEqual([undefined, undefined, true]);
    const own = (await attempts(stage, runId)).map(({ usageTotal }) => JSON.parse(usageTotal ?? "null") as unknown);
    expect(own).toMatchObject([{ outputTokens: 7 }, null, { outputTokens: 7 }]);
  });

  test("B-116 a daemon that dies between two of these ways goes on with the next one", async () => {
    const used: AgentPlan = {
      says: () => ({}),
      concludes: () => ({ ok: false, class: "protocol", message: "Session ID is already in use", sessionUsed: true }),
    };
    const stage = stageOf([{ agent: used }, { agent: used, durationMs: MINUTE }, { agent: works }]);
    const { context } = await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 1 });
    await stage.until(() => stage.starts.size === 2);
    context.die();
    await stage.start();
    expect(await over(stage, runId, HOUR)).toMatchObject({ status: "succeeded" });
    expect(sessions(stage).map((session) => session?.fork ?? session?.resume)).toEqual([false, true, true]);
    expect(sessions(stage)[2]).toMatchObject({ id: sessions(stage)[0]?.id, fork: true });
  });

  test("of a failed check the agent is told, in its session", async () => {
    const stage = stageOf([{ agent: works, unmet: "file expected, but a.txt does not exist" }, { agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 2, backoffMs: SECOND }, { expect: ["file:a.txt"] });
    expect(await over(stage, runId)).toMatchObject({ status: "succeeded" });
    expect(inputs(stage)[1]).toContain("file expected, but a.txt does not exist");
    // What it has to change counts from the start of the first.
    expect(stage.launches.map(({ since }) => since)).toEqual([undefined, stage.launches[0]?.folder]);
    expect(sessions(stage)[1]).toEqual({ id: "S", resume: true });
  });

  test("B-120 a program that cannot be started uses up no try and keeps the session", async () => {
    let broken = false;
    const stage = stageOf([{ agent: limited({}) }, { agent: works }], {
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          prepare: async (launch: Launch) => {
            if (broken) throw new AppError("not_found", "agent_not_found", "claude is not there");
            return ports.spawner.prepare(launch);
          },
        },
      }),
    });
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 1 });
    await stage.until(async () => (await stage.tree(runId)).run.status === "waiting");
    broken = true;
    await stage.until(async () => (await attempts(stage, runId)).length >= 4, HOUR);
    broken = false;
    expect(await over(stage, runId, HOUR)).toMatchObject({ status: "succeeded" });
    const all = await attempts(stage, runId);
    expect(all.filter(({ counted }) => counted)).toHaveLength(1);
    expect(all.slice(1, -1).every(({ class: of, status }) => of === "spawn" && status === "failed")).toBe(true);
    expect(sessions(stage).at(-1)).toEqual({ id: "S", resume: true });
  });

  const programIsAway = (plans: Partial<Plan>[]) =>
    stageOf(plans, {
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          prepare: async () => {
            throw new AppError("not_found", "agent_not_found", "claude is not there");
          },
        },
      }),
    });

  test("B-120 a program that does not come back fails its run after a time, and not after some number of looks", async () => {
    const stage = programIsAway([{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 3 });
    await stage.until(async () => (await stage.tree(runId)).run.status === "waiting");
    expect((await stage.tree(runId)).run).toMatchObject({ status: "waiting", reason: "program" });
    const run = await over(stage, runId, HOUR);
    expect(run).toMatchObject({ status: "failed", error: { class: "not_found" } });
    expect(run.error?.message).toMatch(/^it could not be started for 15m.*: claude is not there$/);
    expect(stage.time.now).toBeGreaterThanOrEqual(stage.limits.programAwayMs);
    expect(stage.time.now).toBeLessThan(stage.limits.programAwayMs + MINUTE);
    expect(stage.starts.size).toBe(0);
  });

  test("B-054 slots that meet no program are one run that waits for it, and the others say why they started none", async () => {
    let away = true;
    const stage = stageOf([{ agent: works }], {
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          prepare: async (launch: Launch) => {
            if (away) throw new AppError("not_found", "agent_not_found", "claude is not there");
            return ports.spawner.prepare(launch);
          },
        },
      }),
    });
    await stage.start();
    const every = { kind: "interval", everyMs: 2 * MINUTE, anchorAt: BEGINS_AT } as const;
    const loop = await stage.addAgentLoop(every, "work", {
      attempts: 1,
      overlap: "skip",
      expiresAt: BEGINS_AT + 7 * MINUTE,
    });
    await stage.run(6 * MINUTE + SECOND);
    const slots = () =>
      stage.rows<{ outcome: string | null; reason: string | null; n: number }>(
        sql`select outcome, reason, sum(count) as n from slots where loop_id = ${loop.id} group by outcome, reason order by min(at)`,
      );
    expect(slots()).toEqual([
      { outcome: null, reason: null, n: 1 },
      { outcome: "skipped", reason: "overlap", n: 2 },
    ]);
    expect(stage.starts.size).toBe(0);
    away = false;
    await stage.run(5 * MINUTE);
    expect(slots()[0]).toEqual({ outcome: "succeeded", reason: null, n: 1 });
    expect(stage.starts.size).toBe(1);
  });

  test("a program that the target names is missed like a command: at once, and counted", async () => {
    const stage = programIsAway([{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun(
      "work",
      { attempts: 2, backoffMs: SECOND },
      {
        provider: "custom",
        command: ["./mine"],
      },
    );
    expect(await over(stage, runId, MINUTE)).toMatchObject({ status: "failed", error: { class: "not_found" } });
    expect(await attempts(stage, runId)).toMatchObject([
      { status: "failed", class: "not_found", counted: true },
      { status: "failed", class: "not_found", counted: true },
    ]);
  });
});

describe("worktrees", () => {
  interface Trees {
    readonly worktrees: Worktrees;
    readonly made: string[];
    readonly removed: string[];
    holds: readonly string[];
    fault: AppError | null;
    /** What changed in the main checkout, for one attempt after another. */
    escapes: (Escape | AppError | null)[];
    watched: number;
  }
  const createTrees = (): Trees => {
    const trees: Trees = {
      made: [],
      removed: [],
      holds: [],
      fault: null,
      escapes: [],
      watched: 0,
      worktrees: {
        place: ({ runId }) => `/trees/${runId}`,
        async make({ path, mode }) {
          if (trees.fault !== null) throw trees.fault;
          if (mode === "auto" && trees.holds[0] === "no repository") return null;
          trees.made.push(path);
          return { repository: "/project", branch: "drover/x", base: "abc", baseNote: "local HEAD: no origin" };
        },
        enter: async ({ path }) => `${path}/sub`,
        look: async () => ({ there: "whole", holds: trees.holds, commits: 0, diffStat: null }),
        async watch() {
          trees.watched++;
          if (trees.escapes[0] instanceof AppError) throw trees.escapes[0];
        },
        async escaped() {
          const next = trees.escapes.shift() ?? null;
          if (next instanceof AppError) throw next;
          return next;
        },
        async remove({ path }) {
          if (trees.fault !== null) throw trees.fault;
          if (trees.holds.length === 0) trees.removed.push(path);
          return {
            removed: trees.holds.length === 0,
            state: { there: "whole", holds: trees.holds, commits: trees.holds.length, diffStat: null },
          };
        },
      },
    };
    return trees;
  };
  const stageWith = (trees: Trees, turns: readonly Partial<Plan>[]) =>
    stageOf(turns, { wrap: (ports) => ({ ...ports, worktrees: trees.worktrees }) });

  test("it is made once for all attempts of a run, worked in, and goes when it holds nothing", async () => {
    const trees = createTrees();
    const stage = stageWith(trees, [{ agent: works, unmet: "not yet" }, { agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun(
      "work",
      { attempts: 2, backoffMs: SECOND },
      { worktree: "required", expect: ["changes"] },
    );
    await over(stage, runId);
    expect(trees.made).toEqual([`/trees/${runId}`]);
    expect(stage.launches.map(({ cwd }) => cwd)).toEqual([`/trees/${runId}/sub`, `/trees/${runId}/sub`]);
    await stage.until(async () => (await stage.tree(runId)).worktree?.state === "removed");
    expect(trees.removed).toEqual([`/trees/${runId}`]);
  });

  test("B-112 what changed in the main checkout is kept of all attempts, in the transaction that settles each", async () => {
    const trees = createTrees();
    trees.escapes = [
      { headMoved: false, paths: ["README.md"], count: 1 },
      { headMoved: true, paths: ["a.txt"], count: 1 },
    ];
    const stage = stageWith(trees, [{ agent: works, unmet: "not yet" }, { agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun(
      "work",
      { attempts: 2, backoffMs: SECOND },
      { worktree: "required", expect: ["changes"] },
    );
    await stage.until(async () => (await attempts(stage, runId))[0]?.finishedAt != null);
    const { worktree } = await stage.tree(runId);
    expect(worktree?.escaped).toEqual({ headMoved: false, paths: ["README.md"], count: 1 });
    await over(stage, runId);
    expect(trees.watched).toBe(2);
    expect((await stage.tree(runId)).worktree?.escaped).toEqual({
      headMoved: true,
      paths: ["README.md", "a.txt"],
      count: 2,
    });
    const events = stage.rows<{ data: string }>(
      sql`select data from events where type = 'worktree.escaped' order by number`,
    );
    expect(events.map(({ data }) => JSON.parse(data))).toMatchObject([
      { paths: ["README.md"] },
      { paths: ["a.txt"], headMoved: true },
    ]);
  });

  test("B-112 a main checkout that cannot be watched is said in the log and keeps nothing from its end", async () => {
    const trees = createTrees();
    trees.escapes = [new AppError("conflict", "workspace", "fatal: not a git repository")];
    const stage = stageWith(trees, [{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", {}, { worktree: "required" });
    expect(await over(stage, runId)).toMatchObject({ status: "succeeded" });
    expect((await stage.tree(runId)).worktree?.escaped).toBeNull();
    expect(stage.log.filter(({ event }) => event === "main_unwatched").length).toBeGreaterThan(0);
  });

  test("B-112 an attempt that an earlier daemon started is compared with what that one noted", async () => {
    const trees = createTrees();
    trees.escapes = [{ headMoved: false, paths: ["README.md"], count: 1 }];
    const stage = stageWith(trees, [{ agent: works, durationMs: HOUR }]);
    const { context } = await stage.start();
    const runId = await stage.addAgentRun("work", {}, { worktree: "required" });
    await stage.run(MINUTE);
    context.die();
    await stage.start();
    await over(stage, runId, 2 * HOUR);
    expect(trees.watched).toBe(1);
    expect((await stage.tree(runId)).worktree?.escaped).toMatchObject({ paths: ["README.md"] });
  });

  test("what holds work is kept and says why", async () => {
    const trees = createTrees();
    trees.holds = ["1 commit of its own", "uncommitted changes"];
    const stage = stageWith(trees, [{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", {}, { worktree: "auto" });
    await over(stage, runId);
    await stage.until(async () => (await stage.tree(runId)).worktree?.state === "kept");
    expect((await stage.tree(runId)).worktree).toMatchObject({
      keptBecause: "1 commit of its own, uncommitted changes",
      commits: 2,
    });
    expect(trees.removed).toEqual([]);
  });

  test("one that cannot be looked at is kept, and is looked at once", async () => {
    const trees = createTrees();
    const stage = stageWith(trees, [{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", {}, { worktree: "auto" });
    await stage.until(() => trees.made.length === 1);
    trees.fault = new AppError("conflict", "workspace", "fatal: not a git repository");
    await over(stage, runId);
    await stage.run(HOUR);
    expect((await stage.tree(runId)).worktree).toMatchObject({
      state: "kept",
      keptBecause: "could not be looked at: fatal: not a git repository",
    });
    expect(stage.log.filter(({ event }) => event === "worktree_unclear")).toHaveLength(1);
  });

  test("git's refusal is class workspace in its own words, and a counted try", async () => {
    const trees = createTrees();
    trees.fault = new AppError("conflict", "workspace", "fatal: this repository has no commit");
    const stage = stageWith(trees, [{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 2, backoffMs: SECOND }, { worktree: "required" });
    expect(await over(stage, runId)).toMatchObject({
      status: "failed",
      error: { class: "workspace", message: "fatal: this repository has no commit" },
    });
    expect(await attempts(stage, runId)).toHaveLength(2);
    expect(stage.starts.size).toBe(0);
  });

  test("a disk that is full in the middle of a checkout waits for room and uses up no try", async () => {
    const trees = createTrees();
    trees.fault = new AppError("unreachable", "no_space", "no space is left");
    const stage = stageWith(trees, [{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", { attempts: 1 }, { worktree: "required" });
    await stage.until(async () => (await attempts(stage, runId)).length > 0);
    await stage.until(async () => (await stage.tree(runId)).run.status === "waiting");
    expect((await stage.tree(runId)).run).toMatchObject({ reason: "disk" });
    trees.fault = null;
    expect(await over(stage, runId, HOUR)).toMatchObject({ status: "succeeded" });
  });

  test("without a repository an automatic one is none", async () => {
    const trees = createTrees();
    trees.holds = ["no repository"];
    const stage = stageWith(trees, [{ agent: works }]);
    await stage.start();
    const runId = await stage.addAgentRun("work", {}, { worktree: "auto" });
    expect(await over(stage, runId)).toMatchObject({ status: "succeeded" });
    expect(stage.launches[0]?.cwd).toBeUndefined();
    expect((await stage.tree(runId)).worktree ?? null).toBeNull();
  });

  test("B-103 a daemon that dies while it is made leaves the next one to make it again", async () => {
    const trees = createTrees();
    const { make } = trees.worktrees;
    let stuck = true;
    const stage = stageOf([{ agent: works }], {
      wrap: (ports) => ({
        ...ports,
        worktrees: { ...trees.worktrees, make: (order) => (stuck ? new Promise(() => {}) : make(order)) },
      }),
    });
    const { context } = await stage.start();
    const runId = await stage.addAgentRun("work", {}, { worktree: "required" });
    await stage.run(SECOND);
    expect(stage.rows(sql`select state from worktrees`)).toEqual([{ state: "making" }]);
    context.die();
    stuck = false;
    await stage.start();
    expect(await over(stage, runId)).toMatchObject({ status: "succeeded" });
    expect(trees.made).toEqual([`/trees/${runId}`]);
  });

  test("a tree that takes its time holds up nobody's start, and a cancel meanwhile starts nothing", async () => {
    const trees = createTrees();
    let go = (): void => {};
    const slow = new Promise<void>((resolve) => (go = resolve));
    const stage = stageOf([{ agent: works }], {
      limits: { startsAtOnce: 1 },
      wrap: (ports) => ({
        ...ports,
        worktrees: { ...trees.worktrees, make: (order) => slow.then(() => trees.worktrees.make(order)) },
      }),
    });
    await stage.start();
    const runId = await stage.addAgentRun("work", {}, { worktree: "required" });
    await stage.run(SECOND);
    await over(stage, await stage.addRun("command"));
    await stage.store.runs.cancel({ runId, by: "person", reason: "enough", limits: stage.limits });
    await stage.run(SECOND);
    go();
    expect(await over(stage, runId)).toMatchObject({ status: "cancelled" });
    expect(stage.starts.size).toBe(1);
    await stage.until(() => trees.removed.length === 1);
  });

  test("a cancel ends a tree in the making, and one that waits for its turn to be made, and uses up no try", async () => {
    const trees = createTrees();
    let making = 0;
    const stage = stageOf([{ agent: works }], {
      limits: { startsAtOnce: 1 },
      agentCap: 8,
      wrap: (ports) => ({
        ...ports,
        worktrees: {
          ...trees.worktrees,
          make: (_, unwanted) => {
            making++;
            return new Promise((_resolve, reject) => {
              unwanted?.addEventListener("abort", () => reject(new AppError("conflict", "workspace", "ended")));
            });
          },
        },
      }),
    });
    await stage.start();
    const runs = [
      await stage.addAgentRun("one", {}, { worktree: "required" }),
      await stage.addAgentRun("two", {}, { worktree: "required" }),
    ];
    await stage.until(async () => (await attempts(stage, runs[1] ?? "")).length === 1);
    expect(making).toBe(1);
    for (const runId of runs.toReversed()) {
      await stage.store.runs.cancel({ runId, by: "person", reason: "enough", limits: stage.limits });
      expect(await over(stage, runId, SECOND)).toMatchObject({ status: "cancelled" });
      expect((await attempts(stage, runId)).every(({ counted }) => !counted)).toBe(true);
    }
    expect(making).toBe(1);
    await stage.until(() => trees.removed.length === 2);
  });

  test("trees that a daemon had no time for are looked at by the next one", async () => {
    const trees = createTrees();
    let die = (): void => {};
    const stage = stageOf([{ agent: works }], {
      wrap: (ports) => ({ ...ports, worktrees: trees.worktrees }),
      point(name) {
        if (name !== "settled") return undefined;
        die();
        return new Promise<void>(() => {});
      },
    });
    const { context } = await stage.start();
    die = context.die;
    const runId = await stage.addAgentRun("work", {}, { worktree: "required" });
    await over(stage, runId);
    await stage.run(MINUTE);
    expect(trees.removed).toEqual([]);
    await stage.start();
    await stage.until(() => trees.removed.length === 1);
  });
});

describe("B-092 where starts under an account come one after another", () => {
  const serially = (turns: readonly Partial<Plan>[], options: StageOptions = {}) =>
    stageOf(turns, {
      agentCap: 8,
      wrap: (ports) => ({
        ...ports,
        agents: { ...ports.agents, traits: (provider) => ({ ...ports.agents.traits(provider), serialStarts: true }) },
      }),
      ...options,
    });
  const READER = { permission: "read-only" } as const;
  /** Names its session after that time. */
  const slow = (ms: number): AgentPlan => ({ ...works, says: (ranMs) => (ranMs < ms ? {} : works.says(ranMs)) });

  test("the next one starts when the one before has its session, and they work at the same time", async () => {
    const stage = serially([{ durationMs: HOUR, agent: slow(3 * SECOND) }]);
    await stage.start();
    for (let i = 0; i < 3; i++) await stage.addAgentRun("work", {}, READER);
    await stage.run(2 * SECOND);
    expect(stage.starts.size).toBe(1);
    await stage.run(2 * SECOND);
    expect(stage.starts.size).toBe(2);
    await stage.run(10 * SECOND);
    expect(stage.starts.size).toBe(3);
    expect(stage.machine.liveProcesses()).toBeGreaterThanOrEqual(3);
  });

  test("one that ends without a session, and one that says nothing, hold nobody up for long", async () => {
    const stage = serially([
      { durationMs: SECOND, exit: 1, agent: failing({ class: "auth", sessionId: null }) },
      { durationMs: HOUR, agent: { says: () => ({}) } },
      { durationMs: HOUR, agent: works },
    ]);
    await stage.start();
    for (let i = 0; i < 3; i++) await stage.addAgentRun("work", { attempts: 1 }, READER);
    await stage.run(2 * SECOND);
    await stage.store.accounts.release({ accountId: "claude:default" });
    await stage.run(5 * SECOND);
    expect(stage.starts.size).toBe(2);
    await stage.run(20 * SECOND);
    expect(stage.starts.size).toBeGreaterThanOrEqual(3);
  });

  test("a daemon that goes down waits for none that waits, and the next one starts it", async () => {
    const stage = serially([{ durationMs: HOUR, agent: slow(10 * SECOND) }]);
    const { engine, context } = await stage.start();
    await stage.addAgentRun("work", {}, READER);
    const second = await stage.addAgentRun("work", {}, READER);
    await stage.run(SECOND);
    let isDown = false;
    void engine.stop({ drainMs: 0, stopRuns: false }).then(() => (isDown = true));
    await stage.until(() => isDown, SECOND);
    context.die();
    await stage.start();
    await stage.until(async () => (await stage.tree(second)).run.status === "running", MINUTE);
  });

  test("one that was cancelled while it waited starts nothing", async () => {
    const stage = serially([{ durationMs: HOUR, agent: slow(5 * SECOND) }]);
    await stage.start();
    await stage.addAgentRun("work", {}, READER);
    const second = await stage.addAgentRun("work", {}, READER);
    await stage.run(SECOND);
    await stage.store.runs.cancel({ runId: second, by: "person", reason: "enough", limits: stage.limits });
    expect(await over(stage, second)).toMatchObject({ status: "cancelled" });
    expect(stage.starts.size).toBe(1);
  });
});

test("agents that write in one folder come one after another, others do not wait for them", async () => {
  const stage = stageOf([{ durationMs: MINUTE, agent: works }], { agentCap: 4 });
  await stage.start();
  const first = await stage.addAgentRun("work");
  const second = await stage.addAgentRun("work");
  const elsewhere = await stage.addAgentRun("work", {}, { cwd: "/other" });
  const reader = await stage.addAgentRun("work", {}, { permission: "read-only" });
  await stage.run(10 * SECOND);
  const status = async (runId: string) => (await stage.tree(runId)).run.status;
  expect([await status(first), await status(second), await status(elsewhere), await status(reader)]).toEqual([
    "running",
    "queued",
    "running",
    "running",
  ]);
  await over(stage, second, 5 * MINUTE);
});
