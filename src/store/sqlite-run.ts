/** Driving the vocabulary on one SQLite connection, on the caller's thread. */
import { BrokenAssert } from "../core/errors.ts";
import type { MintId } from "./driver.ts";
import { isSqliteBusy } from "./errors.ts";
import { readInstant } from "./operation.ts";
import type { Operation, Refusal, Result, Steps } from "./operation.ts";
import { render } from "./sql.ts";
import type { Sql } from "./sql.ts";
import type { Sqlite } from "./sqlite-adapters.ts";

/** The longest pause between two tries for a lock. SQLite's own waiting backs off to 100 ms and is unfair. */
export const BUSY_PAUSE_MS = 2;

const nap = new Int32Array(new SharedArrayBuffer(4));

/** Blocks this thread. For the writer's thread, and for opening. */
export const pauseSync = (ms: number): void => {
  Atomics.wait(nap, 0, 0, ms);
};

/** Tries until the lock is free, at most `busyMs`; blocks this thread meanwhile. */
export function patiently<T>(busyMs: number, attempt: () => T): T {
  let endsAt: number | undefined;
  for (;;) {
    try {
      return attempt();
    } catch (error) {
      endsAt ??= performance.now() + busyMs; // only now: at a start, Node's clock is 5 modules that are not loaded yet
      if (!isSqliteBusy(error) || performance.now() >= endsAt) throw error;
      pauseSync(Math.random() * BUSY_PAUSE_MS);
    }
  }
}

/** Drives a body to its end. `beforeAsk` is called with the number of asks so far; what it throws stops everything there, as a crash would. */
export function runSync<T>(steps: Steps<T>, run: (query: Sql) => Result, beforeAsk?: (asks: number) => void): T {
  let asks = 0;
  let finished = false;
  let move = steps.next(undefined as never);
  while (!move.done) {
    const ask = move.value;
    // PostgreSQL has committed by then; here it would only seem to work.
    if (finished) throw new BrokenAssert("an operation asked for something after its last statements");
    finished = ask.last;
    beforeAsk?.(asks++);
    const results: Result[] = [];
    let refusal: Refusal | undefined;
    for (const [index, query] of ask.queries.entries()) {
      try {
        results.push(run(query));
      } catch (cause) {
        refusal = { index, cause };
        break;
      }
    }
    move = refusal ? steps.throw(refusal) : steps.next(results);
  }
  return move.value;
}

/** How a connection answers the vocabulary at one instant. */
export const runnerAt =
  (connection: Sqlite, instant: number) =>
  (query: Sql): Result => {
    if (query === readInstant) return { rows: [{ now: instant }], changes: 0 };
    const { text, values, script } = render(query, "sqlite");
    if (!script) return connection.query(text, values, instant);
    connection.exec(text);
    return { rows: [], changes: 0 };
  };

/** Runs a question: all its statements see one state. @param beforeEnd what it throws leaves nothing of what was written */
export function runRead(
  connection: Sqlite,
  operation: Operation<never, unknown>,
  input: unknown,
  instant: number,
  mint: MintId,
  beforeEnd?: () => void,
): unknown {
  connection.exec("begin");
  let end = "rollback";
  try {
    const steps = operation.steps(input as never, { id: (kind) => mint(kind, instant) });
    const answer = runSync(steps, runnerAt(connection, instant));
    beforeEnd?.();
    end = "commit";
    return answer;
  } finally {
    // A read has nothing to keep; after an error of the disk SQLite may have ended it by itself.
    if (connection.inTransaction) connection.exec(end);
  }
}
