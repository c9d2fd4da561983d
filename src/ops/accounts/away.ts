/** Runs that wait because their agent's program is not there: to be told wherever their loop looks healthy. */
import type { Store } from "../../core/ports.ts";
import type { RunRecord } from "../../core/records.ts";
import { inWords } from "../fault-words.ts";
import { MAX_PAGE } from "../page.ts";

/** The newest ones, at most a page. @param loopId of one loop; null: of all */
export async function awayRuns(store: Store, loopId: string | null): Promise<readonly RunRecord[]> {
  const { items } = await store.runs.list({
    loopId,
    status: null,
    reason: "program",
    label: null,
    since: null,
    limit: MAX_PAGE,
    cursor: null,
  });
  return items;
}

/** What was found in the program's place. */
export async function awayWords(store: Store, runId: string): Promise<string> {
  const tree = await store.runs.get({ runId });
  const last = tree?.attempts.toSorted((a, b) => b.number - a.number)[0];
  return inWords(last?.message ?? "its program is not there");
}
