import type { Store } from "../../core/ports.ts";
import { eventShape, toEventDocument } from "../documents.ts";
import { flag, text } from "../fields.ts";
import { findLoop, findRun } from "../find.ts";
import { defineOperation } from "../operation.ts";
import { pageFields } from "../page.ts";
import { pageOf } from "../shape.ts";

/** How often the feed is asked for more. */
const LOOK_MS = 250;

export const operation = defineOperation({
  name: "events",
  where: "read",
  summary: "Print the change feed",
  input: {
    follow: flag("go on with what happens, beginning now", { short: "f" }),
    run: text("only events of this run", { placeholder: "RUN", completes: "run" }),
    loop: text("only events of this loop itself", { placeholder: "LOOP", completes: "loop" }),
    ...pageFields(100),
  },
  output: pageOf(eventShape),
  cli: {
    excludes: [["run", "loop"]],
    examples: ["events --run 8x2mq1", "events --loop fetch", "events -f --json"],
    notes: ["With -f and --run it ends with the run."],
  },
  async run({ store }, input) {
    const of = await subjectOf(store, input);
    const { items, cursor } = await store.events.list({ after: input.cursor ?? null, limit: input.limit, ...of });
    return { items: items.map(toEventDocument), next: items.length === input.limit ? cursor : null };
  },
  async *follow({ store }, input, signal) {
    const of = await subjectOf(store, input);
    const { runId } = of;
    // The feed of one run is shown from its beginning, all others from now on.
    let after =
      input.cursor ??
      (runId === null ? (await store.events.list({ after: "now", limit: 1, runId: null })).cursor : null);
    while (!signal.aborted) {
      const ended = runId !== null && (await store.runs.get({ runId }))?.run.finishedAt !== null;
      const { items, cursor } = await store.events.list({ after, limit: input.limit, ...of });
      for (const item of items) yield toEventDocument(item);
      after = cursor ?? after;
      if (items.length === input.limit) continue;
      if (ended) return;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  },
});

/** Whose events are asked for. */
async function subjectOf(
  store: Store,
  { run, loop }: { readonly run: string | undefined; readonly loop: string | undefined },
) {
  return {
    runId: run === undefined ? null : (await findRun(store, run, "--run")).run.id,
    loopId: loop === undefined ? null : (await findLoop(store, loop, "--loop")).id,
  };
}
