import { join } from "node:path";
import { AppError } from "../core/errors.ts";
import type { Places } from "./places.ts";
import { makeHome } from "./account-home.ts";
import { answerAccount } from "./account-answer.ts";
import { PROVIDERS, refuseKeys } from "./agent-target.ts";
import { accountShape } from "./documents.ts";
import { badInput, choice, folder, integer, pairs, required, text } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { checkWith } from "./work.ts";

const ANOTHER_NAME = "Choose another name, as in work.";

export const operation = defineOperation({
  name: "account.add",
  where: "write",
  summary: "Add an account: a login of a provider with a folder of its own",
  input: {
    provider: required(choice("the provider", PROVIDERS, { placeholder: "PROVIDER" })),
    name: required(text("the account's name", { placeholder: "NAME" })),
    home: folder("the folder of its configuration and login", {
      fallback: "accounts/PROVIDER/NAME in the state folder",
    }),
    env: pairs("a variable of everything that runs under it, stored with it"),
    secret: pairs("a variable whose value comes from env:NAME, file:PATH or cmd:STRING at each start, never stored"),
    cap: integer("runs at work under it at a time", { min: 1, max: 10_000, fallback: "any number" }),
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
    const { accountName, environmentName, secretSource } = await import("../core/target.ts");
    const { provider } = input;
    const name = checkWith(accountName, input.name, () => "name", "bad_name", ANOTHER_NAME);
    if (name === "default")
      throw badInput("name", "default is your own login, which is there without being added", ANOTHER_NAME, "bad_name");
    for (const key of Object.keys(input.env ?? {})) checkWith(environmentName, key, () => `--env ${key}`);
    await refuseKeys(context, input.env);
    for (const [key, source] of Object.entries(input.secret ?? {})) {
      checkWith(environmentName, key, () => `--secret ${key}`);
      checkWith(secretSource, source, () => `--secret ${key}`);
    }
    const { homeVariable } = await context.agents.about(provider);
    if (homeVariable === null && input.home !== undefined)
      throw badInput(
        "--home",
        `${provider} has no variable that names its folder`,
        "Leave it out: its accounts differ by --env and --secret.",
      );
    for (const key of [...Object.keys(input.env ?? {}), ...Object.keys(input.secret ?? {})])
      if (key === homeVariable)
        throw badInput(`--env ${key}`, `${key} is set from the account's folder`, "Name the folder with --home.");
    // Before anything is made on the disk; the store refuses it again, should two be added at once.
    if ((await context.store.accounts.get({ accountId: `${provider}:${name}` })) !== null)
      throw new AppError("conflict", "name_taken", `there is an account ${provider}:${name}`, {
        path: "name",
        hint: `\`drover account show ${provider}:${name}\` shows it.`,
      });
    const home = homeVariable === null ? null : (input.home ?? homeOf(context.places, provider, name));
    if (home !== null) makeHome(home, "--home");
    const account = await context.store.accounts.add({
      provider,
      name,
      home,
      env: input.env ?? {},
      secrets: input.secret ?? {},
      cap: input.cap ?? null,
    });
    return answerAccount(context, account.id);
  },
});

const homeOf = ({ state }: Places, provider: string, name: string): string => join(state, "accounts", provider, name);
