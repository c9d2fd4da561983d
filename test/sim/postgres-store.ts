/** The store of a simulated world on a real PostgreSQL server: the product's driver for each daemon, behind a turnstile. */
import pg, { type Client, type ClientConfig } from "pg";
import type { MintId } from "../../src/store/driver.ts";
import type { OperationTable } from "../../src/store/operation.ts";
import { operations } from "../../src/store/operations.ts";
import { openPostgresStore } from "../../src/store/postgres.ts";
import { type Cluster, makeDatabase } from "../postgres.ts";
import type { Chance } from "./chance.ts";
import type { Broken } from "./checks.ts";
import { createFeed } from "./feed.ts";
import { createMirror } from "./mirror.ts";
import type { Call, SimStore, Watcher } from "./store.ts";
import type { Context, Time } from "./time.ts";
import { createTurnstile, type Turnstile } from "./turnstile.ts";

export interface PostgresSimStoreOptions {
  /** A server of its own: it is crashed, too. */
  readonly cluster: Cluster;
  readonly table: OperationTable;
  readonly time: Time;
  readonly chance: Chance;
  readonly now: () => number;
  readonly mint: MintId;
  readonly watcher: Watcher;
  readonly calm: () => boolean;
  readonly fail: (broken: Broken) => void;
  /** A transaction waits for `ms` between two statements: a good moment for others to do something. */
  readonly onHold: (ms: number) => void;
  /** This process is to die now, between two statements of that operation. */
  readonly onCut: (context: Context, operation: string) => void;
  /** The driver of that process was told that another has changed something. */
  readonly onPoke: (context: Context) => void;
}

export interface PostgresSimStore extends SimStore {
  /** Somebody reads on in the change feed. */
  readFeed(): Promise<void>;
  /** The server ends as in a crash, with all that was open, and is there again. */
  crash(): void;
  /** A connection that listens breaks; whoever has it listens again. */
  deafen(): void;
  readonly counts: Turnstile["counts"];
}

type Calls = Readonly<Record<string, Readonly<Record<string, (input: unknown) => Promise<unknown>>>>>;

/** An answer that is not known when a commit is looked at; that something was granted only makes it look at more. */
const UNKNOWN = { granted: 1 };

export async function openPostgresSimStore(options: PostgresSimStoreOptions): Promise<PostgresSimStore> {
  const { cluster, table, now, mint, watcher } = options;
  const url = await makeDatabase(cluster.url);
  const open = (of: OperationTable) =>
    openPostgresStore({
      url,
      table: of,
      clock: { now },
      now,
      mint,
      // Real time, all of it, and none of it decides anything: the server is always there when it is asked again.
      limits: {
        poolSize: 6,
        retryMs: 20_000,
        retryPauseMs: 1,
        notifyEveryMs: 0,
        listenPauseMs: 2,
        idleInTransactionMs: 0,
      },
    });
  await (await open(operations)).close();

  const join = async (): Promise<Client> => {
    const client = new pg.Client({ connectionString: url, pipeline: true } as ClientConfig);
    client.on("error", () => undefined);
    await client.connect();
    return client;
  };
  let control = await join();
  for (const statement of [
    // Acknowledged is durable, also in a cluster that does not flush: a crash of the server leaves the system's pages.
    `alter database "${new URL(url).pathname.slice(1)}" set synchronous_commit = on`,
    `alter database "${new URL(url).pathname.slice(1)}" set deadlock_timeout = '50ms'`,
    // Its transactions would hold back the feed for a moment that no seed knows.
    "alter system set autovacuum = off",
    "select pg_reload_conf()",
  ])
    await control.query(statement);
  const mirror = await createMirror(() => control, now);

  /** What a guarded write was judged by, by its input. */
  const found = new WeakMap<object, unknown>();
  const turnstile = createTurnstile({
    chance: options.chance,
    time: options.time,
    now,
    calm: options.calm,
    onHold: options.onHold,
    onCut: (context, { entry }) => options.onCut(context, entry.name),
    beforeCommit(call) {
      const looks = watcher.before(call);
      if (looks !== null) found.set(call.input as object, mirror.look(looks));
    },
    async afterCommit(call) {
      const { changed, events } = await mirror.pull();
      feed.committed(events);
      // Whether it was accepted is judged when its answer is there.
      const called = { ...call, found: undefined, answer: UNKNOWN, failed: true };
      mirror.look(
        watcher.after(
          [called],
          changed,
          events.map((event) => event.id),
        ),
      );
    },
    async terminate(pid) {
      await control.query("select pg_terminate_backend($1)", [pid]);
    },
    async waits(pid) {
      const { rows } = await control.query<{ n: number }>("select cardinality(pg_blocking_pids($1)) as n", [pid]);
      return (rows[0]?.n ?? 0) > 0;
    },
  });

  const handles = new Set<{ close(): Promise<void> }>();
  /** The store as each process has it; null is somebody without a daemon. */
  const doors = new Map<Context | null, Promise<Calls>>();

  function doorOf(context: Context | null): Promise<Calls> {
    const there = doors.get(context);
    if (there !== undefined) return there;
    const opening = open(table);
    const door = opening.then((handle) => {
      handles.add(handle);
      if (context !== null) handle.onForeignChange(() => options.onPoke(context));
      return handle.store as Calls;
    });
    doors.set(context, door);
    turnstile.wait(door);
    context?.onEnd(() => {
      doors.delete(context);
      // Nobody waits for what it had asked for.
      void opening.then((handle) => {
        handles.delete(handle);
        return handle.close();
      });
      turnstile.drop(context);
    });
    return door;
  }

  const arrives = (context: Context | null) =>
    context === null ? Promise.resolve() : new Promise<void>((resolve) => context.deliver(resolve));

  async function call({ entry, input, context }: Call): Promise<unknown> {
    const [noun = "", verb = ""] = entry.name.split(".");
    const door = doorOf(context);
    try {
      const answer = await turnstile.run({ entry, input, context }, async () => (await door)[noun]?.[verb]?.(input));
      if (typeof input === "object" && input !== null && found.has(input))
        mirror.look(watcher.after([{ entry, input, context, found: found.get(input), answer, failed: false }], false));
      await arrives(context);
      return answer;
    } catch (error) {
      await arrives(context);
      throw error;
    }
  }

  const feed = createFeed(
    (input) => call({ entry: table["events"]?.["list"] as Call["entry"], input, context: null }),
    turnstile.quiet,
    options.fail,
  );

  return {
    call,
    counts: turnstile.counts,
    look: async (steps) => mirror.look(steps),
    busy: () => (turnstile.idle() ? null : turnstile.settle()),
    readFeed: feed.look,
    deafen: turnstile.deafen,
    crash() {
      cluster.crash();
      cluster.restart();
      turnstile.wait(
        join().then((client) => {
          control = client;
        }),
      );
    },
    async close() {
      turnstile.end();
      for (const handle of handles) void handle.close().catch(() => undefined);
      await control.query(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
      );
      await control.end();
      mirror.close();
    },
  };
}
