/**
 * `kill -9` at random moments, a third each of daemon, spawner and shim, while six loops fire every second. Each child
 * writes down who it is and how it ends; afterwards the store has to tell the same story.
 * DROVER_KILLS (200) and DROVER_SEED (printed) repeat a failure.
 */
import { cpSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import type { Page, Store } from "../../src/core/ports.ts";
import type { RunRecord, RunTree, SlotRecord } from "../../src/core/records.ts";
import { makeDatabase } from "../postgres.ts";
import { builtProgram, chance, install, until, type Installation } from "./installation.ts";
import { openForReading } from "./reading.ts";

const KILLS = Number(process.env["DROVER_KILLS"] ?? 200);
const SEED = Number(process.env["DROVER_SEED"] ?? Date.now() % 1_000_000);
const LOOPS = 6;
const folders: string[] = [];
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** The same program under a later version: what an upgrade puts in the place of the running one. */
function newerBuild(): string {
  const folder = mkdtempSync(join(tmpdir(), "drover-newer-"));
  folders.push(folder);
  cpSync(dirname(builtProgram), join(folder, "dist"), { recursive: true });
  cpSync(join(dirname(builtProgram), "..", "package.json"), join(folder, "package.json"));
  const modules = join(dirname(builtProgram), "..", "node_modules");
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string };
  const [major, minor, patch] = version.split(".");
  const later = `${major}.${minor}.${Number(patch) + 1}`;
  let changed = 0;
  for (const name of readdirSync(join(folder, "dist"), { recursive: true, encoding: "utf8" })) {
    if (!/\.m?js$/.test(name)) continue;
    const text = readFileSync(join(folder, "dist", name), "utf8");
    if (!text.includes(`"${version}"`)) continue;
    changed++;
    writeFileSync(join(folder, "dist", name), text.replaceAll(`"${version}"`, `"${later}"`));
  }
  if (changed === 0) throw new Error("the built program does not name its version");
  cpSync(modules, join(folder, "node_modules"), {
    recursive: true,
    filter: (path) =>
      path === modules ||
      /node_modules\/(better-sqlite3|bindings|file-uri-to-path|pg[^/]*|postgres-[^/]*|xtend|split2)(\/|$)/.test(path),
  });
  return join(folder, "dist", "drover.js");
}

interface Line {
  readonly loop: string;
  readonly slot: string;
  readonly attempt: string;
  readonly what: string;
}

const linesOf = (file: string): Line[] =>
  existsSync(file)
    ? readFileSync(file, "utf8")
        .split("\n")
        .filter((line) => line.endsWith(";"))
        .map((line) => {
          const [loop = "", slot = "", attempt = "", what = ""] = line.slice(0, -1).split("|");
          return { loop, slot, attempt, what };
        })
    : [];

async function allRuns(store: Store): Promise<RunTree[]> {
  const trees: RunTree[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<RunRecord> = await store.runs.list({
      limit: 200,
      cursor,
      loopId: null,
      status: null,
      label: null,
      since: null,
    });
    for (const run of page.items) {
      const tree = await store.runs.get({ runId: run.id });
      if (tree !== null) trees.push(tree);
    }
    cursor = page.next;
  } while (cursor !== null);
  return trees;
}

async function torment(
  at: Installation,
  next: () => number,
  programs: readonly string[],
): Promise<Record<string, number>> {
  const killed: Record<string, number> = { daemon: 0, spawner: 0, shim: 0 };
  const kinds = ["daemon", "spawner", "shim"] as const;
  for (let i = 0; i < KILLS; i++) {
    await new Promise((resolve) => setTimeout(resolve, 20 + next() * 400));
    const kind = kinds[i % 3] as (typeof kinds)[number];
    const candidates = await until(`a ${kind} to kill`, () => {
      const found = kind === "daemon" ? at.daemons() : kind === "spawner" ? at.spawners() : at.shims();
      return found.length > 0 && found;
    });
    const pid = candidates[Math.floor(next() * candidates.length)] as number;
    try {
      process.kill(pid, "SIGKILL");
      killed[kind] = (killed[kind] ?? 0) + 1;
    } catch {
      // it ended by itself in this moment; the next round has another
    }
    if (kind !== "daemon") continue;
    at.program = programs[Math.min(programs.length - 1, Math.floor((i / KILLS) * programs.length))] as string;
    const up = await at.run("up");
    expect(up.status, up.stderr).toBe(0);
  }
  return killed;
}

async function ordeal(store: string | undefined): Promise<void> {
  const programs = [builtProgram, newerBuild()];
  const at = install(store === undefined ? {} : { store });
  const next = chance(SEED);
  const diary = join(at.home, "diary");
  try {
    expect((await at.run("up")).status).toBe(0);
    // Distinct exit statuses; the true one is written by the child itself as the last thing that it does.
    const script = (status: number) =>
      `me="$DROVER_LOOP|$DROVER_SLOT|$DROVER_ATTEMPT_ID"; echo "$me|start;" >>${diary}; sleep 0.${status + 2}; echo "$me|exit ${status};" >>${diary}; exit ${status}`;
    for (let i = 0; i < LOOPS; i++)
      await at.json(
        "loop",
        "add",
        `loop${i}`,
        "--every",
        "1s",
        "--attempts",
        "2",
        "--backoff",
        "1s",
        "--breaker",
        "0",
        "--shell",
        script(i % 3),
      );
    const killed = await torment(at, next, programs);
    if (at.daemons().length === 0) expect((await at.run("up")).status).toBe(0);
    for (let i = 0; i < LOOPS; i++) await at.json("loop", "pause", `loop${i}`);
    await until("all runs to end", async () => {
      // What was due and had not started when its loop was paused waits with it; here nobody resumes it.
      const { items } = await at.json<{ items: { id: string }[] }>("runs", "--status", "queued");
      for (const { id } of items) await at.run("cancel", id);
      const { runs } = await at.json<{ runs: { running: number; queued: number; waiting: number } }>("status");
      return runs.running + runs.waiting + runs.queued === 0;
    });
    expect(Object.values(killed).reduce((sum, n) => sum + n, 0)).toBeGreaterThan(KILLS * 0.9);

    const reading = await openForReading(at, store);
    try {
      const trees = await allRuns(reading.store);
      const lines = linesOf(diary);
      const starts = lines.filter((line) => line.what === "start");
      const exits = new Map(
        lines.filter((line) => line.what.startsWith("exit")).map((line) => [line.attempt, Number(line.what.slice(5))]),
      );
      const attempts = new Map(
        trees.flatMap((tree) => tree.attempts.map((attempt) => [attempt.id, { tree, attempt }] as const)),
      );

      // No attempt starts twice.
      expect(new Set(starts.map((line) => line.attempt)).size).toBe(starts.length);
      // Every child belongs to a recorded attempt.
      for (const line of starts) expect(attempts.has(line.attempt), line.attempt).toBe(true);
      // A slot starts twice only with a recorded `lost`, or after a failure that was counted.
      const bySlot = new Map<string, Line[]>();
      for (const line of starts) {
        const slot = `${line.loop}@${line.slot}`;
        bySlot.set(slot, [...(bySlot.get(slot) ?? []), line]);
      }
      for (const [slot, list] of bySlot) {
        if (list.length === 1) continue;
        const before = list.slice(0, -1).map((line) => attempts.get(line.attempt)?.attempt);
        for (const attempt of before)
          expect(attempt?.status === "lost" || attempt?.status === "failed", `${slot}: ${attempt?.status}`).toBe(true);
      }
      let lost = 0;
      for (const { attempt } of attempts.values()) {
        expect(attempt.finishedAt, attempt.id).not.toBeNull();
        if (attempt.status === "lost") {
          if (attempt.counted) lost++;
          continue;
        }
        const truth = exits.get(attempt.id);
        // What ended by itself ended with the status that it says; nothing is told of one that never said anything.
        if (attempt.status === "succeeded") expect(truth, attempt.id).toBe(0);
        if (attempt.status === "failed" && attempt.class === "exit") expect(truth, attempt.id).toBe(attempt.exitStatus);
      }
      // Only a killed shim loses the end of an attempt.
      expect(lost).toBeLessThanOrEqual(killed["shim"] ?? 0);

      // Every instant of every loop, each once, with one word.
      const { items: loops } = await reading.store.loops.list({
        limit: 50,
        cursor: null,
        archived: false,
        label: null,
      });
      expect(loops).toHaveLength(LOOPS);
      for (const loop of loops) {
        const slots: { at: number; untilAt: number; outcome: string | null; count: number }[] = [];
        let cursor: string | null = null;
        do {
          const page: Page<SlotRecord> = await reading.store.slots.list({ loopId: loop.id, limit: 500, cursor });
          slots.push(...page.items);
          cursor = page.next;
        } while (cursor !== null);
        let expected = loop.anchoredAt + 1_000;
        for (const slot of slots.toReversed()) {
          expect(slot.at, `${loop.name}: instants are contiguous`).toBe(expected);
          expect(slot.outcome, `${loop.name} ${slot.at}`).not.toBeNull();
          expect(slot.count).toBe((slot.untilAt - slot.at) / 1_000 + 1);
          expected = slot.untilAt + 1_000;
        }
        expect(slots.length).toBeGreaterThan(KILLS / 20);
      }
      expect(at.marked(), "nothing is left behind").toEqual([]);
    } finally {
      await reading.close();
    }
  } catch (error) {
    // What a person would look at first, for a failure that may not come back.
    const [status, runs] = [await at.run("status"), await at.run("runs", "--limit", "12")];
    const log = join(at.home, "state", "logs", "daemon.log");
    const tail = existsSync(log) ? readFileSync(log, "utf8").slice(-4_000) : "no log";
    throw new Error(`${String(error)}\n${status.stdout}\n${runs.stdout}\n${tail}`, { cause: error });
  } finally {
    await at.close();
  }
}

describe(`kill -9 at ${KILLS} random moments (DROVER_SEED=${SEED})`, () => {
  test("B-019 on SQLite", { timeout: 900_000 }, () => ordeal(undefined));
  test("B-019 on PostgreSQL", { timeout: 900_000 }, async () => {
    const cluster = process.env["DROVER_TEST_POSTGRES"];
    expect(cluster, "the set-up of these tests starts a cluster").toBeDefined();
    await ordeal(await makeDatabase(cluster ?? ""));
  });
});
