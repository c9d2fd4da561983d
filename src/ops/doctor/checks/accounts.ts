/** Accounts: their folders, and holds that only a person ends. */
import { allAccounts } from "../../accounts/account-find.ts";
import { homeFault } from "../../accounts/account-home.ts";
import { PROVIDERS } from "../../accounts/agent-target.ts";
import type { Check } from "../findings.ts";

export const accounts: Check = {
  name: "accounts",
  needsStore: true,
  async look({ openStore, find, ok }) {
    const { store } = await openStore();
    let fine = true;
    for (const { account, holds } of await allAccounts(store, PROVIDERS)) {
      const fault = account.home === null ? null : homeFault(account.home);
      if (fault !== null && account.home !== null) {
        fine = false;
        const { mend } = fault;
        find("account_folder", {
          subject: account.home,
          message: `the folder ${account.home} of ${account.id}: ${fault.why}`,
          ...(mend === null
            ? { hint: fault.hint }
            : { command: fault.hint, mending: { does: fault.hint, perform: async () => mend() } }),
        });
      }
      for (const hold of holds) {
        if (hold.untilAt !== null) continue;
        fine = false;
        find("account_held", {
          subject: account.id,
          message: `${account.id} is held until it is released: ${hold.reason}`,
          command: `drover account release ${account.id}`,
        });
      }
    }
    for (const hold of await store.accounts.providerHolds({})) {
      if (hold.untilAt !== null) continue;
      fine = false;
      find("provider_held", {
        subject: hold.subjectId,
        message: `every account of ${hold.subjectId} is held until it is released: ${hold.reason}`,
        command: `drover agent release ${hold.subjectId}`,
      });
    }
    if (fine) ok("none is held, and their folders are theirs alone");
  },
};
