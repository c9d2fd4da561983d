/** Forward-only migrations: numbered texts, a ledger in the store, one transaction under a lock. */
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { AppError, ensure } from "../core/errors.ts";
import { newerSchema } from "./errors.ts";
import { all, runAll } from "./operation.ts";
import type { Steps } from "./operation.ts";
import { script, sql, storeNow } from "./sql.ts";
import type { Dialect, Sql } from "./sql.ts";

export interface Migration {
  readonly number: number;
  /** What it does, from the file's name. */
  readonly name: string;
  readonly text: string;
  /** Of the text with line ends normalised and trimmed. */
  readonly checksum: string;
}

/** `application_id` of our SQLite files: "drvr". */
export const APPLICATION_ID = 0x64727672;

const normalise = (text: string): string => text.replaceAll("\r\n", "\n").trim();

interface Carried {
  readonly texts: Readonly<Record<string, string>>;
  readonly checksums: Readonly<Record<string, string>>;
}

/**
 * The build puts our own texts here, so that the bundle reads no folder beside it: normalised and with their checksums, which
 * would cost each command 15 ms.
 */
declare const __DROVER_MIGRATIONS__: Carried | undefined;
const carried = typeof __DROVER_MIGRATIONS__ === "undefined" ? null : __DROVER_MIGRATIONS__;

/** What would end the transaction that holds text and ledger row together, or cannot run in one. */
const FORBIDDEN =
  /^\s*(?:commit|rollback|end|begin(?:\s+(?:immediate|exclusive|transaction))?)\s*;|^\s*vacuum\b|\bconcurrently\b|^\s*pragma\s+journal_mode\b/im;

/**
 * The migrations of one dialect, out of `NNNN-what.<dialect>.sql` by file name, in order.
 * A missing or repeated number, or a text that cannot run in a transaction, is a bug.
 */
export function migrationsOf(files: Readonly<Record<string, string>>, dialect: Dialect): readonly Migration[] {
  const migrations = Object.entries(files)
    .flatMap(([file, raw]) => {
      const found = /^(\d{4})-([a-z0-9-]+)\.(sqlite|postgres)\.sql$/.exec(file);
      ensure(found, `${file} is not named like a migration`);
      const [, number = "", name = "", of] = found;
      if (of !== dialect) return [];
      const checksum = carried?.texts === files ? carried.checksums[file] : undefined;
      if (checksum !== undefined) return [{ number: Number(number), name, text: raw, checksum }];
      const text = normalise(raw);
      ensure(!FORBIDDEN.test(text), `${file} cannot run in the transaction of its ledger row`);
      return [{ number: Number(number), name, text, checksum: createHash("sha256").update(text).digest("hex") }];
    })
    .toSorted((a, b) => a.number - b.number);
  migrations.forEach(({ number, name }, i) => {
    ensure(number === i + 1, `migration ${i + 1} is missing, or ${number} (${name}) comes twice`);
  });
  return migrations;
}

/** Texts of a folder by file name. */
export function readMigrations(folder: URL): Readonly<Record<string, string>> {
  const names = readdirSync(folder).filter((name) => name.endsWith(".sql"));
  return Object.fromEntries(names.map((name) => [name, readFileSync(new URL(name, folder), "utf8")]));
}

/** The texts that this program carries, by file name. */
export const ownMigrations = (): Readonly<Record<string, string>> =>
  carried?.texts ?? readMigrations(new URL("./migrations/", import.meta.url));

export interface LedgerRow {
  readonly number: number;
  readonly checksum: string;
}

/**
 * What is still to be applied to a store with this ledger.
 * Errors: AppError conflict `newer_schema`, `changed_migration`, `missing_migration`; the store is not to be used then.
 */
export function missingFrom(
  ledger: readonly LedgerRow[],
  migrations: readonly Migration[],
  place: string,
): readonly Migration[] {
  const newest = Math.max(0, ...ledger.map((row) => row.number));
  if (newest > migrations.length) throw newerSchema(place, newest, migrations.length);
  const applied = new Map(ledger.map((row) => [row.number, row.checksum]));
  for (const { number, name, checksum } of migrations) {
    const kept = applied.get(number);
    if (kept === undefined && number < newest)
      throw new AppError("conflict", "missing_migration", `the store at ${place} lacks migration ${number} (${name})`, {
        hint: "Put a copy in its place with `drover restore FILE`; the folder backups/ beside it holds those that were made.",
        path: place,
      });
    if (kept !== undefined && kept !== checksum)
      throw new AppError(
        "conflict",
        "changed_migration",
        `migration ${number} (${name}) of the store at ${place} was applied with another text`,
        { hint: "Use the drover that made the store, or restore a backup.", path: place },
      );
  }
  return migrations.filter(({ number }) => !applied.has(number));
}

export const readLedger: Sql = sql`select number, checksum from migrations order by number`;

const LEDGER: Readonly<Record<Dialect, string>> = {
  sqlite:
    "create table if not exists migrations (number integer primary key, name text not null, checksum text not null, created_at integer not null)",
  postgres:
    'create table if not exists migrations (number bigint primary key, name text collate "C" not null, checksum text collate "C" not null, created_at bigint not null)',
};

/**
 * Applies what is missing, inside a transaction whose runner holds the lock already: two creations of the ledger at once
 * would collide. Answers the numbers applied. On SQLite the header says the version in the same transaction.
 */
export function* migrate(migrations: readonly Migration[], dialect: Dialect, place: string): Steps<readonly number[]> {
  yield* runAll(script(LEDGER[dialect]));
  const missing = missingFrom(yield* all<LedgerRow>(readLedger), migrations, place);
  for (const { number, name, text, checksum } of missing)
    yield* runAll(
      script(text),
      sql`insert into migrations (number, name, checksum, created_at) values (${number}, ${name}, ${checksum}, ${storeNow})`,
    );
  if (dialect === "sqlite" && missing.length > 0) {
    const broken = yield* all(sql`select 1 as broken from pragma_foreign_key_check limit 1`);
    ensure(broken.length === 0, "a migration left a reference to nothing");
    yield* runAll(
      script(`pragma user_version = ${migrations.length}`),
      script(`pragma application_id = ${APPLICATION_ID}`),
    );
  }
  return missing.map(({ number }) => number);
}
