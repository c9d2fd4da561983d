/**
 * The one language of definitions: CEL, in `${{ }}` and in `if`. An expression is held against what it may read before anything
 * runs, and its evaluation has an end: it has no loops but those over lists, and the work that it may do is counted.
 */
import type * as Cel from "@marcbachmann/cel-js";
import type { ASTNode, Environment, ParseResult } from "@marcbachmann/cel-js";
import { AppError, ensure } from "../errors.ts";
import { type JsonSchema, typesOf } from "../json-schema.ts";
import type { Limits } from "../limits.ts";
import { nearest } from "../nearest.ts";
import { type ExpressionFault, fault, faultOf } from "./expression-fault.ts";

/** What expressions of a workflow may read. */
const RUNNING = ["inputs", "steps", "run", "env", "item"] as const;
/** What expressions may read: `vars` only before there is a workflow, where a template is rendered. */
export const roots = [...RUNNING, "vars"] as const;
export type Root = (typeof roots)[number];

/** A place that an expression reads: `steps.fix.output.files`, `env["A"]`. */
export interface Reference {
  readonly root: Root;
  /** The names behind the root, as far as they are written out. */
  readonly path: readonly string[];
  /** In characters of the expression. */
  readonly start: number;
  readonly end: number;
}

/** What of a definition an expression can see. */
export interface Scope {
  /** What may stand at a place, or why there is none. */
  typeOf(reference: Reference): { readonly schema: JsonSchema } | { readonly fault: Omit<ExpressionFault, "start"> };
}

export interface Expression {
  readonly source: string;
  readonly references: readonly Reference[];
  /** It asks how the steps before it ended, by `always()`, `failure()` or `success()`. */
  readonly asksStatus: boolean;
  /** What kind of value it has, in the words of CEL; `dyn` where that is seen only when it runs. */
  readonly type: string;
}

/** What an expression reads when it runs. */
export interface Values {
  readonly inputs: object;
  readonly steps: object;
  readonly run: object;
  readonly env: object;
  /** Of a step with `foreach`. */
  readonly item?: unknown;
  /** Of a template. */
  readonly vars?: object;
  /** How the steps that this one needs have ended. */
  readonly status: { readonly failed: boolean; readonly met: boolean };
}

export type ExpressionBounds = Pick<
  Limits,
  "expressionCharacters" | "expressionNodes" | "expressionDepth" | "expressionWork"
>;

/** What an `if` can ask of how the steps ended that its step needs. */
export const statusCalls = ["always", "failure", "success"] as const;
/** Methods and functions there are. What the library has beside them is refused: it knows dates by the host's zone, and patterns that never end. */
const METHODS = [
  "size",
  "contains",
  "startsWith",
  "endsWith",
  "indexOf",
  "lastIndexOf",
  "substring",
  "trim",
  "lowerAscii",
  "upperAscii",
  "split",
  "all",
  "exists",
  "exists_one",
  "filter",
  "map",
] as const;
const FUNCTIONS = [
  "size",
  "has",
  "string",
  "int",
  "double",
  "bool",
  "dyn",
  "join",
  "toJson",
  "glob",
  ...statusCalls,
] as const;
/** Those that give a name to each item. */
const NAMING = ["all", "exists", "exists_one", "filter", "map"];

const INSTEAD: { readonly [name: string]: string } = {
  matches: 'Ask with glob(TEXT, "*.md"): * stands for any text, ? for one character.',
  join: 'Write it as join(LIST, ", ").',
  hashFiles: "A step of its own can compute it.",
  cancelled: "A cancelled run starts no step any more.",
};

// --- The language --------------------------------------------------------------------------------------------------------------

/** The library, once somebody wanted it: what only names a workflow does without. */
let library: typeof Cel | null = null;

/** Loads the language. It is there before an expression is checked, and once it is, it stays. */
export async function loadExpressions(): Promise<void> {
  library ??= await import("@marcbachmann/cel-js");
}

/** What is left of the work that the expression may do which is evaluated now. */
const meter = { left: Number.POSITIVE_INFINITY };
/** How the needs of the step ended whose expression is evaluated now. */
let status: Values["status"] = { failed: false, met: true };

const SPENT = new Error("spent");
/** Characters of text, or items of a list, that count as much as one operation. */
const WEIGHT = 64;

function spend(cost: number): void {
  meter.left -= cost;
  if (meter.left < 0) throw SPENT;
}

const weights = new WeakMap<object, number>();
/** About how much there is to read of a value. */
function weightOf(value: unknown): number {
  if (typeof value === "string") return value.length / WEIGHT;
  if (typeof value !== "object" || value === null) return 0;
  const known = weights.get(value);
  if (known !== undefined) return known;
  let weight = 0;
  for (const one of Object.values(value)) weight += 1 / WEIGHT + weightOf(one);
  weights.set(value, weight);
  return weight;
}

/** Whether a text is like a pattern with `*` and `?`; in time with the product of their lengths at worst. */
function isLike(text: string, pattern: string): boolean {
  let at = 0;
  let of = 0;
  let star = -1;
  let kept = 0;
  while (at < text.length) {
    if (pattern[of] === "*") {
      star = of++;
      kept = at;
    } else if (of < pattern.length && (pattern[of] === "?" || pattern[of] === text[at])) {
      at++;
      of++;
    } else if (star !== -1) {
      of = star + 1;
      at = ++kept;
    } else return false;
  }
  while (pattern[of] === "*") of++;
  return of === pattern.length;
}

/** A value of the library as JSON has it. Errors: RangeError for what JSON has not. */
function plain(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (typeof value === "number" && !Number.isFinite(value)) throw new RangeError("a number without end");
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(plain);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw new RangeError("no value of JSON");
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]));
}

interface Nodes {
  run(node: ASTNode, context: unknown): unknown;
}

/** Numbers are JSON's: a whole one written in an expression meets the others as one of them. */
function language(bounds: ExpressionBounds): Environment {
  ensure(library !== null, "the language is loaded before an expression is read");
  const made = new library.Environment({
    unlistedVariablesAreDyn: false,
    homogeneousAggregateLiterals: false,
    limits: { maxAstNodes: bounds.expressionNodes, maxDepth: bounds.expressionDepth },
  });
  type Numbers = bigint | number;
  const arithmetic: readonly (readonly [string, (a: number, b: number) => number])[] = [
    ["+", (a, b) => a + b],
    ["-", (a, b) => a - b],
    ["*", (a, b) => a * b],
    ["/", (a, b) => a / b],
    ["%", (a, b) => a % b],
  ];
  for (const [sign, of] of arithmetic)
    for (const pair of ["int double", "double int"]) {
      const [left, right] = pair.split(" ");
      made.registerOperator(`${left} ${sign} ${right}: double`, (a: Numbers, b: Numbers) => of(Number(a), Number(b)));
    }
  made.registerOperator("double % double", (a: number, b: number) => a % b);
  made.registerOperator("int == double", (a: Numbers, b: Numbers) => Number(a) === Number(b));
  made.registerFunction("join(list<dyn>, string): string", (list: readonly unknown[], between: string) => {
    const texts = list.map((one) => (typeof one === "string" ? one : JSON.stringify(plain(one))));
    spend((texts.reduce((sum, one) => sum + one.length, 0) + between.length * texts.length) / WEIGHT);
    return texts.join(between);
  });
  made.registerFunction("toJson(dyn): string", (value: unknown) => JSON.stringify(plain(value)));
  made.registerFunction("glob(string, string): bool", (text: string, pattern: string) => {
    spend((text.length * (1 + pattern.replaceAll(/[^*]/g, "").length * pattern.length)) / WEIGHT);
    return isLike(text, pattern);
  });
  made.registerFunction("always(): bool", () => true);
  made.registerFunction("failure(): bool", () => status.failed);
  made.registerFunction("success(): bool", () => status.met);
  return made;
}

interface Languages {
  /** Knows the roots by name, and nothing of their types: what runs is read by it. */
  readonly running: Environment;
  /** Knows a name for each type: what is checked is read by it. */
  readonly checking: Environment;
  readonly typeNames: Map<string, string>;
}
const made = new Map<string, Languages>();

function languagesFor(bounds: ExpressionBounds): Languages {
  const key = `${bounds.expressionNodes} ${bounds.expressionDepth}`;
  const known = made.get(key);
  if (known !== undefined) return known;
  const running = language(bounds);
  for (const root of roots) running.registerVariable(root, "dyn");
  // The one that evaluates is handed to whatever has its own way to do so; all that it evaluates goes through its `run`.
  running.registerFunction("meter(ast): bool", () => ({
    typeCheck: (checker: { getType(name: string): unknown }) => checker.getType("bool"),
    evaluate(nodes: Nodes) {
      const run = nodes.run.bind(nodes);
      nodes.run = (node, context) => {
        spend(1);
        const value = run(node, context);
        if (isWeighed.has(node)) spend(weightOf(value));
        return value;
      };
      return true;
    },
  }));
  ensure(running.evaluate("meter(1)") === true, "the work of expressions is counted");
  const languages = { running, checking: language(bounds), typeNames: new Map<string, string>() };
  made.set(key, languages);
  return languages;
}

/** What evaluates an expression that was checked. */
const parsed = new WeakMap<Expression, ParseResult>();
/** Operands whose whole content is read by what they are given to. */
const isWeighed = new WeakSet<ASTNode>();

// --- Reading what is written -----------------------------------------------------------------------------------------------------

const isNode = (value: unknown): value is ASTNode =>
  typeof value === "object" && value !== null && "op" in value && "start" in value;

/** Nodes directly below a node. */
function below(node: ASTNode): readonly ASTNode[] {
  const found: ASTNode[] = [];
  const look = (value: unknown): void => {
    if (isNode(value)) found.push(value);
    else if (Array.isArray(value)) for (const one of value) look(one);
  };
  look(node.args);
  return found;
}

/** Whole numbers in lists and sets of names are numbers as JSON's are: only so do their types meet. */
function asNumbers(node: ASTNode, isListed = false): void {
  if (isListed && node.op === "value" && typeof node.args === "bigint")
    (node as { args: unknown }).args = Number(node.args);
  const lists = node.op === "list" || node.op === "map" || (isListed && node.op === "-_");
  for (const one of below(node)) asNumbers(one, lists);
}

const isRoot = (name: string): name is Root => (roots as readonly string[]).includes(name);

/** The names behind a root, when a node is one with nothing but written names behind it. */
function chainOf(node: ASTNode): { readonly root: string; readonly path: readonly string[] } | null {
  if (node.op === "id") return { root: node.args, path: [] };
  if (node.op !== "." && node.op !== "[]") return null;
  const [of, name] = node.args;
  const chain = chainOf(of);
  if (chain === null) return null;
  const written =
    typeof name === "string" ? name : name.op === "value" && typeof name.args === "string" ? name.args : null;
  return written === null ? null : { root: chain.root, path: [...chain.path, written] };
}

/** A place that is read, and what may stand there. */
interface Read {
  readonly reference: Reference;
  readonly schema: JsonSchema;
}

interface Walk {
  readonly scope: Scope;
  readonly reads: Read[];
  readonly faults: ExpressionFault[];
  readonly calls: Set<string>;
  /** What is typed as one of the reads, in the text that is checked. */
  readonly swaps: { readonly start: number; readonly end: number; type: string }[];
}

function readReference(walk: Walk, node: ASTNode, chain: NonNullable<ReturnType<typeof chainOf>>): JsonSchema {
  const reference: Reference = {
    root: chain.root as Root,
    path: chain.path,
    start: node.start,
    end: node.end,
  };
  const found = walk.scope.typeOf(reference);
  if ("fault" in found) {
    walk.faults.push({ ...found.fault, start: node.start });
    return true;
  }
  walk.reads.push({ reference, schema: found.schema });
  return found.schema;
}

/** Looks at every node. @param named what items are called around here @returns what is known of its value */
function look(walk: Walk, node: ASTNode, named: readonly string[]): JsonSchema {
  const chain = chainOf(node);
  if (chain !== null && !named.includes(chain.root)) {
    if (isRoot(chain.root)) {
      const schema = readReference(walk, node, chain);
      walk.swaps.push({ start: node.start, end: node.end, type: celType(schema) });
      return schema;
    }
    const near = nearest(chain.root, [...RUNNING, ...named]);
    walk.faults.push(
      fault(
        "unknown_name",
        `there is no ${JSON.stringify(chain.root)} here`,
        near === null ? `An expression reads ${RUNNING.join(", ")}; a text stands in quotes.` : `Did you mean ${near}?`,
        node.start,
      ),
    );
    return true;
  }
  if (node.op === "call" || node.op === "rcall") return lookAtCall(walk, node, named);
  if (node.op === "value" && typeof node.args === "object" && node.args !== null)
    walk.faults.push(
      fault(
        "bad_expression",
        `${node.input.slice(node.start, node.end)} is nothing that JSON has`,
        "Write a text or a number.",
        node.start,
      ),
    );
  const found = below(node).map((one) => look(walk, one, named));
  if (node.op === "==" || node.op === "!=") {
    const [left, right] = node.args;
    for (const [of, one, schema] of [
      [left, right, found[0]],
      [right, left, found[1]],
    ] as const) {
      // Whatever a step hands over, there is nothing of it where the step was skipped.
      const swap = one.op === "value" && one.args === null ? walk.swaps.find(({ end }) => end === of.end) : undefined;
      if (swap !== undefined && swap.start === of.start) swap.type = "dyn";
      if (one.op !== "value" || typeof one.args !== "string" || typeof schema !== "object" || of.op === "value")
        continue;
      const values: unknown = schema["enum"];
      if (!Array.isArray(values) || values.includes(one.args)) continue;
      const texts = values.filter((value) => typeof value === "string");
      const near = nearest(one.args, texts);
      walk.faults.push(
        fault(
          "never_equal",
          `${of.input.slice(of.start, of.end)} is never ${JSON.stringify(one.args)}`,
          near === null ? `It is one of ${texts.join(", ")}.` : `Did you mean ${near}?`,
          one.start,
        ),
      );
    }
  }
  if (["==", "!=", "in", "+", "list", "map"].includes(node.op)) for (const one of below(node)) isWeighed.add(one);
  return true;
}

function lookAtCall(
  walk: Walk,
  node: ASTNode & { readonly op: "call" | "rcall" },
  named: readonly string[],
): JsonSchema {
  const [name] = node.args;
  const isMethod = node.op === "rcall";
  const receiver = node.op === "rcall" ? node.args[1] : null;
  const given = node.op === "rcall" ? node.args[2] : node.args[1];
  const known: readonly string[] = isMethod ? METHODS : FUNCTIONS;
  if (!known.includes(name)) {
    const near = nearest(name, known);
    walk.faults.push(
      fault(
        "unknown_function",
        `there is no ${isMethod ? "method" : "function"} ${name}()`,
        Object.hasOwn(INSTEAD, name)
          ? (INSTEAD[name] ?? "")
          : near === null
            ? `There are ${known.join(", ")}.`
            : `Did you mean ${near}?`,
        node.start,
      ),
    );
    return true;
  }
  walk.calls.add(name);
  const [first] = given;
  if (name === "has" && !isMethod && first !== undefined) {
    const chain = chainOf(first);
    if (chain !== null && first.op === "." && isRoot(chain.root) && !named.includes(chain.root)) {
      readReference(walk, first, chain);
      const [of] = first.args;
      walk.swaps.push({ start: of.start, end: of.end, type: "dyn" });
      return true;
    }
  }
  for (const one of [receiver, ...given]) if (one !== null) isWeighed.add(one);
  if (receiver !== null) look(walk, receiver, named);
  const goes = isMethod && NAMING.includes(name);
  if (goes && given.length !== 2 && !(name === "map" && given.length === 3)) {
    walk.faults.push(
      fault(
        "bad_expression",
        `${name}() takes a name for each item, and what is asked of it`,
        `As in LIST.${name}(one, one > 2).`,
        node.start,
      ),
    );
    return true;
  }
  const names = goes && first?.op === "id" ? first.args : null;
  if (names?.startsWith("_") === true)
    walk.faults.push(
      fault(
        "bad_expression",
        `${names} cannot name the items`,
        "Give them a name that begins with a letter.",
        first?.start ?? 0,
      ),
    );
  for (const one of names === null ? given : given.slice(1))
    look(walk, one, names === null ? named : [...named, names]);
  return true;
}

/** A type in the words of CEL. */
function celType(schema: JsonSchema): string {
  const types = typesOf(schema);
  const [only, ...more] = types ?? [];
  if (only === undefined || more.length > 0 || typeof schema === "boolean") return "dyn";
  switch (only) {
    case "string":
      return "string";
    case "integer":
    case "number":
      return "double";
    case "boolean":
      return "bool";
    case "array":
      return `list<${celType((schema["items"] ?? true) as JsonSchema)}>`;
    case "object":
      return "map<string, dyn>";
    case "null":
      return "dyn";
  }
}

/**
 * Holds an expression against what it may read. Nothing is thrown: what is wrong with it are faults, all that can be seen at once.
 * @param source without `${{` and `}}`
 */
export function checkExpression(
  source: string,
  scope: Scope,
  bounds: ExpressionBounds,
): { readonly expression: Expression | null; readonly faults: readonly ExpressionFault[] } {
  const fail = (only: ExpressionFault) => ({ expression: null, faults: [only] });
  if (source.trim() === "") return fail(fault("bad_expression", "the expression is empty", "Write what it reads.", 0));
  if (source.length > bounds.expressionCharacters)
    return fail(
      fault(
        "expression_too_large",
        `an expression has at most ${bounds.expressionCharacters} characters`,
        "Let a step compute it.",
        0,
      ),
    );
  const { running, checking, typeNames } = languagesFor(bounds);
  const walk: Walk = { scope, reads: [], faults: [], calls: new Set(), swaps: [] };
  try {
    const runs = running.parse(source);
    look(walk, runs.ast, []);
    if (walk.faults.length > 0) return { expression: null, faults: walk.faults };
    // What is read is put down as a name of its type, as long as what it stands for: places in it stay what they are.
    let typed = source;
    for (const { start, end, type } of walk.swaps) {
      let name = typeNames.get(type);
      if (name === undefined) {
        name = `_${typeNames.size}`;
        typeNames.set(type, name);
        checking.registerVariable(name, type);
      }
      typed = `${typed.slice(0, start)}${name.padEnd(end - start)}${typed.slice(end)}`;
    }
    const checks = checking.parse(typed);
    asNumbers(checks.ast);
    const checked = checks.check();
    if (!checked.valid) return fail(faultOf(checked.error, source));
    const expression: Expression = {
      source,
      references: walk.reads.map(({ reference }) => reference),
      asksStatus: statusCalls.some((name) => walk.calls.has(name)),
      type: checked.type ?? "dyn",
    };
    parsed.set(expression, runs);
    return { expression, faults: [] };
  } catch (error) {
    return fail(faultOf(error, source));
  }
}

/**
 * The value of an expression that was checked, as JSON has it. Errors: AppError invalid `expression_failed` (what it reads is not
 * there), `wrong_type` (it is of another kind), `expression_too_large` (it does more than `limits.expressionWork`), each saying where.
 */
export function evaluate(expression: Expression, values: Values, bounds: ExpressionBounds): unknown {
  const refuse = ({ code, message, hint, start }: ExpressionFault): AppError =>
    new AppError(
      "invalid",
      code,
      `${expression.source.trim()}: ${message}, at character ${start + 1}`,
      hint === undefined ? {} : { hint },
    );
  const spent: ExpressionFault = fault(
    "expression_too_large",
    `it does more than ${bounds.expressionWork} steps of work`,
    "Let a step compute it.",
    0,
  );
  const known = parsed.get(expression);
  ensure(known !== undefined, "an expression is checked before it is evaluated");
  const { status: _, ...read } = values;
  meter.left = bounds.expressionWork;
  status = values.status;
  try {
    return plain(known({ item: null, vars: {}, ...read }));
  } catch (error) {
    // Whoever has spent it all is refused whatever it does then: no `||` and no `exists` gets over it.
    throw refuse(meter.left < 0 ? spent : faultOf(error, expression.source));
  } finally {
    meter.left = Number.POSITIVE_INFINITY;
  }
}
