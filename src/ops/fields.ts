/**
 * What an operation takes, described once as data: the command line, help, completion, JSON checks and JSON Schema come from it.
 * It is not zod because every command would pay for loading it; what is nested (targets, policies) is checked by core's schemas.
 */
import { parseDuration } from "../core/duration.ts";
import { AppError } from "../core/errors.ts";

export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** Where text of the command line is read. */
export interface Reading {
  /** The caller's working directory: relative paths are the caller's, not the daemon's. */
  readonly cwd: string;
  /** All bytes of a file, or of standard input for `-`, as base64. Errors: AppError of what cannot be read, with `path`. */
  readBytes(file: string, path: string): string;
}

/** One input of an operation: how it is read from text, checked as JSON, and described. */
export interface Field<T> {
  /** One line for help, without a full stop. */
  readonly about: string;
  /** What stands for the value in help (`D`, `N`, `NAME`); null for a flag without a value. */
  readonly placeholder: string | null;
  readonly required: boolean;
  /** May be given several times; the JSON form is a list, or an object for pairs. */
  readonly many: boolean;
  /** The flag's name without `--`, where it is not the key in kebab-case. */
  readonly flag: string | null;
  /** One letter that stands for the flag. */
  readonly short: string | null;
  /** A flag that may stand without its value means this. */
  readonly bare: string | null;
  /** What people write there is text of any kind: the next word is its value, also one that looks like a flag. */
  readonly free: boolean;
  /** Shown by help; what applies when it is not given. */
  readonly fallback: string | null;
  /** Of a part that does not exist yet: it is parsed, and refused as `not_available`. */
  readonly later: boolean;
  readonly choices: readonly string[] | null;
  /**
   * What completes the value: `loop`, `run`, `thing` (either), `account`, `step`, `attempt`, `resource`, `template`, `zone`, `file`,
   * `folder`. Of loops and runs only those in a state: `loop:active`, `loop:paused`, `loop:archived`, `run:live`, `run:ended`.
   */
  readonly completes: string | null;
  /** Its key in `drover.yaml`, where that is not the flag in camelCase. */
  readonly declared: string | null;
  /** How `drover.yaml` writes a value: as JSON does, or as the text of the command line (durations, places of files). */
  readonly written: "json" | "text";
  readonly schema: { readonly [key: string]: Json };
  /** Reads one text of the command line as JSON, on top of what was read before. */
  readonly read: (text: string, path: string, reading: Reading, before: Json | undefined) => Json;
  /** Checks the JSON form. Errors: AppError invalid `bad_input` or a code that says more. */
  readonly check: (value: unknown, path: string) => T;
}

export type Fields = { readonly [key: string]: Field<unknown> };
export type InputOf<F extends Fields> = { readonly [K in keyof F]: F[K] extends Field<infer T> ? T : never };

interface Traits {
  readonly placeholder?: string;
  readonly flag?: string;
  readonly short?: string;
  readonly bare?: string;
  readonly free?: boolean;
  readonly fallback?: string;
  readonly completes?: string;
  readonly later?: boolean;
  readonly declared?: string;
}

export function badInput(path: string, message: string, hint?: string, code = "bad_input"): AppError {
  return new AppError("invalid", code, message, { path, ...(hint === undefined ? {} : { hint }) });
}

function field<T>(
  about: string,
  traits: Traits,
  rest: Pick<Field<T | undefined>, "schema" | "read" | "check"> & {
    many?: boolean;
    choices?: readonly string[];
    written?: "text";
  },
  placeholder: string | null,
): Field<T | undefined> {
  return {
    about,
    placeholder: traits.placeholder ?? placeholder,
    required: false,
    many: rest.many ?? false,
    flag: traits.flag ?? null,
    short: traits.short ?? null,
    bare: traits.bare ?? null,
    free: traits.free ?? false,
    fallback: traits.fallback ?? null,
    later: traits.later ?? false,
    choices: rest.choices ?? null,
    completes: traits.completes ?? null,
    declared: traits.declared ?? null,
    written: rest.written ?? "json",
    schema: rest.schema,
    read: rest.read,
    check: (value, path) => (value === undefined || value === null ? undefined : rest.check(value, path)),
  };
}

/** The same field, refused when it is missing. */
export function required<T>(of: Field<T | undefined>): Field<T> {
  return {
    ...of,
    required: true,
    check: (value, path) => {
      const checked = of.check(value, path);
      if (checked === undefined) throw badInput(path, `${path} is missing`, `Give ${of.about}.`, "missing_value");
      return checked;
    },
  };
}

/** The same field with a value where none is given. */
export function withDefault<T>(of: Field<T | undefined>, value: T, shown = String(value)): Field<T> {
  return { ...of, fallback: shown, check: (given, path) => of.check(given, path) ?? value };
}

function checkText(value: unknown, path: string): string {
  if (typeof value !== "string") throw badInput(path, `${path} must be text`);
  if (value.includes("\0"))
    throw badInput(path, `${path} holds a NUL byte`, "Remove it: no process can take it.", "nul_byte");
  if (/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(value))
    throw badInput(path, `${path} is not valid Unicode`, "Write it as UTF-8.", "bad_unicode");
  return value;
}

/**
 * A word of the command line. Bytes that are no UTF-8 arrive as U+FFFD, each for itself: what was meant cannot be told any
 * more, and something else would be run. Errors: AppError invalid `bad_unicode`.
 */
function checkTyped(
  given: string,
  path: string,
  hint = "Type it as UTF-8, or put it into a script or a file.",
): string {
  if (given.includes("\ufffd"))
    throw badInput(path, `${path} holds what is not UTF-8 (or U+FFFD, which stands for that)`, hint, "bad_unicode");
  return checkText(given, path);
}

/** A text. Empty only where `empty` says so. */
export function text(about: string, traits: Traits & { readonly empty?: boolean } = {}): Field<string | undefined> {
  const check = (value: unknown, path: string): string => {
    const checked = checkText(value, path);
    if (checked === "" && traits.empty !== true) throw badInput(path, `${path} is empty`, `Give ${about}.`);
    return checked;
  };
  const read = (given: string, path: string): string => check(checkTyped(given, path), path);
  return field(about, traits, { schema: { type: "string" }, read, check }, "TEXT");
}

/** An absolute path; text of the command line is relative to the caller's folder. */
export function folder(about: string, traits: Traits = {}): Field<string | undefined> {
  const check = (value: unknown, path: string): string => {
    const checked = checkText(value, path);
    if (!checked.startsWith("/")) throw badInput(path, `${path} must be an absolute path`);
    return checked;
  };
  const read = (given: string, path: string, reading: Reading): string => {
    if (checkTyped(given, path) === "") throw badInput(path, `${path} is empty`, `Give the ${about}.`);
    return absolute(reading.cwd, given);
  };
  return field(
    about,
    { completes: "folder", ...traits },
    { schema: { type: "string" }, read, check, written: "text" },
    "DIR",
  );
}

function absolute(cwd: string, path: string): string {
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `${cwd}/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

export function integer(
  about: string,
  { min, max, ...traits }: Traits & { readonly min: number; readonly max: number },
): Field<number | undefined> {
  const check = (value: unknown, path: string): number => {
    if (typeof value !== "number" || !Number.isSafeInteger(value))
      throw badInput(path, `${path} must be a whole number`, `Give a whole number from ${min} to ${max}.`);
    if (value < min || value > max)
      throw badInput(path, `${path} is ${value}`, `Give a whole number from ${min} to ${max}.`, "out_of_range");
    return value;
  };
  const read = (given: string, path: string): number => {
    if (!/^-?\d+$/.test(given))
      throw badInput(
        path,
        `${path} must be a whole number, not ${JSON.stringify(given)}`,
        `Give a whole number from ${min} to ${max}.`,
      );
    if (!Number.isSafeInteger(Number(given)))
      throw badInput(path, `${path} is ${given}`, `Give a whole number from ${min} to ${max}.`, "out_of_range");
    return check(Number(given), path);
  };
  return field(about, traits, { schema: { type: "integer", minimum: min, maximum: max }, read, check }, "N");
}

/** Milliseconds in JSON, `1h30m` on the command line; the key ends in `Ms`, the flag does not. */
export function duration(about: string, traits: Traits & { readonly min?: number } = {}): Field<number | undefined> {
  const min = traits.min ?? 0;
  const max = 3_650 * 86_400_000;
  const check = (value: unknown, path: string): number => {
    if (typeof value !== "number" || !Number.isSafeInteger(value))
      throw badInput(path, `${path} must be a whole number of milliseconds`);
    if (value < min || value > max)
      throw badInput(
        path,
        `${path} is ${value < min ? "too short" : "too long"}`,
        `Give ${min > 0 ? "more than nothing and " : ""}at most ten years.`,
        "out_of_range",
      );
    return value;
  };
  const read = (given: string, path: string): number => check(parseDuration(given, path), path);
  const schema = { type: "integer", minimum: min, maximum: max };
  return field(about, traits, { schema, read, check, written: "text" }, "D");
}

export function flag(about: string, traits: Traits = {}): Field<boolean> {
  const check = (value: unknown, path: string): boolean => {
    if (typeof value !== "boolean") throw badInput(path, `${path} must be true or false`);
    return value;
  };
  const made = field(about, traits, { schema: { type: "boolean" }, read: () => true, check }, null);
  return { ...made, placeholder: null, check: (value, path) => made.check(value, path) ?? false };
}

function chosen<const C extends readonly string[]>(all: C, value: unknown, path: string): C[number] {
  if (typeof value === "string" && all.includes(value)) return value;
  throw badInput(path, `${path} cannot be ${JSON.stringify(value)}`, `Choose one of ${all.join(", ")}.`, "bad_choice");
}

export function choice<const C extends readonly string[]>(
  about: string,
  choices: C,
  traits: Traits = {},
): Field<C[number] | undefined> {
  const check = (value: unknown, path: string): C[number] => chosen(choices, value, path);
  return field(about, traits, { schema: { enum: choices }, read: check, check, choices }, choices.join("|"));
}

/** Some of these: on the command line one each time, or several with commas; in JSON a list, or one by itself. */
export function choices<const C extends readonly string[]>(
  about: string,
  all: C,
  traits: Traits = {},
): Field<readonly C[number][] | undefined> {
  const check = (value: unknown, path: string): readonly C[number][] => {
    const given = Array.isArray(value) ? (value as readonly unknown[]) : [value];
    if (given.length === 0) throw badInput(path, `${path} is an empty list`, `Choose from ${all.join(", ")}.`);
    // `null` alone means "not given"; in a list it is no choice.
    return [...new Set(given.map((each) => chosen(all, each, path)))];
  };
  const read = (given: string, path: string, _reading: Reading, before: Json | undefined): Json => [
    ...((before as readonly Json[] | undefined) ?? []),
    ...check(
      given.split(",").map((part) => part.trim()),
      path,
    ),
  ];
  const schema = { anyOf: [{ enum: all }, { type: "array", items: { enum: all } }] };
  return field(about, traits, { schema, read, check, choices: all, many: true }, `${all.join("|")}[,...]`);
}

/** A list of texts: on the command line one each time, or several with commas where `commas` says so. */
export function texts(
  about: string,
  traits: Traits & { readonly commas?: boolean; readonly empty?: boolean } = {},
): Field<readonly string[] | undefined> {
  const read = (given: string, path: string, _reading: Reading, before: Json | undefined): Json => {
    const one = checkTyped(given, path);
    const added = traits.commas === true ? one.split(",").map((part) => part.trim()) : [one];
    if (traits.empty !== true && added.includes("")) throw badInput(path, `${path} is empty`, `Give ${about}.`);
    return [...((before as readonly Json[] | undefined) ?? []), ...added];
  };
  const check = (value: unknown, path: string): readonly string[] => {
    if (!Array.isArray(value)) throw badInput(path, `${path} must be a list of texts`);
    return value.map((one, index) => checkText(one, `${path}[${index}]`));
  };
  return field(
    about,
    traits,
    { schema: { type: "array", items: { type: "string" } }, read, check, many: true },
    "TEXT",
  );
}

/** Bytes that need not be text; in JSON a text, or `{"base64": ...}`. */
export interface Bytes {
  readonly base64: string;
}

function checkBytes(value: unknown, path: string): Bytes {
  if (typeof value === "string") return { base64: Buffer.from(checkText(value, path)).toString("base64") };
  const { base64 } = (typeof value === "object" && value !== null ? value : {}) as { readonly base64?: unknown };
  if (typeof base64 !== "string" || Buffer.from(base64, "base64").toString("base64") !== base64)
    throw badInput(path, `${path} must be a text, or {"base64": ...}`);
  return { base64 };
}

/** Bytes given as text; `-` reads standard input. A flag of the same name with `-file` takes them from a file. */
export function bytes(about: string, traits: Traits = {}): Field<Bytes | undefined> {
  const read = (given: string, path: string, { readBytes }: Reading): Json =>
    given === "-"
      ? { base64: readBytes("-", path) }
      : checkTyped(given, path, `Any bytes are taken with ${path} - from standard input, and with ${path}-file FILE.`);
  const free = { free: true, ...traits };
  return field(about, free, { schema: { type: ["string", "object"] }, read, check: checkBytes }, "TEXT");
}

/** The bytes of a file that the command line reads; in JSON the same as `bytes`. */
export function fileBytes(about: string, traits: Traits = {}): Field<Bytes | undefined> {
  const read = (given: string, path: string, { cwd, readBytes }: Reading): Json => {
    if (checkTyped(given, path) === "") throw badInput(path, `${path} is empty`, "Give the name of a file.");
    return { base64: readBytes(given === "-" ? given : absolute(cwd, given), path) };
  };
  return field(
    about,
    { completes: "file", ...traits },
    { schema: { type: ["string", "object"] }, read, check: checkBytes, written: "text" },
    "FILE",
  );
}

/** `K=V` pairs as an object. On the command line a key is given once. */
export function pairs(about: string, traits: Traits = {}): Field<Readonly<Record<string, string>> | undefined> {
  const read = (given: string, path: string, _reading: Reading, before: Json | undefined): Json => {
    const one = checkTyped(given, path);
    const at = one.indexOf("=");
    if (at < 1)
      throw badInput(path, `${path} must be K=V, not ${JSON.stringify(given)}`, "Write a name, =, and the value.");
    const key = one.slice(0, at);
    if (before !== undefined && Object.hasOwn(before as object, key))
      throw badInput(path, `${path} ${key} is given twice`, "Give it once.", "given_twice");
    return { ...(before as { [key: string]: Json } | undefined), [key]: one.slice(at + 1) };
  };
  const check = (value: unknown, path: string): Readonly<Record<string, string>> => {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      throw badInput(path, `${path} must be an object of texts`);
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, checkText(one, `${path}.${key}`)]));
  };
  return field(
    about,
    traits,
    { schema: { type: "object", additionalProperties: { type: "string" } }, read, check, many: true },
    "K=V",
  );
}

/** JSON of any shape, whose operation checks it. */
export function json(about: string): Field<unknown> {
  const read = (text: string, path: string): Json => {
    try {
      return JSON.parse(text) as Json;
    } catch {
      throw badInput(path, `${path} must be JSON`, `Give ${about}.`);
    }
  };
  return field<unknown>(about, {}, { schema: {}, read, check: (value) => value }, "JSON");
}

/** How deep what is sent may be nested: no document of ours comes near it, and checks of a deep one would end their stack. */
const MAX_DEPTH = 100;

/** Whether a value is nested deeper than anything of ours. */
export function isDeep(value: unknown): boolean {
  let level = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) return true;
    level = level.flatMap((one) => (typeof one === "object" && one !== null ? Object.values(one) : []));
  }
  return false;
}

/**
 * Checks a whole input. Errors: AppError invalid, also for keys that are no input (`unknown_key`), each with its path.
 * @param pathOf how a key is called where the input was written: `--wait-limit` on the command line, `waitLimitMs` in JSON
 */
export function checkInput<F extends Fields>(
  fields: F,
  input: unknown,
  pathOf: (key: string) => string = (key) => key,
): InputOf<F> {
  if (typeof input !== "object" || input === null || Array.isArray(input))
    throw badInput("", "the input must be a JSON object");
  if (isDeep(input))
    throw badInput(
      "",
      `the input is nested deeper than ${MAX_DEPTH} levels`,
      "No input of any command is.",
      "too_deep",
    );
  for (const key of Object.keys(input))
    if (!Object.hasOwn(fields, key))
      throw badInput(key, `there is no input ${JSON.stringify(key)}`, undefined, "unknown_key");
  const given = input as Readonly<Record<string, unknown>>;
  return Object.fromEntries(
    Object.entries(fields).map(([key, of]) => [key, of.check(given[key], pathOf(key))]),
  ) as InputOf<F>;
}

/** The flag of a key: kebab-case, without the unit of a duration. */
export function flagOf(key: string, of: Field<unknown>): string {
  return of.flag ?? key.replace(/Ms$/, "").replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

/** JSON Schema of an input. */
export function schemaOf(fields: Fields): Json {
  return {
    type: "object",
    properties: Object.fromEntries(
      Object.entries(fields).map(([key, of]) => [key, { ...of.schema, description: of.about }]),
    ),
    required: Object.entries(fields)
      .filter(([, of]) => of.required)
      .map(([key]) => key),
    additionalProperties: false,
  };
}
