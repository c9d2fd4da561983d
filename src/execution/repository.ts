import { createHash } from "node:crypto";
import { lstatSync } from "node:fs";
import { join } from "node:path";
import type { Prepared } from "./attempt-folder.ts";
import type { ErrandEnd } from "./errand.ts";
import { runErrand } from "./errand.ts";
import type { ProcessTable } from "./processes.ts";

/** Nobody is asked anything, no hook or monitor of the repository runs, no lock is taken for a mere look. */
const QUIET = {
  GIT_TERMINAL_PROMPT: "0",
  // Empty, not absent: absent means the one of the configuration, or that of ssh.
  GIT_ASKPASS: "",
  SSH_ASKPASS: "",
  SSH_ASKPASS_REQUIRE: "never",
  GCM_INTERACTIVE: "never",
  GIT_OPTIONAL_LOCKS: "0",
  GIT_SSH_COMMAND: "ssh -oBatchMode=yes",
  GIT_EDITOR: ":",
  GIT_PAGER: "cat",
  LC_ALL: "C",
};
/** Stands in the words of every git of ours, and in those of few others. */
export const OUR_GIT = "-c core.hooksPath=/dev/null -c core.fsmonitor=false";
/** For one call each: the configuration stays as it is. */
const SETTINGS = [
  "core.hooksPath=/dev/null",
  "core.fsmonitor=false",
  "core.quotePath=false",
  // With it set, git believes that a changed file is unchanged.
  "core.ignoreStat=false",
  "gc.auto=0",
  "maintenance.auto=false",
  "commit.gpgSign=false",
  "credential.interactive=false",
  "advice.detachedHead=false",
];
const OPTIONS = SETTINGS.flatMap((setting) => ["-c", setting]);
const GIT_TIMEOUT_MS = 60_000;
/** From TERM, at which git takes its locks away, to KILL. */
const GRACE_MS = 500;
/** A listing beyond this is compared by what was kept of it. */
const KEPT_BYTES = 16 * 1024 * 1024;

/** What differs for one call of git. */
export interface GitCall {
  readonly input?: string;
  readonly timeoutMs?: number;
  readonly environment?: Readonly<Record<string, string>>;
  /** Ends it, with its filters and helpers. */
  readonly unwanted?: AbortSignal;
}

/** Runs git in a folder without a shell and without questions. */
export type Git = (arguments_: readonly string[], call?: GitCall) => Promise<ErrandEnd>;

/** @param timeoutMs limit of a call that names none */
export function openGit(
  cwd: string,
  environment: Readonly<Record<string, string>>,
  table: ProcessTable,
  timeoutMs: number = GIT_TIMEOUT_MS,
): Git {
  return async (arguments_, call = {}) => {
    const end = await runErrand(
      {
        argv: ["git", ...OPTIONS, ...arguments_],
        cwd,
        environment: { ...environment, ...QUIET, ...call.environment },
        ...(call.input === undefined ? {} : { input: call.input }),
        timeoutMs: call.timeoutMs ?? timeoutMs,
        keepBytes: KEPT_BYTES,
        keep: "head",
        graceMs: GRACE_MS,
        ...(call.unwanted === undefined ? {} : { unwanted: call.unwanted }),
      },
      table,
      false,
    );
    // Half a listing would pass for a whole one: no changes, no commits.
    return end.whole ? end : { ...end, exit: null };
  };
}

/** The repository that the folder of `git` is in: HEAD, every branch, and a digest that changes with any change of a file that git would see. Null when it is in none. */
export async function readRepository(git: Git): Promise<Prepared["repository"]> {
  const top = await git(["rev-parse", "--show-toplevel"]);
  if (top.exit !== 0) return null;
  const root = top.stdout.toString().replace(/\n$/, "");
  const head = await git(["rev-parse", "--verify", "--quiet", "HEAD"]);
  const branches = await git(["for-each-ref", "--format=%(objectname)", "refs/heads"]);
  const status = await git(["status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames"]);
  if (branches.exit !== 0 || status.exit !== 0) return null;
  const digest = createHash("sha256").update(status.stdout);
  for (const entry of status.stdout.toString().split("\0")) {
    // A file that was changed already and is changed again has the same line; its time and size differ.
    const path = entry.startsWith("? ")
      ? entry.slice(2)
      : entry
          .split(" ")
          .slice(entry.startsWith("u ") ? 10 : 8)
          .join(" ");
    if (path === "") continue;
    const found = lstatSync(join(root, path), { throwIfNoEntry: false, bigint: true });
    digest.update(`${path}\0${found?.size ?? "none"}\0${found?.mtimeNs ?? ""}\0`);
  }
  const line = (end: ErrandEnd) => end.stdout.toString().trim();
  return {
    head: head.exit === 0 ? line(head) : null,
    digest: digest.digest("hex"),
    tips: [...new Set(line(branches).split("\n").filter(Boolean))],
  };
}

/** Tips of the branches that the folder of `git` may have moved: all but those that are checked out in another worktree. */
async function ownTips(git: Git): Promise<readonly string[] | null> {
  const top = await git(["rev-parse", "--show-toplevel"]);
  const branches = await git(["for-each-ref", "--format=%(objectname) %(worktreepath)", "refs/heads"]);
  if (top.exit !== 0 || branches.exit !== 0) return null;
  const root = top.stdout.toString().replace(/\n$/, "");
  return branches.stdout
    .toString()
    .split("\n")
    .flatMap((line) => {
      const space = line.indexOf(" ");
      const place = line.slice(space + 1);
      return space > 0 && (place === "" || place === root) ? [line.slice(0, space)] : [];
    });
}

/** Whether HEAD or a branch now has a commit that neither had before. */
export async function hasNewCommit(git: Git, before: NonNullable<Prepared["repository"]>): Promise<boolean> {
  const known = [...before.tips, ...(before.head === null ? [] : [before.head])];
  const head = await git(["rev-parse", "--verify", "--quiet", "HEAD"]);
  const tips = await ownTips(git);
  if (tips === null) return false;
  const now = [...tips, ...(head.exit === 0 ? [head.stdout.toString().trim()] : [])];
  const fresh = now.filter((commit) => !known.includes(commit));
  if (fresh.length === 0) return false;
  const found = await git(["rev-list", "-n", "1", "--stdin"], {
    input: [...fresh, ...known.map((commit) => `^${commit}`)].join("\n"),
  });
  // A commit that was known may have been thrown away since: then a tip that was not known is new.
  return found.exit !== 0 || found.stdout.toString().trim() !== "";
}
