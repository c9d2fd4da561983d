/** For suites that hold on every store: opens each of them, with a clock that the test moves. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe } from "vitest";
import { makeDatabase, startPostgres } from "../../test/postgres.ts";
import type { Cluster } from "../../test/postgres.ts";
import { buildWorker } from "../../test/writer.ts";
import type { StoreHandle } from "./driver.ts";
import { ownMigrations } from "./migrate.ts";
import { all, operation, read, runAll } from "./operation.ts";
import type { OperationTable } from "./operation.ts";
import { operations } from "./operations.ts";
import { openPostgresStore } from "./postgres.ts";
import type { Sql } from "./sql.ts";
import { openDirectStore, openMemoryStore, openWorkerStore } from "./sqlite.ts";
import type { SqliteLibrary } from "./sqlite-adapters.ts";

/** The store's clock in the test's hand. Starts at a round instant. */
export interface StoreClock {
  now(): number;
  set(at: number): void;
  advance(ms: number): void;
}

/** 2026-01-01T00:00:00Z. */
export const START = 1_767_225_600_000;

export function storeClock(at: number = START): StoreClock {
  return {
    now: () => at,
    set(to) {
      at = to;
    },
    advance(ms) {
      at += ms;
    },
  };
}

/** An open store of a test; closed after it. */
export interface TestStore<Table extends OperationTable> {
  readonly store: StoreHandle<Table>["store"];
  readonly handle: StoreHandle<Table>;
  readonly clock: StoreClock;
  /** Reads beside the operations, with a statement of the test's own. */
  rows<Row>(query: Sql): Promise<readonly Row[]>;
  /** Changes beside the operations: to set up what no operation makes. */
  run(...queries: readonly Sql[]): Promise<readonly number[]>;
  /** Opens the same store once more, as another process would. In memory there is only one. */
  again(): Promise<StoreHandle<Table>>;
}

export type OpenTestStore<Table extends OperationTable> = () => Promise<TestStore<Table>>;

export interface StoreKind {
  readonly name: string;
  readonly dialect: "sqlite" | "postgres";
  readonly way: "worker" | "direct" | "memory" | "postgres";
  readonly library: SqliteLibrary | null;
}

/** Which stores this machine can try; PostgreSQL not with `DROVER_TEST_STORES=sqlite`, no files with `memory`. */
export function storeKinds(): readonly StoreKind[] {
  const major = Number(process.versions.node.split(".")[0]);
  const libraries: SqliteLibrary[] = [];
  if (major < 24) libraries.push("better-sqlite3");
  else libraries.push("node:sqlite");
  const sqlite = libraries.flatMap((library) =>
    (["worker", "direct", "memory"] as const).map(
      (way): StoreKind => ({ name: `${library} ${way}`, dialect: "sqlite", way, library }),
    ),
  );
  const wanted = process.env["DROVER_TEST_STORES"];
  if (wanted === "memory") return sqlite.filter(({ way }) => way === "memory");
  if (wanted === "sqlite") return sqlite;
  return [...sqlite, { name: "postgres", dialect: "postgres", way: "postgres", library: null }];
}

/** Statements of the test's own ride on an operation that is not in the table. */
const beside = {
  rows: read("beside.rows", function* ({ query }: { readonly query: Sql }) {
    return yield* all(query);
  }),
  run: operation("beside.run", function* ({ queries }: { readonly queries: readonly Sql[] }) {
    return yield* runAll(...queries);
  }),
};
const besideTable = { beside } as const satisfies OperationTable;

export interface Subject<Table extends OperationTable> {
  readonly table: Table;
  readonly migrations: Readonly<Record<string, string>>;
  /** The entry of a writer's thread that serves the table, relative to the checkout. */
  readonly writer: string;
}

/**
 * Makes the suite of one subject for every kind of store. `body` gets a function that opens a fresh, empty store; each is
 * closed after its test.
 */
export function storesOf<Table extends OperationTable>({ table, migrations, writer }: Subject<Table>) {
  return function forEach(name: string, body: (open: OpenTestStore<Table>, kind: StoreKind) => void): void {
    for (const kind of storeKinds())
      describe(`${name} (${kind.name})`, () => {
        const opened: { close(): Promise<void> }[] = [];
        let folder: string;
        let built: URL | undefined;
        let cluster: Cluster | undefined;
        let database: string | undefined;
        let made = 0;

        beforeAll(async () => {
          folder = mkdtempSync(join(tmpdir(), "drover-store-"));
          if (kind.way === "worker") built = await buildWorker(writer);
          if (kind.way === "postgres") {
            const shared = process.env["DROVER_TEST_POSTGRES"];
            if (shared === undefined) cluster = await startPostgres();
            database = await makeDatabase(shared ?? cluster?.url ?? "");
          }
        });
        afterEach(async () => {
          for (const one of opened.splice(0).toReversed()) await one.close();
        });
        afterAll(async () => {
          await cluster?.stop();
          rmSync(folder, { recursive: true, force: true });
        });

        const open: OpenTestStore<Table> = async () => {
          const clock = storeClock();
          const place = `s${++made}`;
          const keep = <Handle extends { close(): Promise<void> }>(handle: Handle): Handle => {
            opened.push(handle);
            return handle;
          };
          const given = { clock, migrations, ...(kind.library === null ? {} : { library: kind.library }) };
          const file = join(folder, place, "drover.db");
          const openOne = async <Of extends OperationTable>(
            of: Of,
            way: StoreKind["way"],
          ): Promise<StoreHandle<Of>> => {
            switch (way) {
              case "worker":
                return openWorkerStore({ ...given, table: of, file, writer: built as URL });
              case "direct":
                return openDirectStore({ ...given, table: of, file });
              case "memory":
                return openMemoryStore({ ...given, table: of });
              case "postgres":
                return openPostgresStore({
                  clock,
                  migrations,
                  table: of,
                  url: database as string,
                  schema: place,
                  now: () => clock.now(),
                  limits: { poolSize: 4 },
                });
            }
          };
          if (kind.way === "memory") {
            const both = { ...table, ...besideTable };
            const handle = keep(await openOne(both, "memory")) as unknown as StoreHandle<Table>;
            const { beside: own } = handle.store as unknown as StoreHandle<typeof besideTable>["store"];
            return {
              handle,
              store: handle.store,
              clock,
              rows: async <Row>(query: Sql) => (await own.rows({ query })) as readonly Row[],
              run: (...queries) => own.run({ queries }),
              again: async () => handle,
            };
          }
          const handle = keep(await openOne(table, kind.way));
          let second: Promise<StoreHandle<typeof besideTable>> | undefined;
          const own = async () => {
            second ??= openOne(besideTable, kind.way === "postgres" ? "postgres" : "direct").then(keep);
            return (await second).store.beside;
          };
          return {
            handle,
            store: handle.store,
            clock,
            rows: async <Row>(query: Sql) => (await (await own()).rows({ query })) as readonly Row[],
            run: async (...queries) => (await own()).run({ queries }),
            again: async () => keep(await openOne(table, kind.way)),
          };
        };
        body(open, kind);
      });
  };
}

/** Makes a suite for every store with the product's own operations and schema. */
export const forEachStore = (
  name: string,
  body: (open: OpenTestStore<typeof operations>, kind: StoreKind) => void,
): void =>
  storesOf({ table: operations, migrations: ownMigrations(), writer: "src/store/sqlite-writer.ts" })(name, body);
