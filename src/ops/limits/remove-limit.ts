import { AppError } from "../../core/errors.ts";
import { notServed } from "../accounts/account-answer.ts";
import { warningShape } from "../documents.ts";
import { checkResource, resourceField } from "./limit-resource.ts";
import { defineOperation } from "../operation.ts";
import { boolean, listOf, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "limit.rm",
  where: "write",
  raises: ["not_found"],
  summary: "Take a limit away",
  input: { resource: resourceField },
  output: object({ resource: string, removed: boolean, warnings: listOf(warningShape) }),
  cli: {
    positionals: ["resource"],
    examples: ["limit rm provider:codex"],
    notes: ["A folder that several agents write in then takes one at a time again."],
  },
  async run(context, { resource }) {
    checkResource(resource);
    const { removed } = await context.store.admission.removeLimit({ resource });
    if (!removed)
      throw new AppError("not_found", "limit_not_found", `${resource} has no limit`, {
        path: "resource",
        hint: "`drover limit ls` lists those that there are.",
      });
    return { resource, removed, warnings: await notServed(context) };
  },
});
