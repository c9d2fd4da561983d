/** Looks into events whose shape nobody promises: what is not there, or is something else, reads as null. */

/** An object of JSON. */
export type Fields = Readonly<Record<string, unknown>>;

/** The value as an object, not an array. */
export const fieldsOf = (value: unknown): Fields | null =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : null;

/** The value at a path of names. */
export function at(value: unknown, ...path: readonly string[]): unknown {
  let here = value;
  for (const name of path) {
    const fields = fieldsOf(here);
    if (fields === null || !Object.hasOwn(fields, name)) return null;
    here = fields[name];
  }
  return here ?? null;
}

/** The text at a path; an empty one is none. */
export function textAt(value: unknown, ...path: readonly string[]): string | null {
  const found = at(value, ...path);
  return typeof found === "string" && found !== "" ? found : null;
}

/** The finite number at a path. */
export function numberAt(value: unknown, ...path: readonly string[]): number | null {
  const found = at(value, ...path);
  return typeof found === "number" && Number.isFinite(found) ? found : null;
}

/** The items of the list at a path; none where there is no list. */
export function listAt(value: unknown, ...path: readonly string[]): readonly unknown[] {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
}

/** A count of tokens: never negative, never broken. */
export const countAt = (value: unknown, ...path: readonly string[]): number =>
  Math.max(0, Math.round(numberAt(value, ...path) ?? 0));

/** The first line of a text, whole: where it is cut, half of a secret could stand. */
export const oneLine = (text: string): string => text.trim().split(/\r?\n/, 1)[0] ?? "";

/** Any value as text: a text as it is, else as JSON. */
export const shownValue = (value: unknown): string =>
  typeof value === "string" ? value : (JSON.stringify(value ?? null) ?? "");
