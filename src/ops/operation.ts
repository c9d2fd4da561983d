/** The vocabulary of operations: everything anyone can do, defined once, projected to every surface. */
import type { AgentFacts, TranscriptEntry } from "../core/agent.ts";
import type { ErrorKind } from "../core/errors.ts";
import type { Handoff, HandoffWish, Instant, RemovedWorktree, Store, WorktreeState } from "../core/ports.ts";
import type { AccountRecord, WorktreeRecord } from "../core/records.ts";
import type { ServiceControl } from "../core/service.ts";
import type { Provider } from "../core/target.ts";
import type { Fields, InputOf } from "./fields.ts";
import type { FindingCode, FindingLevel } from "./doctor/finding-codes.ts";
import type { Places } from "./places.ts";
import type { Settings } from "./config/settings.ts";
import type { Shape } from "./shape.ts";

/**
 * Where an operation runs. `read`: the store, opened read-only, daemon or not. `write`: the daemon, or with its lock where
 * there is none. `act`: the daemon; `start` says whether one is started for it. `local`: the caller's own process.
 */
export type Where = "read" | "write" | "act" | "local";

export interface Build {
  readonly version: string;
  /** Differs between builds of the same version. */
  readonly id: string;
}

/** Who asks: what a started process may do is bounded by the run that it belongs to. */
export interface Caller {
  /** `person`, or the run that asks. */
  readonly by: string;
  /** The run on whose behalf something is started; from its signed token, never from what it says. */
  readonly parentRunId: string | null;
}

/** What every operation can reach. */
interface Surroundings {
  readonly clock: { now(): Instant };
  /** The zone of this host, where none is said. */
  readonly hostZone: string;
  readonly build: Build;
  readonly places: Places;
  readonly settings: Settings;
  readonly agents: AgentTools;
  readonly trees: WorktreeTools;
  /** Whether what this host starts is root. */
  readonly isRoot: boolean;
}

/** What was found of a provider's command line on this host. */
export interface AgentPresence {
  /** Where it lies; null when it is not found. */
  readonly file: string | null;
  /** null when it did not say. */
  readonly version: string | null;
  /** Whether that version was tried; null when it is not known. */
  readonly tested: boolean | null;
  /** Why it did not say its version. */
  readonly fault: string | null;
}

/** What the provider itself says of a login; `loggedIn` null where it cannot say. */
export interface LoginState {
  readonly loggedIn: boolean | null;
  /** A few words for people; holds no secret. */
  readonly detail: string;
}

/** Agent command lines, as this host has them. */
export interface AgentTools {
  about(provider: Provider): Promise<AgentFacts>;
  /** Looks for the program and asks it for its version, within `limits.agentProbeMs`. */
  find(provider: Provider): Promise<AgentPresence>;
  /** Asks the provider's command line, within the same limit. @param account null for the user's own login that nobody changed */
  probeLogin(provider: Provider, account: AccountRecord | null): Promise<LoginState>;
}

/** A worktree below our folder that no record knows. */
export interface StrayTree {
  /** What git says of it, in the form of a record; its run is not known, and `runId` is empty. */
  readonly record: WorktreeRecord;
  readonly state: WorktreeState;
}

/** The worktrees of this host. */
export interface WorktreeTools {
  look(record: WorktreeRecord): Promise<WorktreeState>;
  /** Removes it when it holds nothing, or with `discard`, which keeps a rescue ref. Errors: AppError `workspace`. */
  remove(record: WorktreeRecord, discard: boolean): Promise<RemovedWorktree>;
  /**
   * Pushes a run's branch and opens its pull request, each once. Errors: AppError conflict `no_commits`, `branch_gone`,
   * `branch_moved`, `push_refused`; unreachable `push_failed`, `pull_request_failed`; `workspace`.
   */
  handOff(record: WorktreeRecord, wish: HandoffWish): Promise<Handoff>;
  /** Trees below our folder that are none of these. @param known paths of all records of this host */
  strays(known: readonly string[]): Promise<readonly StrayTree[]>;
  /** Whether no commit of a folder's checkout has a file, so that a tree made for it would not. @param file from the folder on */
  lacks(cwd: string, file: string): Promise<boolean>;
  /** Whether a folder is below the top of its checkout and git knows no file in it: then no tree is made for it. */
  isUnknown(cwd: string): Promise<boolean>;
}

/** What lies in the state folder and belongs to nothing any more. */
export interface Leftovers {
  /** Folders of attempts, without those of live processes. */
  attemptFolders(): Promise<
    readonly { readonly name: string; readonly attemptId: string; readonly changedAt: Instant }[]
  >;
  removeFolder(name: string): Promise<void>;
  /** Paths beside the store: half-written ones, copies before an upgrade beyond the newest `keep`, replaced stores. */
  ofStore(keep: number): Promise<{
    readonly unfinished: readonly string[];
    readonly upgrades: readonly string[];
    readonly replaced: readonly string[];
  }>;
  remove(path: string): Promise<void>;
}

/** What is known of the daemon where an operation runs. */
export interface DaemonView {
  /** `none`: nobody fires schedules; `until_idle`: it serves what is queued and fires no schedules. */
  readonly mode: "full" | "until_idle" | "none";
}

export interface StoreContext extends Surroundings {
  readonly store: Store;
  readonly hostId: string;
  readonly caller: Caller;
  /** The daemon of this host, as it is now. */
  daemon(): Promise<DaemonView>;
  readonly output: OutputFiles;
  /** The file that a command's name means on this host; null when there is none. */
  findProgram(name: string, cwd: string, path: string | undefined): Promise<string | null>;
  /** Whether a folder is there. */
  isFolder(path: string): boolean;
  readonly leftovers: Leftovers;
}

export interface ActContext extends StoreContext {
  readonly control: DaemonControl;
}

/** What the daemon lets operations do to itself. */
export interface DaemonControl {
  health(): Health;
  /** Begins to go down, and answers at once. */
  stop(how: { readonly drainMs: number; readonly stopRuns: boolean }): void;
}

export interface Health {
  readonly state: "up" | "draining";
  readonly mode: "full" | "until_idle";
  readonly pid: number;
  readonly version: string;
  readonly build: string;
  readonly hostId: string;
  readonly hostName: string;
  readonly startedAt: string;
  /** The service that started it; null for one that was started by hand. A daemon of an earlier version does not say. */
  readonly service?: string | null;
}

export interface OutputRequest {
  readonly folder: string;
  readonly stream: "stdout" | "stderr";
  /** Only the last lines; null for all that is kept. */
  readonly tailLines: number | null;
  /** Keeps control sequences. Secrets are scrubbed either way. */
  readonly raw: boolean;
  /** Its attempt has not ended: of what it may write on nothing is read that may be half of a secret. */
  readonly isLive?: boolean;
}

/** Output of attempts, as it is served: scrubbed, and inert unless raw. */
export interface OutputFiles {
  /** What is there now, in pieces. Errors: AppError not_found `logs_gone`. */
  read(request: OutputRequest): AsyncIterable<string>;
  /** The same, and then what comes. `ended` is aborted when nothing more will be written; `signal` ends it at once. */
  follow(request: OutputRequest, ended: AbortSignal, signal: AbortSignal): AsyncIterable<string>;
  /** Where the file lies. */
  pathOf(folder: string, stream: "stdout" | "stderr"): string;
  /** The text without the secrets of that attempt; null when what they were is not kept on this host. */
  scrub(folder: string, text: string): Promise<string | null>;
  /** What an agent said and did, so far. Errors: AppError not_found `logs_gone`. */
  transcript(folder: string): AsyncIterable<TranscriptEntry>;
  /** The same, and then what comes; ends as `follow` does. */
  followTranscript(folder: string, ended: AbortSignal, signal: AbortSignal): AsyncIterable<TranscriptEntry>;
}

/** A program that is given this process's terminal. */
export interface TerminalCommand {
  readonly argv: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

/** What a program of this host answered to a question. */
export interface ProgramAnswer {
  /** null when it did not end in time, or by a signal, or could not be started. */
  readonly exit: number | null;
  /** null when nobody can know whether that is all of it. */
  readonly stdout: Uint8Array | null;
  readonly stderr: string;
  /** It printed more than is read. */
  readonly cut: boolean;
  readonly timedOut: boolean;
}

/** What became of the run of `doctor --self-test`. */
export interface SelfTest {
  readonly ok: boolean;
  readonly runId: string | null;
  /** What was seen, in a sentence. */
  readonly message: string;
}

/** One finding of `doctor`, or what it found in order. */
export interface Finding {
  readonly check: string;
  /** A note is worth knowing and no fault; only `problem` and `warning` count. */
  readonly level: "ok" | "note" | "warning" | "problem";
  /** Stable; null of what is in order. */
  readonly code: FindingCode | null;
  /** The id or path that it is about. */
  readonly subject: string | null;
  readonly message: string;
  readonly hint: string | null;
  /** What mends it, to be typed as it is. */
  readonly command: string | null;
  /** `--fix` mends it. */
  readonly fixable: boolean;
}

/** Something that `doctor --fix` does. */
export interface Mending {
  /** In words, as it is listed before anybody is asked. */
  readonly does: string;
  /** Errors: AppError of what it calls. */
  perform(): Promise<void>;
}

/** What one look of `doctor` saw. */
export interface Examination {
  readonly findings: readonly Finding[];
  /** How many there are of each kind, also where not all are listed. */
  readonly counts: readonly {
    readonly code: FindingCode;
    readonly level: FindingLevel;
    readonly count: number;
    readonly shown: number;
  }[];
  readonly mendings: readonly Mending[];
}

/** What a copy of the store holds. */
export interface CopyContents {
  readonly schema: number;
  readonly bytes: number;
  readonly loops: number;
  readonly runs: number;
  readonly attempts: number;
  readonly events: number;
  readonly lastEventAt: Instant | null;
}

/** The store of this host as a file: copied, and put back. Errors of all: AppError invalid `not_available` on PostgreSQL. */
export interface StoreFiles {
  /**
   * Copies the store as it is now, daemon or not. Without a target into `backups/`, where the newest `keep` of a reason stay.
   * Errors: AppError conflict `target_exists`, unreachable `disk_full`, `no_store`, invalid `bad_target`.
   */
  copy(request: {
    readonly target: string | null;
    readonly reason: string;
    readonly keep: number;
  }): Promise<{ readonly file: string; readonly contents: CopyContents; readonly removed: readonly string[] }>;
  /**
   * Puts a copy in the place of the store, which moves aside. `dryRun` does all but that.
   * Errors: AppError conflict `daemon_up`, `attempts_at_work`, `busy`, `not_confirmed`, and those of the copy.
   */
  restore(request: {
    readonly file: string;
    readonly dryRun: boolean;
    /** Asked before a store that is there is replaced. */
    readonly confirm: (question: string) => Promise<boolean>;
    /** Pauses every loop of the copy. */
    readonly paused: boolean;
  }): Promise<{
    readonly contents: CopyContents;
    /** Runs that had not ended in the copy, how many of them were at work, and loops with instants that have passed since. */
    readonly cancelled: number;
    readonly atWork: number;
    readonly missed: number;
    readonly pausedLoops: number;
    /** Where the store went that was there. */
    readonly replaced: string | null;
  }>;
}

export type DaemonAnswer = { readonly health: Health } | { readonly absent: "down" | "unresponsive" };

/** How a daemon has ended. */
export interface DaemonEnd {
  /** `down` when a person asked for it, a signal's name, `idle`, `superseded`, else the code of what failed. */
  readonly why: string;
  /** The service that had started it. */
  readonly service: string | null;
}

/** How another process like this one is started. */
export interface SelfStart {
  /** Node, with its links resolved. */
  readonly node: string;
  /** What a daemon's Node is given. */
  readonly nodeOptions: readonly string[];
  /** The program as it was called, absolute, its links as they are. */
  readonly program: string;
  /** PATH with the usual folders, as processes of a run get it. */
  readonly path: string;
}

/** What the process of a command reaches beside the store: its host's daemon, and what it was started with. */
export interface Reach {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** The daemon of this host, as it answers now. */
  askDaemon(): Promise<DaemonAnswer>;
  /** Whoever holds the daemon's lock; null when nobody does. `pid` is for people. */
  lockHolder(): Promise<{ readonly pid: number | null } | null>;
  /** Calls an operation of the daemon. Errors: AppError unreachable `daemon_down` when nobody listens, and what the daemon answers. */
  call(name: string, input: unknown): Promise<unknown>;
  /** Starts a daemon in the background, unless one is up that will do, and waits until it is healthy. */
  startDaemon(mode: Health["mode"]): Promise<{ readonly health: Health; readonly started: boolean }>;
  /** Is the daemon, until it ends; answers how it did. */
  beDaemon(mode: Health["mode"]): Promise<DaemonEnd>;
  readonly files: StoreFiles;
  /** This user's service manager; null where there is none that drover knows. */
  service(): Promise<ServiceControl | null>;
  /** The file that a command's name means on a PATH; null when there is none. */
  findProgram(name: string, cwd: string, path: string | undefined): Promise<string | null>;
  /** How this process was started, for a service that is to start another like it. */
  self(): Promise<SelfStart>;
  /** Looks at everything, for `doctor`; changes nothing. */
  inspect(): Promise<Examination>;
  /** Runs a command of one second through the daemon and judges it from its start to its end. */
  selfTest(): Promise<SelfTest>;
  wait(ms: number): Promise<void>;
  /** Whether this process reads from a terminal and writes to one. */
  readonly hasTerminal: boolean;
  /**
   * Asks a person a question that is answered by yes or no, the question on standard error; `--yes` has answered it.
   * Errors: AppError invalid `needs_yes` where standard input is no terminal.
   */
  confirm(question: string): Promise<boolean>;
  /** Runs a program on this process's terminal to its end; answers its exit status, 128 and the signal's number for a signal. */
  attach(command: TerminalCommand): Promise<number>;
  /**
   * Asks a program of this host, such as `crontab -l`, within `limits.inquiryMs` and `limits.inquiryBytes`.
   * Answers null when it is not found.
   */
  ask(argv: readonly [string, ...string[]]): Promise<ProgramAnswer | null>;
}

/** What a local operation can do beside reading. */
export interface LocalContext extends Surroundings, Reach {
  readonly caller: Caller;
  /** Performs another operation as if it were the command: a local one prepares what a `write` does. Errors: those of it. */
  perform(name: string, input: unknown): Promise<unknown>;
  /** Opens the store for reading and closes it afterwards. Answers null where there is none yet. */
  reading<T>(use: (context: StoreContext) => Promise<T>): Promise<T | null>;
}

interface ContextOf {
  readonly read: StoreContext;
  readonly write: StoreContext;
  readonly act: ActContext;
  readonly local: LocalContext;
}

/** How an operation looks on the command line; all else comes from its input. */
export interface CommandLine {
  /** Inputs given by place, in order; a last one with many values takes the rest. */
  readonly positionals?: readonly string[];
  /** The input that takes everything after `--`. */
  readonly rest?: string;
  /** Whole command lines without `drover`. */
  readonly examples?: readonly string[];
  /** More for `--help`, in short lines. */
  readonly notes?: readonly string[];
  /** Flags that belong together, under a title, for a command with many; the others come first. */
  readonly sections?: readonly (readonly [title: string, keys: readonly string[]])[];
  /** After it, the command waits for the end of the run in the answer: always, or when asked; the input says which. */
  readonly waits?: { readonly unless?: string; readonly when?: string };
  /** Pairs of inputs of which only one may be given. */
  readonly excludes?: readonly (readonly [string, string])[];
  /** The input that names the run which is followed: on a terminal a line below its output says how it stands. */
  readonly watches?: string;
  /** Inputs that only the command line uses: they do not travel to the daemon. */
  readonly own?: readonly string[];
  /** The operation that is meant where nothing is given but the words by place: an editor instead of flags. */
  readonly alone?: string;
  /** The flag that asks for the answer as it comes; `follow` when left out. */
  readonly follows?: string;
  /** The answer is text that comes in pieces: on the command line it is always printed as it comes. */
  readonly pieces?: boolean;
  /** The exit status that an answer means, where it is not 0. */
  readonly exit?: (answer: never) => number;
  /** What `exit` may give beside 0, where that is not just 1. */
  readonly exits?: readonly number[];
}

export interface Operation<W extends Where = Where, F extends Fields = Fields, Out = unknown> {
  readonly name: string;
  readonly where: W;
  readonly summary: string;
  readonly input: F;
  readonly output: Shape;
  readonly cli: CommandLine;
  /** For `act`: a daemon is started for it where none runs. */
  readonly start: boolean;
  /** For `act`: the daemon does it for a command of any version. Its input may never change. */
  readonly anyVersion: boolean;
  /** For `local`: it works although the configuration is broken, with the usual settings. */
  readonly unconfigured: boolean;
  /** Kinds of errors that can come from it beside those that its place and its inputs bring; see `raisedBy`. */
  readonly raises: readonly ErrorKind[];
  /** Errors: AppErrors of its input and of what it names. */
  run(context: ContextOf[W], input: InputOf<F>): Promise<Out>;
  /** The answer as it comes, one item at a time, where the operation can be followed. */
  readonly follow: ((context: ContextOf[W], input: InputOf<F>, signal: AbortSignal) => AsyncIterable<unknown>) | null;
}

type Definition<W extends Where, F extends Fields, Out> = Omit<
  Operation<W, F, Out>,
  "start" | "anyVersion" | "unconfigured" | "raises" | "follow" | "cli"
> & {
  readonly start?: boolean;
  readonly anyVersion?: boolean;
  readonly unconfigured?: boolean;
  readonly raises?: readonly ErrorKind[];
  readonly cli?: CommandLine;
  readonly follow?: NonNullable<Operation<W, F, Out>["follow"]>;
};

/** Defines an operation. It is one file, and one line in `index.ts`. */
export function defineOperation<W extends Where, const F extends Fields, Out>(
  definition: Definition<W, F, Out>,
): Operation<W, F, Out> {
  return {
    ...definition,
    start: definition.start ?? false,
    anyVersion: definition.anyVersion ?? false,
    unconfigured: definition.unconfigured ?? false,
    raises: definition.raises ?? [],
    cli: definition.cli ?? {},
    follow: definition.follow ?? null,
  };
}

/** An operation whose types are not known any more: what a surface holds. Its input has been checked by `checkInput`. */
export interface AnyOperation {
  readonly name: string;
  readonly where: Where;
  readonly summary: string;
  readonly input: Fields;
  readonly output: Shape;
  readonly cli: CommandLine;
  readonly start: boolean;
  readonly anyVersion: boolean;
  readonly unconfigured: boolean;
  readonly raises: readonly ErrorKind[];
  run(context: never, input: never): Promise<unknown>;
  readonly follow: ((context: never, input: never, signal: AbortSignal) => AsyncIterable<unknown>) | null;
}

/** What is looked for, and may not be there. */
const NAMED = /^(loop|run|thing|account|step|attempt|file)\b/;
/** Of these a part of the name is enough, which may mean several. */
const IN_PART = /^(loop|run|thing|account)\b/;

/**
 * Every kind of error that an operation can end with: what any input and any bug bring, what its place brings (the store is
 * away or locked, the daemon is not there, a run asks without its token), what a name brings, and what it says itself.
 */
export function raisedBy({ where, input, raises, unconfigured }: AnyOperation): readonly ErrorKind[] {
  const kinds = new Set<ErrorKind>(["invalid", "internal", ...raises]);
  if (where !== "local" || !unconfigured) kinds.add("unreachable");
  if (where !== "local") kinds.add("conflict");
  if (where === "write" || where === "act") kinds.add("unauthorised");
  const names = (some: RegExp) => Object.values(input).some(({ completes }) => some.test(completes ?? ""));
  if (names(NAMED)) kinds.add("not_found");
  if (names(IN_PART)) kinds.add("conflict");
  return [...kinds];
}
