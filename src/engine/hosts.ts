/** What other hosts and other daemons did to our attempts, and what silent hosts left behind. */
import type { Limits } from "../core/limits.ts";
import type { Store } from "../core/ports.ts";
import type { Runner } from "./runner.ts";
import type { Actor } from "./wake.ts";

export interface HostsOptions {
  readonly store: Store;
  readonly limits: Limits;
  readonly runner: Runner;
  readonly hostId: string;
  readonly incarnation: number;
  /** Whether other hosts share the store. */
  readonly shared: boolean;
  readonly onTaken: () => void;
}

/** The actor `hosts`: compares what is at work here with what the store says. */
export function createHosts({ store, limits, runner, hostId, incarnation, shared, onTaken }: HostsOptions): Actor {
  return {
    name: "hosts",
    async tick() {
      // Named before the store is asked: what comes to be meanwhile is not among what was missed.
      const here = runner.lives().filter((life) => life.phase === "asked" && life.outcome === null && !life.busy);
      const mine = await store.attempts.ofHost({ hostId });
      const theirs = new Set(mine.map(({ attempt }) => attempt.id));
      for (const assignment of mine) {
        const { attempt } = assignment;
        // Another host's pass reserved it for us.
        if (attempt.status === "reserved" && attempt.incarnation === incarnation) runner.take(assignment);
      }
      runner.fence(here.filter((life) => !theirs.has(life.id) && life.outcome === null).map((life) => life.id));
      if (!shared) return;
      for (let some = false; ; some = true) {
        const { taken } = await store.attempts.takeOver({ hostId, limits });
        if (taken === 0) {
          if (some) onTaken();
          return;
        }
      }
    },
  };
}
