import { eventShape, toEventDocument } from "./documents.ts";
import { flag, text } from "./fields.ts";
import { findRun } from "./find.ts";
import { defineOperation } from "./operation.ts";
import { pageFields } from "./page.ts";
import { pageOf } from "./shape.ts";

/** How often the feed is asked for more. */
const LOOK_MS = 250;

export const operation = defineOperation({
  name: "events",
  where: "read",
  summary: "Print the change feed",
  input: {
    follow: flag("go on with what happens, beginning now", { short: "f" }),
    run: text("only events of this run", { placeholder: "RUN", completes: "run" }),
    ...pageFields(100),
  },
  output: pageOf(eventShape),
  cli: { examples: ["events --run 8x2mq1", "events -f --json"], notes: ["With -f and --run it ends with the run."] },
  async run({ store }, input) {
    const runId = input.run === undefined ? null : (await findRun(store, input.run, "--run")).run.id;
    const { items, cursor } = await store.events.list({ after: input.cursor ?? null, limit: input.limit, runId });
    return { items: items.map(toEventDocument), next: items.length === input.limit ? cursor : null };
  },
  async *follow({ store }, input, signal) {
    const runId = input.run === undefined ? null : (await findRun(store, input.run, "--run")).run.id;
    // The feed of one run is shown from its beginning, all others from now on.
    let after =
      input.cursor ??
      (runId === null ? (await store.events.list({ after: "now", limit: 1, runId: null })).cursor : null);
    while (!signal.aborted) {
      const ended = runId !== null && (await store.runs.get({ runId }))?.run.finishedAt !== null;
      const { items, cursor } = await store.events.list({ after, limit: input.limit, runId });
      for (const item of items) yield toEventDocument(item);
      after = cursor ?? after;
      if (items.length === input.limit) continue;
      if (ended) return;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  },
});
