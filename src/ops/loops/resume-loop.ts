import { required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "loop.resume",
  where: "write",
  summary: "Let a paused, expired or finished loop start runs again",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop:paused" })),
  },
  output: loopAnswerShape,
  cli: { positionals: ["loop"], examples: ["loop resume fetch"] },
  async run(context, input) {
    const { id: loopId } = await findLoop(context.store, input.loop);
    return answerLoop(context, await context.store.loops.resume({ loopId, limits: context.settings.limits }));
  },
});
