/** What a PostgreSQL store holds, row by row in memory, so that the invariants are looked at as on SQLite: at once, and cheaply. */
import type { Client } from "pg";
import { migrate, migrationsOf, ownMigrations } from "../../src/store/migrate.ts";
import type { Steps } from "../../src/store/operation.ts";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";
import { runnerAt, runSync } from "../../src/store/sqlite-run.ts";
import type { Value } from "../../src/store/sql.ts";

type Row = Readonly<Record<string, Value>>;

interface Change {
  readonly id: string;
  readonly noun: string;
  readonly verb: "INSERT" | "UPDATE" | "DELETE";
  readonly row: string;
}

export interface MirroredEvent {
  readonly id: number;
  readonly subject_kind: string;
  readonly subject_id: string;
  readonly number: number;
}

export interface Mirror {
  look<T>(steps: Steps<T>): T;
  /** Takes over what has been committed since. */
  pull(): Promise<{ readonly changed: boolean; readonly events: readonly MirroredEvent[] }>;
  close(): void;
}

/** A table that every committed row passes through; only what was committed is seen and taken there. */
const TRIGGERS = `
create schema mirror;
create table mirror.changes (id bigint generated always as identity primary key, noun text not null, verb text not null, row json not null);
create function mirror.note() returns trigger language plpgsql as $$
begin
  insert into mirror.changes (noun, verb, row)
    values (tg_table_name, tg_op, case tg_op when 'DELETE' then row_to_json(old) else row_to_json(new) end);
  return null;
end $$;
do $$
declare t text;
begin
  for t in select table_name from information_schema.tables
            where table_schema = 'public' and table_type = 'BASE TABLE' and table_name <> 'migrations' loop
    execute format('create trigger mirrored after insert or update or delete on public.%I for each row execute function mirror.note()', t);
  end loop;
end $$;
`;

/** Mirrors the store of this connection's database, which must have its tables and nothing in them. */
export async function createMirror(client: () => Client, now: () => number): Promise<Mirror> {
  await client().query(TRIGGERS);
  const copy = openSqlite(":memory:", {});
  copy.exec("begin");
  runSync(migrate(migrationsOf(ownMigrations(), "sqlite"), "sqlite", "mirror"), runnerAt(copy, now()));
  copy.exec("commit");
  // Rows come in the order of their changes, and one that is named may come after the one that names it.
  copy.pragma("foreign_keys = 0");

  const columns = new Map<string, readonly { readonly name: string; readonly key: boolean }[]>();
  const columnsOf = (noun: string) => {
    const known = columns.get(noun);
    if (known !== undefined) return known;
    const { rows } = copy.query("select name, pk from pragma_table_info(?)", [noun], 0);
    const found = (rows as { name: string; pk: number }[]).map(({ name, pk }) => ({ name, key: pk > 0 }));
    columns.set(noun, found);
    return found;
  };

  function apply(noun: string, verb: Change["verb"], row: Row): void {
    const all = columnsOf(noun);
    if (verb === "DELETE") {
      const keys = all.filter((column) => column.key);
      const where = keys.map(({ name }) => `${name} = ?`).join(" and ");
      copy.query(
        `delete from ${noun} where ${where}`,
        keys.map(({ name }) => row[name] ?? null),
        0,
      );
    } else
      copy.query(
        `insert or replace into ${noun} (${all.map(({ name }) => name).join(", ")}) values (${all.map(() => "?").join(", ")})`,
        all.map(({ name }) => row[name] ?? null),
        0,
      );
  }

  return {
    look: (steps) => runSync(steps, runnerAt(copy, now())),
    async pull() {
      const { rows } = await client().query<Change>(
        "with taken as (delete from mirror.changes returning id, noun, verb, row::text as row) select * from taken order by id",
      );
      const events: MirroredEvent[] = [];
      if (rows.length === 0) return { changed: false, events };
      copy.exec("begin");
      for (const { noun, verb, row: text } of rows) {
        const row = JSON.parse(text) as Row;
        apply(noun, verb, row);
        if (noun === "events" && verb === "INSERT") events.push(row as unknown as MirroredEvent);
      }
      copy.exec("commit");
      return { changed: true, events };
    },
    close: () => copy.close(),
  };
}
