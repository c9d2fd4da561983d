/** What operations on one account take and answer. */
import { findAccount } from "./account-find.ts";
import { PROVIDERS } from "./agent-target.ts";
import { type AccountDocument, toAccountDocument, type Warning } from "../documents.ts";
import { required, text } from "../fields.ts";
import type { StoreContext } from "../operation.ts";

export const accountField = required(
  text("the account: PROVIDER:NAME, or a name that only one has", { placeholder: "ACCOUNT", completes: "account" }),
);

/** What lets work go on does nothing for it while no daemon is there. */
export async function notServed(context: StoreContext): Promise<readonly Warning[]> {
  if ((await context.daemon()).mode !== "none") return [];
  const { queued, waiting } = await context.store.runs.counts({});
  return queued + waiting === 0
    ? []
    : [
        {
          code: "daemon_down",
          message: "no daemon is running: what waits goes on with the next one",
          hint: "drover up",
        },
      ];
}

/** Errors: AppError not_found `account_not_found`, conflict `ambiguous`. */
export const accountOf = ({ store }: StoreContext, ref: string) => findAccount(store, ref, PROVIDERS);

/** The account as it is now. */
export async function answerAccount(context: StoreContext, accountId: string): Promise<AccountDocument> {
  return toAccountDocument(await accountOf(context, accountId));
}
