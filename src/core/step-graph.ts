/** The graph of a run's steps: what the end of one step means for those that need it. */
import { ensure, unreachable } from "./errors.ts";
import { type Condition, type FinalStatus, isFinal, type StepStatus } from "./run.ts";

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
export function readiness(needs: readonly NeedState[], condition: Condition): Readiness {
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

// --- Steps as the store keeps them -----------------------------------------------------------------------------------------

/** What becomes of a step when the last of its needs has ended: it is ready, its definition is asked, or it never starts. */
export type Followed = { readonly event: "unblock" | "ask" } | { readonly event: "skip"; readonly reason: SkipReason };

/** @param condition null of a step without a definition: nobody is asked. @param needs all of them, ended */
export function followed(condition: Condition | null, needs: readonly NeedState[]): Followed {
  const ready = readiness(needs, condition ?? "none");
  ensure(ready.does !== "wait", "it is followed when all that it needs has ended");
  if (ready.does === "skip") return { event: "skip", reason: ready.reason };
  return { event: condition === null ? "unblock" : "ask" };
}
