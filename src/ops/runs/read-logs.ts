import type { TranscriptEntry } from "../../core/agent.ts";
import { AppError } from "../../core/errors.ts";
import type { AttemptRecord, RunTree } from "../../core/records.ts";
import { isLiveAttempt } from "../../core/run.ts";
import { attemptOf, usualStep, isLiveTree } from "../documents.ts";
import { badInput, flag, integer, required, text } from "../fields.ts";
import { findRun } from "../find.ts";
import { defineOperation, type StoreContext } from "../operation.ts";
import { anything, boolean, integer as count, listOf, object, oneOf, string } from "../shape.ts";

/** Text of one document at most; more is read with `-f` or from the file. */
const DOCUMENT_CHARACTERS = 16 * 1024 * 1024;
/** How often the store is asked whether the run has ended. */
const LOOK_MS = 200;

const input = {
  run: required(text("the run", { placeholder: "RUN", completes: "run" })),
  step: text("the step", { placeholder: "STEP", completes: "step", fallback: "the one that started last" }),
  attempt: integer("the attempt's number", { min: 1, max: 1_000_000, fallback: "the newest", completes: "attempt" }),
  follow: flag("follow until the run ends", { short: "f" }),
  stderr: flag("the error output instead of the output"),
  raw: flag("keep control sequences; secrets are replaced all the same"),
  tail: integer("only the last lines", { min: 0, max: 10_000_000, short: "n" }),
  transcript: flag("what an agent said and did, the same words for every provider"),
} as const;

type Input = { readonly [K in keyof typeof input]: ReturnType<(typeof input)[K]["check"]> };

function checkKind(given: Input, tree: RunTree): void {
  if (!given.transcript) return;
  if (tree.steps.find(({ key }) => key === (given.step ?? usualStep(tree)))?.kind !== "agent")
    throw badInput(
      "--transcript",
      "the step is a command, which has no transcript",
      "Leave it out: the output of a command is all there is.",
      "no_transcript",
    );
  for (const [key, flagName] of [
    ["stderr", "--stderr"],
    ["raw", "--raw"],
  ] as const)
    if (given[key])
      throw badInput(
        flagName,
        `${flagName} and --transcript contradict each other`,
        "The transcript has no streams: leave one of them out.",
        "contradiction",
      );
}

function requireAttempt(tree: RunTree, given: Input): AttemptRecord | null {
  const key = given.step ?? usualStep(tree);
  if (!tree.steps.some((step) => step.key === key))
    throw new AppError("not_found", "step_not_found", `the run has no step ${JSON.stringify(key)}`, {
      path: "--step",
      hint: `Its steps: ${tree.steps.map((step) => step.key).join(", ")}.`,
    });
  const attempt = attemptOf(tree, key, given.attempt ?? null);
  if (attempt === null && given.attempt !== undefined)
    throw new AppError("not_found", "attempt_not_found", `the step has no attempt ${given.attempt}`, {
      path: "--attempt",
      hint: "`drover show RUN` lists the attempts of each step.",
    });
  return attempt;
}

const requestOf = (folder: string, { status }: AttemptRecord, given: Input) => ({
  folder,
  isLive: isLiveAttempt(status),
  stream: given.stderr ? ("stderr" as const) : ("stdout" as const),
  tailLines: given.tail ?? null,
  raw: given.raw,
});

export const operation = defineOperation({
  name: "logs",
  where: "read",
  summary: "Print what a run put out",
  input,
  output: object({
    runId: string,
    step: string,
    attempt: count,
    stream: oneOf(["stdout", "stderr", "transcript"]),
    text: string,
    truncated: boolean,
    /** With --transcript. */
    "entries?": listOf(anything),
  }),
  cli: {
    positionals: ["run"],
    pieces: true,
    watches: "run",
    examples: [
      "logs run_01k2",
      "logs --transcript 8x2mq1 -f",
      "logs 8x2mq1 -f --stderr",
      "logs 8x2mq1 --tail 20 --attempt 1",
    ],
  },
  async run(context, given) {
    if (given.follow) throw badInput("follow", "this answer cannot be followed", "Ask for it as a stream.");
    const tree = await findRun(context.store, given.run);
    checkKind(given, tree);
    const attempt = requireAttempt(tree, given);
    if (given.transcript) {
      const entries: TranscriptEntry[] = [];
      if (attempt?.folder != null)
        for await (const one of tailOf(context.output.transcript(attempt.folder), given.tail)) entries.push(one);
      return {
        runId: tree.run.id,
        step: given.step ?? usualStep(tree),
        attempt: attempt?.number ?? 0,
        stream: "transcript",
        text: "",
        truncated: false,
        entries,
      };
    }
    let put = "";
    let truncated = false;
    if (attempt?.folder != null)
      for await (const piece of context.output.read(requestOf(attempt.folder, attempt, given))) {
        put += piece;
        // The end is what people look for: what is too much goes from the front.
        if (put.length > DOCUMENT_CHARACTERS) {
          truncated = true;
          put = put.slice(-DOCUMENT_CHARACTERS);
        }
      }
    return {
      runId: tree.run.id,
      step: given.step ?? usualStep(tree),
      attempt: attempt?.number ?? 0,
      stream: given.stderr ? "stderr" : "stdout",
      text: put,
      truncated,
    };
  },
  async *follow(context, given, signal) {
    let tree = await findRun(context.store, given.run);
    checkKind(given, tree);
    let shown = 0;
    let first = true;
    for (;;) {
      const attempt = requireAttempt(tree, given);
      if (attempt !== null && attempt.number !== shown && attempt.folder !== null) {
        shown = attempt.number;
        const about = { runId: tree.run.id, step: given.step ?? usualStep(tree), attempt: attempt.number };
        if (given.transcript) {
          const entries = given.follow
            ? context.output.followTranscript(attempt.folder, endOf(context, tree.run.id, attempt, signal), signal)
            : tailOf(context.output.transcript(attempt.folder), given.tail);
          for await (const entry of entries) yield { ...about, stream: "transcript", text: "", entry };
        } else {
          // Only the first attempt that is shown is cut to its tail: later ones are new.
          const request = { ...requestOf(attempt.folder, attempt, given), ...(first ? {} : { tailLines: null }) };
          first = false;
          const lines = given.follow
            ? context.output.follow(request, endOf(context, tree.run.id, attempt, signal), signal)
            : context.output.read(request);
          for await (const piece of lines) yield { ...about, stream: request.stream, text: piece };
        }
      }
      if (!given.follow || signal.aborted || given.attempt !== undefined) return;
      tree = (await context.store.runs.get({ runId: tree.run.id })) ?? tree;
      const newest = attemptOf(tree, given.step ?? usualStep(tree), null);
      if (!isLiveTree(tree) && (newest === null || newest.number === shown || newest.folder === null)) return;
      if (newest === null || newest.number === shown || newest.folder === null) await pause(LOOK_MS, signal);
    }
  },
});

/** The last so many of them; all when no number is given. */
async function* tailOf(entries: AsyncIterable<TranscriptEntry>, last: number | undefined) {
  if (last === undefined) return yield* entries;
  const kept: TranscriptEntry[] = [];
  for await (const one of entries) {
    kept.push(one);
    if (kept.length > last) kept.shift();
  }
  yield* kept;
}

/** Aborted when the attempt is over, as the store says it. */
function endOf(context: StoreContext, runId: string, attempt: AttemptRecord, signal: AbortSignal): AbortSignal {
  const ended = new AbortController();
  if (!isLiveAttempt(attempt.status)) ended.abort();
  else
    void (async () => {
      try {
        while (!signal.aborted) {
          const tree = await context.store.runs.get({ runId });
          const now = tree?.attempts.find((one) => one.id === attempt.id);
          if (now === undefined || !isLiveAttempt(now.status)) break;
          await pause(LOOK_MS, signal);
        }
      } finally {
        ended.abort(); // also when the store fails: the next look at it reports that
      }
    })().catch(() => {});
  return ended.signal;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
    if (signal.aborted) done();
    else signal.addEventListener("abort", done, { once: true });
  });
}
