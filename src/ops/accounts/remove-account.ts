import { accountField, accountOf } from "./account-answer.ts";
import { badInput, flag } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "account.rm",
  where: "write",
  summary: "Forget an account; its folder with the login stays",
  input: { account: accountField, dryRun: flag("only say what would be forgotten") },
  output: object({ id: string, removed: boolean, home: nullable(string) }),
  cli: { positionals: ["account"], examples: ["account rm claude:work"] },
  async run(context, input) {
    const { account } = await accountOf(context, input.account);
    if (account.name === "default")
      throw badInput(
        "account",
        `${account.id} is your own login, which is there without being added and cannot be forgotten`,
        `\`drover account release ${account.id}\` ends its holds, \`drover account disable ${account.id}\` takes it out.`,
        "own_login",
      );
    if (!input.dryRun) await context.store.accounts.remove({ accountId: account.id });
    return { id: account.id, removed: !input.dryRun, home: account.home };
  },
});
