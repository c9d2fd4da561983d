/** Lets work start: one pass of the store's admission at a time, while the disk has room. */
import type { Limits } from "../core/limits.ts";
import type { Files, Store } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
import type { Log } from "./ports.ts";
import type { Actor } from "./wake.ts";

export interface Admission extends Actor {
  /** Somebody met a full disk. */
  full(): void;
  /** The host's lease has to be renewed before the next pass, whatever was thought. */
  doubtLease(): void;
}

export interface AdmissionOptions {
  readonly store: Store;
  readonly files: Files;
  readonly limits: Limits;
  readonly log: Log;
  readonly hostId: string;
  readonly incarnation: number;
  readonly awake: () => number;
  readonly take: (assignment: Assignment) => void;
  readonly again: () => void;
  readonly within: (ms: number) => void;
  readonly onRenewed: (answer: { readonly superseded: boolean; readonly lost: readonly string[] }) => void;
}

/** The actor `admit`. Below `minFreeBytes` nothing starts; what runs goes on. */
export function createAdmission(options: AdmissionOptions): Admission {
  const { store, files, limits, log, hostId, incarnation } = options;
  let short = false;
  /** A full disk was met although it looked as if it had room; the next look decides. */
  let met = false;
  let renewedAt = Number.NEGATIVE_INFINITY;

  /** Whether there is room; tells the store when that has changed. */
  async function roomy(): Promise<boolean> {
    const freeBytes = await files.freeBytes();
    const now = met || freeBytes < limits.minFreeBytes;
    met = false;
    if (now === short) return !now;
    const answer = await store.hosts.report({ hostId, incarnation, status: now ? "disk" : "up" });
    if (answer !== "done") return false;
    short = now;
    log(now ? "warn" : "info", now ? "disk_short" : "disk_roomy", { freeBytes, minFreeBytes: limits.minFreeBytes });
    return !now;
  }

  /** Where a host without attempts renews nothing, its lease is over by the time that it has work again. */
  async function freshen(): Promise<void> {
    const awake = options.awake();
    if (awake - renewedAt < limits.renewMs) return;
    renewedAt = awake;
    try {
      options.onRenewed(await store.hosts.renew({ hostId, incarnation, leaseMs: limits.leaseMs }));
    } catch (error) {
      renewedAt = Number.NEGATIVE_INFINITY;
      throw error;
    }
  }

  return {
    name: "admit",
    full() {
      met = true;
      options.within(0);
    },
    doubtLease() {
      renewedAt = Number.NEGATIVE_INFINITY;
    },
    async tick() {
      if (!(await roomy())) return options.within(limits.watchMs);
      // Both in one turn: they share a commit.
      const [, pass] = await Promise.all([freshen(), store.admission.pass({ hostId, limits })]);
      for (const assignment of pass.mine) options.take(assignment);
      if (pass.more) options.again();
    },
  };
}
