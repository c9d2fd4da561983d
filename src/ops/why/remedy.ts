/** What a person does about a run that failed, a slot that started nothing, a loop that stands still: a sentence's end, and a command line. */
import type { AccountView } from "../../core/ports.ts";
import type { LoopRecord, RunTree } from "../../core/records.ts";
import type { SlotReason } from "../../core/plan.ts";
import type { FailureClass } from "../../core/run.ts";
import { remedyOf } from "../accounts/login-remedy.ts";
import type { Remedy } from "../documents.ts";
import type { AgentTools } from "../operation.ts";
import { shellWord } from "../../core/shell-word.ts";

/** A command that does it by itself. */
export const byCommand = (command: string, does: string): Remedy => ({
  words: `\`${command}\` ${does}`,
  command,
  file: null,
});

type Owned = Pick<LoopRecord, "name" | "managedBy">;

/**
 * How what a loop says is changed: in its file, which is then applied, or by `loop edit`.
 * @param flags what would be given to `loop edit`
 */
export function changeOf({ name, managedBy }: Owned, flags: string): Remedy {
  if (managedBy !== null) {
    const command = `drover apply ${shellWord(managedBy)}`;
    return {
      words: `${name} is set in ${managedBy}: edit it, then \`${command}\``,
      command,
      file: managedBy,
    };
  }
  const command = `drover loop edit ${shellWord(name)} ${flags}`;
  return { words: `\`${command}\` changes that`, command, file: null };
}

/** What a class of failure asks for. */
type Answer =
  /** The loop has to say something else; a run without a loop is started anew. */
  | { readonly kind: "change"; readonly flags: (tree: RunTree) => string }
  /** What it printed says why. */
  | { readonly kind: "look"; readonly note?: (tree: RunTree) => string | null }
  /** It passes by itself, or has passed. */
  | { readonly kind: "again"; readonly note?: string }
  | { readonly kind: "login" }
  | { readonly kind: "do"; readonly command: string; readonly does: string };

/** Closed: a new class does not compile without its answer. */
const ANSWERS: { readonly [C in FailureClass]: Answer } = {
  exit: {
    kind: "look",
    note: ({ run }) =>
      run.target.kind === "command" && run.target.shell && run.exitStatus === 127
        ? "status 127 of a shell mostly means that a command in it was not found on the PATH of the daemon"
        : null,
  },
  signal: { kind: "look" },
  oom: { kind: "look", note: () => "it needs more memory than it may have" },
  timeout: { kind: "change", flags: () => "--timeout D" },
  idle_timeout: { kind: "change", flags: () => "--idle-timeout D" },
  cancelled: { kind: "again" },
  superseded: { kind: "again", note: "a newer slot took its place" },
  not_found: {
    kind: "change",
    flags: ({ run }) => (run.error?.message.startsWith("the working directory") === true ? "--cwd DIR" : "-- COMMAND"),
  },
  spawn: { kind: "do", command: "drover doctor", does: "looks at what this host can start" },
  workspace: { kind: "change", flags: () => "--worktree off" },
  env_invalid: { kind: "change", flags: () => "--env K=V" },
  no_result: { kind: "look" },
  output_invalid: { kind: "look", note: () => "what it wrote to $DROVER_OUTPUT is no JSON, or too much" },
  check_failed: { kind: "look" },
  refused: { kind: "change", flags: () => "--permission LEVEL" },
  rate_limited: { kind: "again" },
  quota: { kind: "again" },
  auth: { kind: "login" },
  overloaded: { kind: "again" },
  network: { kind: "again" },
  context: { kind: "change", flags: () => "--prompt TEXT" },
  turn_limit: { kind: "change", flags: () => "--prompt TEXT" },
  budget: { kind: "change", flags: () => "--model M" },
  protocol: { kind: "do", command: "drover agent ls", does: "says whether that version of the agent was tried" },
  crash_loop: { kind: "do", command: "drover doctor", does: "looks at what keeps ending it" },
  lost: { kind: "again" },
  storage: { kind: "again", note: "free some disk space first" },
  unknown: { kind: "look" },
};

/** Its provider's command line, of which the work says nothing. */
const isProgramOfAgent = ({ run }: RunTree): boolean =>
  run.target.kind === "agent" &&
  run.target.command === null &&
  run.error?.message.startsWith("the working directory") !== true;

const AGENT_NOT_FOUND: Answer = {
  kind: "again",
  note: "install the agent's program, or put it on the PATH of the daemon",
};

export interface RemedyWorld {
  readonly agents: AgentTools;
}

/**
 * What to do about a run that has failed or timed out; null for one that has not.
 * @param loop the loop that it belongs to, as it is now; null where there is none any more
 * @param account null: it has no row
 */
export async function remedyForRun(
  world: RemedyWorld,
  tree: RunTree,
  loop: LoopRecord | null,
  account: AccountView | null,
): Promise<Remedy | null> {
  const { run, attempts } = tree;
  if (run.status !== "failed" && run.status !== "timed_out") return null;
  const last = attempts.toSorted((a, b) => b.number - a.number)[0];
  const failure = run.error?.class ?? last?.class ?? "unknown";
  const answer = failure === "not_found" && isProgramOfAgent(tree) ? AGENT_NOT_FOUND : ANSWERS[failure];
  const retry = `drover retry ${run.id}`;
  const isChanged = loop !== null && JSON.stringify(loop.target) !== JSON.stringify(run.target);
  switch (answer.kind) {
    case "change": {
      if (loop === null)
        return {
          words: `no loop starts it: start it anew with another \`${answer.flags(tree)}\``,
          command: null,
          file: null,
        };
      if (isChanged)
        return byCommand(`drover loop run ${shellWord(loop.name)}`, "runs the loop as it has been set since");
      return changeOf(loop, answer.flags(tree));
    }
    case "look": {
      const note = answer.note?.(tree) ?? null;
      const stream = last !== undefined && last.stderrBytes > 0 && run.target.kind === "command" ? " --stderr" : "";
      const command = `drover logs ${run.id}${stream}`;
      const printed = last !== undefined && last.stdoutBytes + last.stderrBytes > 0;
      const where = loop === null || loop.managedBy === null ? "" : ` (${loop.name} is set in ${loop.managedBy})`;
      const words = printed
        ? `\`${command}\` shows what it printed${where}`
        : `it printed nothing${where}; \`${retry}\` runs it again`;
      return {
        words: `${note === null ? "" : `${note}; `}${words}`,
        command: printed ? command : retry,
        file: null,
      };
    }
    case "again": {
      const note = answer.note === undefined ? "" : `${answer.note}; `;
      return { words: `${note}\`${retry}\` runs it again`, command: retry, file: null };
    }
    case "login": {
      const { words, command } = await remedyOf(world, run, account);
      return {
        words: `${words}, then \`${retry}\` runs it again`,
        command: command ?? retry,
        file: null,
      };
    }
    case "do":
      return byCommand(answer.command, answer.does);
  }
}

/** What keeps a loop's instants from being lost for the same reason again; null where nothing does, or need. */
export function remedyForSlot(reason: SlotReason, loop: LoopRecord): Remedy | null {
  const name = shellWord(loop.name);
  switch (reason) {
    case "overlap":
      return changeOf(loop, "--overlap queue");
    case "queue_full":
      return changeOf(loop, "--queue-limit N");
    case "limit":
      return changeOf(loop, "--catch-up-limit N");
    case "late":
      return loop.policy.catchUp === "none" ? changeOf(loop, "--catch-up latest") : null;
    case "down":
      return loop.policy.catchUp === "none"
        ? changeOf(loop, "--catch-up latest")
        : byCommand("drover up", "keeps a daemon there");
    case "disk":
    case "store":
      return byCommand("drover doctor", "looks at the disk and the store");
    case "paused":
      return loop.status === "paused" ? byCommand(`drover loop resume ${name}`, "lets it fire again") : null;
    case "expired":
    case "finished":
      return loop.status === reason && reason === "expired"
        ? byCommand(`drover loop resume ${name}`, "lets it fire again")
        : null;
    case "archived":
      return loop.archivedAt !== null ? byCommand(`drover loop unarchive ${name}`, "brings the loop back") : null;
    case "asleep":
    case "clock_step":
    case "edited":
    case "restored":
      return null;
  }
}
