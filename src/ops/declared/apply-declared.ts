import { makeHome } from "../accounts/account-home.ts";
import { json } from "../fields.ts";
import { notFiring } from "../loops/loop-answer.ts";
import { defineOperation } from "../operation.ts";
import { warningShape } from "../documents.ts";
import { anything, boolean, listOf, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "declared.apply",
  where: "write",
  summary: "Make the store match what files declare: all of it or nothing",
  input: { changes: json("what was decided") },
  output: object({
    applied: boolean,
    made: listOf(object({ name: string, loopId: string })),
    faults: listOf(anything),
    warnings: listOf(warningShape),
  }),
  async run(context, { changes }) {
    const { admitDeclared } = await import("./declared-door.ts");
    const { admitted, faults } = await admitDeclared(context, changes);
    if (admitted === null) return { applied: false, made: [], faults, warnings: [] };
    const { store, settings } = context;
    const { accounts } = admitted.changes;
    for (const { draft } of [...accounts.add, ...accounts.change])
      if (draft.home !== null) makeHome(draft.home, "--home");
    for (const [digest, content] of Object.entries(admitted.prompts))
      await store.prompts.put({ digest, content, bytes: Buffer.byteLength(content, "base64") });
    const { loops } = admitted.changes;
    for (const target of [
      ...loops.add.map(({ draft }) => draft.target),
      ...loops.change.map(({ change }) => change.target),
    ])
      if (target?.kind === "workflow") {
        const content = admitted.prompts[target.definition.digest];
        const { keepSteps } = await import("../workflows/workflow-target.ts");
        if (content !== undefined) await keepSteps(context, target, content);
      }
    const { made } = await store.declared.apply({ changes: admitted.changes, limits: settings.limits });
    return { applied: true, made, faults: [], warnings: [...admitted.warnings, ...notFiring(await context.daemon())] };
  },
});
