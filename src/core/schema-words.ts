/** What is wrong with a value by a schema of ours, in words for people. */

/** What the library knows of an issue before it has a message; each kind has some of it. */
export interface RawIssue {
  readonly code?: string | undefined;
  readonly expected?: unknown;
  readonly values?: readonly unknown[];
  readonly keys?: readonly string[];
  readonly minimum?: unknown;
  readonly maximum?: unknown;
  readonly origin?: unknown;
  readonly options?: readonly unknown[];
}

const KINDS: Readonly<Record<string, string>> = {
  string: "text",
  int: "a whole number",
  number: "a number",
  boolean: "true or false",
  array: "a list",
  tuple: "a list",
  object: "an object",
  record: "an object",
};
const COUNTED: Readonly<Record<string, string>> = { string: " characters", array: " items" };

/** Said where a schema has no words of its own. */
export function wordsFor({ code, expected, values, keys, minimum, maximum, origin, options }: RawIssue): string {
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
