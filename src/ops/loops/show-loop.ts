import { slotShape, toSlotDocument } from "../documents.ts";
import { required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { answerLoop } from "./loop-answer.ts";
import { loopKeys, warningShape } from "../documents.ts";
import { defineOperation } from "../operation.ts";
import { listOf, object } from "../shape.ts";
import { upcomingShape } from "./upcoming.ts";

/** Slots that are shown with their loop. */
const RECENT_SLOTS = 8;

export const operation = defineOperation({
  name: "loop.show",
  where: "read",
  summary: "Show a loop: its schedule, next instants and newest slots",
  input: { loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })) },
  output: object({
    ...loopKeys,
    upcoming: listOf(upcomingShape),
    warnings: listOf(warningShape),
    recentSlots: listOf(slotShape),
  }),
  cli: { positionals: ["loop"], examples: ["loop show fetch"] },
  async run(context, input) {
    const loop = await findLoop(context.store, input.loop);
    const slots = await context.store.slots.list({ loopId: loop.id, limit: RECENT_SLOTS, cursor: null });
    return { ...(await answerLoop(context, loop)), recentSlots: slots.items.map(toSlotDocument) };
  },
});
