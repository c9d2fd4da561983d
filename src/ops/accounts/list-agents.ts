import { PROVIDERS } from "./agent-target.ts";
import { holdsShape, toHoldDocument } from "../documents.ts";
import { defineOperation } from "../operation.ts";
import { boolean, listOf, nullable, object, pageOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "agent.ls",
  where: "local",
  raises: ["conflict"],
  summary: "List agents: what is installed, which version, what it can do, whether it is logged in",
  input: {},
  output: pageOf(
    object({
      provider: string,
      program: nullable(string),
      found: nullable(boolean),
      file: nullable(string),
      version: nullable(string),
      tested: nullable(boolean),
      testedVersions: nullable(string),
      loggedIn: nullable(boolean),
      detail: nullable(string),
      holds: holdsShape,
      permissions: listOf(string),
      capabilities: object({
        resume: boolean,
        presetSession: boolean,
        usage: boolean,
        cost: boolean,
        jsonEvents: boolean,
      }),
    }),
  ),
  cli: {
    examples: ["agent ls", "agent ls --json"],
    notes: ["A version that was not tried starts with --untested only. Logins of other accounts: `drover doctor`."],
  },
  async run({ agents, reading }) {
    const [rows, held] = (await reading(({ store }) =>
      Promise.all([store.accounts.list({}), store.accounts.providerHolds({})]),
    )) ?? [[], []];
    const items = await Promise.all(
      PROVIDERS.map(async (provider) => {
        const { program, tested, permissions, capabilities } = await agents.about(provider);
        const found = program === null ? null : await agents.find(provider);
        const account = rows.find((view) => view.account.id === `${provider}:default`)?.account ?? null;
        const login = found === null || found.file === null ? null : await agents.probeLogin(provider, account);
        return {
          provider,
          program,
          /** null: the target names the program. */
          found: found === null ? null : found.file !== null,
          file: found?.file ?? null,
          version: found?.version ?? null,
          tested: found?.tested ?? null,
          testedVersions: tested === null ? null : `${tested.min} up to, not with, ${tested.below}`,
          loggedIn: login?.loggedIn ?? null,
          detail: found?.fault ?? login?.detail ?? null,
          /** Of the provider: nothing starts under any of its accounts. */
          holds: held.filter((hold) => hold.subjectId === provider).map(toHoldDocument),
          permissions,
          capabilities,
        };
      }),
    );
    return { items, next: null };
  },
});
