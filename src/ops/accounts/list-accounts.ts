import { allAccounts } from "./account-find.ts";
import { PROVIDERS } from "./agent-target.ts";
import { accountShape, toAccountDocument } from "../documents.ts";
import { choice } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { pageOf } from "../shape.ts";

export const operation = defineOperation({
  name: "account.ls",
  where: "read",
  summary: "List accounts with their limits and holds, your own logins among them",
  input: { provider: choice("only accounts of this provider", PROVIDERS, { placeholder: "PROVIDER" }) },
  output: pageOf(accountShape),
  cli: { examples: ["account ls", "account ls --provider claude --json"] },
  async run({ store }, { provider }) {
    const all = await allAccounts(store, PROVIDERS);
    const shown = all.filter(({ account }) => provider === undefined || account.provider === provider);
    return { items: shown.map(toAccountDocument), next: null };
  },
});
