/** Starting a daemon, and what is said when none comes. */
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { CommandWorld } from "../cli/cli.ts";
import { put } from "../cli/put.ts";
import type { Background } from "../execution/background.ts";
import type { Health, SelfStart } from "../ops/operation.ts";
import type { Places } from "../ops/places.ts";
import { socketsOf } from "../ops/daemon/socket-record.ts";
import { diskFull, LOOK_MS, requireState, SILENCE_PATIENCE_MS, stateFault } from "./state.ts";

/**
 * How long `up` waits for a daemon to be healthy: recovery of what ran, a machine that is busy. A store that is brought up
 * to date is waited for however large it is: it is copied and the copy is read through before anything is changed.
 */
const START_PATIENCE_MS = 60_000;
/**
 * How large the space of what has just been made may grow in a daemon, in MiB. 16 is Node's own number, and twice that is
 * what a flood of agents' output then costs; with 2 the same flood took no longer.
 */
const YOUNG_SPACE_MIB = 2;
/** With less than that free not even a reason can be written down. */
const FULL_BYTES = 65_536;

/**
 * A daemon that is up and serves what is asked of it: the one that is there, or one that is started in the background.
 * Errors: AppError unreachable `state_unusable`, `disk_full`, `daemon_unresponsive`, `daemon_not_started`, and what the
 * daemon itself said.
 */
export async function startDaemon(
  world: CommandWorld,
  mode: Health["mode"],
): Promise<{ readonly health: Health; readonly started: boolean }> {
  const { env, places } = world;
  await world.settings();
  await requireState(places, "write");
  let deadline = performance.now() + START_PATIENCE_MS;
  const there = await answerOrFree(world);
  if (there !== null) {
    const { state, mode: serves } = there;
    if (state === "up" && (mode === "until_idle" || serves === "full")) return { health: there, started: false };
    // One that is going down, or that serves what was queued and fires nothing: it steps down, what runs goes on, and the
    // new one takes that over.
    if (state === "up") await world.call("daemon.stop", { drainMs: 0, stopRuns: false });
    while ((await world.lockHolder()) !== null && performance.now() < deadline) await world.wait(LOOK_MS);
  }
  const { startBackground } = await import("../execution/background.ts");
  const outputFile = `${places.logs}/daemon.start`;
  let child: Background;
  try {
    mkdirSync(places.logs, { recursive: true, mode: 0o700 });
    child = startBackground({
      file: process.execPath,
      args: [
        ...nodeOptions(),
        programFile(),
        "up",
        "--foreground",
        "--json",
        ...(mode === "full" ? [] : ["--until-idle"]),
      ],
      // What this command was told of a run is not the daemon's.
      env: {
        ...Object.fromEntries(Object.entries(env).filter(([name]) => !/^DROVER_(?!HOME$|STORE$|TEST_)/.test(name))),
        DROVER_BACKGROUND: "1",
      },
      cwd: "/",
      outputFile,
    });
  } catch (error) {
    throw await stateFault(error, places.logs);
  }
  let exit: number | null | undefined;
  void child.ended.then((code) => (exit = code));
  let silentUntil = Number.POSITIVE_INFINITY;
  try {
    for (;;) {
      const ended = exit;
      const answer = await world.askDaemon();
      if ("health" in answer && answer.health.state === "up")
        return { health: answer.health, started: answer.health.pid === child.pid };
      if (ended !== undefined) {
        const holder = ended === 4 ? await world.lockHolder() : null;
        if (holder === null) throw await startFault(places, outputFile, ended);
        // Somebody else was faster and holds the lock; theirs will be healthy in a moment.
        silentUntil = Math.min(silentUntil, performance.now() + SILENCE_PATIENCE_MS);
        if (performance.now() >= silentUntil) throw await silentFault(places, holder.pid);
      }
      if (performance.now() > deadline) {
        if (!(await waitsForStore(world))) throw await startFault(places, outputFile, null);
        deadline = performance.now() + START_PATIENCE_MS;
      }
      await world.wait(LOOK_MS);
    }
  } finally {
    child.release();
  }
}

/** What a daemon's Node is given. */
const nodeOptions = (): readonly string[] => [...process.execArgv, `--max-semi-space-size=${YOUNG_SPACE_MIB}`];
const programFile = (): string => resolve(process.argv[1] ?? "");

/** How another process like this one is started. */
export async function selfStart(env: CommandWorld["env"]): Promise<SelfStart> {
  const { completePath } = await import("../execution/environment.ts");
  return {
    node: process.execPath,
    nodeOptions: nodeOptions(),
    program: programFile(),
    path: completePath(env["PATH"] ?? "", env["HOME"] ?? "/", env["PNPM_HOME"]),
  };
}

/**
 * The daemon's health, or null when nobody holds the lock. Whoever holds it in silence is given some time.
 * Errors: AppError unreachable `daemon_unresponsive`.
 */
async function answerOrFree(world: CommandWorld): Promise<Health | null> {
  let deadline = performance.now() + SILENCE_PATIENCE_MS;
  for (;;) {
    const answer = await world.askDaemon();
    if ("health" in answer) return answer.health;
    const holder = await world.lockHolder();
    if (holder === null) return null;
    if (performance.now() >= deadline) {
      if (!(await waitsForStore(world))) throw await silentFault(world.places, holder.pid);
      deadline = performance.now() + SILENCE_PATIENCE_MS;
    }
    await world.wait(LOOK_MS);
  }
}

/** Opening a store that nobody changes takes far less. */
const CHANGED_MS = 2_000;
/** Worlds that were told of it. */
const told = new WeakSet<CommandWorld>();

/** Whether the store has an earlier schema still, which whoever holds the lock is changing. A person is told once. */
async function waitsForStore(world: CommandWorld): Promise<boolean> {
  const { AppError } = await import("../core/errors.ts");
  const startedAt = performance.now();
  try {
    await (await world.openReading())?.close();
    // Opening waits a while for a change that is being made: one that ended just now was worth waiting for.
    return performance.now() - startedAt > CHANGED_MS;
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "older_schema") return false;
    if (!told.has(world))
      await put("stderr", "drover: the store is copied and brought up to date; with a large one that takes minutes\n");
    told.add(world);
    return true;
  }
}

/** A daemon that is there and cannot be asked. */
async function silentFault(places: Places, pid: number | null): Promise<Error> {
  const { lockFile, daemonLog } = places;
  const [socket] = socketsOf(places);
  const { AppError } = await import("../core/errors.ts");
  return new AppError(
    "unreachable",
    "daemon_unresponsive",
    `a daemon${pid === null ? "" : ` (pid ${pid})`} holds the lock ${lockFile}, and its socket ${socket} does not answer`,
    {
      hint: `Its log says more: ${daemonLog}. Otherwise end ${pid === null ? "that process" : `it with \`kill ${pid}\``} and ask again; what runs is not harmed.`,
    },
  );
}

/** Why a daemon did not start: what it said last. */
async function startFault(places: Places, outputFile: string, exit: number | null): Promise<Error> {
  const { AppError } = await import("../core/errors.ts");
  const { EXIT } = await import("../cli/exits.ts");
  const lines = textOf(outputFile).trimEnd().split("\n");
  for (const line of lines.toReversed()) {
    try {
      const { error } = JSON.parse(line) as { error?: { code: string; message: string; hint?: string; path?: string } };
      const kind = (Object.keys(EXIT) as (keyof typeof EXIT)[]).find((one) => EXIT[one] === exit);
      if (error !== undefined)
        return new AppError(
          kind === undefined || kind === "internal" ? "unreachable" : kind,
          error.code,
          error.message,
          {
            ...(error.hint === undefined ? {} : { hint: error.hint }),
            ...(error.path === undefined ? {} : { path: error.path }),
          },
        );
    } catch {
      // Node's own words are no JSON
    }
  }
  if (await isFull(places.state)) return diskFull(places.state);
  const last = lines
    .filter((line) => line !== "" && !line.startsWith("{"))
    .slice(-3)
    .join(" | ");
  return new AppError(
    "unreachable",
    "daemon_not_started",
    `the daemon did not start${exit === null ? ` within ${START_PATIENCE_MS / 1_000} s` : ` (exit ${exit})`}${last === "" ? "" : `: ${last}`}`,
    {
      hint: existsSync(places.daemonLog)
        ? `Its log says more: ${places.daemonLog}`
        : "`drover doctor` says what is wrong here; `drover up --foreground` shows what it says.",
    },
  );
}

function textOf(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return ""; // it was taken away meanwhile
  }
}

async function isFull(path: string): Promise<boolean> {
  const { statfs } = await import("node:fs/promises");
  try {
    const { bavail, bsize } = await statfs(path);
    return bavail * bsize < FULL_BYTES;
  } catch {
    return false; // not even that can be known
  }
}
