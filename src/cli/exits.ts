/** What a command ends with: the one table from an error's kind to an exit status, that of a run's end, and who may end how. */
import type { ErrorKind } from "../core/errors.ts";
import { type AnyOperation, raisedBy } from "../ops/operation.ts";

/** The one table from an error's kind to the exit status. */
export const EXIT: { readonly [K in ErrorKind]: number } = {
  invalid: 2,
  not_found: 3,
  conflict: 4,
  unreachable: 5,
  unauthorised: 6,
  internal: 70,
};

/** Exit statuses that come from a run. */
export const RUN_EXIT = { failed: 1, person: 7, limit: 8, timedOut: 124, interrupted: 130 } as const;

/** What each exit status means, in the words of the help and the reference. */
export const EXIT_MEANINGS: readonly (readonly [status: number, meaning: string])[] = [
  [0, "it was done"],
  [RUN_EXIT.failed, "the work failed, or a check has findings"],
  [EXIT.invalid, "invalid use or input; nothing was changed"],
  [EXIT.not_found, "what was named is not there"],
  [EXIT.conflict, "a conflict: it exists, is busy, or has the wrong status for this"],
  [EXIT.unreachable, "the daemon or the store cannot be used"],
  [EXIT.unauthorised, "not authorised"],
  [RUN_EXIT.person, "the run waits for a person"],
  [RUN_EXIT.limit, "the run waits for a limit or a quota"],
  [EXIT.internal, "a fault of drover's own; it is kept in a file that the message names"],
  [RUN_EXIT.timedOut, "the run timed out"],
  [RUN_EXIT.interrupted, "interrupted or cancelled"],
];

/** Every status that a command may end with, ascending. */
export function exitsOf(operation: AnyOperation): readonly number[] {
  const { cli, start, follow } = operation;
  const exits = new Set([0, ...raisedBy(operation).map((kind) => EXIT[kind])]);
  if (cli.exit !== undefined) for (const status of cli.exits ?? [RUN_EXIT.failed]) exits.add(status);
  if (follow !== null || cli.waits !== undefined) exits.add(RUN_EXIT.interrupted);
  if (cli.waits !== undefined && start) for (const status of Object.values(RUN_EXIT)) exits.add(status);
  return [...exits].toSorted((a, b) => a - b);
}
