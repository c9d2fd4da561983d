import { accountField, accountOf, answerAccount } from "./account-answer.ts";
import { accountShape } from "./documents.ts";
import { defineOperation } from "./operation.ts";

export const operation = defineOperation({
  name: "account.enable",
  where: "write",
  summary: "Let an account take work again",
  input: { account: accountField },
  output: accountShape,
  cli: { positionals: ["account"], examples: ["account enable claude:work"] },
  async run(context, input) {
    const { account } = await accountOf(context, input.account);
    await context.store.accounts.enable({ accountId: account.id, enabled: true });
    return answerAccount(context, account.id);
  },
});
