/** The graph of a run's steps: what the end of one step means for those that need it. */
import { isFinal, type StepStatus } from "./run.ts";

/** One step needs another to have succeeded before it may start. */
export interface Need {
  readonly stepId: string;
  readonly needsStepId: string;
}

/** What of a step the graph looks at. `needsLeft`: of those that it needs, how many have not succeeded. */
export interface GraphStep {
  readonly id: string;
  readonly status: StepStatus;
  readonly needsLeft: number;
}

/** What becomes of a step because of another one's end: `null` when it goes on waiting for others. */
export interface Followed {
  readonly id: string;
  readonly needsLeft: number;
  readonly event: "unblock" | "skip" | null;
}

/** Whether the end of a step lets others go on, or keeps them from ever starting. */
export const unblocks = (ended: StepStatus): boolean => ended === "succeeded";

/**
 * What follows from the end of a step, in the order of `steps`. After a success those that needed nothing else are
 * unblocked; after any other end all that need it, directly or through others, are skipped. What is at work or has ended
 * stays as it is. @param needs after a success those of `ended` alone are enough, else all of the run
 */
export function follow(
  { id, status }: Pick<GraphStep, "id" | "status">,
  steps: readonly GraphStep[],
  needs: readonly Need[],
): readonly Followed[] {
  if (!isFinal(status)) return [];
  if (unblocks(status)) {
    const direct = new Set(needs.filter((need) => need.needsStepId === id).map((need) => need.stepId));
    return steps
      .filter((step) => step.status === "pending" && direct.has(step.id))
      .map((step) => {
        const needsLeft = Math.max(0, step.needsLeft - 1);
        return { id: step.id, needsLeft, event: needsLeft === 0 ? "unblock" : null };
      });
  }
  const barred = new Set([id]);
  // Each round bars those that need one of the last round's; a graph has no circle, and one that had would end all the same.
  for (let before = 0; before < barred.size; ) {
    before = barred.size;
    for (const need of needs) if (barred.has(need.needsStepId)) barred.add(need.stepId);
  }
  barred.delete(id);
  return steps
    .filter((step) => step.status === "pending" && barred.has(step.id))
    .map((step) => ({ id: step.id, needsLeft: step.needsLeft, event: "skip" }));
}
