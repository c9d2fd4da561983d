/** Being the daemon: from its lock to the last line of its log. */
import { statSync, truncateSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import type { CommandWorld } from "../cli/cli.ts";
import { put } from "../cli/put.ts";
import type { HostWorktrees } from "../execution/worktrees/open-worktrees.ts";
import type { DaemonLog } from "../ops/daemon/daemon-log.ts";
import type { DaemonControl, DaemonEnd, Health, StoreContext } from "../ops/operation.ts";
import type { Settings } from "../ops/config/settings.ts";
import { forgetSocket } from "../ops/daemon/socket-record.ts";
import { tokenKey } from "./caller.ts";
import { describeFault, recordFault } from "./faults.ts";
import { hostIdOf, machineId } from "./host.ts";
import { LOOK_MS, requireState, takeLocks } from "./state.ts";

/** Size of `logs/daemon.start` at which it begins anew. */
const OUTPUT_BYTES = 1_048_576;
/** How long a starting daemon waits for a lock that a command holds for its short time. */
const LOCK_PATIENCE_MS = 5_000;
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

/**
 * Is the daemon of this state folder until it is told to end, is idle (`until_idle`), or is superseded.
 * Errors: AppError conflict `already_running`, unreachable `state_unusable`, `disk_full`, and those of the store.
 */
export async function beDaemon(
  world: CommandWorld,
  mode: Health["mode"],
  worktrees: () => Promise<HostWorktrees>,
): Promise<DaemonEnd> {
  const { places } = world;
  const { env } = process;
  const background = env["DROVER_BACKGROUND"] === "1";
  // The service manager's daemon: it is told by its unit, see `servicePlanOf`.
  const service = env["DROVER_SERVICE"] || null;
  // What this process was told of itself is for nobody that it starts.
  for (const name of Object.keys(env)) if (/^DROVER_(?!HOME$|STORE$|TEST_)/.test(name)) delete env[name];
  process.umask(0o077);
  setFlagsFromString(`--heap-growing-percent=${HEAP_GROWTH_PERCENT}`);
  const { AppError } = await import("../core/errors.ts");
  if (service !== null) boundOutput(`${places.logs}/daemon.start`);
  const settings = await world.settings();
  await requireState(places, "write");
  if (service !== null) await takeOver(world);
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
  const { openDaemonLog } = await import("../ops/daemon/daemon-log.ts");
  const log = openDaemonLog({
    file: places.daemonLog,
    now: Date.now,
    maxBytes: settings.limits.daemonLogBytes,
    keep: settings.limits.daemonLogFiles,
    foldMs: settings.limits.daemonLogFoldMs,
    // A service manager keeps what it is told too; the log is one, and it is bounded.
    ...(background || service !== null
      ? {}
      : {
          echo: ({ at, level, event, data }) => void put("stderr", `${at} ${level} ${event} ${JSON.stringify(data)}\n`),
        }),
  });
  const closers: (() => void | Promise<void>)[] = [() => log.close()];
  // However it ends: what was folded is not lost.
  process.on("exit", () => log.close());
  // What nobody caught may have left anything half done: the process goes, what runs stays, and the next one judges it.
  process.on("uncaughtException", (error) => {
    const { id } = recordFault(world, error);
    log.write("error", "crash", { id, fault: describeFault(error) });
    log.close();
    process.exit(70);
  });
  try {
    const holdsLock = () => locks.every((lock) => lock.isInPlace());
    const why = await serveUntilTold(world, mode, worktrees, settings, log, closers, holdsLock, service);
    return { why, service };
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

/** Why it ends when a person asked for that. */
const WANTED = "down";

/** How a daemon ends. */
interface Ending {
  readonly drainMs: number;
  readonly stopRuns: boolean;
  readonly why: string;
}

/** Serves until it is told to end, then goes down in order. @param closers what is to be closed after it, last first */
async function serveUntilTold(
  world: CommandWorld,
  mode: Health["mode"],
  worktrees: () => Promise<HostWorktrees>,
  settings: Settings,
  log: DaemonLog,
  closers: (() => void | Promise<void>)[],
  holdsLock: () => boolean,
  service: string | null,
): Promise<string> {
  const { build, clock, places } = world;
  const [{ openStore, parseStoreAddress }, { operations: table }, { openEngine }, { openServer }, { hostname }] =
    await Promise.all([
      import("../store/open.ts"),
      import("../store/operations.ts"),
      import("./engine.ts"),
      import("./server.ts"),
      import("node:os"),
    ]);
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

  let tellToStop: (how: Ending) => void = () => {};
  const told = new Promise<Ending>((done) => (tellToStop = done));
  let state: Health["state"] = "up";
  const stopAtOnce = (why: string) => tellToStop({ drainMs: 0, stopRuns: false, why });
  let signals = 0;
  const onSignal = (signal: NodeJS.Signals): void => {
    signals += 1;
    log.write("info", "signal", { signal });
    if (signals > 1) process.exit(1);
    stopAtOnce(signal);
  };
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.on(signal, onSignal);
  handle.onFailure((error) => {
    log.write("error", "store_failed", { code: error.code, message: error.message });
    stopAtOnce(error.code);
  });

  const host = { hostId, name: hostName, machineId: await machineId() };
  const engine = await openEngine({ world, settings, mode, log, handle, host, key, worktrees, closers });
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
      service,
    }),
    stop: (how) => tellToStop({ ...how, why: WANTED }),
  };
  let lastRequestAt = performance.now();
  let requests = 0;
  const listen = () =>
    openServer({
      world,
      settings,
      log,
      store: handle.store,
      key,
      control,
      holdsLock,
      onReplaced: () => stopAtOnce("superseded"),
      onChange: () => engine.poke("all"),
      onRun: handle.kind === "sqlite" ? () => engine.poke("run") : null,
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

  void engine.superseded().then(() => stopAtOnce("superseded"));
  if (mode === "until_idle")
    void whenIdle().catch((error: unknown) => {
      log.write("error", "idle_unknown", { fault: describeFault(error) });
      stopAtOnce("idle");
    });

  /** Ends when nothing is left to run and nobody has asked for a while; the socket goes first, so that no request is lost. */
  async function whenIdle(): Promise<void> {
    const { leftToRun } = await import("../core/run.ts");
    await engine.idle();
    let forPerson = 0;
    const isIdle = async (): Promise<boolean> => {
      const counts = await handle.store.runs.counts({});
      forPerson = counts.forPerson;
      return leftToRun(counts) + engine.state().attempts === 0;
    };
    const leave = (): void => {
      if (forPerson > 0) log.write("info", "left_for_person", { runs: forPerson });
      stopAtOnce("idle");
    };
    while (state === "up") {
      if (requests === 0 && performance.now() - lastRequestAt >= LINGER_MS && (await isIdle())) {
        await server.close(REQUEST_PATIENCE_MS);
        if (await isIdle()) return leave();
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
      log.write("error", "shutdown_budget_spent", { budgetMs: settings.limits.shutdownMs });
      // A service that was wanted down is not started again.
      process.exit(how.why === WANTED && service !== null ? 0 : 1);
    },
    how.drainMs + graces + settings.limits.shutdownMs,
  );
  await engine.stop({ drainMs: how.drainMs, stopRuns: how.stopRuns });
  await server.close(REQUEST_PATIENCE_MS);
  if (holdsLock()) forgetSocket(places);
  log.write("info", "daemon_down", {});
  clearTimeout(leave);
  return how.why;
}

/** Begins the file anew into which launchd puts what is said before the log is open: it appends at each start. */
function boundOutput(file: string): void {
  try {
    if (statSync(file).size > OUTPUT_BYTES) truncateSync(file);
  } catch {
    // there is none, as with systemd
  }
}

/** Has a daemon that serves only what is queued step down: a service fires schedules, and what runs goes on under it. */
async function takeOver(world: CommandWorld): Promise<void> {
  const answer = await world.askDaemon();
  if (!("health" in answer) || answer.health.mode !== "until_idle") return;
  await world.call("daemon.stop", { drainMs: 0, stopRuns: false });
  const deadline = performance.now() + LOCK_PATIENCE_MS;
  while ((await world.lockHolder()) !== null && performance.now() < deadline) await world.wait(LOOK_MS);
}

async function longestGrace(store: StoreContext["store"], hostId: string): Promise<number> {
  const live = await store.attempts.ofHost({ hostId }).catch(() => []); // a store that is gone has nothing to wait for
  return Math.max(0, ...live.map(({ run }) => run.policy.graceMs));
}
