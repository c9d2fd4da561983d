import { AppError } from "../../core/errors.ts";
import { bundleAnswerShape, countsOf, hasConflicts } from "./bundle-answer.ts";
import { type BundleEntry, type PlanContext, planBundle } from "./bundle-plan.ts";
import { type BundleLine, type Definition, readBundle } from "./bundle.ts";
import { emptyStore } from "../empty-store.ts";
import { flag, folder, required } from "../fields.ts";
import { isFolder } from "../look.ts";
import { defineOperation, type LocalContext } from "../operation.ts";

/** History that is handed over in one call: so many lines, or so much text. */
const LINES = 100;
const TEXT = 4 * 1024 * 1024;

/** The exit status of conflicts that kept everything back. */
const CONFLICT = 4;

export const operation = defineOperation({
  name: "import.bundle",
  where: "local",
  raises: ["conflict", "unauthorised"],
  summary: "Take in a bundle: its loops arrive paused, and what is here is not touched unless told",
  input: {
    file: required(folder("a bundle of `drover export`", { placeholder: "FILE", completes: "file" })),
    dryRun: flag("only say what would become of each loop, account and limit"),
    replace: flag("replace what is here under the same name and differs"),
    skip: flag("leave out what is in conflict or cannot be, and take the rest"),
  },
  output: bundleAnswerShape,
  cli: {
    positionals: ["file"],
    exit: ({ applied, entries, dryRun }: { applied: boolean; dryRun: boolean; entries: readonly BundleEntry[] }) =>
      applied || (dryRun && !hasConflicts(entries)) ? 0 : CONFLICT,
    exits: [CONFLICT],
    examples: [
      "import bundle drover.bundle --dry-run",
      "import bundle drover.bundle",
      "import bundle drover.bundle --skip",
    ],
    notes: [
      "Loops, accounts and limits come all or none; with a conflict nothing is done, and it ends with 4. History follows them,",
      "and importing the same bundle again completes one that was interrupted. Look at a loop, then `drover loop resume` it.",
    ],
  },
  async run(context, { file, dryRun, replace, skip }) {
    const maxLine = context.settings.limits.bundleLineBytes;
    const definitions: Definition[] = [];
    let hasHistory = false;
    // To its end, before anything is done with it.
    for await (const line of readBundle(file, maxLine)) {
      if (line.kind === "run" || line.kind === "slots") hasHistory = true;
      else definitions.push(line);
    }
    const answer = (
      applied: boolean,
      entries: readonly BundleEntry[],
      todo: readonly string[],
      history: Added | null,
    ) => ({
      file,
      dryRun,
      applied,
      entries,
      counts: countsOf(entries),
      todo: hasConflicts(entries) ? [] : todo,
      history,
    });
    const request = { replace, skip };
    const plan = await planHere(context, (here) => planBundle(here, definitions, request));
    if (dryRun || hasConflicts(plan.entries)) return answer(false, plan.entries, plan.todo, null);
    const changed = plan.entries.filter(({ outcome }) => outcome === "replace").length;
    if (
      changed > 0 &&
      !(await context.confirm(
        `Replace ${changed} that ${changed === 1 ? "is" : "are"} here and differ${changed === 1 ? "s" : ""}?`,
      ))
    )
      throw new AppError("conflict", "not_confirmed", "nothing was imported", {
        hint: "Nothing was changed.",
        path: file,
      });
    const done = (await context.perform("import.definitions", { definitions, ...request })) as {
      readonly applied: boolean;
      readonly entries: readonly BundleEntry[];
      readonly todo: readonly string[];
    };
    if (context.env["DROVER_TEST_KILL"] === "defined") process.kill(process.pid, "SIGKILL");
    if (!done.applied || !hasHistory) return answer(done.applied, done.entries, done.todo, null);
    return answer(true, done.entries, done.todo, await takeHistory(context, file, maxLine, definitions, done.entries));
  },
});

interface Added {
  readonly runs: number;
  readonly slots: number;
}

/** Asks with the store as it is here, or with none. */
async function planHere<T>(context: LocalContext, use: (here: PlanContext) => Promise<T>): Promise<T> {
  const found = await context.reading(async (here) => ({ answer: await use(here) }));
  if (found !== null) return found.answer;
  return use({
    ...context,
    store: emptyStore,
    hostId: "",
    isRoot: process.getuid?.() === 0,
    isFolder,
  });
}

async function takeHistory(
  context: LocalContext,
  file: string,
  maxLine: number,
  definitions: readonly Definition[],
  entries: readonly BundleEntry[],
): Promise<Added> {
  const taken = new Set(
    entries.filter(({ kind, outcome }) => kind === "loop" && outcome !== "skip").map(({ name }) => name),
  );
  const loops = definitions.filter((one) => one.kind === "loop").filter(({ name }) => taken.has(name));
  const here = new Map(
    (await context.reading(({ store }) => store.declared.loops({ names: loops.map(({ name }) => name) })))?.map(
      ({ name, id }) => [name, id],
    ),
  );
  /** The loop of this store that a loop of the bundle has become. */
  const idOf = new Map(loops.map(({ id, name }) => [id, here.get(name) ?? id]));
  let [runs, slots, count, size] = [0, 0, 0, 0];
  let batch: { runs: BundleLine[]; slots: BundleLine[] } = { runs: [], slots: [] };
  const hand = async (): Promise<void> => {
    if (count === 0) return;
    const added = (await context.perform("import.history", { history: batch })) as Added;
    runs += added.runs;
    slots += added.slots;
    batch = { runs: [], slots: [] };
    [count, size] = [0, 0];
    if (context.env["DROVER_TEST_KILL"] === "history") process.kill(process.pid, "SIGKILL");
  };
  for await (const line of readBundle(file, maxLine)) {
    if (line.kind === "run")
      batch.runs.push({
        ...line,
        run: { ...line.run, loopId: line.run.loopId === null ? null : (idOf.get(line.run.loopId) ?? line.run.loopId) },
      });
    else if (line.kind === "slots") {
      const loopId = idOf.get(line.loopId);
      if (loopId === undefined) continue;
      batch.slots.push({ ...line, loopId });
    } else continue;
    count++;
    size += JSON.stringify(line).length;
    if (count >= LINES || size >= TEXT) await hand();
  }
  await hand();
  return { runs, slots };
}
