/** What every adapter says in the same way at an attempt's end. */
import type { AgentVerdict } from "../../core/agent.ts";
import type { FailureClass } from "../../core/run.ts";
import type { Surroundings } from "./adapter.ts";
import { oneLine } from "./event-fields.ts";
import { type ResetHints, resetTime } from "./reset-time.ts";

/** What is known of an attempt besides how it ended. */
export type Known = Pick<AgentVerdict, "text" | "sessionId" | "usage">;

/** A failure in the provider's words. */
export interface Failure {
  readonly class: FailureClass;
  readonly message: string;
  readonly httpStatus?: number | null;
  readonly refusedTools?: readonly string[];
  /** What was said about the end of a limit. */
  readonly reset?: ResetHints;
}

/** A verdict of success. */
export const succeeded = (known: Known): AgentVerdict => ({
  ...known,
  ok: true,
  class: null,
  message: null,
  resetAt: null,
  resetSource: null,
  httpStatus: null,
  refusedTools: [],
});

/** A verdict of failure; only limits have a reset. */
export function failed(known: Known, failure: Failure, surroundings: Surroundings, now: number): AgentVerdict {
  const limited = failure.class === "quota" || failure.class === "rate_limited" || failure.class === "overloaded";
  const reset = limited
    ? resetTime(
        { text: failure.message, ...failure.reset },
        { now, zone: surroundings.zone, longestMs: surroundings.limits.quotaLongestMs },
      )
    : null;
  return {
    ...known,
    ok: false,
    class: failure.class,
    message: oneLine(failure.message) || failure.class,
    resetAt: reset?.at ?? null,
    resetSource: reset?.source ?? null,
    httpStatus: failure.httpStatus ?? null,
    refusedTools: failure.refusedTools ?? [],
  };
}

/** How a process ended that said nothing about it: by its exit status, with the last words it had. */
export function endedWithoutResult(exit: number | null, words: string | null): Failure {
  const said = words === null || words.trim() === "" ? "" : `: ${oneLine(words)}`;
  if (exit === null) return { class: "no_result", message: `ended without a result${said}` };
  if (exit === 0) return { class: "no_result", message: `exited with 0 without a result${said}` };
  if (exit > 128) return { class: "signal", message: `ended by signal ${exit - 128} without a result${said}` };
  return { class: "exit", message: `exited with ${exit} without a result${said}` };
}

/** The end of one that said that it had succeeded, and then did not exit like that. */
export function contradicted(exit: number): Failure {
  return exit > 128
    ? { class: "signal", message: `said that it had succeeded, but was ended by signal ${exit - 128}` }
    : { class: "exit", message: `said that it had succeeded, but exited with ${exit}` };
}

/** The last line of an output that says something. */
export const lastLine = (text: string): string | null =>
  text
    .split("\n")
    .map((line) => line.trim())
    .findLast((line) => line !== "") ?? null;
