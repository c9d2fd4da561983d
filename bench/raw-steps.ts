/** The floor of steps: the rows that a step leaves behind, written by hand into our own schema, with nothing decided or checked. */
import { makeId } from "../src/core/ids.ts";
import { systemClock } from "../src/execution/clock.ts";
import { openStore, parseStoreAddress } from "../src/store/open.ts";
import { operations } from "../src/store/operations.ts";
import { openSqlite } from "../src/store/sqlite-adapters.ts";
import type { Sample } from "./rounds.ts";

const STEPS = 10;
const POOL = 16;

/** What every step leaves: its attempt, four events, a receipt, itself and its run moved on. `$1` stands for a value. */
const writes: readonly (readonly [text: string, values: (of: Names) => readonly (string | number)[]])[] = [
  [
    `insert into attempts (id, step_id, run_id, number, purpose, token, status, counted, host_id, incarnation, lease_until, boot_id, folder,
      awake_at, exit_status, tail, ended_by, started_at, finished_at, created_at)
     values ($1, $2, $3, 1, 'try', 1, 'succeeded', 1, 'h', 1, 1, 'b', $4, 1, 0, '', 'self', 1, 1, 1)`,
    ({ attempt, step, run }) => [attempt, step, run, `${attempt}.1`],
  ],
  ...["attempt.reserved", "attempt.starting", "attempt.succeeded", "step.ready"].map(
    (type, i) =>
      [
        `insert into events (subject_kind, subject_id, number, type, token, data, created_at) values ('run', $1, $2, '${type}', 1, $3, 1)`,
        ({ run, n, attempt }: Names) => [run, n * 4 + i + 1, `{"attempt":"${attempt}","number":1}`],
      ] as const,
  ),
  [
    `insert into receipts (step_id, token, operation, digest, answer, created_at)
     values ($1, 1, 'settle', '0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef', '{"answer":"done","step":"succeeded","run":"queued"}', 1)`,
    ({ step }) => [step],
  ],
  [
    "update steps set status = 'succeeded', token = 1, attempts_made = 1, tries_counted = 1, started_at = 1, finished_at = 1 where id = $1",
    ({ step }) => [step],
  ],
  ["update runs set event_number = $2, revision = revision + 1 where id = $1", ({ run, n }) => [run, n * 4 + 4]],
];

interface Names {
  readonly run: string;
  readonly step: string;
  readonly attempt: string;
  /** Which step of its run, from 0. */
  readonly n: number;
}

const runOf = (i: number): string => `run_${String(i).padStart(26, "0")}`;
const namesOf = (i: number, n: number): Names => ({
  run: runOf(i),
  step: `step_${String(i).padStart(26, "0")}.s${n}`,
  attempt: makeId("att", Date.now(), crypto.getRandomValues(new Uint8Array(10))),
  n,
});

const runText = `insert into runs (id, kind, origin_kind, root_run_id, depth, target, policy, definition_digest, status, priority, queued_at, chained,
    waits_turn, suffix_key, host_pin, created_at)
  values ($1, 'command', 'person', $1, 0, '{}', '{}', '', 'running', 0, 1, 0, 0, $1, 'h', 1)`;
const stepText = `insert into steps (id, run_id, key, kind, status, cap_key, turn_at, max_attempts, created_at)
  values ($1, $2, $3, 'command', 'pending', 'command', 1, 1, 1)`;

export interface RawInput {
  readonly store: string;
  readonly runs: number;
  readonly atOnce: number;
}

/** Steps a second: with SQLite so many in one commit, with PostgreSQL one a commit over a pool, as its own grouping has it. */
export async function rawSteps({ store, runs, atOnce }: RawInput): Promise<Sample> {
  const address = parseStoreAddress(store, "/");
  const made = await openStore({ address, table: operations, clock: systemClock(), use: "write" });
  await made.close();
  const ids = Array.from({ length: runs }, (_, i) => i);
  const { ms, cpuUs } = address.kind === "sqlite" ? inSqlite(address.file, ids, atOnce) : await inPostgres(store, ids);
  return { perSecond: (runs * STEPS * 1_000) / ms, cpuUs: cpuUs / (runs * STEPS) };
}

interface Taken {
  readonly ms: number;
  readonly cpuUs: number;
}

/** Begins to measure; what it answers ends that. */
function stopwatch(): () => Taken {
  const startedAt = performance.now();
  const before = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(before);
    return { ms: performance.now() - startedAt, cpuUs: user + system };
  };
}

function inSqlite(file: string, runs: readonly number[], atOnce: number): Taken {
  const connection = openSqlite(file, {});
  connection.pragma("journal_mode = wal");
  connection.pragma("synchronous = full");
  /** Places without numbers, and their values in that order. */
  const run = (text: string, values: readonly (string | number)[]) =>
    connection.query(
      text.replaceAll(/\$\d/g, "?"),
      Array.from(text.matchAll(/\$(\d)/g), ([, place]) => values[Number(place) - 1] ?? ""),
      0,
    );
  connection.exec("begin immediate");
  for (const i of runs) {
    run(runText, [runOf(i)]);
    for (let n = 0; n < STEPS; n++) run(stepText, [namesOf(i, n).step, runOf(i), `s${n}`]);
  }
  connection.exec("commit");
  const texts = writes.map(([text, values]) => {
    const places = Array.from(text.matchAll(/\$(\d)/g), ([, place]) => Number(place) - 1);
    const inOrder = (names: Names) => {
      const given = values(names);
      return places.map((place) => given[place] ?? "");
    };
    return [text.replaceAll(/\$\d/g, "?"), inOrder] as const;
  });
  const taken = stopwatch();
  for (let from = 0; from < runs.length; from += atOnce)
    for (let n = 0; n < STEPS; n++) {
      connection.exec("begin immediate");
      for (const i of runs.slice(from, from + atOnce)) {
        const names = namesOf(i, n);
        for (const [text, values] of texts) connection.query(text, values(names), 0);
      }
      connection.exec("commit");
    }
  const found = taken();
  connection.close();
  return found;
}

async function inPostgres(url: string, runs: readonly number[]): Promise<Taken> {
  const { Pool } = (await import("pg")).default;
  const pool = new Pool({ connectionString: url, max: POOL });
  for (const i of runs) {
    await pool.query(runText, [runOf(i)]);
    for (let n = 0; n < STEPS; n++) await pool.query(stepText, [namesOf(i, n).step, runOf(i), `s${n}`]);
  }
  const taken = stopwatch();
  let next = 0;
  await Promise.all(
    Array.from({ length: POOL }, async () => {
      const client = await pool.connect();
      for (let i = runs[next++]; i !== undefined; i = runs[next++])
        for (let n = 0; n < STEPS; n++) {
          const names = namesOf(i, n);
          await client.query("begin");
          for (const [at, [text, values]] of writes.entries())
            await client.query({ name: `w${at}`, text, values: [...values(names)] });
          await client.query("commit");
        }
      client.release();
    }),
  );
  const found = taken();
  await pool.end();
  return found;
}
