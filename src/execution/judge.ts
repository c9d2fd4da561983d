import type { Judgement } from "../core/ports.ts";
import type { RunRecord } from "./attempt-folder.ts";

/** A process that is there now. */
export interface Seen {
  readonly pid: number;
  readonly started: string;
}

/** All that can be known about an attempt at one moment. Files are read before processes are looked at. */
export interface Evidence {
  /** Whether the attempt was asked for in this boot. */
  readonly sameBoot: boolean;
  readonly folderThere: boolean;
  readonly run: RunRecord | null;
  /** The shim, when the identity in `id` is alive. */
  readonly shim: Seen | null;
  /** Whether the shim's identity could be read; `torn` is a file without a whole line. */
  readonly id: "none" | "torn" | "whole";
  /** The command, when the identity in the `cmd` line is alive. */
  readonly command: Seen | null;
  /** A live process with the attempt's mark; looked for only when asked by `look`. */
  readonly marked: Seen | null;
  /** Clock ticks since boot at which the command (else the shim) started; null where unknown. */
  readonly startedTicks: number | null;
  readonly startedAt: number;
  readonly endedAt: number;
}

/** What has been done so far within one judgement. */
export interface Progress {
  readonly mayPlant: boolean;
  readonly planted: "planted" | "refused" | "gone" | null;
  /** `knownDead` holds between the reading before and this one. */
  readonly readAgain: boolean;
  /** Marked processes were looked for. */
  readonly looked: boolean;
}

/** A judgement, or what has to be done before one is possible. */
export type Verdict = { readonly judgement: Judgement } | { readonly next: "plant" | "read_again" | "look" };

/**
 * Whether the later of two readings read `run` when the shim was known to be dead. One repeated reading is not enough: an
 * `id` that was read before it was whole makes a living shim look dead, and its record may come between the second reading
 * and its death.
 */
export const knownDead = (before: Evidence, now: Evidence): boolean =>
  before.shim === null && now.shim === null && before.id === now.id;

const say = (judgement: Judgement): Verdict => ({ judgement });

/** A clock tick of /proc, fixed at 100 a second for user space. */
const TICK_MS = 10;

/**
 * The recovery table of the attempt's folder; first match wins. The same for the running daemon, for recovery and for a
 * replaced spawner. Never infers from silence: absence means "never started" only once the tombstone stands, and within
 * the same boot.
 */
export function judge(evidence: Evidence, progress: Progress): Verdict {
  const { run, shim, command } = evidence;
  // 1, 2: after a reboot (perhaps a power cut) only a record is worth anything; an absent file proves nothing.
  if (!evidence.sameBoot)
    return say(run?.exit ? ended(evidence, run, run.exit) : { kind: "lost", why: "host_restarted" });
  // 3: somebody deleted the folder, perhaps while it ran. It is never made again to plant in: that would turn "ran" into "never".
  if (!evidence.folderThere || progress.planted === "gone") {
    if (!progress.looked) return { next: "look" };
    const alive = shim ?? evidence.marked;
    return say(
      alive === null
        ? { kind: "lost", why: "folder_vanished" }
        : { kind: "live", pid: alive.pid, pidStarted: alive.started, started: true },
    );
  }
  if (run === null) {
    // 4, 5
    if (!progress.mayPlant) return say({ kind: "asked" });
    // Refused and still absent: somebody removed `run`; what it said is unknown.
    if (progress.planted === "refused") return say({ kind: "lost", why: "exit_unknown" });
    return { next: "plant" };
  }
  // 6
  if (run.ticket === "void") return say(neverStarted(evidence));
  // 7
  if (run.exit !== null) return say(ended(evidence, run, run.exit));
  // 8
  if (shim !== null) {
    const named = command ?? shim;
    return say({ kind: "live", pid: named.pid, pidStarted: named.started, started: run.commandSeen });
  }
  // 9: it may have written its record between our reading and its death.
  if (!progress.readAgain) return { next: "read_again" };
  // 10: `go` is written before the fork.
  if (run.ticket === null) return say(neverStarted(evidence, "no space"));
  // 11
  if (command !== null) return say({ kind: "orphan", pid: command.pid, pidStarted: command.started });
  // 12
  return say({ kind: "lost", why: "exit_unknown" });
}

function neverStarted(evidence: Evidence, why = "no ticket was taken"): Judgement {
  // An `id` without its line: the shim found no room to write it, and left.
  return { kind: "never_started", why: evidence.id === "torn" ? "no space" : why };
}

function ended(evidence: Evidence, run: RunRecord, exit: NonNullable<RunRecord["exit"]>): Judgement {
  const { startedTicks, startedAt, endedAt } = evidence;
  // Both count from the boot, suspend included; a step of the wall clock changes neither.
  const durationMs =
    startedTicks === null || exit.uptimeMs === null ? null : Math.max(0, exit.uptimeMs - startedTicks * TICK_MS);
  return {
    kind: "ended",
    exit: exit.status,
    ...(run.fault === null ? {} : { fault: run.fault }),
    startedAt,
    endedAt,
    durationMs,
  };
}
