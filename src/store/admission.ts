/** The one pass that lets attempts start, for every way to start. One at a time for each store. */
import {
  admit,
  refusalOf,
  type AdmissionView,
  type CapSet,
  type Head,
  type Hold,
  type HostView,
  type Refusal,
} from "../core/admission.ts";
import type { Limits } from "../core/limits.ts";
import type { AccountStatus, Assignment } from "../core/records.ts";
import { assignmentsOf } from "./attempts.ts";
import { journal, type Journal } from "./journal.ts";
import { all, finish, many, one, operation, read, readInstant, runAll, type Steps } from "./operation.ts";
import { toRun, type Row } from "./rows.ts";
import { advisoryLock, forShare, forUpdate, jsonList, sql, storeNow, type Sql } from "./sql.ts";

/** The lock of the pass on PostgreSQL. Whoever adds a claim holds it; SQLite's writer is alone. */
const PASS = 1;
/** Sets looked at, and rows of each: any row of the true first fifty lies in them. */
const SETS = 50;
const HEADS = 8;

/** Distinct keys by a recursive "next larger key", so that the cost follows the number of sets, not the queue. */
const readySets = sql`with recursive keys(key) as (
    select min(cap_key) from steps where status = 'ready'
    union all
    select (select min(s.cap_key) from steps s where s.status = 'ready' and s.cap_key > keys.key) from keys where keys.key is not null)
  select c.key as key, c.resources as resources, c.host_pin as host_pin from keys join cap_sets c on c.key = keys.key`;

const snapshotQueries: [Sql, Sql, Sql, Sql, Sql, Sql, Sql] = [
  readInstant,
  sql`select id, status, lease_until, incarnation from hosts order by id`,
  sql`select key, limit_value from resources order by key`,
  sql`select resource_key, count(*) as used from claims group by resource_key`,
  readySets,
  sql`select id, enabled, status from accounts order by id`,
  sql`select subject_kind, subject_id, until_at, reason from holds
      where cleared_at is null and (until_at is null or until_at > ${storeNow}) order by subject_kind, subject_id, source`,
];

type View = Omit<AdmissionView, "heads"> & {
  readonly now: number;
  readonly incarnationOf: ReadonlyMap<string, number>;
};

/** `asking` is the host whose daemon asks: that it asks is the proof that it lives, also where a host at rest renews nothing. */
function* snapshot(asking: { hostId: string; limits: Limits } | null): Steps<View> {
  const [clock, hosts, limits, used, sets, accounts, holds] = yield* many<
    [{ now: number }, Row, Row, Row, Row, Row, Row]
  >(...snapshotQueries);
  const now = clock[0]?.now ?? 0;
  const alive = (row: Row) => (row["id"] === asking?.hostId ? now + (asking?.limits.leaseMs ?? 0) : 0);
  return {
    now,
    hosts: hosts.map(
      (row): HostView => ({
        id: row["id"] as string,
        status: row["status"] as HostView["status"],
        leaseUntil: Math.max(row["lease_until"] as number, alive(row)),
      }),
    ),
    incarnationOf: new Map(hosts.map((row) => [row["id"] as string, row["incarnation"] as number])),
    accounts: new Map(
      accounts.map((row) => [
        row["id"] as string,
        { enabled: row["enabled"] !== 0, status: row["status"] as AccountStatus },
      ]),
    ),
    holds: holds.map(
      (row): Hold => ({
        subject: `${row["subject_kind"]}:${row["subject_id"]}`,
        untilAt: row["until_at"] as number | null,
        reason: row["reason"] as string,
      }),
    ),
    limits: new Map(limits.map((row) => [row["key"] as string, row["limit_value"] as number])),
    used: new Map(used.map((row) => [row["resource_key"] as string, Number(row["used"])])),
    sets: sets
      .map(
        (row): CapSet => ({
          key: row["key"] as string,
          resources: JSON.parse(row["resources"] as string) as string[],
          hostPin: row["host_pin"] as string | null,
        }),
      )
      .toSorted((a, b) => (a.key < b.key ? -1 : 1)),
  };
}

const toHead = (row: Row): Head => ({
  stepId: row["id"] as string,
  runId: row["run_id"] as string,
  capKey: row["cap_key"] as string,
  turnAt: row["turn_at"] as number,
});

interface Pass {
  readonly granted: number;
  readonly mine: readonly Assignment[];
  readonly refused: readonly { readonly capKey: string; readonly refusal: Refusal }[];
  readonly more: boolean;
  readonly superseded?: true;
  /** When the earliest hold ends that refused something; null when none did, or only a person ends it. */
  readonly wakeAt: number | null;
  readonly now: number;
}

export const admissionPass = operation(
  "admission.pass",
  function* (input: { hostId: string; incarnation?: number; limits: Limits }, ctx): Steps<Pass> {
    // Nobody else becomes this host's daemon until the pass is over.
    const [, own] = yield* many<[Row, Row]>(
      advisoryLock(PASS),
      sql`select incarnation from hosts where id = ${input.hostId} ${forShare}`,
    );
    const view = yield* snapshot(input);
    // What it would be granted is its successor's, who was never told of it.
    if (input.incarnation !== undefined && own[0]?.["incarnation"] !== input.incarnation)
      return { granted: 0, mine: [], refused: [], more: false, superseded: true, wakeAt: null, now: view.now };
    const refused: { capKey: string; refusal: Refusal }[] = [];
    const open: CapSet[] = [];
    for (const set of view.sets) {
      const refusal = refusalOf(set, view, view.used, view.now);
      if (refusal === null) open.push(set);
      else refused.push({ capKey: set.key, refusal });
    }
    const ends = refused.flatMap(({ refusal }) =>
      refusal.code === "held" && refusal.untilAt !== null ? [refusal.untilAt] : [],
    );
    const clock = { wakeAt: ends.length === 0 ? null : Math.min(...ends), now: view.now };
    if (open.length === 0) return { granted: 0, mine: [], refused, more: false, ...clock };
    // The best sets by their heads, then the first rows of each: never the length of the queue.
    const tops = open.length <= SETS ? open : yield* bestSets(open);
    const perSet = Math.max(HEADS, Math.ceil(input.limits.passGrants / tops.length));
    const lists = yield* many<Row[]>(
      ...tops.map(
        (set) =>
          sql`select id, run_id, cap_key, turn_at from steps where status = 'ready' and cap_key = ${set.key} order by turn_at, id limit ${perSet}`,
      ),
    );
    const heads = lists.flatMap((rows) => rows.map(toHead));
    const decision = admit({ ...view, sets: tops, heads }, view.now, input.limits.passGrants);
    const truncated = lists.some((rows) => rows.length === perSet);
    if (decision.grants.length === 0) return { granted: 0, mine: [], refused, more: false, ...clock };

    // Lock order: runs, then steps; a step that a cancel took in between is left out.
    const runs = yield* all<Row>(
      sql`select * from runs where id in (${jsonList(decision.grants.map((grant) => grant.runId))}) order by id ${forUpdate}`,
    );
    const steps = yield* all<Row>(
      sql`select id, token, attempts_made, account_id from steps where id in (${jsonList(decision.grants.map((grant) => grant.stepId))}) and status = 'ready' order by id ${forUpdate}`,
    );
    const runOf = new Map(runs.map((row) => [row["id"], toRun(row)]));
    const stepOf = new Map(steps.map((row) => [row["id"], row]));
    const writes: Sql[] = [];
    const made: string[] = [];
    // Several steps of one run may start in one pass: its events are numbered on.
    const logs = new Map<string, Journal>();
    for (const grant of decision.grants) {
      const step = stepOf.get(grant.stepId);
      const run = runOf.get(grant.runId);
      if (step === undefined || run === undefined) continue;
      const id = ctx.id("att");
      const token = (step["token"] as number) + 1;
      const number = (step["attempts_made"] as number) + 1;
      const log = logs.get(run.id) ?? journal("run", run.id, run.eventNumber, view.now);
      logs.set(run.id, log);
      log.add("attempt.reserved", { attempt: id, number, host: grant.hostId }, token);
      made.push(id);
      writes.push(
        sql`update steps set status = 'running', reason = null, token = ${token}, attempts_made = ${number}, started_at = coalesce(started_at, ${view.now})
          where id = ${grant.stepId} and status = 'ready' and token = ${step["token"] as number}`,
        sql`insert into attempts (id, step_id, run_id, number, purpose, token, status, account_id, host_id, incarnation, lease_until, created_at)
          values (${id}, ${grant.stepId}, ${grant.runId}, ${number}, 'try', ${token}, 'reserved', ${step["account_id"] as string | null}, ${grant.hostId},
            ${view.incarnationOf.get(grant.hostId) ?? 0}, ${view.now + input.limits.leaseMs}, ${view.now})`,
        ...grant.resources.map(
          (key) => sql`insert into claims (attempt_id, resource_key, created_at) values (${id}, ${key}, ${view.now})`,
        ),
      );
    }
    for (const [id, log] of logs)
      writes.push(
        sql`update runs set status = 'running', reason = null, started_at = coalesce(started_at, ${view.now}), revision = revision + 1,
            event_number = ${log.number()} where id = ${id} and finished_at is null`,
        ...log.events(),
      );
    if (made.length === 0) return { granted: 0, mine: [], refused, more: truncated, ...clock };
    yield* runAll(
      ...writes,
      sql`update hosts set lease_until = ${view.now + input.limits.leaseMs}, last_seen_at = ${view.now}
          where id = ${input.hostId} and lease_until < ${view.now + input.limits.renewMs}`,
    );
    const rows = yield* all<Row>(
      sql`select * from attempts where id in (${jsonList(made)}) and host_id = ${input.hostId} order by id`,
    );
    const mine = yield* assignmentsOf(rows);
    return {
      granted: made.length,
      mine,
      refused,
      more: truncated || decision.grants.length >= input.limits.passGrants,
      ...clock,
    };
  },
);

/** The open sets whose heads have waited longest. */
function* bestSets(open: readonly CapSet[]): Steps<CapSet[]> {
  const heads = yield* many<Row[]>(
    ...open.map(
      (set) =>
        sql`select cap_key, turn_at from steps where status = 'ready' and cap_key = ${set.key} order by turn_at, id limit 1`,
    ),
  );
  const turnOf = new Map(
    heads.flatMap((rows) => rows.map((row) => [row["cap_key"] as string, row["turn_at"] as number] as const)),
  );
  return open
    .toSorted((a, b) => (turnOf.get(a.key) ?? 0) - (turnOf.get(b.key) ?? 0) || (a.key < b.key ? -1 : 1))
    .slice(0, SETS);
}

export const explainAdmission = read("admission.explain", function* (input: { stepId: string }): Steps<{
  refusal: Refusal | null;
  ahead: number;
} | null> {
  const step = yield* one<Row>(
    sql`select cap_key, turn_at, id from steps where id = ${input.stepId} and status = 'ready'`,
  );
  if (step === undefined) return null;
  const view = yield* snapshot(null);
  const set = view.sets.find((one) => one.key === step["cap_key"]);
  if (set === undefined) return null;
  const ahead = yield* one<{ n: number }>(
    sql`select count(*) as n from (select id from steps where status = 'ready' and cap_key = ${set.key}
            and (turn_at, id) < (${step["turn_at"] as number}, ${input.stepId}) limit 1000) as before`,
  );
  return { refusal: refusalOf(set, view, view.used, view.now), ahead: Number(ahead?.n ?? 0) };
});

export const setLimit = operation(
  "admission.setLimit",
  function* (input: { resource: string; limit: number }): Steps<void> {
    yield* all(advisoryLock(PASS));
    const [clock] = yield* many<[{ now: number }]>(readInstant);
    yield* finish(
      sql`insert into resources (key, limit_value, created_at) values (${input.resource}, ${input.limit}, ${clock[0]?.now ?? 0})
        on conflict (key) do update set limit_value = excluded.limit_value`,
    );
  },
);

export const removeLimit = operation("admission.removeLimit", function* (input: { resource: string }): Steps<{
  removed: boolean;
}> {
  yield* all(advisoryLock(PASS));
  const [deleted] = yield* runAll(sql`delete from resources where key = ${input.resource}`);
  return { removed: deleted === 1 };
});

export const usage = read("admission.usage", function* (_: Record<string, never>): Steps<
  { resource: string; limit: number; used: number }[]
> {
  const rows = yield* all<Row>(
    sql`select r.key as key, r.limit_value as limit_value, (select count(*) from claims c where c.resource_key = r.key) as used from resources r order by r.key`,
  );
  return rows.map((row) => ({
    resource: row["key"] as string,
    limit: row["limit_value"] as number,
    used: Number(row["used"]),
  }));
});
