/** From the input of `loop add` to what a loop is, with everything that is wrong with it. Nothing is stored, and this host is not asked. */
import { AppError } from "../../core/errors.ts";
import type { LoopPolicy } from "../../core/loop.ts";
import type { Schedule } from "../../core/schedule.ts";
import type { StoreContext } from "../operation.ts";
import {
  checkJitter,
  checkLoopName,
  describeTargetOf,
  type LoopInput,
  makeLoopPolicy,
  makeSchedule,
  type TargetDraft,
} from "../runs/work.ts";

/** A loop that was described. Its prompt is not stored yet, and whether this host can run it is not looked at. */
export interface LoopDraftOf {
  readonly name: string;
  readonly schedule: Schedule;
  readonly policy: LoopPolicy;
  readonly target: TargetDraft;
}

/** A draft, or every fault that was found: AppErrors invalid whose paths are flags. */
export type DraftedLoop =
  | { readonly draft: LoopDraftOf; readonly faults: null }
  | { readonly draft: null; readonly faults: readonly AppError[] };

export async function draftLoop(
  context: Pick<StoreContext, "settings" | "isRoot" | "clock" | "hostZone">,
  name: string,
  input: LoopInput,
): Promise<DraftedLoop> {
  const faults: AppError[] = [];
  const attempt = async <T>(make: () => Promise<T>): Promise<T | null> => {
    try {
      return await make();
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      faults.push(error);
      return null;
    }
  };
  await attempt(() => checkLoopName(name));
  const schedule = await attempt(() => makeSchedule(context, input));
  const target = await attempt(() => describeTargetOf(context, input, null));
  const kind = target?.target.kind ?? (input.agent === undefined ? "command" : "agent");
  const policy = await attempt(() => makeLoopPolicy(context, input, kind, null));
  if (schedule !== null && policy !== null) await attempt(async () => checkJitter(schedule, policy));
  if (faults.length > 0 || schedule === null || target === null || policy === null) return { draft: null, faults };
  return { draft: { name, schedule, policy, target }, faults: null };
}
