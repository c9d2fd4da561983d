/** Holds a file against the form of a workflow: what has it, and what is wrong with the rest, in words for people. */
import type { z } from "zod";
import { type Problem, problem } from "../errors.ts";
import { isObject } from "../json-schema.ts";
import type { Limits } from "../limits.ts";
import { nearest } from "../nearest.ts";
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

/** Where something is, as in `steps[2].retry.attempts`. */
export function placeOf(path: readonly PropertyKey[]): string {
  return path.reduce<string>(
    (place, one) => (typeof one === "number" ? `${place}[${one}]` : `${place}${place === "" ? "" : "."}${String(one)}`),
    "",
  );
}

const valueAt = (value: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce<unknown>(
    (of, key) => (typeof of === "object" && of !== null && Object.hasOwn(of, key) ? (of as never)[key] : undefined),
    value,
  );

/** What others call what a step has here. */
const ELSEWHERE: { readonly [key: string]: string } = {
  dependsOn: "needs",
  depends_on: "needs",
  run: "shell",
  script: "shell",
  when: "if",
  each: "foreach",
  matrix: "foreach",
  retries: "retry: { attempts: N }",
  attempts: "retry: { attempts: N }",
  timeoutMs: "timeout",
  "timeout-minutes": "timeout",
  "continue-on-error": "continueOnFailure",
  "working-directory": "cwd",
};

const ofTypes = (types: readonly string[]): string => types.map((one) => `type: ${one}`).join(", ");

/** What somebody may have meant by a key that is not there. @param known those that are */
function keyHint(key: string, known: readonly string[], isStep: boolean): string | undefined {
  const others = isStep ? typesWith(key) : [];
  if (others.length > 0) return `It belongs to ${ofTypes(others)}.`;
  if (isStep && Object.hasOwn(ELSEWHERE, key)) return `Here it is ${ELSEWHERE[key]}.`;
  const near = nearest(key, known);
  if (near !== null) return `Did you mean ${near}?`;
  const elsewhere = isStep ? nearest(key, stepKeys) : null;
  if (elsewhere !== null) return `Did you mean ${elsewhere}, of ${ofTypes(typesWith(elsewhere))}?`;
  return known.length === 0 ? undefined : `What there is: ${known.join(", ")}.`;
}

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
        const hint = keyHint(key, known ?? [], isStep);
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

export interface ReadStep {
  readonly raw: unknown;
  /** Null where its form is wrong. */
  readonly step: StepForm | null;
}

const headForm = definitionForm.omit({ steps: true });
const stepForm = definitionForm.shape.steps.element;

/** Reads a file as far as it has the form of a workflow; what is wrong is put to the problems. */
export function readForm(
  value: unknown,
  bounds: Pick<Limits, "workflowSteps">,
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
