/** Inputs of operations: what fits, what nearly fits, and what nobody would write. Chance decides, a seed decides chance. */
import { parseArguments } from "../../src/cli/arguments.ts";
import { AppError } from "../../src/core/errors.ts";
import { type Field, flagOf, isDeep, type Json } from "../../src/ops/fields.ts";
import type { AnyOperation } from "../../src/ops/operation.ts";
import type { Chance } from "../sim/chance.ts";

export type Input = { readonly [key: string]: Json };

/** What earlier answers and inputs held, to be named again. */
export interface Pool {
  /** Of one kind of thing that a field completes: `loop`, `run`, `account`, ...; a few of them. */
  namesOf(kind: string): readonly string[];
  /** Any text that was in an answer: ids, cursors, paths. */
  readonly texts: readonly string[];
  /** Inputs that each operation took. */
  accepted(operation: string): readonly Input[];
}

const LONG = 20_000;
/** Each is worst for somebody: a parser, a pattern, a terminal, a database, an object used as a map. */
const HOSTILE_TEXTS: readonly string[] = [
  ...[
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff\ud800",
    "\ufffd",
    "\ufeffx",
    "\u202egnp.exe",
    "\u001b[2J\u001b]0;x\u0007",
  ],
  ...["__proto__", "constructor", "toString", "hasOwnProperty", "null", "undefined", "true", "NaN", "Infinity"],
  ...[
    "../../etc/passwd",
    "/",
    "//",
    ".",
    "..",
    "~",
    "/dev/zero",
    "/dev/null",
    "/proc/self/mem",
    "-",
    "--",
    "--json",
    "-x",
  ],
  ...["-1", "0", "00", "1e309", "1e-9", "0x10", "99999999999999999999", "9007199254740993", "١٢", "½"],
  ...[
    "$(id)",
    "`id`",
    "'; drop table runs; --",
    "%",
    "_",
    "%s%n",
    "a,b,,c",
    "A=b",
    "=",
    "a=",
    "é",
    "e\u0301",
    "👩‍👩‍👧",
    "\r\n",
    "\t",
  ],
  ...[
    "0ms",
    "1h1h",
    "1.5h",
    "-5m",
    "106751991168d",
    "* * * * *",
    "*/0 * * * *",
    "0 0 31 2 *",
    "@reboot",
    "60 24 32 13 8",
  ],
  ...[
    "2026-02-30",
    "275760-09-13",
    "-271821-04-20T00:00:00Z",
    "2026-03-29T02:30",
    "+1s",
    "24:00",
    "1970-01-01T00:00:00Z",
  ],
  ...[
    "Etc/GMT+25",
    "Europe/../Berlin",
    "UTC",
    "claude:",
    ":work",
    "claude:default",
    "a:b:c",
    "host:x:command",
    "W10=",
    "bnVsbA==",
  ],
  ...[
    "a".repeat(LONG),
    " ".repeat(LONG),
    "1h".repeat(LONG),
    "-".repeat(LONG),
    "0,".repeat(LONG),
    "/a".repeat(LONG),
    "\n".repeat(LONG),
  ],
  ...[
    `${"a".repeat(LONG)}!`,
    `${"* ".repeat(LONG)}`,
    `${"=".repeat(LONG)}`,
    `${"[".repeat(LONG)}`,
    `${"\u001b[".repeat(LONG)}`,
  ],
];

/** Deep enough to end a stack of calls. */
const DEPTH = 20_000;
function deep(isObject: boolean): Json {
  let value: Json = 0;
  for (let i = 0; i < DEPTH; i++) value = isObject ? { a: value } : [value];
  return value;
}

const HOSTILE_VALUES: readonly (() => Json)[] = [
  () => null,
  () => true,
  () => [],
  () => ({}),
  () => [[]],
  () => [null],
  () => ({ a: { b: [1, { c: null }] } }),
  () => JSON.parse('{"__proto__": {"x": 1}, "constructor": {"prototype": {}}}') as Json,
  () => JSON.parse('{"toString": 1, "length": -1, "then": 1, "toJSON": 1}') as Json,
  () => ({ base64: "!!" }),
  () => ({ base64: "/w==" }),
  () => deep(false),
  () => deep(true),
  () => Array.from({ length: 2_000 }, (_, at) => `n${at}`),
  () => Object.fromEntries(Array.from({ length: 2_000 }, (_, at) => [`n${at}`, `${at}`])),
];
const HOSTILE_NUMBERS = [0, -0, -1, 1, 0.5, 1e308, -1e308, 2 ** 31, 2 ** 53 - 1, -(2 ** 53 - 1), 2 ** 53, 1e15, 999];

/** Text of one to many characters, in which anything may stand. */
function noise(chance: Chance): string {
  const length = chance.hit(0.9) ? chance.int(0, 12) : chance.int(0, 300);
  return Array.from({ length }, () =>
    chance.hit(0.7) ? chance.int(32, 126) : chance.hit(0.8) ? chance.int(0, 0x2ff) : chance.int(0, 0xffff),
  )
    .map((code) => String.fromCharCode(code))
    .join("");
}

/** A text with a piece doubled, lost, moved or replaced. */
export function mutateText(text: string, chance: Chance): string {
  const [from, to] = [chance.int(0, text.length), chance.int(0, text.length)].toSorted((a, b) => a - b) as [
    number,
    number,
  ];
  const end = Math.min(to, from + chance.int(0, 40));
  const piece = text.slice(from, end);
  return chance.pick([
    () => text.slice(0, from) + text.slice(end),
    () => text.slice(0, end) + piece + text.slice(end),
    () => text.slice(0, from) + hostileText(chance) + text.slice(end),
    () => text.slice(0, from) + noise(chance) + text.slice(from),
    () =>
      text.slice(0, from) +
      String.fromCharCode((text.charCodeAt(from) || 0) ^ (1 << chance.int(0, 7))) +
      text.slice(from + 1),
    () => text.slice(0, from),
  ])();
}

export const hostileText = (chance: Chance): string => (chance.hit(0.3) ? noise(chance) : chance.pick(HOSTILE_TEXTS));

export function hostile(chance: Chance): Json {
  if (chance.hit(0.5)) return hostileText(chance);
  return chance.hit(0.3) ? chance.pick(HOSTILE_NUMBERS) : chance.pick(HOSTILE_VALUES)();
}

/** A document with one of its places taken out, doubled, renamed or replaced. */
export function mutateJson(value: Json, chance: Chance, pool: Pool | null = null): Json {
  if (Array.isArray(value) && value.length > 0 && chance.hit(0.85)) {
    const at = chance.int(0, value.length - 1);
    const copy = [...(value as readonly Json[])];
    if (chance.hit(0.1)) copy.splice(at, 1);
    else if (chance.hit(0.1)) copy.splice(at, 0, copy[at] as Json);
    else copy[at] = mutateJson(copy[at] as Json, chance, pool);
    return copy;
  }
  if (typeof value === "object" && value !== null && Object.keys(value).length > 0 && chance.hit(0.9)) {
    const entries = Object.entries(value as Input);
    const at = chance.int(0, entries.length - 1);
    const [key, one] = entries[at] as [string, Json];
    if (chance.hit(0.1)) entries.splice(at, 1);
    else if (chance.hit(0.1))
      entries.push([chance.pick(["__proto__", "other", "constructor", "id", `${key} `]), hostile(chance)]);
    else entries[at] = [key, mutateJson(one, chance, pool)];
    return Object.fromEntries(entries);
  }
  if (pool !== null && pool.texts.length > 0 && chance.hit(0.2)) return chance.pick(pool.texts);
  if (typeof value === "number" && chance.hit(0.5))
    return chance.hit(0.5) ? value + chance.int(-2, 2) : chance.pick(HOSTILE_NUMBERS);
  if (typeof value === "string" && chance.hit(0.4)) return mutateText(value, chance);
  return hostile(chance);
}

/** Texts that fit fields of these names. */
const FITTING: { readonly [key: string]: readonly Json[] } = {
  name: ["a", "b", "work", "nightly", "a-b_c.1"],
  every: ["1h", "90s", "1m"],
  cron: ["* * * * *", "30 2 * * *", "0 9 * * mon-fri", "@hourly"],
  tz: ["UTC", "Europe/Berlin", "America/New_York"],
  at: ["+5m", "2026-03-29T02:30", "2027-01-01"],
  expression: ["1h", "* * * * *", "30 2 * * *"],
  from: ["2026-03-29T00:00", "main", "start"],
  since: ["2h", "1d", "2026-03-01"],
  until: ["1m", "2027-01-01", "2026-03-05"],
  command: [["true"], ["sh", "-c", "exit 3"], ["echo", "a b"]],
  shell: ["true", "echo $HOME", "exit 4"],
  env: [{ A: "1" }, { A: "1", B: "" }],
  envPass: [["LANG"]],
  secret: [{ TOKEN: "env:LANG" }, { TOKEN: "file:/etc/hostname" }, { TOKEN: "cmd:true" }],
  cwd: ["/", "/tmp"],
  label: [["a"], ["a", "night"], "a"],
  labels: [["a"], ["a", "night"]],
  resource: ["lane:x", "account:claude:work", "provider:claude", "host"],
  prompt: ["Do it.", { base64: "RG8gaXQu" }],
  input: [{ K: "v" }],
  reason: ["on holiday", "because"],
  expect: [["output"], ["commit"], ["file:x"]],
  model: ["opus"],
  agentCommand: ["/bin/cat"],
  onFinish: ["true"],
  onFailure: ["false"],
  thing: ["a", "claude:work"],
  account: ["claude:default", "claude:work"],
  step: ["main"],
  programs: [["sh", "claude"]],
};

/** What examples say of these is about somebody else's host. */
const OF_HOST = new Set(["command", "cwd", "agentCommand", "secret", "account"]);

/** A value that may well be taken for this field. */
function fitting(key: string, field: Field<unknown>, chance: Chance, pool: Pool): Json {
  const { choices, many, schema, completes } = field;
  if (choices !== null) {
    const one = chance.pick(choices);
    return many && chance.hit(0.7) ? [one] : one;
  }
  const kind = completes?.replace(/:.*/, "");
  if (kind !== undefined && chance.hit(0.85)) {
    const names = pool.namesOf(kind);
    if (names.length > 0) {
      const name = chance.pick(names);
      // A part of an id is enough where it is long.
      return name.length > 12 && chance.hit(0.2) ? name.slice(-chance.int(3, 10)) : name;
    }
  }
  const known = FITTING[key];
  if (known !== undefined && chance.hit(0.9)) return chance.pick(known);
  const { minimum = 0, maximum = 1_000 } = schema as { readonly minimum?: number; readonly maximum?: number };
  switch ([schema["type"]].flat()[0]) {
    case "boolean":
      return chance.hit(0.7);
    case "integer":
      return chance.hit(0.2)
        ? chance.pick([minimum, maximum])
        : chance.int(minimum, Math.min(maximum, minimum + 100_000));
    case "array":
      return Array.from({ length: chance.int(0, 3) }, () => chance.pick(["a", "b", "c"]));
    case "object":
      return { A: "x" };
    default:
      return pool.texts.length > 0 && chance.hit(0.5) ? chance.pick(pool.texts) : chance.pick(["a", "b", "1h"]);
  }
}

/** Inputs that the operation's own examples mean; what they read of files is a word. */
export function examplesOf(operation: AnyOperation): readonly Input[] {
  const length = operation.name.split(".").length;
  return (operation.cli.examples ?? []).flatMap((line) => {
    try {
      const words = line.split(" ").slice(length);
      return [parseArguments(operation, words, "/tmp", () => "eA==").input as Input];
    } catch (error) {
      if (error instanceof AppError) return []; // a line that a shell has to read
      throw error;
    }
  });
}

/** An input of the operation: mostly one that fits in most of its parts, so that what lies behind the door is met too. */
export function inputFor(operation: AnyOperation, examples: readonly Input[], chance: Chance, pool: Pool): Json {
  if (chance.hit(0.02)) return hostile(chance);
  const taken = pool.accepted(operation.name);
  const base = chance.pick<readonly Input[]>([examples, taken, taken, []]);
  const input = new Map<string, Json>(base.length === 0 ? [] : Object.entries(chance.pick(base)));
  const fields = Object.entries(operation.input);
  for (const [key, field] of fields) {
    const has = input.has(key);
    if (key === "cwd" && !has && chance.hit(0.8)) input.set(key, "/");
    if (has ? OF_HOST.has(key) || (field.completes !== null && chance.hit(0.9)) : field.required)
      input.set(key, fitting(key, field, chance, pool));
    else if (!field.later && chance.hit(has ? 0.1 : 0.5 / fields.length))
      input.set(key, fitting(key, field, chance, pool));
  }
  for (let faults = chance.hit(0.6) ? 0 : chance.int(1, 2); faults > 0; faults--) {
    const keys = [...input.keys()];
    const [key] = fields.length === 0 ? ["other"] : chance.pick(fields);
    if (chance.hit(0.1) && keys.length > 0) input.delete(chance.pick(keys));
    else if (chance.hit(0.08)) input.set(chance.pick(["__proto__", "constructor", "other", "cwd"]), hostile(chance));
    else if (keys.length > 0 && chance.hit(0.5)) {
      const one = chance.pick(keys);
      input.set(one, mutateJson(input.get(one) as Json, chance, pool));
    } else input.set(key, hostile(chance));
  }
  return Object.fromEntries(input);
}

/** Words of a command line that mean this input, as far as they can, and some that mean nothing. */
export function wordsFor(operation: AnyOperation, input: Json, chance: Chance): readonly string[] {
  const { positionals = [], rest } = operation.cli;
  const words: string[] = [];
  const behind: string[] = [];
  const textOf = (value: unknown): string =>
    typeof value === "string" ? value : isDeep(value) ? "deep" : JSON.stringify(value);
  const given = typeof input === "object" && input !== null && !Array.isArray(input) ? (input as Input) : {};
  for (const [key, value] of Object.entries(given)) {
    const field = Object.hasOwn(operation.input, key) ? operation.input[key] : undefined;
    const list = Array.isArray(value)
      ? value.map(textOf)
      : field?.schema["type"] === "object" && typeof value === "object" && value !== null
        ? Object.entries(value).map(([name, one]) => `${name}=${textOf(one)}`)
        : [field?.placeholder === "D" && typeof value === "number" ? `${value}ms` : textOf(value)];
    for (const one of list.slice(0, 20)) {
      if (key === rest) behind.push(one);
      else if (positionals.includes(key)) words.push(one);
      else if (field === undefined) words.push(`--${key}`, one);
      else if (field.placeholder === null) words.push(`--${flagOf(key, field)}`);
      else if (chance.hit(0.5)) words.push(`--${flagOf(key, field)}=${one}`);
      else words.push(`--${flagOf(key, field)}`, one);
    }
  }
  if (chance.hit(0.15)) words.splice(chance.int(0, words.length), 0, hostileText(chance));
  if (chance.hit(0.1)) words.splice(chance.int(0, words.length), 1);
  if (chance.hit(0.05)) words.push("--help");
  return [...words, ...(behind.length > 0 || chance.hit(0.05) ? ["--", ...behind] : [])].map((word) =>
    word.replaceAll("\0", ""),
  );
}
