import { accountField, accountOf, answerAccount, notServed } from "./account-answer.ts";
import { accountKeys, warningShape } from "../documents.ts";
import { defineOperation } from "../operation.ts";
import { integer, listOf, object } from "../shape.ts";

export const operation = defineOperation({
  name: "account.release",
  where: "write",
  summary: "End every hold of an account, forget its limits, and wake what waits for it",
  input: { account: accountField },
  output: object({ ...accountKeys, woken: integer, warnings: listOf(warningShape) }),
  cli: { positionals: ["account"], examples: ["account release claude:work"] },
  async run(context, input) {
    const { account, holds } = await accountOf(context, input.account);
    // The user's own login has no row until there is something to remember.
    const isUntouched = account.createdAt === 0 && holds.length === 0;
    const woken = isUntouched ? 0 : (await context.store.accounts.release({ accountId: account.id })).woken;
    return { ...(await answerAccount(context, account.id)), woken, warnings: await notServed(context) };
  },
});
