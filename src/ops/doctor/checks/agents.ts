/** Agents: found, of a version that was tried, and logged in under each account that is there. */
import type { AccountRecord } from "../../../core/records.ts";
import type { Provider } from "../../../core/target.ts";
import { allAccounts, untouchedDefault } from "../../accounts/account-find.ts";
import { PROVIDERS } from "../../accounts/agent-target.ts";
import type { Check, Site } from "../findings.ts";
import { loginRemedy } from "../../accounts/login-remedy.ts";
import { activeLoops } from "./active-loops.ts";
import { foundByDaemon } from "./path.ts";

export const agents: Check = {
  name: "agents",
  async look(site) {
    const opened = await site.openStore().catch(() => null); // the check of the store says why
    const all = opened === null ? [] : (await allAccounts(opened.store, PROVIDERS)).map(({ account }) => account);
    const loops = opened === null ? [] : await activeLoops(opened);
    await Promise.all(
      PROVIDERS.map((provider) => {
        const ofIt = all.filter((account) => account.provider === provider);
        const needing = loops.filter(({ target }) => target.kind === "agent" && target.provider === provider);
        return lookAt(
          site,
          provider,
          ofIt,
          needing.map(({ name }) => `the loop ${name}`),
        );
      }),
    );
  },
};

async function lookAt(
  site: Site,
  provider: Provider,
  ofIt: readonly AccountRecord[],
  loops: readonly string[],
): Promise<void> {
  const { world, find, ok } = site;
  const about = await world.agents.about(provider);
  const { program, tested, install } = about;
  if (program === null) return;
  const needing = [...ofIt.filter((account) => account.name !== "default").map(({ id }) => id), ...loops];
  const { file, version, tested: isTried, fault } = await world.agents.find(provider);
  // Nobody needs to have every agent; whoever added an account or a loop of one does.
  if (file === null) {
    if (needing.length === 0) return ok(`${provider}: not installed`);
    const more = needing.length > 3 ? ` and ${needing.length - 2} more` : "";
    const named = `${needing.slice(0, more === "" ? 3 : 2).join(", ")}${more}`;
    return find("agent_missing", {
      subject: provider,
      message: `${provider}: ${program} is not found, and ${named} need${needing.length === 1 ? "s" : ""} it`,
      ...(install === null ? {} : { hint: install }),
    });
  }
  if (fault !== null)
    return find("agent_broken", {
      subject: file,
      message: `${provider}: ${file}: ${fault}`,
      hint: install ?? "Install it again.",
    });
  const daemons = await foundByDaemon(site, [program]);
  if (daemons !== null && daemons[program] === null)
    find("daemon_lacks_program", {
      subject: program,
      message: `${provider}: you find ${file}, and the daemon finds no ${program}: its PATH differs from yours`,
      hint: "From a shell that finds it.",
      command: "drover down && drover up",
      ...(needing.length === 0 ? { level: "note" as const } : {}),
    });
  if (isTried === false)
    find("agent_untested", {
      subject: file,
      message: `${provider}: version ${version} was not tried${tested === null ? "" : ` (tried: ${tested.min} up to, not with, ${tested.below})`}`,
      hint: "--untested takes it, at your risk.",
    });
  else ok(`${provider}: ${version}, ${file}`);
  const logins = ofIt.some((account) => account.name === "default") ? ofIt : [untouchedDefault(provider), ...ofIt];
  await Promise.all(
    logins.map(async (account) => {
      const { loggedIn, detail } = await world.agents.probeLogin(provider, account.createdAt === 0 ? null : account);
      if (loggedIn !== false) return ok(`${account.id}: ${detail}`);
      // Your own login may well be unused where accounts are added; that is no fault.
      if (account.name === "default") return ok(`${account.id}: not logged in`);
      const remedy = loginRemedy(account, about);
      find("login_missing", {
        subject: account.id,
        message: `${account.id}: ${detail}`,
        ...(remedy.command === null ? { hint: remedy.words } : { command: remedy.command }),
      });
    }),
  );
}
