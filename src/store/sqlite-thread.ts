/** The writer's thread: takes messages of callers, joins them into commits, keeps the log short, renews leases. */
import { statSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import type { AppError } from "../core/errors.ts";
import { ensure } from "../core/errors.ts";
import { mintId } from "./driver.ts";
import { newerSchema, toStoreError, toWire } from "./errors.ts";
import type { WireError } from "./errors.ts";
import { migrationsOf, ownMigrations } from "./migrate.ts";
import { byName } from "./operation.ts";
import type { OperationTable } from "./operation.ts";
import { pulseOf, watchPulse } from "./pulse.ts";
import type { Sqlite, SqliteLibrary } from "./sqlite-adapters.ts";
import { openConnection } from "./sqlite-connection.ts";
import { runGroup } from "./sqlite-group.ts";
import { pauseSync } from "./sqlite-run.ts";
import type { GroupCall } from "./sqlite-group.ts";

/** Limits of the writer; each is an option. */
export const WRITER_LIMITS = {
  /** Callers in one commit, and the work of one: so that one large wave does not delay its first caller. */
  groupCallers: 256,
  groupMs: 5,
  /** On a slow disk a group works as long as its commit will take, but no longer than this. */
  slowGroupMs: 50,
  /** After this long without a pause the writer leaves the lock alone for a moment: a direct writer was starved otherwise. */
  pauseAfterMs: 50,
  pauseMs: 1,
  /** Without work for this long, the log is moved into the file when it holds more than so many frames. */
  idleMs: 200,
  idleFrames: 500,
  /** Above this size the log is also cut off. */
  truncateBytes: 64 * 1024 * 1024,
  truncateBusyMs: 100,
} as const;

export type WriterLimits = { readonly [Name in keyof typeof WRITER_LIMITS]: number };

export interface WriterData {
  readonly file: string;
  readonly busyMs: number;
  readonly checkMaxBytes: number;
  readonly limits: WriterLimits;
  readonly library: SqliteLibrary;
  /** The store's instant when the thread was started: for the ledger. */
  readonly now: number;
  /** Texts by file name when they are not the program's own: tests bring theirs. */
  readonly migrations: Readonly<Record<string, string>> | null;
}

/** How long a group takes callers in, in ms: where a commit is slow, more of them share it. */
export const groupTime = ({ groupMs, slowGroupMs }: WriterLimits, commitMs: number): number =>
  Math.max(groupMs, Math.min(commitMs, slowGroupMs));

export type ToWriter =
  | {
      readonly kind: "group";
      readonly now: number;
      readonly calls: readonly { readonly name: string; readonly input: unknown }[];
    }
  | { readonly kind: "probe" }
  | {
      readonly kind: "heartbeat";
      readonly operation: string;
      readonly input: unknown;
      readonly everyMs: number;
      readonly patienceMs: number;
      readonly pulse: SharedArrayBuffer;
    }
  | { readonly kind: "heartbeat_stop" }
  | { readonly kind: "close" };

export type WireAnswer = { readonly value: unknown } | { readonly error: WireError };

export type FromWriter =
  | { readonly kind: "ready"; readonly applied: readonly number[] }
  | { readonly kind: "failed"; readonly error: WireError }
  /** The next answers of the message in flight, in its order. */
  | { readonly kind: "answers"; readonly answers: readonly WireAnswer[] }
  | { readonly kind: "foreign" }
  | { readonly kind: "renewed"; readonly answer: WireAnswer }
  | { readonly kind: "heartbeat_stopped" }
  | { readonly kind: "closed" };

interface Hooks {
  /** Wraps the connection: tests put faults between. */
  readonly wrap?: (connection: Sqlite) => Sqlite;
}

/** Serves a table of operations as a worker's whole life. For the entry file of a worker and nothing else. */
export function serveWriter(table: OperationTable, { wrap = (connection) => connection }: Hooks = {}): void {
  const port = parentPort;
  ensure(port, "the writer is a worker");
  const { file, busyMs, checkMaxBytes, limits, library, now, migrations } = workerData as WriterData;
  const operations = byName(table);
  const say = (message: FromWriter): void => port.postMessage(message);

  let connection: Sqlite;
  let version: number;
  try {
    const opened = openConnection({
      file,
      access: "write",
      migrations: migrationsOf(migrations ?? ownMigrations(), "sqlite"),
      now: () => now,
      library,
      busyMs,
      checkMaxBytes,
    });
    connection = wrap(opened.connection);
    version = opened.version;
    say({ kind: "ready", applied: opened.applied });
  } catch (error) {
    say({ kind: "failed", error: toWire(toStoreError(error, file, "open"), "open") });
    port.close();
    return;
  }

  /** Changes only when somebody else commits: on a connection one's own commits do not count. */
  const dataVersion = (): number => {
    const [row] = connection.query("pragma data_version", [], 0).rows;
    return (row as { readonly data_version: number }).data_version;
  };
  let known = dataVersion();
  let outdated: AppError | undefined;
  const lookForForeign = (): void => {
    const found = dataVersion();
    if (found === known) return;
    known = found;
    const schema = Number(connection.pragma("user_version"));
    if (schema > version) outdated = newerSchema(file, schema, version);
    say({ kind: "foreign" });
  };
  const check = (): void => {
    lookForForeign();
    if (outdated) throw outdated;
  };

  let busySince = performance.now();
  let endedAt = busySince;
  /** Leaves the lock alone for a moment after a long time of groups back to back. */
  const pause = (): void => {
    const at = performance.now();
    if (at - endedAt > limits.pauseMs) busySince = at;
    else if (at - busySince > limits.pauseAfterMs) {
      pauseSync(limits.pauseMs);
      busySince = performance.now();
    }
  };

  const checkpoint = (): void => {
    if (connection.inTransaction) return;
    const [log] = connection.query("pragma wal_checkpoint(noop)", [], 0).rows;
    const { log: frames, checkpointed } = log as { readonly log: number; readonly checkpointed: number };
    if ((statSync(`${file}-wal`, { throwIfNoEntry: false })?.size ?? 0) > limits.truncateBytes) {
      connection.pragma(`busy_timeout = ${limits.truncateBusyMs}`);
      connection.query("pragma wal_checkpoint(truncate)", [], 0);
      connection.pragma("busy_timeout = 0");
    } else if (frames - checkpointed > limits.idleFrames) connection.query("pragma wal_checkpoint(passive)", [], 0);
  };
  const idle = setTimeout(() => {
    try {
      checkpoint();
    } catch {
      // A full or failing disk shows in the next commit, where somebody can be told; the log stays whole meanwhile.
    }
  }, limits.idleMs);

  /** How long the last commit took: the next one will take about as long. */
  let commitMs = 0;
  const runCalls = (calls: readonly GroupCall[], instant: number): void => {
    for (let from = 0; from < calls.length; ) {
      pause();
      const answers = runGroup(calls.slice(from, from + limits.groupCallers), {
        connection,
        place: file,
        instant,
        mint: mintId,
        maxMs: groupTime(limits, commitMs),
        busyMs,
        check,
        committed: (ms) => (commitMs = ms),
      });
      endedAt = performance.now();
      answer(
        answers.map((one, i) =>
          "error" in one ? { error: toWire(one.error, calls[from + i]?.operation.name ?? "") } : one,
        ),
      );
      from += answers.length;
    }
    idle.refresh();
  };
  const answer = (answers: readonly WireAnswer[]): void => say({ kind: "answers", answers });

  let stopHeartbeat: (() => void) | undefined;
  port.on("message", (message: ToWriter) => {
    switch (message.kind) {
      case "group":
        return runCalls(
          message.calls.map(({ name, input }) => {
            const operation = operations.get(name);
            ensure(operation, `the writer does not know ${name}`);
            return { operation, input };
          }),
          message.now,
        );
      case "probe":
        return lookForForeign();
      case "heartbeat": {
        const operation = operations.get(message.operation);
        ensure(operation, `the writer does not know ${message.operation}`);
        stopHeartbeat?.();
        stopHeartbeat = watchPulse(pulseOf(message.pulse), message, (live, instant) => {
          if (!live) return;
          const [one] = runGroup([{ operation, input: message.input }], {
            connection,
            place: file,
            instant: Math.round(instant),
            mint: mintId,
            maxMs: limits.groupMs,
            busyMs,
            check,
          });
          ensure(one, "a group answers its caller");
          say({ kind: "renewed", answer: "error" in one ? { error: toWire(one.error, operation.name) } : one });
          idle.refresh();
        });
        return;
      }
      case "heartbeat_stop":
        stopHeartbeat?.();
        stopHeartbeat = undefined;
        return say({ kind: "heartbeat_stopped" });
      case "close":
        stopHeartbeat?.();
        clearTimeout(idle);
        connection.close();
        say({ kind: "closed" });
        port.close();
        return;
    }
  });
}
