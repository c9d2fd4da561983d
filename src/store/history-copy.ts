/** Finished runs on their way to another store, and there: whole, each once. */
import { AppError } from "../core/errors.ts";
import type { HistoryPlace, PastRun, PastSlot } from "../core/ports.ts";
import { instant, many, operation, read, runAll, type Steps } from "./operation.ts";
import { toAttempt, toEvent, toRun, toStep, type Row } from "./rows.ts";
import { digestOf, suffixKey } from "./runs.ts";
import { jsonList, sql, type Sql } from "./sql.ts";

export const pageOfHistory = read(
  "history.page",
  function* (input: {
    after: HistoryPlace | null;
    limit: number;
  }): Steps<{ items: PastRun[]; next: HistoryPlace | null }> {
    const from = input.after ?? { at: 0, id: "" };
    const [runs] = yield* many<[Row]>(
      sql`select * from runs where finished_at is not null and (finished_at, id) > (${from.at}, ${from.id}) order by finished_at, id limit ${input.limit}`,
    );
    if (runs.length === 0) return { items: [], next: null };
    const ids = jsonList(runs.map((row) => row["id"] as string));
    const [steps, attempts, events] = yield* many<[Row, Row, Row]>(
      sql`select * from steps where run_id in (${ids}) order by run_id, created_at, key`,
      sql`select * from attempts where run_id in (${ids}) order by run_id, created_at, number`,
      sql`select subject_kind, subject_id, number, type, token, data, created_at from events where subject_kind = 'run' and subject_id in (${ids}) order by subject_id, number`,
    );
    const of = (rows: readonly Row[], column: string, id: unknown) => rows.filter((row) => row[column] === id);
    const last = runs.at(-1);
    return {
      items: runs.map((row) => ({
        run: toRun(row),
        steps: of(steps, "run_id", row["id"]).map(toStep),
        attempts: of(attempts, "run_id", row["id"]).map(toAttempt),
        events: of(events, "subject_id", row["id"])
          .map((event) => toEvent({ ...event, cursor: "" }))
          .map(({ number, type, token, data, at }) => ({ number, type, token, data, at })),
      })),
      next:
        runs.length < input.limit || last === undefined
          ? null
          : { at: last["finished_at"] as number, id: last["id"] as string },
    };
  },
);

function writesOf({ run, steps, attempts, events }: PastRun, now: number): Sql[] {
  return [
    sql`insert into runs (id, kind, origin_kind, origin_id, loop_id, loop_name, slot_at, parent_run_id, root_run_id, depth, retry_of, target, policy,
          definition_digest, status, reason, priority, queued_at, suffix_key, cancel_requested_at, cancel_by, cancel_reason, exit_status, output, error,
          started_at, finished_at, event_number, created_at)
        values (${run.id}, ${run.kind}, ${run.originKind}, ${run.originId}, ${run.loopId}, ${run.loopName}, ${run.slotAt}, ${run.parentRunId}, ${run.rootRunId},
          ${run.depth}, ${run.retryOf}, ${JSON.stringify(run.target)}, ${JSON.stringify(run.policy)}, ${digestOf([run.target, run.policy])}, ${run.status},
          ${run.reason}, ${run.priority}, ${run.queuedAt}, ${suffixKey(run.id)}, ${run.cancelRequestedAt}, ${run.cancelBy}, ${run.cancelReason},
          ${run.exitStatus}, ${run.output}, ${run.error === null ? null : JSON.stringify(run.error)}, ${run.startedAt}, ${run.finishedAt},
          ${Math.max(0, ...events.map(({ number }) => number))}, ${run.createdAt})`,
    ...[...new Set(run.policy.labels)].map(
      (label) => sql`insert into run_labels (label, queued_at, run_id) values (${label}, ${run.queuedAt}, ${run.id})`,
    ),
    ...steps.map(
      (
        step,
      ) => sql`insert into steps (id, run_id, key, kind, status, reason, token, cap_key, turn_at, tries_counted, max_attempts, idle_ends, attempts_made, output,
            started_at, finished_at, created_at)
          values (${step.id}, ${run.id}, ${step.key}, ${step.kind}, ${step.status}, ${step.reason}, ${step.token}, '', ${run.queuedAt}, ${step.triesCounted},
            ${step.maxAttempts}, ${step.idleEnds}, ${step.attemptsMade}, ${step.output}, ${step.startedAt}, ${step.finishedAt ?? run.finishedAt}, ${run.createdAt})`,
    ),
    ...attempts.map(
      (
        attempt,
      ) => sql`insert into attempts (id, step_id, run_id, number, counted, purpose, token, status, class, host_id, incarnation, account_id, session_ref, lease_until,
            exit_status, signal, message, tail, stdout_bytes, stderr_bytes, ended_by, adopted, reaped, proof, usage_total, agent_end, started_at, finished_at, created_at)
          values (${attempt.id}, ${attempt.stepId}, ${run.id}, ${attempt.number}, ${attempt.counted === null ? null : attempt.counted ? 1 : 0}, ${attempt.purpose},
            ${attempt.token}, ${attempt.status}, ${attempt.class}, ${attempt.hostId}, ${attempt.incarnation}, ${attempt.accountId}, ${attempt.sessionRef}, 0,
            ${attempt.exitStatus}, ${attempt.signal}, ${attempt.message}, ${attempt.tail}, ${attempt.stdoutBytes}, ${attempt.stderrBytes}, ${attempt.endedBy},
            ${attempt.adopted ? 1 : 0}, ${attempt.reaped}, ${attempt.proof}, ${attempt.usageTotal}, ${attempt.agentEnd}, ${attempt.startedAt},
            ${attempt.finishedAt ?? run.finishedAt ?? now}, ${attempt.startedAt ?? attempt.finishedAt ?? run.createdAt})`,
    ),
    ...events.map(
      ({ number, type, token, data, at }) =>
        sql`insert into events (subject_kind, subject_id, number, type, token, data, created_at)
            values ('run', ${run.id}, ${number}, ${type}, ${token}, ${JSON.stringify(data)}, ${at})`,
    ),
  ];
}

export const addHistory = operation(
  "history.add",
  function* (input: { runs: readonly PastRun[]; slots: readonly PastSlot[] }): Steps<{ runs: number; slots: number }> {
    const now = yield* instant();
    const ids = {
      runs: jsonList(input.runs.map(({ run }) => run.id)),
      steps: jsonList(input.runs.flatMap(({ steps }) => steps.map(({ id }) => id))),
      attempts: jsonList(input.runs.flatMap(({ attempts }) => attempts.map(({ id }) => id))),
      loops: jsonList([...new Set(input.slots.map(({ loopId }) => loopId))]),
    };
    const [runs, steps, attempts, loops] = yield* many<[Row, Row, Row, Row]>(
      sql`select id from runs where id in (${ids.runs})`,
      sql`select run_id from steps where id in (${ids.steps})`,
      sql`select run_id from attempts where id in (${ids.attempts})`,
      sql`select id, created_at from loops where id in (${ids.loops})`,
    );
    const own = new Set(input.runs.map(({ run }) => run.id));
    const foreign = [...steps, ...attempts].find((row) => !own.has(row["run_id"] as string));
    if (foreign !== undefined)
      throw new AppError(
        "conflict",
        "id_clash",
        `a step or an attempt of the bundle has the id of one of the run ${foreign["run_id"]}`,
        {
          hint: "Two bundles were mixed, or one was edited: of this part nothing was taken.",
        },
      );
    const taken = new Set(runs.map((row) => row["id"]));
    const fresh = input.runs.filter(({ run }) => !taken.has(run.id));
    const begun = new Map(loops.map((row) => [row["id"], row["created_at"] as number]));
    // What was due before the loop was here; of its own time it says itself.
    const slots = input.slots.filter(({ loopId, untilAt }) => untilAt <= (begun.get(loopId) ?? -1));
    const added = yield* runAll(
      ...slots.map(
        (
          slot,
        ) => sql`insert into slots (loop_id, at, until_at, count, outcome, reason, coalesced_into, run_id, late_ms, schedule, created_at)
          values (${slot.loopId}, ${slot.at}, ${slot.untilAt}, ${slot.count}, ${slot.outcome}, ${slot.reason}, ${slot.coalescedInto}, ${slot.runId}, ${slot.lateMs},
            ${slot.schedule === null ? null : JSON.stringify(slot.schedule)}, ${now}) on conflict (loop_id, at) do nothing`,
      ),
      ...fresh.flatMap((one) => writesOf(one, now)),
    );
    return {
      runs: fresh.length,
      slots: added.slice(0, slots.length).reduce((sum, changed) => sum + changed, 0),
    };
  },
  { wakes: false },
);
