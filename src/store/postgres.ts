/** The PostgreSQL store: the same operations, driven over pipelined connections. */
import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import type { Client, ClientConfig, PoolClient, QueryResult } from "pg";
import { AppError, BrokenAssert, ensure } from "../core/errors.ts";
import type { Clock } from "../core/ports.ts";
import { HEARTBEAT_PATIENCE_MS, mintId } from "./driver.ts";
import type { Heartbeat, HeartbeatOptions, MintId, StoreHandle } from "./driver.ts";
import {
  fromWire,
  isConnectionLost,
  isTransient,
  notAStore,
  outcomeUnknown,
  sqlState,
  storeReadOnly,
  storeUnreachable,
  toStoreError,
} from "./errors.ts";
import type { WireError } from "./errors.ts";
import { migrate, migrationsOf, missingFrom, ownMigrations, readLedger } from "./migrate.ts";
import type { LedgerRow } from "./migrate.ts";
import { StatementFailed, storeOf } from "./operation.ts";
import type { Operation, OperationTable, Refusal, Result, Steps } from "./operation.ts";
import { beatInto, newPulse, pulseOf } from "./pulse.ts";
import { render } from "./sql.ts";
import type { Sql } from "./sql.ts";

/** Limits of a PostgreSQL store; each is an option. */
export const POSTGRES_LIMITS = {
  /** Connections of this process, the listening one and the heartbeat's not counted. */
  poolSize: 10,
  /** How long a connection is waited for. */
  connectMs: 10_000,
  /** How long an operation is run again after a conflict or a lost connection. */
  retryMs: 5_000,
  /** Longest pause before it is run again. */
  retryPauseMs: 200,
  /** A transaction of ours that hangs between two statements is ended: it would hold back the change feed of everybody. */
  idleInTransactionMs: 10_000,
  /** Longest statement, waiting for locks included. */
  statementMs: 30_000,
  /** Wake-ups of other hosts are sent at most this often: each takes a lock that all commits of the cluster share. */
  notifyEveryMs: 20,
  /** The longest pause before the listening connection is made again. */
  listenPauseMs: 10_000,
} as const;

/** PostgreSQL 14 is the oldest that is tested. */
const OLDEST_SERVER = 140_000;

/** Prepared statements by name in one process; later texts go without a name. */
const MAX_NAMES = 1000;

/** Advisory locks, in the number space of each schema. 1 is for migrations; operations use higher ones. */
const MIGRATION_LOCK = 1;

export interface PostgresOptions<Table extends OperationTable> {
  readonly url: string;
  readonly table: Table;
  readonly clock: Pick<Clock, "now">;
  /** Texts by file name; the program's own unless given. */
  readonly migrations?: Readonly<Record<string, string>>;
  /** The schema that holds the store; made when it is missing. The connection's own unless given. */
  readonly schema?: string;
  /** Off behind a pooler that cannot keep prepared statements and session settings. */
  readonly namedStatements?: boolean;
  /** The built file of `postgres-heartbeat.ts`, which serves the same table. */
  readonly heartbeat?: URL;
  readonly limits?: Partial<{ readonly [Name in keyof typeof POSTGRES_LIMITS]: number }>;
  /** Replaces the database's clock, for tests. */
  readonly now?: () => number;
  /** Ids by seed, for tests. */
  readonly mint?: MintId;
}

type Limits = { readonly [Name in keyof typeof POSTGRES_LIMITS]: number };

/** What the server sends as text, as the numbers and bytes that SQLite gives. */
const PARSERS: Readonly<Record<number, (text: string) => unknown>> = {
  // A truth is 0 or 1.
  16: (text) => (text === "t" ? 1 : 0),
  17: (text) => new Uint8Array(Buffer.from(text.slice(2), "hex")),
  20: (text) => {
    const number = Number(text);
    ensure(Number.isSafeInteger(number), `${text} is beyond 2^53 - 1`);
    return number;
  },
  21: Number,
  23: Number,
  26: Number,
  700: Number,
  701: Number,
  1700: () => {
    throw new BrokenAssert("a numeric would arrive as text: use bigSum, or cast to bigint");
  },
};

const types = {
  getTypeParser: (oid: number): ((text: string) => unknown) => PARSERS[oid] ?? ((text: string) => text),
};

/** The address without its password, for people. */
export function placeOf(url: string): string {
  try {
    const address = new URL(url);
    const host = address.searchParams.get("host") ?? address.host;
    return `postgres://${address.username === "" ? "" : `${address.username}@`}${host}${address.pathname}`;
  } catch {
    // Shown only beside an error that says what is wrong with it.
    return "postgres://";
  }
}

const names = new Map<string, string>();

/** A name for a text: that of its digest, so that every connection knows it by the same. */
function nameOf(text: string): string | undefined {
  const kept = names.get(text);
  if (kept !== undefined || names.size >= MAX_NAMES) return kept;
  const name = `drover_${createHash("sha256").update(text).digest("base64url").slice(0, 22)}`;
  names.set(text, name);
  return name;
}

interface Session {
  readonly place: string;
  readonly named: boolean;
  /** What opens a transaction. */
  begin(access: "read" | "write"): string;
}

interface Executed extends Result {
  readonly wrote: boolean;
}

async function execute(client: Client | PoolClient, query: Sql, named: boolean): Promise<Executed> {
  const { text, values, script } = render(query, "postgres");
  if (script) {
    await client.query(text);
    return { rows: [], changes: 0, wrote: true };
  }
  const name = named ? nameOf(text) : undefined;
  const result = await client.query({ text, values: values as unknown[], ...(name === undefined ? {} : { name }) });
  const changes = result.rowCount ?? 0;
  return { rows: result.rows as unknown[], changes, wrote: result.command !== "SELECT" && changes > 0 };
}

/** How a transaction ended that did not commit: whether it may be run again, or what came of it is unknown. */
class Undone extends Error {
  override readonly name = "Undone";
  readonly outcome: "failed" | "unknown";
  /** Whether the connection can be used again. */
  readonly usable: boolean;

  constructor(outcome: "failed" | "unknown", usable: boolean, cause: unknown) {
    super("the transaction did not commit", { cause });
    this.outcome = outcome;
    this.usable = usable;
  }
}

const driverCause = (error: unknown): unknown => (error instanceof StatementFailed ? error.cause : error);

/** When somebody else is to be woken by a change: inside the transaction, or afterwards. */
interface Wake {
  /** The statement to send along before the commit. */
  statement(): { readonly text: string; readonly values: readonly string[] };
  /** Its row, once the commit was confirmed. */
  committed(row: { readonly wrote: number } | undefined): void;
}

interface Transacted<T> {
  readonly value: T;
  /** Settles when the connection is free again: a question is answered before its transaction has ended. */
  readonly ended: Promise<unknown>;
}

/**
 * Runs a body in one transaction. `begin` goes with the first ask, the commit with the last list.
 * Throws Undone when nothing was committed or nobody knows.
 */
async function transact<T>(
  client: Client | PoolClient,
  steps: Steps<T>,
  session: Session,
  access: "read" | "write",
  wake?: Wake,
): Promise<Transacted<T>> {
  let begun: Promise<unknown> | undefined;
  let commit: Promise<QueryResult> | undefined;
  let noticed: Promise<QueryResult> | undefined;
  let wrote = false;

  const sendCommit = (wakes: boolean): Promise<QueryResult> => {
    if (wake && wakes) {
      const { text, values } = wake.statement();
      noticed = client.query(text, [...values]);
      noticed.catch(() => undefined);
    }
    const sent = client.query("commit");
    // Awaited below; a failure of the list before it is reported first.
    sent.catch(() => undefined);
    return sent;
  };
  const confirm = async (sent: Promise<QueryResult>): Promise<void> => {
    let result: QueryResult;
    try {
      result = await sent;
    } catch (cause) {
      const lost = isConnectionLost(cause);
      throw new Undone(lost ? "unknown" : "failed", !lost, cause);
    }
    // After a failed statement the server answers a commit with ROLLBACK, and no error.
    if (result.command !== "COMMIT")
      throw new Undone("failed", true, new BrokenAssert(`the commit answered ${result.command}`));
    if (noticed) wake?.committed((await noticed).rows[0] as { readonly wrote: number } | undefined);
  };

  try {
    let move = steps.next(undefined as never);
    while (!move.done) {
      const ask = move.value;
      ensure(!commit, "an operation asked for something after its last statements");
      begun ??= client.query(session.begin(access));
      begun.catch(() => undefined);
      const sent = ask.queries.map((query) => execute(client, query, session.named));
      if (ask.last) commit = sendCommit(true);
      const [opened, ...settled] = await Promise.allSettled([begun, ...sent] as const);
      let refusal: Refusal | undefined;
      if (opened.status === "rejected") refusal = { index: -1, cause: opened.reason };
      else {
        const index = settled.findIndex((one) => one.status === "rejected");
        const failed = settled[index];
        if (failed?.status === "rejected") refusal = { index, cause: failed.reason };
      }
      if (refusal) {
        move = steps.throw(refusal);
        continue;
      }
      if (commit) await confirm(commit);
      const results = settled.flatMap((one) => (one.status === "fulfilled" ? [one.value as Executed] : []));
      wrote ||= results.some((result) => result.wrote);
      move = steps.next(results);
    }
    if (begun && !commit) {
      // Whoever wrote nothing wakes nobody, or two hosts would wake one another for ever.
      commit = sendCommit(wrote);
      if (access === "read") return { value: move.value, ended: commit };
      await confirm(commit);
    }
    return { value: move.value, ended: Promise.resolve() };
  } catch (error) {
    if (error instanceof Undone) throw error;
    const lost = isConnectionLost(driverCause(error));
    if (commit) {
      // The list failed and the commit was under way: an error of the server has undone it, a lost connection tells nothing.
      await commit.catch(() => undefined);
      throw new Undone(lost ? "unknown" : "failed", !lost, error);
    }
    if (begun && !lost)
      try {
        await client.query("rollback");
      } catch {
        throw new Undone("failed", false, error);
      }
    throw new Undone("failed", !lost, error);
  }
}

const withClock = (begin: string, now: (() => number) | undefined): string =>
  now ? `${begin}; set local drover.now = '${Math.trunc(now())}'` : begin;

/** Opens the store. Errors: AppError `store_unreachable`, `not_a_store`, `newer_schema`, `store_read_only`, `bad_store_url`. */
export async function openPostgresStore<Table extends OperationTable>(
  options: PostgresOptions<Table>,
): Promise<StoreHandle<Table>> {
  const { url, table, clock, schema, namedStatements = true, now, mint = mintId } = options;
  const limits: Limits = { ...POSTGRES_LIMITS, ...options.limits };
  const place = placeOf(url);
  ensure(schema === undefined || /^[a-z_][a-z0-9_]{0,62}$/.test(schema), "a schema is named with lower-case letters");
  const pg = (await import("pg")).default;
  const config: ClientConfig = {
    connectionString: url,
    types,
    application_name: "drover",
    keepAlive: true,
    connectionTimeoutMillis: limits.connectMs,
    // A pooler refuses settings at the start of a connection; there they come with each transaction.
    ...(namedStatements
      ? { idle_in_transaction_session_timeout: limits.idleInTransactionMs, statement_timeout: limits.statementMs }
      : {}),
    ...(schema === undefined ? {} : { options: `-c search_path=${schema}` }),
  };
  const pool = new pg.Pool({
    ...config,
    pipeline: true,
    max: limits.poolSize,
    idleTimeoutMillis: 30_000,
  } as ClientConfig);
  // A connection that breaks while nobody uses it leaves the pool; the next caller gets another.
  pool.on("error", () => undefined);
  // One that breaks while it is used tells its statements; an event that nobody hears would end the process.
  pool.on("connect", (client) => client.on("error", () => undefined));

  const begins = {
    read: "begin isolation level repeatable read read only",
    write: "begin isolation level read committed",
  };
  const settings = namedStatements
    ? ""
    : `; set local idle_in_transaction_session_timeout = ${limits.idleInTransactionMs}; set local statement_timeout = ${limits.statementMs}`;
  const session: Session = {
    place,
    named: namedStatements,
    begin: (access) => withClock(begins[access] + settings, now),
  };

  let applied: readonly number[];
  let channel: string;
  try {
    ({ applied, channel } = await prepare(pool, session, options, place));
  } catch (error) {
    await pool.end();
    const cause = driverCause(error instanceof Undone ? error.cause : error);
    const state = sqlState(cause);
    // Tables of these names that are not ours: 42703 no such column, 42P07 exists already.
    if (state === "42703" || state === "42P07") throw notAStore(place, cause);
    throw toStoreError(error instanceof Undone ? error.cause : error, place, "open");
  }

  const own = randomBytes(8).toString("hex");
  let closing = false;
  let notifiedAt = -Infinity;
  /** The wake-up that waits to be sent. Who sends one meanwhile speaks for it and takes it away. */
  let trailing: { readonly timer: NodeJS.Timeout } | undefined;
  const notifyLater = (): void => {
    if (closing || trailing !== undefined) return;
    const waiting = { timer: setTimeout(() => void notify(waiting), limits.notifyEveryMs) };
    trailing = waiting;
  };
  const notify = async (waiting: typeof trailing): Promise<void> => {
    let client: PoolClient;
    try {
      client = await pool.connect();
    } catch {
      // A wake-up: whoever misses it looks by himself in time.
      if (trailing === waiting) trailing = undefined;
      return;
    }
    if (trailing !== waiting) return client.release();
    trailing = undefined;
    notifiedAt = performance.now();
    client.query("select pg_notify($1, $2)", [channel, own]).then(
      () => client.release(),
      () => client.release(true),
    );
  };

  const attempt = async (operation: Operation<never, unknown>, input: unknown): Promise<unknown> => {
    const client = await pool.connect();
    let inside = false;
    // Whether a wake-up waited that this transaction speaks for: if it says nothing in the end, that one waits again.
    let owed = false;
    const wake: Wake | undefined = operation.wakes
      ? {
          statement() {
            inside = performance.now() - notifiedAt >= limits.notifyEveryMs;
            if (inside) {
              notifiedAt = performance.now();
              owed ||= trailing !== undefined;
              clearTimeout(trailing?.timer);
              trailing = undefined;
            }
            const wrote = "pg_current_xact_id_if_assigned() is not null";
            return inside
              ? { text: `select ${wrote} as wrote, pg_notify($1, $2) where ${wrote}`, values: [channel, own] }
              : { text: `select ${wrote} as wrote`, values: [] };
          },
          committed(row) {
            if (row?.wrote === 1 ? !inside : owed) notifyLater();
            owed = false;
          },
        }
      : undefined;
    try {
      const steps = operation.steps(input as never, { id: (kind) => mint(kind, clock.now()) });
      const { value, ended } = await transact(client, steps, session, operation.access, wake);
      ended.then(
        () => client.release(),
        () => client.release(true),
      );
      return value;
    } catch (error) {
      if (owed) notifyLater();
      client.release(!(error instanceof Undone && error.usable));
      throw error;
    }
  };

  /** Runs an operation, again from the start after a conflict and after a connection that was lost before the commit was sent. */
  const call = async (operation: Operation<never, unknown>, input: unknown): Promise<unknown> => {
    ensure(!closing, "the store is closed");
    const endsAt = performance.now() + limits.retryMs;
    for (let tries = 1; ; tries++) {
      try {
        return await attempt(operation, input);
      } catch (error) {
        const undone = error instanceof Undone ? error : undefined;
        const cause = undone ? undone.cause : error;
        if (undone?.outcome === "unknown" && operation.access === "write") throw outcomeUnknown(place, cause);
        const raw = driverCause(cause);
        if (!(isTransient(raw) || isConnectionLost(raw)) || closing || performance.now() >= endsAt)
          throw toStoreError(cause, place, operation.name);
        await sleep(Math.random() * Math.min(limits.retryPauseMs, 2 ** tries));
      }
    }
  };

  // --- wake-ups of others -----------------------------------------------------------------------------------------------

  const listeners = new Set<() => void>();
  let listening: Client | undefined;
  let listenTries = 0;
  let listenTimer: NodeJS.Timeout | undefined;
  const tell = (): void => {
    for (const listener of listeners) listener();
  };
  const listenAgain = (): void => {
    if (closing || listeners.size === 0 || listenTimer) return;
    listenTimer = setTimeout(
      () => {
        listenTimer = undefined;
        void listen();
      },
      Math.random() * Math.min(limits.listenPauseMs, 100 * 2 ** listenTries++),
    );
  };
  const listen = async (): Promise<void> => {
    const client = new pg.Client(config);
    listening = client;
    client.on("notification", ({ payload }) => {
      if (payload !== own) tell();
    });
    let ended = false;
    const end = (): void => {
      if (ended) return;
      ended = true;
      if (listening === client) listening = undefined;
      // It may be gone already, or not be there yet; either way it is not ours any more.
      client.end().catch(() => undefined);
      listenAgain();
    };
    client.on("error", end);
    client.on("end", end);
    try {
      await client.connect();
      await client.query(`listen ${client.escapeIdentifier(channel)}`);
      listenTries = 0;
      // What happened before we listened was not heard.
      tell();
    } catch {
      end();
    }
  };

  return {
    kind: "postgres",
    location: place,
    store: storeOf(table, call),
    applied,
    onForeignChange(listener) {
      const mine = () => listener();
      listeners.add(mine);
      if (!listening && !listenTimer) void listen();
      return () => {
        listeners.delete(mine);
        if (listeners.size > 0) return;
        clearTimeout(listenTimer);
        listenTimer = undefined;
        listening?.end().catch(() => undefined);
        listening = undefined;
      };
    },
    // The pool makes new connections; there is no state of ours that could break.
    onFailure: () => undefined,
    startHeartbeat: (wanted) => startHeartbeat(options, wanted),
    async close() {
      if (closing) return;
      closing = true;
      clearTimeout(trailing?.timer);
      trailing = undefined;
      clearTimeout(listenTimer);
      listeners.clear();
      await listening?.end().catch(() => undefined);
      await pool.end();
    },
  };
}

interface Prepared {
  readonly applied: readonly number[];
  readonly channel: string;
}

async function prepare<Table extends OperationTable>(
  pool: { connect(): Promise<PoolClient> },
  session: Session,
  { migrations: texts = ownMigrations(), schema, clock, now }: PostgresOptions<Table>,
  place: string,
): Promise<Prepared> {
  const migrations = migrationsOf(texts, "postgres");
  const client = await pool.connect();
  let usable = false;
  try {
    const { rows } = await client.query(
      "select current_setting('server_version_num')::int as version, getdatabaseencoding() as encoding, pg_is_in_recovery() as standby, current_schema() as schema",
    );
    const [server] = rows as { version: number; encoding: string; standby: number; schema: string | null }[];
    ensure(server, "the server says its version");
    if (server.version < OLDEST_SERVER)
      throw storeUnreachable(
        place,
        `its version ${server.version} is older than PostgreSQL 14`,
        undefined,
        "Use PostgreSQL 14 or newer",
      );
    if (server.encoding !== "UTF8")
      throw storeUnreachable(
        place,
        `its encoding is ${server.encoding}`,
        undefined,
        "Make a database with encoding UTF8",
      );
    if (server.standby === 1) throw storeReadOnly(place);
    const own = schema ?? server.schema;
    if (own === null)
      throw storeUnreachable(place, "no schema is to be found", undefined, "Add ?schema=NAME to the address");
    const channel = `drover_${own.length > 40 ? createHash("sha256").update(own).digest("hex").slice(0, 32) : own}`;

    // Without the lock first: nearly always there is nothing to do.
    const found = await client.query("select to_regclass($1) is not null as there", [
      `${client.escapeIdentifier(own)}.migrations`,
    ]);
    if ((found.rows[0] as { there: number }).there === 1) {
      const ledger = await execute(client, readLedger, false);
      if (missingFrom(ledger.rows as LedgerRow[], migrations, place).length === 0) {
        usable = true;
        return { applied: [], channel };
      }
    }
    const begin = withClock("begin isolation level read committed", now ?? (() => clock.now()));
    await client.query(begin);
    // Before the schema and the ledger are looked at or made: two creations at once collide in the catalogue.
    await client.query("select pg_advisory_xact_lock(hashtext($1), $2)", [own, MIGRATION_LOCK]);
    if (schema !== undefined) await client.query(`create schema if not exists ${client.escapeIdentifier(schema)}`);
    const joined: Session = { ...session, begin: () => "select 1" };
    const { value } = await transact(client, migrate(migrations, "postgres", place), joined, "write");
    usable = true;
    return { applied: value, channel };
  } catch (error) {
    usable = error instanceof Undone && error.usable;
    throw error;
  } finally {
    client.release(!usable);
  }
}

// --- the heartbeat's thread -----------------------------------------------------------------------------------------------

export interface HeartbeatData {
  readonly url: string;
  readonly schema: string | null;
  readonly namedStatements: boolean;
  readonly operation: string;
  readonly input: unknown;
  readonly everyMs: number;
  readonly patienceMs: number;
  readonly pulse: SharedArrayBuffer;
  readonly migrations: Readonly<Record<string, string>> | null;
}

export type FromHeartbeat = { readonly value: unknown } | { readonly error: WireError };

function startHeartbeat<Table extends OperationTable>(
  { url, schema, namedStatements = true, heartbeat, clock, migrations }: PostgresOptions<Table>,
  { operation, input, everyMs, patienceMs = HEARTBEAT_PATIENCE_MS, onAnswer, onError }: HeartbeatOptions,
): Heartbeat {
  ensure(heartbeat, "a PostgreSQL store renews in a thread whose file is given");
  const shared = newPulse();
  const pulse = pulseOf(shared);
  beatInto(pulse, false, clock.now());
  const workerData: HeartbeatData = {
    url,
    schema: schema ?? null,
    namedStatements,
    operation,
    input,
    everyMs,
    patienceMs,
    pulse: shared,
    migrations: migrations ?? null,
  };
  const worker = new Worker(heartbeat, { workerData, name: "drover-heartbeat" });
  worker.on("message", (message: FromHeartbeat) => {
    if ("error" in message) onError?.(fromWire(message.error));
    else onAnswer?.(message.value);
  });
  worker.on("error", (cause) => {
    onError?.(
      new AppError("unreachable", "heartbeat_ended", "the thread that renews the leases ended", {
        cause,
        hint: "Restart drover.",
      }),
    );
  });
  return {
    beat: (live) => beatInto(pulse, live, clock.now()),
    async stop() {
      await worker.terminate();
    },
  };
}
