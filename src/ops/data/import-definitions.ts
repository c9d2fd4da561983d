import { z } from "zod";
import { makeHome } from "../accounts/account-home.ts";
import { entriesShape, hasConflicts } from "./bundle-answer.ts";
import { planBundle } from "./bundle-plan.ts";
import { type Definition, definition } from "./bundle.ts";
import { type Field, flag, required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { requireForm } from "../schema.ts";
import { boolean, listOf, object, string } from "../shape.ts";

const lines = z.array(definition);

const definitions: Field<readonly Definition[]> = required({
  ...text("accounts, limits and loops as a bundle writes them"),
  schema: { type: "array", items: { type: "object" } },
  check(value, path) {
    return requireForm(lines, value, path);
  },
});

export const operation = defineOperation({
  name: "import.definitions",
  where: "write",
  summary: "Make the loops, accounts and limits of a bundle: all or none",
  input: {
    definitions,
    replace: flag("replace what is here and differs"),
    skip: flag("leave out what is in conflict or blocked"),
  },
  output: object({ applied: boolean, entries: entriesShape, todo: listOf(string) }),
  async run(context, { definitions: given, replace, skip }) {
    const { entries, changes, prompts, todo } = await planBundle(context, given, { replace, skip });
    if (hasConflicts(entries)) return { applied: false, entries, todo };
    for (const { ref, content } of prompts)
      await context.store.prompts.put({ digest: ref.digest, content, bytes: ref.bytes });
    for (const { draft } of changes.accounts.add) if (draft.home !== null) makeHome(draft.home, "home");
    await context.store.declared.apply({ changes, limits: context.settings.limits });
    return { applied: true, entries, todo };
  },
});
