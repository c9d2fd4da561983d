import { accountField, accountOf, answerAccount } from "./account-answer.ts";
import { accountShape } from "./documents.ts";
import { badInput, duration, text } from "./fields.ts";
import { defineOperation } from "./operation.ts";

export const operation = defineOperation({
  name: "account.hold",
  where: "write",
  summary: "Keep an account free for a while, or until it is released; what runs goes on",
  input: {
    account: accountField,
    until: text("when the hold ends: a time, or +2h", { placeholder: "T", fallback: "when it is released" }),
    forMs: duration("how long it holds", { min: 1 }),
    reason: text("why, shown by `why` and `account show`"),
  },
  output: accountShape,
  cli: {
    positionals: ["account"],
    excludes: [["until", "forMs"]],
    examples: ["account hold claude:work --for 2h --reason 'mine now'", "account hold codex:team --until +1d"],
  },
  async run(context, input) {
    const now = context.clock.now();
    const { account } = await accountOf(context, input.account);
    let untilAt: number | null = null;
    if (input.forMs !== undefined) untilAt = now + input.forMs;
    else if (input.until !== undefined) {
      const { parseTime } = await import("../core/schedule.ts");
      untilAt = parseTime(input.until, { now, hostZone: context.hostZone, path: "--until" });
      if (untilAt <= now)
        throw badInput("--until", `${input.until} is over already`, "Give a time that is to come.", "bad_time");
    }
    await context.store.accounts.hold({
      accountId: account.id,
      untilAt,
      reason: input.reason ?? "a person holds it",
    });
    return answerAccount(context, account.id);
  },
});
