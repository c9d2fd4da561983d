import type { SlotRecord } from "../../core/records.ts";
import { type SlotDocument, slotOutcomes, slotShape, toSlotDocument } from "../documents.ts";
import { choices, flag, required, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { spanOf, timeField } from "../list-filters.ts";
import { defineOperation } from "../operation.ts";
import { pageFields, pageRequest } from "../page.ts";
import { pageOf } from "../shape.ts";

export const operation = defineOperation({
  name: "loop.slots",
  where: "read",
  summary: "List every scheduled instant of a loop with its outcome, newest first",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })),
    each: flag("list neighbours with one outcome and reason singly"),
    outcome: choices(`only slots with this outcome, or one of these: ${slotOutcomes.join(", ")}`, slotOutcomes, {
      placeholder: "OUTCOME[,...]",
    }),
    since: timeField("only slots since"),
    until: timeField("only slots until"),
    ...pageFields(50),
  },
  output: pageOf(slotShape),
  cli: {
    positionals: ["loop"],
    examples: [
      "loop slots fetch",
      "loop slots fetch --outcome missed,skipped --since 1d",
      "loop slots fetch --each --limit 200 --json",
    ],
  },
  async run({ store, clock, hostZone }, input) {
    const loop = await findLoop(store, input.loop);
    const span = await spanOf(input, { now: clock.now(), hostZone });
    const wanted = { ...span, outcome: input.outcome ?? null, loopId: loop.id };
    const request = pageRequest(input);
    if (!input.each) {
      const { items, next } = await store.slots.list({ ...request, ...wanted });
      return { items: items.map(toSlotDocument), next };
    }
    // A page may end inside a row that stands for many: the cursor then names the instant reached in it.
    const { expandSlot, inside } = await import("./slot-rows.ts");
    const place = inside.read(request.cursor);
    const items: SlotDocument[] = [];
    let cursor = place.cursor;
    let before = place.before;
    for (;;) {
      const page = await store.slots.list({ ...wanted, limit: 1, cursor });
      const row: SlotRecord | undefined = page.items[0];
      if (row === undefined) {
        if (page.next === null) return { items, next: null };
        cursor = page.next;
        continue;
      }
      const room = input.limit - items.length;
      const inSpan = (at: number) =>
        (span.since === null || at >= span.since) && (span.until === null || at <= span.until);
      const start = span.until === null ? before : Math.min(before ?? Number.MAX_SAFE_INTEGER, span.until + 1);
      const singles = expandSlot(row, loop.schedule, start, room + 1).filter(inSpan);
      items.push(...singles.slice(0, room).map((at) => toSlotDocument({ ...row, at, untilAt: at, count: 1 })));
      if (singles.length > room) return { items, next: inside.write({ cursor, before: singles[room - 1] ?? before }) };
      before = null;
      cursor = page.next;
      if (cursor === null) return { items, next: null };
      if (items.length === input.limit) return { items, next: inside.write({ cursor, before: null }) };
    }
  },
});
