import { badInput, required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation } from "../operation.ts";
import {
  checkJitter,
  loopFields,
  loopPolicyFields,
  makeLoopPolicy,
  makeSchedule,
  keepPrompt,
  makeTarget,
  runPolicyFields,
  targetFields,
  workSections,
} from "../runs/work.ts";

const TARGET_KEYS = Object.keys(targetFields);
const POLICY_KEYS = [...Object.keys(loopPolicyFields), ...Object.keys(runPolicyFields)];

export const operation = defineOperation({
  name: "loop.edit",
  where: "write",
  summary: "Change a loop; what is not given stays, and nothing that was due before starts",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })),
    ...loopFields,
    cwd: { ...targetFields.cwd, fallback: null },
  },
  output: loopAnswerShape,
  cli: {
    positionals: ["loop"],
    rest: "command",
    sections: workSections,
    alone: "loop.editor",
    examples: [
      "loop edit fetch",
      "loop edit fetch --every 5m",
      "loop edit report --timeout 0s --attempts 3",
      "loop edit deps --prompt-file prompts/deps.md --account work",
    ],
    notes: [
      "With no flag the loop is opened in $VISUAL or $EDITOR, as drover.yaml writes it.",
      "--env, --env-pass, --secret, --expect and --label replace what was there.",
    ],
  },
  async run(context, input) {
    const given = (keys: readonly string[]) =>
      keys.some((key) => ![undefined, false].includes((input as Record<string, unknown>)[key] as undefined));
    const before = await findLoop(context.store, input.loop);
    const schedule = await makeSchedule(context, input);
    const made = given(TARGET_KEYS) ? await makeTarget(context, input, before.target) : null;
    const target = made?.target ?? null;
    const kind = target?.kind ?? before.target.kind;
    const isOtherKind = kind !== before.target.kind;
    const policy =
      given(POLICY_KEYS) || isOtherKind
        ? await makeLoopPolicy(context, input, kind, { policy: before.policy, kind: before.target.kind })
        : null;
    if (schedule === null && policy === null && target === null) {
      const { describeTarget } = await import("../../core/target-parts.ts");
      throw badInput(
        "loop",
        "no change is given",
        `${before.name} runs \`${describeTarget(before.target)}\`; say what to change, as in --every 5m or --timeout 10m.`,
        "nothing_to_do",
      );
    }
    if (schedule !== null || policy !== null) checkJitter(schedule ?? before.schedule, policy ?? before.policy);
    if (made !== null) await keepPrompt(context, made);
    const loop = await context.store.loops.edit({
      loopId: before.id,
      change: {
        ...(schedule === null ? {} : { schedule }),
        ...(policy === null ? {} : { policy }),
        ...(target === null ? {} : { target }),
      },
      limits: context.settings.limits,
    });
    return answerLoop(context, loop, made?.warnings);
  },
});
