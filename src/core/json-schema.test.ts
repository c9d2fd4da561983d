import { expect, test } from "vitest";
import { misfits, schemaProblems, typesOf } from "./json-schema.ts";

test.each<[schema: unknown, problems: readonly (readonly [code: string, path: string])[]]>([
  [true, []],
  [{}, []],
  [
    { type: "object", required: ["a"], properties: { a: { type: ["string", "null"] } }, additionalProperties: false },
    [],
  ],
  [{ anyOf: [{ const: null }, { enum: [1, "b"] }], not: { type: "array", items: true }, default: 3 }, []],
  ["string", [["bad_schema", "o"]]],
  [{ type: "strin" }, [["bad_schema", "o.type"]]],
  [{ type: [] }, [["bad_schema", "o.type"]]],
  [{ enum: [] }, [["bad_schema", "o.enum"]]],
  [
    { minLength: -1, maximum: "3", required: "a", description: 4 },
    [
      ["bad_schema", "o.minLength"],
      ["bad_schema", "o.maximum"],
      ["bad_schema", "o.required"],
      ["bad_schema", "o.description"],
    ],
  ],
  [
    { pattern: "(a+)+$", $ref: "#/x" },
    [
      ["unknown_key", "o.pattern"],
      ["unknown_key", "o.$ref"],
    ],
  ],
  [{ properties: { a: { itmes: {} } } }, [["unknown_key", "o.properties.a.itmes"]]],
  [
    { anyOf: [true, { oneOf: [] }], items: 3 },
    [
      ["bad_schema", "o.anyOf[1].oneOf"],
      ["bad_schema", "o.items"],
    ],
  ],
  [
    { constructor: 1, ["__proto__x"]: 1 },
    [
      ["unknown_key", "o.constructor"],
      ["unknown_key", "o.__proto__x"],
    ],
  ],
])("what is wrong with a schema is told with its place: %j", (schema, problems) => {
  expect(schemaProblems(schema, "o").map(({ code, path }) => [code, path])).toEqual(problems);
});

test("a misspelt word has the one that was meant", () => {
  expect(schemaProblems({ requierd: ["a"] }, "o")[0]?.hint).toBe("Did you mean required?");
});

const form = {
  type: "object",
  required: ["verdict"],
  properties: {
    verdict: { enum: ["accept", "reject"] },
    files: { type: "array", items: { type: "string", minLength: 1, maxLength: 3 }, minItems: 1, maxItems: 2 },
    score: { type: "integer", minimum: 0, maximum: 10 },
    at: { oneOf: [{ type: "string" }, { type: "number" }] },
    either: { anyOf: [{ type: "null" }, { const: { a: [1] } }] },
    all: { allOf: [{ minimum: 1 }, { maximum: 3 }] },
    open: { not: { type: "boolean" } },
    none: false,
  },
  additionalProperties: { type: "string" },
} as const;

test.each<[value: unknown, at: readonly string[]]>([
  [{ verdict: "accept", files: ["a", "bcd"], score: 10, at: 1, either: { a: [1] }, all: 2, open: [], more: "x" }, []],
  [{ verdict: "accept", either: null }, []],
  [[], [""]],
  [null, [""]],
  [{}, [""]],
  [{ verdict: "Accept" }, [".verdict"]],
  [{ verdict: "accept", files: [] }, [".files"]],
  [{ verdict: "accept", files: ["", "abcd", "x"] }, [".files[0]", ".files[1]", ".files"]],
  [{ verdict: "accept", files: ["🙂🙂🙂"] }, []],
  [{ verdict: "accept", score: 1.5 }, [".score"]],
  [{ verdict: "accept", score: 11 }, [".score"]],
  [{ verdict: "accept", score: -1 }, [".score"]],
  [{ verdict: "accept", at: true }, [".at"]],
  [{ verdict: "accept", either: { a: [2] } }, [".either"]],
  [{ verdict: "accept", all: 4 }, [".all"]],
  [{ verdict: "accept", open: true }, [".open"]],
  [{ verdict: "accept", none: 1 }, [".none"]],
  [{ verdict: "accept", more: 1 }, [".more"]],
  [JSON.parse('{"verdict": "accept", "__proto__": 1}'), [".__proto__"]],
])("a value and its schema: %j", (value, at) => {
  expect(misfits(form, value).map((one) => one.at)).toEqual(at);
});

test("the types that a schema leaves", () => {
  expect(typesOf({ type: "string" })).toEqual(["string"]);
  expect(typesOf({ enum: ["a", 1] })).toEqual(["number", "string"]);
  expect(typesOf({ const: null })).toEqual(["null"]);
  expect([typesOf(true), typesOf({}), typesOf({ anyOf: [{ type: "string" }] })]).toEqual([null, null, null]);
});
