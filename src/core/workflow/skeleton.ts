/** A definition as the store keeps its steps: what starts when is decided by these rows, what runs by the text. */
import type { Condition } from "../run.ts";
import type { Workflow } from "./check-definition.ts";

/** A step by its place in the definition. */
export interface SkeletonStep {
  readonly key: string;
  readonly kind: string;
  readonly condition: Condition;
  readonly continueOnFailure: boolean;
  /** Places of the steps that it needs. */
  readonly needs: readonly number[];
}

/** Calls in an `if` that make it be asked whatever came of the needs; a text that has such a word in quotes is asked once too often. */
const ASKS = /\b(?:always|failure|success)\s*\(/;

/** What an `if` reads, by its text: `checkExpression` says the same, and needs the language for it. */
export const conditionOf = (written: string | boolean | undefined): Condition =>
  written === undefined ? "none" : typeof written === "string" && ASKS.test(written) ? "asks" : "plain";

export function skeletonOf({ definition }: Workflow): readonly SkeletonStep[] {
  const places = new Map(definition.steps.map(({ id }, place) => [id, place]));
  return definition.steps.map((step) => ({
    key: step.id,
    kind: step.type,
    condition: conditionOf(step.if),
    continueOnFailure: step.continueOnFailure === true,
    needs: (step.needs ?? []).flatMap((id) => places.get(id) ?? []),
  }));
}
