/** Reads what a workflow's file says: the workflow, or everything that is wrong with it at once. Nothing is run, nothing is looked at outside. */
import type { z } from "zod";
import { AppError, type Problem, problem } from "../errors.ts";
import { type JsonSchema, misfits, schemaProblems, typesOf } from "../json-schema.ts";
import type { Limits } from "../limits.ts";
import { nearest } from "../nearest.ts";
import { finalStatuses } from "../run.ts";
import { wordsFor } from "../schema-words.ts";
import {
  type Definition,
  definitionForm,
  keysAt,
  type StepForm,
  stepKeys,
  stepTypes,
  typesWith,
} from "./definition.ts";
import {
  checkExpression,
  evaluate,
  type Expression,
  type ExpressionBounds,
  type Reference,
  type Scope,
} from "./expression.ts";
import { kindOf } from "./expression-fault.ts";
import { ancestryOf, circlesOf, orderOf } from "./graph.ts";
import { isWhole, readTemplate } from "./template.ts";

export type WorkflowBounds = ExpressionBounds & Pick<Limits, "workflowSteps" | "workflowNeeds" | "workflowExpressions">;

/** Words that are looked for among very many: each look costs as much as there are. */
const MOST_NEAR = 20;
/** Work that is done to see whether an expression that reads nothing is ever true. */
const CONSTANT_WORK = 1_000;

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

/** What an expression reads of a step, beside `output`. */
const STEP_FIELDS: { readonly [field: string]: JsonSchema } = {
  status: { type: "string", enum: finalStatuses },
  exitCode: { type: "integer" },
  stdoutTail: { type: "string" },
  stderrTail: { type: "string" },
};
const STEP_WORDS = ["output", ...Object.keys(STEP_FIELDS)];
/** What it reads of the run. */
const RUN_FIELDS: { readonly [field: string]: JsonSchema } = {
  id: { type: "string" },
  workflow: { type: "string" },
  loop: {},
  slot: {},
};

/** Fields of a step whose texts are templates: the text itself, each of a list or of a set of names, or whatever is within. */
const TEMPLATES = new Set([
  "command",
  "env",
  "prompt",
  "cwd",
  "question",
  "message",
  "title",
  "body",
  "base",
  "webhook",
  "with",
]);
/** Fields that have their own rules for `${{ }}`. */
const OWN = new Set(["if", "foreach", "shell", "output"]);
const SHELLS = /(?:^|\/)(?:sh|bash|dash|zsh|ksh|fish)$/;

const isObject = (value: unknown): value is { readonly [key: string]: unknown } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Where something is, as in `steps[2].retry.attempts`. */
function placeOf(path: readonly PropertyKey[]): string {
  return path.reduce<string>(
    (place, one) => (typeof one === "number" ? `${place}[${one}]` : `${place}${place === "" ? "" : "."}${String(one)}`),
    "",
  );
}

/** What a step is called; one without a name by its place. */
const idIn = (raw: unknown, index: number): string => {
  const id = isObject(raw) ? raw["id"] : undefined;
  return typeof id === "string" ? id : `steps[${index}]`;
};

const valueAt = (value: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce<unknown>(
    (of, key) => (typeof of === "object" && of !== null && Object.hasOwn(of, key) ? (of as never)[key] : undefined),
    value,
  );

/** What is wrong by the form. @param at where the value stands in the file */
function formProblems(issues: readonly z.core.$ZodIssue[], value: unknown, at: readonly PropertyKey[]): Problem[] {
  const told = new Set<string>();
  return issues.flatMap((issue): Problem | Problem[] => {
    const path = [...at, ...issue.path];
    const place = placeOf(path);
    // What else is wrong with a value follows from the first thing.
    if (issue.code !== "unrecognized_keys" && told.has(place)) return [];
    if (issue.code !== "unrecognized_keys") told.add(place);
    const here = valueAt(value, issue.path);
    if (issue.code === "unrecognized_keys") {
      const type = isObject(value) ? value["type"] : undefined;
      const known = keysAt(path, type);
      const isStep = at[0] === "steps" && issue.path.length === 0;
      return issue.keys.map((key) => {
        const others = isStep ? typesWith(key) : [];
        const near = nearest(key, known ?? []);
        const elsewhere = near !== null || !isStep ? null : nearest(key, stepKeys);
        const hint =
          others.length > 0
            ? `It belongs to ${others.map((one) => `type: ${one}`).join(", ")}.`
            : near !== null
              ? `Did you mean ${near}?`
              : elsewhere !== null
                ? `Did you mean ${elsewhere}, of ${typesWith(elsewhere)
                    .map((one) => `type: ${one}`)
                    .join(", ")}?`
                : known !== null
                  ? `What there is: ${known.join(", ")}.`
                  : undefined;
        const where = others.length > 0 ? `of a step of type ${String(type)}` : "here";
        return problem("unknown_key", `there is no ${JSON.stringify(key)} ${where}`, hint, placeOf([...path, key]));
      });
    }
    if (issue.code === "invalid_union" && issue.path.at(-1) === "type") {
      const near = typeof here === "string" ? nearest(here, stepTypes) : null;
      return problem(
        here === undefined ? "missing_value" : "bad_choice",
        here === undefined ? "the step has no type" : `there is no type ${JSON.stringify(here)}`,
        near === null ? `Types are ${stepTypes.join(", ")}.` : `Did you mean ${near}?`,
        here === undefined ? placeOf(path.slice(0, -1)) : place,
      );
    }
    if (here === undefined && issue.code !== "custom")
      return problem(
        "missing_value",
        `${String(path.at(-1) ?? "it")} is missing`,
        undefined,
        placeOf(path.slice(0, -1)),
      );
    const params = issue.code === "custom" ? (issue.params as { readonly code: string; readonly hint: string }) : null;
    const inner = issue.code === "invalid_key" ? issue.issues[0]?.message : undefined;
    const message = inner ?? issue.message;
    const isText = message === "it must be text" && ["number", "boolean"].includes(typeof here);
    const hint = isText
      ? "Numbers, true and false are text only in quotes."
      : issue.path[0] === "command" && typeof here === "string"
        ? "Write a list, as in [npm, test]; a line for the shell is `shell`."
        : params?.hint;
    return problem(params?.code ?? "bad_input", `${place === "" ? "the file" : place}: ${message}`, hint, place);
  });
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

/** Says what a word may have meant. Among many, only the first ones are looked for. */
function nearHints() {
  let left = MOST_NEAR;
  return {
    hint(word: string, known: readonly string[], these: string): string {
      if (known.length === 0) return "There are none.";
      const isMany = known.length > SHOWN_NAMES;
      const near = isMany && left-- <= 0 ? null : nearest(word, known);
      if (near !== null) return `Did you mean ${near}?`;
      return `${these} ${known.slice(0, SHOWN_NAMES).join(", ")}${isMany ? ", and others" : ""}.`;
    },
  };
}
/** Names that are listed in a hint. */
const SHOWN_NAMES = 20;

// --- The form --------------------------------------------------------------------------------------------------------------------

interface ReadStep {
  readonly raw: unknown;
  /** Null where its form is wrong. */
  readonly step: StepForm | null;
}

const headForm = definitionForm.omit({ steps: true });
const stepForm = definitionForm.shape.steps.element;

function readForm(
  value: unknown,
  bounds: WorkflowBounds,
  problems: Problem[],
): { readonly form: Omit<Definition, "steps"> | null; readonly steps: readonly ReadStep[] } {
  if (!isObject(value)) {
    problems.push(
      problem("bad_input", "the file must hold a set of keys with values", "Begin it with `name:`, then `steps:`.", ""),
    );
    return { form: null, steps: [] };
  }
  const { steps: raw, ...head } = value;
  const error = wordsFor as never;
  const read = headForm.safeParse(head, { error });
  if (!read.success) problems.push(...formProblems(read.error.issues, head, []));
  const form = read.success ? read.data : null;
  if (!Array.isArray(raw) || raw.length === 0) {
    problems.push(
      problem(
        raw === undefined ? "missing_value" : "bad_input",
        raw === undefined ? "there are no steps" : "steps must be a list with at least one step",
        "Write each as `- id: NAME` with its type below.",
        raw === undefined ? "" : "steps",
      ),
    );
    return { form, steps: [] };
  }
  if (raw.length > bounds.workflowSteps) {
    problems.push(
      problem(
        "too_large",
        `there are ${raw.length} steps, more than ${bounds.workflowSteps}`,
        "Do the same for many things with one step and foreach, or raise limits.workflowSteps.",
        "steps",
      ),
    );
    return { form, steps: [] };
  }
  return {
    form,
    steps: raw.map((one: unknown, index) => {
      const step = stepForm.safeParse(one, { error });
      if (!step.success) problems.push(...formProblems(step.error.issues, one, ["steps", index]));
      return { raw: one, step: step.success ? step.data : null };
    }),
  };
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

// --- What is read where ------------------------------------------------------------------------------------------------------------

interface Look {
  readonly bounds: WorkflowBounds;
  readonly problems: Problem[];
  readonly ids: ReadonlyMap<string, number>;
  readonly idNames: readonly string[];
  readonly near: ReturnType<typeof nearHints>;
  /** How many were met. */
  expressions: number;
  readonly inputs: ReadonlyMap<string, JsonSchema>;
  readonly env: readonly string[];
  readonly outputs: readonly JsonSchema[];
  /** Made for the first expression that reads a step. */
  ancestry: ReturnType<typeof ancestryOf> | null;
  readonly needs: readonly (readonly number[])[];
  readonly order: readonly number[];
}

/** Where an expression stands. `item`: null where there is none. */
interface Standing {
  readonly step: number;
  readonly id: string;
  readonly item: JsonSchema | null;
}

type Found = ReturnType<Scope["typeOf"]>;
const unknown = (message: string, hint: string, code = "unknown_name"): Found => ({ fault: { code, message, hint } });

/** What is at a place within a value of a schema; a step further at a time. */
function within(look: Look, schema: JsonSchema, path: readonly string[], what: string): Found {
  let at: JsonSchema = schema;
  let said = what;
  for (const name of path) {
    if (typeof at === "boolean") return { schema: true };
    const types = typesOf(at);
    if (types !== null && !types.includes("object"))
      return unknown(
        `${said} is ${kindOf(
          types
            .join(" or ")
            .replaceAll("boolean", "bool")
            .replaceAll(/integer|number/g, "double"),
        )}, and has no ${name}`,
        "Read it as it is.",
      );
    const properties = (at["properties"] ?? {}) as { readonly [name: string]: JsonSchema };
    if (Object.hasOwn(properties, name)) at = properties[name] ?? true;
    else if (at["additionalProperties"] === false)
      return unknown(`${said} has no ${JSON.stringify(name)}`, look.near.hint(name, Object.keys(properties), "It has"));
    else at = (at["additionalProperties"] ?? true) as JsonSchema;
    said += `.${name}`;
  }
  return { schema: at };
}

function scopeOf(look: Look, standing: Standing | null): Scope {
  const typeOf = (reference: Reference): Found => {
    const { root, path } = reference;
    const [name, field, ...more] = path;
    switch (root) {
      case "inputs": {
        if (name === undefined) return { schema: { type: "object" } };
        const schema = look.inputs.get(name);
        if (schema !== undefined) return within(look, schema, path.slice(1), `inputs.${name}`);
        return unknown(
          `there is no input ${JSON.stringify(name)}`,
          look.inputs.size === 0
            ? `Declare it: inputs: { ${name}: { type: string } }.`
            : look.near.hint(name, [...look.inputs.keys()], "Inputs are"),
          "unknown_input",
        );
      }
      case "run":
        if (name === undefined) return { schema: { type: "object" } };
        if (Object.hasOwn(RUN_FIELDS, name))
          return within(look, RUN_FIELDS[name] ?? true, path.slice(1), `run.${name}`);
        return unknown(`a run has no ${JSON.stringify(name)}`, look.near.hint(name, Object.keys(RUN_FIELDS), "It has"));
      case "env":
        if (name === undefined) return { schema: { type: "object", additionalProperties: { type: "string" } } };
        if (standing === null) return unknown("env is not read in env itself", "Read inputs or run.");
        if (look.env.includes(name)) return within(look, { type: "string" }, path.slice(1), `env.${name}`);
        return unknown(`the workflow's env has no ${JSON.stringify(name)}`, look.near.hint(name, look.env, "It has"));
      case "item":
        if (standing === null || standing.item === null)
          return unknown("there is an item only in a step with foreach", "Give the step a list: foreach: ${{ ... }}.");
        return within(look, standing.item, path, "item");
      case "steps":
        if (standing === null)
          return unknown("steps are read in steps only", "Give the value to each step that needs it.");
        return name === undefined
          ? unknown("a step is named by its id", 'As in steps.check.output, or steps["my-check"].output.')
          : ofStep(name, field, more, standing);
    }
  };
  const ofStep = (name: string, field: string | undefined, more: readonly string[], standing: Standing): Found => {
    const of = look.ids.get(name);
    const dashed =
      of !== undefined || look.idNames.length > SHOWN_NAMES
        ? undefined
        : look.idNames.find((id) => id.includes("-") && id.startsWith(`${name}-`));
    if (of === undefined)
      return unknown(
        `there is no step ${JSON.stringify(name)}`,
        dashed === undefined
          ? look.near.hint(name, look.idNames, "Steps are")
          : `An id with - in it is read as steps["${dashed}"].`,
        "missing_step",
      );
    look.ancestry ??= ancestryOf(look.needs, look.order);
    if (of === standing.step)
      return unknown(`the step ${name} cannot read itself`, "Read a step that it needs.", "not_needed");
    if (!look.ancestry.has(standing.step, of))
      return unknown(
        `the step ${standing.id} reads ${name}, and does not need it`,
        `Add ${name} to its needs.`,
        "not_needed",
      );
    if (field === undefined) return { schema: { type: "object" } };
    if (field === "output") return within(look, look.outputs[of] ?? true, more, `steps.${name}.output`);
    const schema = Object.hasOwn(STEP_FIELDS, field) ? STEP_FIELDS[field] : undefined;
    return schema === undefined
      ? unknown(
          `a step has no ${JSON.stringify(field)}`,
          nearest(field, STEP_WORDS) === null
            ? `It has ${STEP_WORDS.join(", ")}; what it hands over is below output.`
            : `Did you mean ${nearest(field, STEP_WORDS)}?`,
        )
      : within(look, schema, more, `steps.${name}.${field}`);
  };
  return { typeOf };
}

/** Checks one expression, and says what is wrong with it. */
function checkOne(
  look: Look,
  source: string,
  at: number,
  path: readonly PropertyKey[],
  standing: Standing | null,
): Expression | null {
  look.expressions++;
  if (look.expressions === look.bounds.workflowExpressions + 1)
    look.problems.push(
      problem(
        "too_large",
        `there are more than ${look.bounds.workflowExpressions} expressions`,
        "Do the same for many things with one step and foreach, or raise limits.workflowExpressions.",
        placeOf(path),
      ),
    );
  if (look.expressions > look.bounds.workflowExpressions) return null;
  const { expression, faults } = checkExpression(source, scopeOf(look, standing), look.bounds);
  for (const { code, message, hint, start } of faults)
    look.problems.push(problem(code, `${message}, at character ${at + start + 1}`, hint, placeOf(path)));
  return expression;
}

/** Checks the templates in a value, however deep they lie. */
function checkTexts(look: Look, value: unknown, path: readonly PropertyKey[], standing: Standing | null): void {
  if (typeof value === "string") checkTemplate(look, value, path, standing);
  else if (Array.isArray(value))
    for (const [index, one] of value.entries()) checkTexts(look, one, [...path, index], standing);
  else if (isObject(value))
    for (const [key, one] of Object.entries(value)) checkTexts(look, one, [...path, key], standing);
}

/** @returns the expression, where the text is one and nothing else */
function checkTemplate(
  look: Look,
  text: string,
  path: readonly PropertyKey[],
  standing: Standing | null,
): Expression | null {
  const template = readTemplate(text);
  if (template.open !== null)
    look.problems.push(
      problem(
        "bad_expression",
        `nothing closes the \${{ at character ${template.open + 1}`,
        'Close it with }}. A ${{ that is meant as text is ${{ "${{" }}.',
        placeOf(path),
      ),
    );
  const found = template.holes.map(({ source, at }) => checkOne(look, source, at, path, standing));
  for (const one of found)
    if (one?.asksStatus === true)
      look.problems.push(
        problem(
          "unknown_function",
          "always(), failure() and success() are asked in `if` only",
          "Read steps.ID.status.",
          placeOf(path),
        ),
      );
  return isWhole(template) ? (found[0] ?? null) : null;
}

/** Refuses `${{ }}` in what is read before anything runs. */
function refuseTexts(look: Look, value: unknown, path: readonly PropertyKey[]): void {
  if (typeof value === "string") {
    if (value.includes("${{"))
      look.problems.push(
        problem(
          "no_expression_here",
          `${placeOf(path)} is read before anything runs, and holds no expression`,
          "Write the value itself.",
          placeOf(path),
        ),
      );
  } else if (Array.isArray(value)) for (const [index, one] of value.entries()) refuseTexts(look, one, [...path, index]);
  else if (isObject(value)) for (const [key, one] of Object.entries(value)) refuseTexts(look, one, [...path, key]);
}

// --- One step ---------------------------------------------------------------------------------------------------------------------

/** What is known of an `if`. `isNever`: it is false whatever happens. */
interface Condition {
  readonly asksStatus: boolean;
  readonly isNever: boolean;
}

function checkStep(
  look: Look,
  raw: unknown,
  step: StepForm | null,
  index: number,
  defaults: { readonly [key: string]: unknown },
): Condition {
  if (!isObject(raw)) return { asksStatus: false, isNever: false };
  const at = ["steps", index] as const;
  const id = idIn(raw, index);
  const outside: Standing = { step: index, id, item: null };
  const item = checkForeach(look, raw, at, outside);
  const standing: Standing = { ...outside, item };
  for (const [key, value] of Object.entries(raw)) {
    if (OWN.has(key)) continue;
    if (TEMPLATES.has(key)) checkTexts(look, value, [...at, key], standing);
    else refuseTexts(look, value, [...at, key]);
  }
  refuseShell(look, raw, at);
  if (step !== null) checkRules(look, step, at, defaults);
  return checkCondition(look, raw["if"], at, standing);
}

/** @returns what an item is; null without foreach */
function checkForeach(
  look: Look,
  raw: { readonly [key: string]: unknown },
  at: readonly PropertyKey[],
  standing: Standing,
): JsonSchema | null {
  const given = raw["foreach"];
  const path = [...at, "foreach"];
  if (given === undefined) {
    if (raw["concurrency"] !== undefined)
      look.problems.push(
        problem(
          "contradiction",
          "concurrency is given, and there is no foreach",
          "It says how many items are at work at a time: give foreach, or leave it out.",
          placeOf([...at, "concurrency"]),
        ),
      );
    return null;
  }
  if (typeof given !== "string") {
    checkTexts(look, given, path, standing);
    return true;
  }
  const expression = checkTemplate(look, given, path, standing);
  if (!isWhole(readTemplate(given)))
    look.problems.push(
      problem(
        "bad_input",
        "foreach takes a list: one ${{ }} and nothing around it",
        "As in foreach: ${{ steps.fix.output.files }}.",
        placeOf(path),
      ),
    );
  else if (expression !== null && expression.type !== "dyn" && !expression.type.startsWith("list"))
    look.problems.push(
      problem(
        "wrong_type",
        `foreach takes a list, and this is ${kindOf(expression.type)}`,
        "Read a list.",
        placeOf(path),
      ),
    );
  const [reference, ...more] = expression?.references ?? [];
  const isPlain =
    reference !== undefined &&
    more.length === 0 &&
    expression?.source.trim().length === reference.end - reference.start;
  const found = isPlain ? scopeOf(look, standing).typeOf(reference) : null;
  const schema = found !== null && "schema" in found ? found.schema : true;
  return typeof schema === "boolean" ? true : ((schema["items"] ?? true) as JsonSchema);
}

function checkCondition(look: Look, given: unknown, at: readonly PropertyKey[], standing: Standing): Condition {
  if (typeof given === "boolean") return { asksStatus: false, isNever: !given };
  if (typeof given !== "string") return { asksStatus: false, isNever: false };
  const path = [...at, "if"];
  if (given.includes("${{")) {
    look.problems.push(
      problem("bad_expression", "an `if` is an expression already", "Write it without ${{ and }}.", placeOf(path)),
    );
    return { asksStatus: false, isNever: false };
  }
  // All items of a step start or none does: its `if` is asked before there is one.
  const expression = checkOne(look, given, 0, path, { ...standing, item: null });
  if (expression === null) return { asksStatus: false, isNever: false };
  const { asksStatus, references, type } = expression;
  if (type !== "bool" && type !== "dyn")
    look.problems.push(
      problem(
        "wrong_type",
        `an \`if\` is true or false, and this is ${kindOf(type)}`,
        'Compare it, as in ... != "".',
        placeOf(path),
      ),
    );
  const isConstant = references.length === 0 && !asksStatus && type === "bool";
  return { asksStatus, isNever: isConstant && isFalse(look, expression, path) };
}

/** Whether an expression that reads nothing is false; what takes long to see is not looked at. */
function isFalse(look: Look, expression: Expression, path: readonly PropertyKey[]): boolean {
  const nothing = { inputs: {}, steps: {}, run: {}, env: {}, status: { failed: false, met: true } };
  try {
    return evaluate(expression, nothing, { ...look.bounds, expressionWork: CONSTANT_WORK }) === false;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    if (error.code === "expression_failed")
      look.problems.push(problem(error.code, error.message, undefined, placeOf(path)));
    return false;
  }
}

/** A value that is put into the text of a shell is a command of whoever made the value. */
function refuseShell(look: Look, raw: { readonly [key: string]: unknown }, at: readonly PropertyKey[]): void {
  const refuse = (text: string, path: readonly PropertyKey[]): void => {
    const source = readTemplate(text).holes[0]?.source.trim() ?? "...";
    look.problems.push(
      problem(
        "expression_in_shell",
        "a value is never put into the text of a shell: what is in it would be run",
        `Give it by the environment: env: { VALUE: "\${{ ${source} }}" }, and write "$VALUE" in the line.`,
        placeOf(path),
      ),
    );
  };
  const { shell, command } = raw;
  if (typeof shell === "string" && shell.includes("${{")) refuse(shell, [...at, "shell"]);
  if (!Array.isArray(command) || typeof command[0] !== "string" || !SHELLS.test(command[0])) return;
  const flag = command.findIndex((one) => typeof one === "string" && /^-[a-z]*c$/.test(one));
  const line: unknown = command[flag + 1];
  if (flag > 0 && typeof line === "string" && line.includes("${{")) refuse(line, [...at, "command", flag + 1]);
}

/** What the fields of a step say together. */
function checkRules(
  look: Look,
  step: StepForm,
  at: readonly PropertyKey[],
  defaults: { readonly [key: string]: unknown },
): void {
  const say = (code: string, message: string, hint: string, key?: string): void =>
    void look.problems.push(problem(code, message, hint, placeOf(key === undefined ? at : [...at, key])));
  const one = (keys: readonly string[], missing: string): void => {
    const given = keys.filter((key) => (step as { readonly [key: string]: unknown })[key] !== undefined);
    if (given.length === 0)
      say("missing_value", missing, `Give ${keys.length > 1 ? "one of " : ""}${keys.join(", ")}.`);
    if (given.length > 1)
      say("contradiction", `${given.join(" and ")} contradict one another`, "Give one of them.", given[1]);
  };
  switch (step.type) {
    case "command":
    case "check":
    case "gate":
      one(["command", "shell"], "there is nothing to run");
      break;
    case "notify":
      one(["webhook", "command", "shell"], "there is nobody to tell");
      break;
    case "agent": {
      one(["prompt", "promptFile"], "the agent is asked nothing");
      const provider = step.provider ?? defaults["provider"];
      const permission = step.permission ?? defaults["permission"];
      if (provider === undefined)
        say("missing_value", "provider is missing", "Say which agent: claude, codex or custom.");
      if (provider === "custom" && step.command === undefined)
        say("missing_value", "a custom agent has no command", "Give command: [PROGRAM, ...].");
      if (provider !== undefined && provider !== "custom" && step.command !== undefined)
        say(
          "contradiction",
          `command belongs to a custom agent, and this is ${provider as string}`,
          "Leave it out.",
          "command",
        );
      if (permission === "full" && step.reason === undefined)
        say("missing_value", "permission full needs a reason", "Say in `reason` why the agent may do everything.");
      break;
    }
    case "approval":
      one(["question"], "nobody is asked anything");
      if (step.default !== undefined && step.timeout === undefined && defaults["timeout"] === undefined)
        say(
          "contradiction",
          "a default is taken when time is up, and there is no timeout",
          "Give timeout: 24h.",
          "default",
        );
      break;
    case "wait":
      one(["for", "until", "event"], "there is nothing to wait for");
      if (
        step.until !== undefined &&
        !(/^\d{4}-\d{2}-\d{2}T.*(?:Z|[+-]\d{2}:\d{2})$/.test(step.until) && Number.isFinite(Date.parse(step.until)))
      )
        say("bad_time", `${JSON.stringify(step.until)} is no instant`, "Write it as 2027-03-28T02:30:00Z.", "until");
      break;
    case "workflow":
      one(["workflow"], "there is no workflow to run");
      break;
    case "handoff":
      break;
  }
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
