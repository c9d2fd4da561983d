import { required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "loop.pause",
  where: "write",
  summary: "Stop a loop from starting runs; those at work go on",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop:active" })),
    reason: text("why, shown by `show` and `why`", { free: true }),
  },
  output: loopAnswerShape,
  cli: { positionals: ["loop"], examples: ["loop pause fetch --reason 'moving house'"] },
  async run(context, input) {
    const { id: loopId } = await findLoop(context.store, input.loop);
    return answerLoop(
      context,
      await context.store.loops.pause({ loopId, reason: input.reason ?? null, limits: context.settings.limits }),
    );
  },
});
