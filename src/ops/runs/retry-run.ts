import { runTreeShape } from "../documents.ts";
import { badInput, flag, required, text } from "../fields.ts";
import { findRun } from "../find.ts";
import { defineOperation } from "../operation.ts";
import { answerRun } from "./run-answer.ts";
import { waitFields } from "./run-now.ts";

export const operation = defineOperation({
  name: "retry",
  where: "act",
  start: true,
  summary: "Run the same work again as a new run that points at the old one",
  input: {
    run: required(text("the run", { placeholder: "RUN", completes: "run:ended" })),
    from: text("the step to begin with", { placeholder: "STEP", completes: "step" }),
    fresh: flag("reuse nothing of the old run"),
    wait: flag("wait for the end; the exit status is the run's"),
    detach: flag("return at once (what it does anyway)", { short: "d" }),
    ...waitFields,
  },
  output: runTreeShape,
  cli: {
    positionals: ["run"],
    waits: { when: "wait" },
    own: ["wait", "detach", "waitLimitMs"],
    excludes: [
      ["wait", "detach"],
      ["from", "fresh"],
    ],
    examples: ["retry run_01k2", "retry 8x2mq1 --wait", "retry 8x2mq1 --from verify"],
    notes: ["Of a workflow's run what had succeeded is not done again, but for --from STEP and what needs it."],
  },
  async run(context, input) {
    const tree = await findRun(context.store, input.run);
    if (input.from !== undefined && !tree.steps.some((step) => step.key === input.from))
      throw badInput(
        "--from",
        `the run has no step ${JSON.stringify(input.from)}`,
        `Its steps: ${tree.steps.map((step) => step.key).join(", ")}.`,
      );
    const run = await context.store.runs.retry({
      runId: tree.run.id,
      by: context.caller.by,
      from: input.from ?? null,
      fresh: input.fresh,
      parentRunId: context.caller.parentRunId,
      limits: context.settings.limits,
    });
    return answerRun(context, await findRun(context.store, run.id));
  },
});
