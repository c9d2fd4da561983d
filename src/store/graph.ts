/** The graph of a run's steps: what the end of some means for those that need them, and for the run. */
import type { StepResult } from "../core/records.ts";
import {
  isFinal,
  next,
  runStatusOf,
  stepTable,
  type FailureClass,
  type RunStatus,
  type StepEvent,
} from "../core/run.ts";
import { ensure } from "../core/errors.ts";
import { followed } from "../core/step-graph.ts";
import { all, one, type Steps } from "./operation.ts";
import type { Row, StepState } from "./rows.ts";
import { endRun, type Desk, type RunEnd } from "./runs.ts";
import { jsonList, jsonListOf, sql, type Sql } from "./sql.ts";

/**
 * What follows from the ends of steps, as statements on the desk: those that need nothing more become ready or are asked, or
 * will never start, and so on with these; of items the next one may start, and behind the last one their step has ended.
 * Answers all steps as they are then, and how those ended that had items. @param steps all of the run, the ended ones as ended
 */
export function* followUp(
  { now, log, writes, limits }: Desk,
  steps: readonly StepState[],
  ended: readonly string[],
): Steps<{ readonly steps: readonly StepState[]; readonly ends: readonly StepEnd[] }> {
  const stateOf = new Map(steps.map((step) => [step.id, step]));
  const at = (id: string): StepState => {
    const step = stateOf.get(id);
    ensure(step !== undefined, "a step and those that it needs are of one run");
    return step;
  };
  const ends: StepEnd[] = [];
  let front = ended.filter((id) => isFinal(at(id).status));
  while (front.length > 0 && [...stateOf.values()].some(({ status }) => status === "pending")) {
    for (const id of front) {
      const after = nextItem(stateOf, at(id));
      if (after === undefined) continue;
      stateOf.set(after.id, { ...after, reason: "judge" });
      writes.push(sql`update steps set reason = 'judge' where id = ${after.id}`);
    }
    const edges = yield* all<Row>(
      sql`select step_id, needs_step_id from step_needs where needs_step_id in (${jsonList(front)}) order by step_id`,
    );
    const fewer = new Map<string, number>();
    for (const { step_id: id } of edges) {
      const step = at(id as string);
      if (step.status === "pending") fewer.set(step.id, (fewer.get(step.id) ?? step.needsLeft) - 1);
    }
    const open = [...fewer].flatMap(([id, left]) => (left === 0 ? [id] : []));
    const needs =
      open.length === 0
        ? []
        : yield* all<Row>(
            sql`select step_id, needs_step_id from step_needs where step_id in (${jsonList(open)}) order by step_id, needs_step_id`,
          );
    const needsOf = new Map<string, StepState[]>();
    for (const { step_id: id, needs_step_id: of } of needs)
      needsOf.set(id as string, [...(needsOf.get(id as string) ?? []), at(of as string)]);
    front = [];
    for (const [id, needsLeft] of fewer) {
      const step = at(id);
      if (needsLeft > 0) {
        stateOf.set(id, { ...step, needsLeft });
        writes.push(sql`update steps set needs_left = ${needsLeft} where id = ${id}`);
        continue;
      }
      if (step.reason === "items") {
        const end = endOfItems(step, needsOf.get(id) ?? []);
        const status = next(stepTable, step.status, end.event);
        ensure(status !== null, `a step that is ${step.status} cannot ${end.event}`);
        log.add(`step.${status}`, { step: id, key: step.key, ...(end.reason === null ? {} : { reason: end.reason }) });
        stateOf.set(id, { ...step, needsLeft, status, reason: end.reason });
        ends.push({ id, ...end, exitStatus: null });
        front.push(id);
        writes.push(...itemsEnded(id, status, end, now, limits.outputBytes));
        continue;
      }
      const found = followed(step.condition, needsOf.get(id) ?? []);
      const status = next(stepTable, step.status, found.event);
      ensure(status !== null, `a step that is ${step.status} cannot ${found.event}`);
      const reason = found.event === "skip" ? found.reason : found.event === "ask" ? "judge" : null;
      if (status !== step.status)
        log.add(`step.${status}`, { step: id, key: step.key, ...(reason === null ? {} : { reason }) });
      stateOf.set(id, { ...step, needsLeft, status, reason });
      if (found.event === "skip") front.push(id);
      writes.push(
        sql`update steps set needs_left = 0, status = ${status}, reason = ${reason},
              finished_at = ${found.event === "skip" ? now : null} where id = ${id} and status = 'pending'`,
      );
    }
  }
  return { steps: [...stateOf.values()], ends };
}

/** The item that waited until another one of its step has ended. */
function nextItem(stateOf: ReadonlyMap<string, StepState>, { parentStepId }: StepState): StepState | undefined {
  if (parentStepId === null) return undefined;
  let first: StepState | undefined;
  for (const one of stateOf.values())
    if (one.parentStepId === parentStepId && one.status === "pending" && one.reason === "concurrency")
      if (first === undefined || one.id < first.id) first = one;
  return first;
}

interface ItemsEnd {
  readonly event: StepEvent;
  readonly reason: string | null;
  readonly class: FailureClass | null;
  readonly message: string | null;
}

/** Items of a failed step that its message names. */
const NAMED = 3;

/** How a step ends whose items have all ended. @param needs all that it needs: its items among them */
function endOfItems({ id }: StepState, needs: readonly StepState[]): ItemsEnd {
  const items = needs.filter(({ parentStepId }) => parentStepId === id);
  const bad = items.filter(({ status }) => status === "failed" || status === "timed_out");
  if (bad.length > 0) {
    const names = bad.slice(0, NAMED).map(({ key }) => key);
    const more = bad.length > NAMED ? ` and ${bad.length - NAMED} others` : "";
    const message = `${bad.length} of ${items.length} items did not succeed: ${names.join(", ")}${more}`;
    return { event: "fail", reason: "items", class: "exit", message };
  }
  const none = { class: null, message: null } as const;
  const cancelled = items.find(({ status }) => status === "cancelled");
  if (cancelled !== undefined) return { event: "cancel", reason: cancelled.reason, ...none };
  if (items.some(({ status }) => status === "skipped")) return { event: "skip", reason: "blocked", ...none };
  return { event: "succeed", reason: null, ...none };
}

/** A step with items has ended: its output is the list of theirs, where that is not too long for one. */
function itemsEnded(id: string, status: string, end: ItemsEnd, now: number, mostBytes: number): Sql[] {
  const result: StepResult = { exitCode: null, stdoutTail: "", stderrTail: "", class: end.class, message: end.message };
  const outputs = sql`select output as value, id as place from steps where parent_step_id = ${id}`;
  return [
    sql`update steps set needs_left = 0, status = ${status}, reason = ${end.reason}, finished_at = ${now}, result = ${JSON.stringify(result)},
          output = case when ${end.event} = 'succeed' and coalesce((select sum(octet_length(i.output)) from steps i where i.parent_step_id = ${id}), 0) <= ${mostBytes}
            then ${jsonListOf(outputs)} end
        where id = ${id}`,
  ];
}

/** How a step ended that its run may be told by. */
export type StepEnd = Omit<RunEnd, "status" | "output" | "endedAt"> & { readonly id: string };

/** How the step ended that its run is told by: its last attempt, or what was decided without one. */
function* toldBy(step: StepState): Steps<Omit<StepEnd, "id">> {
  const row = yield* one<Row>(
    sql`select a.class as class, a.message as message, a.exit_status as exit_status, s.reason as reason, s.result as result
        from steps s left join attempts a on a.step_id = s.id and a.number = s.attempts_made where s.id = ${step.id}`,
  );
  const result = row?.["result"] == null ? null : (JSON.parse(row["result"] as string) as Partial<StepEnd>);
  return {
    reason: step.reason ?? ((row?.["reason"] ?? null) as string | null),
    class: ((row?.["class"] as FailureClass | null | undefined) ?? result?.class ?? null) as FailureClass | null,
    message: ((row?.["message"] as string | null | undefined) ?? result?.message ?? null) as string | null,
    exitStatus: (row?.["exit_status"] as number | null | undefined) ?? null,
  };
}

const succeeded = { reason: null, class: null, message: null, exitStatus: null } as const;

/**
 * The run after its steps have changed: over, or at work, or waiting as its steps are.
 * @param ends of the steps that have ended now. @param output of a run of one step
 */
export function* standOf(
  desk: Desk,
  steps: readonly StepState[],
  ends: readonly StepEnd[],
  more: { readonly output: string | null; readonly endedAt: number | null },
): Steps<RunStatus> {
  const { run, log, writes } = desk;
  const status = runStatusOf(steps);
  if (isFinal(status)) {
    const isDefined = steps.some(({ condition }) => condition !== null);
    const teller = steps.find((step) => step.status === status && !(step.continueOnFailure && isDefined));
    const known = ends.find(({ id }) => id === teller?.id);
    // Others may have failed before the last one ended.
    const told =
      status === "succeeded"
        ? { ...succeeded, exitStatus: isDefined ? null : (known?.exitStatus ?? null) }
        : (known ?? (teller === undefined ? succeeded : yield* toldBy(teller)));
    const { reason, class: failure, message, exitStatus } = told;
    endRun(desk, { status, reason, class: failure, message, exitStatus, ...more });
    return status;
  }
  const waiting = steps
    .filter((step) => step.status === "waiting")
    .toSorted((a, b) => (a.wakeAt ?? Number.POSITIVE_INFINITY) - (b.wakeAt ?? Number.POSITIVE_INFINITY))[0];
  const waits = status === "waiting" ? waiting : undefined;
  writes.push(
    ...log.events(),
    sql`update runs set status = ${status}, reason = ${waits?.reason ?? null}, wake_at = ${waits?.wakeAt ?? null},
          revision = revision + 1, event_number = ${log.number()} where id = ${run.id} and finished_at is null`,
  );
  return status;
}
