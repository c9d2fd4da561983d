import { AppError } from "../../core/errors.ts";
import { answerAccount } from "./account-answer.ts";
import { accountFields, draftAccount } from "./account-draft.ts";
import { makeHome } from "./account-home.ts";
import { PROVIDERS } from "./agent-target.ts";
import { accountShape } from "../documents.ts";
import { choice, required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";

export const operation = defineOperation({
  name: "account.add",
  where: "write",
  summary: "Add an account: a login of a provider with a folder of its own",
  input: {
    provider: required(choice("the provider", PROVIDERS, { placeholder: "PROVIDER" })),
    name: required(text("the account's name", { placeholder: "NAME" })),
    ...accountFields,
  },
  output: accountShape,
  cli: {
    positionals: ["provider", "name"],
    examples: [
      "account add claude work",
      "account add codex team --cap 2 --secret CODEX_API_KEY=file:$HOME/.config/team.key",
    ],
    notes: ["Log it in with `drover account login PROVIDER:NAME`."],
  },
  async run(context, input) {
    const draft = await draftAccount(context, input.provider, input.name, input);
    const id = `${draft.provider}:${draft.name}`;
    // Before anything is made on the disk; the store refuses it again, should two be added at once.
    if ((await context.store.accounts.get({ accountId: id })) !== null)
      throw new AppError("conflict", "name_taken", `there is an account ${id}`, {
        path: "name",
        hint: `\`drover account show ${id}\` shows it.`,
      });
    if (draft.home !== null) makeHome(draft.home, "--home");
    const account = await context.store.accounts.add(draft);
    return answerAccount(context, account.id);
  },
});
