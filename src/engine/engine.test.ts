import { describe, expect, test } from "vitest";
import { AppError } from "../core/errors.ts";
import { sql } from "../store/sql.ts";
import { BEGINS_AT, createStage, type Stage } from "../../test/sim/stage.ts";
import type { EnginePorts } from "./ports.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const ended = (stage: Stage, runId: string) => async () => (await stage.tree(runId)).run.finishedAt !== null;
const attempts = async (stage: Stage, runId: string) => (await stage.tree(runId)).attempts;
const away = () => new AppError("unreachable", "store_unreachable", "the store does not answer");

describe("a run of a command", () => {
  test("goes from the queue to its end, and each place is passed in order", async () => {
    const places: string[] = [];
    const stage = createStage({ point: (name) => void places.push(name) });
    await stage.start();
    const runId = await stage.addRun("work");
    await stage.until(ended(stage, runId));
    const { run, steps } = await stage.tree(runId);
    expect(run).toMatchObject({ status: "succeeded", exitStatus: 0, error: null });
    expect(steps).toMatchObject([{ status: "succeeded", triesCounted: 1 }]);
    expect(await attempts(stage, runId)).toMatchObject([
      { status: "succeeded", endedBy: "self", counted: true, stdoutBytes: 200, reaped: 0, proof: "proved_empty" },
    ]);
    expect(places).toEqual(["claimed", "recorded", "spawned", "exited", "settled"]);
    const types = stage.rows<{ type: string }>(
      sql`select type from events where subject_id = ${runId} order by number`,
    );
    expect(types.map((row) => row.type)).toEqual([
      "run.queued",
      "attempt.reserved",
      "attempt.starting",
      "attempt.running",
      "attempt.succeeded",
      "run.succeeded",
    ]);
  });

  test("its processes are told who they are", async () => {
    const stage = createStage();
    await stage.start();
    await stage.addLoop({ kind: "once", at: BEGINS_AT + 5_000 }, "work");
    await stage.run(10_000);
    const [{ id: runId, attempt }] = stage.rows<{ id: string; attempt: string }>(
      sql`select r.id as id, a.id as attempt from runs r join attempts a on a.run_id = r.id`,
    ) as [{ id: string; attempt: string }];
    expect(stage.launches).toHaveLength(1);
    expect(stage.launches[0]).toMatchObject({
      folder: `${attempt}.1`,
      variables: {
        DROVER_RUN_ID: runId,
        DROVER_STEP: "main",
        DROVER_ATTEMPT: "1",
        DROVER_ATTEMPT_ID: attempt,
        DROVER_LOOP: "loop work",
        DROVER_SLOT: new Date(BEGINS_AT + 5_000).toISOString(),
        DROVER_DEPTH: "0",
        DROVER_SOCKET: "/run/drover.sock",
        DROVER_RUN_TOKEN: `token of ${runId} at 0`,
      },
    });
  });

  test("a short one costs a handful of calls of the store", async () => {
    const stage = createStage({ plans: { short: { durationMs: 20 } } });
    await stage.start();
    await stage.run(5_000);
    stage.calls.length = 0;
    const runId = await stage.addRun("short");
    await stage.until(ended(stage, runId));
    const writes = stage.calls.filter((name) => !["runs.hooksDue", "attempts.ofHost", "attempts.toEnd"].includes(name));
    expect(writes.filter((name) => name.startsWith("attempts."))).toEqual(["attempts.start", "attempts.settle"]);
  });

  test("what its end lets start is asked for right behind it, so that both share a commit", async () => {
    let asked = 0;
    const stage = createStage({
      commandCap: 1,
      plans: { short: { durationMs: 20 } },
      wrap: (ports) => ({
        ...ports,
        store: {
          ...ports.store,
          admission: { ...ports.store.admission, pass: (input) => (asked++, ports.store.admission.pass(input)) },
          attempts: {
            ...ports.store.attempts,
            // Answers when a pass has been asked for: a commit takes time, and nobody waits for one to ask for the next.
            async settle(input) {
              const before = asked;
              const answer = await ports.store.attempts.settle(input);
              for (let turns = 0; asked === before && turns < 100; turns++) await Promise.resolve();
              expect(asked).toBeGreaterThan(before);
              return answer;
            },
          },
        },
      }),
    });
    await stage.start();
    const runs = [await stage.addRun("short"), await stage.addRun("short")];
    for (const runId of runs) await stage.until(ended(stage, runId));
    expect(stage.log.filter(({ level }) => level === "error")).toEqual([]);
  });

  test("where others share the store, which may look first, it is asked for once the end is stored", async () => {
    const stage = createStage({
      commandCap: 1,
      sweepMs: 60_000,
      plans: { short: { durationMs: 20 } },
      wrap: (ports) => ({
        ...ports,
        store: {
          ...ports.store,
          attempts: {
            ...ports.store.attempts,
            // Whatever is asked for meanwhile, on other connections, comes first.
            async settle(input) {
              for (let turns = 0; turns < 100; turns++) await Promise.resolve();
              return ports.store.attempts.settle(input);
            },
          },
        },
      }),
    });
    await stage.start();
    await stage.run(5_000);
    const runs = [await stage.addRun("short"), await stage.addRun("short")];
    for (const runId of runs) await stage.until(ended(stage, runId), 5_000);
  });

  test("what cannot be prepared never starts and says why", async () => {
    const stage = createStage({
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          prepare: async () => {
            throw new AppError("invalid", "secret_unresolved", "the secret TOKEN has no value: env:TOKEN is not set");
          },
        },
      }),
    });
    await stage.start();
    const runId = await stage.addRun("work", { attempts: 3 });
    await stage.until(ended(stage, runId));
    expect((await stage.tree(runId)).run).toMatchObject({
      status: "failed",
      error: { class: "env_invalid", message: "the secret TOKEN has no value: env:TOKEN is not set" },
    });
    expect(stage.starts.size).toBe(0);
  });

  /** A short run that ends while another one is being prepared for `takesMs`. */
  async function endsDuringAStart(takesMs: number) {
    const stage = createStage({
      plans: { short: { durationMs: 1_000 } },
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          async prepare(launch) {
            if (launch.target.kind === "command" && launch.target.argv.includes("slow"))
              await ports.clock.sleep(takesMs);
            return ports.spawner.prepare(launch);
          },
        },
      }),
    });
    await stage.start();
    const short = await stage.addRun("short");
    await stage.until(async () => stage.starts.size === 1);
    await stage.run(900);
    const slow = await stage.addRun("slow");
    await stage.until(ended(stage, short), 10_000);
    const at = async (runId: string) => (await attempts(stage, runId))[0];
    return { short: await at(short), slow: await at(slow), limit: stage.limits.startsFirstMs };
  }

  test("that has ended lets one that is being started go first, and it ended when it ended", async () => {
    const { short, slow } = await endsDuringAStart(300);
    expect(slow?.status).not.toBe("reserved");
    expect((short?.finishedAt ?? 0) - (short?.startedAt ?? 0)).toBeLessThan(1_100);
  });

  test("that has ended waits for a start that takes long no longer than the limit", async () => {
    const { short, slow, limit } = await endsDuringAStart(HOUR);
    expect(slow?.status).toBe("reserved");
    expect(short?.status).toBe("succeeded");
    expect(limit).toBe(500);
  });

  test("success needs what was expected", async () => {
    const stage = createStage({ plans: { checked: { unmet: "no output was written" } } });
    await stage.start();
    const runId = await stage.addRun("checked");
    await stage.until(ended(stage, runId));
    expect((await stage.tree(runId)).run).toMatchObject({ status: "failed", error: { class: "check_failed" } });
  });

  test("what it leaves behind is ended and counted", async () => {
    const stage = createStage({ plans: { tree: { leaves: 3 } } });
    await stage.start();
    const runId = await stage.addRun("tree");
    await stage.until(ended(stage, runId));
    expect(await attempts(stage, runId)).toMatchObject([{ status: "succeeded", reaped: 3 }]);
    expect(stage.machine.liveProcesses()).toBe(0);
  });
});

describe("rest", () => {
  test("a wake-up with nothing due asks the store nothing", async () => {
    const stage = createStage();
    await stage.start();
    await stage.addLoop({ kind: "interval", everyMs: 24 * HOUR, anchorAt: 0 }, "work");
    await stage.run(10_000);
    stage.calls.length = 0;
    await stage.run(HOUR - MINUTE);
    expect(stage.calls).toEqual([]);
  });

  test("a live attempt is looked at, and the store still asked nothing", async () => {
    const stage = createStage({ plans: { long: { durationMs: 10 * HOUR } } });
    await stage.start();
    await stage.addRun("long");
    await stage.run(10_000);
    stage.calls.length = 0;
    await stage.run(30 * MINUTE);
    expect(stage.calls).toEqual([]);
  });
});

describe("time limits", () => {
  const plans = { hang: { durationMs: 100 * HOUR }, stubborn: { durationMs: 100 * HOUR, ignoresTerm: true } };

  test("a limit is kept to the second, and so is the grace", async () => {
    const stage = createStage({ plans });
    await stage.start();
    const runId = await stage.addRun("stubborn", { timeoutMs: 30_000, graceMs: 5_000 });
    await stage.until(ended(stage, runId), 2 * MINUTE);
    const { run } = await stage.tree(runId);
    expect(run).toMatchObject({
      status: "timed_out",
      error: { class: "timeout", message: "ran longer than its limit of 30 s" },
    });
    expect(stage.time.now).toBeLessThan(30_000 + 5_000 + 2_000);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "timed_out", endedBy: "timeout", exitStatus: 137 }]);
    expect(stage.machine.liveProcesses()).toBe(0);
  });

  test("B-084 waiting for a place uses up nothing of the limit", async () => {
    const stage = createStage({ plans: { long: { durationMs: MINUTE }, mid: { durationMs: 20_000 } }, commandCap: 1 });
    await stage.start();
    await stage.addRun("long");
    const runId = await stage.addRun("mid", { timeoutMs: 30_000 });
    await stage.until(ended(stage, runId), 5 * MINUTE);
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
  });

  test("one that writes nothing reaches its idle limit, counted from the last line", async () => {
    const stage = createStage({ plans: { quiet: { durationMs: HOUR, printsForMs: 10_000 } } });
    await stage.start();
    const runId = await stage.addRun("quiet", { idleTimeoutMs: 5_000, graceMs: 0 });
    await stage.until(ended(stage, runId), 2 * MINUTE);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "timed_out", error: { class: "idle_timeout" } });
    expect(stage.time.now).toBeGreaterThan(15_000);
    expect(stage.time.now).toBeLessThan(17_000);
  });

  test("a suspended host and a step of the clock time nothing out", async () => {
    const stage = createStage({ plans: { slow: { durationMs: 50_000, printEveryMs: 4_000 } } });
    await stage.start();
    const runId = await stage.addRun("slow", { timeoutMs: MINUTE, idleTimeoutMs: 10_000 });
    await stage.run(20_000);
    stage.host.suspend(3 * HOUR);
    await stage.run(3 * HOUR + 5_000);
    stage.host.step(HOUR);
    await stage.until(ended(stage, runId), 5 * MINUTE);
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
  });

  test("a stopped daemon times nothing out that printed or ended meanwhile", async () => {
    const stage = createStage({
      plans: { prints: { durationMs: 10 * MINUTE, printEveryMs: 1_000 }, short: { durationMs: 30_000 } },
    });
    const { context } = await stage.start();
    const printing = await stage.addRun("prints", { idleTimeoutMs: 20_000 });
    const short = await stage.addRun("short", { timeoutMs: 40_000 });
    await stage.run(10_000);
    context.stall(5 * MINUTE);
    await stage.until(ended(stage, printing), 20 * MINUTE);
    expect((await stage.tree(short)).run.status).toBe("succeeded");
    expect((await stage.tree(printing)).run.status).toBe("succeeded");
  });

  test("a pause of daemon and command together, which no clock shows, is not taken for silence", async () => {
    let frozen: ReturnType<EnginePorts["spawner"]["measure"]> | null = null;
    let last: ReturnType<EnginePorts["spawner"]["measure"]> | null = null;
    const stage = createStage({
      plans: { prints: { durationMs: 20 * MINUTE, printEveryMs: 500 } },
      wrap: (ports) => ({
        ...ports,
        // What a container's freezer does: nothing is written while it lasts, and nothing yet at the first look after it.
        spawner: { ...ports.spawner, measure: (folder) => frozen ?? (last = ports.spawner.measure(folder)) },
      }),
    });
    const { context } = await stage.start();
    const runId = await stage.addRun("prints", { idleTimeoutMs: 20_000 });
    await stage.run(10_050);
    frozen = last;
    context.stall(5 * MINUTE);
    await stage.run(5 * MINUTE + 200);
    frozen = null;
    await stage.until(ended(stage, runId), 30 * MINUTE);
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
  });

  test("a limit that passed while no daemon was there is kept at once, and says how late", async () => {
    const stage = createStage({ plans });
    const { context } = await stage.start();
    const runId = await stage.addRun("hang", { timeoutMs: MINUTE });
    await stage.run(5_000);
    context.die();
    await stage.run(10 * MINUTE);
    await stage.start();
    await stage.until(ended(stage, runId), 5_000);
    expect((await stage.tree(runId)).run).toMatchObject({
      status: "timed_out",
      error: { message: "ran longer than its limit of 60 s, noticed 545 s late" },
    });
  });
});

describe("a daemon that comes after another", () => {
  test("B-080 adopts what lives, settles what ended, and calls lost what nobody knows", async () => {
    const stage = createStage({
      plans: {
        lives: { durationMs: HOUR },
        ends: { durationMs: 20_000, exit: 3 },
        dies: { durationMs: HOUR, shimDies: "while_running" },
      },
    });
    const { context } = await stage.start();
    const [lives, ends, dies] = [
      await stage.addRun("lives"),
      await stage.addRun("ends"),
      await stage.addRun("dies", { onLost: "fail" }),
    ];
    await stage.run(1_000);
    context.die();
    await stage.run(MINUTE);
    await stage.start();
    await stage.run(1_000);
    expect(await attempts(stage, lives)).toMatchObject([{ status: "running", adopted: true, token: 2 }]);
    expect((await stage.tree(ends)).run).toMatchObject({ status: "failed", exitStatus: 3 });
    expect((await stage.tree(dies)).run).toMatchObject({ status: "failed", error: { class: "lost" } });
    await stage.until(ended(stage, lives), 2 * HOUR);
    expect((await stage.tree(lives)).run.status).toBe("succeeded");
    expect([...stage.starts.values()]).toEqual([1, 1, 1]);
    expect(stage.machine.liveProcesses()).toBe(0);
  });

  test.each(["claimed", "recorded", "spawned", "exited", "settled"] as const)(
    "after a death at `%s` the work is done once",
    async (name) => {
      let killed = false;
      let kill: () => void = () => {};
      const stage = createStage({
        point(at) {
          if (at !== name || killed) return undefined;
          killed = true;
          kill();
          return new Promise<void>(() => {});
        },
      });
      const { context } = await stage.start();
      kill = context.die;
      const runId = await stage.addRun("work", { attempts: 1 });
      await stage.run(5_000);
      expect(killed).toBe(true);
      await stage.start();
      await stage.until(ended(stage, runId), 5 * MINUTE);
      expect((await stage.tree(runId)).run.status).toBe("succeeded");
      expect([...stage.starts.values()].reduce((sum, count) => sum + count, 0)).toBe(1);
      expect((await attempts(stage, runId)).filter((attempt) => attempt.counted)).toHaveLength(1);
    },
  );

  test("after a reboot what had not ended is lost, and its retry runs", async () => {
    const stage = createStage({ plans: { long: { durationMs: MINUTE } } });
    const { context } = await stage.start();
    const runId = await stage.addRun("long", { attempts: 2, backoffMs: 1_000 });
    await stage.run(5_000);
    context.die();
    stage.machine.reboot(false);
    await stage.run(20_000);
    await stage.start();
    await stage.until(ended(stage, runId), 10 * MINUTE);
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
    expect(await attempts(stage, runId)).toMatchObject([
      { status: "lost", message: "the host was restarted before its end was recorded" },
      { status: "succeeded" },
    ]);
  });

  test("five hundred live attempts are adopted within a second of work", async () => {
    const stage = createStage({ plans: { long: { durationMs: HOUR } }, commandCap: 500 });
    const { context } = await stage.start();
    for (let i = 0; i < 500; i++) await stage.addRun("long");
    await stage.run(20_000);
    expect(stage.starts.size).toBe(500);
    context.die();
    stage.calls.length = 0;
    await stage.start();
    const count = (name: string) => stage.calls.filter((call) => call === name).length;
    expect([count("attempts.ofHost"), count("attempts.adopt"), count("attempts.settle")]).toEqual([1, 500, 0]);
    const [row] = stage.rows<{ n: number }>(
      sql`select count(*) as n from attempts where adopted = 1 and status = 'running'`,
    );
    expect(row?.n).toBe(500);
  });

  test("B-051 schedules wait until everything is recovered", async () => {
    const stage = createStage({
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          async judge(request) {
            await ports.clock.sleep(3_000);
            return ports.spawner.judge(request);
          },
        },
      }),
      plans: { long: { durationMs: HOUR } },
    });
    const { context } = await stage.start();
    await stage.addRun("long");
    await stage.run(10_000);
    context.die();
    stage.calls.length = 0;
    await stage.start();
    expect(stage.calls.indexOf("attempts.adopt")).toBeGreaterThan(0);
    expect(stage.calls.indexOf("loops.planDue")).toBeGreaterThan(stage.calls.indexOf("attempts.adopt"));
  });
});

describe("who is not the owner any more", () => {
  test("B-062 a daemon that was replaced writes nothing and leaves the processes to its successor", async () => {
    const stage = createStage({ plans: { long: { durationMs: MINUTE } } });
    const old = await stage.start();
    const runId = await stage.addRun("long");
    await stage.run(5_000);
    old.context.stall(10_000);
    await stage.run(1_000);
    await stage.start();
    await stage.until(ended(stage, runId), 5 * MINUTE);
    const { run } = await stage.tree(runId);
    expect(run.status).toBe("succeeded");
    expect(await attempts(stage, runId)).toMatchObject([{ status: "succeeded", token: 2, exitStatus: 0 }]);
    let gone = false;
    void old.engine.superseded().then(() => (gone = true));
    await stage.run(MINUTE);
    expect(gone).toBe(true);
  });

  test("one that is replaced while it recovers has started, is superseded, and that is no fault", async () => {
    const stage = createStage({
      wrap: (ports) => ({
        ...ports,
        startHeartbeat(request) {
          // Its successor has joined before its first renewal.
          request.onAnswer({ superseded: true, lost: [] });
          return ports.startHeartbeat(request);
        },
      }),
    });
    const { engine } = await stage.start();
    let gone = false;
    void engine.superseded().then(() => (gone = true));
    await stage.run(1);
    expect(gone).toBe(true);
    expect(stage.log.map((line) => line.event)).not.toContain("bug");
  });

  test("one that notices no gap learns it from its first refused write, and ends nothing of its successor's", async () => {
    let stall: () => void = () => {};
    const stage = createStage({
      plans: { long: { durationMs: MINUTE } },
      point: (name) => (name === "spawned" ? stall() : undefined),
    });
    const old = await stage.start();
    stall = () => old.context.stall(1_000);
    const runId = await stage.addRun("long");
    await stage.run(50);
    stall = () => {};
    await stage.start();
    expect(await attempts(stage, runId)).toMatchObject([{ adopted: true, token: 2 }]);
    await stage.until(ended(stage, runId), 5 * MINUTE);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "succeeded", exitStatus: 0 });
    expect(stage.log.filter((line) => line.event === "superseded")).toHaveLength(1);
  });

  test("an attempt whose token was taken is ended here and settled by nobody here", async () => {
    const stage = createStage({ plans: { long: { durationMs: HOUR } }, sweepMs: MINUTE });
    await stage.start();
    const runId = await stage.addRun("long", { onLost: "fail" });
    await stage.run(5_000);
    // As another host's takeover does: the token is raised and the attempt is over.
    stage.rows(sql`update steps set token = token + 1 where run_id = ${runId}`);
    stage.rows(sql`update attempts set status = 'lost', finished_at = 1 where run_id = ${runId}`);
    stage.calls.length = 0;
    await stage.run(2 * MINUTE);
    expect(stage.machine.liveProcesses()).toBe(0);
    expect(stage.calls).not.toContain("attempts.settle");
    expect(stage.log.filter((line) => line.event === "fenced")).toHaveLength(1);
  });

  test.each([
    ["long after its lease", HOUR],
    ["while its lease still holds, renewed as it woke (simulator, seed 25)", 1_000],
  ])("what was taken over while no daemon was here is ended by the next one, %s", async (_, awayMs) => {
    const stage = createStage({ plans: { long: { durationMs: 10 * HOUR } }, sweepMs: MINUTE });
    const { context } = await stage.start();
    const runId = await stage.addRun("long", { onLost: "fail" });
    await stage.run(5_000);
    context.die();
    stage.rows(sql`update steps set token = token + 1 where run_id = ${runId}`);
    stage.rows(sql`update attempts set status = 'lost', finished_at = 1 where run_id = ${runId}`);
    await stage.run(awayMs);
    expect(stage.machine.liveProcesses()).toBe(2);
    await stage.start();
    expect(stage.machine.liveProcesses()).toBe(0);
    expect(stage.log.filter((line) => line.event === "stray_ended")).toHaveLength(1);
  });

  test("B-061 work that outlasts many leases is delivered once", async () => {
    const stage = createStage({ plans: { long: { durationMs: 22 * MINUTE } } });
    await stage.start();
    const runId = await stage.addRun("long", { attempts: 3 });
    const leases = new Set<number>();
    for (let looks = 0; looks < 10; looks++) {
      await stage.run(2 * MINUTE);
      const [host] = await stage.store.hosts.list({});
      expect((host?.leaseUntil ?? 0) - stage.host.now()).toBeGreaterThan(0);
      leases.add(host?.leaseUntil ?? 0);
    }
    expect(leases.size).toBe(10);
    await stage.until(ended(stage, runId), HOUR);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "succeeded", number: 1, token: 1 }]);
    expect([...stage.starts.values()]).toEqual([1]);
  });

  test("B-083 places of those that died without a word are free at once, and meanwhile it is said who holds them", async () => {
    const stage = createStage({
      commandCap: 8,
      plans: { dies: { durationMs: HOUR, shimDies: "while_running" }, next: { durationMs: 20_000 } },
    });
    await stage.start();
    for (let i = 0; i < 8; i++) await stage.addRun("dies", { onLost: "fail" });
    const waiting: string[] = [];
    for (let i = 0; i < 8; i++) waiting.push(await stage.addRun("next"));
    await stage.run(1_500);
    const cap = { resource: `host:${stage.hostId}:command`, limit: 8 };
    expect(await stage.store.admission.usage({})).toContainEqual({ ...cap, used: 8 });
    const step = (await stage.tree(waiting[0] ?? "")).steps[0];
    expect((await stage.store.admission.explain({ stepId: step?.id ?? "" }))?.refusal).toMatchObject({
      used: 8,
      limit: 8,
    });
    await stage.run(2 * stage.limits.watchMs);
    for (const runId of waiting) expect((await stage.tree(runId)).run.status).toBe("running");
    expect(await stage.store.admission.usage({})).toContainEqual({ ...cap, used: 8 });
    for (const runId of waiting) await stage.until(ended(stage, runId), 2 * MINUTE);
    expect(await stage.store.admission.usage({})).toContainEqual({ ...cap, used: 0 });
    expect(stage.machine.liveProcesses()).toBe(0);
  });

  test("B-060 an ended lease alone ends nothing on its own host", async () => {
    const stage = createStage({
      plans: { long: { durationMs: 10 * MINUTE } },
      limits: { leaseMs: 10_000, renewMs: 100 * HOUR },
    });
    await stage.start();
    const runId = await stage.addRun("long");
    await stage.until(ended(stage, runId), HOUR);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "succeeded", number: 1 }]);
  });
});

describe("cancelling", () => {
  test("B-010 ends the tree first, then the run", async () => {
    const stage = createStage({ plans: { stubborn: { durationMs: HOUR, ignoresTerm: true } } });
    await stage.start();
    const runId = await stage.addRun("stubborn", { graceMs: 5_000 });
    await stage.run(5_000);
    expect(await stage.store.runs.cancel({ runId, by: "person", reason: "not needed", limits: stage.limits })).toBe(
      "requested",
    );
    await stage.run(2_000);
    expect((await stage.tree(runId)).run.status).toBe("running");
    expect(await attempts(stage, runId)).toMatchObject([{ endedBy: "cancel", status: "running" }]);
    await stage.run(5_000);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "cancelled", reason: "not needed" });
    expect(stage.machine.liveProcesses()).toBe(0);
  });

  test("one that was asked for and has no ticket yet never starts", async () => {
    const stage = createStage();
    await stage.start();
    stage.machine.stickResident(3_000);
    const runId = await stage.addRun("work");
    await stage.run(500);
    await stage.store.runs.cancel({ runId, by: "person", reason: "not needed", limits: stage.limits });
    await stage.run(10_000);
    expect((await stage.tree(runId)).run.status).toBe("cancelled");
    expect(stage.starts.size).toBe(0);
  });

  test("a cancel that comes too late changes nothing", async () => {
    const stage = createStage({
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          // It ends by itself between the look and the signal.
          async end(request) {
            await ports.clock.sleep(30_000);
            return ports.spawner.end(request);
          },
        },
      }),
      plans: { short: { durationMs: 10_000 } },
    });
    await stage.start();
    const runId = await stage.addRun("short");
    await stage.run(5_000);
    await stage.store.runs.cancel({ runId, by: "person", reason: "not needed", limits: stage.limits });
    await stage.until(ended(stage, runId), 2 * MINUTE);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "succeeded", exitStatus: 0 });
  });
});

describe("the spawner", () => {
  test("dies: what was asked for without a ticket is decided at once and tried again, uncounted", async () => {
    const stage = createStage();
    await stage.start();
    stage.machine.stickResident(60_000);
    const runId = await stage.addRun("work");
    await stage.run(200);
    stage.machine.killResident();
    await stage.run(300);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "lost", counted: false }]);
    await stage.until(ended(stage, runId));
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
    expect([...stage.starts.values()]).toEqual([1]);
  });

  test("is stuck: after five seconds the tombstone decides, and the late request starts nothing", async () => {
    const stage = createStage({ limits: { uncountedBackoffMs: MINUTE } });
    await stage.start();
    stage.machine.stickResident(20_000);
    const runId = await stage.addRun("work");
    await stage.run(6_000);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "lost", message: "no ticket was taken" }]);
    await stage.run(30_000);
    expect(stage.starts.size).toBe(0);
    await stage.until(ended(stage, runId), 5 * MINUTE);
    expect([...stage.starts.values()]).toEqual([1]);
  });
});

describe("the store", () => {
  /** Fails those calls while it is away. */
  const outage = () => {
    const state = { away: false, tried: 0 };
    const wrap = (ports: EnginePorts): EnginePorts => ({
      ...ports,
      store: Object.fromEntries(
        Object.entries(ports.store).map(([noun, verbs]) => [
          noun,
          Object.fromEntries(
            Object.entries(verbs as Record<string, (input: unknown) => Promise<unknown>>).map(([verb, call]) => [
              verb,
              async (input: unknown) => {
                if (!state.away) return call(input);
                state.tried++;
                throw away();
              },
            ]),
          ),
        ]),
      ) as unknown as EnginePorts["store"],
    });
    return { state, wrap };
  };

  test("B-076 is away when a run ends: nothing is lost, and it is settled when it is back", async () => {
    const { state, wrap } = outage();
    const stage = createStage({ wrap, plans: { short: { durationMs: 20_000, exit: 4 } } });
    await stage.start();
    const runId = await stage.addRun("short");
    await stage.run(10_000);
    state.away = true;
    await stage.run(10 * MINUTE);
    // It is tried again, with pauses.
    expect(state.tried).toBeGreaterThan(20);
    expect(state.tried).toBeLessThan(400);
    expect((await stage.tree(runId)).run.status).toBe("running");
    state.away = false;
    await stage.until(ended(stage, runId), MINUTE);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "failed", exitStatus: 4 });
    const said = stage.log.filter((line) => line.event === "store_away" || line.event === "store_back");
    expect(said.map((line) => line.event)).toEqual(["store_away", "store_back"]);
  });

  test("B-070 is locked while twenty runs start: they start later, none by halves", async () => {
    const { state, wrap } = outage();
    const stage = createStage({ wrap, commandCap: 20 });
    await stage.start();
    const runs: string[] = [];
    for (let i = 0; i < 20; i++) runs.push(await stage.addRun("work"));
    state.away = true;
    await stage.run(MINUTE);
    state.away = false;
    for (const runId of runs) await stage.until(ended(stage, runId), 2 * MINUTE);
    expect([...stage.starts.values()].every((count) => count === 1)).toBe(true);
    expect(stage.log.filter((line) => line.event === "bug")).toEqual([]);
  });

  test("a time limit is kept although the store is away", async () => {
    const { state, wrap } = outage();
    const stage = createStage({ wrap, plans: { hang: { durationMs: 10 * HOUR } } });
    await stage.start();
    const runId = await stage.addRun("hang", { timeoutMs: 30_000 });
    await stage.run(10_000);
    state.away = true;
    await stage.run(MINUTE);
    expect(stage.machine.liveProcesses()).toBe(0);
    state.away = false;
    await stage.until(ended(stage, runId), MINUTE);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "timed_out", error: { class: "timeout" } });
  });

  test("a bug ends a tick, is told and counted, and the engine goes on", async () => {
    let broken = true;
    const stage = createStage({
      wrap: (ports) => ({
        ...ports,
        store: {
          ...ports.store,
          steps: {
            ...ports.store.steps,
            async wake(input) {
              if (broken) throw new TypeError("undefined is not a function");
              return ports.store.steps.wake(input);
            },
          },
        },
      }),
    });
    const { engine } = await stage.start();
    const runId = await stage.addRun("work");
    await stage.until(ended(stage, runId));
    expect(engine.state().bugs).toBeGreaterThan(0);
    expect(stage.log.find((line) => line.event === "bug")).toMatchObject({
      level: "error",
      data: { what: "timers", message: "undefined is not a function" },
    });
    broken = false;
  });
});

describe("B-075 a disk that is too full", () => {
  test("stops starts, not the daemon, and says so; starts go on when there is room", async () => {
    const stage = createStage({ plans: { long: { durationMs: 20_000 } } });
    await stage.start();
    const running = await stage.addRun("long");
    await stage.run(2_000);
    stage.machine.freeBytes = 1_000;
    const waiting = await stage.addRun("work");
    await stage.until(ended(stage, running), MINUTE);
    expect((await stage.tree(running)).run.status).toBe("succeeded");
    expect((await stage.tree(waiting)).run.status).toBe("queued");
    expect(await stage.store.hosts.list({})).toMatchObject([{ status: "disk" }]);
    expect(stage.log.filter((line) => line.event === "disk_short")).toHaveLength(1);
    stage.machine.freeBytes = 2 * stage.limits.minFreeBytes;
    await stage.until(ended(stage, waiting), MINUTE);
    expect(await stage.store.hosts.list({})).toMatchObject([{ status: "up" }]);
  });

  test("so full that the store cannot even be told: looks are paced, and what was missed is explained by the disk", async () => {
    let full = false;
    const away = new AppError("unreachable", "disk_full", "no space is left for the store");
    const stage = createStage({
      wrap: (ports) => {
        const refuse = <Verb extends (input: never) => Promise<unknown>>(verb: Verb): Verb =>
          ((input: never) => (full ? Promise.reject(away) : verb(input))) as Verb;
        const { store } = ports;
        return {
          ...ports,
          files: { ...ports.files, freeBytes: async () => (full ? 0 : 2 * stage.limits.minFreeBytes) },
          store: {
            ...store,
            hosts: { ...store.hosts, report: refuse(store.hosts.report), renew: refuse(store.hosts.renew) },
            loops: { ...store.loops, planDue: refuse(store.loops.planDue) },
            admission: { ...store.admission, pass: refuse(store.admission.pass) },
          },
        };
      },
    });
    await stage.start();
    const loop = await stage.addLoop({ kind: "interval", everyMs: 10_000, anchorAt: BEGINS_AT }, "work", {
      catchUp: "none",
    });
    await stage.run(15_000);
    full = true;
    await stage.run(MINUTE);
    full = false;
    await stage.run(MINUTE);
    const back = stage.log.find((line) => line.event === "store_back");
    expect(back?.data["failures"]).toBeLessThan(60);
    expect(stage.log.filter((line) => line.event === "disk_short")).toHaveLength(1);
    expect(await stage.store.hosts.list({})).toMatchObject([{ status: "up" }]);
    const slots = await stage.store.slots.list({ loopId: loop.id, limit: 50, cursor: null });
    expect(slots.items.filter((slot) => slot.outcome === "missed")).toMatchObject([{ reason: "disk" }]);
  });

  test("is met before the ticket: it uses up no try and waits", async () => {
    let full = true;
    const stage = createStage({
      wrap: (ports) => ({
        ...ports,
        spawner: {
          ...ports.spawner,
          async prepare(launch) {
            if (full) throw new AppError("unreachable", "no_space", "the disk is full");
            return ports.spawner.prepare(launch);
          },
        },
      }),
    });
    await stage.start();
    const runId = await stage.addRun("work");
    await stage.run(3_000);
    expect((await stage.tree(runId)).run).toMatchObject({ status: "waiting", reason: "disk" });
    full = false;
    await stage.until(ended(stage, runId), 10 * MINUTE);
    expect((await stage.tree(runId)).steps).toMatchObject([{ status: "succeeded", triesCounted: 1 }]);
  });
});

describe("going down", () => {
  const plans = { long: { durationMs: 10 * MINUTE } };

  test("what runs goes on, and the next daemon has its end", async () => {
    const stage = createStage({ plans });
    const { engine, context } = await stage.start();
    const runId = await stage.addRun("long");
    await stage.run(5_000);
    const stopping = engine.stop({ drainMs: 0, stopRuns: false, backBy: BEGINS_AT + HOUR });
    await stage.run(1_000);
    await stopping;
    context.die();
    expect(await stage.store.hosts.list({})).toMatchObject([{ status: "down", backBy: BEGINS_AT + HOUR }]);
    expect(stage.machine.liveProcesses()).toBe(2);
    await stage.run(MINUTE);
    await stage.start();
    await stage.until(ended(stage, runId), HOUR);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "succeeded", adopted: true }]);
  });

  test("B-082 what is stopped on the way down goes back to the queue and uses up no try", async () => {
    const stage = createStage({ plans });
    const { engine, context } = await stage.start();
    const runId = await stage.addRun("long", { attempts: 1 });
    await stage.run(5_000);
    const stopping = engine.stop({ drainMs: 0, stopRuns: true });
    await stage.run(5_000);
    await stopping;
    context.die();
    expect(stage.machine.liveProcesses()).toBe(0);
    expect(await attempts(stage, runId)).toMatchObject([{ status: "cancelled", endedBy: "stop", counted: false }]);
    expect((await stage.tree(runId)).steps).toMatchObject([{ status: "ready", triesCounted: 0 }]);
    await stage.start();
    await stage.until(ended(stage, runId), HOUR);
    expect((await stage.tree(runId)).run.status).toBe("succeeded");
  });

  test("a drain waits for what runs and starts nothing more", async () => {
    const stage = createStage({ plans: { mid: { durationMs: 10_000 } }, commandCap: 1 });
    const { engine } = await stage.start();
    const running = await stage.addRun("mid");
    await stage.run(2_000);
    const queued = await stage.addRun("mid");
    let stopped = 0;
    void engine.stop({ drainMs: MINUTE, stopRuns: false }).then(() => (stopped = stage.time.now));
    await stage.run(2 * MINUTE);
    expect(stopped).toBeGreaterThan(10_000);
    expect(stopped).toBeLessThan(12_000);
    expect((await stage.tree(running)).run.status).toBe("succeeded");
    expect((await stage.tree(queued)).run.status).toBe("queued");
  });

  test("until idle: no schedule fires, and the end comes when nothing is left", async () => {
    const stage = createStage({ plans: { mid: { durationMs: 5_000, exit: 1 } }, untilIdle: true });
    await stage.addLoop({ kind: "interval", everyMs: 2_000, anchorAt: 0 }, "work");
    const runId = await stage.addRun("mid", { attempts: 2, backoffMs: 1_000, onFinish: "true" });
    const { engine } = await stage.start();
    let idle = false;
    void engine.idle().then(() => (idle = true));
    await stage.until(() => idle, MINUTE);
    expect((await stage.tree(runId)).run.status).toBe("failed");
    expect(stage.rows(sql`select * from slots`)).toEqual([]);
    expect(stage.rows(sql`select * from runs where hooks_due is not null`)).toEqual([]);
  });
});

describe("hooks and the janitor", () => {
  test("B-009 a hook that hangs keeps the other one from nobody", async () => {
    const began: string[] = [];
    const stage = createStage({
      plans: { bad: { exit: 1 } },
      wrap: (ports) => ({
        ...ports,
        notifier: {
          async hook(hook) {
            began.push(hook.name);
            if (hook.name === "on_finish") await ports.clock.sleep(hook.timeoutMs);
            return { exit: hook.name === "on_finish" ? null : 0, tail: "" };
          },
        },
      }),
    });
    await stage.start();
    const runId = await stage.addRun("bad", { onFinish: "sleep 1000", onFailure: "alarm" });
    await stage.until(ended(stage, runId), MINUTE);
    await stage.run(1_000);
    expect(began).toEqual(["on_finish", "on_failure"]);
    await stage.run(2 * MINUTE);
    expect(stage.log.filter((line) => line.event === "hook_failed")).toMatchObject([
      { data: { hook: "on_finish", exit: null } },
    ]);
  });

  test("B-009 a hook delays nothing, and is told how the run ended", async () => {
    const hooks: { name: string; input: string }[] = [];
    const stage = createStage({
      wrap: (ports) => ({
        ...ports,
        notifier: {
          async hook(hook) {
            hooks.push({ name: hook.name, input: hook.input });
            await ports.clock.sleep(MINUTE);
            return { exit: null, tail: "" };
          },
        },
      }),
      plans: { bad: { exit: 3 } },
    });
    await stage.start();
    const runId = await stage.addRun("bad", { onFinish: "notify", onFailure: "page" });
    await stage.until(ended(stage, runId), 5_000);
    await stage.run(3 * MINUTE);
    expect(hooks.map((hook) => hook.name)).toEqual(["on_finish", "on_failure"]);
    expect(JSON.parse(hooks[0]?.input ?? "")).toMatchObject({
      id: runId,
      status: "failed",
      exitCode: 3,
      error: { class: "exit" },
    });
    const told = stage.rows<{ data: string }>(sql`select data from events where type = 'run.hooks'`);
    expect(told).toHaveLength(1);
    expect(told[0]?.data).toContain("on_finish reached its time limit");
  });

  test("folders go when their time is over, not before", async () => {
    const stage = createStage({ limits: { logRetentionMs: HOUR, janitorMs: 10 * MINUTE } });
    const { context } = await stage.start();
    const files = stage.machine.filesFor(context);
    const runId = await stage.addRun("work");
    await stage.until(ended(stage, runId));
    await stage.run(50 * MINUTE);
    expect(await files.folders()).toHaveLength(1);
    await stage.run(30 * MINUTE);
    expect(await files.folders()).toEqual([]);
  });
});

describe("retention", () => {
  test("ended runs go when their time is over, the last of a loop stay, and every instant keeps its outcome", async () => {
    const stage = createStage({
      limits: {
        retentionMs: HOUR,
        retentionRuns: 3,
        retentionBatch: 2,
        retentionRoundMs: 10 * MINUTE,
        janitorMs: 10 * MINUTE,
      },
    });
    await stage.start();
    const { id: loopId } = await stage.addLoop({ kind: "interval", everyMs: 5 * MINUTE, anchorAt: 0 }, "work");
    const runId = await stage.addRun("work");
    await stage.until(ended(stage, runId));
    await stage.run(50 * MINUTE);
    const ids = () => stage.rows<{ id: string }>(sql`select id from runs order by id`).map(({ id }) => id);
    expect(ids()).toContain(runId);
    await stage.run(4 * HOUR);
    expect(ids()).not.toContain(runId);
    // One hour of runs, what one round takes, and what has come since the last round.
    expect(ids().length).toBeLessThan(20);
    await stage.store.loops.pause({ loopId, reason: null, limits: stage.limits });
    await stage.run(3 * HOUR);
    expect(ids()).toHaveLength(3);
    const [slots] = stage.rows<{ n: number; rows: number }>(sql`select sum(count) as n, count(*) as rows from slots`);
    expect(Number(slots?.n)).toBeGreaterThan(55);
    expect(Number(slots?.rows)).toBeLessThanOrEqual(4);
  });
});

describe("instants that were noticed late", () => {
  const every = { kind: "interval", everyMs: MINUTE, anchorAt: 0 } as const;
  const slots = (stage: Stage) =>
    stage.rows<{ outcome: string; reason: string | null; count: number }>(
      sql`select outcome, reason, count from slots order by at`,
    );

  test("B-048 B-049 after a suspend the same is recorded as after a restart, with its cause", async () => {
    const asleep = createStage();
    await asleep.start();
    await asleep.addLoop(every, "work", { catchUp: "none" });
    await asleep.run(90_000);
    asleep.host.suspend(4 * MINUTE);
    await asleep.run(5 * MINUTE);
    expect(slots(asleep)).toContainEqual({ outcome: "missed", reason: "asleep", count: 3 });

    const down = createStage();
    const { context } = await down.start();
    await down.addLoop(every, "work", { catchUp: "none" });
    await down.run(90_000);
    context.die();
    await down.run(4 * MINUTE);
    await down.start();
    await down.run(MINUTE);
    expect(slots(down)).toContainEqual({ outcome: "missed", reason: "down", count: 3 });
  });

  test("B-053 a loop fires until its end, however far that is, and its end is an event with its reason", async () => {
    const DAY = 24 * HOUR;
    const stage = createStage({ limits: { renewMs: 12 * HOUR, leaseMs: DAY, longestSleepMs: HOUR } });
    await stage.start();
    const daily = { kind: "interval", everyMs: DAY, anchorAt: BEGINS_AT } as const;
    const forever = await stage.addLoop(daily, "work");
    const month = await stage.addLoop(daily, "other", { expiresAt: BEGINS_AT + 30 * DAY + HOUR });
    await stage.run(35 * DAY + HOUR);
    const outcomes = (loopId: string) =>
      stage.rows<{ outcome: string; n: number }>(
        sql`select outcome, sum(count) as n from slots where loop_id = ${loopId} group by outcome`,
      );
    expect(outcomes(forever.id)).toEqual([{ outcome: "succeeded", n: 35 }]);
    expect(outcomes(month.id)).toEqual([{ outcome: "succeeded", n: 30 }]);
    const told = stage.rows<{ type: string; data: string; created_at: number }>(
      sql`select type, data, created_at from events where subject_id = ${month.id} and type = 'loop.expired'`,
    );
    expect(told).toMatchObject([{ data: JSON.stringify({ reason: "its expiry date has come" }) }]);
    expect((told[0]?.created_at ?? 0) - (BEGINS_AT + 30 * DAY + HOUR)).toBeLessThan(MINUTE);
    expect(await stage.store.loops.get({ loopId: month.id })).toMatchObject({ status: "expired", nextAt: null });
  });

  test("a clock that is set forward is told as such", async () => {
    const stage = createStage();
    await stage.start();
    await stage.addLoop(every, "work", { catchUp: "none" });
    await stage.run(90_000);
    stage.host.step(HOUR);
    await stage.run(MINUTE);
    expect(slots(stage).find((slot) => slot.reason === "clock_step")?.count).toBeGreaterThan(50);
  });

  test("a loop's next runs are let in although they have to wait a little", async () => {
    const stage = createStage({ plans: { long: { durationMs: 150_000 } } });
    await stage.start();
    await stage.addLoop(every, "long", { overlap: "queue", jitterMs: 30_000 });
    await stage.run(10 * MINUTE);
    expect(stage.starts.size).toBeGreaterThanOrEqual(3);
  });
});
