/** Plain statements on either database, for filling a store faster than its operations could. */
import { openSqlite } from "../src/store/sqlite-adapters.ts";

export type Row = Readonly<Record<string, string | number | null>>;

export interface Database {
  readonly kind: "sqlite" | "postgres";
  /** One statement without parameters: whoever writes it quotes with `quoted`. */
  run(text: string): Promise<readonly Row[]>;
  close(): Promise<void>;
}

/** A text as a literal of SQL. */
export const quoted = (text: string | null): string => (text === null ? "null" : `'${text.replaceAll("'", "''")}'`);

/** A file that nobody else has open. Nothing is flushed: what is filled here can be filled again. */
export function sqliteDatabase(file: string): Database {
  const connection = openSqlite(file, {});
  connection.pragma("synchronous = off");
  connection.pragma("journal_mode = wal");
  connection.pragma("cache_size = -400000");
  return {
    kind: "sqlite",
    async run(text) {
      if (/^\s*(?:attach|detach|vacuum|pragma|create|drop)/i.test(text)) {
        connection.exec(text);
        return [];
      }
      return connection.query(text, [], 0).rows as Row[];
    },
    async close() {
      connection.exec("pragma wal_checkpoint(truncate)");
      connection.close();
    },
  };
}

/** A database of a cluster of our own, in one of its schemas. */
export async function postgresDatabase(url: string, schema: string): Promise<Database> {
  const { Client, types } = (await import("pg")).default;
  types.setTypeParser(20, Number);
  const client = new Client({ connectionString: url });
  await client.connect();
  await client.query(`set search_path to ${schema}`);
  await client.query("set work_mem = '512MB'");
  await client.query("set maintenance_work_mem = '512MB'");
  return {
    kind: "postgres",
    run: async (text) => (await client.query(text)).rows as Row[],
    close: () => client.end(),
  };
}
