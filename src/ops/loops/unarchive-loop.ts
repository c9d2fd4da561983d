import { required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "loop.unarchive",
  where: "write",
  summary: "Bring an archived loop back as it was",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop:archived" })),
  },
  output: loopAnswerShape,
  cli: { positionals: ["loop"], examples: ["loop unarchive fetch"] },
  async run(context, input) {
    const { id: loopId } = await findLoop(context.store, input.loop);
    return answerLoop(context, await context.store.loops.unarchive({ loopId, limits: context.settings.limits }));
  },
});
