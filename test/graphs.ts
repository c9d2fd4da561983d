/** Runs of several steps as rows, where no definition makes them: each step with those that it needs. */
import { join, sql, type Sql } from "../src/store/sql.ts";

/** Needs by step, such as `{ a: [], b: ["a"] }`. */
export type Graph = Readonly<Record<string, readonly string[]>>;

/** A chain of so many steps. */
export const chainOf = (count: number): Graph =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`s${i}`, i === 0 ? [] : [`s${i - 1}`]]));

/** The id of a step: of its run's, so that it is known without asking. */
export const stepIdOf = (runId: string, key: string): string => `${runId.replace(/^run_/, "step_")}.${key}`;

/** Statements that put the steps of a graph in place of the one step of a run that nothing of has started. */
export function graphWrites(runId: string, graph: Graph): Sql[] {
  const steps = Object.entries(graph);
  const columns = sql`id, run_id, key, kind, status, needs_left, cap_key, turn_at, max_attempts, created_at`;
  const rows = steps.map(
    ([key, needs]) => sql`select ${stepIdOf(runId, key)} as id, run_id, ${key} as key, kind,
        ${needs.length === 0 ? "ready" : "pending"} as status, ${needs.length} + 0 as needs_left, cap_key, turn_at, max_attempts, created_at
      from steps where run_id = ${runId} and key = 'main'`,
  );
  const edges = steps.flatMap(([key, needs]) =>
    needs.map(
      (needed) =>
        sql`insert into step_needs (step_id, needs_step_id, created_at) values (${stepIdOf(runId, key)}, ${stepIdOf(runId, needed)}, 0)`,
    ),
  );
  return [
    sql`insert into steps (${columns}) ${join(rows, " union all ")}`,
    sql`delete from steps where run_id = ${runId} and key = 'main'`,
    ...edges,
  ];
}
