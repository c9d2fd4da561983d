/** Values that came from elsewhere, held against a schema of core. What is wrong is said in words for people, never in those of the schema library. */
import { badInput } from "./fields.ts";

interface Issue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** Of a key that is wrong: what is wrong with it. */
  readonly issues?: readonly Issue[] | readonly (readonly Issue[])[];
}

/** What the library knows of an issue before it has a message; each kind has some of it. */
interface RawIssue {
  readonly code?: string | undefined;
  readonly expected?: unknown;
  readonly values?: readonly unknown[];
  readonly keys?: readonly string[];
  readonly minimum?: unknown;
  readonly maximum?: unknown;
  readonly origin?: unknown;
  readonly options?: readonly unknown[];
}

export interface Schema<T> {
  safeParse(
    value: unknown,
    words: { readonly error: (issue: RawIssue) => string },
  ): { success: true; data: T } | { success: false; error: { readonly issues: readonly Issue[] } };
}

const KINDS: Readonly<Record<string, string>> = {
  string: "text",
  int: "a whole number",
  number: "a number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
};
const COUNTED: Readonly<Record<string, string>> = { string: " characters", array: " items" };

/** Said where a schema has no words of its own. */
function wordsFor({ code, expected, values, keys, minimum, maximum, origin, options }: RawIssue): string {
  const counted = COUNTED[String(origin)] ?? "";
  switch (code) {
    case "invalid_type":
      return `it must be ${KINDS[String(expected)] ?? String(expected)}`;
    case "too_small":
      return `it must be at least ${String(minimum)}${counted}`;
    case "too_big":
      return `it must be at most ${String(maximum)}${counted}`;
    case "invalid_value":
      return `it must be ${(values ?? []).map((one) => JSON.stringify(one)).join(" or ")}`;
    case "unrecognized_keys":
      return `there is no ${(keys ?? []).map((key) => JSON.stringify(key)).join(", ")}`;
    case "invalid_union":
      return options === undefined
        ? "it is nothing that may stand here"
        : `it must be ${options.map(String).join(" or ")}`;
    default:
      return "it is not valid";
  }
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
