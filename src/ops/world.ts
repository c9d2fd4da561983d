/** What surfaces are given by the composition root: the ways to this host's store and daemon. */
import type { Instant } from "../core/ports.ts";
import type {
  AgentTools,
  Build,
  Caller,
  DaemonAnswer,
  Finding,
  Health,
  StoreContext,
  TerminalCommand,
  WorktreeTools,
} from "./operation.ts";
import type { Places } from "./places.ts";
import type { Settings } from "./settings.ts";

export interface OpenContext {
  readonly context: StoreContext;
  close(): Promise<void>;
}

export interface World {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
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
  askDaemon(): Promise<DaemonAnswer>;
  lockHolder(): Promise<{ readonly pid: number | null } | null>;
  /** Errors: AppError unreachable `daemon_down` when nobody listens, and what the daemon answers. */
  call(name: string, input: unknown): Promise<unknown>;
  startDaemon(mode: "full" | "until_idle"): Promise<{ readonly health: Health; readonly started: boolean }>;
  beDaemon(mode: "full" | "until_idle"): Promise<void>;
  inspect(fix: boolean): Promise<readonly Finding[]>;
  wait(ms: number): Promise<void>;
  readonly agents: AgentTools;
  readonly trees: WorktreeTools;
  readonly isRoot: boolean;
  readonly hasTerminal: boolean;
  attach(command: TerminalCommand): Promise<number>;
}
