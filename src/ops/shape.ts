/** What an operation answers, described as JSON Schema: the reference page and OpenAPI print it, tests hold answers against it. */
import type { Json } from "./fields.ts";

/** A JSON Schema of the small part that answers need. */
export interface Shape {
  readonly type?: "string" | "integer" | "boolean" | "object" | "array";
  readonly format?: "date-time";
  readonly enum?: readonly string[];
  readonly nullable?: boolean;
  readonly description?: string;
  readonly items?: Shape;
  readonly properties?: { readonly [key: string]: Shape };
  readonly required?: readonly string[];
}

export const string: Shape = { type: "string" };
export const integer: Shape = { type: "integer" };
export const boolean: Shape = { type: "boolean" };
/** ISO-8601 in UTC with milliseconds. */
export const instant: Shape = { type: "string", format: "date-time" };
/** Any JSON. */
export const anything: Shape = {};
export const oneOf = (values: readonly string[]): Shape => ({ type: "string", enum: values });
export const nullable = (of: Shape): Shape => ({ ...of, nullable: true });
export const listOf = (items: Shape): Shape => ({ type: "array", items });

/** An object; a key that ends in `?` may be absent. */
export function object(keys: { readonly [key: string]: Shape }): Shape {
  const entries = Object.entries(keys);
  return {
    type: "object",
    properties: Object.fromEntries(entries.map(([key, of]) => [key.replace(/\?$/, ""), of])),
    required: entries.filter(([key]) => !key.endsWith("?")).map(([key]) => key),
  };
}

/** A page of a list. */
export const pageOf = (items: Shape): Shape => object({ items: listOf(items), next: nullable(string) });

/** A key of an answer. */
export interface ShapeKey {
  /** From the top: `?` behind what may be absent, `[]` behind a list for each of its items. */
  readonly path: string;
  /** What stands there, in words: `instant, or null`. */
  readonly text: string;
}

/** Every key of an answer, inner ones behind their outer one. */
export function keysOf(shape: Shape, path = ""): readonly ShapeKey[] {
  const own = path === "" ? [] : [{ path, text: textOf(shape) }];
  if (shape.items !== undefined) return [...own, ...keysOf(shape.items, `${path}[]`)];
  return [
    ...own,
    ...Object.entries(shape.properties ?? {}).flatMap(([key, of]) =>
      keysOf(of, `${path === "" ? "" : `${path}.`}${key}${shape.required?.includes(key) === true ? "" : "?"}`),
    ),
  ];
}

function textOf({ type, format, enum: values, nullable: isNullable }: Shape): string {
  const what = values !== undefined ? values.join("|") : format === undefined ? (type ?? "anything") : "instant";
  return isNullable === true ? `${what}, or null` : what;
}

/** Where a value is not of the shape, in words; null when it is. Keys that the shape does not name are a difference too. */
export function differenceFrom(shape: Shape, value: unknown, path = ""): string | null {
  const at = path === "" ? "the answer" : path;
  if (value === null) return shape.nullable === true || shape.type === undefined ? null : `${at} is null`;
  if (shape.enum !== undefined && !shape.enum.includes(value as string)) return `${at} is ${JSON.stringify(value)}`;
  switch (shape.type) {
    case undefined:
      return value === undefined ? `${at} is absent` : null;
    case "string":
      if (typeof value !== "string") return `${at} is no text`;
      return shape.format === undefined || /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(value)
        ? null
        : `${at} is no instant: ${value}`;
    case "integer":
      return Number.isSafeInteger(value) ? null : `${at} is no whole number`;
    case "boolean":
      return typeof value === "boolean" ? null : `${at} is neither true nor false`;
    case "array":
      if (!Array.isArray(value)) return `${at} is no list`;
      for (const [index, one] of value.entries()) {
        const difference = differenceFrom(shape.items ?? {}, one, `${path}[${index}]`);
        if (difference !== null) return difference;
      }
      return null;
    case "object": {
      if (typeof value !== "object" || Array.isArray(value)) return `${at} is no object`;
      if (shape.properties === undefined) return null;
      const given = value as { readonly [key: string]: Json };
      for (const key of shape.required ?? []) if (!Object.hasOwn(given, key)) return `${at} lacks ${key}`;
      for (const [key, one] of Object.entries(given)) {
        const of = shape.properties[key];
        if (of === undefined) return `${at} has ${key}, which is not described`;
        const difference = differenceFrom(of, one, path === "" ? key : `${path}.${key}`);
        if (difference !== null) return difference;
      }
      return null;
    }
    default:
      return null;
  }
}
