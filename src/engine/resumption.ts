/** Whether an agent's next attempt goes on with the session of the one before, and what it is told. */
import type { Assignment } from "../core/records.ts";
import type { FailureClass } from "../core/run.ts";

/**
 * Ends after which the session is worth going on with: weather, our own limits, and checks that it can still meet. After
 * a full context, a refusal or nonsense the same session would meet the same wall.
 */
const RESUMED: ReadonlySet<FailureClass> = new Set([
  "rate_limited",
  "quota",
  "overloaded",
  "auth",
  "network",
  "lost",
  "timeout",
  "idle_timeout",
  "signal",
  "cancelled",
  "check_failed",
  "turn_limit",
]);

export interface Resumption {
  /** The session to go on with; null begins afresh. */
  readonly sessionId: string | null;
  /** What the agent reads first; null for its first attempt. */
  readonly note: string | null;
}

export function resumption(before: Assignment["before"], canResume: boolean): Resumption {
  if (before === null || before === undefined) return { sessionId: null, note: null };
  const why = before.message ?? before.class ?? "it was interrupted";
  const resumes = canResume && before.sessionId !== null && (before.class === null || RESUMED.has(before.class));
  if (resumes)
    return {
      sessionId: before.sessionId,
      note: `Your last turn was interrupted (${why}). Look at what is already done, and finish the task.`,
    };
  return {
    sessionId: null,
    note: `An earlier attempt at this task ended (${why}). Some of its work may be there already: look before you begin.`,
  };
}
