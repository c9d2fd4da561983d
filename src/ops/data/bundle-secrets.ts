/** What a bundle does not carry: values whose names say that they are secrets. One rule for names, `holdsSecret`. */
import { holdsSecret } from "../../core/variable-names.ts";
import type { Form } from "../declared/declared-form.ts";

/** A form without such values, and where they were. @param keys names that are a provider's keys, whatever they say */
export function withhold(
  form: Form,
  keys: readonly string[],
): { readonly form: Form; readonly withheld: readonly string[] } {
  let kept: Form = form;
  const withheld: string[] = [];
  for (const section of ["env", "inputs"]) {
    const values = form[section] as Readonly<Record<string, string>> | undefined;
    const names = values === undefined ? [] : secretNames(values, keys);
    if (values === undefined || names.length === 0) continue;
    const rest = Object.fromEntries(Object.entries(values).filter(([name]) => !names.includes(name)));
    const { [section]: _, ...others } = kept;
    kept = Object.keys(rest).length === 0 ? others : { ...others, [section]: rest };
    withheld.push(...names.map((name) => `${section}.${name}`));
  }
  return { form: kept, withheld };
}

export const secretNames = (env: Readonly<Record<string, string>>, keys: readonly string[]): readonly string[] =>
  Object.entries(env)
    .filter(([name, value]) => holdsSecret(name, value, keys))
    .map(([name]) => name);

const HIDDEN = "***";
/** Half of a value is told from a word from here on. */
const MIN_PART = 8;

/** How long the part of a text is, up to `most`, that holds: found by trying the longest first. */
const longestPart = (most: number, holds: (length: number) => boolean): number => {
  for (let length = most; length >= MIN_PART; length--) if (holds(length)) return length;
  return 0;
};

/** Every text and number in a value, as text. */
function textsIn(value: unknown): readonly string[] {
  if (typeof value === "object" && value !== null) return Object.values(value).flatMap(textsIn);
  return typeof value === "string" || typeof value === "number" ? [String(value)] : [];
}

/** A run without such values, wherever in it they stand: in its variables, its outputs, its messages; nor half of one where a text was cut. */
export function withoutSecrets<
  T extends {
    readonly run: {
      readonly target: {
        readonly env: Readonly<Record<string, string>>;
        readonly inputs?: Readonly<Record<string, unknown>>;
      };
    };
  },
>(past: T, keys: readonly string[]): T {
  const { env, inputs = {} } = past.run.target;
  const named: readonly (readonly [name: string, value: string])[] = [
    ...Object.entries(env),
    // Of a list or a set of names, each text in it.
    ...Object.entries(inputs).flatMap(([name, value]) => textsIn(value).map((text) => [name, text] as const)),
  ];
  const secrets = named.filter(([name, value]) => holdsSecret(name, value, keys));
  if (secrets.length === 0) return past;
  // As JSON writes them too, once and in JSON in JSON: outputs and tails are such texts.
  const inJson = (value: string): string => JSON.stringify(value).slice(1, -1);
  const values = [
    ...new Set(
      secrets
        .map(([, value]) => value)
        // Of several lines each is one too: what prints or cuts them does so one by one.
        .flatMap((value) => [value, ...value.split("\n").filter((line) => line.length >= MIN_PART)])
        .filter((value) => value !== "")
        .flatMap((value) => [value, inJson(value), inJson(inJson(value))]),
    ),
  ];
  /** Where in a text values stand, and halves of them at the ends of its lines: two texts that were cut may be joined there. */
  function* rangesIn(text: string): Generator<readonly [from: number, to: number]> {
    for (const value of values)
      for (let at = text.indexOf(value); at >= 0; at = text.indexOf(value, at + 1)) yield [at, at + value.length];
    let from = 0;
    for (const line of text.split("\n")) {
      const to = from + line.length;
      for (const value of values) {
        const most = Math.min(value.length - 1, line.length);
        yield [from, from + longestPart(most, (length) => line.startsWith(value.slice(-length)))];
        yield [to - longestPart(most, (length) => line.endsWith(value.slice(0, length))), to];
      }
      from = to + 1;
    }
  }
  const cleanText = (text: string): string => {
    let clean = "";
    let at = 0;
    for (const [from, to] of [...rangesIn(text)].toSorted(([one], [other]) => one - other)) {
      if (to <= at || to === from) continue;
      // What overlaps is one.
      clean += from < at ? "" : text.slice(at, from) + HIDDEN;
      at = to;
    }
    return clean + text.slice(at);
  };
  const clean = (value: unknown): unknown => {
    if (typeof value === "string") return cleanText(value);
    if (Array.isArray(value)) return value.map(clean);
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [cleanText(key), clean(one)]));
  };
  return clean(past) as T;
}
