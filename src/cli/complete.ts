/** What may stand where the cursor is: commands, flags, choices, and names of loops and ids of runs. Nothing is changed or started. */
import { allAccounts } from "../ops/account-find.ts";
import { PROVIDERS } from "../ops/agent-target.ts";
import { operations } from "../ops/index.ts";
import type { Field } from "../ops/fields.ts";
import { withReading } from "../ops/perform.ts";
import type { World } from "../ops/world.ts";
import { flagsOf } from "./arguments.ts";

/** Names that are offered at most. */
const OFFERED = 50;

/** Candidates that begin with the last word. Answers none rather than an error. */
export async function complete(words: readonly string[], world: World): Promise<readonly string[]> {
  const current = words.at(-1) ?? "";
  const before = words.slice(0, -1);
  // After `--` stands somebody else's command.
  if (before.includes("--")) return [];
  try {
    return (await candidates(before, current, world)).filter((one) => one.startsWith(current)).toSorted();
  } catch {
    return []; // a broken configuration or store is told by the command itself
  }
}

async function candidates(before: readonly string[], current: string, world: World): Promise<readonly string[]> {
  const shown = operations.filter((entry) => entry.hidden !== true).map((entry) => entry.name.split("."));
  const nouns = before.filter((word) => !word.startsWith("-"));
  const entry =
    operations.find(({ name }) => name === nouns.slice(0, 2).join(".")) ??
    operations.find(({ name }) => name === nouns[0]);
  if (entry === undefined)
    return nouns.length === 0
      ? [...new Set(shown.map(([first = ""]) => first))]
      : shown.filter(([first, second]) => first === nouns[0] && second !== undefined).map(([, second = ""]) => second);

  const { operation } = await entry.load();
  const flags = flagsOf(operation);
  const last = before.at(-1) ?? "";
  const valued = flags.get(last);
  if (valued !== undefined && valued.field.placeholder !== null) return values(valued.field, current, world);
  if (current.startsWith("-"))
    return [...flags].filter(([flag, { field }]) => flag.startsWith("--") && !field.later).map(([flag]) => flag);
  const given =
    nouns.length -
    operation.name.split(".").length -
    before.filter(
      (word, index) => !word.startsWith("-") && flags.get(before[index - 1] ?? "")?.field.placeholder != null,
    ).length;
  const key = operation.cli.positionals?.[Math.max(0, given)];
  const field = key === undefined ? undefined : operation.input[key];
  return field === undefined ? [] : values(field, current, world);
}

async function values(field: Field<unknown>, current: string, world: World): Promise<readonly string[]> {
  if (field.choices !== null) return field.choices;
  const loops = field.completes === "loop" || field.completes === "thing";
  const runs = field.completes === "run" || field.completes === "thing";
  if (field.completes === "account")
    return withReading(world, async ({ store }) =>
      (await allAccounts(store, PROVIDERS)).map(({ account }) => account.id).slice(0, OFFERED),
    );
  if (!loops && !runs) return [];
  return withReading(world, async ({ store }) => [
    ...(loops
      ? (await store.loops.list({ limit: OFFERED, cursor: null, archived: false, label: null })).items.map(
          (loop) => loop.name,
        )
      : []),
    ...(runs && (!loops || current.startsWith("run_"))
      ? (
          await store.runs.list({ limit: OFFERED, cursor: null, loopId: null, status: null, label: null, since: null })
        ).items.map((run) => run.id)
      : []),
  ]);
}
