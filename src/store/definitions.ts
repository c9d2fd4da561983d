/** Definitions of workflows as rows, each kept once: a run copies its steps from there. Their texts are kept as prompts are. */
import { AppError } from "../core/errors.ts";
import type { Target } from "../core/target.ts";
import type { SkeletonStep } from "../core/workflow/skeleton.ts";
import { all, instant, one, operation, runAll, type Steps } from "./operation.ts";
import type { Row } from "./rows.ts";
import { advisoryLock, jsonRows, sql } from "./sql.ts";

/** The lock of whoever keeps one. */
const DEFINITIONS = 2;
/** Rows of one statement. */
const ROWS = 2_000;

const slices = <T>(rows: readonly T[]): readonly (readonly T[])[] =>
  Array.from({ length: Math.ceil(rows.length / ROWS) }, (_, i) => rows.slice(i * ROWS, (i + 1) * ROWS));

export const putDefinition = operation(
  "definitions.put",
  function* (input: { digest: string; steps: readonly SkeletonStep[] }): Steps<void> {
    // Two that keep the same one at once: the second finds it whole.
    yield* all(advisoryLock(DEFINITIONS));
    const { digest } = input;
    const there = yield* one<Row>(sql`select digest from definition_steps where digest = ${digest} limit 1`);
    if (there !== undefined) return;
    const now = yield* instant();
    const steps = input.steps.map(({ key, kind, condition, continueOnFailure, needs }, position) => ({
      position,
      key,
      kind,
      condition,
      continued: continueOnFailure ? 1 : 0,
      needs: needs.length,
    }));
    const needs = input.steps.flatMap((step, position) => step.needs.map((needed) => ({ position, needed })));
    yield* runAll(
      ...slices(steps).map(
        (some) =>
          sql`insert into definition_steps (digest, position, key, kind, condition, continue_on_failure, needs_left, created_at)
              select ${digest}, d.position, d.key, d.kind, d.condition, d.continued, d.needs, cast(${now} as bigint)
              from (${jsonRows(some, { position: "integer", key: "text", kind: "text", condition: "text", continued: "integer", needs: "integer" })}) as d`,
      ),
      ...slices(needs).map(
        (some) =>
          sql`insert into definition_needs (digest, position, needs_position, created_at)
              select ${digest}, n.position, n.needed, cast(${now} as bigint) from (${jsonRows(some, { position: "integer", needed: "integer" })}) as n`,
      ),
    );
  },
  { wakes: false },
);

/** Refuses a target whose definition is not kept: its runs would have no steps. AppError conflict `definition_gone`. */
export function* requireDefinition(target: Target): Steps<void> {
  if (target.kind !== "workflow") return;
  const there = yield* one<Row>(
    sql`select digest from definition_steps where digest = ${target.definition.digest} limit 1`,
  );
  if (there === undefined)
    throw new AppError("conflict", "definition_gone", `the definition of the workflow ${target.name} is not kept`, {
      hint: "Name its file again.",
    });
}
