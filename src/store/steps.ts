/** Steps that wait for a time become ready when it has come. */
import { journal } from "./journal.ts";
import { all, finish, many, one, operation, readInstant, type Steps } from "./operation.ts";
import { toRun, type Row } from "./rows.ts";
import { asked, readyOrAsked } from "./runs.ts";
import { forUpdate, jsonList, skipLocked, sql, type Sql } from "./sql.ts";

interface Woken {
  readonly woken: number;
  readonly wakeAt: number | null;
  readonly more: boolean;
  readonly now: number;
}

/** Makes waiting steps ready. Their rows and those of their runs are locked. */
export function makeReady(steps: readonly Row[], runs: readonly Row[], now: number): Sql[] {
  const writes: Sql[] = [];
  for (const run of runs.map(toRun)) {
    const ready = steps.filter((step) => step["run_id"] === run.id);
    if (ready.length === 0) continue;
    const log = journal("run", run.id, run.eventNumber, now);
    for (const { id } of ready) log.add("step.ready", { step: id });
    writes.push(
      ...ready.map(
        (step) =>
          sql`update steps set status = ${readyOrAsked}, reason = ${asked}, wake_at = null where id = ${step["id"] as string} and status = 'waiting'`,
      ),
      sql`update runs set status = 'queued', reason = null, wake_at = null, revision = revision + 1 where id = ${run.id} and status = 'waiting'`,
      ...log.writes(),
    );
  }
  return writes;
}

export const wakeSteps = operation("steps.wake", function* (input: { limit: number }): Steps<Woken> {
  const [clock, due] = yield* many<[{ now: number }, Row]>(
    readInstant,
    sql`select id, run_id, wake_at from steps where status = 'waiting' and wake_at is not null order by wake_at, id limit ${input.limit}`,
  );
  const now = clock[0]?.now ?? 0;
  const ripe = due.filter((row) => (row["wake_at"] as number) <= now);
  const later = due.find((row) => (row["wake_at"] as number) > now);
  if (ripe.length === 0)
    return { woken: 0, wakeAt: (later?.["wake_at"] as number | undefined) ?? null, more: false, now };
  // Lock order: runs, then steps. What changed between the two reads is left out.
  const runs = yield* all<Row>(
    sql`select * from runs where id in (${jsonList(ripe.map((row) => row["run_id"] as string))}) order by id ${forUpdate}`,
  );
  const still = yield* all<Row>(
    sql`select id, run_id from steps where id in (${jsonList(ripe.map((row) => row["id"] as string))}) and status = 'waiting' and wake_at <= ${now} order by id ${skipLocked}`,
  );
  const writes = makeReady(still, runs, now);
  const rest = yield* one<Row>(
    sql`select wake_at from steps where status = 'waiting' and wake_at is not null and id not in (${jsonList(still.map((row) => row["id"] as string))}) order by wake_at, id limit 1`,
  );
  if (writes.length > 0) yield* finish(...writes);
  const wakeAt = (rest?.["wake_at"] as number | null | undefined) ?? null;
  return { woken: still.length, wakeAt, more: wakeAt !== null && wakeAt <= now, now };
});
