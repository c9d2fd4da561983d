/** What is decided of the steps of a workflow's run: their definition is asked outside, and what it says is written down here, once. */
import { createHash } from "node:crypto";
import { ensure } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { EndedStep, StepToJudge, StepVerdict } from "../core/ports.ts";
import { next, stepTable, type Condition, type RunStatus } from "../core/run.ts";
import type { StepResult, StepSpec } from "../core/records.ts";
import { accountOf, promptOf } from "../core/target-parts.ts";
import { followUp, standOf, type StepEnd } from "./graph.ts";
import { all, finish, many, operation, read, type Steps } from "./operation.ts";
import { promptWrites } from "./prompts.ts";
import { toRun, type Row, type StepState } from "./rows.ts";
import { capSetOf, capSetWrite, deskFor, turnAt } from "./runs.ts";
import { jsonList, jsonRows, sql, type Sql } from "./sql.ts";

export const stepsToJudge = read("steps.toJudge", function* (input: { hostId: string; limit: number }): Steps<
  StepToJudge[]
> {
  const steps = yield* all<Row>(
    sql`select s.id as id, s.run_id as run_id, s.key as key, s.definition_step as definition_step, s.item as item, s.condition as condition
        from steps s join runs r on r.id = s.run_id
        where s.status = 'pending' and s.reason = 'judge' and (r.host_pin is null or r.host_pin = ${input.hostId}) order by s.id limit ${input.limit}`,
  );
  if (steps.length === 0) return [];
  const [runs, needs] = yield* many<[Row, Row]>(
    sql`select * from runs where id in (${jsonList([...new Set(steps.map((step) => step["run_id"] as string))])}) order by id`,
    sql`select n.step_id as step_id, s.key as key, s.status as status, s.reason as reason, s.continue_on_failure as continued
        from step_needs n join steps s on s.id = n.needs_step_id
        where n.step_id in (${jsonList(steps.map((step) => step["id"] as string))}) order by n.step_id, s.position`,
  );
  const runOf = new Map(runs.map((row) => [row["id"], toRun(row)]));
  const needsOf = new Map<unknown, StepToJudge["needs"][number][]>();
  for (const row of needs) {
    const of = needsOf.get(row["step_id"]) ?? [];
    of.push({
      status: row["status"] as StepToJudge["needs"][number]["status"],
      reason: row["reason"] as string | null,
      continueOnFailure: row["continued"] !== 0,
    });
    needsOf.set(row["step_id"], of);
  }
  return steps.flatMap((step) => {
    const run = runOf.get(step["run_id"] as string);
    if (run === undefined) return [];
    const id = step["id"] as string;
    const condition = step["condition"] as Condition;
    const key = step["key"] as string;
    const definitionStep = (step["definition_step"] as string | null) ?? key;
    const item = step["item"] as string | null;
    return [{ stepId: id, key, definitionStep, item, condition, run, needs: needsOf.get(id) ?? [] }];
  });
});

export const endedSteps = read("steps.ended", function* (input: { runId: string; keys: readonly string[] }): Steps<
  EndedStep[]
> {
  const rows = yield* all<Row>(
    sql`select key, status, output, result from steps where run_id = ${input.runId} and key in (${jsonList(input.keys)})
        and finished_at is not null order by key`,
  );
  return rows.map((row) => ({
    key: row["key"] as string,
    status: row["status"] as EndedStep["status"],
    output: row["output"] as string | null,
    result: row["result"] === null ? null : (JSON.parse(row["result"] as string) as StepResult),
  }));
});

/**
 * Writes down what a definition says of steps that it was asked about. One that was decided on meanwhile, or cancelled, stays
 * as it is: whoever asks a definition twice is told the same, so the first answer is as good as any.
 */
export const judgeSteps = operation(
  "steps.judge",
  function* (input: { runId: string; verdicts: readonly StepVerdict[]; limits: Limits }): Steps<{
    run: RunStatus | null;
    judged: number;
  }> {
    const read = yield* deskFor(input.runId, input.limits);
    if (read === null) return { run: null, judged: 0 };
    const { desk } = read;
    const { now, run, log, writes, limits } = desk;
    const verdictOf = new Map(input.verdicts.map((verdict) => [verdict.stepId, verdict]));
    const ended: StepEnd[] = [];
    let judged = 0;
    const steps = read.steps.flatMap((step): StepState | readonly StepState[] => {
      const verdict = verdictOf.get(step.id);
      if (verdict === undefined || step.status !== "pending" || step.reason !== "judge") return step;
      judged++;
      if (verdict.does === "each" && verdict.items.length > 0) {
        const of = withItems(step, verdict, now);
        writes.push(...of.writes);
        log.add("step.items", { step: step.id, key: step.key, items: verdict.items.length });
        return of.steps;
      }
      const event = EVENTS[verdict.does];
      const status = next(stepTable, step.status, event);
      ensure(status !== null, `a step that is ${step.status} cannot ${event}`);
      const reason = "reason" in verdict ? verdict.reason : null;
      log.add(`step.${status}`, { step: step.id, key: step.key, ...(reason === null ? {} : { reason }) });
      const only = sql`id = ${step.id} and reason = 'judge'`;
      if (verdict.does === "start") {
        const { spec, writes: kept } = promptKept(verdict, now);
        writes.push(...kept, ...started(spec, run.hostPin, now, limits, only));
      } else {
        const { class: failure, message } = verdict.does === "fail" ? verdict : { class: null, message: null };
        ended.push({ id: step.id, reason, class: failure, message, exitStatus: null });
        const result: StepResult | null =
          failure === null ? null : { exitCode: null, stdoutTail: "", stderrTail: "", class: failure, message };
        writes.push(
          sql`update steps set status = ${status}, reason = ${reason}, result = ${result === null ? null : JSON.stringify(result)},
                output = ${verdict.does === "each" ? "[]" : null}, finished_at = ${now} where ${only}`,
        );
      }
      return { ...step, status, reason };
    });
    if (judged === 0) return { run: run.status, judged };
    const after = yield* followUp(
      desk,
      steps,
      ended.map(({ id }) => id),
    );
    const status = yield* standOf(desk, after.steps, [...ended, ...after.ends], { output: null, endedAt: null });
    yield* finish(...writes);
    return { run: status, judged };
  },
);

/** What becomes of a step that is not done for each item of a list; for none it has succeeded. */
const EVENTS = { start: "unblock", each: "succeed", skip: "skip", fail: "fail" } as const;

/** A step that is done for each item: the items as steps of their own, of which the first may be asked about. */
function withItems(
  step: StepState,
  { items, concurrency }: Extract<StepVerdict, { does: "each" }>,
  now: number,
): { readonly steps: readonly StepState[]; readonly writes: readonly Sql[] } {
  const most = concurrency ?? items.length;
  const rows = items.map((item, nth) => ({
    // In the order of bytes, which is that of ids.
    place: String(nth).padStart(6, "0"),
    nth,
    item,
    reason: nth < most ? "judge" : "concurrency",
  }));
  const columns = { place: "text", nth: "integer", item: "text", reason: "text" } as const;
  const all = sql`(${jsonRows(rows, columns)})`;
  return {
    steps: [
      { ...step, reason: "items", needsLeft: items.length },
      ...rows.map(
        ({ place, nth, reason }): StepState => ({
          ...step,
          id: `${step.id}.${place}`,
          key: `${step.key}[${nth}]`,
          reason,
          condition: "none",
          continueOnFailure: true,
          parentStepId: step.id,
        }),
      ),
    ],
    writes: [
      sql`update steps set reason = 'items', needs_left = ${items.length} where id = ${step.id}`,
      // What becomes of the run is said by their step: none of them fails it.
      sql`insert into steps (id, run_id, key, definition_step, item, parent_step_id, kind, status, reason, needs_left, cap_key, turn_at,
            max_attempts, condition, continue_on_failure, position, created_at)
          select c.id || '.' || i.place, c.run_id, c.key || '[' || i.nth || ']', c.definition_step, i.item, c.id, c.kind, 'pending', i.reason, 0,
            c.cap_key, c.turn_at, c.max_attempts, 'none', 1, c.position, cast(${now} as bigint)
          from steps c join ${all} as i on c.id = ${step.id}`,
      sql`insert into step_needs (step_id, needs_step_id, created_at)
          select cast(${step.id} as text), cast(${step.id} as text) || '.' || i.place, cast(${now} as bigint) from ${all} as i`,
    ],
  };
}

/** What a step runs, with the prompt of its agent kept under its digest. */
function promptKept(
  { spec, prompt }: Extract<StepVerdict, { does: "start" }>,
  now: number,
): { readonly spec: StepSpec; readonly writes: readonly Sql[] } {
  if (prompt === undefined || spec.target.kind !== "agent") return { spec, writes: [] };
  const content = Buffer.from(prompt);
  const digest = createHash("sha256").update(content).digest("hex");
  return {
    spec: { ...spec, target: { ...spec.target, prompt: { digest, bytes: content.length, head: "" } } },
    writes: promptWrites({ digest, content: content.toString("base64"), bytes: content.length }, now),
  };
}

/** A step that may start: with what it runs, and in the queue of that. */
function started(spec: StepSpec, hostPin: string | null, now: number, limits: Limits, only: Sql): Sql[] {
  const { target, policy } = spec;
  const caps = capSetOf(target, hostPin, spec.lock);
  const account = target.kind === "agent" ? accountOf(target) : null;
  return [
    capSetWrite(caps, hostPin, now),
    sql`update steps set status = 'ready', reason = null, spec = ${JSON.stringify(spec)}, cap_key = ${caps.key}, account_id = ${account},
          max_attempts = ${policy.attempts}, turn_at = ${turnAt(now, policy.priority, limits)}, prompt_digest = ${promptOf(target)} where ${only}`,
  ];
}
