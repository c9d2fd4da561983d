import { defineOperation } from "../operation.ts";
import { pageFields, pageRequest } from "../page.ts";
import { pageOf } from "../shape.ts";
import { toTreeDocument, treeShape } from "./worktree-answer.ts";

export const operation = defineOperation({
  name: "worktree.ls",
  where: "read",
  summary: "List worktrees that are there, with what they hold",
  input: pageFields(50),
  output: pageOf(treeShape),
  cli: { examples: ["worktree ls", "worktree ls --json"] },
  async run({ store }, input) {
    const { items, next } = await store.worktrees.list({ ...pageRequest(input), hostId: null });
    return { items: items.map(toTreeDocument), next };
  },
});
