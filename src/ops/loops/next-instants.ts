import { parseExpression, parseTime } from "../../core/schedule.ts";
import { integer, required, text, withDefault } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { listOf, nullable, object, string } from "../shape.ts";
import { SHOWN_INSTANTS, upcoming, upcomingShape } from "./upcoming.ts";

export const operation = defineOperation({
  name: "schedule.next",
  where: "local",
  unconfigured: true,
  summary: "Print the next instants of a cron expression or a duration",
  input: {
    expression: required(text("a cron expression or a duration", { placeholder: "EXPR" })),
    tz: text("the IANA zone of the expression", { placeholder: "ZONE", fallback: "this host's", completes: "zone" }),
    from: text("the first instant comes after this time", { placeholder: "T", fallback: "now" }),
    count: withDefault(integer("how many", { min: 1, max: 1_000, short: "n" }), SHOWN_INSTANTS),
  },
  output: object({ items: listOf(upcomingShape), next: nullable(string) }),
  cli: {
    positionals: ["expression"],
    examples: [
      'schedule next "30 2 * * *" --tz Europe/Rome',
      "schedule next 15m -n 3",
      'schedule next "@daily" --from 2026-10-24',
    ],
  },
  async run({ clock, hostZone }, input) {
    const now = clock.now();
    const from =
      input.from === undefined ? now : parseTime(input.from, { now, hostZone: input.tz ?? hostZone, path: "--from" });
    const schedule = parseExpression(input.expression, { now: from, hostZone, tz: input.tz });
    return { items: await upcoming(schedule, from, input.count, hostZone), next: null };
  },
});
