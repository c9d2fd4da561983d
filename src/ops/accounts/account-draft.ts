/** From what is said of an account to what is kept of it. */
import { join } from "node:path";
import type { AccountDraft } from "../../core/ports.ts";
import type { Provider } from "../../core/target.ts";
import { refuseKeys } from "./agent-target.ts";
import { badInput, folder, type InputOf, integer, pairs } from "../fields.ts";
import type { StoreContext } from "../operation.ts";
import type { Places } from "../places.ts";
import { checkWith } from "../runs/work.ts";

const ANOTHER_NAME = "Choose another name, as in work.";

/** What an account is, beside its provider and its name. */
export const accountFields = {
  home: folder("the folder of its configuration and login", {
    fallback: "accounts/PROVIDER/NAME in the state folder",
  }),
  env: pairs("a variable of everything that runs under it, stored with it"),
  secret: pairs("a variable whose value comes from env:NAME, file:PATH or cmd:STRING at each start, never stored", {
    declared: "secrets",
  }),
  cap: integer("runs at work under it at a time", { min: 1, max: 10_000, fallback: "any number" }),
} as const;

/** The folder of an account where none is named. */
export const usualHome = ({ state }: Pick<Places, "state">, provider: string, name: string): string =>
  join(state, "accounts", provider, name);

/** The account that the input describes; nothing is stored, and no folder is made. Errors: AppError invalid with the input's path. */
export async function draftAccount(
  context: Pick<StoreContext, "agents" | "places">,
  provider: Provider,
  name: string,
  input: InputOf<typeof accountFields>,
): Promise<AccountDraft> {
  const { accountName, environmentName, secretSource } = await import("../../core/target.ts");
  checkWith(accountName, name, () => "name", "bad_name", ANOTHER_NAME);
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
  return {
    provider,
    name,
    home: homeVariable === null ? null : (input.home ?? usualHome(context.places, provider, name)),
    env: input.env ?? {},
    secrets: input.secret ?? {},
    cap: input.cap ?? null,
  };
}
