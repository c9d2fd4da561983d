/**
 * P7: what an agent costs that prints 1 GB: its own time against the same program writing to a plain file, how far the
 * daemon's memory grows meanwhile, and how long its event loop is held.
 */
import { spawnSync } from "node:child_process";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { startDaemon } from "./daemon.ts";
import { openFrame } from "./frame.ts";
import { usageOf } from "./homes.ts";
import { quantile, ratioIn, type Sample } from "./rounds.ts";
import { stampOf } from "./stamps.ts";

const MIB = 2 ** 20;
const LOOK_MS = 50;
const LIMIT_MS = 240_000;

interface OutputInput {
  readonly folder: string;
  readonly bytes: number;
}

/** A program that says when it begins, prints that much in lines, and says when it ends. */
function printer(folder: string, bytes: number): string {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "printer.sh");
  const line = "a line of an agent that has much to say, and says it again and again, as long as it may";
  writeFileSync(file, `#!/bin/sh\ndate +%s%N >&2\nyes '${line}' | head -c ${bytes}\ndate +%s%N >&2\n`, { mode: 0o755 });
  return file;
}

/** What it took, from what it said; null when it has not ended. */
function takenMs(text: string): number | null {
  const [begun, ended] = text.trim().split("\n");
  return begun === undefined || begun === "" || ended === undefined ? null : stampOf(ended) - stampOf(begun);
}

async function plain({ folder, bytes }: OutputInput): Promise<Sample> {
  const file = printer(folder, bytes);
  const [out, err] = [openSync(join(folder, "out"), "a"), openSync(join(folder, "err"), "a")];
  spawnSync(file, [], { stdio: ["ignore", out, err] });
  closeSync(out);
  closeSync(err);
  return { ms: takenMs(readFileSync(join(folder, "err"), "utf8")) ?? Number.NaN };
}

async function agent({ folder, bytes }: OutputInput): Promise<Sample> {
  const file = printer(folder, bytes);
  const daemon = startDaemon(join(folder, "home"), "");
  try {
    // The first run makes the resident spawner, and loads what agents need.
    const run = (command: string) =>
      daemon.call("run", {
        agent: "custom",
        agentCommand: command,
        prompt: "Go on.",
        cwd: folder,
        worktree: "off",
        detach: true,
      });
    await run(printer(join(folder, "small"), 4_096));
    await daemon.printed(1);
    await pause(2_000);
    const resident = () => usageOf(daemon.pid)?.residentBytes ?? 0;
    const before = resident();
    daemon.watch();
    await run(file);
    const taken: number[] = [];
    const endsAt = performance.now() + LIMIT_MS;
    let ms: number | null = null;
    while (ms === null) {
      taken.push(resident());
      if (performance.now() > endsAt) throw new Error("it did not come to its end");
      await pause(LOOK_MS);
      const ended = daemon
        .errors()
        .map(takenMs)
        .filter((one) => one !== null);
      if (ended.length > 1) ms = Math.max(...ended);
    }
    return { ms, grownMib: (quantile(taken, 1) - before) / MIB, heldP99: await daemon.held() };
  } finally {
    daemon.down();
  }
}

async function main(): Promise<void> {
  const frame = await openFrame({ bars: ["P7"], cases: { agent, plain } });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  let places = 0;
  const bytes = frame.size(1_000_000_000, 1_000_000);
  const inOwn = async (name: "agent" | "plain"): Promise<Sample> => {
    const own = join(folder, String(places++));
    try {
      return await frame.inProcess(name, { folder: own, bytes } satisfies OutputInput);
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
  };
  try {
    frame.about({ bytes: String(bytes) });
    const taken = await frame.interleave({ agent: () => inOwn("agent"), plain: () => inOwn("plain") });
    frame.measure("an agent's own time", taken.agent, "ms", "ms");
    frame.measure("the same program, to a plain file", taken.plain, "ms", "ms");
    frame.bar("P7", "an agent that prints / writing to a plain file", ratioIn(taken.agent, taken.plain, "ms"), {
      atMost: 1.1,
    });
    frame.value("P7", "the daemon's memory grows by", taken.agent, "grownMib", "MiB", { atMost: 16 });
    frame.value("P7", "event loop held, p99", taken.agent, "heldP99", "ms", { atMost: 20 });
    frame.end();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
