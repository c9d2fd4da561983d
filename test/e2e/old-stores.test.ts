/**
 * Stores of every schema that ever landed, as the programs of their time left them when they were killed in the middle of
 * their work: `scripts/store-fixtures.mjs` made them. The newest code opens each, reads all of it, and goes on with it.
 */
import { mkdirSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { defaultLimits as limits } from "../../src/core/limits.ts";
import { checkInput } from "../../src/ops/fields.ts";
import { operation as showAccounts } from "../../src/ops/accounts/list-accounts.ts";
import { operation as listSlots } from "../../src/ops/loops/list-slots.ts";
import { operation as showLoop } from "../../src/ops/loops/show-loop.ts";
import { operation as listRuns } from "../../src/ops/runs/list-runs.ts";
import { operation as showRun } from "../../src/ops/runs/show-run.ts";
import { operation as explainWhy } from "../../src/ops/why/explain-why.ts";
import { operation as listWorktrees } from "../../src/ops/worktrees/list-worktrees.ts";
import type { StoreHandle } from "../../src/store/driver.ts";
import { migrationsOf, ownMigrations } from "../../src/store/migrate.ts";
import { asStore, operations } from "../../src/store/operations.ts";
import { openPostgresStore } from "../../src/store/postgres.ts";
import { openDirectStore } from "../../src/store/sqlite.ts";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";
import { outcomeOf } from "../drafts.ts";
import { contextOf } from "../operations.ts";
import { makeDatabase } from "../postgres.ts";
import { openHome } from "./drover.ts";

const place = resolve(fileURLToPath(import.meta.url), "../../fixtures/stores");
const cluster = process.env["DROVER_TEST_POSTGRES"];
const HOUR = 3_600_000;

type Dialect = "sqlite" | "postgres";
type Rows = readonly Readonly<Record<string, unknown>>[];

/** One old store, put where the program finds it. */
interface Old {
  readonly env: Readonly<Record<string, string>>;
  rows(query: string): Promise<Rows>;
  open(clock: { now(): number }): Promise<StoreHandle<typeof operations>>;
}

const textOf = (dialect: Dialect, schema: number): string =>
  gunzipSync(readFileSync(join(place, `${String(schema).padStart(4, "0")}.${dialect}.sql.gz`))).toString("utf8");

const restore: { readonly [D in Dialect]: (folder: string, text: string) => Promise<Old> } = {
  async sqlite(folder, text) {
    const file = join(folder, "home/drover.db");
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    const connection = openSqlite(file);
    connection.exec(`begin; ${text} commit`);
    connection.close();
    return {
      env: {},
      async rows(query) {
        const reader = openSqlite(file, { readOnly: true });
        const { rows } = reader.query(query, [], 0);
        reader.close();
        return rows as Rows;
      },
      open: (clock) => openDirectStore({ file, table: operations, clock }),
    };
  },
  async postgres(_folder, text) {
    const url = await makeDatabase(cluster ?? "");
    const { Client } = (await import("pg")).default;
    const asked = async (query: string): Promise<Rows> => {
      const client = new Client({ connectionString: url });
      await client.connect();
      const { rows } = (await client.query(query)) as { rows: Rows };
      await client.end();
      return rows;
    };
    await asked(text);
    return {
      env: { DROVER_STORE: url },
      rows: asked,
      open: (clock) => openPostgresStore({ url, table: operations, clock, now: () => clock.now() }),
    };
  },
};

/** What a ledger holds by number. */
const ledgerOf = async (old: Old): Promise<Readonly<Record<string, string>>> =>
  Object.fromEntries(
    (await old.rows("select number, checksum from migrations order by number")).map((row) => [
      String(row["number"]),
      String(row["checksum"]),
    ]),
  );

/** All that the tables of an old store hold. */
async function tablesOf(old: Old): Promise<ReadonlyMap<string, Rows>> {
  const names = (await old.rows(old.env["DROVER_STORE"] === undefined ? SQLITE_TABLES : POSTGRES_TABLES)).map((row) =>
    String(row["name"]),
  );
  return new Map(
    await Promise.all(names.map(async (name) => [name, await old.rows(`select * from ${name}`)] as const)),
  );
}
const SQLITE_TABLES = "select name from sqlite_schema where type = 'table' and name not like 'sqlite_%'";
const POSTGRES_TABLES = "select tablename::text as name from pg_tables where schemaname = 'public'";

/** Rows of before that are not there any more, or not as they were. */
function lost(before: Rows, after: Rows): Rows {
  const columns = Object.keys(before[0] ?? {});
  const there = new Set(after.map((row) => JSON.stringify(columns.map((column) => row[column]))));
  return before.filter((row) => !there.has(JSON.stringify(columns.map((column) => row[column]))));
}

async function everything<Item>(
  page: (cursor: string | undefined) => Promise<{ items: readonly Item[]; next: string | null }>,
) {
  const items: Item[] = [];
  for (let cursor: string | null | undefined; cursor !== null; ) {
    const one: { items: readonly Item[]; next: string | null } = await page(cursor);
    items.push(...one.items);
    cursor = one.next;
  }
  return items;
}

const schemas = (dialect: Dialect): readonly number[] =>
  readdirSync(place)
    .filter((name) => name.endsWith(`.${dialect}.sql.gz`))
    .map((name) => Number(name.slice(0, 4)))
    .toSorted((a, b) => a - b);

describe.each(cluster === undefined ? (["sqlite"] as const) : (["sqlite", "postgres"] as const))("on %s", (dialect) => {
  const known = migrationsOf(ownMigrations(), dialect);

  test("each schema but the newest has its store", () => {
    const wanted = known.map(({ number }) => number).filter((number) => number < known.length);
    expect(schemas(dialect)).toEqual(expect.arrayContaining(wanted));
  });

  test.each(schemas(dialect))(
    "a store of schema %i is opened by two processes at once, and again: read whole, and gone on with to the end",
    async (schema) => {
      const home = openHome({ prefix: "drover-old-" });
      try {
        const old = await restore[dialect](home.folder, textOf(dialect, schema));
        // A text that landed never changes.
        expect(await ledgerOf(old)).toEqual(
          Object.fromEntries(known.slice(0, schema).map(({ number, checksum }) => [String(number), checksum])),
        );
        const before = await tablesOf(old);
        const both = await Promise.all(
          ["claude", "codex"].map((provider) =>
            home.run(["limit", "set", `provider:${provider}`, "5"], { env: old.env }),
          ),
        );
        expect(both.map(({ status, err }) => [status, err])).toEqual([
          [0, ""],
          [0, ""],
        ]);
        expect(Object.keys(await ledgerOf(old))).toHaveLength(known.length);
        const after = await tablesOf(old);
        for (const [name, rows] of before)
          if (name !== "resources") expect([name, lost(rows, after.get(name) ?? [])]).toEqual([name, []]);

        const [newest] = await old.rows("select max(created_at) as at from events");
        let now = Number(newest?.["at"]) + 12 * HOUR;
        const clock = { now: () => now };
        const handle = await old.open(clock);
        try {
          expect(handle.applied).toEqual([]);
          const store = asStore(handle.store);
          const context = contextOf(store, clock);
          await readAll();

          // The host comes back after the night.
          const [host] = await store.hosts.list({});
          const hostId = host?.id ?? "";
          const joined = await store.hosts.join({
            hostId,
            name: "again",
            machineId: "m",
            bootId: "another",
            version: "0",
            leaseMs: limits.leaseMs,
            commandCap: 256,
            agentCap: 4,
          });
          const mine = await store.attempts.ofHost({ hostId });
          expect(mine.map(({ run }) => run.status)).toContain("running");
          for (const { attempt } of mine) {
            const held = await store.attempts.adopt({
              attemptId: attempt.id,
              token: attempt.token,
              hostId,
              incarnation: joined.incarnation,
              leaseMs: limits.leaseMs,
            });
            if (held.answer !== "done") throw new Error(`not adopted: ${held.answer}`);
            const outcome = outcomeOf({ kind: "lost", class: "lost", exitStatus: null, message: "gone" });
            await store.attempts.settle({ attemptId: attempt.id, token: held.token, outcome, limits });
          }
          expect((await store.loops.planDue({ cause: "down", limits })).runs).toBeGreaterThan(0);
          for (let rounds = 0; (await unfinished()).length > 0; rounds++) {
            expect([rounds < 30, await unfinished()]).toEqual([true, expect.anything()]);
            now += HOUR;
            await store.steps.wake({ limit: 100 });
            for (const { attempt } of (await store.admission.pass({ hostId, limits })).mine) {
              const at = { attemptId: attempt.id, token: attempt.token };
              await store.attempts.start({ ...at, bootId: "another", folder: `${attempt.id}.1`, awakeAt: 0 });
              await store.attempts.settle({ ...at, outcome: outcomeOf({ startedAt: now, endedAt: now }), limits });
            }
          }
          expect(await store.stuck.find({ hostId, limit: 100, looked: 1_000, oldMs: 0, goneMs: 0 })).toEqual([]);
          expect(await old.rows("select * from claims")).toEqual([]);
          expect(
            await old.rows(
              "select subject_id from events group by subject_kind, subject_id having count(*) <> max(number) or min(number) <> 1",
            ),
          ).toEqual([]);

          async function unfinished() {
            return old.rows("select id, status, reason, loop_name from runs where finished_at is null");
          }

          /** Everything that people look at, of everything that is there. */
          async function readAll() {
            const runs = await everything(async (cursor) =>
              listRuns.run(
                context,
                checkInput(listRuns.input, { limit: 100, ...(cursor === undefined ? {} : { cursor }) }),
              ),
            );
            expect(runs).toHaveLength(Number((await old.rows("select count(*) as n from runs"))[0]?.["n"]));
            await Promise.all(
              runs.map(async ({ id, status }) => {
                expect(await showRun.run(context, { run: id })).toMatchObject({ id, status });
                expect((await explainWhy.run(context, { thing: id })).sentence).not.toBe("");
              }),
            );
            const names = (await old.rows("select name from loops")).map((row) => String(row["name"]));
            expect(names.length).toBeGreaterThan(5);
            await Promise.all(
              names.map(async (name) => {
                await showLoop.run(context, { loop: name });
                expect((await explainWhy.run(context, { thing: name })).sentence).not.toBe("");
                const { items } = await listSlots.run(context, checkInput(listSlots.input, { loop: name, each: true }));
                for (const { at } of items.slice(0, 3)) await explainWhy.run(context, { thing: `${name}@${at}` });
              }),
            );
            await showAccounts.run(context, checkInput(showAccounts.input, {}));
            await listWorktrees.run(context, checkInput(listWorktrees.input, {}));
          }
        } finally {
          await handle.close();
        }
      } finally {
        await home.close();
      }
    },
    240_000,
  );
});
