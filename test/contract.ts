/** The contract of a command with scripts, as data that can be kept in a file, and what differs between two of them in words. */
import { exitsOf } from "../src/cli/exits.ts";
import { type Field, flagOf } from "../src/ops/fields.ts";
import type { AnyOperation } from "../src/ops/operation.ts";
import { keysOf } from "../src/ops/shape.ts";

/** One argument or flag. Its description is no part of it: words may get better. */
export interface Given {
  /** Its key in JSON; null for what only the command line knows. */
  readonly key: string | null;
  readonly type: string;
  readonly required?: true;
  readonly many?: true;
  readonly short?: string;
  /** What the flag means without a value. */
  readonly bare?: string;
  readonly default?: string;
  readonly choices?: readonly string[];
  /** Parsed, and refused as `not_available`. */
  readonly later?: true;
}

export interface Contract {
  readonly command: string;
  readonly where: string;
  /** Starts a daemon where none runs. */
  readonly starts: boolean;
  /** Can be followed: one JSON object a line. */
  readonly streams: boolean;
  /** Flags of which only one may be given. */
  readonly excludes: readonly string[];
  readonly exits: readonly number[];
  readonly arguments: { readonly [place: string]: Given };
  readonly flags: { readonly [flag: string]: Given };
  /** Each key of the answer by its path; `?` for what may be absent, `[]` for each item of a list. */
  readonly answer: { readonly [path: string]: string };
}

export function contractOf(operation: AnyOperation, hidden: boolean): Contract {
  const { input, cli, output } = operation;
  const placed = [...(cli.positionals ?? []), ...(cli.rest === undefined ? [] : [cli.rest])];
  const given = (key: string, field: Field<unknown>): Given => ({
    key: cli.own?.includes(key) === true ? null : key,
    type: typeOf(field),
    ...(field.required ? { required: true } : {}),
    ...(field.many ? { many: true } : {}),
    ...(field.short === null ? {} : { short: field.short }),
    ...(field.bare === null ? {} : { bare: field.bare }),
    ...(field.fallback === null ? {} : { default: field.fallback }),
    ...(field.choices === null ? {} : { choices: field.choices }),
    ...(field.later ? { later: true } : {}),
  });
  const flags = Object.entries(input).filter(([key]) => !placed.includes(key));
  const nameOf = (key: string): string => {
    const field = input[key];
    return field === undefined || placed.includes(key) ? key : `--${flagOf(key, field)}`;
  };
  return {
    command: hidden ? operation.name : `drover ${operation.name.replaceAll(".", " ")}`,
    where: operation.where,
    starts: operation.start,
    streams: operation.follow !== null,
    excludes: (cli.excludes ?? []).map((pair) => pair.map(nameOf).join(" ")),
    exits: exitsOf(operation),
    arguments: Object.fromEntries(
      placed.flatMap((key) => {
        const field = input[key];
        return field === undefined ? [] : [[key === cli.rest ? "--" : (field.placeholder ?? key), given(key, field)]];
      }),
    ),
    flags: Object.fromEntries(flags.map(([key, field]) => [`--${flagOf(key, field)}`, given(key, field)] as const)),
    answer: Object.fromEntries(keysOf(output).map(({ path, text }) => [path, text])),
  };
}

const typeOf = ({ schema, placeholder }: Field<unknown>): string =>
  schema["enum"] === undefined
    ? [schema["type"]].flat().join("|") + (placeholder === "D" ? ", as a duration" : "")
    : "choice";

/** The file of a contract: one argument, flag or key a line, so that a diff shows what changed and nothing else. */
export function textOfContract(contract: Contract): string {
  const lines = Object.entries(contract).map(([name, value]: [string, unknown]) => {
    if (typeof value !== "object" || value === null || Array.isArray(value))
      return `  ${JSON.stringify(name)}: ${JSON.stringify(value)}`;
    const inner = Object.entries(value).map(([key, one]) => `    ${JSON.stringify(key)}: ${JSON.stringify(one)}`);
    return `  ${JSON.stringify(name)}: {${inner.length === 0 ? "" : `\n${inner.join(",\n")}\n  `}}`;
  });
  return `{\n${lines.join(",\n")}\n}\n`;
}

/** What became of a contract, one sentence a change. What scripts may have relied on is called a break. */
export interface Change {
  readonly breaks: boolean;
  readonly text: string;
}

export const sentenceOf = ({ breaks, text }: Change): string => (breaks ? `${text}: a contract break` : text);

export function changesBetween(before: Contract, now: Contract): readonly Change[] {
  const name = `\`${now.command.replace(/^drover /, "")}\``;
  const changes: Change[] = [];
  const add = (breaks: boolean, text: string): void => {
    changes.push({ breaks, text: `${name} ${text}` });
  };
  if (before.where !== now.where) add(true, `runs in \`${now.where}\`, no longer in \`${before.where}\``);
  if (before.starts !== now.starts) add(true, now.starts ? "starts a daemon now" : "starts no daemon any more");
  if (before.streams !== now.streams)
    add(!now.streams, now.streams ? "can be followed" : "cannot be followed any more");
  for (const pair of now.excludes) if (!before.excludes.includes(pair)) add(true, `refuses ${pair} together`);
  for (const pair of before.excludes) if (!now.excludes.includes(pair)) add(false, `takes ${pair} together`);
  for (const status of now.exits) if (!before.exits.includes(status)) add(false, `may end with ${status}`);
  for (const status of before.exits)
    if (!now.exits.includes(status)) add(false, `does not end with ${status} any more`);
  const places = [Object.keys(before.arguments), Object.keys(now.arguments)] as const;
  if (places[0].join() !== places[1].slice(0, places[0].length).join())
    add(true, `takes ${places[1].join(" ") || "nothing"} by place, no longer ${places[0].join(" ")}`);
  for (const [kind, old, current] of [
    ["argument", before.arguments, now.arguments],
    ["flag", before.flags, now.flags],
  ] as const) {
    for (const word of Object.keys(old)) {
      const [was, is] = [old[word], current[word]];
      if (was === undefined) continue;
      if (is === undefined) add(true, `lost the ${kind} \`${word}\``);
      else compareGiven(`the ${kind} \`${word}\``, was, is, add);
    }
    for (const [word, is] of Object.entries(current))
      if (old[word] === undefined)
        add(is.required === true, `has ${is.required === true ? "an obligatory" : "a"} new ${kind} \`${word}\``);
  }
  compareAnswers(before.answer, now.answer, add);
  return changes;
}

type Add = (breaks: boolean, text: string) => void;

function compareGiven(what: string, was: Given, is: Given, add: Add): void {
  if (was.later === true && is.later === undefined) add(false, `has ${what} now, which was refused`);
  if (was.later === undefined && is.later === true) add(true, `refuses ${what} as not available`);
  if (was.key !== is.key) add(true, `calls ${what} \`${is.key}\` in JSON, no longer \`${was.key}\``);
  if (was.type !== is.type) add(true, `takes ${is.type} for ${what}, no longer ${was.type}`);
  if (was.required !== is.required)
    add(is.required === true, `${is.required === true ? "requires" : "no longer requires"} ${what}`);
  if (was.many !== is.many) add(true, `takes ${what} ${is.many === true ? "several times" : "only once"}`);
  if (was.short !== is.short)
    add(
      was.short !== undefined,
      `writes ${what} ${is.short === undefined ? "without a letter" : `as -${is.short}`}${was.short === undefined ? "" : `, no longer as -${was.short}`}`,
    );
  if (was.bare !== is.bare)
    add(
      was.bare !== undefined,
      `reads ${what} without a value as ${is.bare ?? "nothing"}${was.bare === undefined ? "" : `, no longer as ${was.bare}`}`,
    );
  if (was.default !== is.default)
    add(true, `takes ${is.default ?? "nothing"} where ${what} is not given, no longer ${was.default ?? "nothing"}`);
  for (const choice of was.choices ?? [])
    if (is.choices?.includes(choice) === false) add(true, `no longer takes \`${choice}\` for ${what}`);
  for (const choice of is.choices ?? [])
    if (was.choices?.includes(choice) === false) add(false, `takes \`${choice}\` too for ${what}`);
}

function compareAnswers(before: Contract["answer"], now: Contract["answer"], add: Add): void {
  const plain = (answer: Contract["answer"]) =>
    new Map(Object.entries(answer).map(([path, text]) => [path.replaceAll("?", ""), { path, text }]));
  const [old, current] = [plain(before), plain(now)];
  const under = (path: string, paths: ReadonlyMap<string, unknown>): boolean =>
    [...path.matchAll(/\.|\[\]/g)].some(({ index }) => index > 0 && !paths.has(path.slice(0, index)));
  for (const [key, was] of old) {
    const is = current.get(key);
    // What is inside of something lost is lost with it.
    if (is === undefined) {
      if (!under(key, current)) add(true, `no longer answers \`${key}\``);
      continue;
    }
    if (is.path.endsWith("?") && !was.path.endsWith("?")) add(true, `may leave out \`${key}\` of its answer`);
    if (!is.path.endsWith("?") && was.path.endsWith("?")) add(false, `always answers \`${key}\``);
    if (is.text !== was.text)
      add(!widens(was.text, is.text), `answers \`${key}\` as ${is.text}, no longer as ${was.text}`);
  }
  for (const key of current.keys()) if (!old.has(key) && !under(key, old)) add(false, `answers \`${key}\` too`);
}

/** Whether a text of choices only has more of them: a script that knows the old ones reads the new ones as another word. */
function widens(was: string, is: string): boolean {
  const [a, b] = [was.split(/\||, /), is.split(/\||, /)];
  return was.includes("|") && a.every((one) => b.includes(one)) && b.includes("or null") === a.includes("or null");
}
