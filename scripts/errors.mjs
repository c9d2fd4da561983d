// @ts-check
/**
 * Every error that the sources can make: its code, its kind, and what it says. Found in the text of the sources, so that a new
 * one is in the reference without anybody thinking of it; a way to make one that is not understood here is a fault.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./install.mjs";

/**
 * @typedef {object} Maker a function that makes errors, and where its arguments are
 * @property {string | number} kind itself, or the argument that holds it
 * @property {number} code
 * @property {number} message
 * @property {number} hint an argument with `hint` in it, or the hint itself
 * @property {string} [usual] the code where none is given
 */

/** By the name under which they are called, in the files that begin with a path. @type {readonly (readonly [path: string, name: string, maker: Maker])[]} */
const MAKERS = [
  ["", "new AppError", { kind: 0, code: 1, message: 2, hint: 3 }],
  ["", "badInput", { kind: "invalid", code: 3, message: 1, hint: 2, usual: "bad_input" }],
  ["ops/", "checkWith", { kind: "invalid", code: 3, message: 99, hint: 4, usual: "bad_input" }],
  ["core/", "problem", { kind: "invalid", code: 0, message: 1, hint: 2 }],
  ["core/workflow/step-check.ts", "say", { kind: "invalid", code: 0, message: 1, hint: 2 }],
  ["core/workflow/scope.ts", "unknown", { kind: "invalid", code: 2, message: 0, hint: 1, usual: "unknown_name" }],
  ["core/workflow/definition.ts", "because", { kind: "invalid", code: 0, message: 99, hint: 1 }],
  ["core/workflow/expression", "fault", { kind: "invalid", code: 0, message: 1, hint: 2 }],
  ["store/loops.ts", "conflict", { kind: "conflict", code: 0, message: 1, hint: 2 }],
  ["ops/data/bundle.ts", "refuse", { kind: "invalid", code: 0, message: 2, hint: 3 }],
  ["ops/declared/", "badDeclaration", { kind: 1, code: 99, message: 99, hint: 99, usual: "bad_declaration" }],
  ["ops/declared/declared-text.ts", "problem", { kind: "invalid", code: 0, message: 1, hint: 2 }],
  ["store/replace.ts", "notACopy", { kind: "invalid", code: 0, message: 1, hint: 2 }],
];

/** Where an error is passed on as it came, or made by one of the makers above. */
const PASSED_ON = /^(kind|code|error|known|wrong|fault)(\??\.(kind|code))?$/;

/** The arguments of a call. @param {string} text @param {number} open where its parenthesis is @returns {string[]} */
function argumentsAt(text, open) {
  /** @type {string[]} */
  const found = [];
  let depth = 0;
  let start = open + 1;
  for (let index = open; index < text.length; index++) {
    const letter = text[index] ?? "";
    if (letter === '"' || letter === "'" || letter === "`") index = endOfText(text, index);
    else if (letter === "/" && text[index + 1] === "/") index = text.indexOf("\n", index);
    else if ("([{".includes(letter)) depth += 1;
    else if (")]}".includes(letter)) {
      depth -= 1;
      if (depth === 0) return [...found, text.slice(start, index).trim()].filter((one) => one !== "");
    } else if (letter === "," && depth === 1) {
      found.push(text.slice(start, index).trim());
      start = index + 1;
    }
  }
  throw new Error(`a parenthesis is not closed: ${text.slice(open, open + 80)}`);
}

/** Where a text that begins here ends. @param {string} text @param {number} at @returns {number} */
function endOfText(text, at) {
  const quote = text[at];
  for (let index = at + 1; index < text.length; index++) {
    if (text[index] === "\\") index += 1;
    else if (text[index] === quote) return index;
    else if (quote === "`" && text.startsWith("${", index)) {
      let depth = 0;
      for (index += 1; index < text.length; index++) {
        const letter = text[index] ?? "";
        if (letter === '"' || letter === "'" || letter === "`") index = endOfText(text, index);
        else if (letter === "{") depth += 1;
        else if (letter === "}" && --depth === 0) break;
      }
    }
  }
  return text.length;
}

/** The texts that an expression may be: of a choice between several all. @param {string} expression @returns {string[]} */
function textsOf(expression) {
  /** @type {string[]} */
  const found = [];
  let depth = 0;
  for (let index = 0; index < expression.length; index++) {
    const letter = expression[index] ?? "";
    if (letter === '"' || letter === "'" || letter === "`") {
      const end = endOfText(expression, index);
      if (depth === 0) found.push(readText(expression.slice(index, end + 1)));
      index = end;
    } else if ("([{".includes(letter)) depth += 1;
    else if (")]}".includes(letter)) depth -= 1;
  }
  return found;
}

/** A text as people read it; what is put into it is an ellipsis. @param {string} literal */
function readText(literal) {
  let text = "";
  const inner = literal.slice(1, -1);
  for (let index = 0; index < inner.length; index++) {
    if (inner[index] === "\\") text += inner[++index] === "n" ? " " : inner[index];
    else if (literal.startsWith("`") && inner.startsWith("${", index)) {
      const all = `\`${inner}\``;
      let depth = 0;
      let at = index + 1;
      for (; at < all.length - 1; at++) {
        const letter = inner[at] ?? "";
        if (letter === '"' || letter === "'" || letter === "`") at = endOfText(inner, at);
        else if (letter === "{") depth += 1;
        else if (letter === "}" && --depth === 0) break;
      }
      text += "...";
      index = at;
    } else text += inner[index];
  }
  return text;
}

/** The hint of an argument: itself, or what stands under `hint` in an object. @param {string} argument */
function hintOf(argument) {
  if (!argument.startsWith("{")) return textsOf(argument)[0] ?? null;
  const at = /(?:^|[{,\s])hint:\s*/.exec(argument);
  if (at === null) return null;
  const rest = argument.slice(at.index + at[0].length);
  return textsOf(argumentsAt(`(${rest.replace(/\}\s*$/, "")})`, 0)[0] ?? "")[0] ?? null;
}

/**
 * @typedef {object} Saying
 * @property {string} message
 * @property {string | null} hint
 */

/**
 * @returns {{ codes: Map<string, Map<string, Saying[]>>, puzzles: string[] }} sayings by code and kind; what was not understood
 */
export function findErrors() {
  const source = join(root, "src");
  /** @type {Map<string, Map<string, Saying[]>>} */
  const codes = new Map();
  /** @type {string[]} */
  const puzzles = [];
  const files = readdirSync(source, { recursive: true, encoding: "utf8" }).filter((file) =>
    /(?<!\.test|\.contract)\.ts$/.test(file),
  );
  for (const file of files.toSorted()) {
    // Comments name errors too.
    const text = readFileSync(join(source, file), "utf8").replace(/\/\*[^]*?\*\//g, "");
    for (const [path, name, maker] of MAKERS) {
      if (!file.startsWith(path)) continue;
      const pattern = new RegExp(`(?<![\\w.]|function |const )${name}(?:<[^>]*>)?\\(`, "g");
      for (const { 0: call, index } of text.matchAll(pattern)) {
        const given = argumentsAt(text, index + call.length - 1);
        const code = given[maker.code];
        const kind = typeof maker.kind === "string" ? maker.kind : (given[maker.kind] ?? "");
        if (code !== undefined && PASSED_ON.test(code)) continue;
        const found =
          code === undefined
            ? [maker.usual ?? ""]
            : textsOf(code).filter((one) => /^[a-z0-9.]+(_[a-z0-9.]+)*$/.test(one));
        const kinds = typeof maker.kind === "string" ? [maker.kind] : textsOf(kind);
        if (found.length === 0 || found[0] === "" || (kinds.length === 0 && !PASSED_ON.test(kind))) {
          if (!(code ?? "").includes(".code")) puzzles.push(`${file}: ${call}${given.join(", ").slice(0, 120)}`);
          continue;
        }
        const saying = { message: textsOf(given[maker.message] ?? "")[0] ?? "", hint: hintOf(given[maker.hint] ?? "") };
        for (const one of found.flatMap(spelled))
          for (const of of kinds.length === 0 ? ["invalid"] : kinds) {
            const byKind = codes.get(one) ?? new Map();
            codes.set(one, byKind.set(of, [...(byKind.get(of) ?? []), saying]));
          }
      }
    }
  }
  return { codes, puzzles };
}

/** Codes that are put together: of a loop and of a run. @param {string} code @returns {string[]} */
const spelled = (code) => (code === "..._not_found" ? ["loop_not_found", "run_not_found"] : [code]);
