import { PROVIDERS } from "./agent-target.ts";
import { holdsShape } from "./documents.ts";
import { choice, required } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { boolean, object, string } from "./shape.ts";

export const operation = defineOperation({
  name: "agent.release",
  where: "write",
  summary: "End the hold of a provider; holds of its single accounts stay",
  input: { provider: required(choice("the provider", PROVIDERS, { placeholder: "PROVIDER" })) },
  output: object({ provider: string, holds: holdsShape, released: boolean }),
  cli: { positionals: ["provider"], examples: ["agent release claude"] },
  async run({ store }, { provider }) {
    const { ended } = await store.accounts.releaseProvider({ provider });
    return { provider, holds: [], released: ended > 0 };
  },
});
