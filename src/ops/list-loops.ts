import { awayRuns } from "./away.ts";
import { loopKeys, toLoopDocument } from "./documents.ts";
import { flag, text } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { pageFields, pageRequest } from "./page.ts";
import { nullable, object, pageOf, string } from "./shape.ts";

export const operation = defineOperation({
  name: "loop.ls",
  where: "read",
  summary: "List loops",
  input: {
    archived: flag("also those that are archived"),
    label: text("only loops with this label", { placeholder: "K" }),
    ...pageFields(50),
  },
  output: pageOf(
    object({
      ...loopKeys,
      /** The run that waits because its agent's program is not there. */
      waitsForProgram: nullable(string),
    }),
  ),
  cli: { examples: ["loop ls", "loop ls --archived --json"] },
  async run({ store }, input) {
    const { items, next } = await store.loops.list({
      ...pageRequest(input),
      archived: input.archived,
      label: input.label ?? null,
    });
    const away = await awayRuns(store, null);
    return {
      items: items.map((loop) => ({
        ...toLoopDocument(loop),
        waitsForProgram: away.find(({ loopId }) => loopId === loop.id)?.id ?? null,
      })),
      next,
    };
  },
});
