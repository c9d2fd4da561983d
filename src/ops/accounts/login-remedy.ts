/** What a person does about an account that its provider refuses, before it is released. */
import type { AgentFacts } from "../../core/agent.ts";
import type { AccountView } from "../../core/ports.ts";
import type { AccountRecord, RunRecord } from "../../core/records.ts";
import type { AgentTools } from "../operation.ts";

export interface LoginRemedy {
  /** A command line; null where none does it. */
  readonly command: string | null;
  /** The end of a sentence. */
  readonly words: string;
}

/**
 * Where a key is given by `--secret`, a login would not be looked at: the key is to be mended where it comes from.
 * @param ofRun the secrets of a run, which come before those of its account
 */
export function loginRemedy(
  { id, secrets }: Pick<AccountRecord, "id" | "secrets">,
  { secretKeys, loginArgs }: Pick<AgentFacts, "secretKeys" | "loginArgs">,
  ofRun: Readonly<Record<string, string>> = {},
): LoginRemedy {
  const keys = Object.entries({ ...secrets, ...ofRun }).filter(
    ([name]) => loginArgs === null || secretKeys.includes(name),
  );
  const [key] = keys;
  if (key !== undefined)
    return { command: null, words: `its key ${key[0]} comes from ${key[1]}: put one there that is valid` };
  if (loginArgs === null) return { command: null, words: "give it a login or a key that is valid" };
  return { command: `drover account login ${id}`, words: `\`drover account login ${id}\` logs it in` };
}

/** The same for the account that a run works under. @param view null: it has no row */
export async function remedyOf(
  { agents }: { readonly agents: AgentTools },
  { target, accountWish }: Pick<RunRecord, "target" | "accountWish">,
  view: AccountView | null,
): Promise<LoginRemedy> {
  const provider = target.kind === "agent" ? target.provider : "custom";
  const account = view?.account ?? { id: accountWish ?? `${provider}:default`, secrets: {} };
  return loginRemedy(account, await agents.about(provider), target.secrets);
}
