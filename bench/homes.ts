/** Homes of the built program for benches: made by the program itself, then filled. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface Home {
  readonly folder: string;
  /** Runs a command to its end. Errors: when it did not end with 0, with what it said. */
  drover(args: readonly string[]): Ended;
}

export interface Ended {
  readonly out: string;
  /** From its start to its end, and what it used of the processor. */
  readonly ms: number;
  readonly cpuMs: number;
}

/**
 * Loaded into a command before anything else: at its end it tells what it used, which its parent cannot see. In a daemon,
 * which has the same options, SIGUSR2 begins to watch how long its event loop is held, and the next one writes that down.
 */
const TELLING = `
if (process.argv.includes("--foreground")) {
  const { writeFileSync, renameSync } = require("node:fs");
  const held = require("node:perf_hooks").monitorEventLoopDelay({ resolution: 1 });
  let on = false;
  process.on("SIGUSR2", () => {
    on = !on;
    if (on) return void held.enable();
    held.disable();
    writeFileSync(__dirname + "/held.new", String(held.percentile(99) / 1e6));
    renameSync(__dirname + "/held.new", __dirname + "/held");
  });
} else
  process.on("exit", () => { const { user, system } = process.cpuUsage(); require("node:fs").writeSync(3, String((user + system) / 1000)); });
`;

/** @param store the address of its store; null for the file that it has by itself */
export function openHome(folder: string, program: string, store: string | null): Home {
  mkdirSync(folder, { recursive: true });
  // The history is what is measured: none of it goes meanwhile.
  mkdirSync(join(folder, "home"), { recursive: true });
  writeFileSync(join(folder, "home/config.yaml"), "limits:\n  retentionMs: 315360000000\n");
  const telling = join(folder, "telling.cjs");
  writeFileSync(telling, TELLING);
  const env = {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    HOME: folder,
    LANG: "C.UTF-8",
    TZ: "UTC",
    DROVER_HOME: join(folder, "home"),
    ...(store === null ? {} : { DROVER_STORE: store }),
  };
  return {
    folder,
    drover(args) {
      const startedAt = performance.now();
      const { status, output } = spawnSync(process.execPath, ["--require", telling, program, ...args], {
        cwd: folder,
        env,
        encoding: "utf8",
        stdio: ["ignore", "pipe", "pipe", "pipe"],
        maxBuffer: 256 * 1024 * 1024,
      });
      const ms = performance.now() - startedAt;
      const [, out, err, used] = output;
      if (status !== 0) throw new Error(`drover ${args.join(" ")} ended with ${status}\n${out}\n${err}`);
      return { out: out ?? "", ms, cpuMs: Number(used) };
    },
  };
}

/** What a process that lives has used so far; null where the system does not say. */
export function usageOf(pid: number): {
  readonly cpuMs: number;
  readonly residentBytes: number;
  readonly written: number;
  readonly wakeUps: number;
} | null {
  const folder = `/proc/${pid}`;
  if (!existsSync(folder)) return null;
  const stat = readFileSync(`${folder}/stat`, "latin1")
    .replace(/^.*\) /s, "")
    .split(" ");
  const field = (file: string, name: string): number =>
    Number(new RegExp(`^${name}:\\s*(\\d+)`, "m").exec(readFileSync(`${folder}/${file}`, "latin1"))?.[1] ?? NaN);
  return {
    cpuMs: (Number(stat[11]) + Number(stat[12])) * 10,
    residentBytes: field("status", "VmRSS") * 1024,
    written: field("io", "write_bytes"),
    wakeUps: field("status", "voluntary_ctxt_switches"),
  };
}
