import { z } from "zod";
import { parseCron } from "../../core/cron.ts";
import { loopName, loopPolicy } from "../../core/loop.ts";
import { SCHEDULE_LIMITS, type Schedule } from "../../core/schedule.ts";
import { commandTarget } from "../../core/target.ts";
import { checkZone, LAST_INSTANT } from "../../core/zone.ts";
import { type Field, required, text } from "../fields.ts";
import type { ImportDraft } from "./import-plan.ts";
import { defineOperation } from "../operation.ts";
import { requireForm } from "../schema.ts";
import { listOf, object, string } from "../shape.ts";

const drafts = z.array(
  z.strictObject({
    name: loopName,
    schedule: z.discriminatedUnion("kind", [
      z.strictObject({ kind: z.literal("cron"), expression: z.string(), zone: z.string() }),
      z.strictObject({
        kind: z.literal("interval"),
        everyMs: z.int().min(SCHEDULE_LIMITS.minEveryMs).max(SCHEDULE_LIMITS.maxEveryMs),
      }),
      z.strictObject({ kind: z.literal("once"), at: z.int().min(0).max(LAST_INSTANT) }),
    ]),
    target: commandTarget,
    policy: loopPolicy,
  }),
);

const loops: Field<readonly ImportDraft[]> = required({
  ...text("the loops to make"),
  schema: { type: "array", items: { type: "object" } },
  check(value, path) {
    return requireForm(drafts, value, path);
  },
});

export const operation = defineOperation({
  name: "import.loops",
  where: "write",
  summary: "Make the loops of an import, paused: all or none",
  input: { loops, reason: required(text("why they are paused")) },
  output: object({ loops: listOf(object({ id: string, name: string })) }),
  async run({ store, clock, hostId, settings }, input) {
    const now = clock.now();
    const scheduleOf = (schedule: ImportDraft["schedule"]): Schedule =>
      schedule.kind === "interval"
        ? { ...schedule, anchorAt: now }
        : schedule.kind === "once"
          ? schedule
          : {
              kind: "cron",
              expression: parseCron(schedule.expression).expression,
              zone: checkZone(schedule.zone),
            };
    return {
      loops: await store.loops.addPaused({
        drafts: input.loops.map(({ name, schedule, target, policy }) => ({
          name,
          schedule: scheduleOf(schedule),
          target,
          policy,
          hostPin: hostId,
          managedBy: null,
        })),
        reason: input.reason,
        limits: settings.limits,
      }),
    };
  },
});
