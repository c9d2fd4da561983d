/**
 * What may stand where the cursor is: commands, flags, choices, and names and ids from the store. Nothing is changed or
 * started, and nothing is said where the store is absent or broken: the command itself will tell.
 */
import { describeDuration } from "../core/duration.ts";
import { shortId } from "../core/ids.ts";
import { defaultLimits } from "../core/limits.ts";
import type { OfferedThing } from "../core/ports.ts";
import { allAccounts } from "../ops/accounts/account-find.ts";
import { PROVIDERS } from "../ops/accounts/agent-target.ts";
import type { Field } from "../ops/fields.ts";
import { findRun } from "../ops/find.ts";
import { operations } from "../ops/index.ts";
import type { AnyOperation, StoreContext } from "../ops/operation.ts";
import { withReading } from "../ops/perform.ts";
import type { World } from "../ops/world.ts";
import { flagsOf, isValueOf } from "./arguments.ts";
import { TOPICS } from "./topics.ts";
import { forBash, forFish, forZsh, type Offer, readBashLine } from "./shell-words.ts";

/** Names that are offered at most. */
const OFFERED = 50;
/** Rows that are looked at for them, along an index. */
const LOOKED_AT = 1_000;
/** Runs that are looked at: those that somebody may have in mind. */
const RUNS_LOOKED_AT = 200;
/** A store that does not answer by then offers nothing: somebody waits at the prompt. */
const PATIENCE_MS = 1_000;

/** What a shell is told: offers, or who else completes the word. */
export type Completion =
  | { readonly kind: "offers"; readonly offers: readonly Offer[] }
  /** `prefix` stands in front of the path in the same word: `--prompt-file=`. */
  | { readonly kind: "files" | "folders"; readonly prefix: string }
  /** Another command's own words. */
  | { readonly kind: "command" };

const offering = (offers: readonly Offer[]): Completion => ({ kind: "offers", offers });
const NOTHING = offering([]);

/**
 * Answers a shell, in its own form: the first line says what follows.
 * @param words the shell, and what it knows: of bash the type of completion, the columns, the word breaks and the line up to
 *   the cursor; of zsh and fish the words before the cursor and the one under it
 */
export async function completeFor(words: readonly string[], world: World): Promise<readonly string[]> {
  const [shell = "", ...rest] = words;
  const line = shell === "bash" ? readBashLine(rest[3] ?? "", rest[2] ?? "") : null;
  const before = line?.before ?? rest.slice(0, -1);
  const typed = line?.current ?? rest.at(-1) ?? "";
  // fish hands over the word as it is typed, with its quotes.
  const current = shell === "fish" ? readBashLine(typed, "").current : typed;
  const found = await complete(before, current, world);
  if (found.kind === "command") return ["command"];
  if (found.kind !== "offers") return [`${found.kind} ${found.prefix}`];
  const offers = found.offers.filter(({ value }) => value.startsWith(current));
  if (line !== null)
    // 37 and 42: menu-complete and insert-completions put the text itself on the line.
    return [
      "offers",
      ...forBash(offers, line, { lists: rest[0] !== "37" && rest[0] !== "42", columns: Number(rest[1]) || 80 }),
    ];
  return ["offers", ...(shell === "zsh" ? forZsh(offers) : forFish(offers))];
}

/** Answers nothing rather than an error, and nothing rather than late. */
export async function complete(before: readonly string[], current: string, world: World): Promise<Completion> {
  const late = new Promise<Completion>((resolve) => setTimeout(() => resolve(NOTHING), PATIENCE_MS).unref());
  try {
    return await Promise.race([found(before, current, world), late]);
  } catch {
    return NOTHING; // a broken configuration or store is told by the command itself
  }
}

const commandNames = (): readonly (readonly [words: readonly string[], summary: string])[] =>
  operations.filter((entry) => entry.hidden !== true).map(({ name, summary }) => [name.split("."), summary]);

/** The commands that may follow these words; of a noun with several verbs the noun. */
function commands(words: readonly string[]): readonly Offer[] {
  const offers = new Map<string, string>();
  for (const [name, summary] of commandNames()) {
    if (words.some((word, index) => name[index] !== word)) continue;
    const word = name[words.length];
    if (word === undefined) continue;
    const isNoun = name.length > words.length + 1;
    const verbs = commandNames().flatMap(([[noun, verb = ""]]) => (noun === word ? [verb] : []));
    offers.set(word, isNoun ? verbs.join(", ") : summary);
  }
  return [...offers].map(([value, about]) => ({ value, about }));
}

async function found(given: readonly string[], current: string, world: World): Promise<Completion> {
  const before = given.slice(
    Math.max(
      0,
      given.findIndex((word) => word !== "--json"),
    ),
  );
  const [first, second] = before;
  if (first === undefined || first === "--json")
    return offering([...commands([]), { value: "help", about: "Show help, of a command or on a topic" }]);
  if (first === "help") {
    const topics = second === undefined ? TOPICS.map(({ name, summary }) => ({ value: name, about: summary })) : [];
    return offering([...commands(before.slice(1)), ...topics]);
  }
  const entry =
    (second === undefined ? undefined : operations.find(({ name }) => name === `${first}.${second}`)) ??
    operations.find(({ name }) => name === first);
  if (entry === undefined || entry.hidden === true) return offering(before.length === 1 ? commands([first]) : []);
  const { operation } = await entry.load();
  return ofOperation(operation, before.slice(entry.name.split(".").length), current, world);
}

/** What the words of a command's own say so far. */
interface Typed {
  /** Inputs that were given, and their last text. */
  readonly given: ReadonlyMap<string, string>;
  /** A flag at the end that has no value yet. */
  readonly awaits: Field<unknown> | null;
  /** After `--`. */
  readonly past: boolean;
}

function read(operation: AnyOperation, words: readonly string[]): Typed {
  const known = flagsOf(operation);
  const given = new Map<string, string>();
  const places = [...(operation.cli.positionals ?? [])];
  const place = (word: string): void => {
    const key = places[0];
    if (key === undefined) return;
    given.set(key, word);
    if (operation.input[key]?.many !== true) places.shift();
  };
  for (let index = 0; index < words.length; index++) {
    const word = words[index] as string;
    if (word === "--") {
      for (const one of words.slice(index + 1)) place(one);
      return { given, awaits: null, past: true };
    }
    if (!word.startsWith("--") && !/^-[A-Za-z]/.test(word)) {
      place(word);
      continue;
    }
    const long = word.startsWith("--");
    const at = long ? word.indexOf("=") : -1;
    const flag = known.get(long ? (at === -1 ? word : word.slice(0, at)) : word.slice(0, 2));
    if (flag === undefined) continue;
    const { key, field } = flag;
    const attached = long ? (at === -1 ? null : word.slice(at + 1)) : word.length > 2 ? word.slice(2) : null;
    given.set(key, attached ?? "");
    // `-fn5`: letters of flags without a value may stand together.
    if (field.placeholder === null && !long && attached !== null) words = words.toSpliced(index + 1, 0, `-${attached}`);
    if (field.placeholder === null || attached !== null) continue;
    const next = words[index + 1];
    if (next === undefined) return { given, awaits: field, past: false };
    if (!isValueOf(field, next, known)) continue;
    given.set(key, next);
    index += 1;
  }
  return { given, awaits: null, past: false };
}

async function ofOperation(
  operation: AnyOperation,
  words: readonly string[],
  current: string,
  world: World,
): Promise<Completion> {
  const typed = read(operation, words);
  const ask = (field: Field<unknown>, text: string, prefix: string) =>
    values({ field, text, prefix, typed, operation, world });
  if (typed.past && operation.cli.rest !== undefined) return { kind: "command" };
  if (typed.awaits !== null && !(typed.awaits.bare !== null && current.startsWith("-")))
    return ask(typed.awaits, current, "");
  if (!typed.past && current.startsWith("-")) {
    const at = current.indexOf("=");
    const flag = at === -1 ? undefined : flagsOf(operation).get(current.slice(0, at));
    if (flag === undefined) return offering(flags(operation, typed));
    return flag.field.placeholder === null ? NOTHING : ask(flag.field, current.slice(at + 1), current.slice(0, at + 1));
  }
  const key = operation.cli.positionals?.find((one) => !typed.given.has(one) || operation.input[one]?.many === true);
  const field = key === undefined ? undefined : operation.input[key];
  // Where no word is expected, flags are all that may come.
  return field === undefined ? offering(typed.past ? [] : flags(operation, typed)) : ask(field, current, "");
}

/** Flags that may still be given. */
function flags(operation: AnyOperation, { given }: Typed): readonly Offer[] {
  const refused = (operation.cli.excludes ?? []).flatMap(([one, other]) =>
    given.has(one) ? [other] : given.has(other) ? [one] : [],
  );
  const offers = [...flagsOf(operation)]
    .filter(([flag, { key, field }]) => {
      const again = given.has(key) && !field.many;
      return flag.startsWith("--") && !field.later && !again && !refused.includes(key);
    })
    .map(([value, { field }]) => ({ value, about: field.about }));
  const { rest } = operation.cli;
  return rest === undefined ? offers : [...offers, { value: "--", about: `${operation.input[rest]?.about ?? ""}` }];
}

interface Question {
  readonly field: Field<unknown>;
  /** What is typed of the value. */
  readonly text: string;
  /** What stands in front of it in the same word. */
  readonly prefix: string;
  readonly typed: Typed;
  readonly operation: AnyOperation;
  readonly world: World;
}

async function values(question: Question): Promise<Completion> {
  const { field, text, prefix } = question;
  if (field.completes === "file" || field.completes === "folder")
    return { kind: field.completes === "file" ? "files" : "folders", prefix };
  // `a,b`: of a list in one word the last part is being typed.
  const listed = field.choices !== null && field.many ? text.slice(0, text.lastIndexOf(",") + 1) : "";
  const offers = await offersOf({ ...question, text: text.slice(listed.length) });
  return offering(offers.map((offer) => ({ ...offer, value: prefix + listed + offer.value })));
}

async function offersOf({ field, text, typed, operation, world }: Question): Promise<readonly Offer[]> {
  if (field.choices !== null) return field.choices.map((value) => ({ value, about: "" }));
  const [kind, which = "any"] = (field.completes ?? "").split(":");
  switch (kind) {
    case "zone":
      return Intl.supportedValuesOf("timeZone").map((value) => ({ value, about: "" }));
    case "template": {
      const { listTemplates } = await import("../ops/workflows/template-sources.ts");
      return listTemplates(world.places.templates, defaultLimits).map(({ name }) => ({ value: name, about: "" }));
    }
    case "provider":
      return PROVIDERS.map((value) => ({ value, about: "" }));
    case "account":
      return withReading(world, async (context) => accounts(context, text, typed.given.get("agent")));
    case "loop":
      return withReading(world, async (context) => loops(context, text, which));
    case "run":
      return withReading(world, async (context) => runs(context, text, which));
    case "thing":
      return withReading(world, async (context) => [
        ...(await loops(context, text, which)),
        ...(await runs(context, text, which)),
      ]);
    case "resource":
      return withReading(world, async (context) => resources(context));
    case "step":
    case "attempt": {
      const run = typed.given.get(operation.cli.positionals?.[0] ?? "");
      return run === undefined ? [] : withReading(world, async (context) => partsOf(context, run, kind, typed));
    }
    default:
      return [];
  }
}

type Which = "any" | "active" | "paused" | "archived" | "live" | "ended";

async function loops({ store }: StoreContext, prefix: string, which: string): Promise<readonly Offer[]> {
  const found = await store.things.offer({
    kind: "loop",
    prefix,
    which: which as Which,
    among: LOOKED_AT,
    limit: OFFERED,
  });
  return found.map(({ name, status }) => ({ value: name, about: which === "archived" ? "archived" : status }));
}

/** Runs newest first, by the end of the id that tables print; by the whole id where its beginning is typed. */
async function runs({ store, clock }: StoreContext, text: string, which: string): Promise<readonly Offer[]> {
  const whole = text.startsWith("run_");
  const found = await store.things.offer({
    kind: "run",
    prefix: whole ? text : "",
    which: which as Which,
    among: RUNS_LOOKED_AT,
    limit: RUNS_LOOKED_AT,
  });
  const now = clock.now();
  const about = ({ name, status, at }: OfferedThing): string =>
    `${name} ${status} ${describeDuration(now - (at ?? now))} ago`;
  return found
    .map((run) => ({ value: whole ? run.id : shortId(run.id), about: about(run) }))
    .filter(({ value }) => value.startsWith(text))
    .slice(0, OFFERED);
}

/** Accounts by their id, or of one provider by the name alone. */
async function accounts({ store }: StoreContext, text: string, provider?: string): Promise<readonly Offer[]> {
  const all = await allAccounts(store, PROVIDERS);
  return all
    .map(({ account }) => account)
    .filter((account) => provider === undefined || account.provider === provider)
    .map(({ id, name, enabled }) => ({
      value: provider === undefined || text.includes(":") ? id : name,
      about: enabled ? "" : "disabled",
    }))
    .slice(0, OFFERED);
}

async function resources({ store }: StoreContext): Promise<readonly Offer[]> {
  const limits = await store.admission.usage({});
  return limits
    .slice(0, OFFERED)
    .map(({ resource, used, limit }) => ({ value: resource, about: `${used} of ${limit} used` }));
}

async function partsOf(
  { store }: StoreContext,
  ref: string,
  kind: "step" | "attempt",
  { given }: Typed,
): Promise<readonly Offer[]> {
  const tree = await findRun(store, ref);
  if (kind === "step") return tree.steps.map(({ key, status }) => ({ value: key, about: status }));
  const wanted = given.get("step");
  const steps = tree.steps.filter(({ key }) => wanted === undefined || key === wanted).map(({ id }) => id);
  return tree.attempts
    .filter(({ stepId }) => steps.includes(stepId))
    .map(({ number, status }) => ({ value: String(number), about: status }));
}
