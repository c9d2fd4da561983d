import { required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "loop.archive",
  where: "write",
  summary: "Put a loop away: it starts nothing, and its name is free again",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })),
  },
  output: loopAnswerShape,
  cli: { positionals: ["loop"], examples: ["loop archive fetch"] },
  async run(context, input) {
    const { id: loopId } = await findLoop(context.store, input.loop);
    return answerLoop(context, await context.store.loops.archive({ loopId, limits: context.settings.limits }));
  },
});
