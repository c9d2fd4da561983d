/** Holds one step against the rules: its expressions, its shell, and what its fields say together. */
import { AppError, type Problem, problem } from "../errors.ts";
import { isObject, type JsonSchema } from "../json-schema.ts";
import type { Limits } from "../limits.ts";
import type { StepForm } from "./definition.ts";
import { placeOf } from "./definition-form.ts";
import { checkExpression, evaluate, type Expression, type ExpressionBounds } from "./expression.ts";
import { kindOf } from "./expression-fault.ts";
import { scopeOf, type Sight, type Standing } from "./scope.ts";
import { isWhole, readTemplate } from "./template.ts";

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
/** Whether a text there is a template. @param names keys on the way to it, without places in lists */
export const isTemplatePlace = ([section, field = ""]: readonly string[]): boolean =>
  section === "env" || (section === "steps" && (field === "foreach" || TEMPLATES.has(field)));
/** Fields that have their own rules for `${{ }}`. */
const OWN = new Set(["if", "foreach", "shell", "output"]);
const SHELLS = /(?:^|\/)(?:sh|bash|dash|zsh|ksh|fish)$/;

/** Work that is done to see whether an expression that reads nothing is ever true. */
const CONSTANT_WORK = 1_000;

/** What is looked at, and what was found. */
export interface Look extends Sight {
  readonly bounds: ExpressionBounds & Pick<Limits, "workflowExpressions">;
  readonly problems: Problem[];
  /** How many expressions were met. */
  expressions: number;
}

/** What a step is called; one without a name by its place. */
export const idIn = (raw: unknown, index: number): string => {
  const id = isObject(raw) ? raw["id"] : undefined;
  return typeof id === "string" ? id : `steps[${index}]`;
};

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
export function checkTexts(look: Look, value: unknown, path: readonly PropertyKey[], standing: Standing | null): void {
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
export function refuseTexts(look: Look, value: unknown, path: readonly PropertyKey[]): void {
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
export interface Condition {
  readonly asksStatus: boolean;
  readonly isNever: boolean;
}

/** Checks a step. @param step null where its form is wrong: then what can be seen of it all the same */
export function checkStep(
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
  if (!Array.isArray(command)) return;
  const place = shellLineOf(command);
  const line: unknown = place === null ? null : command[place];
  if (place !== null && typeof line === "string" && line.includes("${{")) refuse(line, [...at, "command", place]);
}

/** Where in the words of a command the line of a shell stands; null where there is none. */
export function shellLineOf(command: readonly unknown[]): number | null {
  if (typeof command[0] !== "string" || !SHELLS.test(command[0])) return null;
  const flag = command.findIndex((one) => typeof one === "string" && /^-[a-z]*c$/.test(one));
  return flag > 0 && flag + 1 < command.length ? flag + 1 : null;
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
