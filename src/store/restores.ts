/** What a copy says was under way when it was made: ended before the copy takes the store's place (ADR 0016). */
import type { Limits } from "../core/limits.ts";
import { many, operation, runAll, type Steps } from "./operation.ts";
import type { Row } from "./rows.ts";
import { cancelOn, deskFor } from "./runs.ts";
import { sql } from "./sql.ts";

/** The reason that runs, attempts and slots carry which a restore has ended. */
const RESTORED = "restored";
const UNKNOWN =
  "the store was restored from a copy that was made while this was under way; what became of it is not known";

export const endLive = operation(
  "restores.endLive",
  function* ({
    limit,
    limits,
  }: {
    limit: number;
    limits: Limits;
  }): Steps<{ ended: number; atWork: number; more: boolean }> {
    const [rows] = yield* many<[Row]>(
      sql`select id from runs where finished_at is null order by queued_at, id limit ${limit}`,
    );
    let atWork = 0;
    for (const row of rows) {
      const runId = row["id"] as string;
      const at = yield* deskFor(runId, limits);
      if (at === null) continue;
      if (at.live.length > 0) atWork++;
      for (const id of at.live) at.desk.log.add("attempt.lost", { attempt: id, reason: RESTORED });
      // Nobody is let in meanwhile; the hooks that are due by it are dropped by `standDown`: nothing may start because of a restore.
      const desk = { ...at.desk, turns: [] };
      cancelOn(desk, at.steps, [], { by: "restore", reason: RESTORED, superseded: false });
      yield* runAll(
        sql`update attempts set status = 'lost', class = 'lost', counted = 0, ended_by = 'fence', message = ${UNKNOWN}, finished_at = ${desk.now}
          where run_id = ${runId} and finished_at is null`,
        ...at.live.map((id) => sql`delete from claims where attempt_id = ${id}`),
        ...desk.writes,
      );
    }
    return { ended: rows.length, atWork, more: rows.length >= limit };
  },
);

/**
 * What else a copy says of its time: hooks that were due, hosts that were up, sessions at work. Loops that were kept on a host
 * are kept on `hostId` from here on; null leaves them where they are.
 */
export const standDown = operation(
  "restores.standDown",
  function* ({ hostId }: { hostId: string | null }): Steps<void> {
    yield* runAll(
      sql`update runs set hooks_due = null where hooks_due is not null`,
      sql`update sessions set live_attempt_id = null where live_attempt_id is not null`,
      sql`update hosts set status = 'down', lease_until = 0, back_by = null where status <> 'down' or lease_until > 0`,
      ...(hostId === null ? [] : [sql`update loops set host_pin = ${hostId} where host_pin <> ${hostId}`]),
    );
  },
);
