import { startedRunShape } from "../documents.ts";
import { duration, flag, pairs } from "../fields.ts";
import { answerRun } from "./run-answer.ts";
import { findRun } from "../find.ts";
import { badInput } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { keepPrompt, makeRunPolicy, makeTarget, runPolicyFields, targetFields, workSections } from "./work.ts";

/** How the command line waits for a run: shared by all commands that start one. */
export const waitFields = {
  waitLimitMs: duration("how long to wait for a limit, a quota or a person before leaving with 7 or 8", {
    fallback: "for ever on a terminal, else 0s",
  }),
} as const;

export const operation = defineOperation({
  name: "run",
  where: "act",
  start: true,
  summary: "Run a command or an agent now, under the limits, and wait for its end",
  input: {
    ...targetFields,
    ...runPolicyFields,
    input: pairs("an input of a workflow"),
    wait: flag("wait for the end (what it does anyway)"),
    detach: flag("return at once and print the run's id", { short: "d" }),
    ...waitFields,
  },
  output: startedRunShape,
  cli: {
    rest: "command",
    sections: workSections,
    waits: { unless: "detach" },
    own: ["wait", "detach", "waitLimitMs"],
    excludes: [["wait", "detach"]],
    examples: [
      "run -- make test",
      "run --timeout 10m --attempts 3 --shell 'make test | tee log'",
      "run --detach -- ./long.sh",
      "run --agent claude --prompt 'Fix the failing test, run it, say what was wrong.'",
    ],
    notes: [
      "Its exit status is the run's: 0, 1 when it failed, 124 when it timed out, 130 when it was cancelled,",
      "7 or 8 when it waits for a person or a limit (the run goes on). Ctrl-C cancels it; a second one leaves.",
    ],
  },
  async run(context, input) {
    if (input.input !== undefined)
      throw badInput(
        "--input",
        "commands and agents take no inputs: workflows do, which this version does not have",
        "Use --env K=V.",
        "not_available",
      );
    const made = await makeTarget(context, input, null);
    const { target, warnings } = made;
    const policy = await makeRunPolicy(context, input, target.kind);
    await keepPrompt(context, made);
    const { run } = await context.store.runs.add({
      kind: target.kind,
      target,
      policy,
      originKind: context.caller.parentRunId === null ? "person" : "run",
      originId: context.caller.parentRunId,
      idempotencyKey: null,
      parentRunId: context.caller.parentRunId,
      hostPin: context.hostId,
      limits: context.settings.limits,
    });
    const tree = await findRun(context.store, run.id);
    return { ...(await answerRun(context, tree)), warnings };
  },
});
