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
  readonly status: AccountStatus;
  /** Limits in a row, this one included. */
  readonly limitEnds: number;
}

/**
 * The pause after a limit. A stated reset is kept, never shortened; without one the pause doubles with each limit in a row.
 * @param key the same key gives the same jitter
 */
export function limitEnd(
  of: {
    readonly class: LimitClass;
    readonly resetAt: Instant | null;
    readonly limitEnds: number;
    readonly key: string;
  },
  limits: Limits,
  now: Instant,
): LimitEnd {
  const limitEnds = of.limitEnds + 1;
  if (of.class === "auth") return { untilAt: null, status: "auth", limitEnds };
  const status = of.class === "quota" ? "quota" : "throttled";
  const { resetAt } = of;
  if (resetAt !== null && resetAt > now && resetAt - now <= limits.quotaLongestMs) {
    const jitterMs = Math.min(RESET_JITTER_MS, (resetAt - now) / 10) * stableFraction(of.key);
    return { untilAt: Math.ceil(resetAt + jitterMs), status, limitEnds };
  }
  const [baseMs, capMs] =
    of.class === "quota"
      ? [limits.quotaWaitMs, limits.quotaWaitCapMs]
      : [limits.throttleBackoffMs, limits.throttleBackoffCapMs];
  return { untilAt: now + pauseMs(baseMs, limitEnds, capMs, of.key), status, limitEnds };
}

/** A doubling pause with jitter from 1 to 1.5: never shorter than was said. @param nth 1 for the first */
export function pauseMs(baseMs: number, nth: number, capMs: number, key: string): number {
  const doubled = Math.min(capMs, baseMs * 2 ** Math.min(Math.max(0, nth - 1), 30));
  return Math.round(doubled * (1 + stableFraction(key) / 2));
}
