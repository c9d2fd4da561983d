/** Which limit of a live attempt has passed, and how closely it is watched for that. Pure. */
import type { Limits } from "../core/limits.ts";
import type { EndWish } from "./classify.ts";
import type { Life } from "./life.ts";

/** The limit that has passed, if one has. @param awake now, on the clock that stands still in suspend */
export function overdue(life: Life, awake: number, limits: Limits): EndWish | null {
  const { timeoutMs, idleTimeoutMs } = life.assignment.run.policy;
  const ranMs = awake - life.awakeAt;
  if (timeoutMs !== null && ranMs >= timeoutMs) {
    const lateMs = ranMs - timeoutMs;
    const late = lateMs > 2 * limits.watchMs ? `, noticed ${Math.round(lateMs / 1000)} s late` : "";
    return { by: "timeout", message: `ran longer than its limit of ${seconds(timeoutMs)}${late}`, inherited: false };
  }
  const { agent } = life;
  if (agent !== null && agent.closedAt !== null) {
    if (awake - agent.closedAt < limits.agentExitMs) return null;
    const message = `it did not exit within ${seconds(limits.agentExitMs)} of its result`;
    return { by: "exit_timer", message, inherited: false };
  }
  const trouble = agent?.trouble ?? null;
  const troubledMs = agent === null || agent.troubleAt === null ? 0 : awake - agent.troubleAt;
  const isSilent = idleTimeoutMs !== null && life.idleMs >= idleTimeoutMs;
  if (trouble !== null && (isSilent || troubledMs >= limits.agentTroubleMs)) {
    // Which of the two limits passed changes nothing about why: what it waits for is known.
    const forMs = isSilent ? idleTimeoutMs : limits.agentTroubleMs;
    const message = `got no further for ${seconds(forMs)}: ${trouble.message}`;
    return { by: "idle", message, inherited: false, class: trouble.class };
  }
  if (!isSilent) return null;
  const did = agent === null ? "wrote nothing" : "got no further";
  return { by: "idle", message: `${did} for ${seconds(idleTimeoutMs)}`, inherited: false };
}

/** Awake milliseconds between two looks at what it writes. */
export const idleLookMs = (life: Life, limits: Limits): number =>
  life.agent !== null
    ? Math.min(life.agent.open === null ? limits.agentLookMs : limits.firstLookMs, limits.watchMs)
    : life.assignment.run.policy.idleTimeoutMs === null
      ? limits.watchMs
      : Math.min(limits.idleLookMs, limits.watchMs);

const seconds = (ms: number): string => (ms % 1000 === 0 ? `${ms / 1000} s` : `${ms} ms`);
