/**
 * Hands a run's branch over: pushed, and a pull request opened, each once. Nothing of it is remembered. What is there is asked
 * of the remote each time, so a death between two steps, or after the last, leads to the same end when it is done again.
 */
import { AppError } from "../../core/errors.ts";
import type { Handoff, HandoffWish } from "../../core/ports.ts";
import type { WorktreeRecord } from "../../core/records.ts";
import { composeEnvironment } from "../environment.ts";
import { type ErrandEnd, runErrand } from "../errand.ts";
import type { ProcessTable } from "../processes.ts";
import { commitOf, sshCommand } from "./base.ts";
import { type GitAt, type GitLimits, withoutPasswords, wordsOf, type Workspace } from "./git.ts";
import { readStatus } from "./inventory.ts";

export interface HandoffOptions {
  readonly at: GitAt;
  readonly table: ProcessTable;
  readonly limits: GitLimits;
  /** The environment of whoever hands over: `gh` gets its own login out of it. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Where `gh` finds its login; `GH_REPO` could lead it to another repository. */
const GH_PASSED = ["GH_TOKEN", "GITHUB_TOKEN", "GH_ENTERPRISE_TOKEN", "GITHUB_ENTERPRISE_TOKEN", "GH_HOST"].concat([
  "GH_CONFIG_DIR",
]);
const GH_QUIET = {
  GH_PROMPT_DISABLED: "1",
  GH_NO_UPDATE_NOTIFIER: "1",
  GIT_TERMINAL_PROMPT: "0",
  NO_COLOR: "1",
  CLICOLOR: "0",
};
const GH_BYTES = 256 * 1024;
/** Pull requests of one branch that are looked at. */
const MOST_FOUND = 20;
/** Commits that are named where nobody wrote a body. */
const NAMED_COMMITS = 20;
const TITLE_CHARACTERS = 200;

/**
 * Errors: AppError conflict `no_commits`, `branch_gone`, `branch_moved` (somebody else's commits are on the remote's branch),
 * `push_refused`; unreachable `push_failed`, `pull_request_failed`; `workspace`.
 * @param common folder of the repository's shared part
 */
export async function handOff(
  record: Pick<WorktreeRecord, "runId" | "path" | "repository" | "branch" | "base">,
  wish: HandoffWish,
  common: string,
  options: HandoffOptions,
): Promise<Handoff> {
  const { branch, base } = record;
  const git = options.at(common);
  const commit = branch === null ? null : await commitOf(git, `refs/heads/${branch}`);
  if (branch === null || commit === null)
    throw new AppError("conflict", "branch_gone", `the branch of ${record.runId} is not there any more`, {
      ...(branch === null ? {} : { path: branch }),
      hint: "Nothing can be handed over.",
    });
  const since = base === null ? [commit] : [commit, `^${base}`];
  const doing = "its commits cannot be read";
  const commits = Number(await git.ask(doing, ["rev-list", "--count", ...since]));
  if (commits === 0)
    throw new AppError("conflict", "no_commits", `the branch ${branch} has no commit of its own`, {
      path: branch,
      hint: "What is not committed is not handed over: commit it first.",
    });
  const uncommitted = await uncommittedIn(options.at(record.path));
  const said = { branch, commit, commits, uncommitted };
  const isOurs = (id: string) => isBetween(git, id, commit, base);
  if ((await git.run(["remote", "get-url", "--push", "origin"])).exit !== 0)
    return { ...said, pushed: "left", pullRequest: null, because: "the repository has no remote `origin`" };
  const pushed = await push(git, branch, commit, isOurs, options);
  if (!wish.open) return { ...said, pushed, pullRequest: null, because: "none was wanted" };
  const subjects = (
    await git.ask(doing, ["log", "--reverse", "--format=%s", `--max-count=${NAMED_COMMITS}`, ...since])
  ).split("\n");
  const more = commits > subjects.length ? [`... and ${commits - subjects.length} more`] : [];
  const title = wish.title ?? subjects[0] ?? "";
  const body =
    wish.body ?? [...subjects.map((subject) => `- ${subject}`), ...more, "", `Run ${record.runId}.`].join("\n");
  const opened = await openOnce(
    record.repository ?? common,
    branch,
    { ...wish, title: title.slice(0, TITLE_CHARACTERS) || branch, body },
    isOurs,
    options,
  );
  return { ...said, pushed, ...opened };
}

/** How many changes no commit has; null where that cannot be told. */
async function uncommittedIn(tree: Workspace): Promise<number | null> {
  try {
    const { changed, untracked } = await readStatus(tree);
    return changed.length + untracked.length;
  } catch (error) {
    if (error instanceof AppError) return null; // the tree is gone
    throw error;
  }
}

/** Whether a commit is one of those from `base`, without it, to `tip`: nobody else has made it. */
async function isBetween(git: Workspace, id: string, tip: string, base: string | null): Promise<boolean> {
  const isBelow = async (of: string) => (await git.run(["merge-base", "--is-ancestor", id, of])).exit === 0;
  return (await commitOf(git, id)) !== null && (await isBelow(tip)) && (base === null || !(await isBelow(base)));
}

/** The commit of a branch on the remote; null where it has none. Errors: unreachable `push_failed`. */
async function remoteTip(git: Workspace, branch: string, { limits }: HandoffOptions): Promise<string | null> {
  const call = { timeoutMs: limits.gitFetchMs, environment: { GIT_SSH_COMMAND: await sshCommand(git) } };
  const end = await git.run(["ls-remote", "--quiet", "--", "origin", `refs/heads/${branch}`], call);
  if (end.exit !== 0) throw failed("the remote cannot be asked", wordsOf(end, limits.gitFetchMs));
  return /^([0-9a-f]{40,64})\t/.exec(end.stdout.toString())?.[1] ?? null;
}

async function push(
  git: Workspace,
  branch: string,
  commit: string,
  isOurs: (id: string) => Promise<boolean>,
  options: HandoffOptions,
): Promise<"now" | "before"> {
  const { limits } = options;
  const there = await remoteTip(git, branch, options);
  if (there === commit) return "before";
  if (there !== null && !(await isOurs(there))) throw moved(branch, there);
  const end = await git.run(
    // Never forced: what came to the remote since it was asked is refused by it.
    [
      "push",
      "--porcelain",
      "--no-follow-tags",
      "--recurse-submodules=no",
      "--",
      "origin",
      `${commit}:refs/heads/${branch}`,
    ],
    { timeoutMs: limits.gitPushMs, environment: { GIT_SSH_COMMAND: await sshCommand(git) } },
  );
  if (end.exit === 0) return "now";
  const now = await remoteTip(git, branch, options);
  // Somebody else pushed just this, or the answer was lost.
  if (now === commit) return "now";
  if (now !== null && !(await isOurs(now))) throw moved(branch, now);
  const words = wordsOf(end, limits.gitPushMs);
  const refused = /^!\t[^\n]*\t\[(?:remote )?rejected\] (.*)$/m.exec(end.stdout.toString())?.[1];
  if (refused === undefined) throw failed("the branch cannot be pushed", words);
  throw new AppError("conflict", "push_refused", `the remote refuses the branch ${branch}: ${line(refused)}`, {
    path: branch,
    hint: `It said: ${words}`,
  });
}

const failed = (what: string, words: string): AppError =>
  new AppError("unreachable", "push_failed", `${what}: ${words}`, {
    path: "origin",
    hint: "Nothing is lost: hand it over again when the remote can be reached and takes your login without asking.",
  });

const moved = (branch: string, there: string): AppError =>
  new AppError(
    "conflict",
    "branch_moved",
    `the remote's branch ${branch} is at ${there.slice(0, 12)}, which is not of this run`,
    { path: branch, hint: "Nothing is ever forced: fetch it, and merge or rename one of the two." },
  );

const line = (text: string): string => text.replaceAll(/[\u0000-\u001f\u007f]+/g, " ").trim();

type Opened = Pick<Handoff, "pullRequest" | "because">;

/** Opens the pull request of a branch where there is none. Errors: unreachable `pull_request_failed`. */
async function openOnce(
  folder: string,
  branch: string,
  wish: HandoffWish & { readonly title: string; readonly body: string },
  isOurs: (id: string) => Promise<boolean>,
  { table, limits, environment }: HandoffOptions,
): Promise<Opened> {
  const composed = composeEnvironment({
    daemon: environment,
    target: { env: {}, envPass: GH_PASSED },
    secrets: {},
    variables: {},
  });
  const gh = (arguments_: readonly string[], input = ""): Promise<ErrandEnd> =>
    runErrand(
      {
        argv: ["gh", ...arguments_],
        cwd: folder,
        environment: { ...composed, ...GH_QUIET },
        input,
        timeoutMs: limits.pullRequestMs,
        keepBytes: GH_BYTES,
        keep: "head",
      },
      table,
    );
  const fault = (what: string, words: string): AppError =>
    new AppError("unreachable", "pull_request_failed", `${what}: ${words}`, {
      path: branch,
      hint: "The branch is pushed: hand it over again, or without a pull request.",
    });
  const find = async (): Promise<Opened["pullRequest"] | AppError | string> => {
    const fields = "url,state,headRefOid";
    const end = await gh([
      "pr",
      "list",
      "--head",
      branch,
      "--state",
      "all",
      "--limit",
      String(MOST_FOUND),
      "--json",
      fields,
    ]);
    if (end.fault?.includes("ENOENT") === true) return "gh is not installed here";
    const words = wordsOf(end, limits.pullRequestMs, "gh");
    if (/known GitHub host/.test(words)) return `no pull requests are opened for this remote by gh: ${line(words)}`;
    if (end.exit !== 0 || end.cut) return fault("gh does not say which pull requests there are", words);
    const listed = listOf(end.stdout.toString());
    if (listed === null) return fault("gh does not say which pull requests there are", "its answer is no list");
    const own = [];
    for (const one of listed) if (await isOurs(one.head)) own.push(one);
    const best = own.find(({ state }) => state === "open") ?? own.find(({ state }) => state === "merged") ?? own[0];
    return best === undefined ? null : { url: best.url, state: best.state, found: true };
  };
  const found = await find();
  if (found instanceof AppError) throw found;
  if (typeof found === "string") return { pullRequest: null, because: found };
  if (found !== null) return { pullRequest: found, because: null };
  const { title, body, base, draft } = wish;
  const end = await gh(
    [
      "pr",
      "create",
      "--head",
      branch,
      `--title=${title}`,
      "--body-file",
      "-",
      ...(base === null ? [] : [`--base=${base}`]),
      ...(draft ? ["--draft"] : []),
    ],
    body,
  );
  const url = urlOf(end.stdout.toString());
  if (end.exit === 0 && url !== null) return { pullRequest: { url, state: "open", found: false }, because: null };
  // Somebody else was faster, or its answer was lost.
  const now = await find();
  if (typeof now === "object" && now !== null && !(now instanceof AppError)) return { pullRequest: now, because: null };
  throw fault("gh opens no pull request", wordsOf(end, limits.pullRequestMs, "gh"));
}

/** An address that may be shown; the last one of a text. */
const urlOf = (text: string): string | null => {
  const all = text.match(/https?:\/\/[^\s"'<>\u0000-\u001f\u007f]+/g);
  return all === null ? null : withoutPasswords(all.at(-1) ?? "");
};

interface Listed {
  readonly url: string;
  readonly state: "open" | "closed" | "merged";
  readonly head: string;
}

const STATES: readonly string[] = ["open", "closed", "merged"] satisfies Listed["state"][];

/** What `gh pr list` answers; null where it is something else. */
function listOf(text: string): readonly Listed[] | null {
  try {
    const all: unknown = JSON.parse(text);
    if (!Array.isArray(all)) return null;
    return all.map((one: { readonly url?: unknown; readonly state?: unknown; readonly headRefOid?: unknown }) => {
      const state = String(one.state).toLowerCase();
      const url = urlOf(String(one.url));
      const head = String(one.headRefOid);
      if (url === null || !STATES.includes(state) || !/^[0-9a-f]{40,64}$/.test(head))
        throw new TypeError("no such entry");
      return { url, state: state as Listed["state"], head };
    });
  } catch {
    return null; // no JSON, or of another form: the caller says so
  }
}
