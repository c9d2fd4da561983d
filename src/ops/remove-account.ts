import { accountField, accountOf } from "./account-answer.ts";
import { flag } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { boolean, nullable, object, string } from "./shape.ts";

export const operation = defineOperation({
  name: "account.rm",
  where: "write",
  summary: "Forget an account; its folder with the login stays",
  input: { account: accountField, dryRun: flag("only say what would be forgotten") },
  output: object({ id: string, removed: boolean, home: nullable(string) }),
  cli: { positionals: ["account"], examples: ["account rm claude:work"] },
  async run(context, input) {
    const { account } = await accountOf(context, input.account);
    if (!input.dryRun && account.createdAt !== 0) await context.store.accounts.remove({ accountId: account.id });
    return { id: account.id, removed: !input.dryRun, home: account.home };
  },
});
