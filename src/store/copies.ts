/** Copies of a SQLite store: made while it is in use, looked through before they count, and named last. */
import {
  closeSync,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { AppError } from "../core/errors.ts";
import { newerSchema, notAStore, sqliteCode, toStoreError } from "./errors.ts";
import { APPLICATION_ID } from "./migrate.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import type { Sqlite, SqliteLibrary } from "./sqlite-adapters.ts";

/** What was found in a copy. */
export interface CopyFacts {
  readonly schema: number;
  readonly bytes: number;
  readonly loops: number;
  readonly runs: number;
  readonly attempts: number;
  readonly events: number;
  /** Of the newest event: the copy holds everything up to it. */
  readonly lastEventAt: number | null;
}

/** The copies that are made beside a store: those before a change of its schema, and those asked for without a place. */
export const backupFolder = (file: string): string => join(dirname(file), "backups");

/** An instant as it stands in names: sortable, without what some file systems refuse. */
export const stampOf = (at: number): string => new Date(at).toISOString().replaceAll(/[-:]|\.\d+/g, "");

/** What a copy is called until it is whole; the process that writes it is in the name. */
const PARTIAL = /\.(\d+)\.partial$/;
const partialOf = (target: string): string => `${target}.${process.pid}.partial`;

const codeOf = (error: unknown): unknown => (error as { readonly code?: unknown }).code;

/** What the system said of a place that a copy goes to. */
function targetFault(error: unknown, target: string): unknown {
  if (error instanceof AppError) return error;
  const code = codeOf(error);
  if (code === "EEXIST") return exists(target);
  if (code === "ENOSPC" || code === "EDQUOT" || sqliteCode(error) === 13)
    return new AppError("unreachable", "disk_full", `no space is left for the copy at ${target}`, {
      hint: "Free some space, or name a file on another disk; what was written of it was removed.",
      path: target,
      cause: error,
    });
  if (["EACCES", "EPERM", "EROFS", "ENOTDIR", "ENOENT", "ENAMETOOLONG", "EISDIR", "ELOOP"].includes(String(code)))
    return new AppError("invalid", "bad_target", `no file can be made at ${target} (${String(code)})`, {
      hint: "Name a file in a folder that is there and that this user may write.",
      path: target,
      cause: error,
    });
  return toStoreError(error, target, "copy");
}

function makeFolder(target: string): void {
  try {
    mkdirSync(dirname(target), { recursive: true, mode: 0o700 });
  } catch (error) {
    // What is there instead of a folder is not the target itself.
    const isFile = codeOf(error) === "EEXIST";
    throw targetFault(isFile ? Object.assign(new Error("no folder"), { code: "ENOTDIR" }) : error, target);
  }
}

const exists = (target: string): AppError =>
  new AppError("conflict", "target_exists", `${target} is there already`, {
    hint: "Name another file: a copy never replaces anything.",
    path: target,
  });

/** Whether anything has this name, also a link to nothing. */
const isTaken = (path: string): boolean => {
  try {
    return readdirSync(dirname(path)).includes(basename(path));
  } catch {
    return existsSync(path); // the folder cannot be listed, or is not there yet
  }
};

/** Brings a file or a folder's list of names to the disk. */
export function sync(path: string): void {
  const handle = openSync(path, "r");
  try {
    fsyncSync(handle);
  } catch (error) {
    // Some file systems sync no folders; what they keep of a name is theirs.
    if (codeOf(error) !== "EINVAL" && codeOf(error) !== "ENOTSUP") throw error;
  } finally {
    closeSync(handle);
  }
}

/** Gives a whole file its name, unless something has that name. */
function publish(fresh: string, target: string): void {
  try {
    linkSync(fresh, target);
  } catch (error) {
    if (!["EPERM", "ENOTSUP", "ENOSYS", "EMLINK"].includes(String(codeOf(error)))) throw error;
    // No links here: the name is taken by an empty file of ours, which the whole one then replaces.
    closeSync(openSync(target, "wx", 0o600));
    renameSync(fresh, target);
  }
  sync(dirname(target));
}

const hasTable = (connection: Sqlite, table: string): boolean =>
  connection.query("select 1 from sqlite_schema where type = 'table' and name = ?", [table], 0).rows.length > 0;

const count = (connection: Sqlite, table: string): number => {
  if (!hasTable(connection, table)) return 0;
  const [row] = connection.query(`select count(*) as n from ${table}`, [], 0).rows;
  return Number((row as { readonly n: number }).n);
};

const lastEvent = (connection: Sqlite): { readonly id: number; readonly at: number } | null => {
  if (!hasTable(connection, "events")) return null;
  const [row] = connection.query("select id, created_at as at from events order by id desc limit 1", [], 0).rows;
  return (row ?? null) as { readonly id: number; readonly at: number } | null;
};

const damaged = (file: string, why: string, cause?: unknown): AppError =>
  new AppError("invalid", "backup_damaged", `${file} is damaged or cut: ${why}`, {
    hint: "Nothing was changed. Take another copy; the folder backups/ beside the store holds those that were made.",
    path: file,
    cause,
  });

export interface ExamineOptions {
  /** The newest schema that is known. */
  readonly known: number;
  /** What the file is called to people; the file itself unless given. */
  readonly shown?: string;
  readonly library?: SqliteLibrary;
}

const notABackup = (file: string, cause?: unknown): AppError =>
  new AppError("invalid", "not_a_backup", `${file} is not a backup of a drover store`, {
    hint: "Name a file of `drover backup`; what `drover export` wrote is taken in by `drover import bundle`. Nothing was changed.",
    path: file,
    cause,
  });

/**
 * Reads a copy from its first page to its last.
 * Errors: AppError invalid `backup_damaged`, `not_a_backup`, conflict `newer_schema`.
 */
export function examineCopy(file: string, { known, shown = file, library }: ExamineOptions): CopyFacts {
  const bytes = statSync(file).size;
  if (bytes === 0) throw damaged(shown, "it is empty");
  let connection: Sqlite | undefined;
  try {
    connection = openSqlite(file, { readOnly: true }, library);
    if (Number(connection.pragma("application_id")) !== APPLICATION_ID) throw notABackup(shown);
    const schema = Number(connection.pragma("user_version"));
    if (schema > known) throw newerSchema(shown, schema, known);
    const faults = connection
      .query("pragma integrity_check(3)", [], 0)
      .rows.flatMap((row) => Object.values(row as Record<string, string>))
      .filter((line) => line !== "ok");
    if (faults.length > 0) throw damaged(shown, faults.join("; "));
    return {
      schema,
      bytes,
      loops: count(connection, "loops"),
      runs: count(connection, "runs"),
      attempts: count(connection, "attempts"),
      events: count(connection, "events"),
      lastEventAt: lastEvent(connection)?.at ?? null,
    };
  } catch (error) {
    if (error instanceof AppError) throw error;
    if (sqliteCode(error) === 11) throw damaged(shown, "pages are missing or contradict one another", error);
    if (sqliteCode(error) === 26) throw notABackup(shown, error);
    throw toStoreError(error, shown, "examine");
  } finally {
    connection?.close();
  }
}

/**
 * Writes what the store holds now to a file that is not there yet. The file has its name when it is whole, was read from end
 * to end and is on the disk; nothing is left of it otherwise. Readers and writers of the store go on meanwhile.
 * Errors: AppError conflict `target_exists`, unreachable `disk_full`, invalid `bad_target`, and those of `examineCopy`.
 */
export function copyInto(connection: Sqlite, target: string, options: ExamineOptions): CopyFacts {
  const fresh = partialOf(target);
  makeFolder(target);
  try {
    if (isTaken(target)) throw exists(target);
    rmSync(fresh, { force: true });
    // For this user alone, also while it is being written.
    closeSync(openSync(fresh, "wx", 0o600));
    const before = lastEvent(connection);
    connection.query("vacuum into ?", [fresh], 0);
    const facts = examineCopy(fresh, { ...options, shown: target });
    if (before !== null && (facts.lastEventAt === null || facts.lastEventAt < before.at))
      throw damaged(target, `it lacks events up to ${new Date(before.at).toISOString()}`);
    sync(fresh);
    publish(fresh, target);
    return facts;
  } catch (error) {
    throw targetFault(error, target);
  } finally {
    rmSync(fresh, { force: true });
    rmSync(`${fresh}-journal`, { force: true });
  }
}

/** Copies a store's file without changing it. Errors: as `copyInto`; unreachable `no_store`. */
export function copyStore(file: string, target: string, options: ExamineOptions): CopyFacts {
  if (!existsSync(file))
    throw new AppError("unreachable", "no_store", `there is no store at ${file} yet`, {
      hint: "There is nothing to copy before the first loop or run.",
      path: file,
    });
  let connection: Sqlite | undefined;
  try {
    connection = openSqlite(file, { readOnly: true }, options.library);
    if (Number(connection.pragma("application_id")) !== APPLICATION_ID) throw notAStore(file);
    const schema = Number(connection.pragma("user_version"));
    if (schema > options.known) throw newerSchema(file, schema, options.known);
  } catch (error) {
    connection?.close();
    throw toStoreError(error, file, "copy");
  }
  try {
    return copyInto(connection, target, options);
  } finally {
    connection.close();
  }
}

/** The first name of this kind that is free. */
export function freeCopy(folder: string, prefix: string, now: number): string {
  for (let nth = 1; ; nth++) {
    const target = join(folder, `${prefix}-${stampOf(now)}${nth === 1 ? "" : `-${nth}`}.db`);
    if (!isTaken(target)) return target;
  }
}

/**
 * The copy before a store is changed to a newer schema; its name says from where to where. For the holder of the store's
 * write lock, who changes it next: so it is one of before the change, and the only one, however many open the store at once.
 * Errors: AppError unreachable `disk_full`, invalid `bad_target`: then the store is not to be changed.
 */
export function copyBefore(file: string, from: number, to: number, now: number, library?: SqliteLibrary): void {
  const target = freeCopy(backupFolder(file), `before-${from}-to-${to}`, now);
  try {
    copyStore(file, target, { known: to, ...(library === undefined ? {} : { library }) });
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new AppError(error.kind, error.code, `the store at ${file} is not brought up to date: ${error.message}`, {
      hint: `${error.hint ?? ""} The store is as it was; a newer drover first makes a copy of it.`.trim(),
      path: target,
      cause: error,
    });
  }
}

const namesIn = (folder: string): readonly string[] => {
  try {
    return readdirSync(folder);
  } catch {
    return []; // not there, or none that can be listed: then there is nothing of ours to remove
  }
};

/** Removes what processes that are gone left half written. Answers how many there were. */
export function dropPartials(folder: string, isAlive: (pid: number) => boolean, dryRun = false): number {
  const left = namesIn(folder).filter((name) => {
    const pid = Number(PARTIAL.exec(name)?.[1] ?? 0);
    return pid > 0 && pid !== process.pid && !isAlive(pid);
  });
  if (!dryRun) for (const name of left) rmSync(join(folder, name), { recursive: true, force: true });
  return left.length;
}

/** Removes the oldest copies whose name begins so, beyond the newest `keep`. Answers the names removed. */
export function rotate(folder: string, prefix: string, keep: number, dryRun = false): readonly string[] {
  const copies = namesIn(folder)
    .filter((name) => name.startsWith(prefix) && /^\d{8}T\d{6}Z(?:-\d+)?\.db$/.test(name.slice(prefix.length)))
    .toSorted();
  const old = copies.slice(0, Math.max(0, copies.length - keep));
  if (!dryRun) for (const name of old) rmSync(join(folder, name), { force: true });
  return old;
}
