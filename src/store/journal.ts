/** Changes and their events travel together: the journal of one subject within one transaction. */
import { sql } from "./sql.ts";
import type { Sql } from "./sql.ts";

/** The tables that number the events of their rows; a provider has none, so its last number is read from the events. */
const tables = { run: sql`runs`, loop: sql`loops`, host: sql`hosts`, account: sql`accounts`, provider: null };

export interface Journal {
  add(type: string, data?: Readonly<Record<string, unknown>>, token?: number): void;
  /** Others have written events of this subject meanwhile, in the same transaction: the numbers go on after that one. */
  follow(lastNumber: number): void;
  /** The events, and the subject's number moved on. Empty when nothing was added. */
  writes(): Sql[];
}

/**
 * Numbers events without a gap from the subject's last one. Its row must be locked, or be made in the same transaction,
 * and `lastNumber` read under that lock.
 */
export function journal(kind: keyof typeof tables, id: string, lastNumber: number, now: number): Journal {
  const entries: { type: string; data: string; token: number | null }[] = [];
  let last = lastNumber;
  return {
    add(type, data = {}, token) {
      entries.push({ type, data: JSON.stringify(data), token: token ?? null });
    },
    follow(number) {
      last = number;
    },
    writes() {
      const table = tables[kind];
      const inserts = entries.map(
        ({ type, data, token: of }, i) =>
          sql`insert into events (subject_kind, subject_id, number, type, token, data, created_at)
              values (${kind}, ${id}, ${last + i + 1}, ${type}, ${of}, ${data}, ${now})`,
      );
      return inserts.length === 0 || table === null
        ? inserts
        : [...inserts, sql`update ${table} set event_number = ${last + entries.length} where id = ${id}`];
    },
  };
}
