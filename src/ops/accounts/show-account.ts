import { accountField, answerAccount } from "./account-answer.ts";
import { accountShape } from "../documents.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "account.show",
  where: "read",
  summary: "Show an account: its folder, limits, holds and what runs under it",
  input: { account: accountField },
  output: accountShape,
  cli: { positionals: ["account"], examples: ["account show claude:work"] },
  run: (context, input) => answerAccount(context, input.account),
});
