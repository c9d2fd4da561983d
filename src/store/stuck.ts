/** What waits for something that can never come, and what holds on to something that is over: looked for by `doctor`, never by the daemon. */
import type { Stuck, StuckRequest } from "../core/ports.ts";
import { type FinalStatus, isFinal } from "../core/run.ts";
import { journal } from "./journal.ts";
import { all, finish, many, operation, read, readInstant, type Steps } from "./operation.ts";
import { toHost, type Row } from "./rows.ts";
import { forUpdate, jsonList, sql, type Sql } from "./sql.ts";

/** The runs that are looked at: of each status the oldest live ones, since what is stuck is old. */
const live = (looked: number): Sql => {
  const of = (status: "queued" | "running" | "waiting"): Sql =>
    sql`select * from (select id, loop_id, loop_name, host_pin, queued_at from runs where status = ${status} and finished_at is null
                       order by queued_at, id limit ${looked}) live`;
  return sql`(${of("queued")} union all ${of("running")} union all ${of("waiting")})`;
};

/** A loop's own words for a run, and the run. */
const ofRun = (row: Row): Pick<Stuck, "runId" | "loop"> => ({
  runId: row["run_id"] as string,
  loop: row["loop_name"] as string | null,
});

/**
 * Every read is by an index over what is live or by a key, and bounded: history costs nothing. Of each kind at most
 * `limit` are answered.
 */
export const findStuck = read("stuck.find", function* (input: StuckRequest): Steps<Stuck[]> {
  const { hostId, limit, looked, oldMs, goneMs } = input;
  const [clock] = yield* many<[{ now: number }]>(readInstant);
  const now = clock[0]?.now ?? 0;
  const old = now - oldMs;
  const gone = now - goneMs;
  const found: Stuck[] = [];
  const add = (kind: Stuck["kind"], rows: readonly Row[], more: (row: Row) => Partial<Stuck> = () => ({})): void => {
    for (const row of rows) {
      const of = "run_id" in row ? ofRun(row) : { runId: null, loop: (row["loop_name"] as string | undefined) ?? null };
      found.push({ kind, id: row["id"] as string, at: null, reason: null, hostId: null, ...of, ...more(row) });
    }
  };

  add(
    "run",
    yield* all<Row>(
      sql`select live.id as id, live.id as run_id, live.loop_name as loop_name from ${live(looked)} live
          where not exists (select 1 from steps s where s.run_id = live.id and s.finished_at is null) order by live.queued_at, live.id limit ${limit}`,
    ),
  );
  // At work in name only; waiting for nothing that could end; ready under caps that are not there.
  add(
    "step",
    yield* all<Row>(
      sql`select s.id as id, live.id as run_id, live.loop_name as loop_name, s.status as status, s.reason as reason
          from ${live(looked)} live join steps s on s.run_id = live.id
          where (s.status in ('queued', 'running') and not exists (select 1 from attempts a where a.step_id = s.id and a.finished_at is null))
             or (s.status = 'waiting' and s.wake_at is null and (s.reason is null or s.reason <> 'account'
                 or not exists (select 1 from holds h where h.cleared_at is null and (h.until_at is null or h.until_at > ${now})
                                and h.subject_kind = 'account' and h.subject_id = s.account_id)))
             or (s.status = 'ready' and not exists (select 1 from cap_sets c where c.key = s.cap_key))
             or (s.status = 'pending' and (s.reason is null or s.reason not in ('turn', 'paused', 'judge', 'concurrency')) and s.needs_left = 0)
          order by live.queued_at, s.id limit ${limit}`,
    ),
    (row) => ({ reason: `${row["status"] as string}${row["reason"] === null ? "" : `: ${row["reason"] as string}`}` }),
  );
  add(
    "overdue",
    yield* all<Row>(
      sql`select s.id as id, s.run_id as run_id, r.loop_name as loop_name, s.wake_at as wake_at from steps s join runs r on r.id = s.run_id
          where s.status = 'waiting' and s.wake_at < ${old} order by s.wake_at, s.id limit ${limit}`,
    ),
    (row) => ({ at: row["wake_at"] as number }),
  );
  // The end of a run lets the next one in, in the same transaction; a loop that is paused keeps them on purpose.
  add(
    "turn",
    yield* all<Row>(
      sql`select r.id as id, r.id as run_id, r.loop_name as loop_name, l.status as status from runs r left join loops l on l.id = r.loop_id
          where r.finished_at is null and r.waits_turn = 1 and (l.id is null or l.status = 'active')
            and not exists (select 1 from runs b where b.loop_id = r.loop_id and b.finished_at is null and b.waits_turn = 0)
          order by r.loop_id, r.slot_at, r.id limit ${limit}`,
    ),
  );
  add(
    "ending",
    yield* all<Row>(
      sql`select a.id as id, a.run_id as run_id, r.loop_name as loop_name, a.ending_since as since, a.host_id as host_id
          from attempts a join runs r on r.id = a.run_id
          where a.finished_at is null and a.ending_since < ${old} order by a.host_id, a.id limit ${limit}`,
    ),
    (row) => ({ at: row["since"] as number, hostId: row["host_id"] as string }),
  );
  add(
    "host_gone",
    yield* all<Row>(
      sql`select a.id as id, a.run_id as run_id, r.loop_name as loop_name, a.host_id as host_id, h.last_seen_at as seen
          from attempts a join runs r on r.id = a.run_id left join hosts h on h.id = a.host_id
          where a.finished_at is null and a.host_id <> ${hostId} and (h.id is null or h.last_seen_at < ${gone}) order by a.host_id, a.id limit ${limit}`,
    ),
    (row) => ({ at: row["seen"] as number | null, hostId: row["host_id"] as string }),
  );
  add(
    "claim",
    yield* all<Row>(
      sql`select distinct c.attempt_id as id, a.run_id as run_id, r.loop_name as loop_name from claims c
          left join attempts a on a.id = c.attempt_id left join runs r on r.id = a.run_id
          where a.id is null or a.finished_at is not null order by id limit ${limit}`,
    ),
  );
  // One that is at work says at its end when the next one is.
  add(
    "loop",
    yield* all<Row>(
      sql`select l.id as id, l.name as loop_name from loops l where l.status = 'active' and l.archived_at is null and l.wake_at is null
            and not exists (select 1 from runs r where r.loop_id = l.id and r.finished_at is null) order by l.id limit ${limit}`,
    ),
  );
  add(
    "slot",
    yield* all<Row>(
      sql`select s.loop_id as id, s.at as at, s.run_id as slot_run, r.status as run_status, l.name as loop_name
          from slots s left join runs r on r.id = s.run_id left join loops l on l.id = s.loop_id
          where s.outcome is null and (r.id is null or r.finished_at is not null) order by s.loop_id, s.at limit ${limit}`,
    ),
    (row) => ({
      at: row["at"] as number,
      runId: row["slot_run"] as string | null,
      reason: row["run_status"] as string | null,
    }),
  );
  // The user's own login needs no row.
  add(
    "account",
    yield* all<Row>(
      sql`select r.id as id, r.id as run_id, r.loop_name as loop_name, r.account_wish as account from runs r left join accounts a on a.id = r.account_wish
          where r.finished_at is null and r.account_wish is not null and a.id is null and r.account_wish not like '%:default'
          order by r.account_wish, r.id limit ${limit}`,
    ),
    (row) => ({ reason: row["account"] as string }),
  );
  add(
    "pinned",
    yield* all<Row>(
      sql`select live.host_pin as id, min(live.id) as run_id, min(live.loop_name) as loop_name, count(*) as n, max(h.last_seen_at) as seen
          from ${live(looked)} live left join hosts h on h.id = live.host_pin
          where live.host_pin <> ${hostId} and (h.id is null or h.last_seen_at < ${gone})
          group by live.host_pin order by live.host_pin limit ${limit}`,
    ),
    (row) => ({ at: row["seen"] as number | null, hostId: row["id"] as string, reason: String(row["n"]) }),
  );
  return found;
});

/** The newest instant that the store has written; null while there is none. */
export const newestInstant = read("stuck.newest", function* (_: Record<string, never>): Steps<number | null> {
  const rows = yield* all<Row>(sql`select created_at from events order by id desc limit 1`);
  return (rows[0]?.["created_at"] as number | undefined) ?? null;
});

/** What of these is stuck still is let go of: claims of attempts that are over, slots whose runs are. */
export const releaseStuck = operation(
  "stuck.release",
  function* (input: {
    hostId: string;
    claimsOf: readonly string[];
    slots: readonly { loopId: string; at: number }[];
  }): Steps<{ claims: number; slots: number }> {
    const [clock, hosts, claims, slots] = yield* many<[{ now: number }, Row, Row, Row]>(
      readInstant,
      sql`select * from hosts where id = ${input.hostId} ${forUpdate}`,
      sql`select c.attempt_id as attempt_id, c.resource_key as resource_key from claims c where c.attempt_id in (${jsonList(input.claimsOf)})
            and not exists (select 1 from attempts a where a.id = c.attempt_id and a.finished_at is null) order by c.attempt_id, c.resource_key`,
      sql`select s.loop_id as loop_id, s.at as at, s.run_id as run_id, r.status as status, r.reason as reason from slots s left join runs r on r.id = s.run_id
          where s.loop_id in (${jsonList([...new Set(input.slots.map((slot) => slot.loopId))])}) and s.outcome is null
            and (r.id is null or r.finished_at is not null) order by s.loop_id, s.at`,
    );
    const now = clock[0]?.now ?? 0;
    const wanted = new Set(input.slots.map(({ loopId, at }) => `${loopId} ${at}`));
    const open = slots.filter((row) => wanted.has(`${row["loop_id"] as string} ${row["at"] as number}`));
    const host = hosts[0] === undefined ? null : toHost(hosts[0]);
    const log = host === null ? null : journal("host", host.id, host.eventNumber, now);
    for (const row of claims)
      log?.add("host.claim_released", { attempt: row["attempt_id"], resource: row["resource_key"] });
    for (const row of open) log?.add("host.slot_closed", { loop: row["loop_id"], at: row["at"], run: row["run_id"] });
    const writes = [
      ...[...new Set(claims.map((row) => row["attempt_id"] as string))].map(
        (id) => sql`delete from claims where attempt_id = ${id}`,
      ),
      ...open.map((row) => {
        const status = row["status"] as FinalStatus | null;
        const known = status !== null && isFinal(status);
        return sql`update slots set outcome = ${known ? status : "missed"}, reason = ${known ? (row["reason"] as string | null) : "unknown"}
                   where loop_id = ${row["loop_id"] as string} and at = ${row["at"] as number} and outcome is null`;
      }),
      ...(log?.writes() ?? []),
    ];
    if (writes.length > 0) yield* finish(...writes);
    return { claims: claims.length, slots: open.length };
  },
);
