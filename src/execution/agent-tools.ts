/** Agents' command lines as this host has them: where they are, which version, whether they are logged in. */
import type { AgentFacts } from "../core/agent.ts";
import { AppError } from "../core/errors.ts";
import type { AccountRecord } from "../core/records.ts";
import type { Provider } from "../core/target.ts";
import { isTested, versionOf } from "./agents/adapter.ts";
import { adapterOf } from "./agents/index.ts";
import { homeFault, surroundingsOf } from "./agents/surroundings.ts";
import { statOf } from "./attempt-folder.ts";
import { composeEnvironment } from "./environment.ts";
import { type ErrandEnd, ownOutput, runErrand } from "./errand.ts";
import { openProcessTable, type ProcessTable } from "./processes.ts";
import { resolveSecrets } from "./secrets.ts";

export interface AgentToolsOptions {
  /** The environment from which agents' own is made. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Where a program lies on the path that a process of ours gets; null when it is not found. */
  find(program: string): Promise<string | null>;
  /** Limit of one question to a command line. */
  readonly probeMs: number;
}

/** Describes a provider from its adapter. */
export function describeAgent(provider: Provider): AgentFacts {
  const { program, install, tested, homeVariable, keys, secretKeys, loginArgs, capabilities } = adapterOf(provider);
  const { permissions, promptLimits, commitsInCheckout } = capabilities;
  const { resume, presetSession, usage, cost, jsonEvents } = capabilities;
  return {
    provider,
    program,
    install: install ?? null,
    tested,
    homeVariable,
    keys,
    secretKeys,
    loginArgs,
    permissions,
    promptLimits,
    commitsInCheckout,
    capabilities: { resume, presetSession, usage, cost, jsonEvents },
  };
}

/** What is kept of an answer: versions and logins are some lines. */
const KEPT_BYTES = 64 * 1024;
/** A secret's command has this long, as at a start. */
const SECRET_MS = 30_000;

/** Asks the command lines. Nothing is kept between two questions. */
export function openAgentTools({ environment, find, probeMs }: AgentToolsOptions) {
  const table = openProcessTable();
  const ask = (argv: readonly [string, ...string[]], own: Readonly<Record<string, string>>): Promise<ErrandEnd> =>
    runErrand({ argv, cwd: "/", environment: own, timeoutMs: probeMs, keepBytes: KEPT_BYTES, keep: "head" }, table);

  return {
    /** Where it lies and what version it says it is. */
    async find(provider: Provider) {
      const adapter = adapterOf(provider);
      const file = adapter.program === null ? null : await find(adapter.program);
      if (file === null) return { file, version: null, tested: null, fault: null };
      const end = await ask([file, ...adapter.versionArgs], await environmentOf(provider, null, environment, table));
      const version = end.exit === 0 ? versionOf(ownOutput(end)?.toString() ?? "") : null;
      return {
        file,
        version,
        tested: version === null ? null : isTested(adapter, version),
        fault: version === null ? `it does not say its version: ${faultOf(end)}` : null,
      };
    },
    /** What the provider itself says of a login. @param account null for the user's own that nobody changed */
    async probeLogin(provider: Provider, account: AccountRecord | null) {
      const { program, probeLogin } = adapterOf(provider);
      if (program === null || probeLogin === null) return { loggedIn: null, detail: "it cannot say" };
      const file = await find(program);
      if (file === null) return { loggedIn: null, detail: `${program} is not found` };
      // The question alone lets some providers write there, as at a start, and make a folder that others can look into.
      if (account !== null && account.home !== null) {
        if (statOf(account.home) === null) return { loggedIn: false, detail: "not logged in" };
        const fault = homeFault(account.home);
        if (fault !== null) return { loggedIn: null, detail: `not asked: ${fault.message}` };
      }
      let own: Readonly<Record<string, string>>;
      try {
        own = await environmentOf(provider, account, environment, table);
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        return { loggedIn: null, detail: error.message }; // a secret that cannot be had now is what is found
      }
      const end = await ask([file, ...probeLogin.args], own);
      if (end.timedOut || end.fault !== null) return { loggedIn: null, detail: faultOf(end) };
      if (ownOutput(end) === null) return { loggedIn: null, detail: "it ended in the middle of its answer" };
      return probeLogin.read({
        exit: end.exit,
        stdout: end.stdout.toString(),
        stderr: end.stderr.toString(),
        environment: own,
      });
    },
  };
}

function faultOf({ exit, timedOut, fault, stderr, stdout, whole }: ErrandEnd): string {
  if (timedOut) return "it does not answer in time";
  if (fault !== null) return fault;
  if (exit === 0 && ownOutput({ whole, stdout }) === null) return "it ended in the middle of its answer";
  const said = [stderr, stdout].flatMap((stream) => stream.toString().split("\n")).find((line) => line.trim() !== "");
  return `exit ${exit ?? "unknown"}${said === undefined ? "" : `: ${said.trim().slice(0, 200)}`}`;
}

/** What a process of that account gets, so that the answer is the one that an attempt would have. */
async function environmentOf(
  provider: Provider,
  account: AccountRecord | null,
  daemon: Readonly<Record<string, string | undefined>>,
  table: ProcessTable,
): Promise<Readonly<Record<string, string>>> {
  const own = surroundingsOf(adapterOf(provider), account, account === null || account.name === "default");
  const compose = (secrets: Readonly<Record<string, string>>) =>
    composeEnvironment({ daemon, target: own, secrets, variables: own.variables });
  if (account === null || Object.keys(account.secrets).length === 0) return compose({});
  const secrets = await resolveSecrets(account.secrets, {
    daemon,
    cwd: "/",
    environment: compose({}),
    shell: "/bin/sh",
    timeoutMs: SECRET_MS,
    table,
  });
  return compose(secrets);
}
