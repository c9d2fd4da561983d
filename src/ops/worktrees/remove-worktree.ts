import { resolve } from "node:path";
import { AppError } from "../../core/errors.ts";
import { isFinal } from "../../core/run.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { findRun } from "../find.ts";
import { badInput, required, text } from "../fields.ts";
import { defineOperation, type StoreContext } from "../operation.ts";
import { boolean, integer, listOf, nullable, object, string } from "../shape.ts";
import { removeTree, treesOfHost } from "./worktree-answer.ts";

export const operation = defineOperation({
  name: "worktree.rm",
  where: "write",
  summary: "Remove the worktree of an ended run; refused while it holds work",
  input: {
    worktree: required(text("the run, or the worktree's folder", { placeholder: "RUN|PATH", completes: "run" })),
    discard: text("gives up the work that it holds: the run, named once more", { placeholder: "RUN" }),
  },
  output: object({
    runId: string,
    path: string,
    branch: nullable(string),
    removed: boolean,
    /** What it held; with --discard that was given up, and is kept under a ref for rescue. */
    held: listOf(string),
    commits: integer,
    diffStat: nullable(string),
    rescueRef: nullable(string),
    /** What went with it, or who had taken it away; null: it held nothing. */
    goneBecause: nullable(string),
  }),
  cli: {
    positionals: ["worktree"],
    examples: ["worktree rm 8x2mq1", "worktree rm 8x2mq1 --discard 8x2mq1"],
    notes: [
      "With --discard what is given up is kept under refs/drover/rescue/RUN of the repository. A tree in which a process",
      "works is never removed.",
    ],
  },
  async run(context, input) {
    const record = await findTree(context, input.worktree);
    if (input.discard !== undefined) {
      const named = await findRun(context.store, input.discard, "--discard");
      if (named.run.id !== record.runId)
        throw badInput(
          "--discard",
          `--discard names ${named.run.id}, and this worktree is of ${record.runId}`,
          "Name the run whose work you give up.",
          "contradiction",
        );
    }
    if (record.hostId !== context.hostId)
      throw new AppError("conflict", "other_host", "this worktree lies on another host", {
        path: "worktree",
        hint: "Remove it there.",
      });
    const tree = await context.store.runs.get({ runId: record.runId });
    if (tree !== null && !isFinal(tree.run.status))
      throw new AppError("conflict", "run_not_ended", `${record.runId} has not ended: it is ${tree.run.status}`, {
        path: "worktree",
        hint: `Wait for its end, or \`drover cancel ${record.runId}\`.`,
      });
    const { removed, state, note } = await removeTree(context, record, input.discard !== undefined);
    if (!removed)
      throw new AppError(
        "conflict",
        "worktree_holds_work",
        `the worktree ${record.path} holds ${state.holds.join(", ") || "something that cannot be told"}`,
        {
          path: "worktree",
          hint:
            state.blind === true
              ? "Look at it, and remove the folder by hand: nothing of it could be kept for rescue. `drover worktree prune` then takes it off the list."
              : input.discard === undefined
                ? `Look at it, or give its work up with --discard ${record.runId}.`
                : "End what works in it first.",
        },
      );
    return {
      runId: record.runId,
      path: record.path,
      branch: record.branch,
      removed,
      held: state.holds,
      commits: state.commits,
      diffStat: state.diffStat,
      rescueRef: state.holds.length > 0 ? `refs/drover/rescue/${record.runId}` : null,
      goneBecause: note ?? null,
    };
  },
});

/** By its folder, or by its run. Errors: AppError not_found `no_worktree`, and those of a run. */
async function findTree(context: StoreContext, ref: string): Promise<WorktreeRecord> {
  const { store } = context;
  if (ref.startsWith("/")) {
    const path = resolve(ref);
    const found = (await treesOfHost(context)).find((one) => one.path === path);
    if (found !== undefined) return found;
    throw new AppError("not_found", "no_worktree", `there is no worktree ${JSON.stringify(path)}`, {
      path: "worktree",
      hint: "`drover worktree ls` lists them; `drover worktree prune` also looks at those that no record knows.",
    });
  }
  const { run } = await findRun(store, ref, "worktree");
  const record = await store.worktrees.get({ runId: run.id });
  if (record !== null && record.state !== "removed") return record;
  throw new AppError(
    "not_found",
    "no_worktree",
    record === null ? `${run.id} has no worktree` : `the worktree of ${run.id} is gone already`,
    { path: "worktree", hint: "`drover worktree ls` lists those that are there." },
  );
}
