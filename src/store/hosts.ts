/** Hosts: joined by a daemon's start, kept alive by renewals, left. */
import { ensure } from "../core/errors.ts";
import type { Guarded, JoinHost } from "../core/ports.ts";
import type { HostRecord } from "../core/records.ts";
import { journal } from "./journal.ts";
import { all, finish, many, operation, read, readInstant, runAll, type Steps } from "./operation.ts";
import { toHost, type HostRow, type Row } from "./rows.ts";
import { forUpdate, sql } from "./sql.ts";

function* lockHost(hostId: string): Steps<{ now: number; host: HostRow | null }> {
  const [clock, rows] = yield* many<[{ now: number }, Row]>(
    readInstant,
    sql`select * from hosts where id = ${hostId} ${forUpdate}`,
  );
  const now = clock[0]?.now;
  ensure(now !== undefined, "the store has a clock");
  return { now, host: rows[0] === undefined ? null : toHost(rows[0]) };
}

export const joinHost = operation("hosts.join", function* (input: JoinHost): Steps<{
  incarnation: number;
  previous: HostRecord | null;
}> {
  const { now, host } = yield* lockHost(input.hostId);
  const incarnation = (host?.incarnation ?? 0) + 1;
  const log = journal("host", input.hostId, host?.eventNumber ?? 0, now);
  log.add("host.joined", { incarnation, version: input.version, bootId: input.bootId });
  const caps = [
    [`host:${input.hostId}:command`, input.commandCap],
    [`host:${input.hostId}:agent`, input.agentCap],
  ] as const;
  yield* finish(
    host === null
      ? sql`insert into hosts (id, name, machine_id, boot_id, incarnation, version, status, lease_until, last_seen_at, created_at)
              values (${input.hostId}, ${input.name}, ${input.machineId}, ${input.bootId}, ${incarnation}, ${input.version}, 'up', ${now + input.leaseMs}, ${now}, ${now})`
      : sql`update hosts set name = ${input.name}, machine_id = ${input.machineId}, boot_id = ${input.bootId}, incarnation = ${incarnation},
                version = ${input.version}, status = 'up', back_by = null, lease_until = ${now + input.leaseMs}, last_seen_at = ${now}
              where id = ${input.hostId}`,
    ...caps.map(
      ([key, limit]) => sql`insert into resources (key, limit_value, created_at) values (${key}, ${limit}, ${now})
                              on conflict (key) do update set limit_value = excluded.limit_value`,
    ),
    ...log.writes(),
  );
  return { incarnation, previous: host };
});

export const reportHost = operation(
  "hosts.report",
  function* (input: { hostId: string; incarnation: number; status: HostRecord["status"] }): Steps<Guarded> {
    const { now, host } = yield* lockHost(input.hostId);
    if (host === null || host.incarnation !== input.incarnation) return "superseded";
    if (host.status === input.status) return "done";
    const log = journal("host", host.id, host.eventNumber, now);
    log.add(`host.${input.status}`, { was: host.status });
    yield* finish(
      sql`update hosts set status = ${input.status}, last_seen_at = ${now} where id = ${host.id} and incarnation = ${input.incarnation}`,
      ...log.writes(),
    );
    return "done";
  },
);

/**
 * Two statements without a lock before them: a renewal only ever lengthens what is still held. An ended lease is renewed
 * too: on the attempt's own host it alone never ends an attempt, and after a takeover the token refuses it.
 */
export const renewHost = operation(
  "hosts.renew",
  function* (input: {
    hostId: string;
    incarnation: number;
    leaseMs: number;
  }): Steps<{ superseded: boolean; lost: string[] }> {
    const [clock] = yield* many<[{ now: number }]>(readInstant);
    const now = clock[0]?.now ?? 0;
    const [changed] = yield* runAll(
      sql`update hosts set lease_until = ${now + input.leaseMs}, last_seen_at = ${now} where id = ${input.hostId} and incarnation = ${input.incarnation}`,
      sql`update attempts set lease_until = ${now + input.leaseMs}
          where host_id = ${input.hostId} and incarnation = ${input.incarnation} and finished_at is null`,
    );
    if (changed === 0) return { superseded: true, lost: [] };
    const lost = yield* all<{ id: string }>(
      sql`select a.id as id from attempts a join steps s on s.id = a.step_id
          where a.host_id = ${input.hostId} and a.incarnation = ${input.incarnation} and a.finished_at is null and a.token <> s.token order by a.id`,
    );
    return { superseded: false, lost: lost.map((row) => row.id) };
  },
  { wakes: false },
);

export const leaveHost = operation(
  "hosts.leave",
  function* (input: { hostId: string; incarnation: number; backBy: number | null }): Steps<Guarded> {
    const { now, host } = yield* lockHost(input.hostId);
    if (host === null || host.incarnation !== input.incarnation) return "superseded";
    const log = journal("host", host.id, host.eventNumber, now);
    log.add("host.left", { incarnation: host.incarnation, ...(input.backBy === null ? {} : { backBy: input.backBy }) });
    yield* finish(
      sql`update hosts set status = 'down', back_by = ${input.backBy}, last_seen_at = ${now} where id = ${host.id} and incarnation = ${input.incarnation}`,
      ...log.writes(),
    );
    return "done";
  },
);

export const listHosts = read("hosts.list", function* (_: Record<string, never>): Steps<HostRecord[]> {
  return (yield* all<Row>(sql`select * from hosts order by name, id`)).map(toHost);
});
