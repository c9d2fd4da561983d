import { flag, required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, integer, nullable, object, oneOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "worktree.handoff",
  where: "local",
  raises: ["not_found", "conflict"],
  summary: "Hand the branch of an ended run over: push it, and open a pull request, each once",
  input: {
    worktree: required(text("the run, or the worktree's folder", { placeholder: "RUN|PATH", completes: "run" })),
    title: text("of the pull request; the first commit's unless given", { free: true }),
    body: text("of the pull request; the commits' first lines unless given", { free: true }),
    base: text("the branch that it is to be merged into; the remote's own unless given", { placeholder: "BRANCH" }),
    draft: flag("opens it as a draft"),
    pushOnly: flag("opens no pull request"),
  },
  output: object({
    runId: string,
    branch: string,
    commit: string,
    commits: integer,
    /** `left`: there is no remote. `before`: the remote had it already. */
    pushed: oneOf(["left", "now", "before"]),
    pullRequest: nullable(object({ url: string, state: oneOf(["open", "closed", "merged"]), found: boolean })),
    /** Why there is no pull request. */
    because: nullable(string),
    /** Changes in the tree that no commit has; null where that cannot be told. */
    uncommitted: nullable(integer),
  }),
  cli: {
    positionals: ["worktree"],
    examples: ["worktree handoff 8x2mq1", "worktree handoff 8x2mq1 --draft --title 'Shorter start'"],
    notes: [
      "It may be done again at any time: what the remote has is asked of it, and nothing is ever forced. Git and `gh` run",
      "here with your own login and ask nothing; hooks of the repository do not run. Without `gh` the branch is pushed.",
    ],
  },
  async run({ reading, trees }, input) {
    const { findTree, requireEnded } = await import("./worktree-answer.ts");
    const { AppError } = await import("../../core/errors.ts");
    const record = await reading(async (context) => {
      const found = await findTree(context, input.worktree);
      await requireEnded(context, found);
      return found;
    });
    if (record === null)
      throw new AppError("not_found", "no_worktree", "there is no store yet, and so no worktree", { path: "worktree" });
    const { title = null, body = null, base = null, draft, pushOnly } = input;
    const handoff = await trees.handOff(record, { title, body, base, draft, open: !pushOnly });
    return { runId: record.runId, ...handoff };
  },
});
