/** The SQLite store in its four ways: with a writer thread, written directly, read only, and in memory. */
import { setTimeout as sleep } from "node:timers/promises";
import { AppError, BrokenAssert, ensure } from "../core/errors.ts";
import type { Clock } from "../core/ports.ts";
import { HEARTBEAT_PATIENCE_MS, mintId } from "./driver.ts";
import type { Heartbeat, HeartbeatOptions, MintId, StoreHandle } from "./driver.ts";
import {
  fromWire,
  isSqliteBusy,
  outcomeUnknown,
  storeReadOnly,
  storeUnreachable,
  toStoreError,
  toWire,
} from "./errors.ts";
import { migrate, migrationsOf, ownMigrations } from "./migrate.ts";
import { StatementFailed, storeOf } from "./operation.ts";
import type { Operation, OperationTable, Steps, StoreOf } from "./operation.ts";
import { beatInto, newPulse, pulseOf } from "./pulse.ts";
import type { Sql } from "./sql.ts";
import { openSqlite, sqliteLibrary } from "./sqlite-adapters.ts";
import type { Sqlite, SqliteLibrary } from "./sqlite-adapters.ts";
import { openConnection, SQLITE_LIMITS } from "./sqlite-connection.ts";
import { runGroup } from "./sqlite-group.ts";
import type { Answer, CutPoint, GroupCall } from "./sqlite-group.ts";
import { BUSY_PAUSE_MS, runnerAt, runRead, runSync } from "./sqlite-run.ts";
import { WRITER_LIMITS } from "./sqlite-thread.ts";
import type { FromWriter, ToWriter, WireAnswer, WriterData, WriterLimits } from "./sqlite-thread.ts";

export interface SqliteOptions<Table extends OperationTable> {
  readonly file: string;
  readonly table: Table;
  readonly clock: Pick<Clock, "now">;
  /** Texts by file name; the program's own unless given. */
  readonly migrations?: Readonly<Record<string, string>>;
  readonly library?: SqliteLibrary;
  readonly busyMs?: number;
  readonly checkMaxBytes?: number;
}

/** How often a foreign change is looked for while somebody wants to know. */
export const PROBE_MS = 1000;

type AnyOperation = Operation<never, unknown>;

const causeOf = (error: unknown): unknown => (error instanceof StatementFailed ? error.cause : error);

interface Reader {
  run(operation: AnyOperation, input: unknown): Promise<unknown>;
  dataVersion(): number;
  close(): void;
}

function openReader<Table extends OperationTable>(options: SqliteOptions<Table>): Reader {
  const { file, clock, migrations = ownMigrations(), library, busyMs = SQLITE_LIMITS.busyMs } = options;
  const { connection } = openConnection({
    file,
    access: "read",
    migrations: migrationsOf(migrations, "sqlite"),
    now: () => clock.now(),
    busyMs,
    ...(library === undefined ? {} : { library }),
  });
  return {
    async run(operation, input) {
      let endsAt: number | undefined;
      for (;;) {
        try {
          return runRead(connection, operation, input, clock.now(), mintId);
        } catch (error) {
          endsAt ??= performance.now() + busyMs;
          // Only while another process recovers the log; otherwise readers wait for nobody.
          if (!isSqliteBusy(causeOf(error)) || performance.now() >= endsAt)
            throw toStoreError(error, file, operation.name);
          await sleep(Math.random() * BUSY_PAUSE_MS);
        }
      }
    },
    dataVersion() {
      const [row] = connection.query("pragma data_version", [], 0).rows;
      return (row as { readonly data_version: number }).data_version;
    },
    close: () => connection.close(),
  };
}

/** Listeners that are called together; looks once in `PROBE_MS` while there is one. */
function foreignWatch(look: () => void): {
  readonly on: (listener: () => void) => () => void;
  readonly tell: () => void;
  readonly stop: () => void;
} {
  const listeners = new Set<() => void>();
  let timer: NodeJS.Timeout | undefined;
  const stop = (): void => {
    clearInterval(timer);
    timer = undefined;
  };
  return {
    on(listener) {
      const own = () => listener();
      listeners.add(own);
      timer ??= setInterval(look, PROBE_MS);
      return () => {
        listeners.delete(own);
        if (listeners.size === 0) stop();
      };
    },
    tell() {
      for (const listener of listeners) listener();
    },
    stop,
  };
}

const noHeartbeat = (): never => {
  throw new BrokenAssert("only a store with a writer thread renews");
};

// --- the daemon's: a writer thread --------------------------------------------------------------------------------------

export interface WorkerStoreOptions<Table extends OperationTable> extends SqliteOptions<Table> {
  /** The built file of `sqlite-writer.ts`, which serves the same table. */
  readonly writer: URL;
  readonly limits?: Partial<WriterLimits>;
}

interface Pending {
  readonly name: string;
  readonly input: unknown;
  readonly resolve: (answer: WireAnswer) => void;
}

/** Opens the store with a thread that joins waiting callers into one commit. Errors: those of `openConnection`. */
export async function openWorkerStore<Table extends OperationTable>(
  options: WorkerStoreOptions<Table>,
): Promise<StoreHandle<Table>> {
  const { file, table, clock, migrations, writer, limits = {}, busyMs = SQLITE_LIMITS.busyMs } = options;
  const workerData: WriterData = {
    file,
    busyMs,
    checkMaxBytes: options.checkMaxBytes ?? SQLITE_LIMITS.checkMaxBytes,
    limits: { ...WRITER_LIMITS, ...limits },
    library: options.library ?? sqliteLibrary(),
    now: clock.now(),
    migrations: migrations ?? null,
  };
  const { Worker } = await import("node:worker_threads"); // a list, which only reads, would pay for it
  const worker = new Worker(writer, { workerData, name: "drover-writer" });
  const send = (message: ToWriter): void => worker.postMessage(message);

  const waiting: Pending[] = [];
  let flying: Pending[] = [];
  let scheduled = false;
  let dead: AppError | undefined;
  let closing = false;
  const failureListeners = new Set<(error: AppError) => void>();

  const flush = (): void => {
    scheduled = false;
    if (flying.length > 0 || waiting.length === 0 || dead) return;
    flying = waiting.splice(0, WRITER_LIMITS.groupCallers);
    try {
      send({ kind: "group", now: clock.now(), calls: flying.map(({ name, input }) => ({ name, input })) });
    } catch (error) {
      // An input that cannot be cloned is its caller's bug; which one it is shows when each is sent alone.
      const refused = flying;
      flying = [];
      if (refused.length > 1) for (const one of refused) sendAlone(one);
      else
        refused[0]?.resolve({ error: { broken: true, operation: refused[0].name, message: String(error), stack: "" } });
      schedule();
    }
  };
  const sendAlone = (one: Pending): void => {
    try {
      structuredClone(one.input);
      waiting.unshift(one);
    } catch (error) {
      one.resolve({ error: { broken: true, operation: one.name, message: String(error), stack: "" } });
    }
  };
  /** The calls of one turn of the event loop become one message. */
  const schedule = (): void => {
    if (scheduled || flying.length > 0 || waiting.length === 0) return;
    scheduled = true;
    setImmediate(flush);
  };

  const die = (why: string, cause?: unknown): void => {
    if (dead) return;
    dead = storeUnreachable(file, why, cause, "restart drover; what was acknowledged is stored");
    const unknown = flying.splice(0);
    for (const one of unknown) one.resolve({ error: toWire(outcomeUnknown(file, cause), one.name) });
    for (const one of waiting.splice(0)) one.resolve({ error: toWire(dead, one.name) });
    watch.stop();
    if (!closing) for (const listener of failureListeners) listener(dead);
  };

  let onRenewed: ((answer: WireAnswer) => void) | undefined;
  let onHeartbeatStopped: (() => void) | undefined;
  let closed: (() => void) | undefined;
  let opened: ((message: FromWriter & { readonly kind: "ready" | "failed" }) => void) | undefined;
  const opening = new Promise<FromWriter & { readonly kind: "ready" | "failed" }>((resolve) => {
    opened = resolve;
  });
  worker.on("message", (message: FromWriter) => {
    switch (message.kind) {
      case "ready":
      case "failed":
        return opened?.(message);
      case "answers":
        for (const answer of message.answers) flying.shift()?.resolve(answer);
        return schedule();
      case "foreign":
        return watch.tell();
      case "renewed":
        return onRenewed?.(message.answer);
      case "heartbeat_stopped":
        return onHeartbeatStopped?.();
      case "closed":
        return closed?.();
    }
  });
  const fail = (why: string, cause?: unknown): void => {
    opened?.({ kind: "failed", error: toWire(storeUnreachable(file, why, cause), "open") });
    die(why, cause);
    closed?.();
  };
  worker.on("error", (error) => fail("its writer failed", error));
  worker.on("messageerror", (error) => fail("its writer's answer could not be read", error));
  worker.on("exit", (status) => fail(`its writer ended (${status})`));

  let probed = 0;
  let wroteSince = false;
  const watch = foreignWatch(() => {
    // The reading connection also sees our own writer's commits; only the writer can tell them apart.
    const found = reader.dataVersion();
    if (found === probed) return;
    probed = found;
    if (wroteSince) send({ kind: "probe" });
    else watch.tell();
    wroteSince = false;
  });

  const first = await opening;
  if (first.kind === "failed") {
    closing = true;
    await worker.terminate();
    throw fromWire(first.error);
  }
  let reader: Reader;
  try {
    reader = openReader(options);
  } catch (error) {
    closing = true;
    await worker.terminate();
    throw error;
  }
  probed = reader.dataVersion();

  const call = async (operation: AnyOperation, input: unknown): Promise<unknown> => {
    if (operation.access === "read") return reader.run(operation, input);
    ensure(!closing, "the store is closed");
    if (dead) throw storeUnreachable(file, "its writer ended", dead, "restart drover; what was acknowledged is stored");
    wroteSince = true;
    const answer = await new Promise<WireAnswer>((resolve) => {
      waiting.push({ name: operation.name, input, resolve });
      schedule();
    });
    // Made after the await: here the stack names the caller, in the message's handler it would name nobody.
    if ("error" in answer) throw fromWire(answer.error);
    return answer.value;
  };

  return {
    kind: "sqlite",
    location: file,
    store: storeOf(table, call),
    applied: first.applied,
    onForeignChange: watch.on,
    onFailure(listener) {
      failureListeners.add(listener);
    },
    startHeartbeat({
      operation,
      input,
      everyMs,
      patienceMs = HEARTBEAT_PATIENCE_MS,
      onAnswer,
      onError,
    }: HeartbeatOptions): Heartbeat {
      ensure(!onRenewed, "one heartbeat at a time");
      const shared = newPulse();
      const pulse = pulseOf(shared);
      beatInto(pulse, false, clock.now());
      onRenewed = (answer) => {
        if ("error" in answer) onError?.(fromWire(answer.error));
        else onAnswer?.(answer.value);
      };
      send({ kind: "heartbeat", operation, input, everyMs, patienceMs, pulse: shared });
      return {
        beat: (live) => beatInto(pulse, live, clock.now()),
        async stop() {
          if (dead) return;
          await new Promise<void>((resolve) => {
            onHeartbeatStopped = resolve;
            closed ??= resolve;
            send({ kind: "heartbeat_stop" });
          });
          onRenewed = undefined;
        },
      };
    },
    async close() {
      if (closing) return;
      watch.stop();
      while (!dead && (waiting.length > 0 || flying.length > 0)) await new Promise((resolve) => setImmediate(resolve));
      closing = true;
      if (!dead)
        await new Promise<void>((resolve) => {
          closed = resolve;
          send({ kind: "close" });
        });
      reader.close();
      await worker.terminate();
    },
  };
}

// --- a command's: written directly, or read -------------------------------------------------------------------------------

/** Opens the store to write it from this thread for a short time. Errors: those of `openConnection`. */
export async function openDirectStore<Table extends OperationTable>(
  options: SqliteOptions<Table>,
): Promise<StoreHandle<Table>> {
  const { file, table, clock, migrations = ownMigrations(), library, busyMs = SQLITE_LIMITS.busyMs } = options;
  const { connection, applied } = openConnection({
    file,
    access: "write",
    migrations: migrationsOf(migrations, "sqlite"),
    now: () => clock.now(),
    busyMs,
    ...(library === undefined ? {} : { library }),
    ...(options.checkMaxBytes === undefined ? {} : { checkMaxBytes: options.checkMaxBytes }),
  });
  let reader: Reader;
  try {
    reader = openReader(options);
  } catch (error) {
    connection.close();
    throw error;
  }
  const ownVersion = (): number => {
    const [row] = connection.query("pragma data_version", [], 0).rows;
    return (row as { readonly data_version: number }).data_version;
  };
  let known = ownVersion();
  const watch = foreignWatch(() => {
    const found = ownVersion();
    if (found === known) return;
    known = found;
    watch.tell();
  });

  const write = async (operation: AnyOperation, input: unknown): Promise<unknown> => {
    const endsAt = performance.now() + busyMs;
    for (;;) {
      // Waits for the lock between tries without holding up the thread; nothing has happened when it was busy.
      const [answer] = runGroup([{ operation, input }], {
        connection,
        place: file,
        instant: clock.now(),
        mint: mintId,
        maxMs: 0,
        busyMs: 0,
      });
      ensure(answer, "a group answers its caller");
      if (!("error" in answer)) return answer.value;
      const { error } = answer;
      if (!(error instanceof AppError && error.code === "store_busy") || performance.now() >= endsAt) throw error;
      await sleep(Math.random() * BUSY_PAUSE_MS);
    }
  };
  let tail: Promise<unknown> = Promise.resolve();
  const call = (operation: AnyOperation, input: unknown): Promise<unknown> => {
    if (operation.access === "read") return reader.run(operation, input);
    const own = tail.then(() => write(operation, input));
    // The next one waits for the end of this one, whatever it was.
    tail = own.catch(() => undefined);
    return own;
  };
  return {
    kind: "sqlite",
    location: file,
    store: storeOf(table, call),
    applied,
    onForeignChange: watch.on,
    onFailure: () => undefined,
    startHeartbeat: noHeartbeat,
    async close() {
      watch.stop();
      await tail;
      reader.close();
      connection.close();
    },
  };
}

/** Opens the store to be read only; a change is a bug of the caller. Errors: those of `openConnection`. */
export async function openReadStore<Table extends OperationTable>(
  options: SqliteOptions<Table>,
): Promise<StoreHandle<Table>> {
  const { file, table } = options;
  const reader = openReader(options);
  let known = reader.dataVersion();
  const watch = foreignWatch(() => {
    const found = reader.dataVersion();
    if (found === known) return;
    known = found;
    watch.tell();
  });
  return {
    kind: "sqlite",
    location: file,
    store: storeOf(table, async (operation, input) => {
      ensure(operation.access === "read", `${operation.name} needs a store that is opened for writing`);
      return reader.run(operation, input);
    }),
    applied: [],
    onForeignChange: watch.on,
    onFailure: () => undefined,
    startHeartbeat: noHeartbeat,
    async close() {
      watch.stop();
      reader.close();
    },
  };
}

// --- the simulator's: in memory, on the caller's thread -------------------------------------------------------------------

export interface MemoryStoreOptions<Table extends OperationTable> {
  readonly table: Table;
  readonly clock: Pick<Clock, "now">;
  readonly migrations?: Readonly<Record<string, string>>;
  readonly library?: SqliteLibrary;
  /** Ids by seed. */
  readonly mint?: MintId;
  /**
   * Called before each ask, before each commit and after it. A `Crash` thrown there ends the call as the death of the process
   * would: the body is not told, what was not committed is gone.
   */
  readonly cut?: (point: CutPoint, operation: string) => void;
  /** Gives rows back in another order: what says none in its text may come in any. */
  readonly reorder?: (rows: readonly unknown[]) => readonly unknown[];
}

export interface MemoryStore<Table extends OperationTable> extends StoreHandle<Table> {
  /** Runs a statement beside the operations: for the invariants of a simulator. */
  rows<Row>(query: Sql): readonly Row[];
  /** Runs a body beside them, within the transaction of a group when it is called by a `cut`. */
  look<T>(steps: Steps<T>): T;
  /** Runs calls in one transaction, as the daemon's writer does with those of one turn. A `Crash` is thrown. */
  group(calls: readonly GroupCall[]): readonly Answer[];
  /** Rows written so far. */
  changes(): number;
}

const changesOf = (connection: Sqlite): number => {
  const [row] = connection.query("select total_changes() as n", [], 0).rows;
  return (row as { readonly n: number }).n;
};

/** A store without a file. Each call has run to its end when it returns its promise, so a simulator decides every order. */
export function openMemoryStore<Table extends OperationTable>(options: MemoryStoreOptions<Table>): MemoryStore<Table> {
  const { table, clock, migrations = ownMigrations(), library, mint = mintId, cut, reorder } = options;
  const place = "memory";
  const connection: Sqlite = openSqlite(":memory:", {}, library);
  const { query } = connection;
  if (reorder !== undefined)
    connection.query = (text, values, instant) => {
      const result = query(text, values, instant);
      return /\border by\b/.test(text) ? result : { ...result, rows: reorder(result.rows) };
    };
  connection.pragma("foreign_keys = 1");
  connection.exec("begin immediate");
  const applied = runSync(
    migrate(migrationsOf(migrations, "sqlite"), "sqlite", place),
    runnerAt(connection, clock.now()),
  );
  connection.exec("commit");

  const group = (calls: readonly GroupCall[]): readonly Answer[] =>
    runGroup(calls, {
      connection,
      place,
      instant: clock.now(),
      mint,
      maxMs: Number.POSITIVE_INFINITY,
      busyMs: 0,
      ...(cut === undefined ? {} : { cut }),
    });

  const call = async (operation: AnyOperation, input: unknown): Promise<unknown> => {
    if (operation.access === "read") {
      // There is no second connection to a store in memory, and making this one read only would let it prepare all anew.
      const before = changesOf(connection);
      try {
        return runRead(connection, operation, input, clock.now(), mint, () => {
          if (changesOf(connection) !== before) throw storeReadOnly(place);
        });
      } catch (error) {
        throw toStoreError(error, place, operation.name);
      }
    }
    const [answer] = group([{ operation, input }]);
    ensure(answer, "a group answers its caller");
    if ("error" in answer) throw answer.error;
    return answer.value;
  };
  return {
    kind: "sqlite",
    location: place,
    store: storeOf(table, call) as StoreOf<Table>,
    applied,
    rows: <Row>(query: Sql) => runnerAt(connection, clock.now())(query).rows as readonly Row[],
    look: (steps) => runSync(steps, runnerAt(connection, clock.now())),
    group,
    changes: () => changesOf(connection),
    onForeignChange: () => () => undefined,
    onFailure: () => undefined,
    startHeartbeat: noHeartbeat,
    async close() {
      connection.close();
    },
  };
}
