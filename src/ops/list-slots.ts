import type { SlotRecord } from "../core/records.ts";
import { type SlotDocument, slotShape, toSlotDocument } from "./documents.ts";
import { flag, required, text } from "./fields.ts";
import { findLoop } from "./find.ts";
import { defineOperation } from "./operation.ts";
import { pageFields, pageRequest } from "./page.ts";
import { pageOf } from "./shape.ts";

export const operation = defineOperation({
  name: "loop.slots",
  where: "read",
  summary: "List every scheduled instant of a loop with its outcome, newest first",
  input: {
    loop: required(text("the loop", { placeholder: "LOOP", completes: "loop" })),
    each: flag("list neighbours with one outcome and reason singly"),
    ...pageFields(50),
  },
  output: pageOf(slotShape),
  cli: { positionals: ["loop"], examples: ["loop slots fetch", "loop slots fetch --each --limit 200 --json"] },
  async run({ store }, input) {
    const loop = await findLoop(store, input.loop);
    const request = pageRequest(input);
    if (!input.each) {
      const { items, next } = await store.slots.list({ ...request, loopId: loop.id });
      return { items: items.map(toSlotDocument), next };
    }
    // A page may end inside a row that stands for many: the cursor then names the instant reached in it.
    const { expandSlot, inside } = await import("./slot-rows.ts");
    const place = inside.read(request.cursor);
    const items: SlotDocument[] = [];
    let cursor = place.cursor;
    let before = place.before;
    for (;;) {
      const page = await store.slots.list({ loopId: loop.id, limit: 1, cursor });
      const row: SlotRecord | undefined = page.items[0];
      if (row === undefined) return { items, next: null };
      const room = input.limit - items.length;
      const singles = expandSlot(row, loop.schedule, before, room + 1);
      items.push(...singles.slice(0, room).map((at) => toSlotDocument({ ...row, at, untilAt: at, count: 1 })));
      if (singles.length > room) return { items, next: inside.write({ cursor, before: singles[room - 1] ?? before }) };
      before = null;
      cursor = page.next;
      if (cursor === null) return { items, next: null };
      if (items.length === input.limit) return { items, next: inside.write({ cursor, before: null }) };
    }
  },
});
