/** A look at a store's file as a whole, for `doctor`. */
import { toStoreError } from "./errors.ts";
import { openSqlite } from "./sqlite-adapters.ts";

/** Faults that are listed at most. */
const LISTED = 5;

/**
 * What SQLite finds wrong in the file, at most a few lines; none when it is whole. It reads every page, on this thread.
 * Errors: AppError `store_corrupt`, `not_a_store`, ...
 */
export function faultsOf(file: string): readonly string[] {
  const connection = openSqlite(file, { readOnly: true });
  try {
    const { rows } = connection.query(`pragma quick_check(${LISTED})`, [], 0);
    return rows.flatMap((row) => Object.values(row as Record<string, string>)).filter((line) => line !== "ok");
  } catch (error) {
    const { message } = toStoreError(error, file, "check");
    return [message]; // damaged so that not even the look can be finished
  } finally {
    connection.close();
  }
}
