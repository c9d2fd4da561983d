/**
 * What the checks ask of this host, beside the store and the daemon. The composition root answers; nothing of it changes
 * anything but `end` and `closeToOthers`.
 */

export interface Disk {
  readonly freeBytes: number;
  /** null where the file system has no fixed number of files. */
  readonly freeFiles: number | null;
}

/** Limits of the processes that runs belong to; null where the system does not say. */
export interface HostLimits {
  readonly openFiles: number | null;
  /** Processes and threads of this user; null also where it does not apply, as for root. */
  readonly processes: number | null;
  /** What the cgroup still lets be made. */
  readonly cgroupRoom: number | null;
  /** Why no file watcher can be made; null: it can. */
  readonly watchFault: string | null;
}

export interface MarkedProcess {
  readonly pid: number;
  /** With the pid, its identity. */
  readonly pidStarted: string;
  readonly attemptId: string;
}

/** A tree that no record knows, or that is not as its record says. */
export interface TreeFault {
  readonly kind: "stray" | "locked" | "half_removed";
  readonly path: string;
  /** Why it may not be removed; empty: it may. */
  readonly holds: readonly string[];
}

export interface ClockGap {
  readonly at: number;
  readonly cause: string;
  readonly asleepMs: number;
  readonly steppedMs: number;
}

export interface FileFacts {
  readonly mode: number;
  readonly bytes: number;
  readonly madeAt: number;
  readonly changedAt: number;
}

export interface Probes {
  /** Looks at every page of the store's file. `whole`: it was done within `limitMs`. Nothing for other kinds of store. */
  storeFaults(limitMs: number): Promise<{ readonly faults: readonly string[]; readonly whole: boolean }>;
  /** Of the file system of a path, or of the nearest folder above it that is there. */
  disk(path: string): Promise<Disk>;
  /** PATH as processes get it, and as this process has it. */
  readonly path: string;
  readonly ownPath: string;
  /** A tool in the system's own folders. */
  findTool(name: string): string | null;
  /** Tools that are used where they are there, with what goes without them. */
  readonly tools: readonly { readonly name: string; readonly without: string }[];
  /** null when nothing is there. */
  stat(path: string): FileFacts | null;
  /** Names in a folder; empty when it is not there. */
  list(path: string): Promise<readonly string[]>;
  /** Takes everybody else's rights away from a folder. */
  closeToOthers(path: string): void;
  /** Whether attempts can have a cgroup each. */
  cgroups(): boolean;
  /** Live processes that carry an attempt's mark. */
  marked(): readonly MarkedProcess[];
  /** Ends it, if it is still that process; answers whether it is gone. */
  end(process: MarkedProcess): Promise<boolean>;
  /** A process by its pid: its state letter and its words; null when it is not there. */
  process(pid: number): { readonly state: string; readonly words: string } | null;
  /**
   * @param known trees of all records @param most trees that are looked into by git @param oldMs what is younger may be at work
   */
  trees(known: readonly string[], most: number, oldMs: number): Promise<readonly TreeFault[]>;
  /** Of the daemon, or of this process where none is up. */
  limits(pid: number | null): Promise<HostLimits>;
  /** Whether the system keeps its clock by a time server; null where it does not say. */
  clockSynchronised(): Promise<boolean | null>;
  /** Gaps that the daemon wrote into its log since then, oldest first. */
  clockGaps(since: number): Promise<readonly ClockGap[]>;
}
