/** From words of a command line to an operation's input. Flags come from the operation; nothing of one is known here. */
import type { AppError } from "../core/errors.ts";
import { nearest } from "../core/nearest.ts";
import { badInput, type Field, type Fields, flagOf, type Json, type Reading } from "../ops/fields.ts";
import type { AnyOperation } from "../ops/operation.ts";
import { readBytes } from "../ops/source.ts";

export interface Words {
  /** The words in front, up to the first flag. */
  readonly words: readonly string[];
  /** Everything after them. */
  readonly rest: readonly string[];
}

/** Flags of every command. */
export const COMMON_FLAGS: Fields = {
  json: common("print JSON"),
  yes: common("answer yes to every question", "y"),
  help: common("show help", "h"),
};

function common(about: string, short: string | null = null): Field<boolean> {
  return {
    about,
    placeholder: null,
    required: false,
    many: false,
    flag: null,
    short,
    bare: null,
    free: false,
    fallback: null,
    later: false,
    choices: null,
    completes: null,
    declared: null,
    written: "json",
    schema: { type: "boolean" },
    read: () => true,
    check: (value) => value === true,
  };
}

export interface Parsed {
  /** JSON input, not checked yet: only what was given. */
  readonly input: { readonly [key: string]: Json };
  readonly json: boolean;
  readonly help: boolean;
  /** Every question is answered. */
  readonly yes: boolean;
}

interface Known {
  readonly key: string;
  readonly field: Field<unknown>;
  readonly common: boolean;
}

/**
 * Reads the words after a command's name.
 * Errors: AppError invalid `unknown_flag`, `missing_value`, `given_twice`, `too_many_words`, and those of the fields, with
 * the flag as path. @param read how the bytes of files and of standard input are read
 */
export function parseArguments(
  operation: AnyOperation,
  words: readonly string[],
  cwd: string,
  read: Reading["readBytes"] = readBytes,
): Parsed {
  const reading: Reading = { cwd, readBytes: read };
  const { input: fields, cli } = operation;
  const positionals = cli.positionals ?? [];
  const known = flagsOf(operation);
  const input: { [key: string]: Json } = {};
  const common = new Set<string>();
  const places = [...positionals];

  const put = (key: string, field: Field<unknown>, text: string, path: string): void => {
    if (Object.hasOwn(input, key) && !field.many)
      throw badInput(path, `${path} is given twice`, "Give it once.", "given_twice");
    input[key] = field.read(text, path, reading, input[key]);
  };

  for (let index = 0; index < words.length; index++) {
    const word = words[index] as string;
    if (word === "--") {
      const rest = words.slice(index + 1);
      const { rest: key } = cli;
      const field = key === undefined ? undefined : fields[key];
      if (key !== undefined && field !== undefined) for (const one of rest) put(key, field, one, key);
      else for (const one of rest) placeWord(one);
      break;
    }
    if (word.startsWith("--") || /^-[A-Za-z]/.test(word)) {
      const long = word.startsWith("--");
      const at = word.indexOf("=");
      const name = long ? word.slice(2, at === -1 ? undefined : at) : word.slice(1, 2);
      const found = known.get(long ? `--${name}` : `-${name}`);
      if (found === undefined) throw unknownFlag(operation, long ? `--${name}` : `-${name}`, known);
      const path = long ? `--${flagOf(found.key, found.field)}` : `-${name}`;
      let value: string | null = long
        ? at === -1
          ? null
          : word.slice(at + 1)
        : word.length > 2
          ? word.slice(2).replace(/^=/, "")
          : null;
      if (found.field.placeholder === null) {
        if (value !== null && long) throw badInput(path, `${path} takes no value`, `Write ${path} alone.`);
        if (found.common) common.add(found.key);
        else put(found.key, found.field, "", path);
        // `-fn5`: letters of flags without a value may stand together.
        if (value !== null) words = [...words.slice(0, index + 1), `-${value}`, ...words.slice(index + 1)];
        continue;
      }
      if (value === null) {
        const next = words[index + 1];
        if (next !== undefined && isValueOf(found.field, next, known)) {
          value = next;
          index += 1;
        } else value = found.field.bare;
      }
      if (value === null)
        throw badInput(path, `${path} needs a value`, `Write ${path} ${found.field.placeholder}.`, "missing_value");
      put(found.key, found.field, value, path);
      continue;
    }
    placeWord(word);
  }

  function placeWord(word: string): void {
    const key = places[0];
    const field = key === undefined ? undefined : fields[key];
    if (key === undefined || field === undefined)
      throw badInput(
        word,
        `${JSON.stringify(word)} is one word too many`,
        cli.rest === undefined
          ? `\`drover ${operation.name.replaceAll(".", " ")} --help\` shows what it takes.`
          : "A command goes after --.",
        "too_many_words",
      );
    put(key, field, word, key);
    if (!field.many) places.shift();
  }

  for (const [one, other] of cli.excludes ?? [])
    if (Object.hasOwn(input, one) && Object.hasOwn(input, other)) {
      const [first, second] = [pathOnCommandLine(operation, one), pathOnCommandLine(operation, other)];
      throw badInput(second, `${first} and ${second} contradict each other`, "Give one of them.", "contradiction");
    }
  return { input, json: common.has("json"), help: common.has("help"), yes: common.has("yes") };
}

/** Whether the word after a flag is its value. A flag that was forgotten to be given one would else swallow the next flag. */
export function isValueOf(field: Field<unknown>, next: string, known: ReadonlyMap<string, Known>): boolean {
  if (field.free) return true;
  if (next === "--" || known.has(next.split("=", 1)[0] ?? "")) return false;
  return field.bare === null || !next.startsWith("-");
}

/** Which of the common flags stand among a command's own words, also where the others are wrong; values of flags are none. */
export function commonIn(operation: AnyOperation, words: readonly string[]): { help: boolean; json: boolean } {
  const known = flagsOf(operation);
  const said = { help: false, json: false };
  for (let index = 0; index < words.length; index++) {
    const word = words[index] as string;
    if (word === "--") break;
    if (word === "--help" || word === "-h") said.help = true;
    if (word === "--json") said.json = true;
    // Written with its value, as `--name=x` or `-nx`, a flag is none of these words.
    const field = known.get(word)?.field;
    const next = words[index + 1];
    if (field != null && field.placeholder !== null && next !== undefined && isValueOf(field, next, known)) index += 1;
  }
  return said;
}

/** How an input is called on the command line, for errors. */
export function pathOnCommandLine(operation: AnyOperation, key: string): string {
  const field = operation.input[key];
  const placed = operation.cli.positionals?.includes(key) === true || operation.cli.rest === key;
  return field === undefined || placed ? key : `--${flagOf(key, field)}`;
}

/** A required input that is missing, said in the words of the command line. Errors: AppError invalid `missing_value`. */
export function requireGiven(operation: AnyOperation, input: Parsed["input"]): void {
  for (const [key, field] of Object.entries(operation.input)) {
    if (!field.required || Object.hasOwn(input, key)) continue;
    const path = pathOnCommandLine(operation, key);
    throw badInput(
      path,
      path.startsWith("--")
        ? `${path} is missing`
        : `${(field.placeholder ?? key).toUpperCase()} is missing: ${field.about}`,
      `drover ${operation.name.replaceAll(".", " ")} --help`,
      "missing_value",
    );
  }
}

/** Every flag by how it is written. */
export function flagsOf(operation: AnyOperation): ReadonlyMap<string, Known> {
  const { positionals = [], rest } = operation.cli;
  const known = new Map<string, Known>();
  const add = (key: string, field: Field<unknown>, isCommon: boolean): void => {
    known.set(`--${flagOf(key, field)}`, { key, field, common: isCommon });
    if (field.short !== null) known.set(`-${field.short}`, { key, field, common: isCommon });
  };
  for (const [key, field] of Object.entries(COMMON_FLAGS)) add(key, field, true);
  for (const [key, field] of Object.entries(operation.input))
    if (!positionals.includes(key) && key !== rest) add(key, field, false);
  return known;
}

function unknownFlag(operation: AnyOperation, flag: string, known: ReadonlyMap<string, Known>): AppError {
  const near = nearest(
    flag,
    [...known.keys()].filter((one) => one.startsWith("--")),
  );
  const command = `drover ${operation.name.replaceAll(".", " ")}`;
  return badInput(
    flag,
    `${command} has no flag ${JSON.stringify(flag)}`,
    near === null ? `\`${command} --help\` lists its flags. A command to run goes after --.` : `Did you mean ${near}?`,
    "unknown_flag",
  );
}
