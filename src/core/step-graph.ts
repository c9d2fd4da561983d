/** The graph of a run's steps: what the end of one step means for those that need it. */
import { unreachable } from "./errors.ts";
import { type FinalStatus, isFinal, type StepStatus } from "./run.ts";

// --- The truth table -------------------------------------------------------------------------------------------------------

/** Why a step was skipped. Closed: the truth table has a row for each. */
export const skipReasons = ["condition", "needs", "needs_skipped", "blocked"] as const;
export type SkipReason = (typeof skipReasons)[number];

/** What an end says to the steps that need it, the worst one last: what is said to a step is the worst that any need says. */
export const verdicts = ["met", "skipped", "blocked", "failed"] as const;
export type Verdict = (typeof verdicts)[number];

/** A way in which a step can end, and what follows. */
export interface EndRow {
  readonly status: FinalStatus;
  /** Of skipped steps. */
  readonly reason: SkipReason | null;
  /** When it comes to that. */
  readonly when: string;
  readonly says: Verdict;
  /** What it says with `continueOnFailure`. */
  readonly saysAllTheSame: Verdict;
  /** The run fails because of it, unless the step has `continueOnFailure`. */
  readonly failsRun: boolean;
}

/** Every way in which a step can end. */
export const endTable: readonly EndRow[] = [
  row("succeeded", null, "it did what it is for", "met", false),
  row("failed", null, "its tries are used up", "failed", true),
  row("timed_out", null, "its time is up", "failed", true),
  // Whoever cancels a run wants nothing of it to start.
  { ...row("cancelled", null, "the run was cancelled", "failed", false), saysAllTheSame: "failed" },
  row("skipped", "condition", "its own `if` is false", "skipped", false),
  row("skipped", "needs_skipped", "what it needs was skipped by a condition", "skipped", false),
  row("skipped", "blocked", "it is a gate that blocks, or needs one", "blocked", false),
  row("skipped", "needs", "what it needs did not succeed", "failed", false),
];

function row(status: FinalStatus, reason: SkipReason | null, when: string, says: Verdict, failsRun: boolean): EndRow {
  return { status, reason, when, says, saysAllTheSame: "met", failsRun };
}

/** What becomes of a step whose `if` asks nothing about the ends, by the worst that its needs say; null: its `if` decides, if it has one. */
export const skippedBy: { readonly [V in Verdict]: SkipReason | null } = {
  met: null,
  skipped: "needs_skipped",
  blocked: "blocked",
  failed: "needs",
};

/** A need of a step, as it has ended or has not. */
export interface NeedState {
  readonly status: StepStatus;
  readonly reason: string | null;
  readonly continueOnFailure: boolean;
}

/** What a step waits for, may do, or will not do. */
export type Readiness =
  | { readonly does: "wait" }
  | { readonly does: "start" }
  /** Its `if` decides: the step starts, or is skipped with the reason `condition`. What `failure()` and `success()` are. */
  | { readonly does: "ask"; readonly failed: boolean; readonly met: boolean }
  | { readonly does: "skip"; readonly reason: SkipReason };

/** What the end of a need says; null while it has not ended. */
function verdictOf({ status, reason, continueOnFailure }: NeedState): Verdict | null {
  if (!isFinal(status)) return null;
  const found = endTable.find((one) => one.status === status && (one.reason === null || one.reason === reason));
  // A reason that no row has, as of a run from before there was one: whoever needs it does not start.
  if (found === undefined) return "failed";
  return continueOnFailure ? found.saysAllTheSame : found.says;
}

/**
 * Whether a step can start. It looks at nothing before all that the step needs has ended: so what becomes of it is the same in
 * whatever order they end. @param condition what the step's `if` reads: `none` without one, `asks` where it has `always()`,
 * `failure()` or `success()` in it
 */
export function readiness(needs: readonly NeedState[], condition: "none" | "plain" | "asks"): Readiness {
  const said = needs.map(verdictOf);
  if (said.includes(null)) return { does: "wait" };
  const worst = verdicts.findLast((verdict) => said.includes(verdict)) ?? "met";
  switch (condition) {
    case "asks":
      return { does: "ask", failed: said.includes("failed"), met: worst === "met" };
    case "plain":
    case "none": {
      const reason = skippedBy[worst];
      if (reason !== null) return { does: "skip", reason };
      return condition === "none" ? { does: "start" } : { does: "ask", failed: false, met: true };
    }
    default:
      return unreachable(condition);
  }
}

// --- Steps without conditions, as the store keeps them ---------------------------------------------------------------------

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
export const unblocks = (ended: StepStatus): boolean =>
  verdictOf({ status: ended, reason: null, continueOnFailure: false }) === "met";

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
