/** Pages by key: the cursor holds the last row's key, opaque to clients, the same on both stores. */
import { AppError } from "../core/errors.ts";
import type { Page } from "../core/ports.ts";

type Key = readonly (string | number)[];

const encode = (key: Key): string => Buffer.from(JSON.stringify(key)).toString("base64url");

/** Reads a cursor back. AppError invalid `bad_cursor` for what no page has given. */
export function readCursor<const Types extends readonly ("string" | "number")[]>(
  cursor: string | null,
  types: Types,
): { -readonly [I in keyof Types]: Types[I] extends "number" ? number : string } | null {
  if (cursor === null) return null;
  try {
    const key: unknown = JSON.parse(Buffer.from(cursor, "base64url").toString());
    if (
      Array.isArray(key) &&
      key.length === types.length &&
      types.every((type, i) => typeof key[i] === type && (type === "string" || Number.isSafeInteger(key[i])))
    )
      return key as never;
  } catch {
    // falls through: what does not parse is as wrong as what does not fit
  }
  throw new AppError("invalid", "bad_cursor", "this cursor was not given by a page of this list", {
    path: "cursor",
    hint: "Begin without a cursor, then pass on the `next` of each page",
  });
}

/** The page out of one row more than it holds. */
export function pageOf<T>(rows: readonly T[], limit: number, keyOf: (row: T) => Key): Page<T> {
  const items = rows.slice(0, limit);
  const last = items.at(-1);
  return { items, next: rows.length > limit && last !== undefined ? encode(keyOf(last)) : null };
}

/**
 * The page out of those rows of a walk that were wanted, at most one more than it holds.
 * @param reached key of the last row that was looked at where there may be more behind it; null where there are none
 */
export function pageOfWalk<T>(rows: readonly T[], limit: number, keyOf: (row: T) => Key, reached: Key | null): Page<T> {
  const page = pageOf(rows, limit, keyOf);
  return page.next !== null || reached === null ? page : { ...page, next: encode(reached) };
}
