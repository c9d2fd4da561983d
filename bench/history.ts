/**
 * A store with a long history: loops, and runs over half a year with their steps, attempts, slots, events and receipts, as
 * the program itself would have left them. Made of arithmetic, so that the same numbers give the same store, and in a few
 * large statements that both databases understand.
 *
 * Nothing of it asks for anything: what is live belongs to another host that goes on renewing, and no loop is due within two
 * hours. A daemon on it has nothing to do.
 */
import { loopPolicy, runPolicy } from "../src/core/loop.ts";
import { nextInstant, type Schedule } from "../src/core/schedule.ts";
import { agentTarget, commandTarget, type Target } from "../src/core/target.ts";
import { accountOf } from "../src/core/target-parts.ts";
import { digestOf, suffixKey } from "../src/store/runs.ts";
import { type Database, quoted } from "./database.ts";

export interface HistorySize {
  readonly loops: number;
  readonly attempts: number;
  /** When the newest run was queued, in ms. */
  readonly now: number;
}

const DAY = 86_400_000;
const SPAN_MS = 180 * DAY;
/** Of the newest runs, three of four are live: at work, queued or waiting. */
const NEWEST = 200;
/** One run in ten needed a second try. */
const SECOND_TRIES = 10;
const HOST = "host_00000000000000000000000002";
const QUIET_MS = 2 * 3_600_000;
const ROWS_AT_ONCE = 500;

const padded = (n: number, width: number): string => String(n).padStart(width, "0");
/** Of the ids: that many runs, each with a number that looks like chance and is given once. */
const scattered = (k: string): string =>
  `substr(cast(10000000000000 + (${k} * 7368787403) % 9999999999971 as text), 2)`;

const NOUNS = ["backup", "digest", "fetch", "index", "lint", "mirror", "prune", "report", "scan", "sync"];

interface MadeLoop {
  readonly i: number;
  readonly id: string;
  readonly name: string;
  readonly target: Target;
  readonly runPolicy: string;
  readonly row: string;
  readonly labels: readonly string[];
}

function scheduleOf(i: number, now: number): Schedule {
  if (i % 4 === 0) {
    const at = new Date(now + QUIET_MS + ((i * 613) % 1_200) * 60_000);
    return { kind: "cron", expression: `${at.getUTCMinutes()} ${at.getUTCHours()} * * *`, zone: "Etc/UTC" };
  }
  const everyMs = [6 * 3_600_000, DAY, 7 * DAY][i % 3] ?? DAY;
  // The next one comes after the quiet time, anywhere within one period.
  return {
    kind: "interval",
    everyMs,
    anchorAt: now + QUIET_MS + ((i * 7_919_003) % (everyMs - QUIET_MS)) - 30 * everyMs,
  };
}

function makeLoop(i: number, now: number): MadeLoop {
  const id = `loop_${now - SPAN_MS - DAY}${padded((i * 7_368_787) % 9_999_971, 13)}`;
  const name = `${NOUNS[i % NOUNS.length] ?? "loop"}-${padded(i, 5)}`;
  const labels = [
    ...(i % 3 === 0 ? ["nightly"] : []),
    ...(i % 10 === 1 ? ["team:web"] : []),
    ...(i % 997 === 5 ? ["rare"] : []),
  ];
  const policy = loopPolicy.parse({ attempts: 3, labels });
  const target: Target =
    i % 10 === 0
      ? agentTarget.parse({
          kind: "agent",
          provider: "claude",
          prompt: { digest: digestOf(i % 200), bytes: 400, head: "Read what came in since yesterday and answer it" },
          account: i % 20 === 0 ? "work" : "default",
          cwd: `/srv/projects/p${i % 50}`,
        })
      : commandTarget.parse({
          kind: "command",
          argv: ["/usr/local/bin/job", "--part", String(i)],
          cwd: `/srv/projects/p${i % 50}`,
        });
  const schedule = scheduleOf(i, now);
  const archived = i % 50 === 49;
  const status = i % 20 === 7 ? "paused" : i % 100 === 99 ? "finished" : "active";
  const tripped = i % 60 === 27;
  const nextAt = status === "finished" ? null : nextInstant(schedule, now);
  const fires = status === "active" && !archived;
  const values = [
    quoted(id),
    quoted(name),
    quoted(i % 5 === 0 ? "/srv/projects/drover.yaml" : null),
    quoted(JSON.stringify(schedule)),
    quoted(schedule.kind === "cron" ? schedule.zone : null),
    quoted(JSON.stringify(target)),
    quoted(JSON.stringify(policy)),
    quoted(HOST),
    quoted(digestOf([schedule, target, policy])),
    1,
    quoted(status),
    nextAt ?? "null",
    fires ? (nextAt ?? "null") : "null",
    now,
    now - SPAN_MS,
    i % 20 === 3 ? 0 : 9,
    i % 20 === 3 ? 2 : 0,
    quoted(i % 20 === 3 ? "exit" : null),
    tripped && status === "paused" ? now - DAY : "null",
    quoted(status === "paused" ? "five failures in a row: exit" : null),
    status === "paused" ? now - DAY : "null",
    archived ? now - DAY : "null",
    1,
    now - SPAN_MS,
    now - DAY,
    quoted(target.kind === "agent" ? target.prompt.digest : null),
    quoted(suffixKey(id)),
  ];
  return {
    i,
    id,
    name,
    target,
    labels,
    runPolicy: JSON.stringify(runPolicy.parse({ attempts: 3, labels })),
    row: `(${values.join(", ")})`,
  };
}

async function insertAll(database: Database, head: string, rows: readonly string[]): Promise<void> {
  for (let from = 0; from < rows.length; from += ROWS_AT_ONCE)
    await database.run(`insert into ${head} values ${rows.slice(from, from + ROWS_AT_ONCE).join(", ")}`);
}

async function fillLoops(database: Database, { loops, now }: HistorySize): Promise<void> {
  const made = Array.from({ length: loops }, (_, i) => makeLoop(i, now));
  await insertAll(
    database,
    `loops (id, name, managed_by, schedule, zone, target, policy, host_pin, definition_digest, revision, status, next_at, wake_at,
      planned_until, anchored_at, success_streak, failure_streak, failure_class, breaker_at, paused_reason, paused_at, archived_at,
      event_number, created_at, updated_at, prompt_digest, suffix_key)`,
    made.map(({ row }) => row),
  );
  await database.run(
    `create temp table l (i ${database.kind === "sqlite" ? "integer" : "bigint"} primary key, id text, name text, kind text, target text, policy text, digest text, account text, prompt text, cap_key text)`,
  );
  const capOf = (target: Target): string =>
    target.kind === "agent" ? `agent:${accountOf(target)}` : `command@${HOST}`;
  await insertAll(
    database,
    "l",
    made.map(
      ({ i, id, name, target, runPolicy: policy }) =>
        `(${i}, ${[
          id,
          name,
          target.kind,
          JSON.stringify(target),
          policy,
          digestOf([target, JSON.parse(policy) as unknown]),
          target.kind === "agent" ? accountOf(target) : null,
          target.kind === "agent" ? target.prompt.digest : null,
          capOf(target),
        ]
          .map(quoted)
          .join(", ")})`,
    ),
  );
  await database.run("create temp table ll (i bigint, label text)");
  await insertAll(
    database,
    "ll",
    made.flatMap(({ i, labels }) => labels.map((label) => `(${i}, ${quoted(label)})`)),
  );
  await database.run(
    "insert into loop_labels (label, name, loop_id) select ll.label, l.name, l.id from ll join l on l.i = ll.i",
  );
  await database.run(`insert into events (subject_kind, subject_id, number, type, data, created_at)
    select 'loop', id, 1, 'loop.added', '{"name":"' || name || '"}', ${now - SPAN_MS} from l order by i`);
  await insertAll(
    database,
    "cap_sets (key, resources, host_pin, created_at)",
    [...new Map(made.map(({ target }) => [capOf(target), target])).keys()].map(
      (key) => `(${quoted(key)}, '["host:${HOST}:command"]', '${HOST}', ${now - SPAN_MS})`,
    ),
  );
}

async function fillSurroundings(database: Database, { now }: HistorySize): Promise<void> {
  await database.run(`insert into hosts (id, name, machine_id, boot_id, incarnation, version, status, lease_until, last_seen_at, created_at)
    values ('${HOST}', 'elsewhere', 'm', 'b', 1, '0.1.0', 'up', ${now + 400 * DAY}, ${now + 400 * DAY}, ${now - SPAN_MS})`);
  await database.run(
    `insert into resources (key, limit_value, created_at) values ('host:${HOST}:command', 256, ${now}), ('host:${HOST}:agent', 4, ${now})`,
  );
  await database.run(`insert into accounts (id, provider, name, home, enabled, status, created_at)
    values ('claude:work', 'claude', 'work', '/srv/accounts/work', 1, 'quota', ${now - SPAN_MS})`);
  await database.run(`insert into holds (subject_kind, subject_id, until_at, reason, source, created_at)
    values ('account', 'claude:work', ${now + DAY}, 'the weekly limit is reached', 'quota', ${now})`);
  const prompts = Array.from({ length: 200 }, (_, i) => digestOf(i));
  await insertAll(
    database,
    "prompts (digest, content, bytes, created_at)",
    prompts.map(
      (digest) =>
        `(${quoted(digest)}, ${quoted("Read what came in since yesterday and answer it. ".repeat(8))}, 400, ${now - SPAN_MS})`,
    ),
  );
}

/** Everything that is worked out about a run, once, for the statements that write its rows. */
async function planRuns(database: Database, { loops, attempts, now }: HistorySize): Promise<number> {
  const runs = Math.max(NEWEST, Math.floor((attempts * SECOND_TRIES) / (SECOND_TRIES + 1)));
  const stepMs = Math.max(1, Math.floor(SPAN_MS / runs));
  await database.run(
    database.kind === "sqlite"
      ? `create temp table n as with recursive c(k) as (select 0 union all select k + 1 from c where k < ${runs - 1}) select k from c`
      : `create temp table n as select generate_series(0, ${runs - 1})::bigint as k`,
  );
  const key = database.kind === "sqlite" ? "integer primary key" : "bigint primary key";
  for (const [name, count] of [
    ["pair", 2],
    ["six", 6],
  ] as const) {
    await database.run(`create temp table ${name} (number ${key})`);
    await insertAll(
      database,
      name,
      Array.from({ length: count }, (_, i) => `(${i + 1})`),
    );
  }
  const hot = Math.max(1, Math.floor(loops / 100));
  await database.run(`create temp table r (k ${key}, run_id text, step_id text, att_id text, att2_id text, loop_i bigint, at bigint, started bigint,
    ended bigint, status text, live integer, reason text, class text)`);
  // Half of the runs are those of a hundredth of the loops. What waits is an agent's: every tenth loop is one.
  await database.run(`insert into r
    select k, 'run_' || t, 'step_' || t, case when status = 'queued' then null else 'att_' || t end,
      case when live = 0 and k % ${SECOND_TRIES} = 3 then 'att_' || cast(at + 30000 as text) || substr(t, 14) else null end,
      case when status = 'waiting' then (k / 4) % ${Math.max(1, Math.floor(loops / 10))} * 10
        when k % 2 = 0 then (k / 2 * 7919) % ${hot} else (k * 104729) % ${loops} end,
      at, case when status = 'queued' then null else at + 20 end,
      case when live = 1 then null when k % ${SECOND_TRIES} = 3 then at + 60000 + (k * 37) % 200000 else at + 500 + (k * 37) % 20000 end, status, live,
      case when status = 'waiting' then case (k / 4) % 4 when 0 then 'retry' when 1 then 'limit' when 2 then 'program' else 'account' end
        when status = 'failed' then 'exit' when status = 'timed_out' then 'timeout' when status = 'cancelled' then 'not needed' else null end,
      case when status = 'waiting' then case (k / 4) % 4 when 0 then 'exit' when 1 then 'quota' when 2 then 'spawn' else 'auth' end
        when status = 'failed' then 'exit' when status = 'timed_out' then 'timeout' when status = 'cancelled' then 'cancelled' else null end
    from (select k, at, cast(at as text) || ${scattered("k")} as t, case when k < ${NEWEST} and k % 4 < 3 then 1 else 0 end as live,
        case when k < ${NEWEST} and k % 4 = 0 then 'running' when k < ${NEWEST} and k % 4 = 1 then 'queued' when k < ${NEWEST} and k % 4 = 2 then 'waiting'
          when k % 100 < 88 then 'succeeded' when k % 100 < 96 then 'failed' when k % 100 < 98 then 'timed_out' else 'cancelled' end as status
      from (select k, ${now} - 60000 - k * ${stepMs} as at from n) as a) as b`);
  return runs;
}

const reversed = Array.from({ length: 26 }, (_, i) => `substr(r.run_id, ${30 - i}, 1)`).join(" || ");

/** The rows of a run, table by table, oldest first. */
const ROWS: Readonly<Record<string, string>> = {
  runs: `insert into runs (id, kind, origin_kind, origin_id, idempotency_key, loop_id, loop_name, slot_at, root_run_id, target, policy, definition_digest,
      status, reason, wake_at, queued_at, suffix_key, host_pin, account_wish, prompt_digest, exit_status, output, error, started_at, finished_at, revision,
      event_number, created_at)
    select r.run_id, l.kind, case when r.k % 25 = 7 then 'person' else 'slot' end, case when r.k % 25 = 7 then null else l.id end,
      case when r.k % 25 = 7 then null else l.id || '@' || cast(r.at - 5 as text) end, case when r.k % 25 = 7 then null else l.id end,
      case when r.k % 25 = 7 then null else l.name end, case when r.k % 25 = 7 then null else r.at - 5 end, r.run_id, l.target, l.policy, l.digest,
      r.status, r.reason, case when r.status = 'waiting' and r.reason <> 'account' then r.at + 86400000 else null end, r.at, ${reversed}, '${HOST}', l.account,
      l.prompt, case r.status when 'succeeded' then 0 when 'failed' then 3 else null end, case when r.k % 20 = 3 and r.live = 0 then '{"rows":1412}' else null end,
      case when r.live = 0 and r.class is not null then '{"class":"' || r.class || '","message":"exited with status 3"}' else null end,
      r.started, r.ended, case when r.live = 1 then 3 else 4 end, case r.status when 'queued' then 1 when 'running' then 4 when 'waiting' then 5 else 6 end, r.at
    from r join l on l.i = r.loop_i order by r.k desc`,
  run_labels: `insert into run_labels (label, queued_at, run_id) select ll.label, r.at, r.run_id from r join ll on ll.i = r.loop_i order by r.k desc`,
  steps: `insert into steps (id, run_id, key, kind, status, reason, wake_at, token, cap_key, turn_at, tries_counted, max_attempts, attempts_made, started_at,
      finished_at, created_at, account_id)
    select r.step_id, r.run_id, 'main', l.kind, case r.status when 'queued' then 'ready' else r.status end, case when r.status = 'waiting' then r.reason else null end,
      case when r.status = 'waiting' and r.reason <> 'account' then r.at + 86400000 else null end,
      case when r.status = 'queued' then 0 when r.att2_id is null then 1 else 2 end, l.cap_key, r.at, case when r.live = 1 then 0 when r.att2_id is null then 1 else 2 end, 3,
      case when r.status = 'queued' then 0 when r.att2_id is null then 1 else 2 end, r.started, r.ended, r.at, l.account
    from r join l on l.i = r.loop_i order by r.k desc`,
  attempts: `insert into attempts (id, step_id, run_id, number, counted, purpose, token, status, class, host_id, incarnation, account_id, lease_until, pid, pid_started,
      boot_id, folder, ticket_at, awake_at, exit_status, message, tail, stdout_bytes, ended_by, proof, usage_total, started_at, finished_at, created_at)
    select case when t.number = 1 then r.att_id else r.att2_id end, r.step_id, r.run_id, t.number, case when r.status = 'running' then null else 1 end, 'try', t.number,
      case when r.status = 'running' then 'running' when r.status = 'waiting' or (t.number = 1 and r.att2_id is not null) then 'failed' else r.status end,
      case when t.number = 1 and r.att2_id is not null then 'exit' else r.class end, '${HOST}', 1, l.account, r.at + 60000, 4000 + r.k % 20000, '75400', 'b',
      (case when t.number = 1 then r.att_id else r.att2_id end) || '.' || cast(t.number as text), r.at + 25, 753989,
      case when r.status = 'running' then null when r.status = 'succeeded' and (t.number = 2 or r.att2_id is null) then 0 else 3 end,
      case when r.status = 'succeeded' or r.status = 'running' then null else 'exited with status 3' end,
      case when r.status = 'running' then null else 'read 1412 rows
wrote 1408 rows
4 were left out
' end, case when r.status = 'running' then 0 else 48 end, case when r.status = 'running' then null else 'self' end, case when r.status = 'running' then null else 'proved_empty' end,
      case when l.kind = 'agent' and r.live = 0 then '{"inputTokens":1200,"cachedInputTokens":400,"outputTokens":300,"costUsd":0.02}' else null end,
      r.started, case when r.status = 'running' then null when r.status = 'waiting' then r.at + 900 when t.number = 1 and r.att2_id is not null then r.at + 20000 else r.ended end,
      case when t.number = 1 then r.at + 10 else r.at + 30000 end
    from r join l on l.i = r.loop_i cross join pair t
    where r.att_id is not null and (t.number = 1 or r.att2_id is not null) order by r.k desc, t.number`,
  claims: `insert into claims (attempt_id, resource_key, created_at) select att_id, 'host:${HOST}:command', at from r where status = 'running'`,
  slots: `insert into slots (loop_id, at, until_at, count, outcome, reason, run_id, late_ms, created_at)
    select l.id, r.at - 5, r.at - 5, 1, case when r.live = 1 then null else r.status end, case when r.live = 1 then null else r.reason end, r.run_id, 5, r.at
    from r join l on l.i = r.loop_i where r.k % 25 <> 7 order by r.k desc`,
  "slots without a run": `insert into slots (loop_id, at, until_at, count, outcome, reason, late_ms, created_at)
    select l.id, r.at - 7005, r.at - 7005, 1, case when r.k % 3 = 0 then 'missed' else 'skipped' end, case when r.k % 3 = 0 then 'down' else 'overlap' end, 5, r.at - 7000
    from r join l on l.i = r.loop_i where r.k % 10 = 1 order by r.k desc`,
  receipts: `insert into receipts (step_id, token, operation, digest, answer, created_at)
    select r.step_id, t.number, 'settle', l.digest, '{"answer":"done","step":"' || r.status || '","run":"' || r.status || '"}', r.ended
    from r join l on l.i = r.loop_i cross join pair t
    where r.live = 0 and (t.number = 1 or r.att2_id is not null) order by r.k desc, t.number`,
  worktrees: `insert into worktrees (run_id, host_id, cwd, path, repository, branch, base, base_note, state, kept_because, commits, diff_stat, finished_at, created_at)
    select r.run_id, '${HOST}', '/srv/projects/p0', '/srv/worktrees/' || r.run_id, '/srv/projects/p0', 'drover/' || r.run_id, '4bfa79', 'main',
      case when r.k / 7 % 150 = 0 then 'kept' else 'removed' end, case when r.k / 7 % 150 = 0 then 'it holds 2 commits' else null end,
      case when r.k / 7 % 150 = 0 then 2 else 0 end, null, case when r.k / 7 % 150 = 0 then null else r.ended end, r.at
    from r join l on l.i = r.loop_i where l.kind = 'agent' and r.live = 0 order by r.k desc`,
  events: `insert into events (subject_kind, subject_id, number, type, token, data, created_at)
    select 'run', r.run_id, e.number, case e.number when 1 then 'run.queued' when 2 then 'attempt.reserved' when 3 then 'attempt.starting' when 4 then 'attempt.running'
        when 5 then 'attempt.' || (case when r.status = 'waiting' then 'failed' else r.status end) else 'run.' || r.status end,
      case when e.number between 2 and 5 then 1 else null end,
      case e.number when 1 then '{"origin":"slot","slotAt":' || cast(r.at - 5 as text) || '}' when 6 then '{}'
        else '{"attempt":"' || coalesce(r.att2_id, r.att_id) || '","number":1}' end, case when e.number < 5 then r.at + 5 * e.number else coalesce(r.ended, r.at + 900) end
    from r cross join six e
    where e.number <= (case r.status when 'queued' then 1 when 'running' then 4 when 'waiting' then 5 else 6 end) order by r.k desc, e.number`,
};

/** Secondary indexes are built after the rows: sorted once instead of kept in order all the way. */
async function withoutIndexes(database: Database, fill: () => Promise<void>): Promise<void> {
  const made = await database.run(
    database.kind === "sqlite"
      ? "select name, sql as text from sqlite_schema where type = 'index' and sql is not null"
      : `select indexname as name, indexdef as text from pg_indexes where schemaname = current_schema()
         and indexname not in (select conname from pg_constraint)`,
  );
  for (const { name } of made) await database.run(`drop index ${name}`);
  await fill();
  for (const { text } of made) await database.run(String(text));
}

/** Fills a store that was just made. Answers how many runs it has. @param said told of each part as it is begun */
export async function makeHistory(
  database: Database,
  size: HistorySize,
  said: (what: string) => void,
): Promise<number> {
  await fillSurroundings(database, size);
  let runs = 0;
  await withoutIndexes(database, async () => {
    await database.run("begin");
    said("loops");
    await fillLoops(database, size);
    runs = await planRuns(database, size);
    for (const [what, text] of Object.entries(ROWS)) {
      said(what);
      await database.run(text);
    }
    await database.run("commit");
    said("indexes");
  });
  // PostgreSQL does this by itself in the background, within minutes.
  if (database.kind === "postgres") await database.run("vacuum analyze");
  return runs;
}
