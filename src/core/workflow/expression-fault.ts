/** What is wrong with an expression, in words for people: the library's errors, told as ours. */
import type { Problem } from "../errors.ts";

/** What is wrong with an expression, and where in it. */
export interface ExpressionFault extends Pick<Problem, "code" | "message" | "hint"> {
  /** In characters of the expression. */
  readonly start: number;
}

export const fault = (code: string, message: string, hint: string | undefined, start: number): ExpressionFault => ({
  code,
  message,
  ...(hint === undefined ? {} : { hint }),
  start,
});

const KINDS: readonly (readonly [RegExp, string])[] = [
  [/\bmap<.*>|\bmap\b/g, "an object"],
  [/\blist<.*>|\blist\b/g, "a list"],
  [/\bstring\b/g, "text"],
  [/\b(?:double|int|uint)\b/g, "a number"],
  [/\bbool\b/g, "true or false"],
  [/\bnull\b/g, "nothing"],
  [/\bdyn\b/g, "any value"],
];
/** A type of CEL for people. */
export const kindOf = (type: string): string =>
  KINDS.reduce((text, [of, word]) => text.replaceAll(of, word), type.replace(/^dyn<(.*)>$/, "$1"));

const CONVERT = "string(X) makes text of a value, double(X) a number of text.";
const ASK = "Ask for what may be missing with has().";
const LEARN = "docs/guide/workflows.md says what an expression may be; a text in it stands in quotes.";

/** The type that a saying of the library ends with. */
const gotIn = (summary: string): string => kindOf(/got '(.*)'$/.exec(summary)?.[1] ?? "any value");

/** Says each error of the library by its code. @param here the text of the part that it is about */
const SAYINGS: {
  readonly [code: string]: (summary: string, here: string) => readonly [message: string, hint: string];
} = {
  unexpected_token: (_, here) => [here === "" ? "it ends in the middle" : `${here} cannot stand here`, LEARN],
  expected_token: (_, here) => [here === "" ? "it ends in the middle" : `${here} cannot stand here`, LEARN],
  unexpected_character: (_, here) => [`${here} cannot stand here`, LEARN],
  reserved_identifier: (_, here) => [`${here} is a word of the language`, 'Write it as a text, as in steps["if"].'],
  unterminated_string: () => ["a text in it does not end", "Close its quote."],
  unterminated_triple_quoted_string: () => ["a text in it does not end", "Close its quotes."],
  newline_in_string: () => ["a text in it goes over the end of the line", "Write the line end as \\n."],
  limit_exceeded: (summary) => [`it is too large: ${LIMITED(summary)}`, "Let a step compute it."],
  no_such_overload(summary) {
    const [, left = "", sign = "", right = ""] =
      /^no such overload: (.+) (==|!=|in|[-+*/%]|[<>]=?) (.+)$/.exec(summary) ?? [];
    const alone = /^no such overload: ([!-])(.*)$/.exec(summary);
    return alone === null
      ? [`${sign} does not fit ${kindOf(left)} and ${kindOf(right)}`, CONVERT]
      : [`${alone[1]} does not fit ${kindOf(alone[2] ?? "")}`, CONVERT];
  },
  no_matching_overload(summary) {
    const [, of = "", name = "", given = ""] = /for '(?:(.*)\.)?(\w+)\((.*)\)'/.exec(summary) ?? [];
    if (given === "") return [of === "" ? `${name}() takes something` : `${kindOf(of)} has no ${name}()`, LEARN];
    const types = given.split(/, (?![^<]*>)/).map(kindOf);
    return [`${name}()${of === "" ? "" : ` of ${kindOf(of)}`} does not take ${types.join(" and ")}`, CONVERT];
  },
  invalid_condition_type: (summary) => [
    `what decides must be true or false, not ${gotIn(summary)}`,
    'Compare it, as in ... != "".',
  ],
  invalid_logical_operand: (summary) => [
    `&& and || join what is true or false, not ${gotIn(summary)}`,
    'Compare it, as in ... != "".',
  ],
  incompatible_ternary_branches(summary) {
    const [, one = "", other = ""] = /got '(.*)' and '(.*)'$/.exec(summary) ?? [];
    return [`what stands around : must be of one kind, not ${kindOf(one)} and ${kindOf(other)}`, CONVERT];
  },
  cannot_index_type: (summary) => [`${kindOf(/'(.*)'/.exec(summary)?.[1] ?? "")} has no parts`, "Read it as it is."],
  invalid_index_type: (summary) => [`an item of a list is named by a number, not ${gotIn(summary)}`, "As in LIST[0]."],
  invalid_comprehension_range: () => ["what is gone through must be a list or an object", "Read a list."],
  invalid_macro_argument: (summary) =>
    summary.startsWith("has(")
      ? ["has() asks for a name behind another", "As in has(steps.fix.output.files)."]
      : ["the first thing in it names the items", "As in LIST.filter(one, one > 2)."],
  no_such_key: (summary) => [`there is no ${summary.replace(/^No such key: /, "")}`, ASK],
  index_out_of_bounds: (summary) => {
    const [, at = "", size = ""] = /index (\S+) >= size (\d+)/.exec(summary) ?? [];
    return [`there is no item ${at}: the list has ${size}`, "Ask with size()."];
  },
  numeric_overflow: () => ["a number in it is too large", "Whole numbers go up to 9223372036854775807."],
  invalid_number: (_, here) => [`${here} is no number`, "Write it as 12 or 1.5."],
  bool_conversion_error: () => ["bool() is given what is not true or false", "It takes true and false."],
  double_conversion_error: () => ["double() is given what is no number", "It takes a text such as 1.5."],
  int_conversion_error: () => ["int() is given what is no whole number", "It takes a text such as 12."],
  unsupported_type: () => ["a value has a key named constructor, and cannot be read", "Give the key another name."],
  division_by_zero: () => ["a number is divided by 0", "Ask before, as in N == 0 ? 0 : 10 / N."],
  modulo_by_zero: () => ["a number is divided by 0", "Ask before, as in N == 0 ? 0 : 10 % N."],
};

const LIMITED = (summary: string): string => {
  const [, limit = "", most = ""] = /(\w+) \((\d+)\)/.exec(summary) ?? [];
  return limit === "maxDepth" ? `more than ${most} parts in one another` : `more than ${most} parts`;
};

/** What the library throws. Its classes are not asked for: whoever says what went wrong need not have loaded it. */
interface LibraryError extends Error {
  readonly name: "ParseError" | "TypeError" | "EvaluationError";
  readonly code: string;
  readonly summary: string;
  readonly range?: { readonly start: number; readonly end: number };
}
const isOfLibrary = (error: unknown): error is LibraryError =>
  error instanceof Error && "summary" in error && "code" in error;

/** An error of the library, or of what it calls, as a fault. @param source that was read */
export function faultOf(error: unknown, source: string): ExpressionFault {
  if (isOfLibrary(error)) {
    const { code: of, summary, range } = error;
    const start = Math.min(range?.start ?? 0, source.length);
    const said = Object.hasOwn(SAYINGS, of) ? SAYINGS[of] : undefined;
    const [message, hint] = said?.(summary, source.slice(start, range?.end).trim()) ?? [
      kindOf(`${summary.charAt(0).toLowerCase()}${summary.slice(1)}`),
      LEARN,
    ];
    if (of === "limit_exceeded") return fault("expression_too_large", message, hint, start);
    if (error.name === "ParseError") return fault("bad_expression", message, hint, start);
    const isOfKind = error.name === "TypeError" || /overload|(?<!unsupported)_type$|operand|branches/.test(of);
    return isOfKind
      ? fault("wrong_type", message, hint, start)
      : fault("expression_failed", `it has no value: ${message}`, hint, start);
  }
  const isDeep = error instanceof RangeError && /call stack/i.test(error.message);
  if (isDeep) return fault("expression_too_large", "it is nested too deep", "Let a step compute it.", 0);
  const message = error instanceof Error ? error.message : String(error);
  return fault("expression_failed", `it has no value: ${message}`, ASK, 0);
}
