/** Being the daemon: from its lock to the last line of its log. */
import { setFlagsFromString } from "node:v8";
import type { CommandWorld } from "../cli/cli.ts";
import type { HostWorktrees } from "../execution/worktrees/open-worktrees.ts";
import type { DaemonLog } from "../ops/daemon-log.ts";
import type { DaemonControl, Health, StoreContext } from "../ops/operation.ts";
import type { Places } from "../ops/places.ts";
import type { Settings } from "../ops/settings.ts";
import { tokenKey } from "./caller.ts";
import { storeContext } from "./context.ts";
import { describeFault, recordFault } from "./faults.ts";
import { hostIdOf, machineId } from "./host.ts";
import { requireState, takeLocks } from "./state.ts";

/** How long a starting daemon waits for a lock that a command holds for its short time. */
const LOCK_PATIENCE_MS = 5_000;

/** Beyond this a daemon that was told to go down leaves, whatever is left to do: what runs is adopted by the next one. */
const SHUTDOWN_MS = 20_000;

/** Requests that are being answered when it goes down. */
const REQUEST_PATIENCE_MS = 2_000;

/** A daemon that ends when idle waits this long for the command that started it, and for the next one. */
const LINGER_MS = 2_000;

const IDLE_LOOK_MS = 200;

/**
 * By how much of what lives the heap may grow before it is cleaned, in per cent. By V8's own reckoning a daemon of 13 MiB
 * is let grow to 47; cleaning it takes 6 ms.
 */
const HEAP_GROWTH_PERCENT = 40;

/** With other hosts on the store everything is looked at that often, in case a notification was lost. */
const SWEEP_MS = 30_000;

/**
 * Is the daemon of this state folder until it is told to end, is idle (`until_idle`), or is superseded.
 * Errors: AppError conflict `already_running`, unreachable `state_unusable`, `disk_full`, and those of the store.
 */
export async function beDaemon(
  world: CommandWorld,
  mode: Health["mode"],
  worktrees: () => Promise<HostWorktrees>,
): Promise<void> {
  const { places } = world;
  const { env } = process;
  const background = env["DROVER_BACKGROUND"] === "1";
  // What this process was told of itself is for nobody that it starts.
  for (const name of Object.keys(env)) if (/^DROVER_(?!HOME$|STORE$|TEST_)/.test(name)) delete env[name];
  process.umask(0o077);
  setFlagsFromString(`--heap-growing-percent=${HEAP_GROWTH_PERCENT}`);
  const { AppError } = await import("../core/errors.ts");
  const settings = await world.settings();
  await requireState(places, "write");
  // A lock that is held by a command is waited for; a daemon that answers is not.
  const isUp = async (): Promise<boolean> => "health" in (await world.askDaemon());
  const locks = await takeLocks(world, LOCK_PATIENCE_MS, isUp);
  if (!Array.isArray(locks))
    throw new AppError(
      "conflict",
      "already_running",
      `a daemon is already running${locks.owner === null ? "" : ` (pid ${locks.owner})`}`,
      {
        hint: "`drover status` shows it, `drover down` stops it.",
      },
    );
  const { openDaemonLog } = await import("../ops/daemon-log.ts");
  const log = openDaemonLog({
    file: places.daemonLog,
    now: Date.now,
    ...(background
      ? {}
      : {
          echo: ({ at, level, event, data }) =>
            process.stderr.write(`${at} ${level} ${event} ${JSON.stringify(data)}\n`),
        }),
  });
  const closers: (() => void | Promise<void>)[] = [() => log.close()];
  // What nobody caught may have left anything half done: the process goes, what runs stays, and the next one judges it.
  process.on("uncaughtException", (error) => {
    const { id } = recordFault(world, error);
    log.write("error", "crash", { id, fault: describeFault(error) });
    log.close();
    process.exit(70);
  });
  try {
    const holdsLock = () => locks.every((lock) => lock.isInPlace());
    await serveUntilTold(world, mode, worktrees, settings, log, closers, holdsLock);
  } catch (error) {
    log.write("error", "daemon_failed", {
      fault: error instanceof AppError ? `${error.code}: ${error.message}` : describeFault(error),
    });
    throw error;
  } finally {
    for (const close of closers.toReversed()) await close();
    for (const lock of locks) lock.release();
  }
}

async function serveUntilTold(
  world: CommandWorld,
  mode: Health["mode"],
  worktrees: () => Promise<HostWorktrees>,
  settings: Settings,
  log: DaemonLog,
  closers: (() => void | Promise<void>)[],
  holdsLock: () => boolean,
): Promise<void> {
  const { build, clock, places } = world;
  const [
    { openStore, parseStoreAddress },
    { operations: table },
    execution,
    { startEngine },
    { serve },
    { findEntry },
    { runIn },
    runToken,
    { hostname },
    crypto,
  ] = await Promise.all([
    import("../store/open.ts"),
    import("../store/operations.ts"),
    Promise.all([
      import("../execution/spawner.ts"),
      import("../execution/files.ts"),
      import("../execution/notifier.ts"),
      import("../execution/clock.ts"),
      import("../execution/agents/open-agents.ts"),
    ]),
    import("../engine/engine.ts"),
    import("../http/server.ts"),
    import("../ops/index.ts"),
    import("../ops/perform.ts"),
    import("../ops/run-token.ts"),
    import("node:os"),
    import("node:crypto"),
  ]);
  const [{ openSpawner }, { openFiles }, { openNotifier }, { systemClock }, { openAgents }] = execution;
  const startedAt = new Date(clock.now()).toISOString();
  const key = await tokenKey(places, true);
  const hostId = await hostIdOf(places, true);
  const hostName = hostname();

  const handle = await openStore({
    address: parseStoreAddress(settings.store, places.state),
    table,
    clock,
    use: "daemon",
    workers: {
      writer: new URL("./sqlite-writer.mjs", import.meta.url),
      heartbeat: new URL("./postgres-heartbeat.mjs", import.meta.url),
    },
  });
  closers.push(() => handle.close());
  const spawner = openSpawner({
    runsFolder: places.runs,
    cgroups: true,
    agentProbeMs: settings.limits.agentProbeMs,
    log: (message) => log.write("warn", "spawner", { message }),
  });
  closers.push(() => spawner.close());
  const own = ownPlaces(world.env, places, settings);

  let tellToStop: (how: { readonly drainMs: number; readonly stopRuns: boolean; readonly why: string }) => void =
    () => {};
  const told = new Promise<{ readonly drainMs: number; readonly stopRuns: boolean; readonly why: string }>(
    (done) => (tellToStop = done),
  );
  let state: Health["state"] = "up";
  let signals = 0;
  const onSignal = (signal: NodeJS.Signals): void => {
    signals += 1;
    log.write("info", "signal", { signal });
    if (signals > 1) process.exit(1);
    tellToStop({ drainMs: 0, stopRuns: false, why: signal });
  };
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, onSignal);
  handle.onFailure((error) => {
    log.write("error", "store_failed", { code: error.code, message: error.message });
    tellToStop({ drainMs: 0, stopRuns: false, why: error.code });
  });

  const engine = await startEngine(
    {
      clock: systemClock(),
      random: { bytes: (count) => crypto.randomBytes(count) },
      store: handle.store,
      // A process of a run that calls drover means the installation that started it.
      spawner: {
        ...spawner,
        prepare: (launch) => spawner.prepare({ ...launch, variables: { ...launch.variables, ...own } }),
      },
      files: openFiles({ runsFolder: places.runs, maxOutputBytes: settings.limits.outputBytes }),
      notifier: openNotifier(),
      agents: openAgents({
        runsFolder: places.runs,
        limits: settings.limits,
        clock,
        log: (message) => log.write("warn", "agents", { message }),
      }),
      worktrees: await worktrees(),
      startHeartbeat: ({ onAnswer, everyMs, ...input }) =>
        handle.startHeartbeat({
          operation: "hosts.renew",
          input,
          everyMs,
          onAnswer: (answer) => onAnswer(answer as Parameters<typeof onAnswer>[0]),
          onError: (error) => log.write("warn", "renewal_failed", { message: error.message }),
        }),
      signToken: (run) => runToken.signRunToken(key, run),
      log: log.write,
    },
    {
      host: {
        hostId,
        name: hostName,
        machineId: await machineId(),
        bootId: spawner.bootId,
        version: build.version,
        leaseMs: settings.limits.leaseMs,
        commandCap: settings.limits.commandCap,
        agentCap: settings.limits.agentCap,
      },
      limits: settings.limits,
      socket: places.socket,
      untilIdle: mode === "until_idle",
      sweepMs: handle.kind === "postgres" ? SWEEP_MS : null,
    },
  );
  const unwatch = handle.kind === "postgres" ? handle.onForeignChange(() => engine.poke("all")) : () => {};

  const control: DaemonControl = {
    health: () => ({
      state,
      mode,
      pid: process.pid,
      version: build.version,
      build: build.id,
      hostId,
      hostName,
      startedAt,
    }),
    stop: (how) => tellToStop({ ...how, why: "down" }),
  };
  let lastRequestAt = performance.now();
  let requests = 0;
  const listen = () =>
    serve({
      socket: places.socket,
      version: build.version,
      health: control.health,
      async find(name) {
        const entry = findEntry(name);
        return entry === undefined || entry.where === "local" ? undefined : (await entry.load()).operation;
      },
      async perform(operation, input, shown) {
        const caller = runToken.callerOf(key, shown, operation.start);
        const context = await storeContext(world, handle.store, settings, caller, false, async () => ({ mode }));
        try {
          return await runIn(operation, { ...context, control } as StoreContext, input);
        } finally {
          if (operation.where !== "read") engine.poke("all");
        }
      },
      onFault(error) {
        const { id } = recordFault(world, error);
        log.write("error", "fault", { id, fault: describeFault(error) });
        return id;
      },
      onSocketLost: (failure) =>
        failure === null
          ? log.write("warn", "socket_lost", { socket: places.socket })
          : log.write("error", "socket_failed", { message: failure.message }),
      holdsLock,
      onReplaced: () => tellToStop({ drainMs: 0, stopRuns: false, why: "superseded" }),
      // The short way out of a path that is too long is a folder in that for temporary files.
      removeFolder: /\/drover-\d+-[0-9a-f]+\/[^/]+$/.test(places.socket),
      onRequest(active) {
        requests = active;
        lastRequestAt = performance.now();
      },
    });
  let server = await listen();
  log.write("info", "daemon_up", {
    pid: process.pid,
    version: build.version,
    build: build.id,
    mode,
    store: handle.location,
    hostId,
  });

  void engine.superseded().then(() => tellToStop({ drainMs: 0, stopRuns: false, why: "superseded" }));
  if (mode === "until_idle")
    void whenIdle().catch((error: unknown) => {
      log.write("error", "idle_unknown", { fault: describeFault(error) });
      tellToStop({ drainMs: 0, stopRuns: false, why: "idle" });
    });

  /** Ends when nothing is left to run and nobody has asked for a while; the socket goes first, so that no request is lost. */
  async function whenIdle(): Promise<void> {
    await engine.idle();
    const isIdle = async (): Promise<boolean> => {
      const counts = await handle.store.runs.counts({});
      return counts.running + counts.queued + counts.waiting + engine.state().attempts === 0;
    };
    while (state === "up") {
      if (requests === 0 && performance.now() - lastRequestAt >= LINGER_MS && (await isIdle())) {
        await server.close(REQUEST_PATIENCE_MS);
        if (await isIdle()) return tellToStop({ drainMs: 0, stopRuns: false, why: "idle" });
        server = await listen();
      }
      await world.wait(IDLE_LOOK_MS);
    }
  }

  const how = await told;
  state = "draining";
  log.write("info", "daemon_going_down", { ...how });
  unwatch();
  const graces = how.stopRuns ? await longestGrace(handle.store, hostId) : 0;
  const leave = setTimeout(
    () => {
      log.write("error", "shutdown_budget_spent", { budgetMs: SHUTDOWN_MS });
      process.exit(1);
    },
    how.drainMs + graces + SHUTDOWN_MS,
  );
  await engine.stop({ drainMs: how.drainMs, stopRuns: how.stopRuns });
  await server.close(REQUEST_PATIENCE_MS);
  log.write("info", "daemon_down", {});
  clearTimeout(leave);
}

/** What says where this installation is, where that is not its usual place. An address with a password is told to nobody. */
function ownPlaces(env: CommandWorld["env"], places: Places, settings: Settings): Record<string, string> {
  const { store } = settings;
  const told = env["DROVER_STORE"] === store && !/^\w+:\/\/[^/@]*:[^/@]*@/.test(store);
  return { ...(places.home === null ? {} : { DROVER_HOME: places.home }), ...(told ? { DROVER_STORE: store } : {}) };
}

async function longestGrace(store: StoreContext["store"], hostId: string): Promise<number> {
  const live = await store.attempts.ofHost({ hostId }).catch(() => []); // a store that is gone has nothing to wait for
  return Math.max(0, ...live.map(({ run }) => run.policy.graceMs));
}
