import { required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation } from "../operation.ts";
import { checkLoopName } from "../runs/work.ts";

export const operation = defineOperation({
  name: "loop.rename",
  where: "write",
  summary: "Give a loop another name; its id, schedule and history stay",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })),
    name: required(text("the new name", { placeholder: "NAME" })),
  },
  output: loopAnswerShape,
  cli: { positionals: ["loop", "name"], examples: ["loop rename fetch fetch-all"] },
  async run(context, input) {
    const name = await checkLoopName(input.name);
    const { id: loopId } = await findLoop(context.store, input.loop);
    return answerLoop(context, await context.store.loops.rename({ loopId, name }));
  },
});
