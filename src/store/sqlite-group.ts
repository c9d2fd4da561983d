/** Operations of several callers in one commit. */
import { ensure } from "../core/errors.ts";
import type { MintId } from "./driver.ts";
import { toStoreError } from "./errors.ts";
import type { Operation } from "./operation.ts";
import type { Sqlite } from "./sqlite-adapters.ts";
import { patiently, runnerAt, runSync } from "./sqlite-run.ts";

export interface GroupCall {
  readonly operation: Operation<never, unknown>;
  readonly input: unknown;
}

export type Answer = { readonly value: unknown } | { readonly error: Error };

/** Where a run of an operation can be cut off, for those who simulate crashes. */
export type CutPoint =
  | { readonly at: "ask"; readonly asks: number }
  | { readonly at: "commit" }
  | { readonly at: "answer" };

export interface GroupOptions {
  readonly connection: Sqlite;
  readonly place: string;
  /** The instant of the whole group. */
  readonly instant: number;
  readonly mint: MintId;
  /** A group takes no further caller after this time, so that one large wave does not delay its first. */
  readonly maxMs: number;
  readonly busyMs: number;
  /** Called with the lock held, before the first caller; throws when the store is no longer ours. */
  readonly check?: () => void;
  /** Called after each commit with the time that it took, in ms. */
  readonly committed?: (ms: number) => void;
  /** Called before each ask, before the commit and after it; what it throws leaves everything as a crash at that point would. */
  readonly cut?: (point: CutPoint, operation: string) => void;
}

/** Thrown by a `cut` to crash there; any other error would be a bug of the simulator. */
export class Crash extends Error {
  override readonly name = "Crash";
}

function rollback(connection: Sqlite): void {
  if (connection.inTransaction) connection.exec("rollback");
}

/**
 * Runs callers in order inside one transaction and commits it; answers only after the commit. May take fewer than were
 * given, at least one. A caller that fails leaves nothing and concerns nobody else; a failure of the transaction itself is
 * the answer of all who were in it.
 */
export function runGroup(calls: readonly GroupCall[], options: GroupOptions): readonly Answer[] {
  ensure(calls.length > 0, "a group has a caller");
  // Failures are rare: only after one does each caller get a savepoint of its own, which costs it two statements.
  const { connection } = options;
  const wary = waryFor.get(connection) ?? 0;
  if (calls.length > 1 && wary === 0) {
    const answers = runTogether(calls, options, false);
    if (answers !== null) return answers;
    waryFor.set(connection, WARY_GROUPS);
  } else if (wary > 0) waryFor.set(connection, wary - 1);
  return runTogether(calls, options, true) ?? [];
}

/** Groups after a failure in which each caller has a savepoint: where failures are frequent, nothing runs twice. */
const WARY_GROUPS = 64;
const waryFor = new WeakMap<Sqlite, number>();

/** @param apart each caller can fail for itself; else a failure ends all of it without a trace, and the answer is null */
function runTogether(calls: readonly GroupCall[], options: GroupOptions, apart: boolean): readonly Answer[] | null {
  const { connection, place, instant, mint, maxMs, busyMs, check, cut, committed } = options;
  const failAll = (count: number, cause: unknown): readonly Answer[] =>
    calls.slice(0, count).map(({ operation }) => ({ error: toStoreError(cause, place, operation.name) }));

  try {
    patiently(busyMs, () => connection.exec("begin immediate"));
  } catch (cause) {
    // Everybody: the next try would wait as long again.
    return failAll(calls.length, cause);
  }
  try {
    check?.();
  } catch (cause) {
    rollback(connection);
    return failAll(calls.length, cause);
  }
  const answers: Answer[] = [];
  try {
    const run = runnerAt(connection, instant);
    const shared = calls.length > 1;
    const endsAt = performance.now() + maxMs;
    for (const { operation, input } of calls) {
      if (shared && apart) connection.exec("savepoint caller");
      try {
        const steps = operation.steps(input as never, { id: (kind) => mint(kind, instant) });
        const value = runSync(steps, run, cut && ((asks) => cut({ at: "ask", asks }, operation.name)));
        if (shared && apart) connection.exec("release caller");
        answers.push({ value });
      } catch (error) {
        if (error instanceof Crash) throw error;
        if (!apart) {
          rollback(connection);
          return null;
        }
        // A full disk, and some other failures, roll the whole transaction back: then nobody in it succeeded.
        if (!connection.inTransaction) return failAll(answers.length + 1, error);
        if (!shared) {
          connection.exec("rollback");
          return [{ error: toStoreError(error, place, operation.name) }];
        }
        connection.exec("rollback to caller");
        connection.exec("release caller");
        answers.push({ error: toStoreError(error, place, operation.name) });
      }
      if (performance.now() >= endsAt) break;
    }
    const last = calls[answers.length - 1]?.operation.name ?? "";
    cut?.({ at: "commit" }, last);
    const commitsAt = performance.now();
    connection.exec("commit");
    committed?.(performance.now() - commitsAt);
    cut?.({ at: "answer" }, last);
    return answers;
  } catch (error) {
    rollback(connection);
    if (error instanceof Crash) throw error;
    return failAll(Math.max(answers.length, 1), error);
  }
}
