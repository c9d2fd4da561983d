import { describeSchedule, explainSchedule, parseExpression } from "../../core/schedule.ts";
import { toScheduleDocument } from "../documents.ts";
import { required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { anything, listOf, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "schedule.explain",
  where: "local",
  unconfigured: true,
  summary: "Say a schedule in words, and what changes of the clock do to it",
  input: {
    expression: required(text("a cron expression or a duration", { placeholder: "EXPR" })),
    tz: text("the IANA zone of the expression", { placeholder: "ZONE", fallback: "this host's", completes: "zone" }),
  },
  output: object({ schedule: anything, text: string, sentences: listOf(string) }),
  cli: { positionals: ["expression"], examples: ['schedule explain "30 2 * * *" --tz Europe/Rome'] },
  async run({ clock, hostZone }, input) {
    const now = clock.now();
    const schedule = parseExpression(input.expression, { now, hostZone, tz: input.tz });
    return {
      schedule: toScheduleDocument(schedule),
      text: describeSchedule(schedule),
      sentences: explainSchedule(schedule, now),
    };
  },
});
