/**
 * A process that opens a store, writes one note, and prints which migrations it applied. Arguments: kind, file or address,
 * how many migrations it knows, the note's id. With `kill` instead of a number it dies inside a third migration.
 */
import pg from "pg";
import { migrate, migrationsOf } from "../../src/store/migrate.ts";
import { openPostgresStore } from "../../src/store/postgres.ts";
import { render } from "../../src/store/sql.ts";
import { openDirectStore } from "../../src/store/sqlite.ts";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";
import { runnerAt, runSync } from "../../src/store/sqlite-run.ts";
import { migrations, table } from "./table.ts";

const [, , kind, place = "", step = "2", id = ""] = process.argv;
const clock = { now: () => Date.now() };
const die = (): void => {
  process.kill(process.pid, "SIGKILL");
};

async function dieInside(): Promise<void> {
  const texts = {
    ...migrations,
    "0003-more.sqlite.sql": "create table more (id text primary key);",
    "0003-more.postgres.sql": "create table more (id text primary key); select pg_sleep(2);",
  };
  if (kind === "sqlite") {
    const connection = openSqlite(place);
    const run = runnerAt(connection, Date.now());
    connection.exec("begin immediate");
    runSync(migrate(migrationsOf(texts, "sqlite"), "sqlite", place), (query) => {
      // Its text has run, its row in the ledger is next.
      const { text, values } = render(query, "sqlite");
      if (text.startsWith("insert into migrations") && values[0] === 3) die();
      return run(query);
    });
    return;
  }
  const watcher = new pg.Client({ connectionString: place });
  await watcher.connect();
  const opening = openPostgresStore({ url: place, table, migrations: texts, clock });
  for (;;) {
    const { rows } = await watcher.query(
      "select 1 from pg_stat_activity where state = 'active' and query like '%pg_sleep%' and pid <> pg_backend_pid() and datname = current_database()",
    );
    if (rows.length > 0) die();
    await Promise.race([opening, new Promise((resolve) => setTimeout(resolve, 5))]);
  }
}

if (step === "kill") await dieInside();
const known = Object.fromEntries(
  Object.entries(migrations).filter(([name]) => Number(name.slice(0, 4)) <= Number(step)),
);
const handle =
  kind === "postgres"
    ? await openPostgresStore({ url: place, table, migrations: known, clock })
    : await openDirectStore({ file: place, table, migrations: known, clock });
await handle.store.notes.add({ id, body: "x" });
process.stdout.write(JSON.stringify(handle.applied));
await handle.close();
