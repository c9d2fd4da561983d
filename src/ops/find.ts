/** From what a person typed to one thing: an id, its prefix or suffix, or a unique name. */
import { AppError } from "../core/errors.ts";
import type { Store } from "../core/ports.ts";
import type { LoopRecord, RunTree } from "../core/records.ts";

/** Candidates that an ambiguous reference lists. */
const LISTED = 10;
/** Fewer characters of an id would soon mean several things, and a typing error one of them. */
const MIN_PART_OF_ID = 4;

/** The command that shows which there are. */
const LISTS = {
  loop: "`drover loop ls --archived` lists all loops.",
  run: "`drover runs` lists the newest runs.",
} as const;

/** What a word may mean: a name or a whole id, and at least `MIN_PART_OF_ID` characters of an id. */
export async function candidates(store: Store, kind: "loop" | "run", ref: string, limit: number) {
  const found = await store.things.resolve({ kind, ref, limit });
  return ref.length >= MIN_PART_OF_ID ? found : found.filter((one) => one.name === ref);
}

/** The hint for a word that is too short to be part of an id; null when it is long enough. */
export const tooShort = (ref: string): string | null =>
  ref.length >= MIN_PART_OF_ID ? null : `Of an id, give at least ${MIN_PART_OF_ID} characters.`;

async function findId(store: Store, kind: "loop" | "run", ref: string, path: string): Promise<string> {
  const found = await candidates(store, kind, ref, LISTED + 1);
  const [first] = found;
  if (first === undefined)
    throw new AppError("not_found", `${kind}_not_found`, `there is no ${kind} ${JSON.stringify(ref)}`, {
      path,
      hint: tooShort(ref) ?? LISTS[kind],
    });
  if (found.length === 1) return first.id;
  const shown = found.slice(0, LISTED).map((one) => (one.name === null ? one.id : `${one.id} (${one.name})`));
  throw new AppError("conflict", "ambiguous", `${JSON.stringify(ref)} may mean several ${kind}s`, {
    path,
    hint: `Say which: ${shown.join(", ")}${found.length > LISTED ? ", ..." : ""}.`,
  });
}

/** Errors: AppError not_found `loop_not_found`, conflict `ambiguous`. */
export async function findLoop(store: Store, ref: string, path = "loop"): Promise<LoopRecord> {
  const loopId = await findId(store, "loop", ref, path);
  const loop = await store.loops.get({ loopId });
  // Removed between the two questions.
  if (loop === null)
    throw new AppError("not_found", "loop_not_found", `there is no loop ${JSON.stringify(ref)}`, {
      path,
      hint: LISTS.loop,
    });
  return loop;
}

/** Errors: AppError not_found `run_not_found`, conflict `ambiguous`. */
export async function findRun(store: Store, ref: string, path = "run"): Promise<RunTree> {
  const runId = await findId(store, "run", ref, path);
  const tree = await store.runs.get({ runId });
  if (tree === null)
    throw new AppError("not_found", "run_not_found", `there is no run ${JSON.stringify(ref)}`, {
      path,
      hint: LISTS.run,
    });
  return tree;
}
