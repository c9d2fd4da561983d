import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { outcomeOf, runDraft } from "../../test/drafts.ts";
import { makeDatabase, startPostgres } from "../../test/postgres.ts";
import type { Cluster } from "../../test/postgres.ts";
import { migrations, table } from "../../test/store/table.ts";
import { buildWorker } from "../../test/writer.ts";
import { BrokenAssert } from "../core/errors.ts";
import { defaultLimits as limits } from "../core/limits.ts";
import { runPolicy } from "../core/loop.ts";
import { agentTarget, commandTarget } from "../core/target.ts";
import { storeClock } from "./contract.ts";
import type { StoreHandle } from "./driver.ts";
import { migrationsOf, ownMigrations } from "./migrate.ts";
import { all, operation, read, runAll } from "./operation.ts";
import { operations } from "./operations.ts";
import { openPostgresStore } from "./postgres.ts";
import { openDirectStore, openReadStore } from "./sqlite.ts";
import { sql, type Sql } from "./sql.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import { backupFolder } from "./copies.ts";

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

/** The program's own store, and statements of an older program's on it. */
const ownTable = {
  ...operations,
  older: {
    write: operation("older.write", function* ({ queries }: { readonly queries: readonly Sql[] }) {
      return yield* runAll(...queries);
    }),
    read: read("older.read", function* ({ query }: { readonly query: Sql }) {
      return yield* all<Readonly<Record<string, unknown>>>(query);
    }),
  },
};

interface Place {
  open(texts: Texts): Promise<StoreHandle<typeof table>>;
  openOwn(texts: Texts): Promise<StoreHandle<typeof ownTable>>;
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
      openOwn: (texts) => openDirectStore({ file, table: ownTable, migrations: texts, clock }),
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
            openOwn: (texts: Texts) =>
              openPostgresStore({ url, table: ownTable, migrations: texts, clock, now: () => clock.now() }),
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
    const copies = readdirSync(folder);
    expect(copies).toEqual([expect.stringMatching(/^before-1-to-2-\d{8}T\d{6}Z\.db$/)]);
    const connection = openSqlite(join(folder, copies[0] ?? ""), { readOnly: true });
    expect(connection.pragma("user_version")).toBe(1);
    connection.close();
  });

  test("a store of the first schema with runs in it opens, keeps them, and works on", async () => {
    const place = await makePlace();
    const own = ownMigrations();
    const first = Object.fromEntries(Object.entries(own).filter(([name]) => name.startsWith("0001")));
    const old = await place.openOwn(first);
    const at = clock.now();
    const host = "host_00000000000000000000000001";
    const target = JSON.stringify(commandTarget.parse({ kind: "command", argv: ["true"], cwd: "/" }));
    const policy = JSON.stringify(runPolicy.parse({ attempts: 2 }));
    const run = (id: string, status: string, finishedAt: number | null) => [
      sql`insert into runs (id, kind, origin_kind, root_run_id, target, policy, definition_digest, status, queued_at, suffix_key, host_pin, started_at, finished_at, event_number, created_at)
          values (${id}, 'command', 'person', ${id}, ${target}, ${policy}, 'd', ${status}, ${at}, ${id}, ${host}, ${at}, ${finishedAt}, 1, ${at})`,
      sql`insert into events (subject_kind, subject_id, number, type, data, created_at) values ('run', ${id}, 1, 'run.queued', '{}', ${at})`,
      sql`insert into steps (id, run_id, key, kind, status, token, cap_key, turn_at, max_attempts, attempts_made, started_at, finished_at, created_at)
          values (${`step_${id}`}, ${id}, 'main', 'command', ${status === "queued" ? "ready" : status}, ${status === "queued" ? 0 : 1}, 'command', ${at}, 2, ${status === "queued" ? 0 : 1}, ${at}, ${finishedAt}, ${at})`,
    ];
    const attempt = (runId: string, status: string, finishedAt: number | null) =>
      sql`insert into attempts (id, step_id, run_id, number, purpose, token, status, host_id, incarnation, lease_until, boot_id, folder, started_at, finished_at, created_at)
          values (${`att_${runId}`}, ${`step_${runId}`}, ${runId}, 1, 'try', 1, ${status}, ${host}, 1, ${at + 60_000}, 'b', 'f', ${at}, ${finishedAt}, ${at})`;
    await old.store.older.write({
      queries: [
        sql`insert into hosts (id, name, machine_id, boot_id, incarnation, version, status, lease_until, last_seen_at, created_at)
            values (${host}, 'one', 'm', 'b', 1, '0', 'up', ${at + 60_000}, ${at}, ${at})`,
        sql`insert into cap_sets (key, resources, host_pin, created_at) values ('command', '[]', ${host}, ${at})`,
        sql`insert into accounts (id, provider, name, enabled, status, created_at) values ('claude:work', 'claude', 'work', 1, 'ok', ${at})`,
        ...run("run_done", "succeeded", at),
        ...run("run_live", "running", null),
        ...run("run_next", "queued", null),
        attempt("run_done", "succeeded", at),
        attempt("run_live", "running", null),
      ],
    });
    const tables = [sql`runs`, sql`steps`, sql`attempts`, sql`events`, sql`hosts`, sql`accounts`, sql`cap_sets`];
    const dump = async (of: StoreHandle<typeof ownTable>) =>
      Promise.all(tables.map((name) => of.store.older.read({ query: sql`select * from ${name} order by 1` })));
    const before = await dump(old);
    expect(before.map((rows) => rows.length)).toEqual([3, 3, 2, 3, 1, 1, 1]);
    await old.close();

    const grown = await place.openOwn(own);
    expect(grown.applied).toEqual(
      migrationsOf(own, "sqlite")
        .slice(1)
        .map(({ number }) => number),
    );
    expect(await dump(grown)).toMatchObject(before);
    const { store } = grown;
    expect((await store.runs.get({ runId: "run_done" }))?.attempts[0]).toMatchObject({ agentEnd: null });
    const [live] = await store.attempts.ofHost({ hostId: host });
    expect(live?.attempt.id).toBe("att_run_live");
    const settled = await store.attempts.settle({ attemptId: "att_run_live", token: 1, outcome: outcomeOf(), limits });
    expect(settled).toEqual({ answer: "done", step: "succeeded", run: "succeeded" });
    const { mine } = await store.admission.pass({ hostId: host, limits });
    expect(mine.map((one) => one.run.id)).toEqual(["run_next"]);
    expect(await store.accounts.hold({ accountId: "claude:work", untilAt: null, reason: "r" })).toMatchObject({
      env: {},
      limitEnds: 0,
    });
    const agent = agentTarget.parse({
      kind: "agent",
      provider: "claude",
      prompt: { digest: "a".repeat(64), bytes: 1, head: "" },
      account: "work",
      cwd: "/",
    });
    await store.runs.add(runDraft(agent, { hostPin: host }));
    expect(await store.admission.pass({ hostId: host, limits })).toMatchObject({
      granted: 0,
      refused: [{ refusal: { code: "held" } }],
    });
    await grown.close();
  });

  test("prompts of a store from before anybody asked who names them are kept where they are named", async () => {
    const place = await makePlace();
    const own = ownMigrations();
    const old = await place.openOwn(Object.fromEntries(Object.entries(own).filter(([name]) => name < "0004")));
    const at = clock.now();
    const digests = ["1", "2", "3"].map((one) => one.repeat(64));
    const naming = (digest: string | undefined) =>
      JSON.stringify(
        agentTarget.parse({ kind: "agent", provider: "claude", prompt: { digest, bytes: 1, head: "" }, cwd: "/" }),
      );
    await old.store.older.write({
      queries: [
        ...digests.map(
          (digest) =>
            sql`insert into prompts (digest, content, bytes, created_at) values (${digest}, 'YQ==', 1, ${at})`,
        ),
        sql`insert into loops (id, name, schedule, target, policy, definition_digest, revision, status, planned_until, anchored_at, created_at, updated_at)
            values ('loop_1', 'nightly', ${JSON.stringify({ kind: "dynamic", firstAt: at })}, ${naming(digests[0])}, '{}', 'd', 1, 'paused', ${at}, ${at}, ${at}, ${at})`,
        sql`insert into runs (id, kind, origin_kind, root_run_id, target, policy, definition_digest, status, queued_at, suffix_key, finished_at, created_at)
            values ('run_1', 'agent', 'person', 'run_1', ${naming(digests[1])}, '{}', 'd', 'succeeded', ${at}, '1', ${at}, ${at})`,
      ],
    });
    await old.close();
    const grown = await place.openOwn(own);
    const { prompts } = grown.store;
    expect(await prompts.collect({ limits })).toEqual({ removed: 1, more: false });
    const there = await Promise.all(digests.map(async (digest) => (await prompts.get({ digest })) !== null));
    expect(there).toEqual([true, true, false]);
    await grown.close();
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
  const copies = readdirSync(backupFolder(file));
  expect(copies).toEqual([expect.stringMatching(/^before-1-to-2-\d{8}T\d{6}Z\.db$/)]);
  const copy = join(backupFolder(file), copies[0] ?? "");
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
