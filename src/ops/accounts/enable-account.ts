import { accountField, accountOf, answerAccount, notServed } from "./account-answer.ts";
import { accountKeys, warningShape } from "../documents.ts";
import { defineOperation } from "../operation.ts";
import { listOf, object } from "../shape.ts";

export const operation = defineOperation({
  name: "account.enable",
  where: "write",
  summary: "Let an account take work again",
  input: { account: accountField },
  output: object({ ...accountKeys, warnings: listOf(warningShape) }),
  cli: { positionals: ["account"], examples: ["account enable claude:work"] },
  async run(context, input) {
    const { account } = await accountOf(context, input.account);
    await context.store.accounts.enable({ accountId: account.id, enabled: true });
    return { ...(await answerAccount(context, account.id)), warnings: await notServed(context) };
  },
});
