/** What is said of a bundle that was taken in. */
import type { BundleEntry, Outcome } from "./bundle-plan.ts";
import { boolean, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";

export const outcomes = [
  "create",
  "same",
  "replace",
  "conflict",
  "blocked",
  "skip",
] as const satisfies readonly Outcome[];

export const entriesShape = listOf(
  object({
    kind: oneOf(["account", "limit", "loop"]),
    name: string,
    outcome: oneOf(outcomes),
    notes: listOf(string),
  }),
);

export const bundleAnswerShape = object({
  file: string,
  dryRun: boolean,
  /** false: nothing was changed. */
  applied: boolean,
  entries: entriesShape,
  counts: object(Object.fromEntries(outcomes.map((one) => [one, integer]))),
  todo: listOf(string),
  /** What was new of the history in the bundle; null where none was taken. */
  history: nullable(object({ runs: integer, slots: integer })),
});

export const hasConflicts = (entries: readonly BundleEntry[]): boolean =>
  entries.some(({ outcome }) => outcome === "conflict" || outcome === "blocked");

export const countsOf = (entries: readonly BundleEntry[]): Readonly<Record<Outcome, number>> =>
  Object.fromEntries(outcomes.map((one) => [one, entries.filter(({ outcome }) => outcome === one).length])) as Record<
    Outcome,
    number
  >;
