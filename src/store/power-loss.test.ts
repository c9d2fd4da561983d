/**
 * Power that fails while the SQLite store is written: its log ends at any frame, inside one, or goes on with what was never
 * flushed. Whatever is left opens, is whole, and holds everything that had been acknowledged when the log was that long.
 */
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { commandOf, outcomeOf, runDraft } from "../../test/drafts.ts";
import { createWitness, readTables, type Tables } from "../../test/fault/truth.ts";
import { buildWorker } from "../../test/writer.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { loopPolicy, runPolicy } from "../core/loop.ts";
import type { Store } from "../core/ports.ts";
import { storeClock } from "./contract.ts";
import { faultsOf } from "./integrity.ts";
import { ownMigrations } from "./migrate.ts";
import { asStore, operations } from "./operations.ts";
import { openDirectStore, openWorkerStore } from "./sqlite.ts";
import { openSqlite } from "./sqlite-adapters.ts";

const HOST = "host_00000000000000000000000001";
const FRAME_HEADER_BYTES = 24;
const LOG_HEADER_BYTES = 32;

/** What had been answered when the log had that length, and what the store held then. */
interface Acknowledged {
  readonly bytes: number;
  readonly tables: string;
}

/** In memory where that can be had: what is looked at is what the files hold, not how they came to disk. */
const place = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();

let root: string;
let file: string;
let log: Buffer;
let pageBytes: number;
const acknowledged: Acknowledged[] = [];

beforeAll(async () => {
  root = mkdtempSync(join(place, "drover-power-"));
  file = join(root, "drover.db");
  const clock = storeClock();
  const handle = await openWorkerStore({
    file,
    table: operations,
    clock,
    migrations: ownMigrations(),
    writer: await buildWorker("src/store/sqlite-writer.ts"),
    // The log is never moved into the file, so that all of it can be cut.
    limits: { idleMs: 3_600_000 },
  });
  const note = async () =>
    void acknowledged.push({ bytes: statSync(`${file}-wal`).size, tables: textOf(await readTables(file)) });
  try {
    await note();
    await work(asStore(handle.store), clock, note);
    // The files as they lie there when the power fails: closing would move the log into the store.
    const connection = openSqlite(file, { readOnly: true });
    pageBytes = Number(connection.pragma("page_size"));
    connection.close();
    log = readFileSync(`${file}-wal`);
    copyFileSync(file, join(root, "before.db"));
  } finally {
    await handle.close();
  }
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const textOf = (tables: Tables): string => JSON.stringify(tables);

/** A bit of everything that a daemon writes, callers that share a commit included. */
async function work(store: Store, clock: ReturnType<typeof storeClock>, note: () => Promise<void>): Promise<void> {
  const target = commandOf(["true"]);
  await store.hosts.join({
    hostId: HOST,
    name: "one",
    machineId: "m",
    bootId: "b",
    version: "0",
    leaseMs: limits.leaseMs,
    commandCap: 3,
    agentCap: 1,
  });
  await note();
  const draft = {
    schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 },
    target,
    policy: loopPolicy.parse({ attempts: 2 }),
    hostPin: HOST,
    managedBy: null,
  } as const;
  for (const name of ["one", "two"]) await store.loops.add({ draft: { ...draft, name }, limits });
  await note();
  for (let round = 0; round < 3; round++) {
    clock.advance(60_000);
    await store.loops.planDue({ cause: "late", limits });
    await note();
    await Promise.all(
      Array.from({ length: 3 }, () =>
        store.runs.add(runDraft(target, { hostPin: HOST, policy: runPolicy.parse({ attempts: 2 }) })),
      ),
    );
    await note();
    const { mine } = await store.admission.pass({ hostId: HOST, limits });
    await note();
    const live = mine.map(({ attempt: { id: attemptId, token } }) => ({ attemptId, token }));
    await Promise.all(
      live.map((of) => store.attempts.start({ ...of, bootId: "b", folder: `${of.attemptId}.${of.token}`, awakeAt: 1 })),
    );
    await note();
    const started = { pid: 2, pidStarted: "1", startedAt: clock.now() };
    await Promise.all(live.map((of) => store.attempts.run({ ...of, ...started })));
    await note();
    const failed = outcomeOf({ kind: "failed", class: "exit", exitStatus: 1, startedAt: clock.now() });
    await Promise.all(
      live.map((of, i) =>
        store.attempts.settle({ ...of, limits, outcome: i % 2 === 0 ? outcomeOf({ startedAt: clock.now() }) : failed }),
      ),
    );
    await note();
  }
}

/** Ways in which a disk shows a log whose last frame was not flushed whole. */
const ENDS = {
  /** The file ends there. */
  cut: (at: number) => log.subarray(0, at),
  /** Its length was kept, its content was not. */
  zeros: (at: number) => Buffer.concat([log.subarray(0, at), Buffer.alloc(log.length - at)]),
  /** What came later was written, what came before it was not. */
  hole(at: number) {
    const text = Buffer.from(log);
    return text.fill(0xa5, at, Math.min(log.length, at + pageBytes));
  },
} as const;

let made = 0;

async function openAfter(text: Buffer, database = join(root, "before.db")): Promise<Tables> {
  const folder = join(root, `cut-${++made}`);
  mkdirSync(folder);
  const there = join(folder, "drover.db");
  copyFileSync(database, there);
  writeFileSync(`${there}-wal`, text);
  try {
    const handle = await openDirectStore({ file: there, table: operations, clock: storeClock() });
    try {
      const tables = await readTables(there);
      expect(faultsOf(there)).toEqual([]);
      expect(createWitness()(tables)).toEqual([]);
      // It goes on from there.
      expect(handle.applied).toEqual([]);
      await asStore(handle.store).runs.add(runDraft(commandOf(["true"]), { hostPin: HOST }));
      return tables;
    } finally {
      await handle.close();
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const frameBytes = () => FRAME_HEADER_BYTES + pageBytes;
/** Ends of all frames that were written after the store was made. */
const boundaries = (): number[] => {
  const from = acknowledged[0]?.bytes ?? 0;
  return Array.from(
    { length: (log.length - LOG_HEADER_BYTES) / frameBytes() + 1 },
    (_, i) => LOG_HEADER_BYTES + i * frameBytes(),
  ).filter((at) => at >= from);
};

describe("power that fails while the store is written", () => {
  test("the log grows with each answer, so that what was acknowledged can be told by its length", () => {
    const sizes = acknowledged.map(({ bytes }) => bytes);
    expect(sizes).toEqual(sizes.toSorted((a, b) => a - b));
    expect(new Set(acknowledged.map(({ tables }) => tables)).size).toBe(acknowledged.length);
    expect(sizes.at(-1)).toBe(log.length);
    expect(boundaries().length).toBeGreaterThan(80);
  });

  test("the log ends at each frame, and inside of it: nothing that was acknowledged is lost, nothing is half there", {
    timeout: 300_000,
  }, async () => {
    const ways = Object.entries(ENDS);
    let tried = 0;
    for (const boundary of boundaries())
      for (const inside of [0, tried % 4 === 0 ? FRAME_HEADER_BYTES / 2 : FRAME_HEADER_BYTES + pageBytes / 2]) {
        const at = boundary + inside;
        if (at > log.length) continue;
        // Each way at each place, from frame to frame.
        const [way, endAt] = ways[tried++ % ways.length] as (typeof ways)[number];
        const told = `${way} at ${at}, ${inside} bytes into a frame`;
        const last = acknowledged.findLast(({ bytes }) => bytes <= at);
        const tables = await openAfter(endAt(at));
        if (boundary === last?.bytes) expect(textOf(tables) === last.tables, told).toBe(true);
        const known = JSON.parse(last?.tables ?? "{}") as Tables;
        // Events are only added, so what holds the last one that was told of holds all of them.
        const ids = new Set(tables.events.map((row) => row["id"]));
        expect(
          known.events.filter((row) => !ids.has(row["id"] ?? null)),
          told,
        ).toEqual([]);
      }
  });

  test("a checkpoint that stops after any page: the log, flushed before it began, makes the store whole again", {
    timeout: 300_000,
  }, async () => {
    // The file as it is when all of the log is in it, by pages.
    const after = readFileSync(file);
    const before = readFileSync(join(root, "before.db"));
    const last = acknowledged.at(-1)?.tables;
    for (let pages = 0; pages <= after.length / pageBytes; pages += 3) {
      const mixed = Buffer.concat([after.subarray(0, pages * pageBytes), before.subarray(pages * pageBytes)]);
      const database = join(root, "mixed.db");
      writeFileSync(database, mixed);
      expect(textOf(await openAfter(log, database)) === last, `${pages} pages`).toBe(true);
    }
  });
});
