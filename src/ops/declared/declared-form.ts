/**
 * Loops, accounts and limits as `drover.yaml`, `loop edit` and bundles write them: the same words as the flags, in camelCase.
 * The keys come from the fields of the operations, so that what can be said on the command line can be said here too.
 */
import { formatDuration } from "../../core/duration.ts";
import { AppError } from "../../core/errors.ts";
import type { Limits } from "../../core/limits.ts";
import { loopPolicy, type LoopPolicy } from "../../core/loop.ts";
import type { AccountRecord } from "../../core/records.ts";
import type { Schedule } from "../../core/schedule.ts";
import type { Target } from "../../core/target.ts";
import { typedInputs } from "../../core/target-parts.ts";
import { nearest } from "../../core/nearest.ts";
import { accountFields, usualHome } from "../accounts/account-draft.ts";
import { agentFields } from "../accounts/agent-target.ts";
import { badInput, type Field, type Fields, flagOf, type InputOf, type Json, type Reading } from "../fields.ts";
import type { Places } from "../places.ts";
import {
  limitsOf,
  type LoopInput,
  loopFields,
  loopPolicyFields,
  runPolicyFields,
  scheduleFields,
  targetFields,
} from "../runs/work.ts";

/** A loop or an account as it is declared: plain data, only what differs from the usual. */
export type Form = { readonly [key: string]: Json };

/** What of a stored loop its form says. What it has come to (its anchor, its next instant, its status) is no part of it. */
export interface LoopDefinition {
  readonly schedule: Schedule;
  readonly target: Target;
  readonly policy: LoopPolicy;
}

/** Where a form lies, and how what it names is read. */
export interface FormReading extends Reading {
  /** What `~/` stands for at the beginning of a place; absent: for nothing. */
  readonly home?: string;
}

/** An input, or all that is wrong with the form: each an AppError whose `path` is within the form, as `agent.model` or `env.MODE`. */
export type ReadForm<Input> =
  | { readonly input: Input; readonly faults: null }
  | { readonly input: null; readonly faults: readonly AppError[] };

/** The key of a field in a form. */
const formKey = (key: string, field: Field<unknown>): string => field.declared ?? key.replace(/Ms$/, "");

const byFormKey = (fields: Fields): ReadonlyMap<string, readonly [key: string, field: Field<unknown>]> =>
  new Map(Object.entries(fields).map(([key, field]) => [formKey(key, field), [key, field]]));

const AGENT = "agent";
/** What stands in a loop itself, and what stands under its `agent`. */
export const LOOP_FORM = byFormKey(Object.fromEntries(Object.entries(loopFields).filter(([key]) => !isOfAgent(key))));
export const AGENT_FORM = byFormKey(agentFields);
export const ACCOUNT_FORM = byFormKey(accountFields);

function isOfAgent(key: string): boolean {
  return Object.hasOwn(agentFields, key);
}

const TARGET_KEYS = new Set(Object.entries(targetFields).map(([key, field]) => formKey(key, field)));

/** Which part of a loop's definition a place in its form belongs to. */
export function partOf(path: string): keyof LoopDefinition {
  const [key = ""] = path.split(".");
  if (Object.hasOwn(scheduleFields, key)) return "schedule";
  return key === AGENT || TARGET_KEYS.has(key) ? "target" : "policy";
}

// --- From what is kept to a form -----------------------------------------------------------------------------------------

/** How inputs say that there is none, where the usual is that there is one. */
const NONE: { readonly [key: string]: Json } = {
  timeoutMs: 0,
  idleTimeoutMs: 0,
  expiresAfterRuns: 0,
  expiresAt: "none",
  onFinish: "",
  onFailure: "",
};

function scheduleForm(schedule: Schedule): Form {
  switch (schedule.kind) {
    case "interval":
      return { every: formatDuration(schedule.everyMs) };
    case "cron":
      return { cron: schedule.expression, tz: schedule.zone };
    case "once":
      return { at: new Date(schedule.at).toISOString() };
    case "dynamic":
      return { dynamic: true };
  }
}

const isEmpty = (value: unknown): boolean =>
  value === null || value === undefined || (typeof value === "object" && Object.keys(value).length === 0);

/** Leaves out what is the usual, and what is empty. */
const without = (form: { readonly [key: string]: unknown }, usual: { readonly [key: string]: unknown }): Form =>
  Object.fromEntries(
    Object.entries(form).filter(([key, value]) => !isEmpty(value) && value !== usual[key]),
  ) as unknown as Form;

function targetForm(target: Target, prompt: Json): Form {
  const { cwd, env, envPass, secrets, expect, output, worktree } = target;
  const around = { cwd, env, envPass, secrets, expect, output, worktree };
  if (target.kind === "workflow")
    return { workflow: target.file, ...without({ inputs: typedInputs(target), ...around }, { output: "files" }) };
  if (target.kind === "command") {
    const [, , string] = target.argv;
    const what: Form =
      target.shell && string !== undefined ? { shell: string } : { command: target.argv as readonly string[] };
    return { ...what, ...without(around, { output: "files", worktree: "off" }) };
  }
  const { provider, command, model, permission, reason, allowRoot, untested, account } = target;
  const agent = without(
    { provider, command, prompt, model, permission, reason, allowRoot, untested, account },
    { permission: "workspace-write", allowRoot: false, untested: false, account: "default" },
  );
  return { [AGENT]: agent, ...without(around, { output: "files", worktree: "auto" }) };
}

const POLICY_KEYS = Object.entries({ ...loopPolicyFields, ...runPolicyFields });
const usualPolicy = loopPolicy.parse({});

function policyForm(policy: LoopPolicy, kind: Target["kind"], limits: Limits): Form {
  const usual: { readonly [key: string]: unknown } = { ...usualPolicy, ...limitsOf(kind, limits) };
  const held = policy as unknown as { readonly [key: string]: unknown };
  const form: { [key: string]: Json } = {};
  for (const [key, field] of POLICY_KEYS) {
    const word = formKey(key, field);
    const value = held[key] ?? held[word] ?? null;
    const expected = usual[key] ?? usual[word] ?? null;
    if (JSON.stringify(value) === JSON.stringify(expected)) continue;
    const said = (value === null ? NONE[key] : value) as Json;
    if (key === "expiresAt" && typeof said === "number") form[word] = new Date(said).toISOString();
    else form[word] = field.written === "text" && typeof said === "number" ? formatDuration(said) : said;
  }
  return form;
}

/**
 * The form of a loop. Read again it gives the same definition, but for the anchor of an interval, which is counted from when
 * it is saved. @param limits those that were in force, for the time limits that nobody chose
 * @param prompt of an agent: its text, `{"base64": ...}` where it is none, or whatever is to stand there; null for a command
 */
export const formOfLoop = (
  { schedule, target, policy }: LoopDefinition,
  { limits, prompt }: { readonly limits: Limits; readonly prompt: Json },
): Form => ({
  ...scheduleForm(schedule),
  ...targetForm(target, prompt),
  ...policyForm(policy, target.kind, limits),
});

/** A prompt as a form writes it: text where it is text. @param base64 its bytes */
export function promptForm(base64: string): Json {
  const bytes = Buffer.from(base64, "base64");
  const text = bytes.toString();
  // Line ends other than `\n` do not survive in YAML as they are.
  return Buffer.from(text).equals(bytes) ? text : { base64 };
}

/** The form of an account. Its login is in its folder, and no part of it. @param cap runs at work under it at a time; null for any number */
export const formOfAccount = (
  { provider, name, home, env, secrets }: Pick<AccountRecord, "provider" | "name" | "home" | "env" | "secrets">,
  cap: number | null,
  places: Pick<Places, "state">,
): Form => without({ home, cap, env, secrets }, { home: usualHome(places, provider, name) });

// --- From a form to inputs -------------------------------------------------------------------------------------------------

const unknownKey = (path: string, key: string, known: readonly string[]): AppError => {
  const near = nearest(key, known);
  return badInput(
    path,
    `there is no ${JSON.stringify(key)} here`,
    near === null ? `What there is: ${known.join(", ")}.` : `Did you mean ${near}?`,
    "unknown_key",
  );
};

const at = (prefix: string, key: string): string => (prefix === "" ? key : `${prefix}.${key}`);

/** Reads the keys of one level; every fault is kept. */
function readLevel(
  form: unknown,
  prefix: string,
  known: ReadonlyMap<string, readonly [key: string, field: Field<unknown>]>,
  reading: FormReading,
  faults: AppError[],
  own: (key: string, value: unknown) => boolean = () => false,
): { [key: string]: unknown } {
  const input: { [key: string]: unknown } = {};
  if (typeof form !== "object" || form === null || Array.isArray(form)) {
    faults.push(badInput(prefix, "this must be a set of keys with values", `As in ${[...known.keys()][0]}: ...`));
    return input;
  }
  for (const [word, value] of Object.entries(form)) {
    if (own(word, value)) continue;
    const path = at(prefix, word);
    const found = known.get(word);
    if (found === undefined) {
      faults.push(unknownKey(path, word, [...known.keys(), ...(prefix === "" && known === LOOP_FORM ? [AGENT] : [])]));
      continue;
    }
    const [key, field] = found;
    try {
      // Whatever stands there, it would be for nothing.
      input[key] = field.check(field.later ? true : valueOf(field, value, path, reading), path);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      faults.push(error);
    }
  }
  return input;
}

/** A value as the field's check takes it. Errors: AppError invalid. */
function valueOf(field: Field<unknown>, value: unknown, path: string, reading: FormReading): unknown {
  if (value === null)
    throw badInput(path, `${path} has no value`, "Give it one, or leave the key out.", "missing_value");
  if (field.written === "text") {
    if (typeof value !== "string")
      throw badInput(
        path,
        `${path} must be text`,
        field.placeholder === "D" ? "Write it with its unit, as in 90s or 1h30m." : "Put it into quotes.",
      );
    const { home } = reading;
    const isPlace = field.completes === "folder" || field.completes === "file";
    const said = isPlace && home !== undefined && /^~(\/|$)/.test(value) ? `${home}${value.slice(1)}` : value;
    return field.read(said, path, reading, undefined);
  }
  return value;
}

/** Says what YAML made of a word that was meant as text. */
function quoted(error: AppError): AppError {
  const isText = /must be (a list of )?texts?$|must be an object of texts$/.test(error.message);
  return isText && error.hint === undefined
    ? new AppError(error.kind, error.code, error.message, {
        ...(error.path === undefined ? {} : { path: error.path }),
        hint: error.message.endsWith("a list of texts")
          ? `Write a list, as in [one, "two words"].${error.path === "command" ? " A line for the shell is `shell`." : ""}`
          : "Numbers, true, false and null are text only in quotes.",
      })
    : error;
}

const MOVES_ON = "from now is another time whenever the file is read";

/**
 * Reads the form of a loop as the input of `loop add`, without its name. Every fault of it is told, as far as one can be seen
 * without looking at others. @param reading where relative places begin, and how files are read
 */
export function readLoopForm(form: unknown, reading: FormReading): ReadForm<LoopInput> {
  const faults: AppError[] = [];
  let agent: { [key: string]: unknown } | null = null;
  let program: unknown;
  const input = readLevel(form, "", LOOP_FORM, reading, faults, (key, value) => {
    if (key !== AGENT) return false;
    agent = readLevel(value, AGENT, AGENT_FORM, reading, faults, (word, given) => {
      if (word === "command") program = given;
      return word === "command";
    });
    return true;
  });
  for (const key of ["at", "expiresAt"] as const) {
    const said = input[key];
    if (typeof said === "string" && said.startsWith("+"))
      faults.push(
        badInput(key, `${key} ${said}: ${MOVES_ON}`, "Give an instant, as in 2026-05-01T02:30:00Z.", "bad_time"),
      );
  }
  if (faults.length === 0) {
    const schedules = ["every", "cron", "at", "dynamic"].filter(
      (key) => ![undefined, false].includes(input[key] as never),
    );
    if (schedules.length !== 1)
      faults.push(
        badInput(
          schedules[1] ?? "",
          schedules.length === 0 ? "no schedule is given" : `${schedules.join(" and ")} contradict one another`,
          "Give exactly one of every, cron, at, dynamic.",
          "bad_schedule",
        ),
      );
    const targets = ["command", "shell", "workflow"]
      .filter((key) => input[key] !== undefined)
      .concat(agent === null ? [] : [AGENT]);
    if (targets.length !== 1)
      faults.push(
        badInput(
          targets[1] ?? "",
          targets.length === 0 ? "there is nothing to run" : `${targets.join(" and ")} contradict one another`,
          "Give exactly one of command: [PROGRAM, ...], shell: STRING, workflow: FILE, agent: {provider, prompt}.",
          targets.length === 0 ? "missing_target" : "contradiction",
        ),
      );
  }
  if (program !== undefined) {
    try {
      const [first, ...rest] = loopFields.command.check(program, "agent.command") ?? [];
      Object.assign(input, {
        agentCommand: agentFields.agentCommand.check(first ?? "", "agent.command"),
        command: rest,
      });
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      faults.push(error);
    }
  }
  if (agent !== null && (agent as { agent?: unknown }).agent === undefined && faults.length === 0)
    faults.push(
      badInput("agent.provider", "agent.provider is missing", "Give claude, codex or custom.", "missing_value"),
    );
  if (typeof input["secret"] === "object") input["secret"] = placed(input["secret"] as Record<string, string>, reading);
  if (faults.length > 0) return { input: null, faults: faults.map(quoted) };
  return {
    input: complete(loopFields, { ...input, ...(agent as object | null), cwd: input["cwd"] ?? reading.cwd }),
    faults: null,
  };
}

/** Reads the form of an account as the input of `account add`, without its provider and name. */
export function readAccountForm(form: unknown, reading: FormReading): ReadForm<InputOf<typeof accountFields>> {
  const faults: AppError[] = [];
  const input = readLevel(form, "", ACCOUNT_FORM, reading, faults);
  if (typeof input["secret"] === "object") input["secret"] = placed(input["secret"] as Record<string, string>, reading);
  return faults.length > 0
    ? { input: null, faults: faults.map(quoted) }
    : { input: complete(accountFields, input), faults: null };
}

/** Sources of secrets with the places of files as they are meant: relative to where the form lies. */
const placed = (sources: Readonly<Record<string, string>>, { cwd }: Reading): Record<string, string> =>
  Object.fromEntries(
    Object.entries(sources).map(([name, source]) => [
      name,
      /^file:[^/~]/.test(source) ? `file:${cwd === "/" ? "" : cwd}/${source.slice("file:".length)}` : source,
    ]),
  );

/** Every field has its value: that of none where nothing is given. */
const complete = <F extends Fields>(fields: F, input: { readonly [key: string]: unknown }): InputOf<F> =>
  Object.fromEntries(
    Object.entries(fields).map(([key, field]) => [key, key in input ? input[key] : field.check(undefined, key)]),
  ) as InputOf<F>;

// --- Errors of the operations in the words of a form ------------------------------------------------------------------------

const wordsOf = (fields: Fields, inAgent: boolean): readonly (readonly [flag: string, path: string])[] =>
  Object.entries(fields).map(([key, field]) => [
    `--${flagOf(key, field)}`,
    inAgent && isOfAgent(key) ? at(AGENT, formKey(key, field)) : formKey(key, field),
  ]);
const LOOP_WORDS: ReadonlyMap<string, string> = new Map(wordsOf(loopFields, true));
const ACCOUNT_WORDS: ReadonlyMap<string, string> = new Map(wordsOf(accountFields, false));

const inWords = (text: string, words: ReadonlyMap<string, string>): string =>
  text
    .replaceAll("`--help` says what it takes.", "`drover config schema` says what it takes.")
    .replaceAll(/--[a-z][a-z-]*/g, (flag) => words.get(flag) ?? flag)
    .replaceAll("-- COMMAND", "command");

/** What is said of a loop's flags, in the words of a form. */
export const inLoopWords = (text: string): string => inWords(text, LOOP_WORDS);

/** An error of `loop add` or `account add` about a form: flags become its keys, in the place and in the words. */
export function inFormWords(error: AppError, of: "loop" | "account"): AppError {
  const words = of === "loop" ? LOOP_WORDS : ACCOUNT_WORDS;
  const [flag = "", ...more] = (error.path ?? "").split(" ");
  const key = words.get(flag) ?? (flag === "name" || flag === "loop" ? "" : flag);
  return new AppError(error.kind, error.code, inWords(error.message, words), {
    path: [key, ...more].join("."),
    ...(error.hint === undefined ? {} : { hint: inWords(error.hint, words) }),
  });
}
