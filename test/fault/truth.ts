/** What must be true of a real store at any moment, whatever was killed: looked at in all of its rows, and beside what the children wrote. */
import { existsSync, readFileSync } from "node:fs";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";

type Row = Readonly<Record<string, string | number | null>>;

/** Every row that the promises are about, as of one moment. */
export interface Tables {
  readonly hosts: readonly Row[];
  readonly loops: readonly Row[];
  readonly slots: readonly Row[];
  readonly runs: readonly Row[];
  readonly steps: readonly Row[];
  readonly attempts: readonly Row[];
  readonly events: readonly Row[];
  readonly claims: readonly Row[];
  readonly resources: readonly Row[];
}

/** How to read them: the order is that of keys, so that what is told is the same each time. */
const QUERIES: Readonly<Record<keyof Tables, string>> = {
  hosts: "select * from hosts order by id",
  loops: "select * from loops order by id",
  slots: "select * from slots order by loop_id, at",
  runs: "select * from runs order by id",
  steps: "select * from steps order by id",
  attempts: "select * from attempts order by step_id, number",
  events: "select * from events order by subject_kind, subject_id, number",
  claims: "select * from claims order by attempt_id, resource_key",
  resources: "select * from resources order by key",
};

/**
 * Reads a real store beside its daemon, in one snapshot.
 * @param place a SQLite file, or the address of a PostgreSQL database
 */
export async function readTables(place: string): Promise<Tables> {
  const tables: Record<string, Row[]> = {};
  if (!place.startsWith("postgres:")) {
    const connection = openSqlite(place, { readOnly: true });
    try {
      connection.exec("begin");
      for (const [name, text] of Object.entries(QUERIES)) tables[name] = connection.query(text, [], 0).rows as Row[];
    } finally {
      connection.close();
    }
    return tables as unknown as Tables;
  }
  const { Client } = (await import("pg")).default;
  const types = { getTypeParser: (oid: number) => (oid === 20 || oid === 23 ? Number : (text: string) => text) };
  const client = new Client({ connectionString: place, types });
  client.on("error", () => {}); // the server is killed here; the query says so too
  await client.connect();
  try {
    await client.query("begin isolation level repeatable read read only");
    for (const [name, text] of Object.entries(QUERIES)) tables[name] = (await client.query<Row>(text)).rows;
  } finally {
    await client.end();
  }
  return tables as unknown as Tables;
}

/** What a child wrote about itself, as the first thing that it did and as the last. */
interface Entry {
  readonly loop: string;
  readonly slot: string;
  readonly attempt: string;
  readonly what: string;
}

export const diaryOf = (file: string): Entry[] =>
  existsSync(file)
    ? readFileSync(file, "utf8")
        .split("\n")
        .filter((line) => line.endsWith(";"))
        .map((line) => {
          const [loop = "", slot = "", attempt = "", what = ""] = line.slice(0, -1).split("|");
          return { loop, slot, attempt, what };
        })
    : [];

const FINAL = new Set(["succeeded", "failed", "timed_out", "cancelled", "skipped"]);
const LIVE = new Set(["reserved", "starting", "running"]);
/** What another host says of the attempts that it takes from a silent one. */
export const SILENCE = /silent for the takeover time/;
/** What is said of an attempt that took no ticket: nobody else took one in its name, and nobody will. */
const NEVER = /^no ticket was taken|before it was started/;
/** Told of what is over, and changing nothing. */
const EVIDENCE = new Set(["attempt.late_evidence", "attempt.superseded_write", "run.hooks"]);

function groupBy(rows: readonly Row[], key: (row: Row) => string): Map<string, Row[]> {
  const groups = new Map<string, Row[]>();
  for (const row of rows) {
    const group = groups.get(key(row));
    if (group === undefined) groups.set(key(row), [row]);
    else group.push(row);
  }
  return groups;
}

/**
 * Remembers what was final, and says what is not as it must be.
 * @param diary what the children wrote; absent where nothing really ran
 */
export function createWitness(): (tables: Tables, diaries?: Diaries) => string[] {
  const finals = new Map<string, string>();
  return (tables, diaries) => {
    const broken: string[] = [];
    const ensure = (holds: boolean, what: () => string): void => {
      if (!holds) broken.push(what());
    };
    lookAtEvents(tables, ensure);
    lookAtRuns(tables, ensure);
    lookAtSlots(tables, ensure);
    if (diaries !== undefined) lookAtDiary(tables, diaries, ensure);
    for (const { id, status } of [...tables.runs, ...tables.attempts]) {
      const was = finals.get(String(id));
      ensure(was === undefined || was === status, () => `${id} was ${was} and is ${status}`);
      if (FINAL.has(String(status)) || status === "lost" || status === "fenced") finals.set(String(id), String(status));
    }
    const known = new Set([...tables.runs, ...tables.attempts].map((row) => row["id"]));
    for (const id of finals.keys()) ensure(known.has(id), () => `${id} was over and is gone`);
    return broken;
  };
}

type Ensure = (holds: boolean, what: () => string) => void;

/** Numbered without a gap, the last number on the row; nothing changes behind an end; tokens only grow. */
function lookAtEvents({ events, runs, loops, hosts, attempts }: Tables, ensure: Ensure): void {
  const last = new Map<string, number>();
  const ended = new Map<string, string>();
  const tokens = new Map<string, number>();
  const stepOf = new Map(attempts.map((row) => [row["id"], String(row["step_id"])]));
  for (const event of events) {
    const subject = `${event["subject_kind"]}:${event["subject_id"]}`;
    const { number, type, token } = event as { number: number; type: string; token: number | null };
    ensure(number === (last.get(subject) ?? 0) + 1, () => `${subject} has event ${number} after ${last.get(subject)}`);
    last.set(subject, number);
    if (EVIDENCE.has(type)) continue;
    const { attempt } = JSON.parse(String(event["data"])) as { attempt?: string };
    for (const one of [subject, ...(attempt === undefined ? [] : [attempt])]) {
      const end = ended.get(one);
      ensure(end === undefined, () => `${one} ended with ${end} and then had ${type}`);
    }
    if (event["subject_kind"] === "run" && type.startsWith("run.") && FINAL.has(type.slice(4)))
      ended.set(subject, type);
    if (attempt === undefined) continue;
    const word = type.slice("attempt.".length);
    if (FINAL.has(word) || word === "lost" || word === "fenced") ended.set(attempt, type);
    const step = stepOf.get(attempt) ?? attempt;
    ensure((token ?? 0) >= (tokens.get(step) ?? 0), () => `${type} of ${attempt} has token ${token} after a later one`);
    tokens.set(step, Math.max(token ?? 0, tokens.get(step) ?? 0));
  }
  for (const [kind, rows] of [
    ["run", runs],
    ["loop", loops],
    ["host", hosts],
  ] as const)
    for (const row of rows) {
      const subject = `${kind}:${row["id"]}`;
      ensure((last.get(subject) ?? 0) === row["event_number"], () => `${subject} counts ${row["event_number"]} events`);
      if (kind === "run")
        ensure(
          ended.has(subject) === FINAL.has(String(row["status"])),
          () => `${subject} is ${row["status"]}, and its events say ${ended.get(subject) ?? "that it is not over"}`,
        );
    }
}

/** One live attempt for each step, which holds its token; tries are counted; whatever is not over has a way on; no cap is exceeded. */
function lookAtRuns({ runs, steps, attempts, claims, resources }: Tables, ensure: Ensure): void {
  const attemptsOf = groupBy(attempts, (row) => String(row["step_id"]));
  const stepsOf = groupBy(steps, (row) => String(row["run_id"]));
  for (const step of steps) {
    const { id, status, token } = step as { id: string; status: string; token: number };
    const own = attemptsOf.get(id) ?? [];
    const live = own.filter((row) => LIVE.has(String(row["status"])));
    ensure(live.length <= 1, () => `${id} has ${live.length} live attempts`);
    for (const row of live) ensure(row["token"] === token, () => `${row["id"]} lives without the token of its step`);
    own.forEach((row, i) => {
      ensure(row["number"] === i + 1, () => `${id} numbers an attempt ${row["number"]} after ${i}`);
      ensure(Number(row["token"]) <= token, () => `${row["id"]} has a later token than its step`);
      const over = row["finished_at"] !== null;
      ensure(over !== LIVE.has(String(row["status"])), () => `${row["id"]} is ${row["status"]}, over: ${over}`);
    });
    const counted = own.filter((row) => row["counted"] === 1).length;
    ensure(counted === step["tries_counted"], () => `${id} counts ${step["tries_counted"]} tries of ${counted}`);
    ensure(counted <= Number(step["max_attempts"]), () => `${id} had ${counted} tries of ${step["max_attempts"]}`);
    ensure((status === "running") === (live.length === 1), () => `${id} is ${status} with ${live.length} at work`);
    ensure(
      status !== "waiting" || step["wake_at"] !== null || step["reason"] === "account",
      () => `${id} waits for ever`,
    );
  }
  for (const run of runs) {
    const [step] = stepsOf.get(String(run["id"])) ?? [];
    const expected = step?.["status"] === "ready" || step?.["status"] === "pending" ? "queued" : step?.["status"];
    ensure(run["status"] === expected, () => `${run["id"]} is ${run["status"]}, its step is ${step?.["status"]}`);
  }
  const limitOf = new Map(resources.map((row) => [row["key"], Number(row["limit_value"])]));
  const isLive = new Set(attempts.filter((row) => row["finished_at"] === null).map((row) => row["id"]));
  for (const claim of claims)
    ensure(isLive.has(claim["attempt_id"] ?? null), () => `${claim["attempt_id"]} is over and holds a cap`);
  for (const [key, held] of groupBy(claims, (row) => String(row["resource_key"])))
    ensure(held.length <= (limitOf.get(key) ?? held.length), () => `${key} has ${held.length} of ${limitOf.get(key)}`);
}

/** Each instant once, one after the other, each with one word, which is its run's. */
function lookAtSlots({ loops, slots, runs }: Tables, ensure: Ensure): void {
  const runOf = new Map(runs.map((row) => [row["id"], row]));
  const ofSlot = groupBy(
    runs.filter((row) => row["origin_kind"] === "slot"),
    (row) => `${row["loop_id"]}@${row["slot_at"]}`,
  );
  for (const [slot, made] of ofSlot) ensure(made.length === 1, () => `${slot} has ${made.length} runs`);
  const slotsOf = groupBy(slots, (row) => String(row["loop_id"]));
  for (const loop of loops) {
    const schedule = JSON.parse(String(loop["schedule"])) as { kind: string; everyMs: number };
    if (schedule.kind !== "interval") continue;
    const name = String(loop["name"]);
    let expected = Number(loop["anchored_at"]) + schedule.everyMs;
    for (const slot of slotsOf.get(String(loop["id"])) ?? []) {
      const [at, until, count] = [Number(slot["at"]), Number(slot["until_at"]), Number(slot["count"])];
      ensure(at === expected, () => `${name} has a slot at ${at} where ${expected} is next`);
      ensure(count === (until - at) / schedule.everyMs + 1, () => `${name} counts ${count} from ${at} to ${until}`);
      ensure(until <= Number(loop["planned_until"]), () => `${name} has a slot at ${until} beyond what is planned`);
      expected = until + schedule.everyMs;
      const run = runOf.get(slot["run_id"] ?? null);
      const over = run !== undefined && FINAL.has(String(run["status"]));
      ensure(slot["outcome"] !== null || (run !== undefined && !over), () => `${name} has a slot ${at} without a word`);
      ensure(
        !over || slot["outcome"] === null || slot["outcome"] === run["status"] || slot["outcome"] === "coalesced",
        () => `the slot ${at} of ${name} is ${slot["outcome"]}, its run is ${run?.["status"]}`,
      );
    }
    ensure(expected > Number(loop["planned_until"]), () => `${name} lost the slots from ${expected} on`);
  }
}

/**
 * What the children wrote, as it was before the tables were read and after: a child writes that it began after its row was
 * written, and that it ends before its row says so.
 */
interface Diaries {
  readonly before: readonly Entry[];
  readonly after: readonly Entry[];
}

/** What the children wrote is what the store tells. */
function lookAtDiary({ attempts, loops }: Tables, { before, after }: Diaries, ensure: Ensure): void {
  const attemptOf = new Map(attempts.map((row) => [String(row["id"]), row]));
  const isLoop = new Map(loops.map((row) => [row["name"], row]));
  const started = new Map<string, Entry>();
  const bySlot = new Map<string, string[]>();
  for (const entry of before) {
    if (entry.what !== "start") continue;
    ensure(!started.has(entry.attempt), () => `${entry.attempt} started twice`);
    started.set(entry.attempt, entry);
    ensure(attemptOf.has(entry.attempt), () => `${entry.attempt} started, and nobody knows it`);
    if (!isLoop.has(entry.loop)) continue;
    const slot = `${entry.loop}@${entry.slot}`;
    bySlot.set(slot, [...(bySlot.get(slot) ?? []), entry.attempt]);
  }
  const begun = new Set(after.filter(({ what }) => what === "start").map(({ attempt }) => attempt));
  const exits = new Map(
    after
      .filter(({ what }) => what !== "start")
      .map(({ attempt, what }) => [attempt, Number(what.slice("exit ".length))]),
  );
  for (const [id, row] of attemptOf) {
    const [status, kind] = [String(row["status"]), row["class"]];
    if (status === "succeeded") ensure(begun.has(id), () => `${id} succeeded and never started`);
    // That it never started is said only of what never will.
    const message = String(row["message"]);
    if (kind === "spawn" || (kind === "lost" && NEVER.test(message)))
      ensure(!begun.has(id), () => `${id} started and is said to have never: ${message}`);
    const truth = exits.get(id);
    if (status === "succeeded" && row["account_id"] === null)
      ensure(truth === 0, () => `${id} succeeded; it said ${truth}`);
    if (status === "failed" && kind === "exit" && row["account_id"] === null)
      ensure(truth === row["exit_status"], () => `${id} failed with ${row["exit_status"]}; it said ${truth}`);
  }
  for (const [slot, ids] of bySlot)
    for (const id of ids.slice(0, -1)) {
      const row = attemptOf.get(id);
      // Again only behind an end that was recorded: a failure, a loss, or a stop of ours.
      ensure(
        row?.["status"] === "lost" || row?.["status"] === "failed" || row?.["ended_by"] === "stop",
        () => `${slot} started again behind ${id}, which is ${row?.["status"]}`,
      );
    }
}
