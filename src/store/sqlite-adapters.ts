/** One SQLite connection over either library: what they do differently ends here. */
import { createRequire } from "node:module";
import { AppError, BrokenAssert } from "../core/errors.ts";
import type { Result } from "./operation.ts";
import { now } from "./sql.ts";
import type { Value } from "./sql.ts";

export type SqliteLibrary = "better-sqlite3" | "node:sqlite";

export interface Sqlite {
  readonly library: SqliteLibrary;
  /** Whether a transaction is open. After a full disk SQLite has ended it by itself. */
  readonly inTransaction: boolean;
  /** Runs a text of any number of statements; no values, no rows. */
  exec(text: string): void;
  /** Runs one statement. The text keeps its prepared form, up to `MAX_STATEMENTS`. `instant` is bound where the text says now. */
  query(text: string, values: readonly (Value | typeof now)[], instant: number): Result;
  /** The first column of a pragma's first row; undefined when it answers nothing. */
  pragma(text: string): string | number | undefined;
  close(): void;
}

export interface SqliteOptions {
  readonly readOnly?: boolean;
}

/** Prepared statements that a connection keeps; the one that was not used for longest goes first. */
export const MAX_STATEMENTS = 500;

type Bound = string | number | bigint | Uint8Array | null;

/** What both libraries call the same. */
interface Statement {
  all(...values: Bound[]): unknown[];
  run(...values: Bound[]): { readonly changes: number | bigint };
  columns(): readonly { readonly type: string | null }[];
  readonly reader?: boolean;
}

interface Database {
  prepare(text: string): Statement;
  exec(text: string): unknown;
  close(): unknown;
  readonly inTransaction?: boolean;
  readonly isTransaction?: boolean;
}

interface Prepared {
  readonly statement: Statement;
  /** Whether it gives rows. */
  readonly reads: boolean;
  /** Whether a row may hold bytes: said by the declared types; expressions have none. */
  readonly mayHoldBytes: boolean;
}

/** Both libraries bind a number as REAL; as a bigint it stays an integer in expressions without a column, as on PostgreSQL. */
const bind = (value: Value | typeof now, instant: number): Bound => {
  if (value === now) return BigInt(instant);
  return typeof value === "number" && Number.isInteger(value) ? BigInt(value) : value;
};

/** One library hands out Buffers, the other Uint8Arrays. */
function plainBytes(row: unknown): void {
  const columns = row as Record<string, unknown>;
  for (const column of Object.keys(columns)) {
    const value = columns[column];
    if (value instanceof Uint8Array) columns[column] = new Uint8Array(value);
  }
}

/** One library refuses the other way of running it; the flag exists only there, the columns in both. */
const givesRows = (statement: Statement): boolean => statement.reader ?? statement.columns().length > 0;

function connection(library: SqliteLibrary, database: Database): Sqlite {
  const statements = new Map<string, Prepared>();
  const prepare = (text: string): Prepared => {
    const kept = statements.get(text);
    if (kept) {
      // Set again, so that the map's order is that of use; a busy connection has far fewer texts than the limit.
      if (statements.size > MAX_STATEMENTS / 2) {
        statements.delete(text);
        statements.set(text, kept);
      }
      return kept;
    }
    const statement = database.prepare(text);
    const reads = givesRows(statement);
    const mayHoldBytes = reads && statement.columns().some(({ type }) => type === null || /blob/i.test(type));
    const fresh = { statement, reads, mayHoldBytes };
    if (statements.size >= MAX_STATEMENTS) statements.delete(statements.keys().next().value as string);
    statements.set(text, fresh);
    return fresh;
  };
  return {
    library,
    get inTransaction() {
      return database.inTransaction ?? database.isTransaction ?? false;
    },
    exec(text) {
      database.exec(text);
    },
    query(text, values, instant) {
      const { statement, reads, mayHoldBytes } = prepare(text);
      const bound = values.map((value) => bind(value, instant));
      if (!reads) return { rows: [], changes: Number(statement.run(...bound).changes) };
      const rows = statement.all(...bound);
      if (mayHoldBytes) for (const row of rows) plainBytes(row);
      return { rows, changes: rows.length };
    },
    pragma(text) {
      // Not kept: a pragma's effect may be that of its preparation.
      const statement = database.prepare(`pragma ${text}`);
      if (!givesRows(statement)) {
        statement.run();
        return undefined;
      }
      const [row] = statement.all() as Readonly<Record<string, string | number>>[];
      return row === undefined ? undefined : Object.values(row)[0];
    },
    close() {
      statements.clear();
      database.close();
    },
  };
}

/** From this major on Node's own library is used; better-sqlite3 12 aborts there at random. */
const NODE_SQLITE_FROM = 24;

/** The library for this Node. */
export const sqliteLibrary = (version: string = process.versions.node): SqliteLibrary =>
  Number(version.split(".")[0]) >= NODE_SQLITE_FROM ? "node:sqlite" : "better-sqlite3";

/** Where the compiled library lies. Its own search for it costs more than opening a database; null leaves it to that. */
function compiled(require: NodeJS.Require): string | null {
  try {
    return require.resolve("better-sqlite3/build/Release/better_sqlite3.node");
  } catch {
    return null;
  }
}

function openBetter(file: string, { readOnly = false }: SqliteOptions): Database {
  const require = createRequire(import.meta.url);
  let Better: new (file: string, options: Readonly<Record<string, unknown>>) => Database;
  try {
    Better = require("better-sqlite3") as typeof Better;
  } catch (cause) {
    throw new AppError("unreachable", "sqlite_missing", "the SQLite library is not installed for this Node", {
      hint: "Run `npm install better-sqlite3` with a C++ toolchain, or use Node 24, which has its own",
      cause,
    });
  }
  const nativeBinding = compiled(require);
  return new Better(file, { readonly: readOnly, timeout: 0, ...(nativeBinding === null ? {} : { nativeBinding }) });
}

function openNode(file: string, { readOnly = false }: SqliteOptions): Database {
  const module = process.getBuiltinModule("node:sqlite") as
    | { DatabaseSync: new (file: string, options: Readonly<Record<string, unknown>>) => Database }
    | undefined;
  if (!module) throw new BrokenAssert("this Node has no SQLite of its own");
  return new module.DatabaseSync(file, { readOnly });
}

/** Opens a connection with no waiting of its own for locks. Errors are the library's. */
export function openSqlite(
  file: string,
  options: SqliteOptions = {},
  library: SqliteLibrary = sqliteLibrary(),
): Sqlite {
  return connection(library, library === "node:sqlite" ? openNode(file, options) : openBetter(file, options));
}
