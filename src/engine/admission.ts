/** Lets work start: one pass of the store's admission at a time, while the disk has room. */
import type { Limits } from "../core/limits.ts";
import type { Files, Store } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
import type { Log } from "./ports.ts";
import type { Actor } from "./wake.ts";
import { passes } from "./weather.ts";

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
  /** Milliseconds of the store's clock until a hold ends that kept something back. */
  readonly heldFor: (ms: number) => void;
  readonly onRenewed: (answer: { readonly superseded: boolean; readonly lost: readonly string[] }) => void;
}

/** The actor `admit`. Below `minFreeBytes` nothing starts; what runs goes on. */
export function createAdmission(options: AdmissionOptions): Admission {
  const { store, files, limits, log, hostId, incarnation } = options;
  let short = false;
  /** The store knows it. On a disk that is full to the last block it cannot even be told so. */
  let told = true;
  /** A full disk was met although it looked as if it had room; the next look decides. */
  let met = false;
  let renewedAt = Number.NEGATIVE_INFINITY;
  let lookedAt = Number.NEGATIVE_INFINITY;

  /** It was there a moment ago, and nobody has met the contrary: then the pass joins the commit of what asks for it. */
  const wasRoomy = (): boolean => told && !short && !met && options.awake() - lookedAt < limits.diskLookMs;

  /** Whether there is room; tells the store when that has changed, at each look until it knows. */
  async function roomy(): Promise<boolean> {
    const freeBytes = await files.freeBytes();
    lookedAt = options.awake();
    const now = met || freeBytes < limits.minFreeBytes;
    met = false;
    if (now !== short) {
      short = now;
      told = false;
      log(now ? "warn" : "info", now ? "disk_short" : "disk_roomy", { freeBytes, minFreeBytes: limits.minFreeBytes });
    }
    if (told) return !short;
    try {
      told = (await store.hosts.report({ hostId, incarnation, status: short ? "disk" : "up" })) === "done";
    } catch (error) {
      // Nothing starts either way; the next look tells it.
      if (!short || !passes(error)) throw error;
    }
    return !short && told;
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
      // Known already: the next look comes by itself. Else each refused write would ask for the next one.
      if (!short) options.within(0);
    },
    doubtLease() {
      renewedAt = Number.NEGATIVE_INFINITY;
    },
    async tick() {
      if (!wasRoomy() && !(await roomy())) return options.within(limits.watchMs);
      // Both in one turn: they share a commit.
      const [, pass] = await Promise.all([freshen(), store.admission.pass({ hostId, incarnation, limits })]);
      if (pass.superseded === true) return options.onRenewed({ superseded: true, lost: [] });
      for (const assignment of pass.mine) options.take(assignment);
      if (pass.more) options.again();
      const { wakeAt, now } = pass;
      if (wakeAt !== null && wakeAt !== undefined && now !== undefined) options.heldFor(Math.max(1, wakeAt - now));
    },
  };
}
