import { loopShape, toLoopDocument } from "./documents.ts";
import { flag, text } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { pageFields, pageRequest } from "./page.ts";
import { pageOf } from "./shape.ts";

export const operation = defineOperation({
  name: "loop.ls",
  where: "read",
  summary: "List loops",
  input: {
    archived: flag("also those that are archived"),
    label: text("only loops with this label", { placeholder: "K" }),
    ...pageFields(50),
  },
  output: pageOf(loopShape),
  cli: { examples: ["loop ls", "loop ls --archived --json"] },
  async run({ store }, input) {
    const { items, next } = await store.loops.list({
      ...pageRequest(input),
      archived: input.archived,
      label: input.label ?? null,
    });
    return { items: items.map(toLoopDocument), next };
  },
});
