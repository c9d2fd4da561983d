/** The loop's state machine, apart from its schemas: the store's writer needs this and not them. */

export const loopStatuses = ["active", "paused", "expired", "finished"] as const;
export type LoopStatus = (typeof loopStatuses)[number];

/** What a person, a clock or a run's end may do to a loop. */
export type LoopEvent = "pause" | "trip" | "resume" | "expire" | "finish";

/**
 * The loop's table. `finished` is a once loop whose slot is recorded; resuming an expired or finished loop gives it a
 * fresh streak. What is not listed is refused.
 */
export const loopTable: { readonly [S in LoopStatus]: { readonly [E in LoopEvent]?: LoopStatus } } = {
  active: { pause: "paused", trip: "paused", expire: "expired", finish: "finished" },
  paused: { resume: "active", expire: "expired", finish: "finished" },
  expired: { resume: "active" },
  finished: { resume: "active" },
};
