import { AppError } from "../core/errors.ts";
import { parseDuration } from "../core/duration.ts";
import type { Instant } from "../core/ports.ts";
import type { RunRecord } from "../core/records.ts";
import { runStatuses } from "../core/run.ts";
import { type RunDocument, runShape, toRunDocument } from "./documents.ts";
import { badInput, choice, text } from "./fields.ts";
import { findLoop } from "./find.ts";
import { defineOperation, type StoreContext } from "./operation.ts";
import { pageFields, pageRequest } from "./page.ts";
import { shownHead } from "./run-answer.ts";
import { pageOf } from "./shape.ts";

export const operation = defineOperation({
  name: "runs",
  where: "read",
  summary: "List runs, newest first",
  input: {
    loop: text("only runs of this loop", { placeholder: "LOOP", completes: "loop" }),
    status: choice("only runs with this status", runStatuses),
    label: text("only runs with this label", { placeholder: "K" }),
    since: text("only runs queued since: 2h, or a time", { placeholder: "T" }),
    ...pageFields(50),
  },
  output: pageOf(runShape),
  cli: { examples: ["runs", "runs --status failed --since 1d", "runs --loop fetch --json"] },
  async run(context, input) {
    const { store } = context;
    const loopId = input.loop === undefined ? null : (await findLoop(store, input.loop, "--loop")).id;
    const { items, next } = await store.runs.list({
      ...pageRequest(input),
      loopId,
      status: input.status ?? null,
      label: input.label ?? null,
      since: input.since === undefined ? null : await readSince(input.since, context.clock.now(), context.hostZone),
    });
    return { items: await Promise.all(items.map((run) => toDocument(context, run))), next };
  },
});

/** What its attempts had as secrets is asked for agents only: prompts are people's words. */
async function toDocument(context: StoreContext, run: RunRecord): Promise<RunDocument> {
  const tree = run.target.kind === "agent" ? await context.store.runs.get({ runId: run.id }) : null;
  return toRunDocument(run, tree === null ? null : await shownHead(context, tree));
}

/** A duration back from now, or a time. Errors: AppError invalid `bad_time`. */
async function readSince(given: string, now: Instant, hostZone: string): Promise<Instant> {
  try {
    return now - parseDuration(given, "--since");
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const { parseTime } = await import("../core/schedule.ts"); // not a duration: a time, or refused as one
    try {
      return parseTime(given, { now, hostZone, path: "--since" });
    } catch (wrong) {
      if (!(wrong instanceof AppError) || /^[\d+]/.test(given)) throw wrong;
      throw badInput(
        "--since",
        wrong.message,
        "Write how far back, as in 2h or 1d for since this time yesterday, or a time as in 2026-05-01T02:30.",
        wrong.code,
      );
    }
  }
}
