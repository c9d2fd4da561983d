import { findAccount } from "./account-find.ts";
import { makeHome } from "./account-home.ts";
import { accountField } from "./account-answer.ts";
import { PROVIDERS } from "./agent-target.ts";
import { AppError } from "../../core/errors.ts";
import { defineOperation } from "../operation.ts";
import { boolean, integer, listOf, nullable, object, string } from "../shape.ts";
import { shellWord } from "../../core/shell-word.ts";

/** As a run ends that a person has to do something for. */
const WAITS_FOR_PERSON = 7;

export const operation = defineOperation({
  name: "account.login",
  where: "local",
  raises: ["conflict"],
  summary: "Start the provider's own login for an account, on this terminal",
  input: { account: accountField },
  output: object({
    id: string,
    home: nullable(string),
    /** The command line for a shell. */
    command: string,
    argv: listOf(string),
    ran: boolean,
    exitCode: nullable(integer),
    /** What the provider says afterwards; null where it cannot say or nothing ran. */
    loggedIn: nullable(boolean),
    next: nullable(string),
  }),
  cli: {
    positionals: ["account"],
    exit: ({ ran, exitCode }: { readonly ran: boolean; readonly exitCode: number | null }) =>
      ran ? (exitCode === 0 ? 0 : 1) : WAITS_FOR_PERSON,
    exits: [1, WAITS_FOR_PERSON],
    examples: ["account login claude:work"],
    notes: ["Without a terminal nothing is started: it prints the command that you would type, and ends with 7."],
  },
  async run(context, input) {
    const view =
      (await context.reading(({ store }) => findAccount(store, input.account, PROVIDERS))) ??
      (await untouched(input.account));
    const { account, holds } = view;
    const about = await context.agents.about(account.provider);
    if (about.program === null || about.loginArgs === null)
      throw new AppError("invalid", "no_login", `${account.provider} has no login that drover knows`, {
        path: "account",
        hint: "Give its accounts their keys with --secret.",
      });
    const own = account.home === null || about.homeVariable === null ? {} : { [about.homeVariable]: account.home };
    const argv: [string, ...string[]] = [about.program, ...about.loginArgs];
    const command = [
      ...Object.entries(own).map(([name, value]) => `${name}=${shellWord(value)}`),
      ...argv.map(shellWord),
    ];
    const isHeld = holds.length > 0 || account.status === "auth";
    const next = isHeld ? `drover account release ${account.id}` : null;
    const answer = { id: account.id, home: account.home, command: command.join(" "), argv, next };
    if (!context.hasTerminal) return { ...answer, ran: false, exitCode: null, loggedIn: null };
    const { file } = await context.agents.find(account.provider);
    if (file === null)
      throw new AppError(
        "not_found",
        "agent_not_found",
        `the agent's program ${JSON.stringify(about.program)} is not found`,
        {
          hint: `${about.install ?? `Install the command line of ${account.provider}`}, so that ${about.program} is on PATH.`,
        },
      );
    // It may have been removed since, and the provider would make it as its own umask says.
    if (account.home !== null) makeHome(account.home, "account");
    // Keys of this terminal would be taken for the login of another account.
    const inherited = Object.entries(context.env).filter(
      ([name]) => account.name === "default" || !about.keys.includes(name),
    );
    const exitCode = await context.attach({
      argv: [file, ...about.loginArgs],
      env: { ...Object.fromEntries(inherited), ...account.env, ...own },
      cwd: context.cwd,
    });
    const { loggedIn } = await context.agents.probeLogin(account.provider, account.createdAt === 0 ? null : account);
    return { ...answer, ran: true, exitCode, loggedIn };
  },
});

/** Before the first change there are only the user's own logins. */
async function untouched(ref: string) {
  const { emptyStore } = await import("../empty-store.ts");
  return findAccount(emptyStore, ref, PROVIDERS);
}
