/** Ends what was cancelled: by a person, or by a newer run of its loop. */
import type { Store } from "../core/ports.ts";
import type { Runner } from "./runner.ts";
import type { Actor } from "./wake.ts";

/** The actor `cancels`. */
export function createCancels({
  store,
  runner,
  hostId,
}: {
  readonly store: Store;
  readonly runner: Runner;
  readonly hostId: string;
}): Actor {
  return {
    name: "cancels",
    async tick() {
      if (runner.lives().length === 0) return;
      for (const { attemptId, reason, superseded } of await store.attempts.toEnd({ hostId }))
        runner.end(attemptId, {
          by: "cancel",
          message: superseded ? "superseded by a newer run of its loop" : reason,
          inherited: false,
        });
    },
  };
}
