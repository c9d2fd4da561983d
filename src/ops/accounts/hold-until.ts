/** How long a hold lasts, from what a person typed. */
import { badInput, duration, text } from "../fields.ts";
import type { StoreContext } from "../operation.ts";

/** The reason of a person's hold that gives none. */
export const WITHOUT_REASON = "a person holds it";

export const holdFields = {
  until: text("when the hold ends: a time, or +2h", { placeholder: "T", fallback: "when it is released" }),
  forMs: duration("how long it holds", { min: 1 }),
};

/** The instant at which it ends; null: when it is released. Errors: AppError invalid `bad_time`. */
export async function holdEnd(
  { clock, hostZone }: Pick<StoreContext, "clock" | "hostZone">,
  { until, forMs }: { readonly until?: string | undefined; readonly forMs?: number | undefined },
): Promise<number | null> {
  const now = clock.now();
  if (forMs !== undefined) return now + forMs;
  if (until === undefined) return null;
  const { parseTime } = await import("../../core/schedule.ts");
  const untilAt = parseTime(until, { now, hostZone, path: "--until" });
  if (untilAt <= now) throw badInput("--until", `${until} is over already`, "Give a time that is to come.", "bad_time");
  return untilAt;
}
