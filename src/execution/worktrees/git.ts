/** git for worktrees: what it is given, how long it may take, and what it says when it fails. */
import { setTimeout as pause } from "node:timers/promises";
import { AppError, type ErrorDetail } from "../../core/errors.ts";
import type { Limits } from "../../core/limits.ts";
import { composeEnvironment } from "../environment.ts";
import type { ErrandEnd } from "../errand.ts";
import type { ProcessTable } from "../processes.ts";
import { type Git, type GitCall, openGit } from "../repository.ts";

/** What a program of the git family needs to reach a remote; every other `GIT_` could point it at another repository. */
const PASSED = ["GIT_SSH_COMMAND", "GIT_SSH", "GIT_SSH_VARIANT", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"].concat(
  ["GIT_CONFIG_NOSYSTEM", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_PROXY_COMMAND", "GIT_EXEC_PATH"],
  ["GIT_ALLOW_PROTOCOL"],
);

/** No commit of ours needs a person's name, and the reflog says who it was. */
const IDENTITY = {
  GIT_AUTHOR_NAME: "drover",
  GIT_AUTHOR_EMAIL: "drover@localhost",
  GIT_COMMITTER_NAME: "drover",
  GIT_COMMITTER_EMAIL: "drover@localhost",
};

/** A lock is held for as long as one small write takes; one that stays for these tries is a dead git's. */
const LOCK_TRIES = 12;
const LOCK_FIRST_PAUSE_MS = 20;
const LOCK_LONGEST_PAUSE_MS = 500;

/** What is told of git's words. */
const WORDS_CHARACTERS = 600;

/** Runs git in one folder. */
export interface Workspace {
  readonly folder: string;
  /** What git is given, without what keeps it quiet. */
  readonly environment: Readonly<Record<string, string>>;
  /** Runs it, whatever comes of it. */
  readonly run: Git;
  /** Why a call of `run` failed, in one line. */
  why(end: ErrandEnd): string;
  /** Runs it; locks that another git holds are waited for. Errors: AppError `workspace` with git's words, `no_space`. */
  ask(doing: string, arguments_: readonly string[], call?: GitCall): Promise<string>;
}

/** Opens git in a folder. @param unwanted ends what it runs there */
export type GitAt = (folder: string, unwanted?: AbortSignal) => Workspace;

/** The limits of calls of git. */
export type GitLimits = Pick<Limits, "gitMs" | "gitFetchMs" | "gitCheckoutMs" | "gitPushMs" | "pullRequestMs">;

/** @param daemon the daemon's own environment; of it git gets the allow-list and what it needs to reach remotes */
export function openGitAt(
  daemon: Readonly<Record<string, string | undefined>>,
  table: ProcessTable,
  limits: GitLimits,
): GitAt {
  const environment: Readonly<Record<string, string>> = {
    ...composeEnvironment({ daemon, target: { env: {}, envPass: PASSED }, secrets: {}, variables: {} }),
    ...IDENTITY,
  };
  return (folder, unwanted) => {
    const git = openGit(folder, environment, table, limits.gitMs);
    const run: Git = unwanted === undefined ? git : (words, call = {}) => git(words, { unwanted, ...call });
    return {
      folder,
      environment,
      run,
      why: (end) => wordsOf(end, limits.gitMs),
      async ask(doing, arguments_, call = {}) {
        for (let tries = 1, pauseMs = LOCK_FIRST_PAUSE_MS; ; tries++) {
          const end = await run(arguments_, call);
          if (unwanted?.aborted === true) throw workspaceError(`${doing}: it is not wanted any more`, { path: folder });
          if (end.exit === 0 && !end.cut) return printed(end);
          if (end.exit === 0) throw workspaceError(`${doing}: git says too much to be read`, { path: folder });
          if (tries < LOCK_TRIES && isLocked(end)) {
            await pause(pauseMs);
            pauseMs = Math.min(pauseMs * 2, LOCK_LONGEST_PAUSE_MS);
            continue;
          }
          throw failure(doing, end, call.timeoutMs ?? limits.gitMs, folder);
        }
      },
    };
  };
}

/** What it printed, without the last line end. */
export const printed = (end: ErrandEnd): string => end.stdout.toString().replace(/\n$/, "");

const stderrOf = (end: ErrandEnd): string => end.stderr.toString();

/** Another git is in the middle of a write that is over soon: it holds a lock, or has registered half a tree. */
const isLocked = (end: ErrandEnd): boolean =>
  /\.lock': File exists|could not lock config file|Another git process seems to be running|is at [0-9a-f]+ but expected|failed to read \S*worktrees\//.test(
    stderrOf(end),
  );

/** No repository there, nor above; a repository that is broken or another user's is not meant. */
export const isNoRepository = (end: ErrandEnd): boolean => /not a git repository \(or any/.test(stderrOf(end));

/** There is no file system room for what git wrote. */
const saysFull = (end: ErrandEnd): boolean => /No space left on device|[Dd]isk quota exceeded/.test(stderrOf(end));

/** The one error for a full disk where trees are made. */
export const noSpaceForTree = (path: string, cause?: unknown): AppError =>
  new AppError("unreachable", "no_space", "no space is left on the disk that holds the worktrees", {
    hint: "Free some space; work goes on by itself.",
    path,
    cause,
  });

/** A refusal of git, or of ours in its place. */
export const workspaceError = (
  message: string,
  detail: ErrorDetail = {},
  kind: "conflict" | "unreachable" = "conflict",
): AppError => new AppError(kind, "workspace", message, detail);

function failure(doing: string, end: ErrandEnd, timeoutMs: number, folder: string): AppError {
  if (saysFull(end)) return noSpaceForTree(folder, stderrOf(end));
  const reachable = end.fault === null && !end.timedOut;
  return workspaceError(
    `${doing}: ${wordsOf(end, timeoutMs)}`,
    { path: folder },
    reachable ? "conflict" : "unreachable",
  );
}

/**
 * Why a call failed, in the program's own words where it had some: one line, without advice, progress, colours and passwords.
 * @param program that was called
 */
export function wordsOf(end: ErrandEnd, timeoutMs: number, program = "git"): string {
  if (end.fault !== null) return `${program} could not be started: ${end.fault}`;
  const said = stderrOf(end)
    .replaceAll(/\u001b\[[0-9;?]*[A-Za-z]/g, "")
    .split(/[\r\n]+/)
    .map((line) => line.replaceAll(/[\u0000-\u001f\u007f]/g, " ").trim())
    .filter((line) => line !== "" && !NO_REASON.test(line));
  const words = withoutPasswords([...new Set(said)].join("; "));
  const cut = words.length <= WORDS_CHARACTERS ? words : `${words.slice(0, WORDS_CHARACTERS)}...`;
  if (end.timedOut) return `${program} did not end within ${timeoutMs / 1000} s${cut === "" ? "" : `: ${cut}`}`;
  if (cut !== "") return cut;
  if (!end.whole) return `what ${program} printed could not be read to its end`;
  return end.exit === null ? `${program} was ended by a signal` : `${program} ended with status ${end.exit}`;
}

const NO_REASON =
  /^(?:hint:|Preparing worktree|Updating files:|HEAD is now at|Please make sure you have the correct|and the repository exists|From |remote: (?:Enumerating|Counting|Compressing|Total))/;

/** Hides what an address may hold beside host and path: a name with its password, or a token in either place. */
export const withoutPasswords = (text: string): string =>
  text
    .replaceAll(/([a-z][a-z0-9+.-]*:\/\/)[^\s'"/:@]*:[^\s'"]*@/gi, "$1[secret]@")
    .replaceAll(/((?:https?|ftps?):\/\/)(?!\[secret\])[^\s'"/]*@/gi, "$1[secret]@")
    .replaceAll(/([?&](?:\w*token|password|key|secret)=)[^\s'"&]+/gi, "$1[secret]");
