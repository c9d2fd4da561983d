import { badInput, texts } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { integer, object } from "../shape.ts";

export const operation = defineOperation({
  name: "stuck.release",
  where: "write",
  summary: "Let go of what is stuck: claims of attempts that are over, slots that nothing can give an outcome",
  input: {
    claimsOf: texts("the id of an attempt that is over and holds units of a cap"),
    slots: texts("a slot without an outcome and without a run, as LOOP_ID@MILLISECONDS"),
  },
  output: object({ claims: integer, slots: integer }),
  async run({ store, hostId }, { claimsOf = [], slots = [] }) {
    return store.stuck.release({
      hostId,
      claimsOf,
      slots: slots.map((slot) => {
        const [loopId = "", at = ""] = slot.split("@");
        if (!/^\d{1,16}$/.test(at)) throw badInput("slots", `${slot} is no slot`, "Write LOOP_ID@MILLISECONDS.");
        return { loopId, at: Number(at) };
      }),
    });
  },
});
