import { warningShape } from "../documents.ts";
import { json } from "../fields.ts";
import { notFiring } from "../loops/loop-answer.ts";
import { defineOperation } from "../operation.ts";
import { anything, boolean, listOf, object } from "../shape.ts";

export const operation = defineOperation({
  name: "declared.check",
  where: "read",
  summary: "Say what this host refuses of what files declare",
  input: { changes: json("what was decided") },
  output: object({ ok: boolean, faults: listOf(anything), warnings: listOf(warningShape) }),
  async run(context, { changes }) {
    const { admitDeclared } = await import("./declared-door.ts");
    const { admitted, faults } = await admitDeclared(context, changes);
    return {
      ok: faults === null,
      faults: faults ?? [],
      warnings: [...(admitted?.warnings ?? []), ...notFiring(await context.daemon())],
    };
  },
});
