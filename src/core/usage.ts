/** What an attempt used, out of what its provider counted: some count each attempt, some all attempts of a session. */
import type { Usage } from "./agent.ts";

/** What is known of a session's usage before an attempt ends in it. */
export interface SessionUsage {
  /** As its provider counted at the end of the attempt before; null: not known. */
  readonly total: Usage | null;
  /** Whether attempts have ended in it since that stated nothing: the next count may hold theirs. */
  readonly unstated: boolean;
}

/** Of a session that begins. */
export const noUsage: Usage = { inputTokens: 0, cachedInputTokens: 0, outputTokens: 0, costUsd: 0 };

/** Money is compared and summed to this part of a dollar: what is beyond it is arithmetic. */
const COST_PARTS = 1e9;

const rounded = (usd: number): number => Math.round(usd * COST_PARTS) / COST_PARTS;

/**
 * The attempt's own part of what was stated. Never negative and never guessed: tokens whose beginning is not known stay as
 * they were stated, marked `session`, and such a price is null.
 */
export function ownUsage(stated: Usage, before: SessionUsage): Usage {
  const { inputTokens, cachedInputTokens, outputTokens } = stated;
  const { total, unstated } = before;
  const tokensAreOwn = stated.of === undefined;
  const costIsOwn = tokensAreOwn && stated.costOf === undefined;
  const costUsd = costIsOwn ? stated.costUsd : ownCost(stated.costUsd, total?.costUsd ?? null);
  // A count of the session may hold what those used that stated nothing, as far as their provider was let to write it down.
  const mark = unstated && !costIsOwn ? ({ of: "attempts" } as const) : {};
  if (tokensAreOwn) return { inputTokens, cachedInputTokens, outputTokens, costUsd, ...mark };
  const own = total === null ? null : difference(stated, total);
  if (own === null) return { inputTokens, cachedInputTokens, outputTokens, costUsd, of: "session" };
  return { ...own, costUsd, ...mark };
}

function ownCost(statedUsd: number | null, beforeUsd: number | null): number | null {
  if (statedUsd === null || beforeUsd === null || rounded(statedUsd) < rounded(beforeUsd)) return null;
  return rounded(statedUsd - beforeUsd);
}

/** null where a count has fallen: it was begun anew, nobody knows when. */
function difference(
  stated: Usage,
  total: Usage,
): Pick<Usage, "inputTokens" | "cachedInputTokens" | "outputTokens"> | null {
  const inputTokens = stated.inputTokens - total.inputTokens;
  const cachedInputTokens = stated.cachedInputTokens - total.cachedInputTokens;
  const outputTokens = stated.outputTokens - total.outputTokens;
  return Math.min(inputTokens, cachedInputTokens, outputTokens) < 0
    ? null
    : { inputTokens, cachedInputTokens, outputTokens };
}

/**
 * What attempts used together; a price only where each has one. Marked `session` where one of them is: something may be in
 * it twice.
 */
export function summedUsage(attempts: readonly Usage[]): Usage | null {
  if (attempts.length === 0) return null;
  const sum = (key: "inputTokens" | "cachedInputTokens" | "outputTokens") =>
    attempts.reduce((total, one) => total + one[key], 0);
  const costs = attempts.map(({ costUsd }) => costUsd).filter((cost) => cost !== null);
  return {
    inputTokens: sum("inputTokens"),
    cachedInputTokens: sum("cachedInputTokens"),
    outputTokens: sum("outputTokens"),
    costUsd: costs.length < attempts.length ? null : rounded(costs.reduce((total, cost) => total + cost, 0)),
    ...(attempts.some(({ of }) => of === "session") ? { of: "session" } : {}),
  };
}
