import { notServed } from "./account-answer.ts";
import { PROVIDERS } from "./agent-target.ts";
import { holdsShape, warningShape } from "../documents.ts";
import { choice, required } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, listOf, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "agent.release",
  where: "write",
  summary: "End the hold of a provider; holds of its single accounts stay",
  input: { provider: required(choice("the provider", PROVIDERS, { placeholder: "PROVIDER" })) },
  output: object({ provider: string, holds: holdsShape, released: boolean, warnings: listOf(warningShape) }),
  cli: { positionals: ["provider"], examples: ["agent release claude"] },
  async run(context, { provider }) {
    const { ended } = await context.store.accounts.releaseProvider({ provider });
    return { provider, holds: [], released: ended > 0, warnings: await notServed(context) };
  },
});
