/** What an end by a provider's limit means for its account: how long it takes no new work, and why. */
import { stableFraction } from "./chance.ts";
import type { Limits } from "./limits.ts";
import type { Instant } from "./ports.ts";
import type { AccountStatus } from "./records.ts";
import type { FailureClass } from "./run.ts";

export type LimitClass = "rate_limited" | "quota" | "auth";

export const isLimit = (of: FailureClass | null): of is LimitClass =>
  of === "rate_limited" || of === "quota" || of === "auth";

/** Added to a stated reset, so that not everybody comes in the same second: a tenth of the wait, at most this. */
const RESET_JITTER_MS = 60_000;

export interface LimitEnd {
  /** null: until a person releases it. */
  readonly untilAt: Instant | null;
  /** Limits in a row, this one included. */
  readonly limitEnds: number;
}

/**
 * The pause after a limit. A stated reset is kept, never shortened; without one the pause doubles with each limit in a row.
 * What was stated before and did not hold makes the pause double as well, so that `retry after 1 s`, said for ever, is no storm.
 */
export function limitEnd(
  of: {
    readonly class: LimitClass;
    readonly resetAt: Instant | null;
    readonly limitEnds: number;
    /** End of the hold that this class has put on the account already: attempts that were at work then met one limit, not several. */
    readonly heldUntil: Instant | null;
    /** The same key gives the same jitter. */
    readonly key: string;
  },
  limits: Limits,
  now: Instant,
): LimitEnd {
  const { resetAt, key } = of;
  const again = of.heldUntil !== null && of.heldUntil > now;
  const limitEnds = of.limitEnds + (again ? 0 : 1);
  if (of.class === "auth") return { untilAt: null, limitEnds };
  const atLeast = again ? (of.heldUntil ?? now) : now;
  const [baseMs, capMs] =
    of.class === "quota"
      ? [limits.quotaWaitMs, limits.quotaWaitCapMs]
      : [limits.throttleBackoffMs, limits.throttleBackoffCapMs];
  if (resetAt === null || resetAt <= now || resetAt - now > limits.quotaLongestMs)
    return { untilAt: again ? atLeast : now + pauseMs(baseMs, limitEnds, capMs, key), limitEnds };
  const jitterMs = Math.min(RESET_JITTER_MS, (resetAt - now) / 10) * stableFraction(key);
  const insistMs =
    again || limitEnds === 1 ? 0 : pauseMs(limits.throttleBackoffMs, limitEnds, limits.throttleBackoffCapMs, key);
  return { untilAt: Math.max(atLeast, Math.ceil(resetAt + jitterMs), now + insistMs), limitEnds };
}

/** What an account is called under these holds: the word of the one that asks most of somebody. */
export function statusUnder(classes: readonly LimitClass[]): AccountStatus {
  if (classes.includes("auth")) return "auth";
  return classes.includes("quota") ? "quota" : classes.includes("rate_limited") ? "throttled" : "ok";
}

/** A doubling pause with jitter from 1 to 1.5: never shorter than was said. @param nth 1 for the first */
export function pauseMs(baseMs: number, nth: number, capMs: number, key: string): number {
  const doubled = Math.min(capMs, baseMs * 2 ** Math.min(Math.max(0, nth - 1), 30));
  return Math.round(doubled * (1 + stableFraction(key) / 2));
}

/** How many doublings it takes from the first pause to the longest. */
export const doublingsTo = (baseMs: number, capMs: number): number =>
  Math.max(0, Math.ceil(Math.log2(capMs / Math.max(1, baseMs))));
