/** Opening a SQLite store: whose file it is, how it is kept safe, and that its schema is ours. */
import { accessSync, closeSync, constants, existsSync, mkdirSync, openSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { AppError } from "../core/errors.ts";
import { copyBefore } from "./copies.ts";
import {
  isSqliteBusy,
  newerSchema,
  notAStore,
  storeBusy,
  storeCorrupt,
  storeReadOnly,
  storeUnreachable,
  toStoreError,
} from "./errors.ts";
import { APPLICATION_ID, migrate, missingFrom, readLedger } from "./migrate.ts";
import type { LedgerRow, Migration } from "./migrate.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import type { Sqlite, SqliteLibrary } from "./sqlite-adapters.ts";
import { patiently, runnerAt, runSync } from "./sqlite-run.ts";

/** Limits of a SQLite store; each is an option. */
export const SQLITE_LIMITS = {
  /** How long a lock is waited for. */
  busyMs: 10_000,
  /** Frames after which a commit also moves the log into the file: the safety net behind the idle checkpoints. */
  autoCheckpointFrames: 4000,
  /** Files up to this size are checked when the last writer did not end cleanly; 12 MiB took 2 ms. */
  checkMaxBytes: 256 * 1024 * 1024,
} as const;

export interface ConnectionOptions {
  readonly file: string;
  readonly access: "read" | "write";
  readonly migrations: readonly Migration[];
  /** The store's now, for the ledger. */
  readonly now: () => number;
  readonly library?: SqliteLibrary;
  readonly busyMs?: number;
  readonly checkMaxBytes?: number;
}

/** Says in the data folder that a store was made, so that an emptied or vanished file is not taken for a new one. */
export const markerOf = (file: string): string => `${file}.made`;

const MARKER_TEXT =
  "A drover store was made beside this file. If the store is gone or empty, drover refuses to begin a new one in its\n" +
  "place. To begin anew on purpose, remove this file.\n";

/** Leaves the marker of a store that is there. */
export const writeMarker = (file: string): void => writeFileSync(markerOf(file), MARKER_TEXT, { mode: 0o600 });

function systemError(error: unknown, file: string): AppError {
  const { code } = error as { readonly code?: unknown };
  if (code === "EROFS" || code === "EACCES" || code === "EPERM") return storeReadOnly(file, error);
  return storeUnreachable(file, error instanceof Error ? error.message : String(error), error);
}

/** Makes the folder and the empty file, for the owner only. Never opens a file that is there: closing it would drop SQLite's locks. */
function createFile(file: string): void {
  try {
    mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
    closeSync(openSync(file, "wx", 0o600));
  } catch (error) {
    if ((error as { readonly code?: unknown }).code !== "EEXIST") throw systemError(error, file);
  }
}

function checkWritable(file: string): void {
  try {
    accessSync(dirname(file), constants.W_OK);
    accessSync(file, constants.W_OK);
  } catch (error) {
    throw systemError(error, file);
  }
}

interface Identity {
  readonly application: number;
  readonly version: number;
  readonly empty: boolean;
}

/** In one read transaction, so that a store that is being made is seen whole or not at all. */
function identityOf(connection: Sqlite): Identity {
  connection.exec("begin");
  try {
    const application = Number(connection.pragma("application_id"));
    const version = Number(connection.pragma("user_version"));
    const [row] = connection.query("select count(*) as count from sqlite_schema", [], 0).rows;
    return { application, version, empty: (row as { readonly count: number }).count === 0 };
  } finally {
    if (connection.inTransaction) connection.exec("commit");
  }
}

/** Sets a pragma and reads it back: defaults differ between the libraries, and some are refused without an error. */
function setPragma(
  connection: Sqlite,
  name: string,
  value: string | number,
  file: string,
  expected: string | number = value,
): void {
  connection.pragma(`${name} = ${value}`);
  const found = connection.pragma(name);
  if (found === expected) return;
  if (name === "journal_mode")
    throw storeUnreachable(
      file,
      "its file system cannot share a log between processes",
      undefined,
      "Put the state folder on a local disk; network folders and some containers cannot hold it",
    );
  throw storeUnreachable(file, `SQLite keeps ${name} at ${found}`, undefined, "Use another SQLite library");
}

function setPragmas(connection: Sqlite, { file, access }: ConnectionOptions): void {
  setPragma(connection, "busy_timeout", 0, file);
  setPragma(connection, "foreign_keys", 1, file);
  setPragma(connection, "trusted_schema", 0, file);
  if (access === "read") return setPragma(connection, "query_only", 1, file);
  setPragma(connection, "journal_mode", "wal", file);
  setPragma(connection, "synchronous", "full", file, 2);
  setPragma(connection, "wal_autocheckpoint", SQLITE_LIMITS.autoCheckpointFrames, file);
  // On macOS a plain flush leaves the data in the drive's cache.
  if (process.platform === "darwin") setPragma(connection, "fullfsync", 1, file);
}

function runMigrations(connection: Sqlite, { migrations, file, now, library }: ConnectionOptions): readonly number[] {
  connection.exec("begin immediate");
  try {
    const version = Number(connection.pragma("user_version"));
    // From a second connection, which sees the store as it is before this transaction.
    if (version > 0 && version < migrations.length) copyBefore(file, version, migrations.length, now(), library);
    const applied = runSync(migrate(migrations, "sqlite", file), runnerAt(connection, now()));
    connection.exec("commit");
    return applied;
  } catch (error) {
    if (connection.inTransaction) connection.exec("rollback");
    throw error;
  }
}

export interface Opened {
  readonly connection: Sqlite;
  /** Migrations applied now. */
  readonly applied: readonly number[];
  readonly version: number;
}

function prepare(connection: Sqlite, options: ConnectionOptions, wasMade: boolean, isToCheck: boolean): Opened {
  const { file, access, migrations, busyMs = SQLITE_LIMITS.busyMs } = options;
  const { application, version, empty } = patiently(busyMs, () => identityOf(connection));
  const isNew = empty && application === 0 && version === 0;
  if (!isNew && application !== APPLICATION_ID) throw notAStore(file);
  if (isNew && wasMade)
    throw storeCorrupt(file, `it is empty, though a store was made here (${markerOf(file)} says so)`);
  if (version > migrations.length) throw newerSchema(file, version, migrations.length);
  if (access === "read" && version < migrations.length)
    throw new AppError(
      "conflict",
      "older_schema",
      `the store at ${file} has schema ${version}, this program needs ${migrations.length}`,
      {
        hint: "Start the daemon once with `drover up`; it brings the store up to date",
        path: file,
      },
    );
  patiently(busyMs, () => setPragmas(connection, options));
  if (isToCheck) {
    const found = patiently(busyMs, () => connection.pragma("quick_check(1)"));
    if (found !== "ok") throw storeCorrupt(file, String(found));
  }
  if (version === migrations.length) {
    // No write lock: otherwise every command would wait for the daemon.
    const ledger = patiently(busyMs, () => runnerAt(connection, 0)(readLedger)).rows as readonly LedgerRow[];
    missingFrom(ledger, migrations, file);
    return { connection, applied: [], version };
  }
  const applied = patiently(busyMs, () => runMigrations(connection, options));
  return { connection, applied, version: migrations.length };
}

/**
 * Looks at all pages, before anybody opens the file for writing: the last writer that closes it takes the log away, and with
 * it what says that it has to be looked at. Answers whether that could be done. Errors: AppError `store_corrupt`, or SQLite's.
 */
function checkPages({ file, library, busyMs = SQLITE_LIMITS.busyMs }: ConnectionOptions): boolean {
  let reader: Sqlite;
  try {
    reader = openSqlite(file, { readOnly: true }, library);
    // Whose it is, and of which version, is said by who opens it.
    if (patiently(busyMs, () => identityOf(reader)).application !== APPLICATION_ID) {
      reader.close();
      return false;
    }
  } catch {
    return false; // the log cannot be read without the right to write: the writer looks
  }
  try {
    const found = patiently(busyMs, () => reader.pragma("quick_check(1)"));
    if (found !== "ok") throw storeCorrupt(file, String(found));
    return true;
  } finally {
    reader.close();
  }
}

/**
 * Opens a store's file, for writing also makes and migrates it.
 * Errors: AppError `no_store`, `not_a_store`, `newer_schema`, `older_schema`, `store_corrupt`, `store_read_only`,
 * `store_busy`, `store_unreachable`, `disk_full`.
 */
export function openConnection(options: ConnectionOptions): Opened {
  const { file, access, library } = options;
  // The marker before the file: it is written after the store, so a marker seen now means a store that was there.
  const wasMade = existsSync(markerOf(file));
  if (!existsSync(file)) {
    if (wasMade) throw storeCorrupt(file, `the file is gone, though a store was made here (${markerOf(file)} says so)`);
    if (access === "read")
      throw new AppError("unreachable", "no_store", `there is no store at ${file} yet`, {
        hint: "`drover up` or `drover loop add` makes one",
        path: file,
      });
    createFile(file);
  }
  if (access === "write") checkWritable(file);
  // A log that has content before anybody opened it: the last writer was killed, or is still there.
  const unclean = (statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
  const isToCheck =
    unclean && access === "write" && statSync(file).size <= (options.checkMaxBytes ?? SQLITE_LIMITS.checkMaxBytes);
  let connection: Sqlite | undefined;
  try {
    const isLeft = isToCheck && !checkPages(options);
    connection = openSqlite(file, { readOnly: access === "read" }, library);
    const opened = prepare(connection, options, wasMade, isLeft);
    if (access === "write" && !wasMade) writeMarker(file);
    return opened;
  } catch (error) {
    connection?.close();
    throw isSqliteBusy(error) ? storeBusy(file, error) : toStoreError(error, file, "open");
  }
}
