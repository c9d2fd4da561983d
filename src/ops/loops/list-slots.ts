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
  async run(context, input) {
    const { store } = context;
    const loop = await findLoop(store, input.loop);
    const span = await spanOf(input, context);
    const wanted = { ...span, outcome: input.outcome ?? null, loopId: loop.id };
    const request = pageRequest(input);
    if (!input.each) {
      const { items, next } = await store.slots.list({ ...request, ...wanted });
      return { items: items.map(toSlotDocument), next };
    }
    // A page may end inside a row that stands for many: the cursor names the instant reached in it.
    const { expandSlot, reached } = await import("./slot-rows.ts");
    const before = reached.read(request.cursor) ?? Number.MAX_SAFE_INTEGER;
    const until = Math.min(span.until ?? Number.MAX_SAFE_INTEGER, before - 1);
    const singles: SlotDocument[] = [];
    for (let cursor: string | null = null; ; ) {
      const rows: Awaited<ReturnType<typeof store.slots.list>> = await store.slots.list({
        ...wanted,
        until,
        limit: input.limit + 1 - singles.length,
        cursor,
      });
      for (const row of rows.items)
        for (const at of expandSlot(row, loop.schedule, until, input.limit + 1 - singles.length))
          if (span.since === null || at >= span.since)
            singles.push(toSlotDocument({ ...row, at, untilAt: at, count: 1 }));
      const items = singles.slice(0, input.limit);
      const last = items.at(-1);
      if (singles.length > input.limit && last !== undefined)
        return { items, next: reached.write(Date.parse(last.at)) };
      if (rows.next === null) return { items, next: null };
      cursor = rows.next;
    }
  },
});
