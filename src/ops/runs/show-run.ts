import { runTreeShape } from "../documents.ts";
import { required, text } from "../fields.ts";
import { findRun } from "../find.ts";
import { defineOperation } from "../operation.ts";
import { answerRun } from "./run-answer.ts";

export const operation = defineOperation({
  name: "show",
  where: "read",
  summary: "Show a run: steps, attempts, places of logs",
  input: { run: required(text("the run", { placeholder: "RUN", completes: "run" })) },
  output: runTreeShape,
  cli: { positionals: ["run"], examples: ["show run_01k2", "show 8x2mq1 --json"] },
  async run(context, input) {
    return answerRun(context, await findRun(context.store, input.run));
  },
});
