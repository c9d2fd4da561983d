/** Where an operation runs: in this process, or in the daemon. Every surface that is not the daemon itself asks through here. */
import { AppError, ensure } from "../core/errors.ts";
import { emptyStore } from "./empty-store.ts";
import { checkInput, type InputOf, type Fields } from "./fields.ts";
import type { ActContext, AnyOperation, LocalContext, StoreContext } from "./operation.ts";
import type { OpenContext, World } from "./world.ts";

/** How long a command waits for a lock that another command or a starting daemon holds. */
const LOCK_PATIENCE_MS = 20_000;
const LOOK_MS = 20;
/** A daemon that ends when it is idle may end between our look and our call: so often another one is started. */
const STARTS = 3;

const isDaemonDown = (error: unknown): boolean => error instanceof AppError && error.code === "daemon_down";

/** An operation whose types are known again. Its input has been checked. */
interface Runnable<Context> {
  run(context: Context, input: InputOf<Fields>): Promise<unknown>;
  readonly follow: ((context: Context, input: InputOf<Fields>, signal: AbortSignal) => AsyncIterable<unknown>) | null;
}
const asRunnable = <Context>(operation: AnyOperation) => operation as unknown as Runnable<Context>;

/** Runs an operation in the context that its place asks for. The server calls this too. */
export const runIn = (operation: AnyOperation, context: StoreContext | ActContext | LocalContext, input: unknown) =>
  asRunnable<typeof context>(operation).run(context, checkInput(operation.input, input));

/**
 * Performs an operation on behalf of this process's user. @param saysYes every question is answered already
 * Errors: AppErrors of the operation; unreachable `daemon_down`, conflict `busy`, `restart_needed`.
 */
export async function perform(
  world: World,
  operation: AnyOperation,
  input: unknown,
  saysYes = false,
): Promise<unknown> {
  switch (operation.where) {
    case "local":
      return runIn(operation, await localContext(world, operation, saysYes), input);
    case "read":
      return withReading(world, (context) => runIn(operation, context, input));
    case "write":
      return write(world, operation, input);
    case "act":
      return act(world, operation, input);
  }
}

/** The items of an operation that can be followed, read or done in this process. */
export async function* performFollow(
  world: World,
  operation: AnyOperation,
  input: unknown,
  signal: AbortSignal,
): AsyncGenerator<unknown> {
  const { follow } = asRunnable<StoreContext | LocalContext>(operation);
  if (follow === null || (operation.where !== "read" && operation.where !== "local"))
    throw new AppError("invalid", "not_a_stream", `${operation.name} cannot be followed`);
  const checked = checkInput(operation.input, input);
  if (operation.where === "local") return yield* follow(await localContext(world, operation, false), checked, signal);
  const opened = (await world.openReading()) ?? (await emptyReading(world));
  try {
    yield* follow(opened.context, checked, signal);
  } finally {
    await opened.close();
  }
}

/** Opens the store for reading, or stands in for one that nobody has made yet. */
export async function withReading<T>(world: World, use: (context: StoreContext) => Promise<T>): Promise<T> {
  const opened = (await world.openReading()) ?? (await emptyReading(world));
  try {
    return await use(opened.context);
  } finally {
    await opened.close();
  }
}

async function emptyReading(world: World): Promise<OpenContext> {
  const { clock, build, places } = world;
  return {
    context: {
      clock,
      get hostZone() {
        return world.hostZone;
      },
      build,
      places,
      settings: await world.settings(),
      store: emptyStore,
      hostId: "",
      caller: { by: "person", parentRunId: null },
      daemon: async () => {
        const answer = await world.askDaemon();
        return { mode: "health" in answer ? answer.health.mode : "none" };
      },
      output: {
        read: nothing,
        follow: nothing,
        transcript: nothing,
        followTranscript: nothing,
        pathOf: (folder, stream) => `${places.runs}/${folder}/${stream}`,
        scrub: async () => null,
      },
      findProgram: world.findProgram,
      isFolder: world.isFolder,
      isRoot: world.isRoot,
      agents: world.agents,
      trees: world.trees,
      leftovers: world.leftovers,
    },
    close: async () => {},
  };
}

async function* nothing(): AsyncGenerator<never> {}

async function write(world: World, operation: AnyOperation, input: unknown): Promise<unknown> {
  const deadline = performance.now() + LOCK_PATIENCE_MS;
  for (;;) {
    try {
      return await world.call(operation.name, input);
    } catch (error) {
      if (!isDaemonDown(error)) throw error; // no daemon: this process may write itself
    }
    const opened = await world.openWriting(await world.caller(operation.start));
    if (opened !== null)
      try {
        return await runIn(operation, opened.context, input);
      } finally {
        await opened.close();
      }
    if (performance.now() > deadline) {
      const holder = await world.lockHolder();
      throw new AppError(
        "conflict",
        "busy",
        `another process${holder?.pid == null ? "" : ` (pid ${holder.pid})`} holds the lock and does not answer`,
        {
          hint: "Try again in a moment; `drover status` and the daemon's log say more.",
        },
      );
    }
    await world.wait(LOOK_MS);
  }
}

async function act(world: World, operation: AnyOperation, input: unknown): Promise<unknown> {
  for (let starts = 0; ; starts++) {
    try {
      return await world.call(operation.name, input);
    } catch (error) {
      if (!isDaemonDown(error) || !operation.start || starts === STARTS) throw error; // started below, then asked again
      // Said here already: nothing has to be started to refuse an input.
      checkInput(operation.input, input);
      await world.caller(true);
      await world.startDaemon("until_idle");
    }
  }
}

async function localContext(world: World, operation: AnyOperation, saysYes: boolean): Promise<LocalContext> {
  const { clock, build, places, cwd } = world;
  return {
    clock,
    get hostZone() {
      return world.hostZone;
    },
    build,
    places,
    cwd,
    settings: await (operation.unconfigured ? world.usualSettings() : world.settings()),
    caller: { by: "person", parentRunId: null },
    async reading(use) {
      const opened = await world.openReading();
      if (opened === null) return null;
      try {
        return await use(opened.context);
      } finally {
        await opened.close();
      }
    },
    askDaemon: () => world.askDaemon(),
    lockHolder: () => world.lockHolder(),
    call: (name, given) => world.call(name, given),
    startDaemon: (mode) => world.startDaemon(mode),
    beDaemon: (mode) => world.beDaemon(mode),
    files: world.files,
    service: () => world.service(),
    findProgram: (name, from, path) => world.findProgram(name, from, path),
    self: () => world.self(),
    inspect: () => world.inspect(),
    selfTest: () => world.selfTest(),
    wait: (ms) => world.wait(ms),
    agents: world.agents,
    trees: world.trees,
    isRoot: world.isRoot,
    env: world.env,
    hasTerminal: world.hasTerminal,
    confirm: (question) => (saysYes ? Promise.resolve(true) : world.confirm(question)),
    attach: (command) => world.attach(command),
    ask: (argv) => world.ask(argv),
    async perform(name, given) {
      const { findEntry } = await import("./index.ts");
      const entry = findEntry(name);
      ensure(entry !== undefined, `there is an operation ${name}`);
      return perform(world, (await entry.load()).operation, given);
    },
  };
}
