/** Faults planted into the store's operations, to see that the simulator finds them. */
import type { Outcome } from "../../src/core/run.ts";
import { all, one, type Operation, type OperationTable, type Steps } from "../../src/store/operation.ts";
import { sql } from "../../src/store/sql.ts";

export type Plant =
  /** A settlement is accepted whatever token it comes with. */
  | "drop_token"
  /** A shim does not look whether it has the ticket. */
  | "skip_ticket"
  /** A slot is written and `planned_until` stays where it was. */
  | "keep_planned_until"
  /** What is settled can be settled again. */
  | "settle_twice"
  /** The feed is read by the id alone: on PostgreSQL a row that is committed late is passed by. */
  | "late_feed";

type Body = (input: never, ctx: { id(kind: never): string }) => Steps<unknown>;

const changed = (table: OperationTable, noun: string, verb: string, steps: (inner: Body) => Body): OperationTable => {
  const entry = table[noun]?.[verb] as Operation<never, unknown>;
  return {
    ...table,
    [noun]: { ...table[noun], [verb]: { ...entry, steps: steps(entry.steps as Body) as typeof entry.steps } },
  };
};

export function plantIn(table: OperationTable, plant: Plant): OperationTable {
  switch (plant) {
    case "skip_ticket":
      return table; // planted in the machine
    case "late_feed":
      return changed(
        table,
        "events",
        "list",
        () =>
          function* (input) {
            const { after, limit } = input as { after: string | null; limit: number };
            const from = Number(after ?? -1);
            const rows = yield* all<{ id: number; subject_kind: string; subject_id: string; number: number }>(
              sql`select id, subject_kind, subject_id, number from events where id > ${from} order by id limit ${limit}`,
            );
            const items = rows.map((row) => ({
              cursor: String(row.id),
              subjectKind: row.subject_kind,
              subjectId: row.subject_id,
              number: row.number,
            }));
            return { items, cursor: items.at(-1)?.cursor ?? after };
          },
      );
    case "drop_token":
      return changed(
        table,
        "attempts",
        "settle",
        (inner) =>
          function* (input, ctx) {
            const { attemptId } = input as { attemptId: string };
            const held = yield* one<{ token: number }>(
              sql`select s.token as token from attempts a join steps s on s.id = a.step_id where a.id = ${attemptId}`,
            );
            return yield* inner({ ...(input as object), token: held?.token ?? 0 } as never, ctx);
          },
      );
    case "keep_planned_until":
      return changed(
        table,
        "loops",
        "planDue",
        (inner) =>
          function* (input, ctx) {
            const before = yield* all<{ id: string; planned_until: number }>(sql`select id, planned_until from loops`);
            const answer = yield* inner(input, ctx);
            for (const { id, planned_until } of before)
              yield* all(sql`update loops set planned_until = ${planned_until} where id = ${id}`);
            return answer;
          },
      );
    case "settle_twice":
      return changed(
        table,
        "attempts",
        "settle",
        (inner) =>
          function* (input, ctx) {
            const { attemptId, outcome } = input as { attemptId: string; outcome: Outcome };
            const over = yield* one<{ status: string }>(
              sql`select status from attempts where id = ${attemptId} and finished_at is not null`,
            );
            if (over === undefined) return yield* inner(input, ctx);
            const status = outcome.kind === "succeeded" ? "succeeded" : "failed";
            yield* all(sql`update attempts set status = ${status} where id = ${attemptId}`);
            yield* all(
              sql`update runs set event_number = event_number + 1 where id = (select run_id from attempts where id = ${attemptId})`,
            );
            yield* all(sql`insert into events (subject_kind, subject_id, number, type, token, data, created_at)
              select 'run', r.id, r.event_number, 'attempt.settled_again', null, '{}', r.created_at from runs r where r.id = (select run_id from attempts where id = ${attemptId})`);
            return { answer: "done", step: null, run: null };
          },
      );
  }
}
