/** Reads sources for their guards: conditions of statements, refusals in code, what a state table does not list. */
import { parseAst } from "vitest/node";
import { conditionsOf } from "./conditions.ts";

export interface Guard {
  /** `<file>#<number>`; the number is that of its place in the file. */
  readonly id: string;
  readonly kind: "condition" | "conflict" | "refusal" | "transition";
  readonly line: number;
  /** The statement, the function or the table it guards. */
  readonly of: string;
  /** What is removed. */
  readonly text: string;
}

/** A source in which each guard can be taken out at run time, by the switch of `switch.ts`. */
export interface Guarded {
  readonly guards: readonly Guard[];
  readonly code: string;
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

const isNode = (value: unknown): value is Node =>
  typeof value === "object" && value !== null && typeof (value as Node).type === "string";

function childrenOf(node: Node): Node[] {
  return Object.values(node)
    .flatMap((value) => (Array.isArray(value) ? (value as unknown[]) : [value]))
    .filter(isNode)
    .toSorted((a, b) => a.start - b.start);
}

/** Fields of records and columns of rows that say who may write, or in which state something is. */
const STATE =
  /^(?:token|status|finished_?at|incarnation|planned_?until|revision|lease_?until|owner_?step_?id|live_?attempt_?id|live|cleared_?at|archived_?at|waits_?turn|cancel_?requested_?at|hooks_?due|wake_?at|until_?at|enabled|paused_?at|ending_?since|adopted|host_?id|host_?pin|digest|definition_?digest|managed_?by|source|refused|state|late)$/i;

const wordsOf = (text: string): readonly string[] => text.match(/[A-Za-z_][A-Za-z0-9_]*/g) ?? [];
const speaksOfState = (text: string): boolean => wordsOf(text).some((word) => STATE.test(word));

/** Whether a branch does nothing but refuse: it throws, or answers with a word or with nothing. */
function refuses(branch: Node): boolean {
  const body = branch.type === "BlockStatement" ? (branch["body"] as Node[]) : [branch];
  const last = body.at(-1);
  if (last === undefined) return false;
  if (last.type === "ThrowStatement") return true;
  if (last.type !== "ReturnStatement" || !isNode(last["argument"])) return false;
  const answer = last["argument"];
  return answer.type === "Literal" && (typeof answer["value"] === "string" || answer["value"] === null);
}

/** Whether a branch leaves what it stands in. */
function leaves(branch: Node): boolean {
  const last = branch.type === "BlockStatement" ? (branch["body"] as Node[]).at(-1) : branch;
  return last !== undefined && /^(?:Throw|Return|Continue|Break)Statement$/.test(last.type);
}

const isWord = (node: Node): boolean => node.type === "Literal" && typeof node["value"] === "string";
const isNothing = (node: Node): boolean => node.type === "Literal" && node["value"] === null;

/** Whether a choice is between a refusal's word and nothing. */
function answers(node: Node): boolean {
  const [yes, no] = [node["consequent"] as Node, node["alternate"] as Node];
  return (isWord(yes) && isNothing(no)) || (isNothing(yes) && isWord(no));
}

const operandsOf = (node: Node): Node[] =>
  node.type === "LogicalExpression" && node["operator"] === "||"
    ? [...operandsOf(node["left"] as Node), ...operandsOf(node["right"] as Node)]
    : [node];

const nameOf = (key: unknown): string =>
  isNode(key) ? String(key.type === "Identifier" ? key["name"] : key["value"]) : "";

const plain = (text: string): string => text.replace(/\s+/g, " ").trim();

/** The properties of an object's literal, those of literals that it spreads included. */
function propertiesOf(object: Node, objects: ReadonlyMap<string, Node>): [string, Node][] {
  return (object["properties"] as Node[]).flatMap((property): [string, Node][] => {
    if (property.type !== "SpreadElement") return [[nameOf(property["key"]), property["value"] as Node]];
    const spread = objects.get(nameOf(property["argument"]));
    return spread === undefined ? [] : propertiesOf(spread, objects);
  });
}

const bare = (node: Node): Node =>
  /^TS(?:As|Satisfies)Expression$/.test(node.type) ? bare(node["expression"] as Node) : node;

/** @param file the name that ids begin with */
export function findGuards(file: string, source: string): Guarded {
  const guards: Guard[] = [];
  const objects = new Map<string, Node>();
  const lineAt = (at: number): number => source.slice(0, at).split("\n").length;
  const add = (kind: Guard["kind"], at: number, of: string, text: string): string => {
    const id = `${file}#${guards.length + 1}`;
    guards.push({ id, kind, line: lineAt(at), of: plain(of), text: plain(text) });
    return `__guards.without(${JSON.stringify(id)})`;
  };

  /** The text of a node with its guards made removable. */
  function textOf(node: Node, within: string): string {
    switch (node.type) {
      case "TaggedTemplateExpression":
        if (nameOf(node["tag"]) === "sql") return statement(node, within);
        break;
      case "IfStatement": {
        const test = node["test"] as Node;
        const branch = node["consequent"] as Node;
        const words = source.slice(test.start, test.end);
        if (
          (refuses(branch) && (file.startsWith("store/") || speaksOfState(words))) ||
          (leaves(branch) && speaksOfState(words))
        )
          return refusal(node, within);
        break;
      }
      case "ConditionalExpression":
        if (answers(node) && speaksOfState(source.slice(node.start, node.end))) return choice(node, within);
        break;
      case "CallExpression":
        // What a count says of a write that compares: it held what it was to hold.
        if (nameOf(node["callee"]) === "ensure" && /\bchanged\b/.test(source.slice(node.start, node.end)))
          return assertion(node, within);
        break;
      case "FunctionDeclaration":
        return inFunction(node, nameOf(node["id"]));
      case "FunctionExpression":
      case "ArrowFunctionExpression":
        return inFunction(node, within);
      case "VariableDeclarator": {
        within = within === "" ? nameOf(node["id"]) : within;
        const init = isNode(node["init"]) ? bare(node["init"]) : null;
        if (init?.type !== "ObjectExpression") break;
        objects.set(nameOf(node["id"]), init);
        if (/^[a-z]+Table$/.test(nameOf(node["id"]))) return table(node, init);
        break;
      }
    }
    return splice(node, childrenOf(node), (child) => textOf(child, within));
  }

  /** What stands outside of functions is made once, and has to be asked for each time that it is used. */
  let depth = 0;
  function inFunction(node: Node, within: string): string {
    depth++;
    const text = splice(node, childrenOf(node), (child) => textOf(child, within));
    depth--;
    return text;
  }

  function splice(node: Node, parts: readonly Node[], text: (part: Node) => string): string {
    let done = node.start;
    let out = "";
    for (const part of parts) {
      if (part.start < done) continue; // a shorthand's key and value are one text
      out += source.slice(done, part.start) + text(part);
      done = part.end;
    }
    return out + source.slice(done, node.end);
  }

  function refusal(node: Node, within: string): string {
    const operands = operandsOf(node["test"] as Node);
    const switches = new Map(
      operands.map((operand) => [
        operand,
        add("refusal", operand.start, within, source.slice(operand.start, operand.end)),
      ]),
    );
    const rewritten = (part: Node): string => {
      const held = switches.get(part);
      if (held !== undefined) return `(${held} ? false : (${textOf(part, within)}))`;
      return splice(part, childrenOf(part), rewritten);
    };
    return splice(node, childrenOf(node), (child) =>
      child === node["test"] ? rewritten(child) : textOf(child, within),
    );
  }

  /** `refused ? "word" : null`, either way round: taken out, it is never refused. */
  function choice(node: Node, within: string): string {
    const test = node["test"] as Node;
    const held = add("refusal", node.start, within, source.slice(node.start, node.end));
    const free = isNothing(node["alternate"] as Node) ? "false" : "true";
    return splice(node, childrenOf(node), (child) =>
      child === test ? `(${held} ? ${free} : (${textOf(child, within)}))` : textOf(child, within),
    );
  }

  function assertion(node: Node, within: string): string {
    const [condition] = node["arguments"] as Node[];
    if (condition === undefined) return source.slice(node.start, node.end);
    const held = add("refusal", node.start, within, source.slice(node.start, node.end));
    return splice(node, childrenOf(node), (child) =>
      child === condition ? `${held} || (${textOf(child, within)})` : textOf(child, within),
    );
  }

  function statement(node: Node, within: string): string {
    const quasi = node["quasi"] as Node;
    const strings = (quasi["quasis"] as Node[]).map((one) => (one["value"] as { raw: string }).raw);
    const parts = quasi["expressions"] as Node[];
    const words = parts.map((part) => source.slice(part.start, part.end));
    const found = conditionsOf(strings, words);
    const guarded = found.conditions.filter(
      ({ kind, text }) => kind === "conflict" || found.guarded || speaksOfState(text),
    );
    const whole = words.reduce((text, word, i) => `${text}\${${word}}${strings[i + 1]}`, strings[0] ?? "");
    const switches = guarded.map(({ kind, text }) => add(kind, node.start, whole, text));
    const inner = parts.map((part) => textOf(part, within));
    const template = (of: readonly string[], which: readonly number[]): string =>
      `sql\`${which.reduce((text, part, i) => `${text}\${${inner[part]}}${of[i + 1]}`, of[0] ?? "")}\``;
    const original = template(
      strings,
      parts.map((_, i) => i),
    );
    if (guarded.length === 0) return original;
    const branches = guarded.map((one, i) => `${switches[i]} ? ${template(one.rest.strings, one.rest.parts)} : `);
    const chosen = `${branches.join("")}${original}`;
    return depth === 0 ? `__guards.each(() => ${chosen})` : `(${chosen})`;
  }

  /** A table answers for each pair that it does not list as its event does elsewhere. */
  function table(node: Node, object: Node): string {
    const name = nameOf(node["id"]);
    const states = (object["properties"] as Node[]).map(
      (state) => [nameOf(state["key"]), new Map(propertiesOf(bare(state["value"] as Node), objects))] as const,
    );
    const becomes = new Map(
      states.flatMap(([, events]) => [...events].map(([event, to]) => [event, String(to["value"])])),
    );
    const more = states.flatMap(([state, events]) =>
      [...becomes].flatMap(([event, to]) => {
        if (events.has(event)) return [];
        add("transition", node.start, name, `${state} refuses ${event}`);
        return [[guards.at(-1)?.id, state, event, to]];
      }),
    );
    return `${name} = __guards.table(${source.slice(object.start, object.end)}, ${JSON.stringify(more)})`;
  }

  const program = parseAst(source, { lang: "ts" }, file) as unknown as Node;
  const code = splice({ ...program, start: 0, end: source.length }, childrenOf(program), (child) => textOf(child, ""));
  return { guards, code: `const __guards = globalThis[Symbol.for("drover.guards")];${code}` };
}
