/** One installation of the real program in a folder of its own, driven as a person would, and its processes found in /proc. */
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { endPids } from "../children.ts";

export const builtProgram = fileURLToPath(new URL("../../dist/drover.js", import.meta.url));

export interface Answer {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly state: string;
  readonly command: string;
}

export interface Installation {
  readonly home: string;
  /** Which built program the next commands use. */
  program: string;
  run(...args: string[]): Promise<Answer>;
  /** Runs a command that has to succeed, and reads what it prints. */
  json<T>(...args: string[]): Promise<T>;
  /** The daemon's pid, from the lock's side file or the process table; null when none runs. */
  daemons(): number[];
  spawners(): number[];
  shims(): number[];
  /** Processes whose environment says that an attempt of this installation started them. */
  marked(): Process[];
  close(): Promise<void>;
}

const commandLine = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
  } catch {
    return "";
  }
};

/** Whether a command line is that of a resident spawner: perl's, or the shell's. */
export const isSpawnerLine = (words: string): boolean => /^(\S*sh[ \0]-s|drover-resident)([ \0]|$)/.test(words);

/** The process table, zombies left out. */
export function processes(): Process[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      try {
        const stat = readFileSync(`/proc/${name}/stat`, "utf8");
        const [state, parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
        if (state === undefined || parent === undefined || state === "Z" || state === "X") return [];
        return [{ pid: Number(name), parent: Number(parent), state, command: commandLine(Number(name)) }];
      } catch {
        return [];
      }
    });
}

const environmentOf = (pid: number): string => {
  try {
    return readFileSync(`/proc/${pid}/environ`, "utf8");
  } catch {
    return "";
  }
};

/** @param store `sqlite` in the home, or the address of a database */
export function install(
  options: { readonly store?: string; readonly program?: string; readonly env?: Readonly<Record<string, string>> } = {},
): Installation {
  const home = mkdtempSync(join(tmpdir(), "drover-"));
  const env: Record<string, string> = {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    HOME: home,
    DROVER_HOME: join(home, "state"),
    NO_COLOR: "1",
    ...(options.store === undefined ? {} : { DROVER_STORE: options.store }),
    ...options.env,
  };
  const state = join(home, "state");
  const mine = (pid: number) => environmentOf(pid).includes(`DROVER_HOME=${state}\0`);

  const installation: Installation = {
    home,
    program: options.program ?? builtProgram,
    run(...args) {
      return new Promise((resolve) => {
        execFile(
          process.execPath,
          [installation.program, ...args],
          { env, cwd: home, maxBuffer: 64 * 1024 * 1024 },
          (error, stdout, stderr) => {
            const status = error === null ? 0 : typeof error.code === "number" ? error.code : -1;
            resolve({ status, stdout, stderr });
          },
        );
      });
    },
    async json<T>(...args: string[]) {
      // What stands behind `--` belongs to the command.
      const dashes = args.indexOf("--");
      const at = dashes === -1 ? args.length : dashes;
      const answer = await installation.run(...args.slice(0, at), "--json", ...args.slice(at));
      if (answer.status !== 0)
        throw new Error(`drover ${args.join(" ")} ended with ${answer.status}: ${answer.stderr}`);
      return JSON.parse(answer.stdout) as T;
    },
    daemons: () =>
      processes()
        .filter((one) => one.command.includes("drover.js") && mine(one.pid) && / up /.test(`${one.command} `))
        .map((one) => one.pid),
    spawners() {
      const daemons = new Set(installation.daemons());
      return processes()
        .filter((one) => daemons.has(one.parent) && isSpawnerLine(one.command))
        .map((one) => one.pid);
    },
    shims: () =>
      processes()
        .filter(
          (one) =>
            one.command.includes(`${state}/runs/`) && /^\S*sh /.test(one.command) && !one.command.includes(" -s"),
        )
        .map((one) => one.pid),
    marked: () =>
      processes().filter(
        (one) => environmentOf(one.pid).includes(`DROVER_SOCKET=`) && environmentOf(one.pid).includes(state),
      ),
    async close() {
      await installation.run("down", "--stop-runs", "--drain", "0s");
      endPids([...installation.daemons(), ...installation.spawners(), ...installation.marked().map((one) => one.pid)]);
      rmSync(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
  return installation;
}

/** Waits for a condition, looking often; fails with what was seen last. The deadline is for a machine that is busy. */
export async function until<T>(
  what: string,
  look: () => Promise<T | null | undefined | false> | T | null | undefined | false,
  deadlineMs = 60_000,
  lookMs = 20,
): Promise<T> {
  const end = performance.now() + deadlineMs;
  for (;;) {
    const seen = await look();
    if (seen !== null && seen !== undefined && seen !== false) return seen;
    if (performance.now() > end) throw new Error(`waited ${deadlineMs} ms in vain for: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, lookMs));
  }
}

/** A seeded chance (mulberry32), so that a failure can be played again. */
export function chance(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 0x1_0000_0000;
  };
}
