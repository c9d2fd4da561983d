/** What a new daemon does first: every attempt that its host still has is adopted, settled or given back. */
import type { Limits } from "../core/limits.ts";
import type { Store } from "../core/ports.ts";
import { createGate } from "./gate.ts";
import type { Log } from "./ports.ts";
import type { Runner } from "./runner.ts";
import type { Weather } from "./weather.ts";

export interface RecoveryOptions {
  readonly store: Store;
  readonly limits: Limits;
  readonly runner: Runner;
  readonly weather: Weather;
  readonly log: Log;
  readonly hostId: string;
  readonly incarnation: number;
}

/** Resolves when each of them is adopted or its end is certain; settling them goes on behind it. */
export async function recover(options: RecoveryOptions): Promise<number> {
  const { store, limits, runner, weather, log, hostId, incarnation } = options;
  const mine = await weather.persist("attempts.ofHost", () => store.attempts.ofHost({ hostId }));
  const gate = createGate(limits.recoverAtOnce);
  await Promise.all(
    mine.map((assignment) => {
      const { status, incarnation: given } = assignment.attempt;
      // Reserved for this very start by another host's pass.
      if (status === "reserved" && given === incarnation) return runner.take(assignment);
      return gate.run(() => runner.resume(assignment));
    }),
  );
  if (mine.length > 0) log("info", "recovered", { attempts: mine.length });
  return mine.length;
}
