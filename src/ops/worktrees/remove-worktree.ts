import { AppError } from "../../core/errors.ts";
import { findRun } from "../find.ts";
import { badInput, required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, integer, listOf, nullable, object, string } from "../shape.ts";
import { findTree, removeTree, requireEnded } from "./worktree-answer.ts";

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
    await requireEnded(context, record);
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
