/** Looks at live attempts when nothing rings: dead shims, lost bells, sizes, time limits. */
import type { Clock } from "../core/ports.ts";
import type { Runner } from "./runner.ts";
import type { Actor } from "./wake.ts";

/** The actor `watch`: rings every attempt whose next look has come. Each names its own looks. */
export function createWatch({
  clock,
  runner,
  within,
}: {
  readonly clock: Clock;
  readonly runner: Runner;
  readonly within: (ms: number) => void;
}): Actor {
  return {
    name: "watch",
    async tick() {
      const awake = clock.awake();
      let next = Number.POSITIVE_INFINITY;
      for (const life of runner.lives()) {
        const at = Math.min(life.judgeAt, life.measureAt);
        // One that is being looked at names its next look when that is done.
        if (at <= awake) life.latch.ring();
        else next = Math.min(next, at);
      }
      if (next < Number.POSITIVE_INFINITY) within(next - awake);
    },
  };
}
