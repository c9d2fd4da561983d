/** What is known here of one attempt that is not over. */
import type { AgentReading } from "../core/agent.ts";
import type { Clock, Instant } from "../core/ports.ts";
import type { Assignment, WorktreeRecord } from "../core/records.ts";
import type { Outcome } from "../core/run.ts";
import type { AgentTarget } from "../core/target.ts";
import type { EndWish } from "./classify.ts";
import { createLatch, type Latch } from "./latch.ts";

/** One attempt that is not over. The runner writes to it, and whom it is handed to while it is busy; actors only read and ring. */
export interface Life {
  readonly id: string;
  readonly assignment: Assignment;
  /** Rung when there is something to look at. */
  readonly latch: Latch;
  token: number;
  /** `asked`: handed to the spawner, or found so. */
  phase: "reserved" | "asked";
  folder: string;
  bootId: string;
  /** Awake clock when it was handed to the spawner: time limits count from here. */
  awakeAt: number;
  askedAt: Instant;
  /** The store knows that it runs. */
  recorded: boolean;
  /** It was seen alive. */
  seen: boolean;
  /** Its bell rang since the last look began. A flag, because a look under way names its next one only at its end. */
  rung: boolean;
  /** An absent ticket may be decided at the next look. */
  plant: boolean;
  wish: EndWish | null;
  /** Its end is certain; only the store has to be told. */
  outcome: Outcome | null;
  /** Something is being done about it at this moment. */
  busy: boolean;
  /** Awake instants of the next looks: at its files and process, and at the size of its outputs. */
  judgeAt: number;
  measureAt: number;
  measuredAt: number;
  /** What `measure` said last: compared with itself only. */
  writtenMark: number;
  idleMs: number;
  endTries: number;
  mishaps: number;
  /** Of an agent: what its events have said so far. */
  readonly agent: AgentLife | null;
  /** Where it works, when that is a tree of its run's own. */
  tree: WorktreeRecord | null;
  /** Aborted when it is to end before it has begun: what is being made for it is not wanted any more. */
  readonly unwanted: AbortController;
}

/** What is known of the agent of a live attempt, from what it has said so far. */
export interface AgentLife {
  readonly target: AgentTarget;
  /** The session that the store knows. */
  sessionId: string | null;
  progress: number;
  /** That its model answers was told. */
  answered: boolean;
  /** Awake instants: since when its closing event is there, and since when the provider only tries again. */
  closedAt: number | null;
  troubleAt: number | null;
  trouble: AgentReading["trouble"];
  /** Whether the closing event was there when we began to end it; null while we do not. */
  closedFirst: boolean | null;
  /** Its events could not be read at the last look, which was told. */
  deaf: boolean;
  /** Lets the next start under its account in; null when nobody has to wait for this one. */
  open: (() => void) | null;
}

/** Where it begins: at what the store knows of it. @param bootId of this host, for one that was never started */
export function lifeOf(
  assignment: Assignment,
  phase: Life["phase"],
  clock: Pick<Clock, "awake" | "now">,
  bootId: string,
): Life {
  const { attempt } = assignment;
  const awake = clock.awake();
  return {
    id: attempt.id,
    assignment,
    latch: createLatch(),
    token: attempt.token,
    phase,
    folder: attempt.folder ?? `${attempt.id}.${attempt.token}`,
    bootId: attempt.bootId ?? bootId,
    awakeAt: attempt.awakeAt ?? awake,
    askedAt: attempt.startedAt ?? clock.now(),
    recorded: attempt.status === "running",
    seen: attempt.status === "running",
    rung: false,
    plant: phase === "asked",
    wish: null,
    outcome: null,
    busy: false,
    judgeAt: Number.POSITIVE_INFINITY,
    measureAt: Number.POSITIVE_INFINITY,
    measuredAt: awake,
    writtenMark: 0,
    idleMs: 0,
    endTries: 0,
    mishaps: 0,
    agent:
      assignment.run.target.kind === "agent"
        ? {
            target: assignment.run.target,
            sessionId: attempt.sessionRef,
            progress: 0,
            answered: false,
            closedAt: null,
            troubleAt: null,
            trouble: null,
            closedFirst: null,
            deaf: false,
            open: null,
          }
        : null,
    tree: assignment.worktree ?? null,
    unwanted: new AbortController(),
  };
}
