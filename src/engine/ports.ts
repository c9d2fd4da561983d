/** What the engine is given: the world behind ports, and a few words from the composition root. */
import type { Limits } from "../core/limits.ts";
import type { Agents, Clock, Files, JoinHost, Notifier, Random, Spawner, Store, Worktrees } from "../core/ports.ts";

export type LogLevel = "debug" | "info" | "warn" | "error";
/** One line of the daemon's log: an event's name and its facts. */
export type Log = (level: LogLevel, event: string, data?: Readonly<Record<string, unknown>>) => void;

/** Renews the host's lease from a thread of its own for as long as the main loop is alive. */
export interface Heartbeat {
  /** The main loop is alive, and whether this host has attempts. Called at each wake-up, so at least every `longestSleepMs`. */
  beat(live: boolean): void;
  stop(): Promise<void>;
}

export interface HeartbeatRequest {
  readonly hostId: string;
  readonly incarnation: number;
  readonly leaseMs: number;
  readonly everyMs: number;
  /** What a renewal answered: `lost` are attempts whose token is no longer ours. */
  readonly onAnswer: (answer: { readonly superseded: boolean; readonly lost: readonly string[] }) => void;
}

/** Places at which a fault test stops or kills the process; `id` is the attempt's. In the order of an attempt's life. */
export type PointName = "claimed" | "recorded" | "spawned" | "exited" | "settled";

export interface EnginePorts {
  readonly clock: Clock;
  readonly random: Random;
  readonly store: Store;
  readonly spawner: Spawner;
  readonly files: Files;
  readonly notifier: Notifier;
  readonly agents: Agents;
  readonly worktrees: Worktrees;
  startHeartbeat(request: HeartbeatRequest): Heartbeat;
  /** The signed token that a run's processes carry, so that what they start knows its depth. */
  signToken(run: { readonly runId: string; readonly depth: number }): string;
  readonly log: Log;
  readonly point?: (name: PointName, id: string) => void | Promise<void>;
}

export interface EngineOptions {
  readonly host: JoinHost;
  readonly limits: Limits;
  /** Value of `DROVER_SOCKET`. */
  readonly socket: string;
  /** Fires no schedules; `idle` resolves when nothing is live. */
  readonly untilIdle: boolean;
  /**
   * How often everything is looked at without being told, where other hosts share the store: a lost notification and a
   * silent host are found by this. null where this host is alone, which then asks the store nothing at rest.
   */
  readonly sweepMs: number | null;
}
