/** Why each step of a workflow's run waits, was skipped, or did not do what it is for. */
import { describeRefusal } from "../../core/admission.ts";
import type { RunTree, StepRecord } from "../../core/records.ts";
import { isFinal } from "../../core/run.ts";
import { inWords } from "../fault-words.ts";
import type { StoreContext } from "../operation.ts";
import { isPlainWait, WAITS } from "./wait-words.ts";
import { inTime } from "./why-answer.ts";

export interface WhyStep {
  readonly step: string;
  readonly status: string;
  readonly reason: string | null;
  readonly sentence: string;
}

/** Ready steps whose place in the queue is asked for. */
const EXPLAINED = 20;

const list = (keys: readonly string[]): string =>
  keys.length <= 4 ? keys.join(", ") : `${keys.slice(0, 3).join(", ")} and ${keys.length - 3} others`;

/** Steps that have succeeded are left out: nobody wonders about them. */
export async function whySteps({ store, clock }: StoreContext, tree: RunTree): Promise<readonly WhyStep[]> {
  const { steps, attempts, needs = [] } = tree;
  const byId = new Map(steps.map((step) => [step.id, step]));
  const needsOf = (step: StepRecord): readonly StepRecord[] =>
    needs.filter(({ stepId }) => stepId === step.id).flatMap(({ needsStepId }) => byId.get(needsStepId) ?? []);
  const keys = (of: readonly StepRecord[]): string => list(of.map(({ key }) => key));
  let explained = 0;

  function skipped(step: StepRecord): string {
    const of = needsOf(step);
    const because = (reasons: readonly string[]): string =>
      keys(of.filter(({ reason }) => reason !== null && reasons.includes(reason)));
    switch (step.reason) {
      case "condition":
        return "Its `if` is not true.";
      case "blocked": {
        const gates = because(["blocked"]);
        const said = step.result?.message;
        return said == null ? `${gates || "A gate that it needs"} blocks.` : `It blocks: it ${inWords(said)}.`;
      }
      case "needs_skipped":
        return `It needs ${because(["condition", "needs_skipped"]) || "one"}, skipped by a condition.`;
      default:
        return `It needs ${keys(of.filter(({ status, continueOnFailure }) => status !== "succeeded" && !continueOnFailure)) || "one"}, which did not succeed.`;
    }
  }

  async function sentenceOf(step: StepRecord): Promise<string> {
    switch (step.status) {
      case "pending": {
        if (step.reason === "judge") return "Its definition is about to be asked whether it starts.";
        if (step.reason === "concurrency") return "It waits until another item of its step has ended.";
        if (step.reason === "items") {
          const items = steps.filter(({ parentStepId }) => parentStepId === step.id);
          return `${items.filter(({ status }) => isFinal(status)).length} of its ${items.length} items have ended.`;
        }
        if (step.reason === "paused") return "Its loop is paused.";
        if (step.reason === "turn") return "Earlier runs of its loop have not ended.";
        return `It waits for ${keys(needsOf(step).filter(({ status }) => !isFinal(status)))}.`;
      }
      case "ready": {
        const refusal =
          explained++ < EXPLAINED ? ((await store.admission.explain({ stepId: step.id }))?.refusal ?? null) : null;
        return refusal === null ? "It is queued." : `It is queued because ${inWords(describeRefusal(refusal))}.`;
      }
      case "waiting": {
        const until = step.wakeAt === null ? "" : `; it goes on ${inTime(step.wakeAt, clock.now())}`;
        return `It waits ${isPlainWait(step.reason) ? WAITS[step.reason] : `because of ${step.reason ?? "an unknown reason"}`}${until}.`;
      }
      case "running":
        return `It runs, try ${step.triesCounted + 1} of ${step.maxAttempts}.`;
      case "skipped":
        return skipped(step);
      case "cancelled":
        return `It was cancelled: ${step.reason ?? "no reason"}.`;
      case "failed":
      case "timed_out": {
        const last = attempts.filter(({ stepId }) => stepId === step.id).toSorted((a, b) => b.number - a.number)[0];
        const said = last?.message ?? step.result?.message;
        const goesOn = step.continueOnFailure ? "; what needs it goes on" : "";
        return `It ${step.status === "failed" ? "failed" : "timed out"}: ${said == null ? (step.reason ?? "nobody knows why") : inWords(said)}${goesOn}.`;
      }
      case "queued":
      case "succeeded":
        return "";
    }
  }

  const told: WhyStep[] = [];
  for (const step of steps) {
    const sentence = await sentenceOf(step);
    if (sentence !== "") told.push({ step: step.key, status: step.status, reason: step.reason, sentence });
  }
  return told;
}

/** How far a workflow's run is, as the middle of a sentence. */
export function progressOf({ steps }: Pick<RunTree, "steps">): string {
  const ended = steps.filter(({ status }) => isFinal(status)).length;
  const at = steps.filter(({ status }) => status === "running").map(({ key }) => key);
  const work = at.length === 0 ? "" : `, ${list(at)} ${at.length === 1 ? "is" : "are"} at work`;
  return `${ended} of ${steps.length} steps have ended${work}`;
}
