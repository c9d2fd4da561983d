/** What `doctor` is given to look at this host with. */
import { chmodSync, existsSync, statSync } from "node:fs";
import { readdir, statfs } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { CommandWorld } from "../cli/cli.ts";
import type { ClockGap, Probes } from "../ops/doctor/checks/probes.ts";
import type { Examination, SelfTest } from "../ops/operation.ts";

/** Limit of git for a look, and of a question to a tool of the system. */
const GIT_MS = 8_000;
const TOOL_MS = 3_000;
/** The end of the daemon's log that is read. */
const LOG_LINES = 20_000;
/** What is kept of an answer. */
const KEPT_BYTES = 65_536;

/** Everything `doctor` finds here. It changes nothing. */
export async function inspect(world: CommandWorld): Promise<Examination> {
  const [{ examine }, { giveUpErrands }, probes] = await Promise.all([
    import("../ops/doctor/findings.ts"),
    import("../execution/errand.ts"),
    openProbes(world),
  ]);
  const examination = await examine(world, probes);
  // What a check that took too long had asked is asked no more.
  await giveUpErrands();
  return examination;
}

/** The run of one second, and what became of it. */
export async function selfTest(world: CommandWorld): Promise<SelfTest> {
  const [{ runSelfTest }, { orphans }] = await Promise.all([
    import("../ops/daemon/self-test.ts"),
    import("../execution/processes.ts"),
  ]);
  return runSelfTest(world, (attemptId) => orphans(attemptId).map(({ pid }) => pid));
}

async function openProbes(world: CommandWorld): Promise<Probes> {
  const { env, places } = world;
  const [{ findTool }, { TOOLS }, { completePath }, processes, { canMakeCgroups }, hostLimits, { runErrand }] =
    await Promise.all([
      import("../execution/resident.ts"),
      import("../execution/tools.ts"),
      import("../execution/environment.ts"),
      import("../execution/processes.ts"),
      import("../execution/cgroups.ts"),
      import("../execution/host-limits.ts"),
      import("../execution/errand.ts"),
    ]);
  const { findProgram } = await import("./host.ts");
  const table = processes.openProcessTable();
  const own = Object.fromEntries(Object.entries(env).filter((pair): pair is [string, string] => pair[1] !== undefined));
  const ask = (argv: readonly [string, ...string[]], timeoutMs: number) =>
    runErrand({ argv, cwd: "/", environment: own, timeoutMs, keepBytes: KEPT_BYTES, keep: "head" }, table, false);

  return {
    async storeFaults(limitMs) {
      const [{ parseStoreAddress }, settings] = await Promise.all([import("../store/open.ts"), world.settings()]);
      const address = parseStoreAddress(settings.store, places.state);
      if (address.kind === "postgres") return { faults: [], whole: true }; // its server looks after its own files
      const program = resolve(process.argv[1] ?? "");
      const end = await ask([process.execPath, ...process.execArgv, program, "__pages", address.file], limitMs);
      if (end.timedOut) return { faults: [], whole: false };
      try {
        return { faults: JSON.parse(end.stdout.toString()) as string[], whole: true };
      } catch {
        const said = end.stderr.toString().trim().split("\n").at(-1) ?? "";
        return {
          faults: [`the look at its pages ended with ${end.exit ?? "a signal"}${said === "" ? "" : `: ${said}`}`],
          whole: true,
        };
      }
    },
    async disk(path) {
      let there = path;
      while (!existsSync(there) && dirname(there) !== there) there = dirname(there);
      const { bavail, bsize, files, ffree } = await statfs(there);
      return { freeBytes: bavail * bsize, freeFiles: files === 0 ? null : ffree };
    },
    path: completePath(env["PATH"] ?? "", env["HOME"] ?? "/", env["PNPM_HOME"]),
    ownPath: env["PATH"] ?? "",
    findTool,
    tools: TOOLS,
    stat(path) {
      const found = statSync(path, { throwIfNoEntry: false });
      if (found === undefined) return null;
      const { mode, size, birthtimeMs, mtimeMs } = found;
      return { mode, bytes: size, madeAt: birthtimeMs, changedAt: mtimeMs };
    },
    async list(path) {
      return existsSync(path) ? readdir(path) : [];
    },
    closeToOthers: (path) => chmodSync(path, 0o700),
    cgroups: canMakeCgroups,
    marked: () => processes.orphans(),
    end: (one) => processes.endMarked(one, table),
    process(pid) {
      const found = table.read(pid);
      return found === null || !processes.isAlive(found) ? null : { state: found.state, words: table.words(pid) };
    },
    async trees(known, most, oldMs) {
      const [{ openWorktrees }, { treeFaults }, { limits }] = await Promise.all([
        import("../execution/worktrees/open-worktrees.ts"),
        import("../execution/worktrees/tree-faults.ts"),
        world.settings(),
      ]);
      const trees = openWorktrees({
        root: places.worktrees,
        runs: places.runs,
        environment: env,
        // A git that hangs must not have this one hang.
        limits: { ...limits, gitMs: Math.min(limits.gitMs, GIT_MS) },
        table,
        log: () => {},
        looksOnly: true,
      });
      const now = world.clock.now();
      const strays = (await trees.strays(known, most)).filter(({ record }) => now - record.createdAt > oldMs);
      return [
        ...strays.map(({ record, state }) => ({ kind: "stray" as const, path: record.path, holds: state.holds })),
        ...treeFaults(places.worktrees, known, now - oldMs).map((fault) => ({ ...fault, holds: [] })),
      ];
    },
    async limits(pid) {
      return { ...hostLimits.limitsOf(pid), watchFault: await hostLimits.watchFault(places.state) };
    },
    async clockSynchronised() {
      const program = await findProgram(env, "timedatectl", "/", env["PATH"] ?? "");
      if (program === null) return null;
      const { exit, stdout } = await ask([program, "show", "--property=NTPSynchronized", "--value"], TOOL_MS);
      const said = stdout.toString().trim();
      return exit !== 0 || (said !== "yes" && said !== "no") ? null : said === "yes";
    },
    clockGaps: (since) => gapsIn(places.daemonLog, since),
  };
}

/** What the daemon wrote of the clocks, in its log and in those that were put aside. */
async function gapsIn(file: string, since: number): Promise<readonly ClockGap[]> {
  const { readDaemonLog } = await import("../ops/daemon/daemon-log-read.ts");
  const lines = (await readDaemonLog(file, LOG_LINES)) ?? [];
  return lines.flatMap((line) => {
    if (!("event" in line) || line.event !== "woke_after_gap" || Date.parse(line.at) < since) return [];
    const { cause, asleepMs, steppedMs } = line.data as { cause: string; asleepMs: number; steppedMs: number };
    return [{ at: Date.parse(line.at), cause, asleepMs, steppedMs }];
  });
}
