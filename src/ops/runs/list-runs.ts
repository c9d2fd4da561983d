import { LISTED_OUTPUT_BYTES, WALK } from "../../core/limits.ts";
import type { RunRecord } from "../../core/records.ts";
import { failureClasses, heldReasons, isFinal, runStatuses, waitReasons } from "../../core/run.ts";
import { type RunDocument, runShape, toRunDocument } from "../documents.ts";
import { badInput, choice, choices, text } from "../fields.ts";
import { findLoop } from "../find.ts";
import { labelField, spanOf, timeField } from "../list-filters.ts";
import { defineOperation, type StoreContext } from "../operation.ts";
import { pageFields, pageRequest } from "../page.ts";
import { shownHead } from "./run-answer.ts";
import { pageOf } from "../shape.ts";

const reasons = choice("only runs that wait for this reason", [...waitReasons, ...heldReasons]);
/** What a run failed with is asked for in the same words, and has a filter of its own. */
const waitingFor: typeof reasons = {
  ...reasons,
  read: (given, path, reading, before) => reasons.read(refuseClass(given, path), path, reading, before),
  check: (value, path) => reasons.check(refuseClass(value, path), path),
};

function refuseClass<T>(value: T, path: string): T {
  const failed = failureClasses.find((one) => one === (value as unknown));
  if (failed !== undefined)
    throw badInput(path, `no run waits for ${failed}: runs fail with it`, `Give --class ${failed}.`, "bad_choice");
  return value;
}

export const operation = defineOperation({
  name: "runs",
  where: "read",
  summary: "List runs, newest first",
  input: {
    loop: text("only runs of this loop", { placeholder: "LOOP", completes: "loop" }),
    status: choices(`only runs with this status, or one of these: ${runStatuses.join(", ")}`, runStatuses, {
      placeholder: "STATUS[,...]",
    }),
    kind: choice("only runs of commands, or of agents", ["command", "agent"]),
    class: choice("only runs that failed with this class", failureClasses),
    reason: waitingFor,
    label: labelField("only runs with this label"),
    since: timeField("only runs queued since"),
    until: timeField("only runs queued until"),
    ...pageFields(50),
  },
  output: pageOf(runShape),
  cli: {
    examples: ["runs", "runs --status failed,timed_out --since 1d", "runs --loop fetch --json", "runs --reason limit"],
    notes: [
      "Pages stay in step while runs come and end: give --cursor the `next` of the page before.",
      `An output of more than ${LISTED_OUTPUT_BYTES} bytes is null here, with its size in outputBytes: \`drover show\` has it whole.`,
      `--kind, --class, and --label beside another filter look through ${WALK} runs for a page: it may hold fewer than --limit and have a next one.`,
    ],
  },
  async run(context, input) {
    const { store } = context;
    const { class: failure = null, reason = null } = input;
    const loopId = input.loop === undefined ? null : (await findLoop(store, input.loop, "--loop")).id;
    if (failure !== null && reason !== null)
      throw badInput(
        "--reason",
        "a run that waits has not failed yet: --class and --reason leave nothing",
        "Give one of the two.",
        "contradiction",
      );
    // What failed has ended, and what waits has not: that is where it is looked for.
    const asked = input.status ?? null;
    const status =
      failure !== null
        ? (asked ?? runStatuses.filter(isFinal)).filter((one) => isFinal(one) && one !== "succeeded")
        : asked;
    if (status !== null && status.length === 0) return { items: [], next: null };
    const { items, next } = await store.runs.list({
      ...pageRequest(input),
      ...(await spanOf(input, context)),
      loopId,
      status,
      label: input.label ?? null,
      kind: input.kind ?? null,
      class: failure,
      reason,
    });
    return { items: await Promise.all(items.map((run) => toDocument(context, run))), next };
  },
});

/** What its attempts had as secrets is asked for agents only: prompts are people's words. */
async function toDocument(context: StoreContext, run: RunRecord): Promise<RunDocument> {
  const tree = run.target.kind === "agent" ? await context.store.runs.get({ runId: run.id }) : null;
  return toRunDocument(run, tree === null ? null : await shownHead(context, tree));
}
