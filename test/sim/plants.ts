/** Faults planted into the store's operations, to see that the simulator finds them. */
import type { Outcome } from "../../src/core/run.ts";
import { all, one, type Operation, type OperationTable, type Steps } from "../../src/store/operation.ts";
import { render, sql } from "../../src/store/sql.ts";

export const PLANTS = {
  drop_token: "a settlement is accepted whatever token it comes with",
  skip_ticket: "a shim does not look whether it has the ticket",
  keep_planned_until: "a slot is written and `planned_until` stays where it was",
  settle_twice: "what is settled can be settled again",
  compare_clocks: "a host's lease is written by its own clock, and judged by another's",
  forget_slot: "the end of a run leaves its slot without an outcome",
  ignore_receipt: "a settlement that is repeated does not get its first answer again",
  late_feed: "on PostgreSQL the feed is read by the id alone, and a row that is committed late is passed by",
  late_renewal: "a renewal is accepted after another daemon has joined as that host",
} as const;
export type Plant = keyof typeof PLANTS;

type Body = (input: never, ctx: { id(kind: never): string }) => Steps<unknown>;

const changed = (table: OperationTable, noun: string, verb: string, steps: (inner: Body) => Body): OperationTable => {
  const entry = table[noun]?.[verb] as Operation<never, unknown>;
  return {
    ...table,
    [noun]: { ...table[noun], [verb]: { ...entry, steps: steps(entry.steps as Body) as typeof entry.steps } },
  };
};

const settleWith = (table: OperationTable, steps: (inner: Body) => Body) => changed(table, "attempts", "settle", steps);

/** The same body, but statements like these are not run and seem to have changed a row. */
function* leavingOut(steps: Steps<unknown>, like: RegExp): Steps<unknown> {
  for (let move = steps.next(undefined as never); ; ) {
    if (move.done === true) return move.value;
    const { queries, last } = move.value;
    const runs = queries.map((query) => !like.test(render(query, "sqlite").text));
    const results = [...(yield { queries: queries.filter((_, i) => runs[i]), last })];
    move = steps.next(runs.map((ran) => (ran ? results.shift() : null) ?? { rows: [], changes: 1 }));
  }
}

/** @param clockOf what a host's own clock says */
export function plantIn(table: OperationTable, plant: Plant, clockOf: (hostId: string) => number): OperationTable {
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
      return settleWith(
        table,
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
      return settleWith(
        table,
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
    case "compare_clocks":
      return changed(
        table,
        "hosts",
        "renew",
        (inner) =>
          function* (input, ctx) {
            const { hostId, leaseMs } = input as { hostId: string; leaseMs: number };
            const answer = yield* inner(input, ctx);
            const until = clockOf(hostId) + leaseMs;
            yield* all(sql`update hosts set lease_until = ${until} where id = ${hostId}`);
            yield* all(
              sql`update attempts set lease_until = ${until} where host_id = ${hostId} and finished_at is null`,
            );
            return answer;
          },
      );
    case "forget_slot":
      return settleWith(table, (inner) => (input, ctx) => leavingOut(inner(input, ctx), /^update slots set outcome/));
    case "ignore_receipt":
      return settleWith(
        table,
        (inner) =>
          function* (input, ctx) {
            const { attemptId } = input as { attemptId: string };
            yield* all(
              sql`delete from receipts where step_id = (select step_id from attempts where id = ${attemptId})`,
            );
            return yield* inner(input, ctx);
          },
      );
    case "late_renewal":
      return changed(
        table,
        "hosts",
        "renew",
        (inner) =>
          function* (input, ctx) {
            const { hostId } = input as { hostId: string };
            const host = yield* one<{ incarnation: number }>(sql`select incarnation from hosts where id = ${hostId}`);
            return yield* inner({ ...(input as object), incarnation: host?.incarnation ?? 0 } as never, ctx);
          },
      );
  }
}
