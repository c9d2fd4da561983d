/** What the drivers say, mapped once to errors that somebody can act on. */
import { AppError, BrokenAssert, fromDocument, toDocument } from "../core/errors.ts";
import type { ErrorDocument } from "../core/errors.ts";
import { StatementFailed } from "./operation.ts";

/** A fault inside an operation that nobody can act on but us; the cause has the stack of the place. */
export class OperationFailed extends Error {
  override readonly name = "OperationFailed";
  readonly operation: string;

  constructor(operation: string, message: string, cause: unknown) {
    super(`${operation}: ${message}`, { cause });
    this.operation = operation;
  }
}

/** The store does not answer, or not as a store. `why` completes the sentence about the place. */
export const storeUnreachable = (place: string, why: string, cause?: unknown, hint?: string): AppError =>
  new AppError("unreachable", "store_unreachable", `the store at ${place} cannot be used: ${why}`, {
    hint: hint ?? "Check the place in DROVER_STORE or the configuration, and that it is there and up",
    path: place,
    cause,
  });

export const storeReadOnly = (place: string, cause?: unknown): AppError =>
  new AppError("unreachable", "store_read_only", `the store at ${place} cannot be written`, {
    hint: "Give this user the right to write the file and its folder, or the database.",
    path: place,
    cause,
  });

export const storeCorrupt = (place: string, why: string, cause?: unknown): AppError =>
  new AppError("unreachable", "store_corrupt", `the store at ${place} is damaged: ${why}`, {
    hint: "`drover restore FILE` puts a copy in its place and keeps this one; the folder backups/ beside it holds those that were made.",
    path: place,
    cause,
  });

export const notAStore = (place: string, cause?: unknown): AppError =>
  new AppError("unreachable", "not_a_store", `${place} is not a drover store`, {
    hint: "Name another file in DROVER_STORE; this one belongs to something else and was not touched.",
    path: place,
    cause,
  });

export const diskFull = (place: string, cause?: unknown): AppError =>
  new AppError("unreachable", "disk_full", `no space is left for the store at ${place}`, {
    hint: "Free some space; nothing of the change was stored.",
    path: place,
    cause,
  });

export const storeBusy = (place: string, cause?: unknown): AppError =>
  new AppError("conflict", "store_busy", `the store at ${place} is locked by somebody else`, {
    hint: "Try again; if it stays, look for another program that holds the store.",
    path: place,
    cause,
  });

/** The connection was lost after the commit had been sent: it happened, or it did not. */
export const outcomeUnknown = (place: string, cause: unknown): AppError =>
  new AppError("unreachable", "outcome_unknown", `the store at ${place} went away before it confirmed the change`, {
    hint: "Ask again with the same id or key: what was already done is not done twice.",
    path: place,
    cause,
  });

export const newerSchema = (place: string, found: number, known: number): AppError =>
  new AppError("conflict", "newer_schema", `the store at ${place} has schema ${found}, this program knows ${known}`, {
    hint: "Use the newer drover that made it; nothing was changed.",
    path: place,
  });

/** Base result codes by name, as SQLite's documentation numbers them. */
const SQLITE_CODES: Readonly<Record<string, number>> = {
  ERROR: 1,
  INTERNAL: 2,
  PERM: 3,
  ABORT: 4,
  BUSY: 5,
  LOCKED: 6,
  NOMEM: 7,
  READONLY: 8,
  INTERRUPT: 9,
  IOERR: 10,
  CORRUPT: 11,
  FULL: 13,
  CANTOPEN: 14,
  PROTOCOL: 15,
  CONSTRAINT: 19,
  NOTADB: 26,
};

/** The base result code of an error of either SQLite library; undefined when it is none. */
export function sqliteCode(error: unknown): number | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, errcode } = error as { readonly code?: unknown; readonly errcode?: unknown };
  if (typeof errcode === "number") return errcode & 255;
  if (typeof code !== "string" || !code.startsWith("SQLITE_")) return undefined;
  return SQLITE_CODES[code.split("_")[1] ?? ""] ?? SQLITE_CODES["ERROR"];
}

export const isSqliteBusy = (error: unknown): boolean => {
  const code = sqliteCode(error);
  return code === SQLITE_CODES["BUSY"] || code === SQLITE_CODES["LOCKED"] || code === SQLITE_CODES["PROTOCOL"];
};

/** The message for people of a SQLite error; undefined when the fault is ours. */
function fromSqlite(error: unknown, place: string): AppError | undefined {
  const code = sqliteCode(error);
  switch (code) {
    case SQLITE_CODES["BUSY"]:
    case SQLITE_CODES["LOCKED"]:
    case SQLITE_CODES["PROTOCOL"]:
      return storeBusy(place, error);
    case SQLITE_CODES["READONLY"]:
    case SQLITE_CODES["PERM"]:
      return storeReadOnly(place, error);
    case SQLITE_CODES["CORRUPT"]:
      return storeCorrupt(place, "its pages contradict one another", error);
    case SQLITE_CODES["NOTADB"]:
      return notAStore(place, error);
    case SQLITE_CODES["FULL"]:
      return diskFull(place, error);
    case SQLITE_CODES["IOERR"]:
      // Shared memory cannot grow: the only reason seen is a full file system.
      if (/SHMSIZE/.test(String((error as { readonly code?: unknown }).code))) return diskFull(place, error);
      return storeUnreachable(place, "the disk answered with an error", error, "Look at the disk and the system's log");
    case SQLITE_CODES["NOMEM"]:
      return storeUnreachable(place, "no memory is left", error, "Free memory on this machine");
    case SQLITE_CODES["CANTOPEN"]:
      return storeUnreachable(
        place,
        "the file cannot be opened",
        error,
        "Check that the folder exists and may be entered",
      );
    default:
      return undefined;
  }
}

/** Errors of the connection, by Node's code. */
const NETWORK = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "ETIMEDOUT",
  "ENOENT",
  "EACCES",
  "EPIPE",
]);

/** The five characters that say what went wrong; undefined when it is no error of the server. */
export const sqlState = (error: unknown): string | undefined => {
  const code = error instanceof Error ? (error as { readonly code?: unknown }).code : undefined;
  return typeof code === "string" && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
};

/** Whether the connection is gone, so that nothing that was not committed has happened. */
export function isConnectionLost(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  const state = sqlState(error);
  // 57P01 to 57P03: the server stops, crashed, starts. 25P03: it ended our idle transaction.
  if (state !== undefined && (state.startsWith("08") || /^57P0[1-3]$/.test(state) || state === "25P03")) return true;
  const { code } = error as { readonly code?: unknown };
  if (typeof code === "string" && NETWORK.has(code)) return true;
  return /^Connection terminated|connection error and is not queryable|Client was closed|timeout exceeded when trying to connect|^Connection ended/.test(
    error.message,
  );
}

/** Whether the same transaction would succeed if it were run again: a serialisation failure or a deadlock. */
export const isTransient = (error: unknown): boolean => {
  const state = sqlState(error);
  return state === "40001" || state === "40P01";
};

/** The message for people of a PostgreSQL error; undefined when the fault is ours. */
function fromPostgres(error: unknown, place: string): AppError | undefined {
  const state = sqlState(error);
  if (isConnectionLost(error))
    return storeUnreachable(place, error instanceof Error ? error.message || "no answer" : "no answer", error);
  if (state === undefined) return undefined;
  if (isTransient(error) || state === "55P03" || state === "57014" || state === "53300") return storeBusy(place, error);
  if (state === "25006") return storeReadOnly(place, error);
  if (state === "53100") return diskFull(place, error);
  if (state === "53200") return storeUnreachable(place, "the server has no memory left", error);
  if (state.startsWith("XX00")) return storeCorrupt(place, "the server says so", error);
  if (state.startsWith("28"))
    return storeUnreachable(place, "the server refuses this user", error, "Check user, password and pg_hba.conf");
  if (state === "3D000") return storeUnreachable(place, "there is no such database", error, "make it with createdb");
  if (state === "42501")
    return storeUnreachable(place, "this user lacks a right", error, "Grant it on the schema and its tables");
  return undefined;
}

const causeOf = (error: unknown): unknown => (error instanceof StatementFailed ? error.cause : error);

/**
 * The error that leaves the store for one that was thrown inside: an AppError or a BrokenAssert as it is, a driver's by the
 * table above, all else as OperationFailed.
 */
export function toStoreError(error: unknown, place: string, operation: string): Error {
  if (error instanceof AppError || error instanceof BrokenAssert || error instanceof OperationFailed) return error;
  const cause = causeOf(error);
  if (cause instanceof AppError || cause instanceof BrokenAssert) return cause;
  const known = fromSqlite(cause, place) ?? fromPostgres(cause, place);
  if (known) return known;
  return new OperationFailed(operation, error instanceof Error ? error.message : String(error), error);
}

/** An error as it crosses threads: structured clone drops an error's own fields. */
export interface WireError {
  readonly document?: ErrorDocument;
  readonly broken?: boolean;
  readonly operation: string;
  readonly message: string;
  readonly stack: string;
}

/** Stacks of an error and of its causes, for the one who reads the log. */
function stacksOf(error: Error): string {
  const own = error.stack ?? error.message;
  return error.cause instanceof Error ? `${own}\n  caused by ${stacksOf(error.cause)}` : own;
}

export function toWire(error: Error, operation: string): WireError {
  return {
    ...(error instanceof AppError ? { document: toDocument(error) } : {}),
    ...(error instanceof BrokenAssert ? { broken: true } : {}),
    operation,
    message: error instanceof OperationFailed && error.cause instanceof Error ? error.cause.message : error.message,
    stack: stacksOf(error),
  };
}

/** Called where the caller waits, so that the stack names him; the other thread's stack is the cause's. */
export function fromWire(wire: WireError): Error {
  const cause = new Error(wire.message);
  cause.stack = wire.stack;
  if (wire.document) {
    const error = fromDocument(wire.document);
    error.cause = cause;
    return error;
  }
  if (wire.broken) return new BrokenAssert(wire.message, { cause });
  return new OperationFailed(wire.operation, wire.message, cause);
}
