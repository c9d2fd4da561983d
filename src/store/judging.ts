/** What is decided of the steps of a workflow's run: their definition is asked outside, and what it says is written down here, once. */
import { createHash } from "node:crypto";
import { ensure } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { EndedStep, StepToJudge, StepVerdict } from "../core/ports.ts";
import { isFinal, next, stepTable, type Condition, type RunStatus } from "../core/run.ts";
import type { StepResult, StepSpec } from "../core/records.ts";
import { accountOf, promptOf } from "../core/target-parts.ts";
import { followUp, standOf, type StepEnd } from "./graph.ts";
import { all, finish, many, operation, read, type Steps } from "./operation.ts";
import { promptWrites } from "./prompts.ts";
import { toRun, type Row } from "./rows.ts";
import { capSetOf, capSetWrite, deskFor, turnAt } from "./runs.ts";
import { jsonList, sql, type Sql } from "./sql.ts";

export const stepsToJudge = read("steps.toJudge", function* (input: { hostId: string; limit: number }): Steps<
  StepToJudge[]
> {
  const steps = yield* all<Row>(
    sql`select s.id as id, s.run_id as run_id, s.key as key, s.condition as condition, s.max_attempts as max_attempts
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
    return [{ stepId: id, key: step["key"] as string, condition, run, needs: needsOf.get(id) ?? [] }];
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
    if (isFinal(run.status)) return { run: run.status, judged: 0 };
    const verdictOf = new Map(input.verdicts.map((verdict) => [verdict.stepId, verdict]));
    const ended: StepEnd[] = [];
    let judged = 0;
    const steps = read.steps.map((step) => {
      const verdict = verdictOf.get(step.id);
      if (verdict === undefined || step.status !== "pending" || step.reason !== "judge") return step;
      judged++;
      const event = verdict.does === "start" ? "unblock" : verdict.does === "skip" ? "skip" : "fail";
      const status = next(stepTable, step.status, event);
      ensure(status !== null, `a step that is ${step.status} cannot ${event}`);
      const reason = verdict.does === "start" ? null : verdict.reason;
      log.add(`step.${status}`, { step: step.id, key: step.key, ...(reason === null ? {} : { reason }) });
      const only = sql`id = ${step.id} and status = 'pending' and reason = 'judge'`;
      if (verdict.does === "start") {
        const { spec, writes: kept } = promptKept(verdict, now);
        writes.push(...kept, ...started(spec, run.hostPin, now, limits, only));
      } else {
        const { class: failure, message } = verdict.does === "skip" ? { class: null, message: null } : verdict;
        ended.push({ id: step.id, reason: verdict.reason, class: failure, message, exitStatus: null });
        const result: StepResult | null =
          failure === null ? null : { exitCode: null, stdoutTail: "", stderrTail: "", class: failure, message };
        writes.push(
          sql`update steps set status = ${status}, reason = ${reason}, result = ${result === null ? null : JSON.stringify(result)},
                finished_at = ${now} where ${only}`,
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
    const status = yield* standOf(desk, after, ended, { output: null, endedAt: null });
    yield* finish(...writes);
    return { run: status, judged };
  },
);

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
