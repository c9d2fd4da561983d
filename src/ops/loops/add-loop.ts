import { required, text } from "../fields.ts";
import { answerLoop, loopAnswerShape } from "./loop-answer.ts";
import { defineOperation } from "../operation.ts";
import { badInput } from "../fields.ts";
import {
  checkJitter,
  checkLoopName,
  keepPrompt,
  loopFields,
  makeLoopPolicy,
  makeSchedule,
  makeTarget,
  workSections,
} from "../runs/work.ts";

export const operation = defineOperation({
  name: "loop.add",
  where: "write",
  summary: "Add a loop: a schedule, what to run, and how",
  input: {
    name: required(text("the loop's name, unique among loops that are not archived", { placeholder: "NAME" })),
    ...loopFields,
  },
  output: loopAnswerShape,
  cli: {
    positionals: ["name"],
    rest: "command",
    sections: workSections,
    examples: [
      "loop add fetch --every 15m -- git fetch --all",
      'loop add report --cron "30 2 * * *" --tz Europe/Rome --timeout 40m --shell "make report | tee report.txt"',
      "loop add once --at +2h -- ./migrate.sh",
      'loop add deps --cron "0 4 * * MON-FRI" --agent codex --prompt-file prompts/deps.md --expect commit',
      "loop add tidy --every 1d --agent custom --agent-command ./agent.sh --prompt 'Tidy up.' -- --quick",
    ],
  },
  async run(context, input) {
    const name = await checkLoopName(input.name);
    for (const key of ["onFinish", "onFailure"] as const)
      if (input[key] === "")
        throw badInput(
          key === "onFinish" ? "--on-finish" : "--on-failure",
          "the hook is empty",
          "Leave the flag out for no hook; on `loop edit` an empty one takes it away.",
        );
    const schedule = await makeSchedule(context, input);
    if (schedule === null)
      throw badInput(
        "--every",
        "no schedule is given",
        "Give exactly one of --every DURATION, --cron EXPRESSION, --at TIME, --dynamic.",
        "bad_schedule",
      );
    const made = await makeTarget(context, input, null);
    const { target, warnings } = made;
    const policy = await makeLoopPolicy(context, input, target.kind, null);
    checkJitter(schedule, policy);
    await keepPrompt(context, made);
    const loop = await context.store.loops.add({
      draft: { name, schedule, target, policy, hostPin: context.hostId, managedBy: null },
      limits: context.settings.limits,
    });
    return answerLoop(context, loop, warnings);
  },
});
