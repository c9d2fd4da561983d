import { accountField, accountOf, answerAccount } from "./account-answer.ts";
import { accountShape } from "../documents.ts";
import { text } from "../fields.ts";
import { holdEnd, holdFields, WITHOUT_REASON } from "./hold-until.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "account.hold",
  where: "write",
  summary: "Keep an account free for a while, or until it is released; what runs goes on",
  input: {
    account: accountField,
    ...holdFields,
    reason: text("why, shown by `why` and `account show`", { free: true }),
  },
  output: accountShape,
  cli: {
    positionals: ["account"],
    excludes: [["until", "forMs"]],
    examples: ["account hold claude:work --for 2h --reason 'mine now'", "account hold codex:team --until +1d"],
    notes: ["All accounts of a provider at once: `drover agent hold`."],
  },
  async run(context, input) {
    const { account } = await accountOf(context, input.account);
    await context.store.accounts.hold({
      accountId: account.id,
      untilAt: await holdEnd(context, input),
      reason: input.reason ?? WITHOUT_REASON,
    });
    return answerAccount(context, account.id);
  },
});
