/** All ports: what the engine asks of the world. Time, chance and failure come in through here, so that they can be made up. */
import type { Target } from "./target.ts";

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
  readonly target: Target;
  /** Variables that drover itself sets (`DROVER_*`), without `DROVER_OUTPUT`, which the spawner adds. */
  readonly variables: Readonly<Record<string, string>>;
  /** What the process reads on standard input. */
  readonly input: string | Uint8Array;
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

/** Starts processes so that they outlive us, and says what became of them. */
export interface Spawner {
  /** This boot of this host. */
  readonly bootId: string;
  /**
   * Makes the attempt's folder and its standard input, resolves its secrets and composes its environment.
   * Nothing has started. Errors: AppError `secret_unresolved`, `no_space`, `env_invalid`.
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
  measure(folder: string): { readonly stdoutBytes: number; readonly stderrBytes: number };
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
   * `changes` and `commit` compare the working directory's repository with what `prepare` saw.
   */
  unmet(folder: string, target: Target): Promise<string | null>;
  /** Free bytes of the file system that holds the state. */
  freeBytes(): Promise<number>;
  /** Names of all attempt folders, for the janitor. */
  folders(): Promise<readonly string[]>;
  /** Removes an attempt's bell, and its folder too when `whole`. */
  remove(folder: string, whole: boolean): Promise<void>;
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
