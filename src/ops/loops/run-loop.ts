import { runTreeShape } from "../documents.ts";
import { flag, required, text } from "../fields.ts";
import { findLoop, findRun } from "../find.ts";
import { defineOperation } from "../operation.ts";
import { answerRun } from "../runs/run-answer.ts";
import { waitFields } from "../runs/run-now.ts";
import { nullable, object, oneOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "loop.run",
  where: "act",
  start: true,
  summary: "Start a loop now; says whether that is a due slot, a retry, or a run of its own",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })),
    wait: flag("wait for the end; the exit status is the run's"),
    detach: flag("return at once (what it does anyway)", { short: "d" }),
    ...waitFields,
  },
  output: object({
    loop: string,
    source: oneOf(["ad_hoc", "due_slot", "retry_slot"]),
    runId: nullable(string),
    skipped: nullable(string),
    run: nullable(runTreeShape),
  }),
  cli: {
    positionals: ["loop"],
    waits: { when: "wait" },
    own: ["wait", "detach", "waitLimitMs"],
    excludes: [["wait", "detach"]],
    examples: ["loop run fetch", "loop run fetch --wait"],
  },
  async run(context, input) {
    const loop = await findLoop(context.store, input.loop);
    const { source, runId, skipped } = await context.store.loops.runNow({
      loopId: loop.id,
      by: context.caller.by,
      parentRunId: context.caller.parentRunId,
      limits: context.settings.limits,
    });
    const run = runId === null ? null : await answerRun(context, await findRun(context.store, runId));
    return { loop: loop.name, source, runId, skipped, run };
  },
});
