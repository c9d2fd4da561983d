/** The commit that a tree begins at: what `origin` has now, or the best that can be had, said in words. */
import { AppError } from "../../core/errors.ts";
import { type GitLimits, printed, type Workspace, workspaceError } from "./git.ts";

/** Where a tree begins, and where that comes from in words: `origin/main, fetched`. */
export interface Base {
  readonly commit: string;
  readonly note: string;
}

/** What `origin` gave. */
export type Origin =
  | { readonly kind: "none" }
  /** It has no branch to begin at. */
  | { readonly kind: "empty" }
  | { readonly kind: "fetched"; readonly commit: string; readonly name: string }
  | { readonly kind: "away"; readonly words: string; readonly last: Base | null };

/** A ref of ours for an origin whose HEAD is on no branch. */
const ORIGIN_HEAD = "refs/drover/origin-head";
const TRACKING = "refs/remotes/origin/";
/** Branches that are asked for when nobody says which one is the default. */
const USUAL_BRANCHES = ["main", "master"];

/** The base for a tree of the checkout that `git` is in. Errors: `workspace` when there is no commit at all. */
export async function chooseBase(git: Workspace, origin: Origin): Promise<Base> {
  if (origin.kind === "fetched") return { commit: origin.commit, note: `${origin.name}, fetched` };
  if (origin.kind === "away" && origin.last !== null)
    return { ...origin.last, note: `${origin.last.note} as last fetched, perhaps behind: ${origin.words}` };
  const commit = await commitOf(git, "HEAD");
  if (commit === null) await refuseDamaged(git);
  if (commit === null)
    throw workspaceError(`the repository ${git.folder} has no commits yet, so there is nothing to begin at`, {
      path: git.folder,
      hint: "Make its first commit.",
    });
  const why = { none: "no origin", empty: "origin has no commits", away: origin.kind === "away" ? origin.words : "" };
  return { commit, note: `local HEAD: ${why[origin.kind]}` };
}

/** A HEAD that names a commit which is not there is no repository without commits. Errors: `workspace`. */
async function refuseDamaged(git: Workspace): Promise<void> {
  const named = await git.run(["rev-parse", "--verify", "--quiet", "HEAD"]);
  const on = await git.run(["symbolic-ref", "--quiet", "HEAD"]);
  // On a branch that is not born there is no name, on no branch there has to be one.
  if (named.exit !== 0 && on.exit === 0) return;
  const id = printed(named) || "HEAD";
  throw workspaceError(
    `the repository ${git.folder} is damaged: its commit ${id} cannot be read (${git.why(await git.run(["cat-file", "-e", id]))})`,
    { path: git.folder, hint: "`git fsck` there says what is missing." },
  );
}

/** Fetches the default branch of `origin`. That it cannot be reached is an answer. Errors: `no_space`. */
export async function fetchOrigin(git: Workspace, limits: GitLimits): Promise<Origin> {
  if ((await git.run(["remote", "get-url", "origin"])).exit !== 0) return { kind: "none" };
  const remote = { timeoutMs: limits.gitFetchMs, environment: { GIT_SSH_COMMAND: await sshCommand(git) } };
  const ask = (arguments_: readonly string[]) => git.ask("origin could not be reached", arguments_, remote);
  const fetch = (from: string, to: string) =>
    ask([
      "fetch",
      "--quiet",
      "--no-tags",
      "--no-prune",
      "--no-recurse-submodules",
      "--no-write-fetch-head",
      "--refmap=",
      "--",
      "origin",
      `+${from}:${to}`,
    ]);
  const known = await knownBranch(git);
  try {
    if (known !== null) {
      try {
        await fetch(`refs/heads/${known}`, TRACKING + known);
        return await fetched(git, TRACKING + known, `origin/${known}`);
      } catch (error) {
        // The default branch was renamed since the clone: origin knows the new name.
        if (!(error instanceof AppError && error.message.includes("couldn't find remote ref"))) throw error;
      }
    }
    const said = await ask(["ls-remote", "--symref", "--", "origin", "HEAD"]);
    const branch = /^ref: refs\/heads\/(\S+)\tHEAD$/m.exec(said)?.[1];
    if (branch !== undefined) {
      await fetch(`refs/heads/${branch}`, TRACKING + branch);
      return await fetched(git, TRACKING + branch, `origin/${branch}`);
    }
    if (!/^[0-9a-f]+\tHEAD$/m.test(said)) return { kind: "empty" };
    await fetch("HEAD", ORIGIN_HEAD);
    return await fetched(git, ORIGIN_HEAD, "HEAD of origin");
  } catch (error) {
    // Away is no failure: people work offline.
    if (!(error instanceof AppError) || error.code !== "workspace") throw error;
    return { kind: "away", words: error.message, last: await lastFetched(git, known) };
  }
}

async function fetched(git: Workspace, ref: string, name: string): Promise<Origin> {
  const commit = await commitOf(git, ref);
  return commit === null ? { kind: "empty" } : { kind: "fetched", commit, name };
}

async function lastFetched(git: Workspace, known: string | null): Promise<Base | null> {
  for (const branch of known === null ? USUAL_BRANCHES : [known]) {
    const commit = await commitOf(git, TRACKING + branch);
    if (commit !== null) return { commit, note: `origin/${branch}` };
  }
  return null;
}

/** The default branch as the clone remembers it. */
async function knownBranch(git: Workspace): Promise<string | null> {
  const end = await git.run(["symbolic-ref", "--quiet", `${TRACKING}HEAD`]);
  const ref = printed(end);
  return end.exit === 0 && ref.startsWith(TRACKING) ? ref.slice(TRACKING.length) : null;
}

/** The commit that a name means; null when there is none. */
export async function commitOf(git: Workspace, name: string): Promise<string | null> {
  const end = await git.run(["rev-parse", "--verify", "--quiet", `${name}^{commit}`]);
  return end.exit === 0 ? printed(end) : null;
}

/** The ssh that the user chose for this repository, kept from asking. Another program than ssh is left as it is: it has no terminal. */
export async function sshCommand(git: Workspace): Promise<string> {
  const { GIT_SSH_COMMAND: command, GIT_SSH: program } = git.environment;
  const configured = command ?? printed(await git.run(["config", "--get", "core.sshCommand"]));
  const chosen =
    configured !== "" ? configured : program === undefined ? "ssh" : `'${program.replaceAll("'", "'\\''")}'`;
  return /^(?:\S*\/)?ssh(?:\s|$)/.test(chosen) ? `${chosen} -oBatchMode=yes` : chosen;
}
