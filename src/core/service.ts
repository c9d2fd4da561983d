/**
 * The user's service manager, as drover asks it. It starts the daemon with the session or the machine, and again when it
 * died; what runs is none of its business.
 */

export type ServiceKind = "systemd" | "launchd";

/** Whether a user's services outlive the user's last session. */
export type Linger = "on" | "off" | "unknown";

/** What the service manager says of one service. */
export interface ServiceLook {
  /** Why it could not be asked, in its own words; null when it was. Everything else is unknown then. */
  readonly fault: string | null;
  /** Whether it knows a service of this name. */
  readonly loaded: boolean;
  /** The file that it read; null where it says none. */
  readonly file: string | null;
  /** Files beside it by which somebody changed the service. */
  readonly dropIns: readonly string[];
  /** Whether it starts by itself. */
  readonly enabled: boolean;
  /** `waiting`: it died, and is started again in a moment. */
  readonly state: "active" | "starting" | "waiting" | "stopping" | "failed" | "inactive";
  readonly pid: number | null;
  /** How the last one ended, in the manager's word; null where it says nothing. */
  readonly result: string | null;
  /** How often it was started again. */
  readonly restarts: number;
  /** The file was changed after the manager read it. */
  readonly stale: boolean;
  /** null where services do not depend on sessions. */
  readonly linger: Linger | null;
}

/** One service manager, and the calls that drover makes of it. Errors: AppError unreachable `service_unreachable`, `service_failed`. */
export interface ServiceControl {
  readonly kind: ServiceKind;
  /** Where it usually looks for this user's services, best first; it is not asked. */
  usualFolders(): readonly [string, ...string[]];
  /** Where it does, as it says itself. Where it cannot be asked, the first of the usual ones. */
  folder(): Promise<string>;
  /** Never throws: what cannot be asked is said in `fault`. */
  look(name: string): Promise<ServiceLook>;
  /** It reads its files again. */
  reload(): Promise<void>;
  /** From now on it starts by itself. */
  enable(name: string): Promise<void>;
  disable(name: string): Promise<void>;
  /** Starts it, or does nothing where it runs. */
  start(name: string): Promise<void>;
  /** Ends the daemon, which leaves what runs alone, and returns when it is gone. */
  stop(name: string): Promise<void>;
}
