/** All ports: what the engine asks of the world. Time, chance and failure come in through here, so that they can be made up. */
import type { Refusal } from "./admission.ts";
import type { AgentReading, AgentVerdict } from "./agent.ts";
import type { Escape } from "./escape.ts";
import type { Limits } from "./limits.ts";
import type { LoopPolicy, RunPolicy } from "./loop.ts";
import type { LoopStatus } from "./loop-states.ts";
import type { LateCause, Plan, SlotReason } from "./plan.ts";
import type {
  AccountRecord,
  Assignment,
  AttemptRecord,
  EventRecord,
  HoldRecord,
  HostRecord,
  LoopRecord,
  OriginKind,
  RunRecord,
  RunTree,
  SlotOutcome,
  SlotRecord,
  StepRecord,
  StepResult,
  StepSpec,
  WorktreeRecord,
} from "./records.ts";
import type {
  Condition,
  EndedBy,
  FailureClass,
  FinalStatus,
  LiveCounts,
  Outcome,
  RunStatus,
  StepStatus,
} from "./run.ts";
import type { NeedState } from "./step-graph.ts";
import type { SkeletonStep } from "./workflow/skeleton.ts";
import type { Schedule } from "./schedule.ts";
import type { AgentTarget, ProcessTarget, Provider, Target } from "./target.ts";

/** Milliseconds since 1970-01-01T00:00:00Z. */
export type Instant = number;

export interface Clock {
  /** The wall clock. Names instants; never measures waiting. */
  now(): Instant;
  /** Milliseconds that this host has been awake since some fixed point of this boot: stands still in suspend, ignores clock steps. */
  awake(): number;
  /** Milliseconds since boot, suspend included. Equal to `awake` where the system cannot tell. */
  uptime(): number;
  /** Waits that many milliseconds of `awake`; answers false when the signal ended it. */
  sleep(ms: number, signal?: AbortSignal): Promise<boolean>;
}

export interface Random {
  bytes(count: number): Uint8Array;
}

// --- Spawner ---------------------------------------------------------------------------------------------------------

/** Everything that is needed to start one attempt. */
export interface Launch {
  /** The attempt's folder, a bare name: `<attempt id>.<token>`; never used twice. */
  readonly folder: string;
  readonly target: ProcessTarget;
  /** Variables that drover itself sets (`DROVER_*`), without `DROVER_OUTPUT`, which the spawner adds. */
  readonly variables: Readonly<Record<string, string>>;
  /** What the process reads on standard input; for an agent its prompt, with what we have to say first. */
  readonly input: string | Uint8Array;
  /** Where it works; absent: the target's own folder. */
  readonly cwd?: string;
  /** For a target that is an agent. */
  readonly agent?: AgentLaunch;
  /** Folder of an attempt whose work this one goes on with: what it has to change is counted from that one's start. */
  readonly since?: string;
}

export interface AgentLaunch {
  /** null: the user's own login, that nobody changed. */
  readonly account: AccountRecord | null;
  /**
   * `resume`: goes on with it, in a copy when `fork`, which leaves it as it is. Else an id to begin under, where the
   * provider takes one.
   */
  readonly session: { readonly id: string; readonly resume: boolean; readonly fork?: boolean };
}

/** What the files of an attempt and the process table say; `execution-notes.md`, section 4. */
export type Judgement =
  /** It has not run and never will: the tombstone is planted, or the shim refused before the command. */
  | { readonly kind: "never_started"; readonly why: string }
  /** Handed to the spawner, no ticket yet; only without `plant`. */
  | { readonly kind: "asked" }
  /** The shim lives. `pid` is the command's once it is known, else the shim's; times are in clock ticks since boot, as text. */
  | { readonly kind: "live"; readonly pid: number; readonly pidStarted: string; readonly started: boolean }
  /** The shim recorded the end. */
  | {
      readonly kind: "ended";
      readonly exit: number;
      /** Why the command could not be executed at all. */
      readonly fault?: "nocwd" | "nocmd" | "noexec";
      /** It was killed just when the kernel ended something on this host for want of memory. */
      readonly outOfMemory?: true;
      /** Wall-clock instants taken from the files, and the duration free of clock steps. */
      readonly startedAt: Instant;
      readonly endedAt: Instant;
      readonly durationMs: number | null;
    }
  /** The shim is dead without a record while the command lives: its tree has to be ended. */
  | { readonly kind: "orphan"; readonly pid: number; readonly pidStarted: string }
  /** It may have run; nobody will know how it ended. */
  | { readonly kind: "lost"; readonly why: "host_restarted" | "folder_vanished" | "exit_unknown" };

export interface JudgeRequest {
  readonly folder: string;
  /** The boot in which the attempt was asked for. */
  readonly bootId: string;
  /** Whether an absent ticket may be decided now, by planting the tombstone. */
  readonly plant: boolean;
}

export interface EndRequest {
  readonly folder: string;
  /** Value of `DROVER_ATTEMPT_ID` in the environment of the tree's processes. */
  readonly mark: string;
  /** From TERM to KILL. 0 kills at once. */
  readonly graceMs: number;
}

/** What the one tree-kill found. */
export interface EndReport {
  /** Processes that had to be signalled. */
  readonly killed: number;
  /** Processes of the tree that are still there (another user's, or stuck in the kernel). */
  readonly left: number;
  readonly proof: "proved_empty" | "not_proved";
}

/** How much an attempt has written. */
export interface Measure {
  readonly stdoutBytes: number;
  readonly stderrBytes: number;
  /** Differs from its last value when something was written meanwhile, also by a program that empties its output; no instant. */
  readonly mark: number;
}

/** Starts processes so that they outlive us, and says what became of them. */
export interface Spawner {
  /** This boot of this host. */
  readonly bootId: string;
  /**
   * Makes the attempt's folder and its standard input, resolves its secrets and composes its environment.
   * Nothing has started. Errors: AppError `secret_unresolved`, `no_space`, `env_invalid`; of an agent also
   * `agent_not_found`, `agent_untested`, `agent_refused` (root, a permission that it cannot keep).
   */
  prepare(launch: Launch): Promise<void>;
  /** Hands a prepared attempt to the resident spawner. Returning is no evidence that anything started. */
  ask(folder: string): Promise<void>;
  judge(request: JudgeRequest): Promise<Judgement>;
  /** Ends the attempt's whole tree, keeps the shim's record, and says what is left. Never throws for a process that is gone. */
  end(request: EndRequest): Promise<EndReport>;
  /** Counts and ends what an attempt left behind after its command had ended. */
  sweep(request: EndRequest): Promise<EndReport>;
  /** Bytes written so far to both outputs; 0 when the folder is gone. Cheap: called for every live attempt every few seconds. */
  measure(folder: string): Measure;
  /** Keeps both outputs of a live attempt within the soft cap by punching holes; `final` once after the end. */
  trim(folder: string, final: boolean): Promise<void>;
  /** Calls back with a folder's name when its attempt may have ended: a wake-up, never evidence. */
  onBell(listener: (folder: string) => void): void;
  /** Calls back when asked attempts without a ticket have to be judged again: the resident spawner died and was replaced. */
  onReplaced(listener: () => void): void;
  close(): Promise<void>;
}

// --- Files: what an attempt left in its folder -------------------------------------------------------------------------

/** The last bytes of an output as text: scrubbed of secrets, then cut at a character. */
export interface Tail {
  readonly text: string;
  /** Bytes before the text that are not in it. */
  readonly droppedBytes: number;
}

export interface Files {
  /** The end of one stream, at most `maxBytes`, scrubbed. */
  tail(folder: string, stream: "stdout" | "stderr", maxBytes: number): Promise<Tail>;
  /** What the process wrote to `DROVER_OUTPUT`, as JSON text; null when it wrote nothing. AppError `output_invalid` when it is not JSON or too large. */
  output(folder: string): Promise<string | null>;
  /**
   * The first expectation (`--expect`) that does not hold, in words; null when all do.
   * `changes` and `commit` compare the repository where it worked with what `prepare` saw. @param said the result that an agent gave
   */
  unmet(folder: string, target: ProcessTarget, said?: string | null): Promise<string | null>;
  /** Free bytes of the file system that holds the state. */
  freeBytes(): Promise<number>;
  /** Names of all attempt folders, for the janitor. */
  folders(): Promise<readonly string[]>;
  /** Removes an attempt's folder. */
  remove(folder: string): Promise<void>;
}

// --- Agents: what an agent's outputs say -----------------------------------------------------------------------------------

/** Reads the outputs of agents as events of their provider, and keeps the transcript beside the raw log. */
export interface Agents {
  /** What a provider can do. Pure. */
  traits(provider: Provider): {
    readonly resume: boolean;
    readonly fork: boolean;
    readonly presetSession: boolean;
    /** Starts under one account have to come one after another. */
    readonly serialStarts: boolean;
  };
  /** Reads what is new. Cheap when nothing is; begins anew after a restart. `folder` is the attempt's. */
  read(folder: string, target: AgentTarget): Promise<AgentReading>;
  /**
   * Reads to the end and says what it means; forgets the folder. @param exit null when nobody knows, or a signal of ours ended it
   * @param now the wall clock, for reset times that the provider states relatively
   */
  conclude(folder: string, target: AgentTarget, exit: number | null, now: Instant): Promise<AgentVerdict>;
}

// --- Worktrees ---------------------------------------------------------------------------------------------------------------

export interface WorktreeOrder {
  readonly runId: string;
  /** What the branch is named after: the loop, or the kind of a run without one. */
  readonly name: string;
  /** The folder that the target names; the process will work at the same place within the tree. */
  readonly cwd: string;
  readonly mode: "auto" | "required";
  /** Folder of the new tree; nothing but a leftover of our own making may be there. */
  readonly path: string;
  /** Files that the run is to leave, as paths from `cwd`: they keep the tree also where git ignores them. */
  readonly expected?: readonly string[];
}

export interface MadeWorktree {
  readonly repository: string;
  readonly branch: string;
  readonly base: string;
  readonly baseNote: string;
}

/** What a worktree holds. */
export interface WorktreeState {
  /** `gone`: the folder is not there, or is no worktree any more. */
  readonly there: "whole" | "gone";
  /**
   * Why it may not be removed, in words (`3 commits of its own`, `uncommitted changes`, `pid 12 works in it`); empty: it may.
   * Of one that is gone: what its branch still has.
   */
  readonly holds: readonly string[];
  readonly commits: number;
  readonly diffStat: string | null;
  /** It could not be looked at, so a `discard` could keep nothing of it for rescue, and is refused. */
  readonly blind?: boolean;
}

/** What became of a worktree that was to go. */
export interface RemovedWorktree {
  readonly removed: boolean;
  readonly state: WorktreeState;
  /** Of one that is gone: what went with it, or who had taken it away, in words; null: it held nothing. */
  readonly note?: string | null;
}

/** What a run's branch is handed over with. What is null is taken from its commits. */
export interface HandoffWish {
  readonly title: string | null;
  readonly body: string | null;
  /** The branch that it is to be merged into; null: the one that the remote takes for its own. */
  readonly base: string | null;
  readonly draft: boolean;
  /** Whether a pull request is wanted. */
  readonly open: boolean;
}

/** What became of a run's branch. */
export interface Handoff {
  readonly branch: string;
  readonly commit: string;
  /** Of its own, since its base. */
  readonly commits: number;
  /** What the remote has of it now: `left` nothing, since there is no remote. `before`: it had it already. */
  readonly pushed: "left" | "now" | "before";
  readonly pullRequest: {
    readonly url: string;
    readonly state: "open" | "closed" | "merged";
    /** It was there already. */
    readonly found: boolean;
  } | null;
  /** Why there is no pull request, in words. */
  readonly because: string | null;
  /** Changes in the tree that no commit has, and that stay there; null where the tree is gone or cannot be looked at. */
  readonly uncommitted: number | null;
}

/** Makes worktrees and removes those that hold nothing. Errors: AppError `workspace` with git's own words. */
export interface Worktrees {
  /** The folder for a run's worktree. Pure. */
  place(order: Pick<WorktreeOrder, "runId" | "name" | "cwd">): string;
  /**
   * null: `auto`, and the folder is in no repository. Safe to repeat after a crash; concurrent makes on one repository are safe.
   * @param unwanted ends what is under way, within seconds, and takes away what it has made
   */
  make(order: WorktreeOrder, unwanted?: AbortSignal): Promise<MadeWorktree | null>;
  /** Where in it the process works. AppError `workspace` when it is not there or not what we made. */
  enter(record: WorktreeRecord): Promise<string>;
  look(record: WorktreeRecord): Promise<WorktreeState>;
  /**
   * Notes, beside the tree, how the checkout stands that it was made from, and by what to know the secrets that an attempt is
   * given, so that none is told with the names of files. Before each attempt in it.
   * @param folder of the attempt, which is prepared
   */
  watch(record: WorktreeRecord, folder: string): Promise<void>;
  /** What has changed there since `watch`, whoever did that; null when nothing has, or nothing was noted. Changes nothing. */
  escaped(record: WorktreeRecord): Promise<Escape | null>;
  /**
   * Removes it when it holds nothing, or when a person said so with `discard`; a rescue ref is kept of what was discarded.
   * Answers what it held.
   */
  remove(record: WorktreeRecord, discard: boolean): Promise<RemovedWorktree>;
}

// --- Notifier ------------------------------------------------------------------------------------------------------------

/** A hook of a loop: a shell string that gets the run as JSON on standard input. */
export interface Hook {
  readonly name: "on_finish" | "on_failure";
  readonly shell: string;
  readonly cwd: string;
  /** The run's document. */
  readonly input: string;
  readonly variables: Readonly<Record<string, string>>;
  /** A limit of its own, for its whole tree. */
  readonly timeoutMs: number;
}

export interface Notifier {
  /** Runs a hook to its end or its limit; answers its exit status, null when the limit ended it. Never throws, never delays a run. */
  hook(hook: Hook): Promise<{ readonly exit: number | null; readonly tail: string }>;
}

// --- Store: the one door to the data -------------------------------------------------------------------------------------
// Every entry is one transaction, named, with plain data in and out. Expected outcomes are answers; AppErrors are for people.

export interface JoinHost {
  readonly hostId: string;
  readonly name: string;
  readonly machineId: string;
  readonly bootId: string;
  readonly version: string;
  readonly leaseMs: number;
  readonly commandCap: number;
  readonly agentCap: number;
}

export interface LoopDraft {
  readonly name: string;
  readonly schedule: Schedule;
  readonly target: Target;
  readonly policy: LoopPolicy;
  readonly hostPin: string | null;
  readonly managedBy: string | null;
}

export interface LoopChange {
  readonly schedule?: Schedule;
  readonly target?: Target;
  readonly policy?: LoopPolicy;
}

/** What files declare, as changes of what was seen. Instants, names and ids are those of the records that it was decided from. */
export interface DeclaredChanges {
  /** Every loop that was looked at, as it was then: also those that stay as they are. */
  readonly seen: readonly { readonly loopId: string; readonly name: string; readonly revision: number }[];
  readonly loops: {
    /** `paused`: why it is not to start anything yet; null: it is active. */
    readonly add: readonly { readonly draft: LoopDraft; readonly paused: string | null }[];
    readonly change: readonly {
      readonly loopId: string;
      readonly change: LoopChange;
      readonly managedBy: string | null;
    }[];
    /** They stay as they are, and another file declares them. */
    readonly adopt: readonly { readonly loopId: string; readonly managedBy: string | null }[];
    readonly archive: readonly { readonly loopId: string }[];
  };
  readonly accounts: {
    readonly add: readonly { readonly draft: AccountDraft; readonly managedBy: string | null }[];
    readonly change: readonly {
      readonly before: DeclaredAccount;
      readonly draft: AccountDraft;
      /** Its cap is declared as a limit of its own. */
      readonly keepsCap: boolean;
      readonly managedBy: string | null;
    }[];
    readonly remove: readonly DeclaredAccount[];
  };
  readonly limits: {
    /** `before` null: there was none. */
    readonly set: readonly {
      readonly resource: string;
      readonly limit: number;
      readonly before: number | null;
      readonly managedBy: string | null;
    }[];
    readonly remove: readonly { readonly resource: string; readonly before: number }[];
  };
}

/** What of an account files declare. */
export type DeclaredAccount = Pick<AccountRecord, "provider" | "name" | "home" | "env" | "secrets">;

/** A loop that a file declares. */
export interface OwnedLoop {
  readonly loopId: string;
  readonly name: string;
  readonly managedBy: string;
  readonly revision: number;
}

/** Accounts and limits with the files that declare them; null: made by hand. Caps of hosts are none of them. */
export interface DeclaredRest {
  readonly accounts: readonly { readonly account: AccountRecord; readonly managedBy: string | null }[];
  readonly limits: readonly { readonly resource: string; readonly limit: number; readonly managedBy: string | null }[];
}

/** One page. `cursor` is opaque and comes from the page before. */
export interface PageRequest {
  readonly limit: number;
  readonly cursor: string | null;
}
export interface Page<T> {
  readonly items: readonly T[];
  readonly next: string | null;
}

export interface RunDraft {
  readonly kind: RunRecord["kind"];
  readonly target: Target;
  readonly policy: RunPolicy;
  readonly originKind: OriginKind;
  readonly originId: string | null;
  /** The same key twice is one run. */
  readonly idempotencyKey: string | null;
  readonly parentRunId: string | null;
  readonly hostPin: string | null;
  readonly limits: Limits;
}

/** A step of a workflow whose needs have all ended, and whose definition has to say what becomes of it. */
export interface StepToJudge {
  readonly stepId: string;
  readonly key: string;
  /** What its definition calls it: of an item of `foreach` the step that has them. */
  readonly definitionStep: string;
  /** JSON text; null of a step that is no item. */
  readonly item: string | null;
  readonly condition: Condition;
  readonly run: RunRecord;
  readonly needs: readonly NeedState[];
}

/** A step that has ended, as expressions read it. */
export interface EndedStep {
  readonly key: string;
  readonly status: FinalStatus;
  /** JSON text. */
  readonly output: string | null;
  readonly result: StepResult | null;
}

/** What a definition says of a step: it starts with what was rendered for it, its `if` does not hold, or it cannot be done. */
export type StepVerdict = {
  readonly stepId: string;
} /** `prompt`: of an agent, to be kept; its target names it then. */ & (
  | { readonly does: "start"; readonly spec: StepSpec; readonly prompt?: string }
  /** It is done for each of these, JSON texts, so many at a time; null for any number. */
  | { readonly does: "each"; readonly items: readonly string[]; readonly concurrency: number | null }
  | { readonly does: "skip"; readonly reason: "condition" }
  | { readonly does: "fail"; readonly class: FailureClass; readonly reason: string; readonly message: string }
);

/** Which source a run by hand had; `skipped` when the overlap policy did not let it start. */
export interface RunNowAnswer {
  readonly source: "ad_hoc" | "due_slot" | "retry_slot";
  readonly runId: string | null;
  readonly skipped: string | null;
}

export interface AccountDraft {
  readonly provider: Provider;
  readonly name: string;
  readonly home: string | null;
  readonly env: Readonly<Record<string, string>>;
  readonly secrets: Readonly<Record<string, string>>;
  /** Attempts at work under it at a time; null for any number. */
  readonly cap: number | null;
}

export interface AccountView {
  readonly account: AccountRecord;
  readonly holds: readonly HoldRecord[];
  /** Those of its provider, which hold every account of it. */
  readonly providerHolds: readonly HoldRecord[];
  readonly active: number;
  readonly cap: number | null;
}

export interface StuckRequest {
  /** The host that asks; empty where there is none yet. */
  readonly hostId: string;
  /** Things answered of each kind, at most. */
  readonly limit: number;
  /** Live runs that are looked at, oldest first. */
  readonly looked: number;
  /** What was due, or began to end, this long ago is late. */
  readonly oldMs: number;
  /** A host that has been silent for this long is gone. */
  readonly goneMs: number;
}

/** Something that waits for what can never come, or that holds on to what is over. */
export interface Stuck {
  /**
   * `run`: no step of it is left. `step`: nothing wakes it. `overdue`: it was to be woken at `at`. `turn`: nobody is before it.
   * `ending`: an attempt that has been ending since `at`. `host_gone`: an attempt on a host last seen at `at`. `claim`: of an
   * attempt that is over. `loop`: active, without a time at which it is looked at. `slot`: without an outcome, and without a
   * run that could give it one. `account`: a run that waits for an account that is not there, in `reason`. `pinned`: a host
   * that is gone, and how many runs are bound to it, in `reason`.
   */
  readonly kind:
    | "run"
    | "step"
    | "overdue"
    | "turn"
    | "ending"
    | "host_gone"
    | "claim"
    | "loop"
    | "slot"
    | "account"
    | "pinned";
  /** Of the thing itself: a run's, a step's, an attempt's, a loop's or a host's. */
  readonly id: string;
  readonly runId: string | null;
  /** The name of its loop. */
  readonly loop: string | null;
  readonly hostId: string | null;
  readonly at: Instant | null;
  readonly reason: string | null;
}

export type Guarded = "done" | "superseded" | "already_ended";

/** A finished run with all that is kept of it, for another store. Where it was at work on its host is no part of it. */
export interface PastRun {
  readonly run: Pick<
    RunRecord,
    | "id"
    | "kind"
    | "originKind"
    | "originId"
    | "loopId"
    | "loopName"
    | "slotAt"
    | "parentRunId"
    | "rootRunId"
    | "depth"
    | "retryOf"
    | "target"
    | "policy"
    | "status"
    | "reason"
    | "priority"
    | "queuedAt"
    | "cancelRequestedAt"
    | "cancelBy"
    | "cancelReason"
    | "exitStatus"
    | "output"
    | "error"
    | "startedAt"
    | "finishedAt"
    | "createdAt"
  >;
  readonly steps: readonly Pick<
    StepRecord,
    | "id"
    | "key"
    | "kind"
    | "status"
    | "reason"
    | "token"
    | "triesCounted"
    | "maxAttempts"
    | "idleEnds"
    | "attemptsMade"
    | "output"
    | "startedAt"
    | "finishedAt"
  >[];
  readonly attempts: readonly Pick<
    AttemptRecord,
    | "id"
    | "stepId"
    | "number"
    | "counted"
    | "purpose"
    | "token"
    | "status"
    | "class"
    | "hostId"
    | "incarnation"
    | "accountId"
    | "sessionRef"
    | "exitStatus"
    | "signal"
    | "message"
    | "tail"
    | "stdoutBytes"
    | "stderrBytes"
    | "endedBy"
    | "adopted"
    | "reaped"
    | "proof"
    | "usageTotal"
    | "agentEnd"
    | "startedAt"
    | "finishedAt"
  >[];
  readonly events: readonly Pick<EventRecord, "number" | "type" | "token" | "data" | "at">[];
}

/** An ended slot, or neighbours with one outcome, for another store. */
export interface PastSlot
  extends Pick<SlotRecord, "at" | "untilAt" | "count" | "reason" | "coalescedInto" | "runId" | "lateMs" | "schedule"> {
  readonly loopId: string;
  readonly outcome: NonNullable<SlotRecord["outcome"]>;
}

/** A place in history: the end of a run. */
export interface HistoryPlace {
  readonly at: Instant;
  readonly id: string;
}

/** Which part of history is looked at. */
export interface HistoryCut {
  /** Only runs that ended longer ago. */
  readonly ageMs: number;
  /** The newest runs of each loop that stay, however old. */
  readonly keep: number;
  /** Runs looked at in one transaction. */
  readonly limit: number;
  /** Behind this one; null from the oldest on. */
  readonly after: HistoryPlace | null;
}

/** What was found in one part. `next` is null at the end of what is old enough. */
export interface HistoryPart {
  readonly runs: number;
  /** Old enough, and staying: among the last of their loop, or with a tree, a due hook, or a live run below them. */
  readonly kept: number;
  readonly next: HistoryPlace | null;
}

export interface Store {
  readonly hosts: {
    /** Registers this start of the host: a higher incarnation, its caps, status `up`. Answers the row as it was before. */
    join(input: JoinHost): Promise<{ readonly incarnation: number; readonly previous: HostRecord | null }>;
    report(input: {
      readonly hostId: string;
      readonly incarnation: number;
      readonly status: HostRecord["status"];
    }): Promise<Guarded>;
    /** Renews the host's lease and those of its live attempts; `lost` holds attempts whose token is no longer theirs. */
    renew(input: {
      readonly hostId: string;
      readonly incarnation: number;
      readonly leaseMs: number;
    }): Promise<{ readonly superseded: boolean; readonly lost: readonly string[] }>;
    /** Going down. With `backBy` other hosts leave its work alone until then. */
    leave(input: {
      readonly hostId: string;
      readonly incarnation: number;
      readonly backBy: Instant | null;
    }): Promise<Guarded>;
    list(input: Record<string, never>): Promise<readonly HostRecord[]>;
  };
  readonly loops: {
    add(input: { readonly draft: LoopDraft; readonly limits: Limits }): Promise<LoopRecord>;
    /** Adds all of them, paused for that reason, or none. AppError conflict `name_taken`. */
    addPaused(input: {
      readonly drafts: readonly LoopDraft[];
      readonly reason: string;
      readonly limits: Limits;
    }): Promise<readonly { readonly id: string; readonly name: string }[]>;
    /** Instants that were due before the edit are recorded under the old schedule; none of them starts because of it. */
    /** With `revision`: AppError conflict `changed_meanwhile` when it has another one by now. */
    edit(input: {
      readonly loopId: string;
      readonly change: LoopChange;
      readonly revision?: number;
      readonly limits: Limits;
    }): Promise<LoopRecord>;
    rename(input: { readonly loopId: string; readonly name: string }): Promise<LoopRecord>;
    pause(input: {
      readonly loopId: string;
      readonly reason: string | null;
      readonly limits: Limits;
    }): Promise<LoopRecord>;
    resume(input: { readonly loopId: string; readonly limits: Limits }): Promise<LoopRecord>;
    archive(input: { readonly loopId: string; readonly limits: Limits }): Promise<LoopRecord>;
    unarchive(input: { readonly loopId: string; readonly limits: Limits }): Promise<LoopRecord>;
    /** Deletes the loop and its slots; its runs stay. AppError conflict `loop_busy` while a run of it is at work. */
    remove(input: { readonly loopId: string }): Promise<void>;
    get(input: { readonly loopId: string }): Promise<LoopRecord | null>;
    /**
     * By name. With filters a page may hold fewer than were asked for and still have a next one.
     */
    list(
      input: PageRequest & {
        /** Also those that are archived. */
        readonly archived: boolean;
        readonly label: string | null;
        readonly status?: readonly LoopStatus[] | null;
        /** Those that are not archived and whose last run failed, or that their breaker has paused. */
        readonly trouble?: "failing" | "tripped" | null;
        readonly managedBy?: string | null;
      },
    ): Promise<Page<LoopRecord>>;
    /** The plan that `planDue` would write for a loop now; null when there is no such loop. Nothing is changed by it. */
    preview(input: {
      readonly loopId: string;
      readonly cause: LateCause;
      readonly limits: Limits;
    }): Promise<Plan | null>;
    /** Plans every due instant of at most `limits.planLoops` loops. `wakeAt` is the next time that a loop is due. */
    planDue(input: {
      readonly cause: LateCause;
      readonly limits: Limits;
      /** Records what is due as missed for this reason, and starts nothing. */
      readonly forbidPast?: SlotReason;
    }): Promise<{
      readonly loops: number;
      readonly runs: number;
      readonly wakeAt: Instant | null;
      readonly more: boolean;
      /** The store's clock: `wakeAt` is to be understood by it. */
      readonly now: Instant;
    }>;
    runNow(input: {
      readonly loopId: string;
      readonly by: string;
      readonly parentRunId: string | null;
      readonly limits: Limits;
    }): Promise<RunNowAnswer>;
    /** The next slots of active loops, one of each, the earliest first. */
    nextFires(input: {
      readonly limit: number;
    }): Promise<readonly { readonly loopId: string; readonly name: string; readonly at: Instant }[]>;
  };
  readonly declared: {
    /** The loops of these names that are not archived. */
    loops(input: { readonly names: readonly string[] }): Promise<readonly LoopRecord[]>;
    /** Loops that are not archived and whose file is from `from` on and before `to`, in the order of bytes. */
    owned(input: { readonly from: string; readonly to: string }): Promise<readonly OwnedLoop[]>;
    rest(input: Record<string, never>): Promise<DeclaredRest>;
    /**
     * Makes it all so, or nothing. An edit starts nothing that was due before. AppError conflict `changed_meanwhile` when
     * something is not as it was seen, `account_in_use`; invalid `already_expired`.
     */
    apply(input: {
      readonly changes: DeclaredChanges;
      readonly limits: Limits;
    }): Promise<{ readonly made: readonly { readonly name: string; readonly loopId: string }[] }>;
  };
  readonly slots: {
    /** Newest first. */
    list(
      input: PageRequest & {
        readonly loopId: string;
        /** Absent or null: any, also those whose run has not ended. */
        readonly outcome?: readonly SlotOutcome[] | null;
        /** Rows that reach into this time. */
        readonly since?: Instant | null;
        readonly until?: Instant | null;
      },
    ): Promise<Page<SlotRecord>>;
    /** Missed instants of loops that are not archived, the latest first: rows that reach past `since`. */
    missed(input: {
      readonly since: Instant;
      readonly limit: number;
    }): Promise<readonly { readonly slot: SlotRecord; readonly loopId: string; readonly loop: string }[]>;
  };
  readonly runs: {
    add(input: RunDraft): Promise<{ readonly run: RunRecord; readonly repeated: boolean }>;
    /**
     * A new run of the same work that points at the old one. Of a workflow it has the steps that had succeeded, but for `from`
     * and what needs it; none of them where it is `fresh`, or where the old one has nothing left to do. AppError conflict
     * `run_live`, `prompt_gone`, `definition_gone`, `tree_not_shared`.
     */
    retry(input: {
      readonly runId: string;
      readonly by: string;
      readonly from?: string | null;
      readonly fresh?: boolean;
      readonly parentRunId?: string | null;
      readonly limits: Limits;
    }): Promise<RunRecord>;
    /** `requested`: something of it is at work, its host ends it. `cancelled`: nothing was, it is over. */
    cancel(input: {
      readonly runId: string;
      readonly by: string;
      readonly reason: string;
      readonly limits: Limits;
    }): Promise<"requested" | "cancelled" | "already_ended">;
    get(input: { readonly runId: string }): Promise<RunTree | null>;
    /**
     * Newest first, stable while runs come and end. With filters that have no index of their own a page may hold fewer than
     * were asked for, or none, and still have a next one.
     */
    list(
      input: PageRequest & {
        readonly loopId: string | null;
        readonly status: RunStatus | readonly RunStatus[] | null;
        readonly label: string | null;
        /** By when they were queued; both ends are in it. */
        readonly since: Instant | null;
        readonly until?: Instant | null;
        readonly kind?: RunRecord["kind"] | null;
        /** Of those that have ended: what their error is of. */
        readonly class?: FailureClass | null;
        /** Of those that have not: why they wait. */
        readonly reason?: string | null;
      },
    ): Promise<Page<RunRecord>>;
    /** What a run that waits for its turn waits for: some of the runs of its loop that were let in and have not ended. */
    beforeTurn(input: {
      readonly runId: string;
    }): Promise<readonly { readonly id: string; readonly status: RunStatus; readonly startedAt: Instant | null }[]>;
    /** How many milliseconds the newest runs took that ended well: of the same loop; without one, of the same work. */
    durationsLike(input: { readonly runId: string; readonly limit: number }): Promise<readonly number[]>;
    /** Live runs by status, and how many of those that are not at work only a person lets go on. */
    counts(input: Record<string, never>): Promise<LiveCounts>;
    /** Runs whose hooks are due on this host. */
    hooksDue(input: {
      readonly hostId: string;
      readonly limit: number;
    }): Promise<readonly { readonly run: RunRecord; readonly hooks: readonly string[] }[]>;
    hooksDone(input: { readonly runId: string; readonly note: string | null }): Promise<void>;
  };
  readonly steps: {
    /** Makes waiting steps ready whose time has come. */
    wake(input: { readonly limit: number }): Promise<{
      readonly woken: number;
      readonly wakeAt: Instant | null;
      readonly more: boolean;
      readonly now: Instant;
    }>;
    /** Steps whose definition has to be asked, of runs that this host may do. */
    toJudge(input: { readonly hostId: string; readonly limit: number }): Promise<readonly StepToJudge[]>;
    /** Those of these steps of a run that have ended. */
    ended(input: { readonly runId: string; readonly keys: readonly string[] }): Promise<readonly EndedStep[]>;
    /** What their definition said of them; one that was decided on meanwhile stays as it is. */
    judge(input: {
      readonly runId: string;
      readonly verdicts: readonly StepVerdict[];
      readonly limits: Limits;
    }): Promise<{ readonly run: RunStatus | null; readonly judged: number }>;
  };
  readonly definitions: {
    /** Keeps the steps of a definition by the digest of its text, which is kept as prompts are; twice is once. */
    put(input: { readonly digest: string; readonly steps: readonly SkeletonStep[] }): Promise<void>;
  };
  readonly admission: {
    /**
     * One pass; grants are reserved, with their claims, for the hosts that they name. A daemon says which one of its host
     * it is: one that has been replaced is granted nothing.
     */
    pass(input: { readonly hostId: string; readonly incarnation?: number; readonly limits: Limits }): Promise<{
      readonly granted: number;
      readonly mine: readonly Assignment[];
      readonly refused: readonly { readonly capKey: string; readonly refusal: Refusal }[];
      readonly more: boolean;
      /** Another daemon is that host now. */
      readonly superseded?: true;
      /** When the earliest hold ends that keeps something from starting; null when none does. */
      readonly wakeAt?: Instant | null;
      /** The store's clock: `wakeAt` is to be understood by it. */
      readonly now?: Instant;
    }>;
    /** Why a ready step does not start, from the same snapshot by the same function; its place among those of its caps. */
    explain(input: {
      readonly stepId: string;
    }): Promise<{ readonly refusal: Refusal | null; readonly ahead: number } | null>;
    setLimit(input: { readonly resource: string; readonly limit: number }): Promise<void>;
    /** Takes a limit away; `removed` false: there was none. */
    removeLimit(input: { readonly resource: string }): Promise<{ readonly removed: boolean }>;
    usage(
      input: Record<string, never>,
    ): Promise<readonly { readonly resource: string; readonly limit: number; readonly used: number }[]>;
  };
  readonly attempts: {
    /** Live attempts of a host, oldest first. */
    ofHost(input: { readonly hostId: string }): Promise<readonly Assignment[]>;
    /** reserved -> starting, before the spawner is asked. `cancelled`: a cancel came first. */
    start(input: {
      readonly attemptId: string;
      readonly token: number;
      readonly bootId: string;
      readonly folder: string;
      readonly awakeAt: number;
      /** The session that it goes on with, or begins under. */
      readonly sessionId?: string | null;
    }): Promise<Guarded | "cancelled" | "session_busy">;
    /**
     * The session that an agent began: kept as soon as it is seen, so that a later attempt can go on with it.
     * `copyOf`: the one that it is a copy of, whose usage it counts on.
     */
    session(input: {
      readonly attemptId: string;
      readonly token: number;
      readonly sessionId: string;
      readonly copyOf?: string | null;
    }): Promise<Guarded>;
    /** starting -> running: the ticket is there. */
    run(input: {
      readonly attemptId: string;
      readonly token: number;
      readonly pid: number;
      readonly pidStarted: string;
      readonly startedAt: Instant;
    }): Promise<Guarded>;
    /** A new daemon of the same host takes a live attempt over: the old token is worth nothing from here on. */
    adopt(input: {
      readonly attemptId: string;
      readonly token: number;
      readonly hostId: string;
      readonly incarnation: number;
      readonly leaseMs: number;
    }): Promise<{ readonly answer: Guarded; readonly token: number }>;
    /** We begin to end it; recorded before the first signal. */
    ending(input: { readonly attemptId: string; readonly token: number; readonly by: EndedBy }): Promise<Guarded>;
    /** The end of an attempt and all that follows from it, in one transaction. Repeating it with the same outcome gives the first answer again. */
    settle(input: {
      readonly attemptId: string;
      readonly token: number;
      readonly outcome: Outcome;
      readonly limits: Limits;
    }): Promise<{ readonly answer: Guarded; readonly step: StepStatus | null; readonly run: RunStatus | null }>;
    /** Live attempts that have to be ended here: their run is cancelled, or their token was taken. */
    toEnd(input: { readonly hostId: string }): Promise<
      readonly {
        readonly attemptId: string;
        readonly runId: string;
        readonly reason: string;
        readonly superseded: boolean;
      }[]
    >;
    /** Ends, as lost, attempts of hosts that have been silent for the takeover time. */
    takeOver(input: { readonly hostId: string; readonly limits: Limits }): Promise<{ readonly taken: number }>;
    /** Which of these attempts are known, and when each ended; null: it has not. */
    among(input: {
      readonly attemptIds: readonly string[];
    }): Promise<readonly { readonly attemptId: string; readonly finishedAt: Instant | null }[]>;
    /** Which of these folders' attempts have ended, and when. */
    endedAmong(input: {
      readonly attemptIds: readonly string[];
    }): Promise<readonly { readonly attemptId: string; readonly finishedAt: Instant; readonly lost: boolean }[]>;
  };
  readonly accounts: {
    /** AppError conflict `name_taken`. */
    add(input: AccountDraft): Promise<AccountRecord>;
    get(input: { readonly accountId: string }): Promise<AccountView | null>;
    list(input: Record<string, never>): Promise<readonly AccountView[]>;
    /** Errors: AppError not_found `account_not_found`, here and below. */
    enable(input: { readonly accountId: string; readonly enabled: boolean }): Promise<AccountRecord>;
    /** Takes no new work until then (null: until it is released). What runs goes on. */
    hold(input: {
      readonly accountId: string;
      readonly untilAt: Instant | null;
      readonly reason: string;
    }): Promise<AccountRecord>;
    /** Ends every hold, forgets its limits, and wakes what waits for it. */
    release(input: {
      readonly accountId: string;
    }): Promise<{ readonly account: AccountRecord; readonly woken: number }>;
    /** AppError conflict `account_in_use` while a loop or a live run names it. */
    remove(input: { readonly accountId: string }): Promise<void>;
    /** Its model answered: throttle and quota are over. */
    answered(input: { readonly accountId: string }): Promise<void>;
    /** No account of the provider takes new work until then (null: until it is released). Answers the holds that are on. */
    holdProvider(input: {
      readonly provider: Provider;
      readonly untilAt: Instant | null;
      readonly reason: string;
    }): Promise<readonly HoldRecord[]>;
    /** Ends the holds of the provider; those of its accounts stay. */
    releaseProvider(input: { readonly provider: Provider }): Promise<{ readonly ended: number }>;
    /** The holds of whole providers that are on. */
    providerHolds(input: Record<string, never>): Promise<readonly HoldRecord[]>;
  };
  readonly prompts: {
    /** Keeps bytes by their digest; twice is once. `content` is base64. */
    put(input: { readonly digest: string; readonly content: string; readonly bytes: number }): Promise<void>;
    get(input: { readonly digest: string }): Promise<{ readonly content: string } | null>;
    /** Removes, in a bounded batch, what no loop names and no run needs that is live or has ended within `promptRetentionMs`. */
    collect(input: {
      readonly limits: Pick<Limits, "promptRetentionMs" | "janitorBatch">;
    }): Promise<{ readonly removed: number; readonly more: boolean }>;
  };
  readonly worktrees: {
    /** The run's row, made in state `making` when there is none; before anything is on the disk. */
    begin(input: {
      readonly runId: string;
      readonly hostId: string;
      readonly cwd: string;
      readonly path: string;
    }): Promise<WorktreeRecord>;
    /** `making` -> `made`, before a process works in it. null: there is none after all (`auto`); the row goes. */
    made(input: { readonly runId: string; readonly made: MadeWorktree | null }): Promise<WorktreeRecord | null>;
    /** What was found after its run ended, or when a person removed it. */
    looked(input: {
      readonly runId: string;
      readonly state: "kept" | "removed";
      readonly keptBecause: string | null;
      readonly commits: number | null;
      readonly diffStat: string | null;
    }): Promise<WorktreeRecord | null>;
    get(input: { readonly runId: string }): Promise<WorktreeRecord | null>;
    /** Those that are there, newest first; of one host unless null. */
    list(
      input: PageRequest & {
        readonly hostId: string | null;
        /** Only those of ended runs that are kept for what they hold. */
        readonly kept?: boolean;
      },
    ): Promise<Page<WorktreeRecord & { readonly runStatus: RunStatus | null }>>;
    /** Of ended runs of this host and not looked at since. */
    toTidy(input: { readonly hostId: string; readonly limit: number }): Promise<readonly WorktreeRecord[]>;
  };
  /** For `doctor`: the daemon asks none of it. */
  readonly stuck: {
    find(input: StuckRequest): Promise<readonly Stuck[]>;
    /** The newest instant of any event; null while there is none. */
    newest(input: Record<string, never>): Promise<Instant | null>;
    /**
     * Lets go of what is still stuck of these when it is asked: claims of attempts that are over; slots without an outcome get
     * their run's, or `missed` where no run is known. Answers how many.
     */
    release(input: {
      readonly hostId: string;
      readonly claimsOf: readonly string[];
      readonly slots: readonly { readonly loopId: string; readonly at: Instant }[];
    }): Promise<{ readonly claims: number; readonly slots: number }>;
  };
  readonly events: {
    /** Ascending by cursor; `after` null begins with the oldest that is kept, `"now"` behind the newest. */
    list(input: {
      readonly after: string | null;
      readonly limit: number;
      /** Only those of a run, or of a loop itself. */
      readonly runId: string | null;
      readonly loopId?: string | null;
    }): Promise<{ readonly items: readonly EventRecord[]; readonly cursor: string | null }>;
  };
  readonly history: {
    /** What `prune` would do with the same runs. */
    prunable(input: HistoryCut): Promise<HistoryPart>;
    /**
     * Removes ended runs with their steps, attempts, events, receipts, labels and sessions. Their slots stay, folded into rows
     * of several; those of a dynamic loop go with their runs.
     */
    prune(input: HistoryCut): Promise<HistoryPart>;
    /** Finished runs, those first that ended first. */
    page(input: {
      readonly after: HistoryPlace | null;
      readonly limit: number;
    }): Promise<{ readonly items: readonly PastRun[]; readonly next: HistoryPlace | null }>;
    /**
     * Takes in what another store has finished; what is here already stays as it is, so that twice is once. Of slots those
     * from before their loop was here. Answers how many were new. AppError conflict `id_clash`.
     */
    add(input: {
      readonly runs: readonly PastRun[];
      readonly slots: readonly PastSlot[];
    }): Promise<{ readonly runs: number; readonly slots: number }>;
  };
  readonly restores: {
    /**
     * Ends, as cancelled for the reason `restored`, runs that had not ended when a copy was made, oldest first; attempts of
     * theirs that were at work are lost. `atWork`: how many of the runs had one.
     */
    endLive(input: { readonly limit: number; readonly limits: Limits }): Promise<{
      readonly ended: number;
      readonly atWork: number;
      readonly more: boolean;
    }>;
    /** No hook is due any more, and every host is down. Loops of any host become those of `hostId`, unless null. */
    standDown(input: { readonly hostId: string | null }): Promise<void>;
  };
  readonly things: {
    /** Ids that an id, a prefix, a suffix or a unique name may mean; at most `limit`. An attempt's or a step's id, whole, means its run. */
    resolve(input: {
      readonly kind: "loop" | "run" | "attempt" | "step";
      readonly ref: string;
      readonly limit: number;
    }): Promise<readonly { readonly id: string; readonly name: string | null }[]>;
    /**
     * What may stand where a name or an id is being typed: loops by name, runs newest first. `paused` is what does not start
     * runs. At most `among` rows are looked at, and `limit` answered.
     */
    offer(input: {
      readonly kind: "loop" | "run";
      readonly prefix: string;
      readonly which: "any" | "active" | "paused" | "archived" | "live" | "ended";
      readonly among: number;
      readonly limit: number;
    }): Promise<readonly OfferedThing[]>;
  };
}

/** A loop or a run as it is offered to somebody who is typing. */
export interface OfferedThing {
  readonly id: string;
  /** A loop's name; of a run its loop's, or what it runs. */
  readonly name: string;
  readonly status: string;
  /** When the run ended, or else was queued; null for a loop. */
  readonly at: Instant | null;
}
