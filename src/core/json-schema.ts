/**
 * JSON Schema, as far as drover holds values against one: inputs and outputs of steps. A word that is not checked here is
 * refused where it is written: a rule that people believe in and that does not hold is worse than none.
 */
import { type Problem, problem } from "./errors.ts";
import { nearest } from "./nearest.ts";

export type JsonSchema = boolean | { readonly [word: string]: unknown };

export const schemaTypes = ["null", "boolean", "integer", "number", "string", "array", "object"] as const;
export type SchemaType = (typeof schemaTypes)[number];

type Kind = "types" | "any" | "list" | "names" | "schema" | "schemas" | "properties" | "number" | "count" | "text";

/** Every word, and what may stand behind it. */
const WORDS: { readonly [word: string]: Kind } = {
  type: "types",
  enum: "list",
  const: "any",
  properties: "properties",
  required: "names",
  additionalProperties: "schema",
  items: "schema",
  minItems: "count",
  maxItems: "count",
  minLength: "count",
  maxLength: "count",
  minimum: "number",
  maximum: "number",
  anyOf: "schemas",
  oneOf: "schemas",
  allOf: "schemas",
  not: "schema",
  title: "text",
  description: "text",
  default: "any",
};
export const schemaWords: readonly string[] = Object.keys(WORDS);

const EXPECTED: { readonly [K in Kind]: string } = {
  types: `one of ${schemaTypes.join(", ")}, or a list of them`,
  any: "a value",
  list: "a list with at least one value",
  names: "a list of names",
  schema: "a schema: a set of words, true or false",
  schemas: "a list with at least one schema",
  properties: "a set of names with their schemas",
  number: "a number",
  count: "a whole number from 0 on",
  text: "text",
};

export const isObject = (value: unknown): value is { readonly [key: string]: unknown } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** What a type says of a value. */
function isOf(type: unknown, value: unknown): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return isObject(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}

function fits(kind: Kind, given: unknown): boolean {
  switch (kind) {
    case "any":
      return true;
    case "types":
      return (
        (Array.isArray(given) ? given.length > 0 : typeof given === "string") &&
        [given].flat().every((one) => (schemaTypes as readonly unknown[]).includes(one))
      );
    case "list":
      return Array.isArray(given) && given.length > 0;
    case "names":
      return Array.isArray(given) && given.every((one) => typeof one === "string");
    case "schema":
      return typeof given === "boolean" || isObject(given);
    case "schemas":
      return Array.isArray(given) && given.length > 0;
    case "properties":
      return isObject(given);
    case "number":
      return typeof given === "number" && Number.isFinite(given);
    case "count":
      return Number.isSafeInteger(given) && (given as number) >= 0;
    case "text":
      return typeof given === "string";
  }
}

/** All that is wrong with a schema that somebody wrote. @param path where it stands */
export function schemaProblems(schema: unknown, path: string): readonly Problem[] {
  if (typeof schema === "boolean") return [];
  if (!isObject(schema))
    return [problem("bad_schema", `this must be ${EXPECTED.schema}`, "As in {type: string}.", path)];
  const found: Problem[] = [];
  for (const [word, given] of Object.entries(schema)) {
    const at = `${path}.${word}`;
    const kind = Object.hasOwn(WORDS, word) ? WORDS[word] : undefined;
    if (kind === undefined) {
      const near = nearest(word, schemaWords);
      const hint = near === null ? `What drover checks: ${schemaWords.join(", ")}.` : `Did you mean ${near}?`;
      found.push(problem("unknown_key", `no schema here has ${JSON.stringify(word)}`, hint, at));
    } else if (!fits(kind, given)) {
      found.push(problem("bad_schema", `${word} must be ${EXPECTED[kind]}`, undefined, at));
    } else if (kind === "schema") {
      found.push(...schemaProblems(given, at));
    } else if (kind === "schemas") {
      for (const [index, one] of (given as readonly unknown[]).entries())
        found.push(...schemaProblems(one, `${at}[${index}]`));
    } else if (kind === "properties") {
      for (const [name, one] of Object.entries(given as object)) found.push(...schemaProblems(one, `${at}.${name}`));
    }
  }
  return found;
}

/** Whether two JSON values are the same; the order of keys says nothing. */
function isSame(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((one, at) => isSame(one, b[at]));
  if (!isObject(a) || !isObject(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((key) => Object.hasOwn(b, key) && isSame(a[key], b[key]));
}

/** One way in which a value differs from its schema. */
export interface Misfit {
  /** Within the value: `.files[0]`, empty for all of it. */
  readonly at: string;
  readonly message: string;
}

const words = (types: unknown): string => [types].flat().map(String).join(" or ");
const shown = (value: unknown): string => {
  const text = JSON.stringify(value) ?? "nothing";
  return text.length > 60 ? `${text.slice(0, 59)}…` : text;
};

/** All ways in which a value differs from a schema in which nothing is wrong. */
export function misfits(schema: JsonSchema, value: unknown, at = ""): readonly Misfit[] {
  if (schema === true) return [];
  if (schema === false) return [{ at, message: "nothing may stand here" }];
  const found: Misfit[] = [];
  const say = (message: string): number => found.push({ at, message });
  const properties = (schema["properties"] ?? {}) as { readonly [name: string]: JsonSchema };
  const count = typeof value === "string" ? [...value].length : Array.isArray(value) ? value.length : 0;
  for (const [word, of] of Object.entries(schema)) {
    const bound = of as number;
    const many = of as readonly JsonSchema[];
    switch (word) {
      case "type":
        if (![of].flat().some((type) => isOf(type, value))) say(`it must be ${words(of)}, not ${shown(value)}`);
        break;
      case "enum":
        if (!(of as readonly unknown[]).some((one) => isSame(one, value)))
          say(`it must be one of ${(of as readonly unknown[]).map(shown).join(", ")}, not ${shown(value)}`);
        break;
      case "const":
        if (!isSame(of, value)) say(`it must be ${shown(of)}, not ${shown(value)}`);
        break;
      case "properties":
        if (isObject(value))
          for (const [name, one] of Object.entries(properties))
            if (Object.hasOwn(value, name)) found.push(...misfits(one, value[name], `${at}.${name}`));
        break;
      case "required":
        if (isObject(value))
          for (const name of of as readonly string[]) if (!Object.hasOwn(value, name)) say(`${name} is missing`);
        break;
      case "additionalProperties":
        if (isObject(value))
          for (const [name, one] of Object.entries(value))
            if (!Object.hasOwn(properties, name)) found.push(...misfits(of as JsonSchema, one, `${at}.${name}`));
        break;
      case "items":
        if (Array.isArray(value))
          for (const [index, one] of value.entries()) found.push(...misfits(of as JsonSchema, one, `${at}[${index}]`));
        break;
      case "minItems":
        if (Array.isArray(value) && count < bound) say(`it must have at least ${bound} items, not ${count}`);
        break;
      case "maxItems":
        if (Array.isArray(value) && count > bound) say(`it must have at most ${bound} items, not ${count}`);
        break;
      case "minLength":
        if (typeof value === "string" && count < bound) say(`it must have at least ${bound} characters, not ${count}`);
        break;
      case "maxLength":
        if (typeof value === "string" && count > bound) say(`it must have at most ${bound} characters, not ${count}`);
        break;
      case "minimum":
        if (typeof value === "number" && value < bound) say(`it must be at least ${bound}, not ${value}`);
        break;
      case "maximum":
        if (typeof value === "number" && value > bound) say(`it must be at most ${bound}, not ${value}`);
        break;
      case "anyOf":
        if (many.every((one) => misfits(one, value).length > 0)) say(`it fits none of what it may be: ${shown(value)}`);
        break;
      case "oneOf":
        if (many.filter((one) => misfits(one, value).length === 0).length !== 1)
          say(`it must fit exactly one of what it may be: ${shown(value)}`);
        break;
      case "allOf":
        for (const one of many) found.push(...misfits(one, value, at));
        break;
      case "not":
        if (misfits(of as JsonSchema, value).length === 0) say(`it must not be ${shown(value)}`);
        break;
    }
  }
  return found;
}

/** The types that a schema leaves, as far as its own words say; null for any. */
export function typesOf(schema: JsonSchema): readonly SchemaType[] | null {
  if (typeof schema === "boolean") return null;
  if (schema["type"] !== undefined) return [schema["type"]].flat() as SchemaType[];
  const values = schema["enum"] ?? (schema["const"] === undefined ? undefined : [schema["const"]]);
  if (!Array.isArray(values)) return null;
  return schemaTypes.filter((type) => type !== "integer" && values.some((one) => isOf(type, one)));
}
