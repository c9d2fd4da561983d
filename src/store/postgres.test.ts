import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { endChild } from "../../test/children.ts";
import { makeDatabase, startPostgres } from "../../test/postgres.ts";
import type { Cluster } from "../../test/postgres.ts";
import { migrations, table } from "../../test/store/table.ts";
import { buildWorker } from "../../test/writer.ts";
import type { AppError } from "../core/errors.ts";
import { BrokenAssert } from "../core/errors.ts";
import { all, operation, read } from "./operation.ts";
import type { Steps } from "./operation.ts";
import { openPostgresStore } from "./postgres.ts";
import type { PostgresOptions } from "./postgres.ts";
import { advisoryLock, sql } from "./sql.ts";

const wanted = process.env["DROVER_TEST_STORES"] !== "sqlite";
const clock = { now: () => Date.now() };
let cluster: Cluster | undefined;
let shared = "";
let url = "";
const closing: { close(): Promise<void> }[] = [];
const children: ChildProcess[] = [];

beforeAll(async () => {
  if (!wanted) return;
  shared = process.env["DROVER_TEST_POSTGRES"] ?? "";
  if (shared !== "") return;
  cluster = await startPostgres();
  shared = cluster.url;
});
beforeEach(async () => {
  if (wanted) url = await makeDatabase(shared);
});
afterEach(async () => {
  for (const one of closing.splice(0)) await one.close();
  for (const child of children.splice(0)) await endChild(child);
});
afterAll(() => cluster?.stop());

const open = async (options: Partial<PostgresOptions<typeof table>> = {}) => {
  const handle = await openPostgresStore({ url, table, migrations, clock, ...options });
  closing.push(handle);
  return handle;
};

async function query(text: string): Promise<readonly Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return (await client.query(text)).rows;
  } finally {
    await client.end();
  }
}

const until = async (holds: () => boolean | Promise<boolean>): Promise<void> => {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
};
const codeOf = (error: unknown): string => (error as AppError).code ?? (error as Error).name;
const outcome = (call: Promise<unknown>): Promise<unknown> => call.catch((error: unknown) => codeOf(error));

type Query = (this: pg.Client, ...given: unknown[]) => unknown;
interface Sent {
  readonly text: string;
  readonly client: pg.Client;
}

/** Puts a fault in front of the nth statement that this process sends; answers what was sent. Once. */
async function withFault<T>(
  at: number,
  fault: (client: pg.Client) => string | undefined,
  body: () => Promise<T>,
): Promise<{ readonly value: T; readonly sent: readonly Sent[] }> {
  const prototype = pg.Client.prototype as unknown as { query: Query };
  const original = prototype.query;
  const sent: Sent[] = [];
  prototype.query = function (this: pg.Client, ...given: unknown[]): unknown {
    const [config] = given;
    sent.push({ text: typeof config === "string" ? config : (config as { text: string }).text, client: this });
    if (sent.length - 1 !== at) return original.apply(this, given);
    const instead = fault(this);
    return instead === undefined ? original.apply(this, given) : original.call(this, instead);
  };
  try {
    return { value: await body(), sent };
  } finally {
    prototype.query = original;
  }
}

const raise = (state: string) => (): string =>
  `do $$ begin raise exception 'planted' using errcode = '${state}'; end $$`;
const cutConnection = (client: pg.Client): undefined => {
  (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy();
  return undefined;
};

/** No wake-up is sent later by itself, so that the statements of an operation can be counted. */
const countable = { limits: { notifyEveryMs: 0 } };

describe.skipIf(!wanted)("a transaction", () => {
  test("begin travels with the first ask, the commit with the last list", async () => {
    const { store } = await open(countable);
    const { sent } = await withFault(
      -1,
      () => undefined,
      () => store.notes.add({ id: "a", body: "x" }),
    );
    const texts = sent.map((one) => one.text.split(" ").slice(0, 2).join(" "));
    expect(texts).toEqual([
      "begin isolation",
      "select id",
      "select coalesce(nullif(current_setting('drover.now',",
      "insert into",
      "insert into",
      "insert into",
      "update notes",
      "select pg_current_xact_id_if_assigned()",
      "commit",
    ]);
    expect(new Set(sent.map((one) => one.client)).size).toBe(1);
  });

  test.each(["40001", "40P01"])(
    "a conflict (%s) at each statement: it runs again, and its answer is right",
    async (state) => {
      const { store } = await open(countable);
      const { sent } = await withFault(
        -1,
        () => undefined,
        () => store.notes.add({ id: "model", body: "x" }),
      );
      for (let at = 0; at < sent.length; at++) {
        const id = `n${at}`;
        // A commit that is replaced is not sent at all; what it hides is tried below.
        const last = sent[at]?.text === "commit" || sent[at]?.text.includes("xact_id");
        if (last) continue;
        const { value, sent: again } = await withFault(at, raise(state), () => store.notes.add({ id, body: "x" }));
        expect(value).toBe("added");
        expect(again.length).toBeGreaterThan(sent.length);
        expect((await store.notes.get({ id }))?.number).toBe(2);
      }
      expect((await store.notes.whole()).halves).toBe(0);
    },
  );

  test("a conflict that does not end is told in time", async () => {
    const { store } = await open({ limits: { retryMs: 100, notifyEveryMs: 0 } });
    await store.notes.add({ id: "a", body: "x" });
    const prototype = pg.Client.prototype as unknown as { query: Query };
    const original = prototype.query;
    prototype.query = function (this: pg.Client, ...given: unknown[]): unknown {
      const { text } = given[0] as { text?: string };
      return text?.startsWith("update notes") ? original.call(this, raise("40001")()) : original.apply(this, given);
    };
    try {
      expect(await outcome(store.notes.bump({ id: "a" }))).toBe("store_busy");
    } finally {
      prototype.query = original;
    }
    expect(await store.notes.bump({ id: "a" })).toBe(3);
  });

  test("a commit that answers ROLLBACK is an error, and nothing is there", async () => {
    const { store } = await open(countable);
    const { sent } = await withFault(
      -1,
      () => undefined,
      () => store.notes.add({ id: "model", body: "x" }),
    );
    const at = sent.findIndex((one) => one.text.includes("xact_id"));
    const { value } = await withFault(at, raise("22012"), () =>
      store.notes.add({ id: "a", body: "x" }).catch((error: unknown) => error),
    );
    expect(value).toBeInstanceOf(BrokenAssert);
    expect((value as Error).message).toContain("ROLLBACK");
    expect(await store.notes.list()).toEqual(["model"]);
  });

  test("a connection lost at each statement: run again before the commit was sent, unknown afterwards; asking again settles it", async () => {
    const { store } = await open(countable);
    const { sent } = await withFault(
      -1,
      () => undefined,
      () => store.notes.add({ id: "model", body: "x" }),
    );
    const firstOfLast = sent.findIndex((one) => one.text.startsWith("update notes"));
    for (let at = 0; at < sent.length; at++) {
      const id = `n${at}`;
      const { value } = await withFault(at, cutConnection, () => outcome(store.notes.add({ id, body: "x" })));
      expect(value).toBe(at < firstOfLast ? "added" : "outcome_unknown");
      expect(["added", "there"]).toContain(await store.notes.add({ id, body: "x" }));
      expect((await store.notes.get({ id }))?.number).toBe(2);
    }
    expect((await store.notes.whole()).halves).toBe(0);
  });

  test("a question is asked again whenever the connection is lost", async () => {
    const { store } = await open(countable);
    await store.notes.add({ id: "a", body: "x" });
    for (let at = 0; at < 2; at++) {
      const { value } = await withFault(at, cutConnection, () => store.notes.get({ id: "a" }));
      expect(value?.id).toBe("a");
    }
  });

  test("all statements of a question see one state", async () => {
    const reading: string[] = [];
    const twice = {
      notes: {
        twice: read("notes.twice", function* (): Steps<readonly number[]> {
          const count = sql`select count(*) as n from notes`;
          const [before] = yield* all<{ readonly n: number }>(count);
          reading.push("first");
          yield* all(sql`select 1 as slept from pg_sleep(0.2)`);
          const [after] = yield* all<{ readonly n: number }>(count);
          return [before?.n ?? -1, after?.n ?? -1];
        }),
      },
    };
    const { store } = await open();
    const reader = await openPostgresStore({ url, table: twice, migrations, clock });
    closing.push(reader);
    const answer = reader.store.notes.twice();
    await until(() => reading.length > 0);
    await store.notes.add({ id: "a", body: "x" });
    expect(await answer).toEqual([0, 0]);
  });

  test("more callers than connections wait for their turn", async () => {
    const { store } = await open({ limits: { poolSize: 2 } });
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, i) => store.notes.add({ id: `n${i}`, body: "x" })),
    );
    expect(new Set(answers)).toEqual(new Set(["added"]));
  });

  test("a lock that stays is told when the statement's time is over", async () => {
    const { store } = await open({ limits: { statementMs: 100, retryMs: 0 } });
    await store.notes.add({ id: "a", body: "x" });
    const holder = new pg.Client({ connectionString: url });
    await holder.connect();
    await holder.query("begin");
    await holder.query("select 1 from notes where id = 'a' for update");
    expect(await outcome(store.notes.bump({ id: "a" }))).toBe("store_busy");
    await holder.query("rollback");
    await holder.end();
    expect(await store.notes.bump({ id: "a" })).toBe(3);
  });

  test("an advisory lock belongs to its schema", async () => {
    const locking = {
      notes: {
        lock: operation("notes.lock", function* (_: { readonly ms: number }): Steps<number> {
          yield* all(advisoryLock(7));
          const [row] = yield* all<{ readonly n: number }>(sql`select 1 as n from pg_sleep(0.15)`);
          return row?.n ?? 0;
        }),
      },
    };
    const one = await openPostgresStore({ url, table: locking, migrations, clock, schema: "one" });
    const two = await openPostgresStore({ url, table: locking, migrations, clock, schema: "two" });
    closing.push(one, two);
    const took = async (calls: readonly Promise<unknown>[]): Promise<number> => {
      const from = performance.now();
      await Promise.all(calls);
      return performance.now() - from;
    };
    expect(await took([one.store.notes.lock({ ms: 0 }), one.store.notes.lock({ ms: 0 })])).toBeGreaterThan(290);
    // Two schemas: at the same time. The first pair shows that the lock is there at all.
    expect(await took([one.store.notes.lock({ ms: 0 }), two.store.notes.lock({ ms: 0 })])).toBeLessThan(290);
  });

  test("sums that are not cast are refused, not handed out as text", async () => {
    const summing = {
      notes: {
        sum: read("notes.sum", function* (): Steps<unknown> {
          return yield* all(sql`select sum(number) as n from notes`);
        }),
      },
    };
    const { store } = await open();
    await store.notes.add({ id: "a", body: "x" });
    const reader = await openPostgresStore({ url, table: summing, migrations, clock });
    closing.push(reader);
    await expect(reader.store.notes.sum()).rejects.toThrow("bigSum");
  });

  test("behind a pooler: no named statements, settings within each transaction", async () => {
    const { store } = await open({ namedStatements: false });
    const { sent } = await withFault(
      -1,
      () => undefined,
      () => store.notes.add({ id: "a", body: "x" }),
    );
    expect(sent[0]?.text).toContain("set local statement_timeout");
    expect(await query("select count(*)::int as n from pg_prepared_statements")).toEqual([{ n: 0 }]);
    expect((await store.notes.get({ id: "a" }))?.number).toBe(2);
  });

  test("the database's clock is the store's, whatever the host says", async () => {
    const { store } = await open({ clock: { now: () => 5 } });
    const at = await store.notes.now({});
    expect(Math.abs(at - Date.now())).toBeLessThan(5000);
  });
});

describe.skipIf(!wanted)("wake-ups", () => {
  const listening = async () => {
    const handle = await open();
    let told = 0;
    handle.onForeignChange(() => told++);
    const other = await open();
    let n = 0;
    // The first call is that of the beginning; the second one proves that it listens.
    await until(async () => {
      if (told < 2) await other.store.notes.add({ id: `probe${n++}`, body: "x" });
      return told >= 2;
    });
    return { handle, other, told: () => told };
  };

  test("an operation that changes nothing wakes nobody", async () => {
    const { other, told } = await listening();
    await until(async () => {
      const before = told();
      await new Promise((resolve) => setTimeout(resolve, 60));
      return told() === before;
    });
    const before = told();
    for (let i = 0; i < 20; i++) {
      await other.store.notes.add({ id: "probe0", body: "x" });
      await other.store.notes.nothing({});
      await other.store.notes.take({ limit: 0 });
      await other.store.notes.bump({ id: "none" });
      await other.store.hosts.renew({ host: "h" });
      await other.store.notes.list();
    }
    await other.store.notes.add({ id: "real", body: "x" });
    await until(() => told() > before);
    expect(told()).toBe(before + 1);
  });

  test("many changes are few wake-ups, and the last one is never left out", async () => {
    const { handle, other, told } = await listening();
    const before = told();
    const from = performance.now();
    for (let i = 0; i < 200; i++) await other.store.notes.add({ id: `m${i}`, body: "x" });
    let seen = false;
    handle.onForeignChange(() => {
      void handle.store.notes.get({ id: "m199" }).then((row) => {
        seen ||= row !== null;
      });
    });
    await until(() => seen);
    // One at most every 20 ms, for as long as they came.
    expect(told() - before).toBeLessThanOrEqual(3 + (performance.now() - from) / 20);
  });

  test("a change while an earlier one is being committed is told in turn, not beside it", async () => {
    const everyMs = 40;
    const { store } = await open({ limits: { notifyEveryMs: everyMs } });
    // Each commit takes nearly as long as the pause between two wake-ups, so that they meet in every order.
    await query(
      "create function slowly() returns trigger language plpgsql as 'begin perform pg_sleep(0.03); return null; end'",
    );
    await query(
      "create constraint trigger slow after insert on notes deferrable initially deferred for each row execute function slowly()",
    );
    const at: number[] = [];
    const prototype = pg.Client.prototype as unknown as { query: Query };
    const original = prototype.query;
    prototype.query = function (this: pg.Client, ...given: unknown[]): unknown {
      const [config] = given;
      const text = typeof config === "string" ? config : (config as { text: string }).text;
      if (text.includes("pg_notify")) at.push(performance.now());
      return original.apply(this, given);
    };
    try {
      const writers = Array.from({ length: 6 }, async (_, writer) => {
        for (let i = 0; i < 10; i++) await store.notes.add({ id: `w${writer}-${i}`, body: "x" });
      });
      await Promise.all(writers);
    } finally {
      prototype.query = original;
    }
    const gaps = at.slice(1).map((time, i) => time - (at[i] ?? 0));
    expect(gaps.length).toBeGreaterThan(3);
    // A timer may ring a little early.
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(everyMs - 2);
  });

  test("a listening connection that is ended is made again, and what was missed is told", async () => {
    const { handle, told } = await listening();
    const before = told();
    await query(
      "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen %' and datname = current_database()",
    );
    await until(() => told() > before);
    expect(await handle.store.notes.nothing({})).toBe("nothing");
  });
});

describe.skipIf(!wanted)("opening", () => {
  test("the store lives in the schema that was asked for", async () => {
    const handle = await open({ schema: "farm" });
    expect(handle.applied).toEqual([1, 2]);
    await handle.store.notes.add({ id: "a", body: "x" });
    expect(await query("select id from farm.notes")).toEqual([{ id: "a" }]);
    expect((await open({ schema: "barn" })).applied).toEqual([1, 2]);
  });

  test("tables of another program are not taken for a store", async () => {
    await query("create table migrations (version text)");
    expect(await outcome(open())).toBe("not_a_store");
    await query("drop table migrations; create table notes (a int)");
    expect(await outcome(open())).toBe("not_a_store");
    expect(await query("select tablename::text as name from pg_tables where schemaname = 'public'")).toEqual([
      { name: "notes" },
    ]);
  });

  test.each([
    ["no such database", (text: string) => text.replace(/\/t\d[^?]*/, "/nowhere"), "store_unreachable"],
    ["no such server", (text: string) => text.replace(/host=.*/, "host=%2Fnowhere"), "store_unreachable"],
    ["no such user", (text: string) => text.replace("//postgres@", "//nobody@"), "store_unreachable"],
  ])("%s is told at once, with what to do", async (_, change, code) => {
    const error = await openPostgresStore({ url: change(url), table, migrations, clock }).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ kind: "unreachable", code, hint: expect.any(String) });
  });

  test("a database that may only be read", async () => {
    await (await open()).close();
    await query(`alter database "${new URL(url).pathname.slice(1)}" set default_transaction_read_only = on`);
    const handle = await open();
    expect(await handle.store.notes.list()).toEqual([]);
    expect(await outcome(handle.store.notes.add({ id: "a", body: "x" }))).toBe("store_read_only");
  });
});

/** Lines of a child until it is killed, some time after it is ready. */
async function killAfter(child: ChildProcess, ms: number): Promise<string[]> {
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  reader.on("line", (line) => {
    if (line === "ready") setTimeout(() => child.kill("SIGKILL"), ms);
    else lines.push(line);
  });
  await Promise.all([once(child, "exit"), once(reader, "close")]);
  return lines;
}

describe.skipIf(!wanted)("kills", () => {
  test("kill -9 of a client under load: what was acknowledged is there and whole, what failed is not", async () => {
    const load = fileURLToPath(await buildWorker("test/store/load.ts"));
    const signs = new Map<string, Set<string>>([
      ["+", new Set()],
      ["-", new Set()],
    ]);
    for (let round = 0; round < 4; round++) {
      const child = spawn(
        process.execPath,
        [load, "postgres", url, "-", String([1, 8, 32][round % 3]), String(round)],
        { stdio: ["ignore", "pipe", "inherit"] },
      );
      children.push(child);
      for (const line of await killAfter(child, 100 + 200 * Math.random())) {
        const [sign = "", id = ""] = line.split(" ");
        if (id.split(".").length === 3) signs.get(sign)?.add(id);
      }
    }
    const { store } = await open();
    const list = new Set(await store.notes.list());
    const [acknowledged = [], refused = []] = [...signs.values()].map((set) => [...set]);
    expect(acknowledged.length).toBeGreaterThan(50);
    expect(refused.length).toBeGreaterThan(5);
    // A line may have been cut by the kill: only whole ones of each round are looked at.
    expect(acknowledged.filter((id) => !list.has(id)).length).toBeLessThanOrEqual(0);
    expect(refused.filter((id) => list.has(id))).toEqual([]);
    expect((await store.notes.whole()).halves).toBe(0);
  });

  test("kill -9 of the server: callers are told, and it goes on when the server is back", async () => {
    const own = await startPostgres({ durable: true });
    try {
      const store = await openPostgresStore({ url: own.url, table, migrations, clock, limits: { retryMs: 60_000 } });
      const acknowledged: string[] = [];
      const answers: string[] = [];
      let stopped = false;
      const callers = Promise.all(
        Array.from({ length: 8 }, async (_, caller) => {
          for (let i = 0; !stopped; i++) {
            const id = `${caller}.${i}`;
            const answer = String(await outcome(store.store.notes.add({ id, body: "x" })));
            answers.push(answer);
            if (answer === "added") acknowledged.push(id);
          }
        }),
      );
      await until(() => acknowledged.length > 100);
      own.crash();
      const before = acknowledged.length;
      own.restart();
      await until(() => acknowledged.length > before + 50);
      stopped = true;
      await callers;
      // Nothing but done, unknown, and done already: the rest was tried again.
      expect([...new Set(answers)].filter((one) => !["added", "there", "outcome_unknown"].includes(one))).toEqual([]);
      const list = new Set(await store.store.notes.list());
      expect(acknowledged.filter((id) => !list.has(id))).toEqual([]);
      expect((await store.store.notes.whole()).halves).toBe(0);
      await store.close();
    } finally {
      await own.stop();
    }
  });
});

describe.skipIf(!wanted)("the heartbeat", () => {
  test("renews from a thread of its own, at work or not, while the main thread is busy", async () => {
    const handle = await open({ heartbeat: await buildWorker("test/store/heartbeat.ts") });
    const answers: unknown[] = [];
    const heartbeat = handle.startHeartbeat({
      operation: "hosts.renew",
      input: { host: "h" },
      everyMs: 30,
      onAnswer: (answer) => answers.push(answer),
    });
    heartbeat.beat(false);
    const count = async (): Promise<number> => (await handle.store.hosts.beats({ host: "h" }))?.count ?? 0;
    await until(async () => (await count()) >= 1);
    const before = await count();
    const endsAt = performance.now() + 400;
    while (performance.now() < endsAt);
    expect(await count()).toBeGreaterThan(before + 3);
    await until(() => answers.length > 0);
    await heartbeat.stop();
  });

  test("a main thread that stalls ends its process", async () => {
    const stall = fileURLToPath(await buildWorker("test/store/stall.ts"));
    const thread = await buildWorker("test/store/heartbeat.ts");
    const child = spawn(process.execPath, [stall, "postgres", url, thread.href, "600"], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    children.push(child);
    const [, signal] = (await once(child, "exit")) as [number | null, string | null];
    expect(signal).toBe("SIGKILL");
  });
});
