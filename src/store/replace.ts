/** Puts a copy in the place of a SQLite store. For the holder of the daemon's lock (ADR 0016). */
import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  renameSync,
  rmSync,
  type Stats,
  statSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { AppError } from "../core/errors.ts";
import { examineCopy, stampOf, sync, type CopyFacts, type ExamineOptions } from "./copies.ts";
import { isSqliteBusy, storeBusy, toStoreError } from "./errors.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import { markerOf, writeMarker } from "./sqlite-connection.ts";
import { patiently } from "./sqlite-run.ts";

/** How long a reader of the present store is waited for. */
const READER_PATIENCE_MS = 10_000;

/** A copy beside the store, to be made ready there. */
export interface Staged {
  readonly folder: string;
  readonly file: string;
  readonly facts: CopyFacts;
}

/** What lies there; undefined also for a name that no file can have. */
function lookAt(path: string): Stats | undefined {
  try {
    return statSync(path);
  } catch {
    return undefined;
  }
}

const notACopy = (code: string, message: string, hint: string, path: string): AppError =>
  new AppError("invalid", code, message, { hint, path });

/**
 * Copies a backup beside the store and looks through what has arrived: what is looked through is what takes the store's place.
 * Errors: AppError not_found `file_not_found`, invalid `not_a_file`, `store_in_use`, `same_file`, unreachable `disk_full`, and
 * those of `examineCopy`; nothing is left then.
 */
export function stageCopy(copy: string, file: string, options: ExamineOptions): Staged {
  const found = lookAt(copy);
  if (found === undefined)
    throw new AppError("not_found", "file_not_found", `there is no file ${copy}`, {
      hint: "`drover backup` makes one; those made without a name are in backups/ beside the store.",
      path: copy,
    });
  if (!found.isFile()) throw notACopy("not_a_file", `${copy} is not a file`, "Name the file of a backup.", copy);
  const present = statSync(file, { throwIfNoEntry: false });
  if (present !== undefined && present.ino === found.ino && present.dev === found.dev)
    throw notACopy("same_file", `${copy} is the store itself`, "Name the file of a backup.", copy);
  if ((statSync(`${copy}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0)
    throw notACopy(
      "store_in_use",
      `${copy} is a store that was in use, not a backup: a part of it is in ${copy}-wal`,
      "Make a backup of it with `drover backup`, and restore that.",
      copy,
    );
  const folder = join(dirname(file), `restoring.${process.pid}.partial`);
  const staged = join(folder, basename(file));
  try {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    copyFileSync(copy, staged);
    chmodSync(staged, 0o600);
    return { folder, file: staged, facts: examineCopy(staged, { ...options, shown: copy }) };
  } catch (error) {
    rmSync(folder, { recursive: true, force: true });
    const { code } = error as { readonly code?: unknown };
    if (code === "ENOSPC" || code === "EDQUOT")
      throw new AppError("unreachable", "disk_full", `no space is left for a copy of ${copy} at ${folder}`, {
        hint: "Free some space; the store is as it was.",
        path: folder,
        cause: error,
      });
    throw toStoreError(error, copy, "stage");
  }
}

/** The steps of a replacement, in their order. After each of them either store is whole. */
export type Step = "emptied" | "aside" | "replaced";

/**
 * Gives the place of the store to a staged copy that nobody has open. The present store goes to a folder `replaced-<stamp>`
 * beside it, whole; the change itself is one rename. Answers that folder; null where there was no store.
 * Errors: AppError conflict `store_busy` while somebody reads the present store; nothing has changed then.
 */
export function replaceStore(staged: string, file: string, now: number, reached: (step: Step) => void): string | null {
  if ((statSync(`${staged}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0) throw new Error(`${staged} is still open`);
  sync(staged);
  let aside: string | null = null;
  if (existsSync(file)) {
    dropUnfinished(file);
    emptyLog(file);
    reached("emptied");
    aside = freeFolder(join(dirname(file), `replaced-${stampOf(now)}`));
    mkdirSync(aside, { mode: 0o700 });
    keep(file, join(aside, basename(file)));
    // Only of a store that could not be opened: what its log holds belongs to it and to nothing else.
    if ((statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0)
      renameSync(`${file}-wal`, join(aside, `${basename(file)}-wal`));
    sync(aside);
  }
  for (const end of ["-wal", "-shm"]) rmSync(`${file}${end}`, { force: true });
  reached("aside");
  renameSync(staged, file);
  sync(dirname(file));
  reached("replaced");
  if (!existsSync(markerOf(file))) writeMarker(file);
  if (aside !== null) writeMarker(join(aside, basename(file)));
  return aside;
}

/** A second name for the store's file; where there are no links, a copy. */
function keep(file: string, other: string): void {
  try {
    linkSync(file, other);
  } catch (error) {
    const { code } = error as { readonly code?: unknown };
    if (!["EPERM", "ENOTSUP", "ENOSYS", "EMLINK"].includes(String(code))) throw error;
    copyFileSync(file, other);
    chmodSync(other, 0o600);
    sync(other);
  }
}

/** Moves what is in the store's log into its file, so that the file alone is the whole store. One that is damaged stays as it is. */
function emptyLog(file: string): void {
  try {
    const connection = openSqlite(file);
    try {
      patiently(READER_PATIENCE_MS, () => {
        const [row] = connection.query("pragma wal_checkpoint(truncate)", [], 0).rows;
        if ((row as { readonly busy?: number } | undefined)?.busy === 1)
          throw Object.assign(new Error("busy"), { code: "SQLITE_BUSY" });
      });
    } finally {
      connection.close();
    }
  } catch (error) {
    if (isSqliteBusy(error)) throw storeBusy(file, error);
    const told = toStoreError(error, file, "checkpoint");
    const isDamaged = told instanceof AppError && ["store_corrupt", "not_a_store"].includes(told.code);
    if (!isDamaged) throw told; // a damaged store is often why there is a restore: it is kept as it lies there
  }
}

/** A replacement that was cut off left a second name of the store that is still in its place: that name goes. */
function dropUnfinished(file: string): void {
  const present = statSync(file);
  for (const name of readdirSync(dirname(file)).filter((one) => one.startsWith("replaced-"))) {
    const folder = join(dirname(file), name);
    // With a log in it, it is all that is left of a damaged one.
    if (existsSync(join(folder, `${basename(file)}-wal`))) continue;
    const other = statSync(join(folder, basename(file)), { throwIfNoEntry: false });
    if (other !== undefined && other.ino === present.ino && other.dev === present.dev)
      rmSync(folder, { recursive: true, force: true });
  }
}

function freeFolder(wanted: string): string {
  for (let nth = 1; ; nth++) {
    const folder = nth === 1 ? wanted : `${wanted}-${nth}`;
    if (!existsSync(folder)) return folder;
  }
}
