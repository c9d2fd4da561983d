#!/usr/bin/env node
/**
 * The composition root: it sees everyone, and nobody sees it. Everything is imported where it is needed, so that a command
 * loads only what it uses; `--version` loads nothing.
 */
import {
  accessSync,
  appendFileSync,
  constants,
  existsSync,
  mkdirSync,
  readFileSync,
  statSync,
  truncateSync,
} from "node:fs";
import { resolve } from "node:path";
import type { Background } from "./execution/background.ts";
import type { HostWorktrees } from "./execution/worktrees.ts";
import type { DaemonLog } from "./ops/daemon-log.ts";
import type {
  AgentTools,
  Caller,
  DaemonControl,
  Finding,
  Health,
  OutputFiles,
  StoreContext,
  WorktreeTools,
} from "./ops/operation.ts";
import type { Places } from "./ops/places.ts";
import type { Settings } from "./ops/settings.ts";
import type { OpenContext } from "./ops/world.ts";
import type { CommandWorld } from "./cli/cli.ts";

declare const __DROVER_VERSION__: string | undefined;
declare const __DROVER_BUILD__: string | undefined;

const build = {
  version: typeof __DROVER_VERSION__ === "string" ? __DROVER_VERSION__ : "0.0.0",
  id: typeof __DROVER_BUILD__ === "string" ? __DROVER_BUILD__ : "source",
};

/** How long `up` waits for a daemon to be healthy: migrations, recovery of what ran, a machine that is busy. */
const START_PATIENCE_MS = 60_000;
/**
 * How long a daemon that holds the lock may be silent before a command gives up: it is starting, or it makes its lost
 * socket anew, which it looks after every 2 s.
 */
const SILENCE_PATIENCE_MS = 10_000;
/** With less than that free not even a reason can be written down. */
const FULL_BYTES = 65_536;
/** How long a starting daemon waits for a lock that a command holds for its short time. */
const LOCK_PATIENCE_MS = 5_000;
const LOOK_MS = 20;
/** Beyond this a daemon that was told to go down leaves, whatever is left to do: what runs is adopted by the next one. */
const SHUTDOWN_MS = 20_000;
/** Requests that are being answered when it goes down. */
const REQUEST_PATIENCE_MS = 2_000;
/** A daemon that ends when idle waits this long for the command that started it, and for the next one. */
const LINGER_MS = 2_000;
const IDLE_LOOK_MS = 200;
/** With other hosts on the store everything is looked at that often, in case a notification was lost. */
const SWEEP_MS = 30_000;
/** Size of the file of our own faults at which it begins anew. */
const FAULTS_BYTES = 1_048_576;

const { argv, env } = process;
const words = argv.slice(2);

async function main(): Promise<void> {
  const { runCommandLine } = await import("./cli/cli.ts");
  let world: CommandWorld;
  try {
    world = await makeWorld();
  } catch (error) {
    const { AppError } = await import("./core/errors.ts");
    if (!(error instanceof AppError)) throw error;
    // Not even the places are known; there is one error of this kind.
    process.stderr.write(`drover: ${error.message}${error.path === undefined ? "" : ` [${error.path}]`}\n`);
    process.exitCode = 2;
    return;
  }
  process.exitCode = await runCommandLine(words, world);
  // Handles that only wait (a worker that has ended, a socket to nowhere) must not keep a finished command.
  if (process.stdout.writableLength === 0 && process.stderr.writableLength === 0) process.exit();
}

async function makeWorld(): Promise<CommandWorld> {
  const { placesOf } = await import("./ops/places.ts");
  const places = placesOf(env);
  const clock = { now: Date.now };
  let settings: Promise<Settings> | undefined;
  const hostZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

  const world: CommandWorld = {
    env,
    cwd: currentFolder(),
    clock,
    get hostZone() {
      return hostZone();
    },
    build,
    places,
    settings() {
      settings ??= import("./ops/settings.ts").then(({ requireSettings }) =>
        requireSettings(env, places, (message) => process.stderr.write(`drover: ${message}\n`)),
      );
      return settings;
    },
    async usualSettings() {
      const { readSettings } = await import("./ops/settings.ts");
      return (await readSettings(env, places, null)).settings;
    },
    caller: (startsWork) => callerHere(places, startsWork),
    async openReading() {
      fault("read");
      await requireState(places, "read");
      return openContext(world, "read", { by: "person", parentRunId: null });
    },
    async openWriting(caller) {
      await requireState(places, "write");
      const locks = await takeLocks(places, await world.settings(), 0);
      if (!Array.isArray(locks)) return null;
      try {
        const opened = await openContext(world, "write", caller);
        if (opened === null) throw new Error("a store that is opened for writing is made");
        return {
          context: opened.context,
          async close() {
            await opened.close();
            for (const lock of locks) lock.release();
          },
        };
      } catch (error) {
        for (const lock of locks) lock.release();
        throw error;
      }
    },
    async askDaemon() {
      const { askHealth } = await import("./http/client.ts");
      const { AppError } = await import("./core/errors.ts");
      try {
        return { health: await askHealth(await clientOptions(places, false)) };
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return { absent: error.code === "daemon_down" ? "down" : "unresponsive" };
      }
    },
    async lockHolder() {
      // Looking must not make the state folder, and a first look loads nothing.
      if (!existsSync(places.lockFile)) return null;
      const { lockHolder } = await import("./store/lock.ts");
      const holder = lockHolder(places.lockFile);
      return holder === null ? null : { pid: holder.owner?.pid ?? null };
    },
    async call(name, input) {
      fault("call");
      const { callDaemon } = await import("./http/client.ts");
      return callDaemon(await clientOptions(places, true), name, input);
    },
    startDaemon: (mode) => startDaemon(world, mode),
    beDaemon: (mode) => beDaemon(world, mode),
    inspect: (fix) => inspect(world, fix),
    wait: pause,
    agents: agentTools(() => world.settings()),
    trees: worktreeTools(places, () => world.settings()),
    isRoot: process.getuid?.() === 0,
    get hasTerminal() {
      return process.stdin.isTTY === true && process.stdout.isTTY === true;
    },
    async attach(command) {
      return (await import("./execution/terminal.ts")).attach(command);
    },
    recordFault: (error) => recordFault(places, error),
  };
  return world;
}

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

/** The working directory, or `/` where it was removed under us: only a command that uses it has to care. */
function currentFolder(): string {
  try {
    return process.cwd();
  } catch {
    return "/";
  }
}

/** A planted fault, for tests of how faults of our own are told. */
function fault(place: string): void {
  if (env["DROVER_TEST_FAULT"] === place) throw new TypeError(`planted at ${place}`);
}

function recordFault(places: Places, error: unknown): { readonly id: string; readonly file: string | null } {
  const id = `${Date.now().toString(36)}-${process.pid.toString(36)}`;
  const file = `${places.logs}/faults.log`;
  const line = { at: new Date().toISOString(), id, build, words, fault: describeFault(error) };
  try {
    mkdirSync(places.logs, { recursive: true, mode: 0o700 });
    if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > FAULTS_BYTES) truncateSync(file);
    appendFileSync(file, `${JSON.stringify(line)}\n`, { mode: 0o600 });
    return { id, file };
  } catch {
    return { id, file: null }; // nowhere to keep it
  }
}

const describeFault = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message) : String(error);

// --- Who asks --------------------------------------------------------------------------------------------------------

/** What this process shows of the run that it is part of: its own environment, or that of a process it descends from. */
async function presented(startsWork: boolean): Promise<{ readonly token: string | null; readonly insideRun: boolean }> {
  const own = {
    token: env["DROVER_RUN_TOKEN"] || null,
    insideRun: Boolean(env["DROVER_RUN_ID"] || env["DROVER_ATTEMPT_ID"]),
  };
  if (own.token !== null || own.insideRun || !startsWork) return own;
  const { inheritedRun } = await import("./execution/ancestors.ts");
  return inheritedRun();
}

async function callerHere(places: Places, startsWork: boolean): Promise<Caller> {
  const shown = await presented(startsWork);
  const { callerOf } = await import("./ops/run-token.ts");
  return callerOf(shown.token === null ? new Uint8Array() : await tokenKey(places, false), shown, startsWork);
}

async function clientOptions(places: Places, startsWork: boolean) {
  const { token, insideRun } = await presented(startsWork);
  return { socket: places.socket, version: build.version, runToken: token, insideRun };
}

/** The key of run tokens, made on first use. Without `make` an absent key is one that signs nothing. */
async function tokenKey(places: Places, make: boolean): Promise<Uint8Array> {
  const { newTokenKey } = await import("./ops/run-token.ts");
  const { keepOnce } = await import("./ops/kept.ts");
  if (make)
    return Buffer.from(
      keepOnce(places.keyFile, () => newTokenKey().toString("hex")),
      "hex",
    );
  try {
    return Buffer.from(readFileSync(places.keyFile, "utf8").trim(), "hex");
  } catch {
    return newTokenKey(); // nothing was signed yet, so every token is wrong
  }
}

// --- The store -------------------------------------------------------------------------------------------------------

async function openContext(world: CommandWorld, use: "read" | "write", caller: Caller): Promise<OpenContext | null> {
  const { AppError } = await import("./core/errors.ts");
  const [{ openStore, parseStoreAddress }, { operations }] = await Promise.all([
    import("./store/open.ts"),
    import("./store/operations.ts"),
  ]);
  const settings = await world.settings();
  const address = parseStoreAddress(settings.store, world.places.state);
  const open = () => openStore({ address, table: operations, clock: world.clock, use });
  try {
    const handle = await open().catch((error: unknown) => {
      if (use === "write" || !(error instanceof AppError) || error.code !== "older_schema") throw error;
      return afterMigration(world, open, error); // whoever holds the lock may just be making it
    });
    const context = await storeContext(world, handle.store, settings, caller, use === "write", async () => {
      const answer = await world.askDaemon();
      return { mode: "health" in answer ? answer.health.mode : "none" };
    });
    return { context, close: () => handle.close() };
  } catch (error) {
    if (use === "read" && error instanceof AppError && error.code === "no_store") return null; // nothing was put in yet
    throw error;
  }
}

/** Opens a store for reading as soon as whoever holds the lock has brought it up to date; nobody does: the refusal as it was. */
async function afterMigration<T>(world: CommandWorld, open: () => Promise<T>, refusal: Error): Promise<T> {
  const { AppError } = await import("./core/errors.ts");
  const deadline = performance.now() + SILENCE_PATIENCE_MS;
  for (;;) {
    const isHeld = (await world.lockHolder()) !== null;
    try {
      return await open();
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== "older_schema") throw error;
      if (!isHeld || performance.now() >= deadline) throw refusal;
    }
    await pause(LOOK_MS);
  }
}

async function storeContext(
  world: CommandWorld,
  store: StoreContext["store"],
  settings: Settings,
  caller: Caller,
  make: boolean,
  daemon: StoreContext["daemon"],
): Promise<StoreContext> {
  const { clock, places } = world;
  return {
    clock,
    get hostZone() {
      return world.hostZone;
    },
    build,
    places,
    settings,
    store,
    hostId: await hostIdOf(places, make),
    caller,
    daemon,
    output: outputFiles(places),
    findProgram: (name, cwd, path) => findProgram(name, cwd, path ?? env["PATH"] ?? ""),
    isFolder: (path) => statSync(path, { throwIfNoEntry: false })?.isDirectory() === true,
    isRoot: world.isRoot,
    agents: world.agents,
    trees: world.trees,
  };
}

let openedTrees: Promise<HostWorktrees> | undefined;

/** The worktrees of this host, opened once: makes and removals on one repository wait for each other. */
function hostWorktrees(places: Places, settings: () => Promise<Settings>): Promise<HostWorktrees> {
  openedTrees ??= (async () => {
    const [{ openWorktrees }, { openProcessTable }, { limits }] = await Promise.all([
      import("./execution/worktrees.ts"),
      import("./execution/processes.ts"),
      settings(),
    ]);
    return openWorktrees({
      root: places.worktrees,
      environment: env,
      limits,
      table: openProcessTable(),
      log: (message) => process.stderr.write(`drover: ${message}\n`),
    });
  })();
  return openedTrees;
}

/** The same, for operations. */
function worktreeTools(places: Places, settings: () => Promise<Settings>): WorktreeTools {
  const open = () => hostWorktrees(places, settings);
  return {
    look: async (record) => (await open()).look(record),
    remove: async (record, discard) => (await open()).remove(record, discard),
    strays: async (known) => (await open()).strays(known),
  };
}

/** The id of this host, made once; empty where there is none and none is to be made. */
async function hostIdOf(places: Places, make: boolean): Promise<string> {
  try {
    return readFileSync(places.hostFile, "utf8").trim();
  } catch {
    if (!make) return ""; // reading before the first change
  }
  const { makeId } = await import("./core/ids.ts");
  const { randomBytes } = await import("node:crypto");
  const { keepOnce } = await import("./ops/kept.ts");
  return keepOnce(places.hostFile, () => makeId("host", Date.now(), randomBytes(10)));
}

function outputFiles(places: Places): OutputFiles {
  const folderOf = async (folder: string) => {
    const { requireFolderName } = await import("./execution/attempt-folder.ts");
    const { AppError } = await import("./core/errors.ts");
    const path = `${places.runs}/${requireFolderName(folder)}`;
    if (!existsSync(path))
      throw new AppError("not_found", "logs_gone", "the output of this attempt is not kept on this host", {
        path,
        hint: "Logs are kept for limits.logRetentionMs, on the host that ran the attempt. `drover show` has the end of it.",
      });
    return path;
  };
  return {
    async *read({ folder, stream, tailLines, raw }) {
      const { readLog } = await import("./execution/logs.ts");
      const path = await folderOf(folder);
      let page = await readLog(path, stream, { raw, ...(tailLines === null ? {} : { tailLines }) });
      for (;;) {
        if (page.text !== "") yield page.text;
        if (page.atEnd) return;
        page = await readLog(path, stream, { raw, from: page.next });
      }
    },
    async *follow({ folder, stream, tailLines, raw }, ended, signal) {
      const { followLog } = await import("./execution/logs.ts");
      const path = await folderOf(folder);
      const request = { raw, ended, signal, ...(tailLines === null ? {} : { tailLines }) };
      for await (const piece of followLog(path, stream, request)) if (piece.text !== "") yield piece.text;
    },
    pathOf: (folder, stream) => `${places.runs}/${folder}/${stream === "stdout" ? "out" : "err"}`,
    async *transcript(folder) {
      const { followTranscript } = await import("./execution/agents/transcript.ts");
      yield* followTranscript(await folderOf(folder), { ended: AbortSignal.abort() });
    },
    async *followTranscript(folder, ended, signal) {
      const { followTranscript } = await import("./execution/agents/transcript.ts");
      yield* followTranscript(await folderOf(folder), { ended, signal });
    },
  };
}

// --- Agents and worktrees, for operations ----------------------------------------------------------------------------

/** Agents' command lines, as processes of this one's environment find them. */
function agentTools(settings: () => Promise<Settings>): AgentTools {
  const open = async () => {
    const { openAgentTools } = await import("./execution/agent-tools.ts");
    const probeMs = (await settings()).limits.agentProbeMs;
    return openAgentTools({ environment: env, find: (name) => findProgram(name, "/", env["PATH"] ?? ""), probeMs });
  };
  return {
    about: async (provider) => (await import("./execution/agent-tools.ts")).describeAgent(provider),
    find: async (provider) => (await open()).find(provider),
    probeLogin: async (provider, account) => (await open()).probeLogin(provider, account),
  };
}

/** Where a command's name leads on this host, on the path that its process will have. */
async function findProgram(name: string, cwd: string, path: string): Promise<string | null> {
  const isProgram = (file: string): boolean => {
    try {
      accessSync(file, constants.X_OK);
      return statSync(file).isFile();
    } catch {
      return false; // not there, or not ours to run
    }
  };
  if (name.includes("/")) return isProgram(resolve(cwd, name)) ? resolve(cwd, name) : null;
  const { completePath } = await import("./execution/environment.ts");
  const { homedir } = await import("node:os");
  const folders = completePath(path, env["HOME"] || homedir(), env["PNPM_HOME"]).split(":");
  return folders.map((folder) => resolve(cwd, folder, name)).find(isProgram) ?? null;
}

// --- The state folder ------------------------------------------------------------------------------------------------

/**
 * The state folder can be used: made and writable for who writes; for who reads it may not be there yet.
 * Errors: AppError unreachable `state_unusable`, `disk_full`.
 */
async function requireState({ state }: Places, use: "read" | "write"): Promise<void> {
  try {
    if (use === "write") mkdirSync(state, { recursive: true, mode: 0o700 });
    const found = statSync(state);
    if (!found.isDirectory()) throw Object.assign(new Error("it is not a folder"), { code: "ENOTDIR" });
    accessSync(state, use === "write" ? constants.R_OK | constants.W_OK | constants.X_OK : constants.X_OK);
  } catch (error) {
    if (use === "read" && codeOf(error) === "ENOENT") return;
    throw await stateFault(error, state);
  }
}

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error ? String(error.code) : "");

const STATE_FAULTS: Readonly<Record<string, string>> = {
  ENOTDIR: "it, or what it should lie in, is not a folder",
  EEXIST: "it is not a folder",
  EACCES: "this user may not use it",
  EPERM: "this user may not use it",
  EROFS: "its file system is read-only",
  ENOENT: "what it should lie in is not there",
  ELOOP: "its links lead in a circle",
  ENAMETOOLONG: "its name is too long",
};

/** What the system says of a path in the state folder, in words that somebody can act on; other errors as they are. */
async function stateFault(error: unknown, path: string): Promise<unknown> {
  const { AppError } = await import("./core/errors.ts");
  const code = codeOf(error);
  if (code === "ENOSPC" || code === "EDQUOT") return diskFull(path, error);
  const why = STATE_FAULTS[code];
  if (error instanceof AppError || why === undefined) return error;
  return new AppError("unreachable", "state_unusable", `the state folder ${path} cannot be used: ${why}`, {
    path,
    hint: "DROVER_HOME, or XDG_STATE_HOME, must name a folder that this user may write.",
    cause: error,
  });
}

async function diskFull(path: string, cause?: unknown): Promise<Error> {
  const { AppError } = await import("./core/errors.ts");
  return new AppError("unreachable", "disk_full", `no space is left at ${path}`, {
    path,
    hint: "Free some space; nothing was started.",
    cause,
  });
}

// --- The lock --------------------------------------------------------------------------------------------------------

interface HeldLock {
  release(): void;
  isInPlace(): boolean;
}

/**
 * Takes the lock of the state folder, and of the store's file where that lies elsewhere: one daemon for each. Answers the
 * locks, or who holds one of them.
 */
async function takeLocks(
  places: Places,
  settings: Settings,
  patienceMs: number,
  isVain: () => Promise<boolean> = async () => false,
): Promise<HeldLock[] | { readonly owner: number | null }> {
  const { acquireLock } = await import("./store/lock.ts");
  const { storeFileOf } = await import("./ops/settings.ts");
  const storeFile = storeFileOf(settings.store, places);
  const files = [
    places.lockFile,
    ...(storeFile === null || storeFile === places.storeFile ? [] : [`${storeFile}.lock`]),
  ];
  const deadline = performance.now() + patienceMs;
  const held: HeldLock[] = [];
  for (const file of files) {
    const lock = await acquireLock(file, {
      onBusy: async () => {
        if (performance.now() >= deadline || (await isVain())) return false;
        await pause(LOOK_MS);
        return true;
      },
    });
    if (!lock.held) {
      for (const one of held) one.release();
      return { owner: lock.owner?.pid ?? null };
    }
    held.push(lock);
  }
  return held;
}

// --- The daemon, started ---------------------------------------------------------------------------------------------

type Mode = "full" | "until_idle";

async function startDaemon(
  world: CommandWorld,
  mode: Mode,
): Promise<{ readonly health: Health; readonly started: boolean }> {
  const { places } = world;
  await world.settings();
  await requireState(places, "write");
  const deadline = performance.now() + START_PATIENCE_MS;
  const there = await answerOrFree(world);
  if (there !== null) {
    const { state, mode: serves } = there;
    if (state === "up" && (mode === "until_idle" || serves === "full")) return { health: there, started: false };
    // One that is going down, or that serves what was queued and fires nothing: it steps down, what runs goes on, and the
    // new one takes that over.
    if (state === "up") await world.call("daemon.stop", { drainMs: 0, stopRuns: false });
    while ((await world.lockHolder()) !== null && performance.now() < deadline) await pause(LOOK_MS);
  }
  const { startBackground } = await import("./execution/background.ts");
  const outputFile = `${places.logs}/daemon.start`;
  let child: Background;
  try {
    mkdirSync(places.logs, { recursive: true, mode: 0o700 });
    child = startBackground({
      file: process.execPath,
      args: [
        ...process.execArgv,
        resolve(argv[1] ?? ""),
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
      if (performance.now() > deadline) throw await startFault(places, outputFile, null);
      await pause(LOOK_MS);
    }
  } finally {
    child.release();
  }
}

/**
 * The daemon's health, or null when nobody holds the lock. Whoever holds it in silence is given some time.
 * Errors: AppError unreachable `daemon_unresponsive`.
 */
async function answerOrFree(world: CommandWorld): Promise<Health | null> {
  const deadline = performance.now() + SILENCE_PATIENCE_MS;
  for (;;) {
    const answer = await world.askDaemon();
    if ("health" in answer) return answer.health;
    const holder = await world.lockHolder();
    if (holder === null) return null;
    if (performance.now() >= deadline) throw await silentFault(world.places, holder.pid);
    await pause(LOOK_MS);
  }
}

/** A daemon that is there and cannot be asked. */
async function silentFault({ lockFile, socket, daemonLog }: Places, pid: number | null): Promise<Error> {
  const { AppError } = await import("./core/errors.ts");
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
  const { AppError } = await import("./core/errors.ts");
  const { EXIT } = await import("./cli/cli.ts");
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

// --- The daemon ------------------------------------------------------------------------------------------------------

async function beDaemon(world: CommandWorld, mode: Mode): Promise<void> {
  const { places } = world;
  const background = env["DROVER_BACKGROUND"] === "1";
  // What this process was told of itself is for nobody that it starts.
  for (const name of Object.keys(env)) if (/^DROVER_(?!HOME$|STORE$|TEST_)/.test(name)) delete env[name];
  process.umask(0o077);
  const { AppError } = await import("./core/errors.ts");
  const settings = await world.settings();
  await requireState(places, "write");
  // A lock that is held by a command is waited for; a daemon that answers is not.
  const isUp = async (): Promise<boolean> => "health" in (await world.askDaemon());
  const locks = await takeLocks(places, settings, LOCK_PATIENCE_MS, isUp);
  if (!Array.isArray(locks))
    throw new AppError(
      "conflict",
      "already_running",
      `a daemon is already running${locks.owner === null ? "" : ` (pid ${locks.owner})`}`,
      {
        hint: "`drover status` shows it, `drover down` stops it.",
      },
    );
  const { openDaemonLog } = await import("./ops/daemon-log.ts");
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
    const { id } = recordFault(places, error);
    log.write("error", "crash", { id, fault: describeFault(error) });
    log.close();
    process.exit(70);
  });
  try {
    const holdsLock = () => locks.every((lock) => lock.isInPlace());
    await serveUntilTold(world, mode, settings, log, closers, holdsLock);
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
  mode: Mode,
  settings: Settings,
  log: DaemonLog,
  closers: (() => void | Promise<void>)[],
  holdsLock: () => boolean,
): Promise<void> {
  const { places, clock } = world;
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
    import("./store/open.ts"),
    import("./store/operations.ts"),
    Promise.all([
      import("./execution/spawner.ts"),
      import("./execution/files.ts"),
      import("./execution/notifier.ts"),
      import("./execution/clock.ts"),
      import("./execution/agents/open-agents.ts"),
    ]),
    import("./engine/engine.ts"),
    import("./http/server.ts"),
    import("./ops/index.ts"),
    import("./ops/perform.ts"),
    import("./ops/run-token.ts"),
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
  const own = ownPlaces(places, settings);

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
      worktrees: await hostWorktrees(places, () => world.settings()),
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
        const { id } = recordFault(places, error);
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
      await pause(IDLE_LOOK_MS);
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
function ownPlaces(places: Places, settings: Settings): Record<string, string> {
  const { store } = settings;
  const told = env["DROVER_STORE"] === store && !/^\w+:\/\/[^/@]*:[^/@]*@/.test(store);
  return { ...(places.home === null ? {} : { DROVER_HOME: places.home }), ...(told ? { DROVER_STORE: store } : {}) };
}

async function longestGrace(store: StoreContext["store"], hostId: string): Promise<number> {
  const live = await store.attempts.ofHost({ hostId }).catch(() => []); // a store that is gone has nothing to wait for
  return Math.max(0, ...live.map(({ run }) => run.policy.graceMs));
}

/** Names this machine without telling its own id. */
async function machineId(): Promise<string> {
  const { createHash } = await import("node:crypto");
  const { hostname } = await import("node:os");
  let own = hostname();
  try {
    own = readFileSync("/etc/machine-id", "utf8").trim() || own;
  } catch {
    // not every system has one: the host's name has to do
  }
  return createHash("sha256").update(`drover ${own}`).digest("hex").slice(0, 32);
}

// --- Findings --------------------------------------------------------------------------------------------------------

async function inspect(world: CommandWorld, fix: boolean): Promise<readonly Finding[]> {
  const { places } = world;
  const { findings } = await import("./ops/findings.ts");
  const { statfs } = await import("node:fs/promises");
  const { findTool } = await import("./execution/resident.ts");
  const { TOOLS } = await import("./execution/tools.ts");
  const { completePath } = await import("./execution/environment.ts");
  const { orphans } = await import("./execution/processes.ts");
  const { openCgroups } = await import("./execution/cgroups.ts");
  return findings(
    world,
    {
      async storeFaults() {
        const [{ parseStoreAddress }, { faultsOf }] = await Promise.all([
          import("./store/open.ts"),
          import("./store/integrity.ts"),
        ]);
        return faultsOf(parseStoreAddress((await world.settings()).store, places.state));
      },
      async freeBytes() {
        const found = await statfs(existsSync(places.state) ? places.state : "/");
        return found.bavail * found.bsize;
      },
      path: completePath(env["PATH"] ?? "", env["HOME"] ?? "/", env["PNPM_HOME"]),
      ownPath: env["PATH"] ?? "",
      findTool,
      tools: TOOLS,
      modeOf: (path) => statSync(path, { throwIfNoEntry: false })?.mode ?? null,
      cgroups: () => openCgroups(places.runs) !== null,
      marked: () => orphans(),
      end: (pid) => process.kill(pid, "SIGKILL"),
      strays: async (known) =>
        (await world.trees.strays(known)).map(({ record, state }) => ({ path: record.path, holds: state.holds })),
    },
    fix,
  );
}

// Last, so that everything above is there when it begins.
if (words.length === 1 && (words[0] === "--version" || words[0] === "-V"))
  process.stdout.write(`drover ${build.version}\n`);
else await main();
