/** What surfaces are given by the composition root: the ways to this host's store and daemon. */
import type { Instant } from "../core/ports.ts";
import type { AgentTools, Build, Caller, Leftovers, Reach, StoreContext, WorktreeTools } from "./operation.ts";
import type { Places } from "./places.ts";
import type { Settings } from "./config/settings.ts";

/** An open store, for as long as its one use takes. */
export interface OpenContext {
  readonly context: StoreContext;
  close(): Promise<void>;
}

/** What a surface is given. */
export interface World extends Reach {
  readonly clock: { now(): Instant };
  readonly hostZone: string;
  readonly build: Build;
  readonly places: Places;
  /** Errors: AppError invalid `bad_config`, unreachable `config_unreadable`. */
  settings(): Promise<Settings>;
  /** The built-in settings alone, for what has to work with a broken configuration. */
  usualSettings(): Promise<Settings>;
  /** Who asks. Errors: AppError unauthorised when a run asks without its token, and `startsWork` says that one is needed. */
  caller(startsWork: boolean): Promise<Caller>;
  /** Opens the store for reading; null where there is none yet. */
  openReading(): Promise<OpenContext | null>;
  /** Takes the daemon's lock and opens the store for a short time; null while somebody else holds the lock. */
  openWriting(caller: Caller): Promise<OpenContext | null>;
  readonly agents: AgentTools;
  readonly trees: WorktreeTools;
  readonly leftovers: Leftovers;
  readonly isRoot: boolean;
  /** As `StoreContext` has it: also where there is no store yet. */
  readonly isFolder: StoreContext["isFolder"];
}
