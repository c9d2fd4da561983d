import { flag, required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { defineOperation } from "../operation.ts";
import { boolean, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "loop.rm",
  where: "write",
  summary: "Delete a loop and its slots; its runs stay",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })),
    dryRun: flag("only say what would be deleted"),
  },
  output: object({ id: string, name: string, removed: boolean }),
  cli: { positionals: ["loop"], examples: ["loop rm fetch"] },
  async run(context, input) {
    const { id, name } = await findLoop(context.store, input.loop);
    if (!input.dryRun) await context.store.loops.remove({ loopId: id });
    return { id, name, removed: !input.dryRun };
  },
});
