import { runTreeShape } from "../documents.ts";
import { required, text, withDefault } from "../fields.ts";
import { findRun } from "../find.ts";
import { defineOperation } from "../operation.ts";
import { answerRun } from "./run-answer.ts";
import { object, oneOf } from "../shape.ts";

export const operation = defineOperation({
  name: "cancel",
  where: "write",
  summary: "Cancel a run and all it started; returns when nothing is left of it",
  input: {
    run: required(text("the run", { placeholder: "RUN", completes: "run:live" })),
    reason: withDefault(text("why, shown by `show` and `why`", { free: true }), "cancelled by a person"),
  },
  output: object({ answer: oneOf(["requested", "cancelled", "already_ended"]), run: runTreeShape }),
  cli: { positionals: ["run"], waits: {}, examples: ["cancel run_01k2", "cancel 8x2mq1 --reason 'wrong branch'"] },
  async run(context, input) {
    const { run } = await findRun(context.store, input.run);
    const answer = await context.store.runs.cancel({
      runId: run.id,
      by: context.caller.by,
      reason: input.reason,
      limits: context.settings.limits,
    });
    return { answer, run: await answerRun(context, await findRun(context.store, run.id)) };
  },
});
