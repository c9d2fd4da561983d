import { startedRunShape } from "../documents.ts";
import { badInput, duration, flag, folder, text } from "../fields.ts";
import { answerRun } from "./run-answer.ts";
import { findRun } from "../find.ts";
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
  summary: "Run a command, an agent or a workflow now, under the limits, and wait for its end",
  input: {
    file: folder("a workflow's file, YAML or JSON", { placeholder: "FILE", completes: "file" }),
    ...targetFields,
    ...runPolicyFields,
    key: text("names the run: the same key twice is one run", { placeholder: "K" }),
    wait: flag("wait for the end (what it does anyway)"),
    detach: flag("return at once and print the run's id", { short: "d" }),
    ...waitFields,
  },
  output: startedRunShape,
  cli: {
    positionals: ["file"],
    rest: "command",
    sections: workSections,
    waits: { unless: "detach" },
    own: ["wait", "detach", "waitLimitMs"],
    excludes: [["wait", "detach"]],
    examples: [
      "run -- make test",
      "run --timeout 10m --attempts 3 --shell 'make test | tee log'",
      "run --detach -- ./long.sh",
      "run fix-failing-test.yaml --input test='npm run unit'",
      "run --agent claude --prompt 'Fix the failing test, run it, say what was wrong.'",
    ],
    notes: [
      "Its exit status is the run's: 0, 1 when it failed, 124 when it timed out, 130 when it was cancelled,",
      "7 or 8 when it waits for a person or a limit (the run goes on). Ctrl-C cancels it; a second one leaves.",
    ],
  },
  async run(context, { file, ...given }) {
    if (file !== undefined && given.workflow !== undefined)
      throw badInput("--workflow", "a file and --workflow contradict each other", "Give one of them.", "contradiction");
    const input = { ...given, workflow: file ?? given.workflow };
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
      idempotencyKey: input.key ?? null,
      parentRunId: context.caller.parentRunId,
      hostPin: context.hostId,
      limits: context.settings.limits,
    });
    const tree = await findRun(context.store, run.id);
    return { ...(await answerRun(context, tree)), warnings };
  },
});
