import { accountField, accountOf, answerAccount } from "./account-answer.ts";
import { accountShape } from "../documents.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "account.disable",
  where: "write",
  summary: "Take an account out: nothing starts under it; what runs goes on",
  input: { account: accountField },
  output: accountShape,
  cli: { positionals: ["account"], examples: ["account disable claude:work"] },
  async run(context, input) {
    const { account } = await accountOf(context, input.account);
    await context.store.accounts.enable({ accountId: account.id, enabled: false });
    return answerAccount(context, account.id);
  },
});
