/** A workflow's template: its text read and checked, and made into a workflow's file with its variables put in. */
import { Document, isMap, isPair, isScalar, isSeq, type Node, parseDocument, visit, type YAMLMap } from "yaml";
import { AppError, type Problem, problem } from "../../core/errors.ts";
import { isObject } from "../../core/json-schema.ts";
import type { Limits } from "../../core/limits.ts";
import { loadExpressions } from "../../core/workflow/expression.ts";
import { isTemplatePlace, shellLineOf } from "../../core/workflow/step-check.ts";
import { readTemplate as readHoles } from "../../core/workflow/template.ts";
import { type Filling, fillingOf, readVariables, type Variable, valuesOf } from "../../core/workflow/variables.ts";
import { readDeclaredText } from "../declared/declared-text.ts";
import { isDeep } from "../fields.ts";
import { findTemplate, type TemplateSource } from "./template-sources.ts";
import { readWorkflowText } from "./workflow-file.ts";

const SECTIONS = ["description", "variables", "workflow"];

/** A template in which nothing is wrong. */
export interface Template {
  readonly description: string;
  readonly variables: readonly Variable[];
}

/** A workflow's file. */
export interface Rendered {
  readonly text: string;
  /** What the workflow is called, and how many steps it has. */
  readonly name: string;
  readonly steps: number;
}

/** Reads a template as far as it can be. `fault`: why it cannot be used. */
export async function readTemplate(
  source: TemplateSource,
  limits: Limits,
): Promise<{ readonly template: Template | null; readonly bytes: Buffer; readonly fault: AppError | null }> {
  const none = (fault: AppError, bytes: Buffer = Buffer.alloc(0)) => ({ template: null, bytes, fault });
  if (source.fault !== null) return none(unusable(source.name, source.fault));
  try {
    const bytes = source.bytes();
    const { template, problems } = await readTemplateText(bytes, source.file ?? source.name, limits);
    return template === null
      ? none(asError("bad_template", `the template ${source.name}`, problems), bytes)
      : { template, bytes, fault: null };
  } catch (error) {
    if (error instanceof AppError) return none(error);
    throw error;
  }
}

/**
 * A template by its name, in which nothing is wrong. Errors: AppError not_found `template_not_found`; conflict
 * `template_unusable`; invalid with every problem, `bad_template` where there are several.
 */
export async function requireTemplate(name: string, folder: string, limits: Limits) {
  const source = findTemplate(name, folder, limits);
  const { template, bytes, fault } = await readTemplate(source, limits);
  if (template === null) throw fault ?? unusable(name, "it cannot be read");
  return { source, template, bytes };
}

const unusable = (name: string, why: string): AppError =>
  new AppError("conflict", "template_unusable", `the template ${JSON.stringify(name)} cannot be used: ${why}`, {
    path: "template",
  });

/** What is wrong with a text that is to be a template, each with its line; or the template. @param file as problems name it */
async function readTemplateText(
  bytes: Buffer,
  file: string,
  limits: Limits,
): Promise<{ readonly template: Template | null; readonly problems: readonly Problem[] }> {
  const text = readDeclaredText(bytes, "description: TEXT");
  const found: Problem[] = text.problems.map((problem) => ({ ...problem, file }));
  const { value } = text;
  const none = { template: null, problems: found };
  if (value === undefined) return none;
  const more: Problem[] = [];
  const say = (code: string, message: string, hint: string, path: string) =>
    void more.push(problem(code, message, hint, path));
  const placed = () => [...found, ...more.map((one) => ({ ...one, file, ...text.locate(one.path ?? "") }))];
  if (isDeep(value)) say("too_deep", "it is nested deeper than any workflow", "No part of one is.", "");
  else if (!isObject(value)) say("bad_input", "a template is a set of names", `It has ${SECTIONS.join(", ")}.`, "");
  if (more.length > 0 || !isObject(value)) return { template: null, problems: placed() };
  for (const key of Object.keys(value))
    if (!SECTIONS.includes(key))
      say("unknown_key", `no template has ${JSON.stringify(key)}`, `It has ${SECTIONS.join(", ")}.`, key);
  const { description, workflow } = value;
  if (typeof description !== "string" || description.trim() === "")
    say("missing_value", "description is missing", "Say what the workflow is for.", "description");
  const variables = readVariables(value["variables"], more);
  if (!isObject(workflow)) say("missing_value", "workflow is missing", "Give the workflow that is made.", "workflow");
  await loadExpressions();
  if (more.length === 0)
    for (const one of fillIn(bytes.toString(), fillingOf(variables, null, limits)).problems) more.push(one);
  const problems = placed();
  return { template: problems.length > 0 ? null : { description: String(description).trim(), variables }, problems };
}

/**
 * The workflow's file that a template makes of its variables. Errors: AppError invalid with every problem: of the values
 * `bad_variables`, of what comes of them `bad_workflow`; the code of the problem where it is one.
 * @param bytes of a template in which nothing is wrong @param given values as people write them
 */
export async function renderTemplateText(
  name: string,
  bytes: Buffer,
  { variables }: Template,
  given: Readonly<Record<string, string>>,
  limits: Limits,
): Promise<Rendered> {
  const { values, problems } = valuesOf(variables, given, (one) => `--set ${one}`);
  refuse("bad_variables", `the values of the template ${name}`, problems);
  await loadExpressions();
  const filled = fillIn(bytes.toString(), fillingOf(variables, values, limits));
  refuse("bad_variables", `the template ${name}`, filled.problems);
  const made = new Document(filled.workflow);
  made.commentBefore = ` Made from the template ${name}.`;
  spaceOut(made);
  const text = made.toString({ lineWidth: 0 });
  const read = await readWorkflowText(Buffer.from(text), `what the template ${name} gives`, limits);
  refuse("bad_workflow", `what the template ${name} gives with these variables`, read.problems, read.count);
  const definition = read.workflow?.definition;
  return { text, name: definition?.name ?? "", steps: definition?.steps.length ?? 0 };
}

function refuse(code: string, what: string, problems: readonly Problem[], count = problems.length): void {
  if (count > 0) throw asError(code, what, problems, count);
}

/** All of them as one error: with the code of the only one, or with `code`. */
function asError(code: string, what: string, problems: readonly Problem[], count = problems.length): AppError {
  const only = count === 1 ? problems[0] : undefined;
  return new AppError("invalid", only?.code ?? code, `${count} problem${count === 1 ? "" : "s"} in ${what}`, {
    problems,
  });
}

/** Writes lists in brackets as `[a]` and sets of names in braces as `{ a: b }`, as people do. */
function spaceOut(made: Document): void {
  visit(made, {
    Collection(_key, node) {
      const usual = node.toString.bind(node);
      const flowCollectionPadding = isSeq(node) ? "" : " ";
      node.toString = (context, ...more) =>
        usual(context === undefined ? context : Object.assign({}, context, { flowCollectionPadding }), ...more);
    },
  });
}

/** The part `workflow` of a template with its variables put in, and what is wrong with it. The text is known to be good YAML. */
function fillIn(
  text: string,
  filling: Filling,
): { readonly workflow: Node | null; readonly problems: readonly Problem[] } {
  const document = parseDocument(text, { prettyErrors: false });
  const workflow: unknown = isMap(document.contents) ? document.contents.get("workflow", true) : null;
  const problems: Problem[] = [];
  const say: Say = (code, message, hint, path) => void problems.push(problem(code, message, hint, `workflow${path}`));
  if (!isMap(workflow)) return { workflow: null, problems };
  leaveOut(workflow, filling, say);
  // Put in when all has been read: what is put in is not read again.
  const values: (() => void)[] = [];
  visit(workflow, {
    Alias(_key, node, path) {
      say(
        "alias_in_template",
        "an alias stands for its text in two places, of which each has its own rules",
        "Write out what it stands for.",
        pathOf(path, node),
      );
    },
    Scalar(key, node, path) {
      const { value: source } = node;
      if (typeof source !== "string") return;
      const at = pathOf(path, node);
      const [section = "", field = ""] = keysOf(path);
      if (key === "key") {
        if (readsVariables(source, filling))
          say("no_expression_here", "a key is no place for a variable", "Write the key itself.", at);
        return;
      }
      const isCondition = section === "steps" && field === "if";
      if (isCondition && filling.reads(source))
        return say(
          "variable_in_condition",
          "an `if` is asked when the workflow runs, and reads no variable",
          INPUT,
          at,
        );
      if (isShellLine(section, field, source, path.at(-1), key) && readsVariables(source, filling))
        return say(
          "expression_in_shell",
          "a value is never put into the text of a shell: what is in it would be run",
          INPUT,
          at,
        );
      const { value, faults } = filling.fill(source, isTemplatePlace(keysOf(path)));
      for (const { code, message, hint, start } of faults) say(code, `${message}, at character ${start + 1}`, hint, at);
      if (value === source) return;
      const parent = path.at(-1);
      const put = document.createNode(value) as Node;
      const map = path.at(-2);
      if (value === null && isPair(parent) && isMap(map))
        // What has no value is not said.
        values.push(() => void map.delete(parent.key));
      else if (typeof value === "string") values.push(() => void (node.value = value));
      else if (isPair(parent)) values.push(() => void (parent.value = put));
      else if (isSeq(parent)) values.push(() => void (parent.items[key as number] = put));
    },
  });
  for (const put of values) put();
  return { workflow, problems };
}

const INPUT =
  "Give the workflow an input with the variable as its default, and read that; `when` leaves a whole step out.";

/** Whether some `${{ }}` of a text reads a variable. */
const readsVariables = (text: string, filling: Filling): boolean =>
  readHoles(text).holes.some(({ source }) => filling.reads(source));

/** Whether a text is run by a shell. @param parent what it stands in @param key its place there */
function isShellLine(section: string, field: string, text: string, parent: unknown, key: unknown): boolean {
  if (section !== "steps") return false;
  if (field === "shell" || text.startsWith("cmd:")) return true;
  return (
    field === "command" && isSeq(parent) && shellLineOf(parent.items.map((one) => isScalar(one) && one.value)) === key
  );
}

/** Keys on the way to a node. */
const keysOf = (path: readonly unknown[]): readonly string[] =>
  path.flatMap((one) => (isPair(one) && isScalar(one.key) ? [String(one.key.value)] : []));

/** Where a node is, from the workflow on, as in `.steps[2].prompt`. */
function pathOf(path: readonly unknown[], node: unknown): string {
  const steps = path.map((one, index) => {
    if (isPair(one) && isScalar(one.key)) return `.${String(one.key.value)}`;
    return isSeq(one) ? `[${one.items.indexOf(path[index + 1] ?? node)}]` : "";
  });
  return steps.join("");
}

type Say = (code: string, message: string, hint: string | undefined, path: string) => void;

/** Takes the steps out whose `when` is false, and the word itself from the others. */
function leaveOut(workflow: YAMLMap, filling: Filling, say: Say): void {
  const steps = workflow.get("steps", true) as unknown;
  if (!isSeq(steps)) return;
  steps.items = steps.items.filter((step, index) => {
    if (!isMap(step) || !step.has("when")) return true;
    const at = `.steps[${index}].when`;
    const given: unknown = step.get("when");
    step.delete("when");
    if (typeof given === "boolean") return given;
    const { value, faults } = filling.ask(String(given));
    for (const { code, message, hint, start } of faults) say(code, `${message}, at character ${start + 1}`, hint, at);
    if (value === undefined && faults.length === 0)
      say("bad_expression", "`when` reads no variable", "As in when: vars.tries > 1, without ${{ and }}.", at);
    else if (value !== null && value !== undefined && typeof value !== "boolean")
      say("wrong_type", "`when` is true or false", "Compare it, as in vars.tries > 1.", at);
    return value !== false;
  });
}
