/** How long a run usually takes. */
import type { Store } from "../../core/ports.ts";

/** Successes that count, the newest ones. */
const USUAL_OF = 20;

/** The median of the newest other successes of its loop, or of the same work where it has none; null where there are none. */
export async function usualMs(store: Store, runId: string): Promise<number | null> {
  const took = await store.runs.durationsLike({ runId, limit: USUAL_OF });
  const sorted = took.toSorted((a, b) => a - b);
  return sorted[(sorted.length - 1) >> 1] ?? null;
}
