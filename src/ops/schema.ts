/** Values that came from elsewhere, held against a schema of core. What is wrong is said in words for people, never in those of the schema library. */
import { type RawIssue, wordsFor } from "../core/schema-words.ts";
import { badInput } from "./fields.ts";

interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** Of a key that is wrong: what is wrong with it. */
  readonly issues?: readonly Issue[] | readonly (readonly Issue[])[];
}

export interface Schema<T> {
  safeParse(
    value: unknown,
    words: { readonly error: (issue: RawIssue) => string },
  ): { success: true; data: T } | { success: false; error: { readonly issues: readonly Issue[] } };
}

/** The value as the schema has it, or the first thing that is wrong, with its place from the value on. */
export function readAs<T>(
  schema: Schema<T>,
  value: unknown,
):
  | { readonly data: T; readonly wrong: null }
  | { readonly data: null; readonly wrong: { readonly path: readonly PropertyKey[]; readonly message: string } } {
  const parsed = schema.safeParse(value, { error: wordsFor });
  if (parsed.success) return { data: parsed.data, wrong: null };
  const [issue] = parsed.error.issues;
  const inner = issue?.issues?.[0];
  const message = (inner !== undefined && "message" in inner ? inner.message : issue?.message) ?? "it is not valid";
  return { data: null, wrong: { path: issue?.path ?? [], message } };
}

/** A document that one of our own commands makes. Errors: AppError invalid `bad_input` with the place. @param place what it is called */
export function requireForm<T>(schema: Schema<T>, value: unknown, place: string): T {
  const { data, wrong } = readAs(schema, value);
  if (wrong === null) return data;
  const path = [place, ...wrong.path.map(String)].join(".");
  throw badInput(path, `${path}: ${wrong.message}`, "Only a command of this same version makes it.");
}
