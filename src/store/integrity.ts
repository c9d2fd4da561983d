/** A look at a store's file as a whole, for `doctor`. */
import { openSqlite } from "./sqlite-adapters.ts";
import { toStoreError } from "./errors.ts";
import type { StoreAddress } from "./open.ts";

/** Faults that are listed at most. */
const LISTED = 5;

/**
 * What SQLite finds wrong in the file, at most a few lines; none when it is whole. It reads every page, on this thread.
 * A PostgreSQL server looks after its own files: nothing is checked. Errors: AppError `store_corrupt`, `not_a_store`, ...
 */
export function faultsOf(address: StoreAddress): readonly string[] {
  if (address.kind === "postgres") return [];
  const connection = openSqlite(address.file, { readOnly: true });
  try {
    const { rows } = connection.query(`pragma quick_check(${LISTED})`, [], 0);
    return rows.flatMap((row) => Object.values(row as Record<string, string>)).filter((line) => line !== "ok");
  } catch (error) {
    throw toStoreError(error, address.file, "check");
  } finally {
    connection.close();
  }
}
