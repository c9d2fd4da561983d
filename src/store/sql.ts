/** SQL that runs on both stores: values, fragments and named differences, never pasted text. */
import { AppError, BrokenAssert, ensure } from "../core/errors.ts";

export type Dialect = "sqlite" | "postgres";

/** What can be bound. Instants are integers, truths are 0 and 1, documents are JSON text. */
export type Value = string | number | bigint | Uint8Array | null;

const is = Symbol("sql");

/** A word that each dialect spells in its own way. Values of this type are exported below and nowhere else. */
export interface Constant {
  readonly [is]: "constant";
  readonly sqlite: string;
  readonly postgres: string;
  /** Whether SQLite binds the store's now at this place. */
  readonly bindsNow: boolean;
}

interface Template {
  readonly [is]: "template";
  readonly strings: readonly string[];
  readonly parts: readonly Part[];
}

interface Script {
  readonly [is]: "script";
  readonly text: string;
}

interface Choice {
  readonly [is]: "choice";
  readonly sqlite: Sql;
  readonly postgres: Sql;
}

/** A statement, or a part of one. */
export type Sql = Template | Choice | Script;

/** What may stand between the words of a template. */
export type Part = Value | Sql | Constant;

/** Stands among the values where SQLite binds the store's now. */
export const now = Symbol("now");

export interface Rendered {
  readonly text: string;
  readonly values: readonly (Value | typeof now)[];
  /** Whether it is a text of several statements, which gives no rows. */
  readonly script: boolean;
}

/** Numbers that both stores hold and give back unchanged. */
const MAX_INTEGER = BigInt(Number.MAX_SAFE_INTEGER);

/** Node 20 has it; the language version that we check against does not know it. */
type WellFormed = string & { isWellFormed(): boolean };

const isFragment = (part: Part): part is Sql | Constant =>
  typeof part === "object" && part !== null && !(part instanceof Uint8Array);

function checkText(text: string): void {
  if (text.includes("\0") || !(text as WellFormed).isWellFormed())
    throw new AppError("invalid", "bad_text", "text must not contain a NUL byte or half of a surrogate pair", {
      hint: "Remove the character; PostgreSQL cannot hold it and SQLite would cut the text there.",
    });
}

function checkInteger(value: number | bigint): void {
  const safe =
    typeof value === "bigint"
      ? value <= MAX_INTEGER && value >= -MAX_INTEGER
      : Math.abs(value) <= Number.MAX_SAFE_INTEGER;
  if (!safe)
    throw new AppError("invalid", "bad_number", `a number must lie within 2^53 - 1 of zero, not ${value}`, {
      hint: "Give a smaller number.",
    });
}

/** Refuses what one of the two stores would change or bind as something else. */
function checkValue(value: unknown): void {
  switch (typeof value) {
    case "string":
      return checkText(value);
    case "number":
      if (!Number.isFinite(value)) throw new BrokenAssert(`${value} cannot be bound`);
      return checkInteger(value);
    case "bigint":
      return checkInteger(value);
    default:
      if (value === null || value instanceof Uint8Array) return;
      throw new BrokenAssert(
        `a value of type ${value instanceof Date ? "Date" : typeof value} cannot be bound: bind text, a number, bytes or null`,
      );
  }
}

const checkedTexts = new WeakSet<readonly string[]>();

/** Once for each template: what would be two statements, or a placeholder of somebody else, is refused at build time. */
function checkStrings(strings: readonly string[]): void {
  if (checkedTexts.has(strings)) return;
  for (const text of strings) {
    ensure(!text.includes("?"), "SQL must not contain a placeholder of its own: interpolate the value");
    ensure(!text.includes(";"), "one statement per template");
    ensure(!text.includes("\0"), "SQL must not contain NUL");
  }
  checkedTexts.add(strings);
}

/**
 * One statement or fragment for both stores. Values become placeholders, fragments are spliced in, dialect constants are
 * spelled for the store that runs it. A parameter whose type PostgreSQL cannot infer (`select ${x}`, `${x} is null`)
 * needs `cast(${x} as bigint)` or `as text`, which both understand.
 * Errors: AppError invalid `bad_text`, `bad_number`; BrokenAssert for what is no value.
 */
export function sql(strings: TemplateStringsArray, ...parts: readonly Part[]): Sql {
  checkStrings(strings);
  for (const part of parts) if (!isFragment(part) || !(is in part)) checkValue(part);
  return { [is]: "template", strings, parts };
}

const constant = (sqlite: string, postgres: string, bindsNow = false): Constant => ({
  [is]: "constant",
  sqlite,
  postgres,
  bindsNow,
});

/** Locks the rows that are read. SQLite has one writer, who holds everything. */
export const forUpdate = constant("", "for update");

/** Keeps the rows that are read as they are until the transaction ends; others may read them so, too. */
export const forShare = constant("", "for share");

/** Locks the rows that are read and leaves out those that somebody else holds; inside a materialised CTE with `limit`. */
export const skipLocked = constant("", "for update skip locked");

/**
 * The store's instant in milliseconds. SQLite binds the group's; PostgreSQL uses its own clock: the start of the
 * statement, so not that of a transaction that has waited, and not one that moves within a statement.
 */
export const storeNow = constant(
  "?",
  "coalesce(nullif(current_setting('drover.now', true), '')::bigint, (extract(epoch from statement_timestamp()) * 1000)::bigint)",
  true,
);

/** A text of several statements, as it stands. For migrations, whose texts are files of our own; nothing else has one. */
export const script = (text: string): Sql => ({ [is]: "script", text });

/** The first part of the feed's order: SQLite's one writer commits in the order of ids, PostgreSQL's transactions do not. */
export const feedMajor = constant("0", "txid");
/** The part of the feed that no running transaction can still add to (store-notes, 4.1). */
export const feedSettled = constant("1 = 1", "txid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint");
export const feedOrder = constant("id", "txid, id");
export const feedNewest = constant("id desc", "txid desc, id desc");

const choose = (sqlite: Sql, postgres: Sql): Sql => ({ [is]: "choice", sqlite, postgres });

/** Parts in a row, with what stands between two of them. None gives an empty fragment, and of alternatives one that never holds. */
export function join(parts: readonly Part[], separator: ", " | " and " | " or " | " union all "): Sql {
  for (const part of parts) if (!isFragment(part) || !(is in part)) checkValue(part);
  if (parts.length === 0) return separator === " or " ? sql`1 = 0` : sql``;
  return { [is]: "template", strings: ["", ...parts.slice(1).map(() => separator), ""], parts };
}

/** The column type of a list: decides how PostgreSQL reads it. */
export type ColumnType = "text" | "integer";

function checkJsonValue(value: string | number | null, type: ColumnType): void {
  if (value === null) return;
  ensure(typeof value === (type === "text" ? "string" : "number"), `a list of ${type} must hold nothing else`);
  if (typeof value === "number") ensure(Number.isInteger(value), "a list of integers must hold integers");
  checkValue(value);
}

/** A list as one parameter, for `id in (${jsonList(ids)})`. An empty list matches nothing. */
export function jsonList(values: readonly string[] | readonly number[], type: ColumnType = "text"): Sql {
  for (const value of values) checkJsonValue(value, type);
  const json = JSON.stringify(values);
  return choose(
    sql`select value from json_each(${json})`,
    type === "text"
      ? sql`select value from json_array_elements_text(${json}::json) as list(value)`
      : sql`select value::bigint from json_array_elements_text(${json}::json) as list(value)`,
  );
}

const identifier = /^[a-z_][a-z0-9_]*$/;

/** A name that stands in the text. Only names written in our own source reach this. */
function name(text: string): Constant {
  ensure(identifier.test(text), `${text} is no name of a table or column`);
  return constant(text, text);
}

/**
 * Rows as one parameter, with the columns in the order given: `from (${jsonRows(rows, { id: "text" })}) as wanted`, or
 * `(id, token) in (${jsonRows(...)})`.
 */
export function jsonRows<Columns extends Readonly<Record<string, ColumnType>>>(
  rows: readonly { readonly [Column in keyof Columns]: (Columns[Column] extends "integer" ? number : string) | null }[],
  columns: Columns,
): Sql {
  const list = Object.entries<ColumnType>(columns);
  ensure(list.length > 0, "rows need a column");
  const plain = (rows as readonly Readonly<Record<string, string | number | null>>[]).map((row) =>
    list.map(([column, type]) => {
      const value = row[column];
      ensure(value !== undefined, `a row lacks its ${column}`);
      checkJsonValue(value, type);
      return value;
    }),
  );
  const json = JSON.stringify(plain.map((row) => Object.fromEntries(list.map(([column], i) => [column, row[i]]))));
  const paths = list.map(([column]) => sql`json_extract(value, ${constant(`'$.${column}'`, "")}) as ${name(column)}`);
  const types = list.map(
    ([column, type]) => sql`${name(column)} ${type === "text" ? constant("", "text") : constant("", "bigint")}`,
  );
  return choose(
    sql`select ${join(paths, ", ")} from json_each(${json})`,
    sql`select ${join(
      list.map(([column]) => name(column)),
      ", ",
    )} from json_to_recordset(${json}::json) as list(${join(types, ", ")})`,
  );
}

export interface FirstOfEach {
  /** The table whose first rows are wanted; has a primary key `id`. */
  readonly table: string;
  /** The name under which its rows are joined. */
  readonly as: string;
  /** Which rows; columns of the table without prefix, of the outer row with that row's name. */
  readonly where: Sql;
  readonly orderBy: Sql;
  /** Rows for each outer row. */
  readonly limit: number;
}

/**
 * Joins to each row on the left the first rows of a table: `from sets k ${firstOfEach({...})}`. The form that SQLite needs is
 * evaluated for every pair by PostgreSQL, hence the two. Outer rows without a match are left out.
 */
export function firstOfEach({ table, as, where, orderBy, limit }: FirstOfEach): Sql {
  return choose(
    sql`join ${name(table)} ${name(as)} on ${name(as)}.id in (select id from ${name(table)} where ${where} order by ${orderBy} limit ${limit})`,
    sql`cross join lateral (select * from ${name(table)} where ${where} order by ${orderBy} limit ${limit}) ${name(as)}`,
  );
}

/** The sum of integers, 0 for none. PostgreSQL's own sum is a `numeric`, which would arrive as text. */
export const bigSum = (term: Sql): Sql =>
  choose(sql`coalesce(sum(${term}), 0)`, sql`coalesce(sum(${term}), 0)::bigint`);

/** JSON texts of rows as the text of one list. @param rows have columns `value`, null for nothing, and `place`, their order */
export const jsonListOf = (rows: Sql): Sql =>
  choose(
    sql`(select json_group_array(json(coalesce(value, 'null'))) from (select value from (${rows}) as unordered order by place) as ordered)`,
    sql`(select coalesce(json_agg(coalesce(value, 'null')::json order by place)::text, '[]') from (${rows}) as unordered)`,
  );

/** Rows of the feed behind a cursor. SQLite seeks by the id alone: a pair that begins with a constant would scan the table. */
export const feedAfter = (major: number, minor: number): Sql =>
  choose(sql`id > ${minor}`, sql`(txid, id) > (${major}, ${minor})`);

/**
 * A statement that waits for a lock of that number and holds it to the transaction's end; other stores in other schemas
 * of the database have their own. In a statement of its own, before the reads that it protects. SQLite's writer is alone.
 */
export const advisoryLock = (key: number): Sql =>
  choose(
    sql`select 1 as held`,
    sql`select 1 as held from pg_advisory_xact_lock(hashtext(current_schema()), ${key}::int)`,
  );

interface Cached {
  /** What stood at each place when the text was made: a constant, or null for a value. */
  readonly shape: readonly (Constant | null)[];
  readonly sqlite: string;
  readonly postgres: string;
}

/** The text of each call site. Templates with nested fragments are not in it: their text depends on the fragments. */
const texts = new WeakMap<readonly string[], Cached>();

function sameShape(shape: Cached["shape"], parts: readonly Part[]): boolean {
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i] as Part;
    const kept = isFragment(part) ? part : null;
    if (kept !== shape[i]) return false;
  }
  return true;
}

const counts = /\b(?:limit|offset) $/;

/**
 * SQLite plans by a limit that is a bare parameter, so it would prepare the statement anew whenever one is bound: 20 times
 * as long as running it. Behind a sign it does not look.
 */
const placeholder = (dialect: Dialect, { text, values }: Draft): string =>
  dialect === "postgres" ? `$${values.length}` : counts.test(text) ? "+?" : "?";

interface Draft {
  text: string;
  values: (Value | typeof now)[];
}

function append(query: Sql, dialect: Dialect, draft: Draft): void {
  if (query[is] === "choice") return append(query[dialect], dialect, draft);
  ensure(query[is] === "template", "a script is no part of a statement");
  draft.text += query.strings[0] ?? "";
  query.parts.forEach((part, i) => {
    if (!isFragment(part)) {
      draft.values.push(part);
      draft.text += placeholder(dialect, draft);
    } else if (part[is] === "constant") {
      draft.text += part[dialect];
      if (part.bindsNow && dialect === "sqlite") draft.values.push(now);
    } else append(part, dialect, draft);
    draft.text += query.strings[i + 1] ?? "";
  });
}

function valuesOf(parts: readonly Part[], dialect: Dialect): (Value | typeof now)[] {
  const values: (Value | typeof now)[] = [];
  for (const part of parts) {
    if (!isFragment(part)) values.push(part);
    else if (dialect === "sqlite" && part[is] === "constant" && part.bindsNow) values.push(now);
  }
  return values;
}

/** The text and the values of a statement for one store. */
export function render(query: Sql, dialect: Dialect): Rendered {
  const top = query[is] === "choice" ? query[dialect] : query;
  if (top[is] === "choice") return render(top, dialect);
  if (top[is] === "script") return { text: top.text, values: [], script: true };
  const cached = texts.get(top.strings);
  if (cached && sameShape(cached.shape, top.parts))
    return { text: cached[dialect], values: valuesOf(top.parts, dialect), script: false };
  const draft: Draft = { text: "", values: [] };
  append(top, dialect, draft);
  if (!cached && top.parts.every((part) => !isFragment(part) || part[is] === "constant")) {
    const other: Draft = { text: "", values: [] };
    append(top, dialect === "sqlite" ? "postgres" : "sqlite", other);
    const shape = top.parts.map((part) => (isFragment(part) ? (part as Constant) : null));
    texts.set(
      top.strings,
      dialect === "sqlite"
        ? { shape, sqlite: draft.text, postgres: other.text }
        : { shape, sqlite: other.text, postgres: draft.text },
    );
  }
  return { ...draft, script: false };
}
