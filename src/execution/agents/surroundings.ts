/** What a process of an agent gets because of its account, the same at each start and for each question to its command line. */
import { chmodSync, lstatSync, mkdirSync, type Stats } from "node:fs";
import { AppError } from "../../core/errors.ts";
import type { AccountRecord } from "../../core/records.ts";
import type { AgentTarget } from "../../core/target.ts";
import { isAbsent, isFull, noSpace } from "../attempt-folder.ts";
import type { Adapter } from "./adapter.ts";

/** In the form that `composeEnvironment` takes: `variables` are those that nothing overrides. */
export interface AgentSurroundings {
  readonly env: Record<string, string>;
  readonly envPass: string[];
  readonly secrets: Readonly<Record<string, string>>;
  readonly variables: Readonly<Record<string, string>>;
  /** Names of variables that hold secrets whatever they are called. */
  readonly secretNames: readonly string[];
}

/** What the target says for itself; of a mere question nothing. */
type Said = Pick<AgentTarget, "env" | "envPass" | "secrets">;
const NOTHING: Said = { env: {}, envPass: [], secrets: {} };

/**
 * Keys and base addresses in our own environment belong to the user's own login. Another account has what it was given
 * and nothing of those, not even by `envPass`: the wrong key would work, on the wrong bill.
 * @param account null for the user's own login that nobody changed
 */
export function surroundingsOf(
  adapter: Adapter,
  account: AccountRecord | null,
  isOwnLogin: boolean,
  said: Said = NOTHING,
): AgentSurroundings {
  const ofOwnLogin = new Set([...adapter.keys, ...(adapter.homeVariable === null ? [] : [adapter.homeVariable])]);
  const home = account?.home ?? null;
  return {
    env: { ...adapter.off, ...account?.env, ...said.env },
    envPass: isOwnLogin ? [...said.envPass, ...ofOwnLogin] : said.envPass.filter((name) => !ofOwnLogin.has(name)),
    secrets: { ...account?.secrets, ...said.secrets },
    variables: home === null || adapter.homeVariable === null ? {} : { [adapter.homeVariable]: home },
    secretNames: adapter.secretKeys,
  };
}

/** An account's home holds a login: it is made for its owner alone, and refused when others may look into it. Errors: `env_invalid`, `no_space`. */
export function requireHome(home: string): void {
  if (linkStatOf(home) === null) return makeHome(home);
  const fault = homeFault(home);
  if (fault !== null) throw fault;
}

/** A link itself, not where it leads: a login is not to be written there. */
function linkStatOf(home: string): Stats | null {
  try {
    return lstatSync(home, { throwIfNoEntry: false }) ?? null;
  } catch (error) {
    if (isAbsent(error)) return null; // a part of its path is a file
    throw error;
  }
}

/** Why a home that is there cannot be used; null when it can, and when it is not there. */
export function homeFault(home: string): AppError | null {
  const found = linkStatOf(home);
  if (found === null) return null;
  if (!found.isDirectory()) return unusable(home, "is no folder of its own", "Give the account another home.");
  if ((found.mode & 0o077) !== 0)
    return unusable(home, "can be looked into by others", `Take that right away: chmod 700 ${home}`);
  return null;
}

function makeHome(home: string): void {
  try {
    mkdirSync(home, { recursive: true, mode: 0o700 });
    chmodSync(home, 0o700); // whatever the umask was
  } catch (error) {
    if (isFull(error)) throw noSpace(home, error);
    const why = error instanceof Error && "code" in error ? String(error.code) : "error";
    throw unusable(home, `cannot be made (${why})`, "Make it, or give the account another home.");
  }
}

const unusable = (home: string, why: string, hint: string): AppError =>
  new AppError("invalid", "env_invalid", `the account's home ${home} ${why}`, { path: home, hint });
