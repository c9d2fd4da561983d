/**
 * P12: a host at rest: resident memory of all our processes and their processor time against a bare Node that waits, what is
 * written to the disk, and transactions of PostgreSQL. `--only install` measures the installation of what is packed instead.
 */
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Client } from "pg";
import { makeDatabase, startPostgres } from "../test/postgres.ts";
import { startDaemon } from "./daemon.ts";
import { openFrame, sqliteFacts } from "./frame.ts";
import { usageOf } from "./homes.ts";
import { ratioIn, type Sample } from "./rounds.ts";

const REST_MS = 60_000;
/** What a start leaves to be done: the first beats, the first look of the janitor, a collection of garbage. */
const SETTLING_MS = 15_000;
const SETTINGS = "limits:\n  retentionMs: 315360000000\n";

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** A process and all that descend from it. */
function treeOf(root: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc").filter((one) => /^\d+$/.test(one)))
    try {
      const stat = readFileSync(`/proc/${name}/stat`, "latin1");
      parents.set(Number(name), Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]));
    } catch {
      // gone meanwhile
    }
  const tree = [root];
  for (const pid of tree) for (const [child, parent] of parents) if (parent === pid) tree.push(child);
  return tree;
}

/** Memory at the end of a rest, and what the rest took. Of our own memory the whole is counted, what processes share too. */
async function atRest(pid: number, settlingMs: number, restMs: number): Promise<Sample> {
  await pause(settlingMs);
  const sum = () => {
    const all = treeOf(pid).flatMap((one) => usageOf(one) ?? []);
    return {
      cpuMs: all.reduce((total, one) => total + one.cpuMs, 0),
      mib: all.reduce((total, one) => total + one.residentBytes, 0) / 1_048_576,
      written: all.reduce((total, one) => total + one.written, 0),
    };
  };
  const before = sum();
  await pause(restMs);
  const after = sum();
  return { mib: after.mib, cpuMs: Math.max(10, after.cpuMs - before.cpuMs), written: after.written - before.written };
}

async function install(folder: string): Promise<Sample> {
  const npm = (args: readonly string[], cwd: string): string => {
    const { status, stdout, stderr } = spawnSync("npm", [...args, "--no-audit", "--no-fund"], {
      cwd,
      encoding: "utf8",
    });
    if (status !== 0) throw new Error(`npm ${args.join(" ")} ended with ${status}\n${stderr}`);
    return stdout;
  };
  mkdirSync(join(folder, "place"), { recursive: true });
  const tarball = npm(["pack", "--silent", "--pack-destination", folder], resolve(".")).trim().split("\n").at(-1) ?? "";
  const startedAt = performance.now();
  npm(["install", "--prefix", join(folder, "place"), join(folder, tarball)], folder);
  const seconds = (performance.now() - startedAt) / 1_000;
  const { stdout } = spawnSync("du", ["-sm", join(folder, "place")], { encoding: "utf8" });
  return { seconds, mib: Number(stdout.split("\t")[0]) };
}

async function main(): Promise<void> {
  const frame = await openFrame({ bars: ["P12"], rounds: 3 });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  const [settling, rest] = [frame.size(SETTLING_MS, 500), frame.size(REST_MS, 1_000)];
  let places = 0;
  const place = () => join(folder, String(places++));
  const ours = async (store: string | null): Promise<Sample> => {
    const own = place();
    const daemon = startDaemon(own, SETTINGS, store);
    try {
      // With the resident spawner, which the first run makes.
      await daemon.call("run", { cwd: "/", command: ["/bin/echo", "here"], detach: true });
      await daemon.printed(1);
      return await atRest(daemon.pid, settling, rest);
    } finally {
      daemon.down();
      rmSync(own, { recursive: true, force: true });
    }
  };
  const bare = async (): Promise<Sample> => {
    const child = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "ignore" });
    try {
      return await atRest(child.pid ?? 0, settling, rest);
    } finally {
      child.kill();
    }
  };
  const cluster = frame.wants("install") && !frame.wants("rest") ? null : await startPostgres({ durable: true });
  /** Committed or not, of that database; asking is one of its own, each time. */
  const onPostgres = async (): Promise<Sample> => {
    const url = await makeDatabase(cluster?.url ?? "");
    const client = new Client({ connectionString: url });
    await client.connect();
    const count = async (): Promise<number> =>
      Number(
        (
          await client.query<{ count: string }>(
            "select xact_commit + xact_rollback as count from pg_stat_database where datname = current_database()",
          )
        ).rows[0]?.count,
      );
    const own = place();
    const daemon = startDaemon(own, SETTINGS, url);
    try {
      await pause(settling);
      const before = await count();
      await pause(rest);
      return { perSecond: (Math.max(0, (await count()) - before - 1) * 1_000) / rest };
    } finally {
      daemon.down();
      await client.end();
    }
  };
  try {
    if (frame.wants("rest")) {
      frame.about({ ...sqliteFacts(), durability: "SQLite WAL, synchronous=FULL; PostgreSQL synchronous_commit on" });
      const taken = await frame.interleave({ ours: () => ours(null), bare, postgres: onPostgres });
      frame.measure("our processes at rest: memory", taken.ours, "mib", "MiB");
      frame.measure("a bare Node that waits: memory", taken.bare, "mib", "MiB");
      frame.measure(`our processes at rest: processor time in ${rest / 1_000} s`, taken.ours, "cpuMs", "ms");
      frame.measure(`a bare Node that waits: processor time in ${rest / 1_000} s`, taken.bare, "cpuMs", "ms");
      frame.bar("P12", "memory at rest / bare Node", ratioIn(taken.ours, taken.bare, "mib"), { atMost: 1.7 });
      frame.bar("P12", "processor time at rest / bare Node", ratioIn(taken.ours, taken.bare, "cpuMs"), { atMost: 1.5 });
      frame.value("P12", `written to the disk in ${rest / 1_000} s`, taken.ours, "written", "bytes", { atMost: 0 });
      frame.value("P12", "transactions of PostgreSQL at rest", taken.postgres, "perSecond", "each second", {
        atMost: 1,
      });
    }
    // From a registry, and it may compile: nothing for a test of the bench itself.
    if (frame.wants("install") && !frame.tiny) {
      const taken = await frame.interleave({ install: () => install(place()) });
      frame.value("P12", "installation of the package", taken.install, "seconds", "s", { atMost: 60 });
      frame.value("P12", "the package and what it depends on", taken.install, "mib", "MiB", { atMost: 60 });
    }
    frame.end();
  } finally {
    await cluster?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
