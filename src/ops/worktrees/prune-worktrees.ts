import { AppError } from "../../core/errors.ts";
import type { WorktreeState } from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { isFinal, type RunStatus } from "../../core/run.ts";
import { flag } from "../fields.ts";
import { defineOperation, type StoreContext } from "../operation.ts";
import { boolean, listOf, nullable, object, oneOf, string } from "../shape.ts";
import { removeTree, treesOfHost } from "./worktree-answer.ts";

/** A round ends after this, and says that there is more: whoever asked waits for the answer only so long. */
const ROUND_MS = 40_000;

type Verdict = "removed" | "kept" | "in_use" | "failed";
interface Looked {
  readonly path: string;
  /** null: no record knows it. */
  readonly runId: string | null;
  readonly verdict: Verdict;
  readonly because: string | null;
}

export const operation = defineOperation({
  name: "worktree.prune",
  where: "write",
  summary: "Look at every worktree of this host, also those without a record, and remove what holds nothing",
  input: { dryRun: flag("only say what would be removed") },
  output: object({
    items: listOf(
      object({
        path: string,
        runId: nullable(string),
        verdict: oneOf(["removed", "kept", "in_use", "failed"]),
        because: nullable(string),
      }),
    ),
    /** The round ended before all were looked at. */
    more: boolean,
    dryRun: boolean,
  }),
  cli: {
    examples: ["worktree prune --dry-run", "worktree prune"],
    notes: [
      "Git and the processes decide, not drover's list: uncommitted work, commits that are nowhere else and",
      "trees at work stay.",
    ],
  },
  async run(context, { dryRun }) {
    const { trees } = context;
    const until = performance.now() + ROUND_MS;
    const records = await treesOfHost(context);
    const items: Looked[] = [];
    const done = (more: boolean) => ({ items, more, dryRun });
    for (const record of records) {
      if (performance.now() > until) return done(true);
      items.push(await prune(context, record, dryRun));
    }
    for (const { record, state } of await trees.strays(records.map(({ path }) => path))) {
      if (performance.now() > until) return done(true);
      const said = { path: record.path, runId: null };
      if (state.holds.length > 0) items.push({ ...said, verdict: "kept", because: state.holds.join(", ") });
      else
        items.push(
          await guarded(said, async () => {
            const { removed, note } = dryRun ? { removed: true } : await trees.remove(record, false);
            const because = `no record knows it${note == null ? "" : `; ${note}`}`;
            return { ...said, verdict: removed ? "removed" : "kept", because };
          }),
        );
    }
    return done(false);
  },
});

/** One that cannot be looked at does not keep the others. */
async function guarded(
  said: { readonly path: string; readonly runId: string | null },
  look: () => Promise<Looked>,
): Promise<Looked> {
  try {
    return await look();
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return { ...said, verdict: "failed", because: error.message };
  }
}

function prune(
  context: StoreContext,
  record: WorktreeRecord & { readonly runStatus: RunStatus | null },
  dryRun: boolean,
): Promise<Looked> {
  const said = { path: record.path, runId: record.runId };
  const verdictOf = (gone: boolean, state: WorktreeState, note: string | null = null): Looked =>
    gone
      ? { ...said, verdict: "removed", because: note }
      : { ...said, verdict: "kept", because: state.holds.join(", ") || null };
  return guarded(said, async () => {
    if (record.runStatus !== null && !isFinal(record.runStatus))
      return { ...said, verdict: "in_use", because: `its run is ${record.runStatus}` };
    if (dryRun) {
      const state = await context.trees.look(record);
      return verdictOf(state.holds.length === 0, state);
    }
    const { removed, state, note } = await removeTree(context, record, false);
    return verdictOf(removed, state, note);
  });
}
