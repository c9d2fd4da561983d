/** The engine: its actors put together. Everything it knows of the world comes through ports. */
import { isFinal, leftToRun } from "../core/run.ts";
import { worktreeOf } from "../core/target-parts.ts";
import { createAdmission } from "./admission.ts";
import { createCancels } from "./cancels.ts";
import { createHooks } from "./hooks.ts";
import { createHosts } from "./hosts.ts";
import { createJanitor } from "./janitor.ts";
import type { EngineOptions, EnginePorts, Heartbeat } from "./ports.ts";
import { endStrays, recover } from "./recovery.ts";
import { createRunner, type Runner } from "./runner.ts";
import { createScheduler, createTimers } from "./scheduler.ts";
import { createWake } from "./wake.ts";
import { createWatch } from "./watch.ts";
import { createWeather, Halted } from "./weather.ts";
import { createWorkflows } from "./workflows.ts";
import { createTidier } from "./worktrees.ts";

const goingDown = { by: "stop", inherited: false, message: "stopped on the way down" } as const;

/** What may have changed: `plan` loops, `run` there is another one, `admit` something may start, `end` something was cancelled, `hooks`, or `all`. */
export type Poke = "plan" | "run" | "admit" | "end" | "hooks" | "all";

export interface StopRequest {
  /** How long to wait for what runs. 0 does not wait. */
  readonly drainMs: number;
  /** Ends what still runs then; else it goes on without us. */
  readonly stopRuns: boolean;
  /** When a daemon will be there again: until then other hosts leave our work alone. */
  readonly backBy?: number | null;
}

export interface EngineState {
  readonly incarnation: number;
  /** Attempts at work here. */
  readonly attempts: number;
  /** Errors that were bugs. */
  readonly bugs: number;
  /** When the last wake-up was, by the awake clock. */
  readonly wokeAt: number;
}

export interface Engine {
  /** Something was changed in the store: look now. */
  poke(what: Poke): void;
  /** Takes no new work, then goes down. Resolves when nothing more is written by us. */
  stop(request: StopRequest): Promise<void>;
  /** Resolves when there is nothing left that a daemon could do; what only a person lets go on waits for the next one. Only with `untilIdle`. */
  idle(): Promise<void>;
  /** Resolves when another daemon has joined as this host: all that is left to do is to leave. */
  superseded(): Promise<void>;
  state(): EngineState;
}

/**
 * Joins as this host, recovers what an earlier daemon left, and begins to work.
 * Errors: those of `store.hosts.join`; later ones are waited out or told.
 */
export async function startEngine(ports: EnginePorts, options: EngineOptions): Promise<Engine> {
  const { clock, store, log, files } = ports;
  const { host, limits } = options;
  const { hostId } = host;
  /** A store that nobody shares does what is asked in one turn in that order; on a server what comes behind may look first. */
  const inOrder = options.sweepMs === null;
  const halted = new AbortController();
  const { incarnation } = await store.hosts.join(host);

  let stopping: Promise<void> | null = null;
  const failures = new Map<string, number>();
  let wokeAt = clock.awake();
  let heartbeat: Heartbeat | null = null;
  let tellSuperseded: () => void = () => {};
  const superseded = new Promise<void>((resolve) => (tellSuperseded = resolve));
  let tellIdle: () => void = () => {};
  const idle = new Promise<void>((resolve) => (tellIdle = resolve));

  const weather = createWeather({
    ...ports,
    limits,
    halted: halted.signal,
    onFull: () => admission.full(),
    onAway: (cause) => scheduler.explain(cause),
  });
  const wake = createWake({
    clock,
    limits,
    onWake() {
      wokeAt = clock.awake();
      heartbeat?.beat(runner.lives().length > 0);
    },
    onGap(cause, gap) {
      log("info", "woke_after_gap", { cause, ...gap });
      scheduler.explain(cause);
      admission.doubtLease();
      // The wall clock says something else now, or others had the time to act: everything is looked at.
      doubt();
    },
    onMishap(name, error) {
      const nth = (failures.get(name) ?? 0) + 1;
      failures.set(name, nth);
      return weather.mishap(name, error, nth);
    },
  });

  const runner: Runner = createRunner({
    ports,
    limits,
    socket: options.socket,
    hostId,
    incarnation,
    weather,
    watchWithin: (ms) => wake.within("watch", ms),
    onFull: () => admission.full(),
    onSuperseded: giveUp,
    onAnswered: () => wake.poke("admit"),
    onEmpty: () => wake.poke("idle"),
    onSettling() {
      if (inOrder) wake.poke("admit");
    },
    onSettled({ run: was, spec }, step, run) {
      if (!inOrder) wake.poke("admit");
      if (spec != null) wake.poke("judge");
      if (step === "waiting") wake.poke("timers");
      if (worktreeOf(was.target) !== "off") wake.poke("worktrees");
      if (run !== null && !isFinal(run)) return;
      // The end of a run may say when its loop is due again, and may let in the next one, which may have to wait a little.
      if (was.loopId !== null) wake.poke("plan", "timers");
      if (was.policy.onFinish !== null || was.policy.onFailure !== null) wake.poke("hooks");
      wake.poke("idle");
    },
  });
  const onRenewed = (answer: { readonly superseded: boolean; readonly lost: readonly string[] }) => {
    if (answer.superseded) giveUp();
    else runner.fence(answer.lost);
  };

  const scheduler = createScheduler({
    clock,
    store,
    limits,
    wakeAt: (instant) => wake.at("plan", instant),
    again: () => wake.poke("plan"),
    onRuns: () => wake.poke("timers", "judge", "admit", "cancels", "hooks"),
  });
  const timers = createTimers({
    clock,
    store,
    limits,
    wakeAt: (instant) => wake.at("timers", instant),
    again: () => wake.poke("timers"),
    onReady: () => wake.poke("judge", "admit", "idle"),
  });
  const workflows = createWorkflows({
    store,
    limits,
    log,
    hostId,
    again: () => wake.poke("judge"),
    onReady: () => wake.poke("admit"),
    onEnded: () => wake.poke("plan", "timers", "hooks", "worktrees", "idle"),
  });
  const admission = createAdmission({
    store,
    files,
    limits,
    log,
    hostId,
    incarnation,
    awake: clock.awake,
    take(assignment) {
      runner.take(assignment);
      if (stopping !== null) runner.end(assignment.attempt.id, goingDown);
    },
    again: () => wake.poke("admit"),
    within: (ms) => wake.within("admit", ms),
    heldFor: (ms) => wake.within("admit", ms),
    onRenewed,
  });
  const cancels = createCancels({ store, runner, hostId });
  const watch = createWatch({ clock, runner, within: (ms) => wake.within("watch", ms) });
  const hosts = createHosts({
    store,
    limits,
    runner,
    hostId,
    incarnation,
    shared: options.sweepMs !== null,
    onTaken: () => wake.poke("timers", "admit"),
  });
  const hooks = createHooks({
    store,
    notifier: ports.notifier,
    limits,
    weather,
    log,
    hostId,
    again: () => wake.poke("hooks"),
    onDone: () => wake.poke("idle"),
  });
  const janitor = createJanitor({
    clock,
    store,
    files,
    limits,
    runner,
    log,
    within: (ms) => wake.within("janitor", ms),
  });
  const tidier = createTidier({
    store,
    worktrees: ports.worktrees,
    limits,
    weather,
    log,
    hostId,
    again: () => wake.poke("worktrees"),
    onDone: () => wake.poke("idle"),
  });
  const sweep = {
    name: "sweep",
    async tick() {
      if (options.sweepMs === null) return;
      poke("all");
      wake.within("sweep", options.sweepMs);
    },
  };
  const idler = {
    name: "idle",
    async tick() {
      if (!options.untilIdle || runner.lives().length > 0 || hooks.count() > 0) return;
      const [counts, due] = await Promise.all([store.runs.counts({}), store.runs.hooksDue({ hostId, limit: 1 })]);
      if (leftToRun(counts) > 0 || due.length > 0) return;
      if (await tidier.isDone()) tellIdle();
    },
  };

  /** A failure is one in a row only until the next success, which tells that what failed may have been done all the same. */
  const counted = (actor: { readonly name: string; tick(): Promise<void> }) => ({
    name: actor.name,
    async tick() {
      await actor.tick();
      if (!failures.delete(actor.name)) return;
      weather.fine();
      doubt();
    },
  });
  // The order in which those that are due at once ask the store: what makes work ready comes before what lets it start.
  const actors = [
    cancels,
    ...(options.untilIdle ? [] : [scheduler]),
    timers,
    workflows,
    admission,
    hosts,
    hooks,
    tidier,
    janitor,
    sweep,
    idler,
  ];
  wake.add(counted(watch));

  function poke(what: Poke): void {
    switch (what) {
      case "plan":
        return wake.poke("plan");
      case "run":
        return wake.poke("judge", "admit", "idle");
      case "admit":
        return wake.poke("timers", "judge", "admit", "idle");
      case "end":
        return wake.poke("cancels", "hooks", "idle");
      case "hooks":
        return wake.poke("hooks");
      case "all":
        wake.poke("cancels", "plan", "timers", "judge", "admit", "hooks", "idle");
        // Alone, nobody but us hands out our attempts or takes them.
        if (options.sweepMs !== null) wake.poke("hosts");
    }
  }

  /** Anything may have happened meanwhile, or have been done without an answer. */
  function doubt(): void {
    poke("all");
    wake.poke("hosts");
  }

  /** Another daemon is this host now: what runs is in its hands. */
  function giveUp(): void {
    if (halted.signal.aborted) return;
    log("error", "superseded", { hostId, incarnation });
    halted.abort();
    for (const actor of [watch, ...actors]) wake.drop(actor.name);
    tellSuperseded();
  }

  ports.spawner.onBell(runner.bell);
  ports.spawner.onReplaced(runner.replaced);
  heartbeat = ports.startHeartbeat({
    hostId,
    incarnation,
    leaseMs: limits.leaseMs,
    everyMs: limits.renewMs,
    onAnswer: onRenewed,
  });
  // It serves only the watch until everything is recovered, but it beats, and it notices gaps.
  wake.run().catch((error: unknown) => weather.mishap("wake", error, 1));
  log("info", "engine_started", { hostId, incarnation });
  try {
    await recover({ store, limits, runner, weather, log, hostId, incarnation });
    if (options.sweepMs !== null) await endStrays({ ...ports, limits, weather, knows: runner.knows });
  } catch (error) {
    // Another daemon took this one's place meanwhile: `superseded` says so, and nothing failed.
    if (!(error instanceof Halted)) throw error;
  }
  if (!halted.signal.aborted) for (const actor of actors) wake.add(counted(actor));
  poke("all");
  wake.poke("watch", "sweep", "worktrees");
  wake.within("janitor", limits.watchMs);

  async function patiently(work: Promise<unknown>, ms: number): Promise<boolean> {
    const enough = new AbortController();
    const done = work.then(() => enough.abort("done"));
    const timedOut = await clock.sleep(ms, enough.signal);
    if (!timedOut) await done;
    return !timedOut;
  }

  async function stop({ drainMs, stopRuns, backBy = null }: StopRequest): Promise<void> {
    log("info", "engine_stopping", { drainMs, stopRuns, attempts: runner.lives().length });
    for (const name of ["plan", "judge", "admit", "hosts", "hooks", "worktrees", "janitor", "sweep", "idle"])
      wake.drop(name);
    // What has not been handed to the spawner goes back to the queue.
    for (const life of runner.lives()) if (life.phase === "reserved") runner.end(life.id, goingDown);
    const reported = weather.attempt("hosts.report", () =>
      store.hosts.report({ hostId, incarnation, status: "draining" }),
    );
    if (drainMs > 0) await patiently(runner.empty(), drainMs);
    if (stopRuns) {
      const graces = runner.lives().map((life) => life.assignment.run.policy.graceMs);
      for (const life of runner.lives()) runner.end(life.id, goingDown);
      await patiently(
        runner.empty(),
        Math.max(0, ...graces) + limits.endTries * limits.watchMs + limits.stopPatienceMs,
      );
    }
    await patiently(Promise.allSettled([runner.quiet(), reported]), limits.stopPatienceMs);
    await patiently(
      weather
        .attempt("hosts.leave", () => store.hosts.leave({ hostId, incarnation, backBy }))
        .catch((error: unknown) => {
          if (!(error instanceof Halted)) weather.mishap("hosts.leave", error, 1);
        }),
      limits.stopPatienceMs,
    );
    halted.abort();
    await patiently(wake.stop(), limits.stopPatienceMs);
    await heartbeat?.stop();
    log("info", "engine_stopped", { attempts: runner.lives().length });
  }

  return {
    poke,
    stop: (request) => (stopping ??= stop(request)),
    idle: () => idle,
    superseded: () => superseded,
    state: () => ({ incarnation, attempts: runner.lives().length, bugs: weather.bugs(), wokeAt }),
  };
}
