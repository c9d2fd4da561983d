/** Reads what a workflow's file says: the workflow, or everything that is wrong with it at once. Nothing is run, nothing is looked at outside. */
import { type Problem, problem } from "../errors.ts";
import { isObject, type JsonSchema, misfits, schemaProblems } from "../json-schema.ts";
import type { Limits } from "../limits.ts";
import type { Definition } from "./definition.ts";
import { readForm, type ReadStep } from "./definition-form.ts";
import type { ExpressionBounds } from "./expression.ts";
import { circlesOf, orderOf } from "./graph.ts";
import { nearHints } from "./scope.ts";
import { checkStep, checkTexts, type Condition, idIn, type Look, refuseTexts } from "./step-check.ts";

export type WorkflowBounds = ExpressionBounds & Pick<Limits, "workflowSteps" | "workflowNeeds" | "workflowExpressions">;

/** A workflow in which nothing is wrong. */
export interface Workflow {
  readonly definition: Definition;
  /** Places of its steps, in an order in which each comes after those that it needs. */
  readonly order: readonly number[];
}

export interface ReadWorkflow {
  /** Null where there are problems. */
  readonly workflow: Workflow | null;
  readonly problems: readonly Problem[];
}

/** Reads what a file holds, after `loadExpressions`. @param value plain data, nested no deeper than the stack bears */
export function checkDefinition(value: unknown, bounds: WorkflowBounds): ReadWorkflow {
  const problems: Problem[] = [];
  const { form, steps } = readForm(value, bounds, problems);
  const fallThrough: ReadWorkflow = { workflow: null, problems };
  if (!isObject(value)) return fallThrough;
  const ids = new Map<string, number>();
  const needs: number[][] = steps.map(() => []);
  const near = nearHints();
  let pairs = 0;
  for (const [index, { raw }] of steps.entries()) {
    const id = isObject(raw) ? raw["id"] : undefined;
    if (typeof id !== "string") continue;
    const first = ids.get(id);
    if (first === undefined) ids.set(id, index);
    else
      problems.push(
        problem(
          "duplicate_id",
          `there are two steps ${JSON.stringify(id)}, the other one is steps[${first}]`,
          "Give each step an id of its own.",
          `steps[${index}].id`,
        ),
      );
  }
  const idNames = [...ids.keys()];
  for (const [index, { raw }] of steps.entries()) {
    const given = isObject(raw) && Array.isArray(raw["needs"]) ? (raw["needs"] as readonly unknown[]) : [];
    pairs += given.length;
    if (pairs > bounds.workflowNeeds) break;
    const known = new Set<string>();
    for (const [at, need] of given.entries()) {
      if (typeof need !== "string") continue;
      const path = `steps[${index}].needs[${at}]`;
      const of = ids.get(need);
      if (known.has(need)) problems.push(problem("given_twice", `${need} is named twice`, "Name it once.", path));
      else if (of === undefined)
        problems.push(
          problem(
            "missing_step",
            `there is no step ${JSON.stringify(need)}`,
            near.hint(need, idNames, "Steps are"),
            path,
          ),
        );
      else if (of === index)
        problems.push(problem("needs_itself", `the step ${need} needs itself`, "Take it out of its own needs.", path));
      else needs[index]?.push(of);
      known.add(need);
    }
  }
  if (pairs > bounds.workflowNeeds)
    return {
      workflow: null,
      problems: [
        ...problems,
        problem(
          "too_large",
          `its steps need more than ${bounds.workflowNeeds} others together`,
          "Let them need one step that needs all of those, or raise limits.workflowNeeds.",
          "steps",
        ),
      ],
    };
  const idOf = (index: number): string => idIn(steps[index]?.raw, index);
  for (const circle of circlesOf(needs)) {
    const names = circle.map(idOf);
    const shown = names.length > 12 ? [...names.slice(0, 6), "...", ...names.slice(-5)] : names;
    problems.push(
      problem(
        "circle",
        `steps wait for one another: ${[...shown, names[0]].join(" needs ")}`,
        "Take one of these needs away.",
        `steps[${circle[0]}].needs`,
      ),
    );
  }
  const order = orderOf(needs);
  const inputs = readInputs(value["inputs"], problems);
  for (const [index, { raw }] of steps.entries())
    if (isObject(raw) && raw["output"] !== undefined)
      problems.push(...schemaProblems(raw["output"], `steps[${index}].output`));

  const look: Look = {
    bounds,
    problems,
    ids,
    idNames,
    near,
    expressions: 0,
    inputs,
    env: isObject(value["env"]) ? Object.keys(value["env"]) : [],
    outputs: steps.map(({ raw }) => outputOf(raw)),
    ancestry: null,
    needs,
    order,
  };
  const env = isObject(value["env"]) ? value["env"] : {};
  for (const [name, text] of Object.entries(env)) checkTexts(look, text, ["env", name], null);
  refuseTexts(look, value["defaults"], ["defaults"]);
  const conditions = steps.map(({ raw, step }, index) =>
    checkStep(look, raw, step, index, isObject(value["defaults"]) ? value["defaults"] : {}),
  );
  tellUnreachable(look, steps, conditions, idOf);
  if (problems.length > 0 || form === null) return fallThrough;
  const whole = steps.flatMap(({ step }) => (step === null ? [] : [step]));
  return { workflow: { definition: { ...form, steps: whole }, order }, problems: [] };
}

/** Schemas of the inputs; what is wrong with them is told. */
function readInputs(given: unknown, problems: Problem[]): ReadonlyMap<string, JsonSchema> {
  const inputs = new Map<string, JsonSchema>();
  for (const [name, schema] of Object.entries(isObject(given) ? given : {})) {
    const path = `inputs.${name}`;
    const wrong = schemaProblems(schema, path);
    problems.push(...wrong);
    inputs.set(name, wrong.length > 0 ? true : (schema as JsonSchema));
    if (wrong.length > 0 || !isObject(schema) || !Object.hasOwn(schema, "default")) continue;
    for (const { at, message } of misfits(schema, schema["default"]))
      problems.push(
        problem(
          "bad_default",
          `the default does not fit the input: ${message}`,
          "Change one of them.",
          `${path}.default${at}`,
        ),
      );
  }
  return inputs;
}

/** What a step hands over. */
function outputOf(raw: unknown): JsonSchema {
  if (!isObject(raw)) return true;
  const schema = raw["output"];
  const own = schema === undefined || schemaProblems(schema, "").length > 0 ? true : (schema as JsonSchema);
  return raw["foreach"] === undefined ? own : { type: "array", items: own };
}

/** Steps that can never start: their `if` is never true, or they need one that never ends well. */
function tellUnreachable(
  look: Look,
  steps: readonly ReadStep[],
  conditions: readonly Condition[],
  idOf: (index: number) => string,
): void {
  const never = new Set<number>();
  for (const index of look.order) {
    const condition = conditions[index];
    if (condition?.isNever === true) {
      never.add(index);
      look.problems.push(
        problem(
          "unreachable_step",
          `the step ${idOf(index)} never starts: its \`if\` is never true`,
          "Take the step out, or let its `if` read something.",
          `steps[${index}].if`,
        ),
      );
    }
    if (never.has(index) || condition?.asksStatus === true) continue;
    const need = look.needs[index]?.find((of) => never.has(of) && steps[of]?.step?.continueOnFailure !== true);
    if (need === undefined) continue;
    never.add(index);
    look.problems.push(
      problem(
        "unreachable_step",
        `the step ${idOf(index)} never starts: ${idOf(need)}, which it needs, never does`,
        "Take the need away, or let it start all the same: if: always().",
        `steps[${index}].needs`,
      ),
    );
  }
}
