/**
 * P3: an attempt of a command, recorded, spawned to files, its exit recorded, settled: the processor time of the daemon and of
 * everything that it starts, against a lean Node that spawns "sh shim + status file", 8 at a time; and the rate of a daemon
 * that is 512 MiB larger, against its own.
 */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runPolicy } from "../src/core/loop.ts";
import { defaultLimits } from "../src/core/limits.ts";
import { commandTarget } from "../src/core/target.ts";
import { readMigrations } from "../src/store/migrate.ts";
import { operations } from "../src/store/operations.ts";
import { openDirectStore } from "../src/store/sqlite.ts";
import { openFrame, sqliteFacts } from "./frame.ts";
import { openHome } from "./homes.ts";
import { ratioIn, type Sample } from "./rounds.ts";
import { treeCpu } from "./tree-cpu.ts";

/** What a young process compiles is over by then: an attempt of a daemon that runs through the night is measured. */
const BEFORE = 1_200;
const ATTEMPTS = 800;
const AT_ONCE = 8;
const COMMAND = "/bin/true";
/** Nothing old is removed meanwhile, and the disk may be nearly full. */
const SETTINGS = `limits:\n  retentionMs: 315360000000\n  commandCap: ${AT_ONCE}\n`;

interface Sizes {
  readonly folder: string;
  readonly count: number;
}

/** The bare shape, in a process of its own: an output, an error output and a status file each. */
async function bare({ folder, count }: Sizes): Promise<Sample> {
  const script = `"$@" >"$O" 2>"$E" </dev/null; echo $? >"$S"`;
  let next = 0;
  const one = async (): Promise<void> => {
    while (next < count) {
      const key = join(folder, String(next++));
      const env = { PATH: "/usr/bin:/bin", O: `${key}.out`, E: `${key}.err`, S: `${key}.st` };
      const child = spawn("/bin/sh", ["-c", script, "shim", COMMAND], { detached: true, stdio: "ignore", env });
      await new Promise((done) => child.on("exit", done));
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return {};
}

/** Runs that wait in a store, as a daemon that comes up finds them. */
async function queue(folder: string, count: number): Promise<void> {
  const home = openHome(folder, resolve("dist/drover.js"), null);
  writeFileSync(join(folder, "home/config.yaml"), SETTINGS);
  home.drover(["loop", "add", "far", "--at", "2100-01-01T00:00:00Z", "--", COMMAND]);
  const handle = await openDirectStore({
    file: join(folder, "home/drover.db"),
    table: operations,
    clock: { now: Date.now },
    migrations: readMigrations(pathToFileURL(`${resolve("src/store/migrations")}/`)),
  });
  for (let i = 0; i < count; i++)
    await handle.store.runs.add({
      kind: "command",
      target: commandTarget.parse({ kind: "command", argv: [COMMAND], cwd: "/" }),
      policy: runPolicy.parse({}),
      originKind: "person",
      originId: null,
      idempotencyKey: null,
      parentRunId: null,
      hostPin: null,
      limits: defaultLimits,
    });
  await handle.close();
}

async function main(): Promise<void> {
  const frame = await openFrame({ bars: ["P3"], cases: { bare } });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  const ballast = join(folder, "ballast.cjs");
  writeFileSync(
    ballast,
    'if (require("node:worker_threads").isMainThread) globalThis.ballast = Buffer.alloc(512 * 1024 * 1024, 1);\n',
  );
  const before = frame.size(BEFORE, 4);
  const count = frame.size(ATTEMPTS, 8);
  let places = 0;
  /** What each attempt costs over what a process costs that starts so many less. */
  const each = async (run: (own: string, count: number) => ReturnType<typeof treeCpu>): Promise<Sample> => {
    const taken = [];
    for (const size of [before, before + count]) {
      const own = join(folder, String(places++));
      mkdirSync(own);
      // Nothing is removed before the end: for minutes ext4 steps over the inodes of what was removed, one after another.
      taken.push(await run(own, size));
    }
    const [some, all] = taken;
    if (some === undefined || all === undefined) throw new Error("both were measured");
    return { cpuMs: (all.cpuMs - some.cpuMs) / count, perSecond: (count * 1_000) / (all.ms - some.ms) };
  };
  const ours = (options: readonly string[]) =>
    each(async (own, size) => {
      await queue(own, size);
      const env = { PATH: process.env["PATH"] ?? "/usr/bin:/bin", HOME: own, DROVER_HOME: join(own, "home") };
      const up = [process.execPath, ...options, resolve("dist/drover.js"), "up", "--foreground", "--until-idle"];
      const used = await treeCpu(own, up, env);
      const ended = openHome(own, resolve("dist/drover.js"), null).drover([
        "runs",
        "--json",
        "--limit",
        "1",
        "--status",
        "succeeded",
      ]);
      if (!ended.out.includes('"succeeded"')) throw new Error("nothing has run");
      return used;
    });
  try {
    frame.about({ ...sqliteFacts(), durability: "SQLite WAL, synchronous=FULL; the bare shape syncs nothing" });
    const taken = await frame.interleave({
      bare: () =>
        each((own, size) => {
          const input = JSON.stringify({ folder: own, count: size } satisfies Sizes);
          const words = [process.execPath, process.argv[1] ?? "", "--case", "bare", "--input", input];
          return treeCpu(own, words, { PATH: process.env["PATH"] ?? "/usr/bin:/bin" });
        }),
      ours: () => ours([]),
      large: () => ours(["--require", ballast]),
    });
    frame.measure("sh shim + status file, spawned by a lean Node", taken.bare, "cpuMs", "ms CPU each");
    frame.measure("an attempt, from its grant to its settlement", taken.ours, "cpuMs", "ms CPU each");
    frame.measure("an attempt, with a daemon 512 MiB larger", taken.large, "cpuMs", "ms CPU each");
    frame.measure("sh shim + status file", taken.bare, "perSecond", "each second");
    frame.measure("attempts", taken.ours, "perSecond", "each second");
    frame.measure("attempts, with a daemon 512 MiB larger", taken.large, "perSecond", "each second");
    frame.bar("P3", "processor time of an attempt / the bare shape", ratioIn(taken.ours, taken.bare, "cpuMs"), {
      atMost: 1.5,
    });
    frame.bar("P3", "rate with 512 MiB more / our own", ratioIn(taken.large, taken.ours, "perSecond"), {
      atLeast: 0.8,
    });
    frame.end();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
