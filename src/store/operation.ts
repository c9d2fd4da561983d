/** The vocabulary of the store's operations: each is one transaction, written once, driven by every store. */
import type { IdKind } from "../core/ids.ts";
import { ensure } from "../core/errors.ts";
import { render, sql, storeNow } from "./sql.ts";
import type { Sql } from "./sql.ts";

/** What one statement gave. `changes` are the rows written or returned. */
export interface Result {
  readonly rows: readonly unknown[];
  readonly changes: number;
}

/** Statements that travel together: one round trip. After the last ask of an operation comes its commit. */
export interface Ask {
  readonly queries: readonly Sql[];
  /** The operation asks for nothing more, so the commit may travel along. */
  readonly last: boolean;
}

/** A body in progress: yields asks, ends with the answer. Only `yield*` of the functions below keeps the row types. */
export type Steps<T> = Generator<Ask, T, readonly Result[]>;

/** How a runner reports a failed statement into the body: which one, and what the driver said. */
export interface Refusal {
  readonly index: number;
  readonly cause: unknown;
}

/**
 * A statement failed. Made inside the operation, so that its stack names the operation's line; the driver's error is the
 * cause. An operation never catches it: on PostgreSQL the transaction is over by then.
 */
export class StatementFailed extends Error {
  override readonly name = "StatementFailed";
  /** The statement's text in SQLite's spelling; its values are not for logs. */
  readonly statement: string;

  constructor(query: Sql | undefined, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.statement = query ? render(query, "sqlite").text : "";
  }
}

function* send(queries: readonly Sql[], last: boolean): Steps<readonly Result[]> {
  try {
    return yield { queries, last };
  } catch (refusal) {
    // Rethrown in the operation's own frames: the driver's stack does not name the operation.
    const { index, cause } = refusal as Refusal;
    throw new StatementFailed(queries[index], cause);
  }
}

const changesOf = (results: readonly Result[]): readonly number[] => results.map((result) => result.changes);

/** The first row of a statement, if there is one. */
export function* one<Row>(query: Sql): Steps<Row | undefined> {
  const [result] = yield* send([query], false);
  return result?.rows[0] as Row | undefined;
}

/** All rows of a statement. `returning` promises no order: sort in code. */
export function* all<Row>(query: Sql): Steps<readonly Row[]> {
  const [result] = yield* send([query], false);
  return (result?.rows ?? []) as readonly Row[];
}

/** The rows of several statements in one round trip: `many<[Run, Step]>(runs, steps)`. */
export function* many<Rows extends readonly unknown[]>(
  ...queries: { readonly [I in keyof Rows]: Sql }
): Steps<{ readonly [I in keyof Rows]: readonly Rows[I][] }> {
  const results = yield* send(queries, false);
  return results.map((result) => result.rows) as unknown as { readonly [I in keyof Rows]: readonly Rows[I][] };
}

/** Runs statements in one round trip; the number of rows that each changed, on which the operation may decide. */
export function* runAll(...queries: readonly Sql[]): Steps<readonly number[]> {
  return changesOf(yield* send(queries, false));
}

/**
 * The operation's last statements; on PostgreSQL the commit travels with them, so a count is only for `ensure`, never for
 * a decision. Nothing may be asked afterwards.
 */
export function* finish(...queries: readonly Sql[]): Steps<readonly number[]> {
  return changesOf(yield* send(queries, true));
}

/** The statement behind `instant`, to be asked for together with others: its row is `{ now }`. SQLite runs no statement for it. */
export const readInstant: Sql = sql`select ${storeNow} as now`;

/** The store's now in milliseconds. */
export function* instant(): Steps<number> {
  const row = yield* one<{ readonly now: number }>(readInstant);
  ensure(row, "the store has a clock");
  return row.now;
}

/** What an operation is given besides its input. */
export interface Context {
  /** A new id. Another one each time the store runs the operation again. */
  id(kind: IdKind): string;
}

export interface OperationOptions {
  /**
   * Whether its changes are worth a wake-up of the other hosts; true unless said. False for what happens all the time and
   * concerns nobody else, such as renewals.
   */
  readonly wakes?: boolean;
}

/** One transaction with a name. Input and answer are plain data: they cross threads and sockets. */
export interface Operation<In, Out> {
  readonly name: string;
  readonly access: "read" | "write";
  readonly wakes: boolean;
  readonly steps: (input: In, ctx: Context) => Steps<Out>;
}

/** A change. It may be run again from the start by the store, and must be safe to repeat by key or token. */
export const operation = <In, Out>(
  name: string,
  steps: (input: In, ctx: Context) => Steps<Out>,
  { wakes = true }: OperationOptions = {},
): Operation<In, Out> => ({ name, access: "write", wakes, steps });

/** A question: all its statements see one state of the store, on a connection that cannot write. */
export const read = <In, Out>(name: string, steps: (input: In, ctx: Context) => Steps<Out>): Operation<In, Out> => ({
  name,
  access: "read",
  wakes: false,
  steps,
});

/** Operations by noun and verb; each one's name is `<noun>.<verb>` by its place. */
export type OperationTable = Readonly<Record<string, Readonly<Record<string, Operation<never, unknown>>>>>;

/** A body without a parameter makes a call without one; its input type is inferred as one of the two ends of all types. */
type Call<In, Out> = [In] extends [never]
  ? () => Promise<Out>
  : unknown extends In
    ? () => Promise<Out>
    : (input: In) => Promise<Out>;

/** The port that a table of operations makes: `store.<noun>.<verb>(input)`. */
export type StoreOf<Table extends OperationTable> = {
  readonly [Noun in keyof Table]: {
    readonly [Verb in keyof Table[Noun]]: Table[Noun][Verb] extends Operation<infer In, infer Out>
      ? Call<In, Out>
      : never;
  };
};

/** Operations by their full name. A name that differs from its place, or comes twice, is a bug. */
export function byName(table: OperationTable): ReadonlyMap<string, Operation<never, unknown>> {
  const operations = new Map<string, Operation<never, unknown>>();
  for (const [noun, verbs] of Object.entries(table))
    for (const [verb, entry] of Object.entries(verbs)) {
      ensure(entry.name === `${noun}.${verb}`, `the operation ${entry.name} stands at ${noun}.${verb}`);
      operations.set(entry.name, entry);
    }
  return operations;
}

/** The port over a table, each call passed on to a driver. */
export function storeOf<Table extends OperationTable>(
  table: Table,
  call: (operation: Operation<never, unknown>, input: unknown) => Promise<unknown>,
): StoreOf<Table> {
  byName(table);
  const nouns = Object.entries(table).map(([noun, verbs]) => [
    noun,
    Object.fromEntries(
      Object.entries(verbs).map(([verb, entry]) => [verb, (input: unknown) => call(entry, input)] as const),
    ),
  ]);
  return Object.fromEntries(nouns) as StoreOf<Table>;
}
