/** Why an account takes no new work, or that it does. */
import type { AccountView } from "../../core/ports.ts";
import type { AccountStatus } from "../../core/records.ts";
import { toAccountDocument } from "../documents.ts";
import type { Json } from "../fields.ts";
import { loginRemedy } from "../accounts/login-remedy.ts";
import type { StoreContext } from "../operation.ts";
import { byCommand } from "./remedy.ts";
import type { Why } from "./why-answer.ts";
import { accountHeld } from "./why-run.ts";

/** Behind "Nothing holds it". Closed: a new status does not compile without its words. */
const STANDINGS: { readonly [S in AccountStatus]: string } = {
  ok: "its last answer was a good one",
  throttled: "it was throttled, and the next attempt under it finds out whether that is over",
  quota: "it was at a usage limit, and the next attempt under it finds out whether that is over",
  auth: "its provider refused it, and the next attempt under it finds out whether that is mended",
  unknown: "nothing has run under it yet",
};

export async function whyAccount(context: StoreContext, view: AccountView): Promise<Why> {
  const { account, active, cap } = view;
  const held = accountHeld(view, context.clock.now());
  const told = async (): Promise<Pick<Why, "sentence" | "remedy">> => {
    if (!account.enabled)
      return {
        sentence: `It is disabled: nothing starts under ${account.id}.`,
        remedy: byCommand(`drover account enable ${account.id}`, "lets it work"),
      };
    if (held !== null) {
      const isProviders = view.holds.length === 0;
      const release = isProviders ? `drover agent release ${account.provider}` : `drover account release ${account.id}`;
      if (account.status !== "auth" || isProviders)
        return { sentence: `Nothing starts: ${held}.`, remedy: byCommand(release, "ends that") };
      const login = loginRemedy(account, await context.agents.about(account.provider));
      return {
        sentence: `Nothing starts: ${held}.`,
        remedy: {
          words: `${login.words}, then \`${release}\` wakes what waits`,
          command: login.command === null ? release : `${login.command} && ${release}`,
          file: null,
        },
      };
    }
    if (cap !== null && active >= cap)
      return {
        sentence: `It is at work ${active} times, and ${cap} is its cap.`,
        remedy: byCommand(`drover limit set account:${account.id} N`, "changes that"),
      };
    return { sentence: `Nothing holds it: ${STANDINGS[account.status]}.`, remedy: null };
  };
  return {
    thing: { kind: "account", id: account.id, name: account.name },
    ...(await told()),
    status: account.status,
    reason: view.holds[0]?.source ?? view.providerHolds[0]?.source ?? null,
    facts: { active, cap, limitEnds: account.limitEnds, account: toAccountDocument(view) as unknown as Json },
  };
}
