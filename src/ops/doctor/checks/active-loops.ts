/** The loops that are on, as far as it is worth looking at each. */
import type { LoopRecord } from "../../../core/records.ts";
import type { StoreContext } from "../../operation.ts";
import { MAX_PAGE } from "../../page.ts";

/** Loops that are looked at one by one. */
const LOOKED = 2_000;

export async function activeLoops({ store }: StoreContext): Promise<readonly LoopRecord[]> {
  const found: LoopRecord[] = [];
  let looked = 0;
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof store.loops.list>> = await store.loops.list({
      limit: MAX_PAGE,
      cursor,
      archived: false,
      label: null,
    });
    looked += page.items.length;
    found.push(...page.items.filter((loop) => loop.status === "active"));
    cursor = page.next;
  } while (cursor !== null && looked < LOOKED);
  return found;
}
