/** The daemon's lock: held by the operating system for the life of the process, whatever ends it. */
import {
  chmodSync,
  closeSync,
  existsSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import { isSqliteBusy, toStoreError } from "./errors.ts";
import { openSqlite } from "./sqlite-adapters.ts";
import type { SqliteLibrary } from "./sqlite-adapters.ts";

/** Who holds a lock, as far as its side file says: for people, never for a decision. */
export interface LockOwner {
  readonly pid: number;
}

export type Lock =
  | {
      readonly held: true;
      readonly release: () => void;
      /** Whether the file is still the one that was locked; where it was removed, another process may hold another one. */
      readonly isInPlace: () => boolean;
    }
  | { readonly held: false; readonly owner: LockOwner | null };

export interface LockOptions {
  /** Called when somebody else has it; answers whether to try again. Without it the answer is that it is busy. */
  readonly onBusy?: (owner: LockOwner | null) => boolean | Promise<boolean>;
  readonly library?: SqliteLibrary;
}

/**
 * Locks that this process holds. Closing any descriptor of the file would drop the lock of the whole process, so a file that
 * is held here is not opened a second time.
 */
const heldHere = new Set<string>();

const ownerFile = (file: string): string => `${file}.pid`;

/** The file's number, which nobody else gets while we have it open. */
function inodeOf(file: string): string | null {
  try {
    const { dev, ino } = lstatSync(file, { bigint: true });
    return `${dev} ${ino}`;
  } catch {
    return null; // gone
  }
}

function readOwner(file: string): LockOwner | null {
  try {
    const pid = Number(readFileSync(ownerFile(file), "utf8"));
    return Number.isSafeInteger(pid) && pid > 0 ? { pid } : null;
  } catch {
    // Only told to people; the lock itself is what counts.
    return null;
  }
}

/** The file, for this user alone. SQLite would make it as the umask says, and has its own words for one that cannot be made. */
function makeFile(file: string): void {
  try {
    closeSync(openSync(file, "wx", 0o600));
  } catch {
    // it is there already, or cannot be
  }
}

function tryLock(file: string, library: SqliteLibrary | undefined): (() => void) | null {
  makeFile(file);
  const connection = openSqlite(file, {}, library);
  try {
    connection.pragma("busy_timeout = 0");
    // A log would be locked in another way.
    connection.pragma("journal_mode = delete");
    connection.exec("begin exclusive");
  } catch (error) {
    connection.close();
    if (isSqliteBusy(error)) return null;
    throw error;
  }
  return () => {
    connection.exec("rollback");
    connection.close();
  };
}

/**
 * Who holds the lock of this file; null when nobody does. It makes nothing and writes nothing, so it works on a full disk.
 * Errors: as of `acquireLock`.
 */
export function lockHolder(file: string, library?: SqliteLibrary): { readonly owner: LockOwner | null } | null {
  const path = resolve(file);
  if (heldHere.has(path)) return { owner: readOwner(path) };
  if (!existsSync(path)) return null;
  try {
    const connection = openSqlite(path, { readOnly: true }, library);
    try {
      // Reading takes the shared lock, which whoever holds the exclusive one denies.
      connection.pragma("schema_version");
      return null;
    } catch (error) {
      if (isSqliteBusy(error)) return { owner: readOwner(path) };
      throw error;
    } finally {
      connection.close();
    }
  } catch (error) {
    throw toStoreError(error, path, "lock");
  }
}

/**
 * Takes the lock that this file stands for: a SQLite file of its own, which nothing else in the process opens, reads or
 * closes. Ends with the process, also by `kill -9`; children do not inherit it.
 * Errors: AppError `store_unreachable`, `store_read_only`, `not_a_store` for a file that cannot be one.
 */
export async function acquireLock(file: string, { onBusy, library }: LockOptions = {}): Promise<Lock> {
  const path = resolve(file);
  for (;;) {
    let unlock: (() => void) | null = null;
    if (!heldHere.has(path)) {
      // Before anything is awaited, so that two calls of one process cannot both open it.
      heldHere.add(path);
      try {
        mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
        unlock = tryLock(path, library);
      } catch (error) {
        throw toStoreError(error, path, "lock");
      } finally {
        if (!unlock) heldHere.delete(path);
      }
    }
    if (unlock) {
      const end = unlock;
      const own = inodeOf(path);
      try {
        writeFileSync(ownerFile(path), `${process.pid}\n`, { mode: 0o600 });
        // One that was there keeps its mode.
        for (const one of [path, ownerFile(path)]) chmodSync(one, 0o600);
      } catch {
        // Only told to people: a full or read-only disk says so where it matters.
      }
      return {
        held: true,
        isInPlace: () => own !== null && inodeOf(path) === own,
        release() {
          if (!heldHere.has(path)) return;
          // Somebody who removed the lock's file may have let another process take it anew.
          if (readOwner(path)?.pid === process.pid) rmSync(ownerFile(path), { force: true });
          end();
          heldHere.delete(path);
        },
      };
    }
    const owner = readOwner(path);
    if (!(await onBusy?.(owner))) return { held: false, owner };
  }
}
