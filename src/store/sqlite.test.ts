import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { endChild } from "../../test/children.ts";
import { migrations, table } from "../../test/store/table.ts";
import { buildWorker } from "../../test/writer.ts";
import type { AppError } from "../core/errors.ts";
import { storeClock } from "./contract.ts";
import { sql } from "./sql.ts";
import { openDirectStore, openMemoryStore, openReadStore, openWorkerStore } from "./sqlite.ts";
import { openSqlite, sqliteLibrary } from "./sqlite-adapters.ts";
import { Crash } from "./sqlite-group.ts";
import type { CutPoint } from "./sqlite-group.ts";
import type { WriterLimits } from "./sqlite-thread.ts";

let root: string;
let file: string;
let writer: URL;
let faulty: URL;
let made = 0;
const closing: { close(): Promise<void> }[] = [];
const children: ChildProcess[] = [];

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), "drover-sqlite-"));
  writer = await buildWorker("test/store/writer.ts");
  faulty = await buildWorker("test/store/faulty-writer.ts");
});
beforeEach(() => {
  file = join(root, String(++made), "drover.db");
});
afterEach(async () => {
  for (const one of closing.splice(0)) await one.close();
  for (const child of children.splice(0)) await endChild(child);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const keep = <Handle extends { close(): Promise<void> }>(handle: Handle): Handle => {
  closing.push(handle);
  return handle;
};
const clock = storeClock();
/** A group of planted faults is never cut short because the machine is busy: which callers share a commit is what these tests say. */
const uncut: Partial<WriterLimits> = { groupMs: 60_000 };
const openWorker = async (thread: URL = writer, limits: Partial<WriterLimits> = thread === faulty ? uncut : {}) =>
  keep(await openWorkerStore({ file, table, migrations, clock, writer: thread, limits, busyMs: 5000 }));
const openDirect = async (busyMs = 5000) => keep(await openDirectStore({ file, table, migrations, clock, busyMs }));

const codeOf = (error: unknown): string => (error as AppError).code ?? (error as Error).name;
const outcomes = async (calls: readonly Promise<unknown>[]): Promise<string[]> =>
  (await Promise.allSettled(calls)).map((one) => (one.status === "fulfilled" ? "done" : codeOf(one.reason)));

function start(entry: URL, args: readonly string[]): ChildProcess {
  const child = spawn(process.execPath, [fileURLToPath(entry), ...args], { stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  return child;
}

describe("the writer's failures", () => {
  test.each([
    ["full", "disk_full"],
    ["ioerr", "store_unreachable"],
    ["nomem", "store_unreachable"],
  ])(
    "a statement that rolls everything back (%s) is the answer of all who ran in that transaction",
    async (what, code) => {
      const { store } = await openWorker(faulty);
      const ids = ["a", "b", `fault:statement:${what}`, "c", "d"];
      expect(await outcomes(ids.map((id) => store.notes.add({ id, body: "x" })))).toEqual([
        code,
        code,
        code,
        "done",
        "done",
      ]);
      expect(await store.notes.list()).toEqual(["c", "d"]);
      expect(await store.notes.add({ id: "after", body: "x" })).toBe("added");
      expect((await store.notes.whole()).halves).toBe(0);
    },
  );

  test("B-070 a full disk as SQLite itself finds it: all of that transaction are told, nobody's row is there", async () => {
    const { store } = await openWorker(faulty);
    await store.notes.add({ id: "before", body: "x" });
    const big = "y".repeat(100_000);
    const answers = await outcomes([
      store.notes.add({ id: "a", body: "x" }),
      store.notes.add({ id: "fault:statement:small", body: big }),
    ]);
    expect(answers).toEqual(["disk_full", "disk_full"]);
    expect(await store.notes.list()).toEqual(["before"]);
  });

  test.each([
    ["full", "disk_full"],
    ["ioerr", "store_unreachable"],
  ])("a commit that fails (%s) fails every caller of its group, and the next group works", async (what, code) => {
    const { store } = await openWorker(faulty);
    const ids = ["a", `fault:commit:${what}`, "b"];
    expect(await outcomes(ids.map((id) => store.notes.add({ id, body: "x" })))).toEqual([code, code, code]);
    expect(await store.notes.list()).toEqual([]);
    expect(await store.notes.add({ id: "after", body: "x" })).toBe("added");
  });

  test("a commit that fails but leaves the transaction open is rolled back", async () => {
    const { store } = await openWorker(faulty);
    expect(await outcomes([store.notes.add({ id: "fault:commit:busy", body: "x" })])).toEqual(["store_busy"]);
    expect(await store.notes.list()).toEqual([]);
    expect(await store.notes.add({ id: "after", body: "x" })).toBe("added");
  });

  test("a begin that fails fails its group, and the next group works", async () => {
    const { store } = await openWorker(faulty);
    expect(await outcomes([store.notes.add({ id: "fault:begin:ioerr", body: "x" })])).toEqual(["done"]);
    expect(await outcomes(["a", "b"].map((id) => store.notes.add({ id, body: "x" })))).toEqual([
      "store_unreachable",
      "store_unreachable",
    ]);
    expect(await store.notes.add({ id: "after", body: "x" })).toBe("added");
  });

  test.each(["begin", "statement", "commit"])(
    "the writer's death in a %s answers every pending call, none as done",
    async (where) => {
      const handle = await openWorker(faulty);
      const { store } = handle;
      const failed = new Promise<AppError>((resolve) => handle.onFailure(resolve));
      await store.notes.add({ id: "before", body: "x" });
      if (where === "begin") await store.notes.add({ id: "fault:begin:exit", body: "x" });
      const first = outcomes(
        ["a", where === "begin" ? "b" : `fault:${where}:exit`, "c"].map((id) => store.notes.add({ id, body: "x" })),
      );
      // These are asked for while the group above is on its way.
      const later = new Promise<string[]>((resolve) => {
        setImmediate(() => setImmediate(() => resolve(outcomes([store.notes.add({ id: "later", body: "x" })]))));
      });
      expect(await first).toEqual(["outcome_unknown", "outcome_unknown", "outcome_unknown"]);
      expect(await later).toEqual(["store_unreachable"]);
      expect((await failed).code).toBe("store_unreachable");
      expect(await outcomes([store.notes.add({ id: "afterwards", body: "x" })])).toEqual(["store_unreachable"]);
      // Reading goes on, and shows that nothing of the group is there.
      expect(await store.notes.list()).toEqual(where === "begin" ? ["before", "fault:begin:exit"] : ["before"]);
    },
  );

  test("an error that nobody caught in the writer's thread is its death, not a hang", async () => {
    const { store } = await openWorker(faulty);
    await store.notes.add({ id: "fault:statement:throw", body: "x" }).catch(() => undefined);
    let answer = "done";
    while (answer === "done") [answer = ""] = await outcomes([store.notes.bump({ id: "x" })]);
    expect(["outcome_unknown", "store_unreachable"]).toContain(answer);
  });

  test("an input that cannot cross threads is its caller's fault alone", async () => {
    const { store } = await openWorker();
    const bad = { id: "bad", body: (() => 1) as unknown as string };
    expect(
      await outcomes([
        store.notes.add({ id: "a", body: "x" }),
        store.notes.add(bad),
        store.notes.add({ id: "b", body: "x" }),
      ]),
    ).toEqual(["done", "BrokenAssert", "done"]);
  });

  test("close waits for what was asked", async () => {
    const handle = await openWorker();
    const calls = Array.from({ length: 600 }, (_, i) => handle.store.notes.add({ id: `n${i}`, body: "x" }));
    await handle.close();
    expect(new Set(await outcomes(calls))).toEqual(new Set(["done"]));
    await expect(handle.store.notes.add({ id: "late", body: "x" })).rejects.toThrow("closed");
  });
});

describe("groups", () => {
  test("callers of one turn share a commit, up to the cap", async () => {
    const { store } = await openWorker(writer, { groupMs: 10_000 });
    const pages = async (): Promise<number> => {
      const reader = openSqlite(file, { readOnly: true });
      const { log } = reader.query("pragma wal_checkpoint(noop)", [], 0).rows[0] as { log: number };
      reader.close();
      return log;
    };
    await store.notes.add({ id: "warm", body: "x" });
    const before = await pages();
    await Promise.all(
      Array.from({ length: 100 }, (_, i) => store.notes.put({ id: `a${i}`, body: "x", number: 1, bytes: null })),
    );
    const together = (await pages()) - before;
    for (let i = 0; i < 20; i++) await store.notes.put({ id: `b${i}`, body: "x", number: 1, bytes: null });
    const alone = (await pages()) - before - together;
    // 100 in one commit write each page once; 20 commits of one write at least a page each.
    expect(together).toBeLessThan(20);
    expect(alone).toBeGreaterThanOrEqual(20);
  });

  test("a wave larger than the caps is answered whole and in order", async () => {
    const { store } = await openWorker(writer, { groupCallers: 7, groupMs: 1 });
    const order: number[] = [];
    await Promise.all(
      Array.from({ length: 500 }, async (_, i) => {
        await store.notes.add({ id: `n${i}`, body: "x", parts: 0 });
        order.push(i);
      }),
    );
    expect(order).toEqual(Array.from({ length: 500 }, (_, i) => i));
    expect(await store.notes.list()).toHaveLength(500);
  });

  test("the instant is the Clock's, one for each message", async () => {
    const { store } = await openWorker();
    clock.advance(5);
    const nows = await Promise.all([store.notes.now({}), store.notes.now({})]);
    expect(nows).toEqual([clock.now(), clock.now()]);
  });

  test("the log is moved into the file when there is nothing to do, then there is silence", async () => {
    const { store } = await openWorker(writer, { idleMs: 20, idleFrames: 50 });
    for (let i = 0; i < 100; i++) await store.notes.add({ id: `n${i}`, body: "x".repeat(3000) });
    const reader = openSqlite(file, { readOnly: true });
    try {
      const state = () =>
        reader.query("pragma wal_checkpoint(noop)", [], 0).rows[0] as { log: number; checkpointed: number };
      while (state().log !== state().checkpointed) await new Promise((resolve) => setTimeout(resolve, 10));
      expect(state().log).toBeGreaterThan(50);
    } finally {
      reader.close();
    }
  });

  test("a log that grew too large is cut off", async () => {
    const { store } = await openWorker(writer, { idleMs: 20, truncateBytes: 100_000 });
    for (let i = 0; i < 60; i++) await store.notes.add({ id: `n${i}`, body: "x".repeat(5000) });
    const { statSync } = await import("node:fs");
    while (statSync(`${file}-wal`).size > 0) await new Promise((resolve) => setTimeout(resolve, 10));
    expect(await store.notes.list()).toHaveLength(60);
  });
});

describe("several processes", () => {
  test("B-070 a lock held elsewhere is waited for: twenty callers, no error", async () => {
    const { store } = await openWorker();
    const holder = openSqlite(file);
    holder.exec("begin immediate");
    const calls = outcomes(Array.from({ length: 20 }, (_, i) => store.notes.add({ id: `n${i}`, body: "x" })));
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(await store.notes.list()).toEqual([]);
    holder.exec("rollback");
    holder.close();
    expect(new Set(await calls)).toEqual(new Set(["done"]));
  });

  test("B-070 a lock that is never released: every caller is told, nothing is half made, and then it works again", async () => {
    const handle = keep(await openWorkerStore({ file, table, migrations, clock, writer, busyMs: 100 }));
    const direct = await openDirect(100);
    const holder = openSqlite(file);
    holder.exec("begin immediate");
    const answers = await outcomes(["a", "b", "c"].map((id) => handle.store.notes.add({ id, body: "x" })));
    expect(answers).toEqual(["store_busy", "store_busy", "store_busy"]);
    expect(await outcomes([direct.store.notes.add({ id: "d", body: "x" })])).toEqual(["store_busy"]);
    holder.exec("rollback");
    holder.close();
    expect(await handle.store.notes.list()).toEqual([]);
    expect(await handle.store.notes.add({ id: "a", body: "x" })).toBe("added");
    expect(await direct.store.notes.add({ id: "d", body: "x" })).toBe("added");
  });

  test("a direct writer is not starved by a writer that never rests", async () => {
    const load = await buildWorker("test/store/load.ts");
    const child = start(load, ["sqlite", file, writer.href, "32"]);
    await once(child.stdout as NodeJS.ReadableStream, "data");
    const { store } = await openDirect();
    const tookMs: number[] = [];
    for (let i = 0; i < 30; i++) {
      const from = performance.now();
      await store.notes.add({ id: `mine${i}`, body: "x" });
      tookMs.push(performance.now() - from);
    }
    // The deadline of each is 5 s: a writer that never lets go would let all of them run into it.
    expect(Math.max(...tookMs)).toBeLessThan(2500);
    expect(child.exitCode).toBeNull();
  });

  test("a newer program that migrates meanwhile stops this writer with a clear word", async () => {
    const { store } = await openWorker();
    await store.notes.add({ id: "a", body: "x" });
    const newer = { ...migrations, "0003-more.sqlite.sql": "create table more (id text primary key)" };
    const later = keep(await openDirectStore({ file, table, migrations: newer, clock }));
    expect(later.applied).toEqual([3]);
    expect(await outcomes([store.notes.add({ id: "b", body: "x" })])).toEqual(["newer_schema"]);
    expect(await store.notes.list()).toEqual(["a"]);
  });

  test("a reader beside the writer sees what was acknowledged at once", async () => {
    const { store } = await openWorker();
    const reader = keep(await openReadStore({ file, table, migrations, clock }));
    for (let i = 0; i < 50; i++) {
      await store.notes.add({ id: `n${i}`, body: "x" });
      expect(await reader.store.notes.get({ id: `n${i}` })).not.toBeNull();
    }
    await expect(reader.store.notes.add({ id: "z", body: "x" })).rejects.toThrow("opened for writing");
  });
});

/** Lines of a child that is killed some moment after it has printed so many, however fast the machine is. */
async function killAfter(child: ChildProcess, count: number): Promise<string[]> {
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  let timer: NodeJS.Timeout | undefined;
  reader.on("line", (line) => {
    if (line !== "ready") lines.push(line);
    if (lines.length >= count) timer ??= setTimeout(() => child.kill("SIGKILL"), 10 * Math.random());
  });
  await Promise.all([once(child, "exit"), once(reader, "close")]);
  clearTimeout(timer);
  return lines;
}

test("kill -9 under load, again and again: what was acknowledged is there and whole, what failed is not", async () => {
  const load = await buildWorker("test/store/load.ts");
  const acknowledged = new Set<string>();
  const refused = new Set<string>();
  for (let round = 0; round < 6; round++) {
    const child = start(load, ["sqlite", file, writer.href, String([1, 32, 64][round % 3]), String(round)]);
    for (const line of await killAfter(child, 40 + 40 * Math.random())) {
      const [sign, id] = line.split(" ");
      // A last line may be cut by the kill.
      if (id?.split(".").length !== 3) continue;
      (sign === "+" ? acknowledged : refused).add(id);
    }
  }
  const { store } = await openWorker();
  const list = new Set(await store.notes.list());
  expect(acknowledged.size).toBeGreaterThan(100);
  expect(refused.size).toBeGreaterThan(10);
  expect([...acknowledged].slice(0, -1).filter((id) => !list.has(id))).toEqual([]);
  expect([...refused].filter((id) => list.has(id))).toEqual([]);
  expect((await store.notes.whole()).halves).toBe(0);
  // Asking again for something whose answer was lost is harmless.
  for (const id of [...acknowledged].slice(-3)) expect(await store.notes.add({ id, body: "x" })).toBe("there");
});

describe("the heartbeat", () => {
  test("renews while the main thread beats, also while it is busy for a moment; nothing without live attempts", async () => {
    const handle = await openWorker();
    const answers: unknown[] = [];
    const heartbeat = handle.startHeartbeat({
      operation: "hosts.renew",
      input: { host: "h" },
      everyMs: 20,
      onAnswer: (answer) => answers.push(answer),
    });
    const count = async (): Promise<number> => (await handle.store.hosts.beats({ host: "h" }))?.count ?? 0;
    heartbeat.beat(false);
    // Longer than several renewals; that none happened shows in the first answer's count below.
    const quietUntil = performance.now() + 100;
    while (performance.now() < quietUntil) await new Promise((resolve) => setImmediate(resolve));
    expect(await count()).toBe(0);
    heartbeat.beat(true);
    while ((await count()) < 2) await new Promise((resolve) => setTimeout(resolve, 5));
    const before = await count();
    const endsAt = performance.now() + 300;
    while (performance.now() < endsAt);
    expect(await count()).toBeGreaterThan(before + 3);
    while (answers.length === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    expect(answers[0]).toEqual({ count: 1 });
    await heartbeat.stop();
    // The writer has answered that it stopped, so nothing can follow.
    const stopped = await count();
    await handle.store.notes.add({ id: "after", body: "x" });
    expect(await count()).toBe(stopped);
  });

  test("a main thread that stalls for longer than its patience ends the process", async () => {
    const child = start(await buildWorker("test/store/stall.ts"), ["sqlite", file, writer.href, "400"]);
    let said = "";
    child.stderr?.on("data", (chunk: Buffer) => {
      said += chunk.toString();
    });
    const [, signal] = (await once(child, "exit")) as [number | null, string | null];
    expect(signal).toBe("SIGKILL");
    expect(said).toContain("the main thread has not answered");
    const { store } = await openDirect();
    expect((await store.hosts.beats({ host: "h" }))?.count).toBeGreaterThan(2);
  });

  test("a process that was stopped for longer than the patience is not taken for stalled", async () => {
    const child = start(await buildWorker("test/store/stall.ts"), ["sqlite", file, writer.href, "2000"]);
    await once(child.stdout as NodeJS.ReadableStream, "data");
    child.kill("SIGSTOP");
    await new Promise((resolve) => setTimeout(resolve, 2500));
    child.kill("SIGCONT");
    const from = performance.now();
    await once(child, "exit");
    // It stalls from its first line on; the time in which it was stopped does not count.
    expect(performance.now() - from).toBeGreaterThan(1000);
  });
});

describe("in memory", () => {
  test("a call has run to its end when it returns", () => {
    const memory = keep(openMemoryStore({ table, migrations, clock }));
    void memory.store.notes.add({ id: "a", body: "x" });
    expect(memory.rows(sql`select id from notes`)).toEqual([{ id: "a" }]);
  });

  test("the same seed gives the same ids", async () => {
    const ids = async (): Promise<string[]> => {
      let n = 0;
      const memory = keep(openMemoryStore({ table, migrations, clock, mint: (kind) => `${kind}_${++n}` }));
      return [await memory.store.notes.mint({}), await memory.store.notes.mint({})];
    };
    expect(await ids()).toEqual(["run_1", "run_2"]);
  });

  test("a crash at each point of an operation leaves all of it or nothing", async () => {
    const points: CutPoint[] = [];
    const memory = keep(
      openMemoryStore({
        table,
        migrations,
        clock,
        cut: (point) => {
          points.push(point);
          if (points.length - 1 === crashAt) throw new Crash("here");
        },
      }),
    );
    let crashAt = -1;
    await memory.store.notes.add({ id: "whole", body: "x" });
    const all = points.splice(0);
    expect(all.map((point) => point.at)).toEqual(["ask", "ask", "ask", "commit", "answer"]);
    for (crashAt = 0; crashAt < all.length; crashAt++) {
      points.length = 0;
      await expect(memory.store.notes.add({ id: `n${crashAt}`, body: "x" })).rejects.toBeInstanceOf(Crash);
      const there = (await memory.store.notes.list()).includes(`n${crashAt}`);
      expect(there).toBe(all[crashAt]?.at === "answer");
      expect((await memory.store.notes.whole()).halves).toBe(0);
    }
    crashAt = -1;
    expect(await memory.store.notes.add({ id: "n0", body: "x" })).toBe("added");
  });
});

test("the library is chosen by the version of Node, not by what is there", () => {
  expect(sqliteLibrary("20.20.2")).toBe("better-sqlite3");
  expect(sqliteLibrary("22.23.0")).toBe("better-sqlite3");
  expect(sqliteLibrary("24.0.0")).toBe("node:sqlite");
  expect(sqliteLibrary("26.1.0")).toBe("node:sqlite");
});
