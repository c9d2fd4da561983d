/**
 * P9: how soon a command is done that only looks: `--version` against an empty Node, lists against "Node with the SQLite
 * library, open, select". Each start is a process of its own, and each measure is the median of a round's starts.
 */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { sqliteLibrary } from "../src/store/sqlite-adapters.ts";
import { openFrame, sqliteFacts } from "./frame.ts";
import { openHome } from "./homes.ts";
import { quantile, ratioIn, type Sample } from "./rounds.ts";
import { treeCpu } from "./tree-cpu.ts";

const STARTS = 7;
const LOOPS = 40;

/** Opens a file and selects, as a program of one page would. */
const floorText = (library: string): string => {
  const { Database, open } =
    library === "node:sqlite"
      ? { Database: "require('node:sqlite').DatabaseSync", open: "db.exec('pragma journal_mode=wal');" }
      : {
          Database: `require(${JSON.stringify(createRequire(resolve("package.json")).resolve(library))})`,
          open: "db.pragma('journal_mode=wal');",
        };
  return `const Database = ${Database}; const db = new Database(process.argv[2]); ${open}
db.exec("create table if not exists loops(id text primary key, name text)");
console.log(db.prepare("select * from loops limit 50").all().length);`;
};

async function main(): Promise<void> {
  const frame = await openFrame({ bars: ["P9"] });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  const program = resolve("dist/drover.js");
  try {
    const home = openHome(folder, program, null);
    for (let i = 0; i < frame.size(LOOPS, 2); i++)
      home.drover(["loop", "add", `loop-${i}`, "--every", "12h", "--", "true"]);
    const floor = join(folder, "floor.cjs");
    writeFileSync(floor, floorText(sqliteLibrary()));
    const empty = join(folder, "empty.cjs");
    writeFileSync(empty, "");
    const env = {
      PATH: process.env["PATH"] ?? "/usr/bin:/bin",
      HOME: folder,
      LANG: "C.UTF-8",
      TZ: "UTC",
      DROVER_HOME: join(folder, "home"),
    };
    const starts = async (args: readonly string[]): Promise<Sample> => {
      const count = frame.size(STARTS, 1);
      const taken = Array.from({ length: count }, () => {
        const startedAt = performance.now();
        const { status, stderr } = spawnSync(process.execPath, args, { env, stdio: ["ignore", "pipe", "pipe"] });
        if (status !== 0) throw new Error(`${args.join(" ")} ended with ${status}\n${stderr}`);
        return performance.now() - startedAt;
      });
      // One process that starts them all: the time of each is less than the clock of processor time can tell.
      const words = `for (let i = 0; i < ${count}; i++) require("node:child_process").spawnSync(process.execPath, process.argv.slice(1), { stdio: ["ignore", "pipe", "pipe"] });`;
      const [none, all] = [
        await treeCpu(folder, [process.execPath, "-e", "0"], env),
        await treeCpu(folder, [process.execPath, "-e", words, "--", ...args], env),
      ];
      return { ms: quantile(taken, 0.5), cpuMs: (all.cpuMs - none.cpuMs) / count };
    };
    frame.about(sqliteFacts());
    const taken = await frame.interleave({
      empty: () => starts([empty]),
      version: () => starts([program, "--version"]),
      floor: () => starts([floor, join(folder, "floor.db")]),
      runs: () => starts([program, "runs", "--json"]),
      loops: () => starts([program, "loop", "ls"]),
      status: () => starts([program, "status"]),
    });
    for (const [what, samples] of [
      ["an empty file", taken.empty],
      ["drover --version", taken.version],
      ["the SQLite library, open, select", taken.floor],
      ["drover runs --json", taken.runs],
      ["drover loop ls", taken.loops],
      ["drover status", taken.status],
    ] as const) {
      frame.measure(what, samples, "ms", "ms");
      frame.measure(`${what}: processor time`, samples, "cpuMs", "ms");
    }
    for (const [measure, words] of [
      ["ms", ""],
      ["cpuMs", ", processor time"],
    ] as const) {
      frame.bar("P9", `--version / an empty Node${words}`, ratioIn(taken.version, taken.empty, measure), {
        atMost: 1.1,
      });
      for (const [what, samples] of [
        ["runs", taken.runs],
        ["loop ls", taken.loops],
      ] as const)
        frame.bar("P9", `${what} / library, open, select${words}`, ratioIn(samples, taken.floor, measure), {
          atMost: 1.35,
        });
    }
    frame.end();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
