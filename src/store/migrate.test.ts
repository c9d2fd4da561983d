import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { makeDatabase, startPostgres } from "../../test/postgres.ts";
import type { Cluster } from "../../test/postgres.ts";
import { migrations, table } from "../../test/store/table.ts";
import { buildWorker } from "../../test/writer.ts";
import { BrokenAssert } from "../core/errors.ts";
import { storeClock } from "./contract.ts";
import type { StoreHandle } from "./driver.ts";
import { migrationsOf, ownMigrations } from "./migrate.ts";
import { openPostgresStore } from "./postgres.ts";
import { openDirectStore, openReadStore } from "./sqlite.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import { backupFolder } from "./sqlite-connection.ts";

type Texts = Readonly<Record<string, string>>;
const clock = storeClock();

describe("the texts", () => {
  test("are found by number, for one dialect", () => {
    expect(migrationsOf(migrations, "sqlite").map(({ number, name }) => [number, name])).toEqual([
      [1, "first"],
      [2, "colour"],
    ]);
    expect(migrationsOf(migrations, "postgres")[0]?.text).toContain("bigint");
  });

  test("count the same with other line ends and margins", () => {
    const sums = (texts: Texts) => migrationsOf(texts, "sqlite").map(({ checksum }) => checksum);
    expect(sums({ "0001-a.sqlite.sql": "\r\nselect 1;\r\nselect 2;\n\n" })).toEqual(
      sums({ "0001-a.sqlite.sql": "select 1;\nselect 2;" }),
    );
    expect(sums({ "0001-a.sqlite.sql": "select 1" })).not.toEqual(sums({ "0001-a.sqlite.sql": "select 2" }));
  });

  test.each([
    ["a gap", { "0001-a.sqlite.sql": "select 1", "0003-c.sqlite.sql": "select 1" }],
    ["a number twice", { "0001-a.sqlite.sql": "select 1", "0001-b.sqlite.sql": "select 1" }],
    ["another name", { "1-a.sql": "select 1" }],
    ["a commit", { "0001-a.sqlite.sql": "create table a (b);\ncommit;\ncreate table c (d)" }],
    ["a vacuum", { "0001-a.sqlite.sql": "vacuum" }],
    ["an index made concurrently", { "0001-a.sqlite.sql": "create index concurrently a on b (c)" }],
  ])("%s is refused", (_, texts) => {
    expect(() => migrationsOf(texts, "sqlite")).toThrow(BrokenAssert);
  });

  test("the program's own are whole in both dialects", () => {
    const names = (dialect: "sqlite" | "postgres") => migrationsOf(ownMigrations(), dialect).map(({ name }) => name);
    expect(names("sqlite")).toEqual(names("postgres"));
    expect(names("sqlite").length).toBeGreaterThan(0);
  });
});

interface Place {
  open(texts: Texts): Promise<StoreHandle<typeof table>>;
  /** Names of all tables. */
  tables(): Promise<readonly string[]>;
  /** What `open.ts` of the tests is told to open. */
  readonly words: readonly string[];
}

let root: string;
let cluster: Cluster | undefined;
let made = 0;
const withPostgres = process.env["DROVER_TEST_STORES"] !== "sqlite";

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), "drover-migrate-"));
  if (withPostgres && process.env["DROVER_TEST_POSTGRES"] === undefined) cluster = await startPostgres();
});
afterAll(async () => {
  await cluster?.stop();
  rmSync(root, { recursive: true, force: true });
});

const places: Readonly<Record<string, () => Promise<Place>>> = {
  async sqlite() {
    const file = join(root, String(++made), "drover.db");
    return {
      words: ["sqlite", file],
      open: (texts) => openDirectStore({ file, table, migrations: texts, clock }),
      async tables() {
        const connection = openSqlite(file, { readOnly: true });
        const rows = connection.query(
          "select name from sqlite_schema where type = 'table' and name not like 'sqlite%' order by name",
          [],
          0,
        ).rows;
        connection.close();
        return rows.map((row) => (row as { name: string }).name);
      },
    };
  },
  ...(withPostgres
    ? {
        async postgres() {
          const url = await makeDatabase(process.env["DROVER_TEST_POSTGRES"] ?? cluster?.url ?? "");
          return {
            words: ["postgres", url],
            open: (texts: Texts) => openPostgresStore({ url, table, migrations: texts, clock }),
            async tables() {
              const { Client } = (await import("pg")).default;
              const client = new Client({ connectionString: url });
              await client.connect();
              const { rows } = await client.query(
                "select tablename::text as name from pg_tables where schemaname = current_schema() order by tablename",
              );
              await client.end();
              return rows.map((row: { name: string }) => row.name);
            },
          } satisfies Place;
        },
      }
    : {}),
};

const third = {
  "0003-more.sqlite.sql": "create table more (id text primary key);",
  "0003-more.postgres.sql": 'create table more (id text collate "C" primary key);',
};
const broken = {
  "0003-more.sqlite.sql": "create table more (id text primary key); insert into nowhere values (1);",
  "0003-more.postgres.sql": "create table more (id text primary key); insert into nowhere values (1);",
};
const firstOnly: Texts = Object.fromEntries(Object.entries(migrations).filter(([name]) => name.startsWith("0001")));

async function openAndClose(place: Place, texts: Texts): Promise<readonly number[]> {
  const handle = await place.open(texts);
  await handle.close();
  return handle.applied;
}

describe.each(Object.entries(places))("on %s", (_, makePlace) => {
  test("what is missing is applied once", async () => {
    const place = await makePlace();
    expect(await openAndClose(place, firstOnly)).toEqual([1]);
    expect(await openAndClose(place, firstOnly)).toEqual([]);
    expect(await openAndClose(place, { ...migrations, ...third })).toEqual([2, 3]);
    expect(await openAndClose(place, { ...migrations, ...third })).toEqual([]);
    expect(await place.tables()).toEqual(["beats", "migrations", "more", "notes", "parts"]);
  });

  test("a store of a newer program is refused and not changed", async () => {
    const place = await makePlace();
    await openAndClose(place, { ...migrations, ...third });
    await expect(place.open(migrations)).rejects.toMatchObject({ kind: "conflict", code: "newer_schema" });
    expect(await openAndClose(place, { ...migrations, ...third })).toEqual([]);
  });

  test("a text that was changed after it was applied is refused", async () => {
    const place = await makePlace();
    await openAndClose(place, migrations);
    const changed = Object.fromEntries(
      Object.entries(migrations).map(([name, text]) => [name, name.startsWith("0002") ? `${text} select 1;` : text]),
    );
    await expect(place.open(changed)).rejects.toMatchObject({ kind: "conflict", code: "changed_migration" });
    await expect(place.open({ ...changed, ...third })).rejects.toMatchObject({ code: "changed_migration" });
    expect(await place.tables()).not.toContain("more");
  });

  test("a number that is missing below the newest is refused", async () => {
    const place = await makePlace();
    const handle = await place.open({ ...migrations, ...third });
    await handle.close();
    if (place.words[0] === "sqlite") {
      const connection = openSqlite(place.words[1] ?? "");
      connection.exec("delete from migrations where number = 2");
      connection.close();
    } else {
      const { Client } = (await import("pg")).default;
      const client = new Client({ connectionString: place.words[1] ?? "" });
      await client.connect();
      await client.query("delete from migrations where number = 2");
      await client.end();
    }
    await expect(place.open({ ...migrations, ...third })).rejects.toMatchObject({ code: "missing_migration" });
  });

  test("one that fails leaves nothing behind, and the store is as it was", async () => {
    const place = await makePlace();
    await openAndClose(place, firstOnly);
    await expect(place.open({ ...migrations, ...broken })).rejects.toThrow("nowhere");
    expect(await place.tables()).toEqual(["beats", "migrations", "notes", "parts"]);
    expect(await openAndClose(place, migrations)).toEqual([2]);
  });

  test("one that fails on an empty store leaves it empty", async () => {
    const place = await makePlace();
    await expect(place.open({ ...migrations, ...broken })).rejects.toThrow("nowhere");
    expect(await place.tables()).toEqual([]);
    expect(await openAndClose(place, migrations)).toEqual([1, 2]);
  });

  test("B-071 eight processes open at once: one applies everything, seven nothing, all work", async () => {
    const place = await makePlace();
    const opener = fileURLToPath(await buildWorker("test/store/opener.ts"));
    for (const [step, expected] of [
      ["1", [1]],
      ["2", [2]],
    ] as const) {
      const answers = await Promise.all(
        Array.from({ length: 8 }, async (__, i) => {
          const child = spawn(process.execPath, [opener, ...place.words, step, `p${step}-${i}`], {
            stdio: ["ignore", "pipe", "pipe"],
          });
          let said = "";
          let error = "";
          child.stdout.on("data", (chunk: Buffer) => (said += chunk.toString()));
          child.stderr.on("data", (chunk: Buffer) => (error += chunk.toString()));
          const [status] = (await once(child, "close")) as [number | null];
          return status === 0 ? (JSON.parse(said) as number[]) : error;
        }),
      );
      const applied = answers.filter((one) => typeof one === "string" || one.length > 0);
      expect(applied).toEqual([expected]);
    }
    const handle = await place.open(migrations);
    expect(await handle.store.notes.list()).toHaveLength(16);
    await handle.close();
    if (place.words[0] !== "sqlite") return;
    const folder = backupFolder(place.words[1] ?? "");
    expect(readdirSync(folder)).toEqual(["drover-schema-1.db"]);
    const connection = openSqlite(join(folder, "drover-schema-1.db"), { readOnly: true });
    expect(connection.pragma("user_version")).toBe(1);
    connection.close();
  });

  test("a kill between a text and its ledger row leaves neither", async () => {
    const place = await makePlace();
    await openAndClose(place, firstOnly);
    const opener = fileURLToPath(await buildWorker("test/store/opener.ts"));
    const child = spawn(process.execPath, [opener, ...place.words, "kill", "x"], { stdio: "ignore" });
    const [, signal] = (await once(child, "exit")) as [number | null, string | null];
    expect(signal).toBe("SIGKILL");
    expect(await place.tables()).toEqual(["beats", "migrations", "notes", "parts"]);
    expect(await openAndClose(place, { ...migrations, ...third })).toEqual([2, 3]);
  });
});

test("B-071 a store is copied before it is changed: whole, the owner's alone, once", async () => {
  const file = join(root, String(++made), "drover.db");
  const first = await openDirectStore({ file, table, migrations: firstOnly, clock });
  await first.store.notes.add({ id: "in the log", body: "x" });
  const second = await openDirectStore({ file, table, migrations, clock });
  await second.store.notes.add({ id: "later", body: "x" });
  const copy = join(backupFolder(file), "drover-schema-1.db");
  expect(readdirSync(backupFolder(file))).toEqual(["drover-schema-1.db"]);
  expect(statSync(copy).mode & 0o777).toBe(0o600);
  const connection = openSqlite(copy, { readOnly: true });
  expect(connection.query("select id from notes", [], 0).rows).toEqual([{ id: "in the log" }]);
  expect(connection.pragma("user_version")).toBe(1);
  expect(connection.pragma("quick_check")).toBe("ok");
  connection.close();
  for (const one of [first, second]) await one.close();
});

test("opening an up-to-date SQLite store waits for no writer", async () => {
  const file = join(root, String(++made), "drover.db");
  const handle = await openDirectStore({ file, table, migrations, clock });
  const holder = openSqlite(file);
  holder.exec("begin immediate");
  const second = await openDirectStore({ file, table, migrations, clock, busyMs: 0 });
  const third_ = await openReadStore({ file, table, migrations, clock, busyMs: 0 });
  holder.exec("rollback");
  holder.close();
  for (const one of [second, third_, handle]) await one.close();
});

test("a reader does not migrate: it says who does", async () => {
  const file = join(root, String(++made), "drover.db");
  await (await openDirectStore({ file, table, migrations: firstOnly, clock })).close();
  await expect(openReadStore({ file, table, migrations, clock })).rejects.toMatchObject({
    kind: "conflict",
    code: "older_schema",
  });
});
