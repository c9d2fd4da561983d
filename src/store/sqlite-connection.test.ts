import { spawnSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
  closeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { migrations, table } from "../../test/store/table.ts";
import { buildWorker } from "../../test/writer.ts";
import type { AppError } from "../core/errors.ts";
import { storeClock } from "./contract.ts";
import { APPLICATION_ID } from "./migrate.ts";
import { openDirectStore, openReadStore, openWorkerStore } from "./sqlite.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import { markerOf } from "./sqlite-connection.ts";

let root: string;
let file: string;
let made = 0;
const clock = storeClock();

beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), "drover-open-"));
});
beforeEach(() => {
  file = join(root, String(++made), "drover.db");
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const openDirect = () => openDirectStore({ file, table, migrations, clock, busyMs: 200 });

async function fill(notes = 50): Promise<void> {
  const handle = await openDirect();
  for (let i = 0; i < notes; i++) await handle.store.notes.add({ id: `n${i}`, body: "x".repeat(2000) });
  await handle.close();
}

/** Opens in every way that a person can, and answers what each said. */
async function refusals(): Promise<string[]> {
  const writer = await buildWorker("test/store/writer.ts");
  const ways = [
    openDirect,
    () => openReadStore({ file, table, migrations, clock, busyMs: 200 }),
    () => openWorkerStore({ file, table, migrations, clock, writer, busyMs: 200 }),
  ];
  const codes: string[] = [];
  for (const open of ways) {
    const code = await open().then(
      async (handle) => {
        await handle.close();
        return "opened";
      },
      (error: unknown) => {
        expect((error as AppError).hint).toBeTruthy();
        expect((error as AppError).message).toContain(file);
        return (error as AppError).code;
      },
    );
    codes.push(code);
  }
  return codes;
}

describe("a new store", () => {
  test("is the owner's alone, says whose it is, and leaves a marker", async () => {
    await fill(1);
    const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);
    expect([mode(dirname(file)), mode(file), mode(markerOf(file))]).toEqual(["700", "600", "600"]);
    const connection = openSqlite(file);
    expect(connection.pragma("application_id")).toBe(APPLICATION_ID);
    expect(connection.pragma("user_version")).toBe(2);
    expect(connection.pragma("journal_mode")).toBe("wal");
    connection.close();
  });

  test("the log and the shared memory are the owner's alone, too", async () => {
    const handle = await openDirect();
    await handle.store.notes.add({ id: "a", body: "x" });
    for (const part of ["-wal", "-shm"]) expect(statSync(file + part).mode & 0o077).toBe(0);
    await handle.close();
  });

  test("reading what is not there yet makes nothing", async () => {
    await expect(openReadStore({ file, table, migrations, clock })).rejects.toMatchObject({ code: "no_store" });
    expect(existsSync(file)).toBe(false);
    expect(existsSync(dirname(file))).toBe(false);
  });

  test("an empty file that nobody marked is a beginning", async () => {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, "");
    await fill(1);
    expect(await refusals()).toEqual(["opened", "opened", "opened"]);
  });
});

describe("what is no store of ours", () => {
  test("B-073 an emptied file where a store was is not taken for a new one", async () => {
    await fill();
    truncateSync(file, 0);
    expect(await refusals()).toEqual(["store_corrupt", "store_corrupt", "store_corrupt"]);
    expect(statSync(file).size).toBe(0);
  });

  test("B-073 a vanished file where a store was is not made anew", async () => {
    await fill();
    rmSync(file);
    expect(await refusals()).toEqual(["store_corrupt", "store_corrupt", "store_corrupt"]);
    expect(existsSync(file)).toBe(false);
  });

  test("a header without a schema where a store was is not made anew", async () => {
    await fill();
    rmSync(file);
    const connection = openSqlite(file);
    connection.pragma("journal_mode = wal");
    connection.close();
    expect(await refusals()).toEqual(["store_corrupt", "store_corrupt", "store_corrupt"]);
  });

  test("a file of another kind is refused and not touched", async () => {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, "this is a letter, and a rather long one\n".repeat(200));
    const before = readFileSync(file);
    expect(await refusals()).toEqual(["not_a_store", "not_a_store", "not_a_store"]);
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  test("another program's SQLite file is refused and not touched", async () => {
    mkdirSync(dirname(file), { recursive: true });
    const connection = openSqlite(file);
    connection.exec("create table theirs (a)");
    connection.close();
    const before = readFileSync(file);
    expect(await refusals()).toEqual(["not_a_store", "not_a_store", "not_a_store"]);
    expect(readFileSync(file).equals(before)).toBe(true);
    expect(existsSync(markerOf(file))).toBe(false);
  });

  test("a folder in the place of the file", async () => {
    mkdirSync(file, { recursive: true });
    expect(await refusals()).toEqual(["store_unreachable", "store_unreachable", "store_unreachable"]);
  });

  test("a file in the place of the folder", async () => {
    writeFileSync(dirname(file), "");
    await expect(openDirect()).rejects.toMatchObject({ kind: "unreachable" });
  });
});

describe("damage", () => {
  test("B-073 a truncated store is refused", async () => {
    await fill(200);
    truncateSync(file, Math.floor(statSync(file).size / 8192) * 4096);
    for (const code of await refusals()) expect(code).toBe("store_corrupt");
  });

  test("B-072 a damaged page is found when the last writer did not end cleanly, and by each opening after that", async () => {
    await fill(200);
    // A log with content, as after a kill.
    const writer = spawnSync(process.execPath, [
      "--input-type=module",
      "-e",
      `import { createRequire } from "node:module";
       const file = ${JSON.stringify(file)};
       const version = Number(process.versions.node.split(".")[0]);
       const open = () => version >= 24 ? new (process.getBuiltinModule("node:sqlite").DatabaseSync)(file) : new (createRequire(${JSON.stringify(import.meta.url)})("better-sqlite3"))(file);
       open().exec("insert into notes (id, at) values ('last', 1)");
       process.kill(process.pid, "SIGKILL");`,
    ]);
    expect(writer.signal).toBe("SIGKILL");
    expect(statSync(`${file}-wal`).size).toBeGreaterThan(0);
    const page = 4096 * 40;
    const handle = openSync(file, "r+");
    writeSync(handle, Buffer.alloc(4096, 0xa5), 0, 4096, page);
    closeSync(handle);
    for (let openings = 0; openings < 3; openings++)
      await expect(openDirect()).rejects.toMatchObject({ kind: "unreachable", code: "store_corrupt" });
    expect(statSync(`${file}-wal`).size).toBeGreaterThan(0);
  });
});

describe("what cannot be written", () => {
  const asRoot = process.getuid?.() === 0;

  test.skipIf(asRoot)("a file without the right to write", async () => {
    await fill();
    chmodSync(file, 0o400);
    await expect(openDirect()).rejects.toMatchObject({ code: "store_read_only" });
    chmodSync(file, 0o600);
  });

  test.skipIf(asRoot)("a folder without the right to write", async () => {
    await fill();
    chmodSync(dirname(file), 0o500);
    await expect(openDirect()).rejects.toMatchObject({ code: "store_read_only" });
    chmodSync(dirname(file), 0o700);
  });

  test("a lock that stays is told after the time that was given", async () => {
    await fill(1);
    const holder = openSqlite(file);
    holder.exec("begin immediate");
    const later = { ...migrations, "0003-more.sqlite.sql": "create table more (id text primary key)" };
    await expect(openDirectStore({ file, table, migrations: later, clock, busyMs: 50 })).rejects.toMatchObject({
      kind: "conflict",
      code: "store_busy",
    });
    holder.exec("rollback");
    holder.close();
    const handle = await openDirectStore({ file, table, migrations: later, clock });
    expect(handle.applied).toEqual([3]);
    await handle.close();
  });
});
