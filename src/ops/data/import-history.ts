import { z } from "zod";
import type { PastRun, PastSlot } from "../../core/ports.ts";
import { pastRun, pastSlots } from "./bundle.ts";
import { type Field, required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { requireForm } from "../schema.ts";
import { integer, object } from "../shape.ts";

const shape = z.strictObject({ runs: z.array(pastRun), slots: z.array(pastSlots) });

interface History {
  readonly runs: readonly PastRun[];
  readonly slots: readonly PastSlot[];
}

const history: Field<History> = required({
  ...text("ended runs and slots as a bundle writes them, with the ids of this store's loops"),
  schema: { type: "object" },
  check(value, path) {
    const { runs, slots } = requireForm(shape, value, path);
    return { runs, slots: slots.flatMap(({ loopId, items }) => items.map((slot) => ({ ...slot, loopId }))) };
  },
});

export const operation = defineOperation({
  name: "import.history",
  where: "write",
  summary: "Take in ended runs of a bundle; what is here already stays",
  input: { history },
  output: object({ runs: integer, slots: integer }),
  run: ({ store }, input) => store.history.add(input.history),
});
