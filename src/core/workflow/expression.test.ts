import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { AppError } from "../errors.ts";
import type { JsonSchema } from "../json-schema.ts";
import { defaultLimits } from "../limits.ts";
import {
  checkExpression,
  evaluate,
  type Expression,
  loadExpressions,
  type Reference,
  type Values,
} from "./expression.ts";

beforeAll(loadExpressions);

const SCHEMAS: { readonly [name: string]: JsonSchema } = {
  text: { type: "string" },
  count: { type: "integer" },
  on: { type: "boolean" },
  names: { type: "array", items: { type: "string" } },
  verdict: { enum: ["accept", "reject"] },
};
const scope = {
  typeOf: ({ root, path }: Reference) => ({ schema: root === "inputs" ? (SCHEMAS[path[0] ?? ""] ?? true) : true }),
};
const values: Values = {
  inputs: { text: "a b", count: 3, on: true, names: ["p", "q"], verdict: "accept" },
  steps: { fix: { status: "succeeded", exitCode: 2, output: { files: ["x.ts", "y.ts"], n: 1.5, none: null } } },
  run: { id: "r" },
  env: { A: "1" },
  item: { k: [1, 2, 3] },
  status: { failed: true, met: false },
};

function check(source: string, limits = defaultLimits): Expression {
  const { expression, faults } = checkExpression(source, scope, limits);
  expect(faults).toEqual([]);
  return expression as Expression;
}
const valueOf = (source: string): unknown => evaluate(check(source), values, defaultLimits);
const codesOf = (source: string): readonly string[] =>
  checkExpression(source, scope, defaultLimits).faults.map(({ code }) => code);

test.each<[source: string, value: unknown]>([
  ["inputs.text", "a b"],
  [" inputs.text\n", "a b"],
  ["inputs.count + 1", 4],
  ["1 + inputs.count", 4],
  ["inputs.count / 2", 1.5],
  ["inputs.count % 2 == 1", true],
  ["steps.fix.exitCode != 0", true],
  ["steps.fix.output.n + 1", 2.5],
  ["steps.fix.exitCode in [1, 2]", true],
  ["size(inputs.names)", 2],
  ["inputs.names.size() == 2", true],
  ["inputs.count in [3, 4]", true],
  ['steps["fix"].output["files"][0]', "x.ts"],
  ["steps.fix.output.files.filter(one, one.startsWith('x'))", ["x.ts"]],
  ["item.k.map(item, item * 2)", [2, 4, 6]],
  ['join(inputs.names, ", ")', "p, q"],
  ["toJson(steps.fix.output)", '{"files":["x.ts","y.ts"],"n":1.5,"none":null}'],
  ['{"a": [1, "b", null]}', { a: [1, "b", null] }],
  ["steps.fix.output", { files: ["x.ts", "y.ts"], n: 1.5, none: null }],
  ["has(steps.fix.output.zz)", false],
  ["has(steps.fix.output.zz) ? steps.fix.output.zz : null", null],
  ["steps.fix.output.none == null", true],
  ["null != steps.fix.output.none", false],
  ["inputs.count == null || inputs.names != null && null != inputs.text", true],
  ['glob("src/a.test.ts", "src/*.test.??")', true],
  ['glob("src/a.ts", "*.test.ts")', false],
  ["always() && failure() && !success()", true],
  ['inputs.verdict == "accept"', true],
  ['env.A + "x"', "1x"],
])("%s", (source, value) => {
  expect(valueOf(source)).toEqual(value);
});

test.each<[source: string, code: string]>([
  ["", "bad_expression"],
  ["1 +", "bad_expression"],
  ['"abc', "bad_expression"],
  ["nothing", "unknown_name"],
  ["my.output", "unknown_name"],
  ['inputs.text.matches("(a+)+$")', "unknown_function"],
  ['cel.bind(x, "a", x + x)', "unknown_function"],
  ['timestamp("2027-01-01T00:00:00Z").getHours()', "unknown_function"],
  ["inputs.names.map(_0, _0)", "bad_expression"],
  ["inputs.text + 1", "wrong_type"],
  ["inputs.on && inputs.text", "wrong_type"],
  ['inputs.count == "3"', "wrong_type"],
  ["inputs.on ? 1 : 'a'", "wrong_type"],
  ["inputs.text[0]", "wrong_type"],
  ["inputs.names.all(one, one)", "wrong_type"],
  ['inputs.verdict == "acept"', "never_equal"],
  ['"acept" != inputs.verdict', "never_equal"],
  [`${"(".repeat(60)}1${")".repeat(60)}`, "expression_too_large"],
  ["1+".repeat(1_000) + "1", "expression_too_large"],
  [`"${"x".repeat(20_000)}"`, "expression_too_large"],
])("refused before anything runs: %s", (source, code) => {
  expect(codesOf(source)).toEqual([code]);
});

test("all that is wrong is told, each with its place", () => {
  const { faults } = checkExpression("one + inputs.text.two() + three()", scope, defaultLimits);
  expect(faults.map(({ code, start }) => [code, start])).toEqual([
    ["unknown_name", 0],
    ["unknown_function", 6],
    ["unknown_function", 26],
  ]);
});

test("what it reads is known, with the place of each", () => {
  const { references, asksStatus } = check(
    'has(steps.fix.output.x) && steps["fix"].exitCode == 0 && item.k.exists(q, q == 1)',
  );
  expect(references.map(({ root, path }) => [root, path])).toEqual([
    ["steps", ["fix", "output", "x"]],
    ["steps", ["fix", "exitCode"]],
    ["item", ["k"]],
  ]);
  expect(asksStatus).toBe(false);
  expect(check("failure()").asksStatus).toBe(true);
});

describe("what it runs into", () => {
  const refusal = (source: string, given = values): AppError => {
    try {
      evaluate(check(source), given, defaultLimits);
    } catch (error) {
      if (error instanceof AppError) return error;
      throw error;
    }
    throw new Error("it has a value");
  };

  test.each(["steps.fix.output.zz", "item.k[7]", "item.k.zz", "steps.fix.output.none.x", "1 / 0", "1.0 / 0.0"])(
    "%s has no value, and says where",
    (source) => {
      const { code, message } = refusal(source);
      expect(code).toBe("expression_failed");
      expect(message).toMatch(/at character \d+$/);
    },
  );

  test("a value of another kind than its place takes is one, when it runs too", () => {
    expect(refusal("item.k + 1").code).toBe("wrong_type");
  });

  test.each(["__proto__", "prototype", "toString", "hasOwnProperty"])("%s is no more than any name", (name) => {
    expect(refusal(`steps.fix.output.${name}`).code).toBe("expression_failed");
    expect(valueOf(`has(steps.fix.output.${name})`)).toBe(false);
    const own = { ...values, item: JSON.parse(`{"${name}": 1}`) as unknown };
    expect(evaluate(check(`item["${name}"]`), own, defaultLimits)).toBe(1);
  });

  test("`constructor` is the one name that a value cannot have to be read", () => {
    expect(refusal("steps.fix.output.constructor").code).toBe("expression_failed");
    const own = { ...values, item: { constructor: 1 } };
    expect(refusal("item.constructor", own).code).toBe("expression_failed");
  });

  const many = { ...values, item: { list: Array.from({ length: 2_000 }, (_, i) => i), text: "x".repeat(500_000) } };
  test.each([
    "item.list.map(a, item.list.map(b, a + b)).size()",
    "item.list.exists(a, item.list.exists(b, item.list.exists(c, a + b + c < 0)))",
    "item.list.all(a, item.list.exists(b, b < 0) || true)",
    "join(item.list, item.text).size()",
    "item.list.map(a, item.text + item.text)",
    "item.list.exists(a, item.list.map(b, b) == [a])",
    'item.list.exists(a, glob(item.text, "*x*x*x*y"))',
    `glob(item.text, "*${"x".repeat(2_000)}y")`,
    "item.list.map(a, item.list.map(b, b)) == [] || true",
    "item.list.exists(a, item.list.map(b, b) == []) || true",
  ])("its work has an end: %s", (source) => {
    expect(refusal(source, many).code).toBe("expression_too_large");
  });

  test("one expression's work is not counted for the next", () => {
    refusal("item.list.map(a, item.list.map(b, a + b)).size()", many);
    expect(valueOf("inputs.text")).toBe("a b");
    expect(evaluate(check("item.list.map(a, a + 1).size()"), many, defaultLimits)).toBe(2_000);
  });
});

/** Words of the library, which nobody reads. */
const LIBRARY =
  /[Oo]verload|[Ee]xpected|[Tt]oken|\bdyn\b|\bdouble\b(?!\()|[A-Z]{5}|\w<|[Mm]acro|[Pp]redicate|[Tt]ernary|undefined/;

test.each<[source: string, message: string]>([
  ["1 +", "it ends in the middle"],
  ["1 2", "2 cannot stand here"],
  ["a # b", "# cannot stand here"],
  ["'abc", "a text in it does not end"],
  ["1e999", "1e999 is no number"],
  ["if", "if is a word of the language"],
  ["b'a'", "b'a' is nothing that JSON has"],
  [`${"(".repeat(60)}1${")".repeat(60)}`, "it is too large: more than 50 parts in one another"],
  [`[${"1,".repeat(1_200)}1]`, "it is too large: more than 1000 parts"],
  ["inputs.text + 1", "+ does not fit text and a number"],
  ["inputs.names == {'a': 1}", "== does not fit a list and an object"],
  ["!inputs.text", "! does not fit text"],
  ["size(inputs.count)", "size() does not take a number"],
  ["inputs.count.size()", "a number has no size()"],
  ["inputs.text.contains(1)", "contains() of text does not take a number"],
  ["inputs.text ? 1 : 2", "what decides must be true or false, not text"],
  ["inputs.on && inputs.count", "&& and || join what is true or false, not a number"],
  ["inputs.on ? 1 : 'a'", "what stands around : must be of one kind, not a number and text"],
  ["inputs.text[0]", "text has no parts"],
  ["inputs.names[inputs.text]", "an item of a list is named by a number, not text"],
  ["inputs.text.all(a, a)", "what is gone through must be a list or an object"],
  ["inputs.names.all(a)", "all() takes a name for each item, and what is asked of it"],
  ["inputs.names.map(1, 2)", "the first thing in it names the items"],
  ["has(1)", "has() asks for a name behind another"],
])("what is wrong is said in words for people: %s", (source, message) => {
  const { faults } = checkExpression(source, scope, defaultLimits);
  expect(faults.map((fault) => fault.message)).toEqual([message]);
  expect(message).not.toMatch(LIBRARY);
});

test("whatever is written, it is read or refused with a place in it", () => {
  const words = [
    "inputs",
    "steps",
    ".",
    "fix",
    "[",
    "]",
    "(",
    ")",
    '"a"',
    "1",
    "+",
    "&&",
    "==",
    "?",
    ":",
    "map",
    "{",
    "}",
    ",",
    "x",
    "has",
    "in",
    "!",
    "'",
    "${{",
  ];
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...words), { maxLength: 25 }), (parts) => {
      const source = parts.join("");
      const { expression, faults } = checkExpression(source, scope, defaultLimits);
      expect(expression === null).toBe(faults.length > 0);
      for (const { message, start } of faults) {
        expect(start).toBeLessThanOrEqual(source.length);
        expect(message).not.toMatch(LIBRARY);
      }
    }),
    { numRuns: 2_000 },
  );
});
