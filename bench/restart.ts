/**
 * P10: a daemon that is killed with live attempts, and the next one: how long until all of them are adopted, until the first
 * new attempt starts, against a clean start, and whether the status and the output of each is recorded as it was.
 */
import { spawn, spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { findTool } from "../src/execution/resident.ts";
import { callDaemon } from "../src/http/client.ts";
import { startDaemon } from "./daemon.ts";
import { openFrame, sqliteFacts } from "./frame.ts";
import { ratioIn, type Sample } from "./rounds.ts";
import { STAMP, stampOf, wallMs } from "./stamps.ts";

const LIVE = 500;
const PATIENCE_MS = 120_000;
/** Nothing old is removed meanwhile, and all of them may live at once. */
const SETTINGS = "limits:\n  retentionMs: 315360000000\n  commandCap: 1000\n";

interface Sizes {
  readonly folder: string;
  readonly live: number;
}

interface Run {
  readonly id: string;
  readonly status: string;
  readonly exitCode: number | null;
}

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

async function until<T>(what: string, look: () => T | null | Promise<T | null>): Promise<T> {
  const endsAt = performance.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found !== null) return found;
    if (performance.now() > endsAt) throw new Error(`${what} did not come`);
    await pause(10);
  }
}

/** When a line of the daemon's log with that event was written last; null when none was since. */
function loggedAt(log: string, event: string, since: number): number | null {
  const lines = existsSync(log) ? readFileSync(log, "utf8").trim().split("\n") : [];
  const found = lines
    .map((line) => JSON.parse(line) as { at: string; event: string })
    .findLast((line) => line.event === event && Date.parse(line.at) >= since);
  return found === undefined ? null : Date.parse(found.at);
}

/**
 * Starts a daemon anew over what is there, with a run that waits for it: from its start to that run's first instruction,
 * and how long recovery took.
 */
async function again(folder: string, stamp: string): Promise<Sample> {
  const home = join(folder, "home");
  const startedAt = wallMs();
  const env = { PATH: process.env["PATH"] ?? "/usr/bin:/bin", HOME: folder, DROVER_HOME: home };
  const child = spawn(process.execPath, [resolve("dist/drover.js"), "up", "--foreground"], {
    cwd: folder,
    env,
    stdio: "ignore",
  });
  const firstAt = await until("the first start", () => {
    if (child.exitCode !== null) throw new Error(`the daemon ended with ${child.exitCode}`);
    return existsSync(stamp) && readFileSync(stamp, "utf8").endsWith("\n")
      ? stampOf(readFileSync(stamp, "utf8"))
      : null;
  });
  const log = join(home, "logs/daemon.log");
  const began = loggedAt(log, "engine_started", startedAt - 1);
  const recovered = loggedAt(log, "recovered", startedAt - 1);
  return {
    firstMs: firstAt - startedAt,
    adoptedMs: began === null || recovered === null ? 0 : recovered - began,
  };
}

/** Kills a daemon over `live` attempts and starts the next one; with none it is the clean start that both are held against. */
async function killed({ folder, live }: Sizes): Promise<Sample> {
  mkdirSync(folder, { recursive: true });
  const first = startDaemon(folder, SETTINGS);
  const home = join(folder, "home");
  const go = join(folder, "go");
  const stamp = join(folder, "stamp");
  try {
    // Each waits in its shell for the pipe to be opened and closed: 500 that sleep would be a load of their own.
    spawnSync(findTool("mkfifo") ?? "mkfifo", [go]);
    const script = `echo "out $0"; read -r _ <${go}; exit $(($0 % 7))`;
    for (let i = 0; i < live; i++)
      await first.call("run", { cwd: "/", command: ["/bin/sh", "-c", script, String(i)], detach: true });
    await first.printed(live);
    // Due while nobody is up: what the next daemon has to decide first.
    const at = new Date(Math.ceil(wallMs()) + 1_500).toISOString();
    await first.call("loop.add", {
      name: "next",
      at,
      cwd: "/",
      command: ["/bin/sh", "-c", `${STAMP.join(" ")} >${stamp}.new; mv ${stamp}.new ${stamp}`],
    });
    process.kill(first.pid, "SIGKILL");
    await pause(2_000);
    const sample = await again(folder, stamp);
    const opened = openSync(go, "r+");
    await pause(500);
    closeSync(opened);
    const socket = readFileSync(join(home, "daemon.socket"), "utf8").trim();
    const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
    const call = (name: string, input: unknown) =>
      callDaemon({ socket, version, runToken: null, insideRun: false }, name, input);
    await until("the end of all", async () => {
      const { items } = (await call("runs", { status: ["running", "queued", "waiting"], limit: 1 })) as {
        items: Run[];
      };
      return items.length === 0 ? true : null;
    });
    const runs: Run[] = [];
    for (let cursor: string | null = null; ; ) {
      const page = (await call("runs", { limit: 100, ...(cursor === null ? {} : { cursor }) })) as {
        items: Run[];
        next: string | null;
      };
      runs.push(...page.items);
      if (page.next === null) break;
      cursor = page.next;
    }
    // Each printed its number and ends with a status that is made of it.
    let wrong = 0;
    for (const { id } of runs) {
      const run = (await call("show", { run: id })) as {
        exitCode: number | null;
        steps: { attempts: { tail: string | null; exitCode: number | null }[] }[];
      };
      const attempts = run.steps.flatMap((step) => step.attempts);
      const number = /^out (\d+)$/m.exec(attempts[0]?.tail ?? "")?.[1];
      if (number === undefined) continue;
      if (attempts.length !== 1 || run.exitCode !== Number(number) % 7) wrong++;
    }
    return { ...sample, wrong: wrong + Math.abs(runs.length - live - 1) };
  } finally {
    first.down();
  }
}

async function main(): Promise<void> {
  const frame = await openFrame({ bars: ["P10"], cases: { killed } });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  let places = 0;
  const inOwn = async (live: number): Promise<Sample> => {
    const own = join(folder, String(places++));
    try {
      return await frame.inProcess("killed", { folder: own, live } satisfies Sizes);
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
  };
  try {
    frame.about({ ...sqliteFacts(), durability: "SQLite WAL, synchronous=FULL" });
    const live = frame.size(LIVE, 3);
    const taken = await frame.interleave({ restart: () => inOwn(live), clean: () => inOwn(0) });
    frame.measure(
      `start to the first decision, after a kill with ${live} live attempts`,
      taken.restart,
      "firstMs",
      "ms",
    );
    frame.measure("start to the first decision, with none", taken.clean, "firstMs", "ms");
    frame.value("P10", `${live} live attempts adopted`, taken.restart, "adoptedMs", "ms", { atMost: 1_000 });
    frame.value("P10", "attempts without their true status and output", taken.restart, "wrong", "of them", {
      atMost: 0,
    });
    frame.bar("P10", "first decision after a kill / clean start", ratioIn(taken.restart, taken.clean, "firstMs"), {
      atMost: 2,
    });
    frame.end();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
