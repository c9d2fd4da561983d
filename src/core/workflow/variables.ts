/** Variables of a template: what they may be, what they are in one rendering, and texts with their values put in. */
import { AppError, type Problem, problem } from "../errors.ts";
import { isObject, type JsonSchema, misfits, schemaProblems, typesOf } from "../json-schema.ts";
import { nearest } from "../nearest.ts";
import { checkExpression, evaluate, type Expression, type ExpressionBounds, type Scope } from "./expression.ts";
import { type ExpressionFault, fault } from "./expression-fault.ts";
import { isWhole, readTemplate, textOf } from "./template.ts";

/** A variable as its template says it. */
export interface Variable {
  readonly name: string;
  readonly schema: JsonSchema;
  /** It has no default. */
  readonly required: boolean;
}

type Values = Readonly<Record<string, unknown>>;

const NAME = /^(?!__)[A-Za-z_][A-Za-z0-9_]{0,63}$/;

/** Reads the variables of a template, each a JSON Schema as an input of a workflow is. What is wrong is put to the problems. */
export function readVariables(given: unknown, problems: Problem[]): readonly Variable[] {
  if (given !== undefined && !isObject(given)) {
    problems.push(
      problem(
        "bad_input",
        "variables must be a set of names",
        "As in variables: { test: { type: string } }.",
        "variables",
      ),
    );
    return [];
  }
  return Object.entries(given ?? {}).flatMap(([name, schema]): Variable[] => {
    const path = `variables.${name}`;
    const wrong = schemaProblems(schema, path);
    problems.push(...wrong);
    if (!NAME.test(name))
      problems.push(
        problem(
          "bad_input",
          `${JSON.stringify(name)} names no variable`,
          "Up to 64 letters, digits and _, a letter first.",
          path,
        ),
      );
    if (wrong.length > 0 || !NAME.test(name)) return [];
    const required = !isObject(schema) || !Object.hasOwn(schema, "default");
    if (!required)
      for (const { at, message } of misfits(schema as JsonSchema, (schema as { default?: unknown }).default))
        problems.push(
          problem(
            "bad_default",
            `the default does not fit the variable: ${message}`,
            "Change one of them.",
            `${path}.default${at}`,
          ),
        );
    return [{ name, schema: schema as JsonSchema, required }];
  });
}

/** What somebody wrote as the value of a variable, read by its types: `3`, `true`, a list as JSON, else text as it is. */
function typed(schema: JsonSchema, text: string): unknown {
  const types = typesOf(schema);
  if (types?.every((type) => type === "string") === true) return text;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return text;
  }
  const mayBeText = types === null || types.includes("string");
  return mayBeText && misfits(schema, value).length > 0 ? text : value;
}

/** The values of one rendering. @param given as people write them @param path of one of them */
export function valuesOf(
  variables: readonly Variable[],
  given: Readonly<Record<string, string>>,
  path: (name: string) => string,
): { readonly values: Values; readonly problems: readonly Problem[] } {
  const problems: Problem[] = [];
  const names = variables.map(({ name }) => name);
  for (const name of Object.keys(given))
    if (!names.includes(name)) {
      const near = nearest(name, names);
      problems.push(
        problem(
          "unknown_variable",
          `the template has no variable ${JSON.stringify(name)}`,
          near === null
            ? names.length === 0
              ? "It has none."
              : `It has ${names.join(", ")}.`
            : `Did you mean ${near}?`,
          path(name),
        ),
      );
    }
  const values: [string, unknown][] = [];
  for (const { name, schema, required } of variables) {
    const text = Object.hasOwn(given, name) ? given[name] : undefined;
    if (text === undefined) {
      if (required)
        problems.push(
          problem("missing_value", `the variable ${name} has no value`, `Give it: --set ${name}=...`, path(name)),
        );
      else values.push([name, (schema as { readonly default?: unknown }).default]);
      continue;
    }
    const value = typed(schema, text);
    const wrong = misfits(schema, value);
    for (const { at, message } of wrong)
      problems.push(problem("bad_input", `the variable ${name}${at}: ${message}`, undefined, path(name)));
    values.push([name, value]);
  }
  return { values: Object.fromEntries(values), problems };
}

/** What an expression of a template may read. What is there when the workflow runs is held against the workflow. */
const scopeOf = (variables: readonly Variable[]): Scope => ({
  typeOf({ root, path: [name, ...more] }) {
    if (root !== "vars") return { schema: true };
    const found = variables.find((one) => one.name === name);
    if (found !== undefined) return { schema: more.length === 0 ? found.schema : true };
    const names = variables.map((one) => one.name);
    const near = name === undefined ? null : nearest(name, names);
    return {
      fault: {
        code: "unknown_variable",
        message: `there is no variable ${JSON.stringify(name ?? "")}`,
        hint: near === null ? `There are ${names.join(", ") || "none"}.` : `Did you mean ${near}?`,
      },
    };
  },
});

/** Reads the values of a template's variables. What is wrong with an expression is a fault. */
export interface Filling {
  /**
   * A text with the values of variables in it; whatever else is read stays as it is written. One that is a variable's
   * expression and nothing else has its value, of whatever type.
   * @param isTemplate whether the text is a template when the workflow runs: a value then stays data all the same
   */
  fill(text: string, isTemplate: boolean): { readonly value: unknown; readonly faults: readonly ExpressionFault[] };
  /** The value of an expression without `${{` and `}}`; undefined where it has faults. */
  ask(source: string): { readonly value: unknown; readonly faults: readonly ExpressionFault[] };
  /** Whether a text reads a variable. */
  reads(source: string): boolean;
}

const MIXED: Omit<ExpressionFault, "start"> = {
  code: "mixed_expression",
  message:
    "it reads variables, which are there when the template is rendered, and what is there when the workflow runs",
  hint: "Give the workflow an input with the variable as its default, and read that.",
};

/** After `loadExpressions`. @param values null: nothing is computed, and each value is null */
export function fillingOf(variables: readonly Variable[], values: Values | null, bounds: ExpressionBounds): Filling {
  const scope = scopeOf(variables);
  const mayRead = (source: string): boolean => /\bvars\b/.test(source);
  const check = (source: string): { expression: Expression | null; faults: readonly ExpressionFault[] } => {
    const { expression, faults } = checkExpression(source, scope, bounds);
    if (expression === null) return { expression, faults };
    const of = expression.references.filter(({ root }) => root === "vars").length;
    if (of === 0) return { expression: null, faults: [] };
    const isMixed = of < expression.references.length || expression.asksStatus;
    return isMixed ? { expression: null, faults: [{ ...MIXED, start: 0 }] } : { expression, faults: [] };
  };
  const valueOf = (expression: Expression): { value: unknown; faults: readonly ExpressionFault[] } => {
    if (values === null) return { value: null, faults: [] };
    try {
      const outside = { inputs: {}, steps: {}, run: {}, env: {}, status: { failed: false, met: true } };
      return { value: evaluate(expression, { ...outside, vars: values }, bounds), faults: [] };
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      const { code, message, hint } = error;
      return { value: null, faults: [fault(code, message, hint, 0)] };
    }
  };
  const read = (source: string) => {
    const { expression, faults } = check(source);
    return expression === null ? { value: undefined, faults } : valueOf(expression);
  };
  return {
    reads(source) {
      if (!mayRead(source)) return false;
      const { expression, faults } = check(source);
      return expression !== null || faults.length > 0;
    },
    ask: read,
    fill(text, isTemplate) {
      const template = readTemplate(text);
      if (!template.holes.some(({ source }) => mayRead(source))) return { value: text, faults: [] };
      const found = template.holes.map(({ source, at }) => {
        const { value, faults } = mayRead(source) ? read(source) : { value: undefined, faults: [] };
        return { value, faults: faults.map((one) => ({ ...one, start: one.start + at })), source };
      });
      const faults = found.flatMap((one) => one.faults);
      const [only] = found;
      if (isWhole(template) && only?.value !== undefined)
        return { value: isTemplate ? inert(only.value) : only.value, faults };
      let filled = template.texts[0] ?? "";
      for (const [index, { value, source }] of found.entries()) {
        const behind = template.texts[index + 1] ?? "";
        const put = textOf(value);
        if (value === undefined) filled += `\${{${source}}}`;
        else filled += isTemplate ? inertText(put, filled, behind) : put;
        filled += behind;
      }
      return { value: filled, faults };
    },
  };
}

const OPEN = "${{";
const said = (text: string): string => `\${{ ${JSON.stringify(text)} }}`;

/** A text that stays the same when it is read as a template between two others. */
function inertText(text: string, before: string, behind: string): string {
  if (text === "") return /\$\{?$/.test(before) && behind.startsWith("{") ? said(text) : text;
  const head = /\$\{?$/.test(before) && text.startsWith("{") ? "{" : "";
  const tail = behind.startsWith("{") ? (/\$\{?$/.exec(text.slice(head.length))?.[0] ?? "") : "";
  const middle = text.slice(head.length, text.length - tail.length);
  return `${head && said(head)}${middle.replaceAll(OPEN, said(OPEN))}${tail && said(tail)}`;
}

/** A value whose texts stay the same when they are read as templates. */
function inert(value: unknown): unknown {
  if (typeof value === "string") return inertText(value, "", "");
  if (Array.isArray(value)) return value.map(inert);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, inert(one)]));
}
