/** Opening a store by its address. */
import { isAbsolute, resolve } from "node:path";
import { AppError } from "../core/errors.ts";
import type { Clock } from "../core/ports.ts";
import type { StoreHandle } from "./driver.ts";
import type { OperationTable } from "./operation.ts";
import { openDirectStore, openReadStore, openWorkerStore } from "./sqlite.ts";

/** Where a store is. */
export type StoreAddress =
  | { readonly kind: "sqlite"; readonly file: string }
  | {
      readonly kind: "postgres";
      /** What the driver is given: without the parameters below. */
      readonly url: string;
      /** `?schema=NAME`; the connection's own when null. */
      readonly schema: string | null;
      /** `?prepare=off`: behind a pooler that keeps no prepared statements. */
      readonly namedStatements: boolean;
    };

const badUrl = (text: string, why: string, hint: string): AppError =>
  new AppError("invalid", "bad_store_url", `${text} is no address of a store: ${why}`, { hint, path: "store" });

const withoutPassword = (text: string): string => text.replace(/^(\w+:\/\/[^:/@]*):[^@]*@/, "$1:***@");

/**
 * Reads `sqlite:<file>` and `postgres://...`. A relative file is one of `folder`.
 * Errors: AppError invalid `bad_store_url`; a password in the text is not repeated.
 */
export function parseStoreAddress(text: string, folder: string): StoreAddress {
  const shown = withoutPassword(text);
  if (text.includes("\0")) throw badUrl("the text", "it contains a NUL byte", "Write sqlite:FILE or postgres://...");
  if (text.startsWith("sqlite:")) {
    const file = text.slice("sqlite:".length);
    if (file === "" || file === ":memory:" || file.startsWith("//"))
      throw badUrl(shown, "it names no file", "Write sqlite:FILE with a path, absolute or below the state folder");
    return { kind: "sqlite", file: isAbsolute(file) ? file : resolve(folder, file) };
  }
  if (!/^postgres(?:ql)?:\/\//.test(text))
    throw badUrl(
      shown,
      "it begins with neither sqlite: nor postgres://",
      "Write sqlite:FILE or postgres://USER@HOST/DATABASE",
    );
  let address: URL;
  try {
    address = new URL(text);
  } catch {
    throw badUrl(
      shown,
      "it cannot be read",
      "Write postgres://USER:PASSWORD@HOST:PORT/DATABASE; special characters as %XX",
    );
  }
  const schema = address.searchParams.get("schema");
  if (schema !== null && !/^[a-z_][a-z0-9_]{0,62}$/.test(schema))
    throw badUrl(shown, `${schema} is no name of a schema`, "Use lower-case letters, digits and underscores");
  const prepare = address.searchParams.get("prepare") ?? "on";
  if (prepare !== "on" && prepare !== "off")
    throw badUrl(shown, "prepare is on or off", "Leave it out without a pooler");
  address.searchParams.delete("schema");
  address.searchParams.delete("prepare");
  return { kind: "postgres", url: address.href, schema, namedStatements: prepare === "on" };
}

export interface OpenOptions<Table extends OperationTable> {
  readonly address: StoreAddress;
  readonly table: Table;
  readonly clock: Pick<Clock, "now">;
  /**
   * `daemon`: with the threads that a daemon has. `write`: for a short time, by the holder of the daemon's lock.
   * `read`: nothing can be changed, nothing is migrated.
   */
  readonly use: "daemon" | "write" | "read";
  /** The built files of the threads; only a daemon needs them. */
  readonly workers?: { readonly writer: URL; readonly heartbeat: URL };
  /** Texts by file name; the program's own unless given. */
  readonly migrations?: Readonly<Record<string, string>>;
}

/** Opens a store. Errors: AppError of the drivers, each with its hint; nothing is left open then. */
export async function openStore<Table extends OperationTable>({
  address,
  table,
  clock,
  use,
  workers,
  migrations,
}: OpenOptions<Table>): Promise<StoreHandle<Table>> {
  const given = { table, clock, ...(migrations === undefined ? {} : { migrations }) };
  if (address.kind === "postgres") {
    const { url, schema, namedStatements } = address;
    // Loaded only here: the driver costs more than half of a bare start.
    const { openPostgresStore } = await import("./postgres.ts");
    return openPostgresStore({
      ...given,
      url,
      namedStatements,
      ...(schema === null ? {} : { schema }),
      ...(workers === undefined ? {} : { heartbeat: workers.heartbeat }),
    });
  }
  const { file } = address;
  switch (use) {
    case "daemon":
      if (workers === undefined) throw new TypeError("a daemon's store needs the file of its writer");
      return openWorkerStore({ ...given, file, writer: workers.writer });
    case "write":
      return openDirectStore({ ...given, file });
    case "read":
      return openReadStore({ ...given, file });
  }
}
