/** Changes and their events travel together: the journal of one subject within one transaction. */
import { sql } from "./sql.ts";
import type { Sql } from "./sql.ts";

/** The tables that number the events of their rows; a provider has none, so its last number is read from the events. */
const tables = { run: sql`runs`, loop: sql`loops`, host: sql`hosts`, account: sql`accounts`, provider: null };

export interface Journal {
  add(type: string, data?: Readonly<Record<string, unknown>>, token?: number): void;
  /** The events, and the subject's number moved on. Empty when nothing was added. */
  writes(): Sql[];
}

/**
 * Numbers events without a gap from the subject's last one. Its row must be locked, or be made in the same transaction,
 * and `lastNumber` read under that lock.
 */
export function journal(kind: keyof typeof tables, id: string, lastNumber: number, now: number): Journal {
  const inserts: Sql[] = [];
  let number = lastNumber;
  return {
    add(type, data = {}, token) {
      number++;
      inserts.push(
        sql`insert into events (subject_kind, subject_id, number, type, token, data, created_at)
            values (${kind}, ${id}, ${number}, ${type}, ${token ?? null}, ${JSON.stringify(data)}, ${now})`,
      );
    },
    writes() {
      const table = tables[kind];
      return inserts.length === 0 || table === null
        ? inserts
        : [...inserts, sql`update ${table} set event_number = ${number} where id = ${id}`];
    },
  };
}
