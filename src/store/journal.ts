/** Changes and their events travel together: the journal of one subject within one transaction. */
import { join, sql } from "./sql.ts";
import type { Sql } from "./sql.ts";

/** The tables that number the events of their rows; a provider has none, so its last number is read from the events. */
const tables = { run: sql`runs`, loop: sql`loops`, host: sql`hosts`, account: sql`accounts`, provider: null };

export interface Journal {
  add(type: string, data?: Readonly<Record<string, unknown>>, token?: number): void;
  /** Others have written events of this subject meanwhile, in the same transaction: the numbers go on after that one. */
  follow(lastNumber: number): void;
  /** The events, and the subject's number moved on. Empty when nothing was added. */
  writes(): Sql[];
  /** The events alone, for whoever writes the subject's row anyway and moves its number on with it. */
  events(): Sql[];
  /** The number of the last event. */
  number(): number;
}

/**
 * Numbers events without a gap from the subject's last one. Its row must be locked, or be made in the same transaction,
 * and `lastNumber` read under that lock.
 */
export function journal(kind: keyof typeof tables, id: string, lastNumber: number, now: number): Journal {
  const entries: { type: string; data: string; token: number | null }[] = [];
  let last = lastNumber;
  /** All in one statement: most of what a change costs is the number of its statements. */
  const events = (): Sql[] =>
    entries.length === 0
      ? []
      : [
          sql`insert into events (subject_kind, subject_id, number, type, token, data, created_at) values ${join(
            entries.map(
              ({ type, data, token: of }, i) => sql`(${kind}, ${id}, ${last + i + 1}, ${type}, ${of}, ${data}, ${now})`,
            ),
            ", ",
          )}`,
        ];
  return {
    add(type, data = {}, token) {
      entries.push({ type, data: JSON.stringify(data), token: token ?? null });
    },
    follow(number) {
      last = number;
    },
    events,
    number: () => last + entries.length,
    writes() {
      const table = tables[kind];
      return entries.length === 0 || table === null
        ? events()
        : [...events(), sql`update ${table} set event_number = ${last + entries.length} where id = ${id}`];
    },
  };
}
