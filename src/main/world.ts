/**
 * What a command is given of this process and host. Everything is imported where it is needed, so that a command loads only
 * what it uses.
 */
import { existsSync } from "node:fs";
import type { CommandWorld } from "../cli/cli.ts";
import { put } from "../cli/put.ts";
import { isTerminal } from "../cli/screen.ts";
import type { Build } from "../ops/operation.ts";
import type { Settings } from "../ops/config/settings.ts";
import { isFolder } from "../ops/look.ts";
import { askWhereItListens, callerHere } from "./caller.ts";
import { openContext } from "./context.ts";
import { recordFault } from "./faults.ts";
import { agentTools, findProgram, hostWorktrees, leftoversOf, worktreeTools } from "./host.ts";
import { requireState, takeLocks } from "./state.ts";

/**
 * Puts together the world of one command.
 * Errors: AppError invalid where the environment does not say where the state lies.
 */
export async function makeWorld(build: Build): Promise<CommandWorld> {
  const { env } = process;
  const { homeOf, placesOf } = await import("../ops/places.ts");
  // An empty or relative home is none: what this process and its children look for there would be in the working directory.
  const home = homeOf(env);
  if (home !== null && env["HOME"] !== home) env["HOME"] = home;
  const places = placesOf(env);
  const clock = { now: Date.now };
  let settings: Promise<Settings> | undefined;
  const worktrees = hostWorktrees(env, places, () => world.settings());

  const world: CommandWorld = {
    env,
    cwd: currentFolder(),
    clock,
    get hostZone() {
      return Intl.DateTimeFormat().resolvedOptions().timeZone;
    },
    build,
    places,
    settings() {
      settings ??= import("../ops/config/settings.ts").then(({ requireSettings }) =>
        requireSettings(env, places, (message) => void put("stderr", `drover: ${message}\n`)),
      );
      return settings;
    },
    async usualSettings() {
      const { readSettings } = await import("../ops/config/settings.ts");
      return (await readSettings(env, places, null)).settings;
    },
    caller: (startsWork) => callerHere(world, startsWork),
    async openReading() {
      fault("read");
      await requireState(places, "read");
      return openContext(world, "read", { by: "person", parentRunId: null });
    },
    async openWriting(caller) {
      await requireState(places, "write");
      const locks = await takeLocks(world, 0);
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
      const { askHealth } = await import("../http/client.ts");
      const { AppError } = await import("../core/errors.ts");
      try {
        return { health: await askWhereItListens(world, false, askHealth) };
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return { absent: error.code === "daemon_down" ? "down" : "unresponsive" };
      }
    },
    async lockHolder() {
      // Looking must not make the state folder, and a first look loads nothing.
      if (!existsSync(places.lockFile)) return null;
      const { lockHolder } = await import("../store/lock.ts");
      const holder = lockHolder(places.lockFile);
      return holder === null ? null : { pid: holder.owner?.pid ?? null };
    },
    async call(name, input) {
      fault("call");
      const { callDaemon } = await import("../http/client.ts");
      return askWhereItListens(world, true, (options) => callDaemon(options, name, input));
    },
    startDaemon: async (mode) => (await import("./start.ts")).startDaemon(world, mode),
    beDaemon: async (mode) => (await import("./daemon.ts")).beDaemon(world, mode, worktrees),
    files: {
      copy: async (request) => (await import("./files.ts")).copy(world, request),
      restore: async (request) => (await import("./files.ts")).restore(world, request),
    },
    async service() {
      const { openServices } = await import("../execution/services/index.ts");
      const { settingsAsFarAsRead } = await import("../ops/config/settings.ts");
      const { limits } = await settingsAsFarAsRead(env, places);
      return openServices({ environment: env, limitMs: limits.serviceCallMs, home: home ?? "/" });
    },
    findProgram: (name, cwd, path) => findProgram(env, name, cwd, path ?? env["PATH"] ?? ""),
    self: async () => (await import("./start.ts")).selfStart(env),
    inspect: async () => (await import("./inspect.ts")).inspect(world),
    selfTest: async () => (await import("./inspect.ts")).selfTest(world),
    wait: (ms) => new Promise((done) => setTimeout(done, ms)),
    agents: agentTools(env, () => world.settings()),
    trees: worktreeTools(worktrees),
    leftovers: leftoversOf(places, () => world.settings()),
    isRoot: process.getuid?.() === 0,
    isFolder,
    get hasTerminal() {
      return process.stdin.isTTY === true && isTerminal("stdout");
    },
    async confirm(question) {
      const { AppError } = await import("../core/errors.ts");
      if (process.stdin.isTTY !== true)
        throw new AppError("invalid", "needs_yes", "this asks a question, and nobody is there to answer", {
          path: "--yes",
          hint: "Give --yes to answer it, or --dry-run to see what it is about. Nothing was changed.",
        });
      const { createInterface } = await import("node:readline/promises");
      const lines = createInterface({ input: process.stdin, output: process.stderr });
      // An end of the input, or Ctrl-C, is no yes.
      const closed = new Promise<string>((done) => lines.once("close", () => done("")));
      try {
        return /^y(es)?$/i.test((await Promise.race([lines.question(`${question} [y/N] `), closed])).trim());
      } finally {
        lines.close();
      }
    },
    async attach(command) {
      return (await import("../execution/terminal.ts")).attach(command);
    },
    async ask(argv) {
      const { limits } = await world.settings();
      const { inquire } = await import("../execution/inquiry.ts");
      const program = await findProgram(env, argv[0], "/", env["PATH"] ?? "");
      if (program === null) return null;
      return inquire({
        argv: [program, ...argv.slice(1)],
        environment: env,
        timeoutMs: limits.inquiryMs,
        keepBytes: limits.inquiryBytes,
      });
    },
    recordFault: (error) => recordFault(world, error),
  };
  return world;
}

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
  if (process.env["DROVER_TEST_FAULT"] === place) throw new TypeError(`planted at ${place}`);
}
