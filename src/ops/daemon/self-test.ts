/** A run of one second through the daemon, judged from its start to its end: what `doctor --self-test` does. */
import { AppError } from "../../core/errors.ts";
import { isFinal } from "../../core/run.ts";
import { operation as cancel } from "../runs/cancel-run.ts";
import type { SelfTest } from "../operation.ts";
import { perform, withReading } from "../perform.ts";
import { operation as runNow } from "../runs/run-now.ts";
import type { World } from "../world.ts";

const LOOK_MS = 50;
/** What the command prints, and how long it takes. */
const SAYS = "drover self-test";
const TAKES_MS = 1_000;

/**
 * Starts it, waits for its end, and looks at what it left. @param livingOf pids of live processes that carry an attempt's mark
 */
export async function runSelfTest(world: World, livingOf: (attemptId: string) => readonly number[]): Promise<SelfTest> {
  const begun = performance.now();
  let runId: string | null = null;
  try {
    // A machine that is busy may take its time; caps that are full are said so.
    const patienceMs = (await world.settings()).limits.doctorCheckMs;
    const before = await world.askDaemon();
    const started = (await perform(world, runNow, {
      command: ["/bin/sh", "-c", `echo '${SAYS}'; sleep ${TAKES_MS / 1_000}`],
      cwd: world.places.state,
      timeoutMs: patienceMs,
      label: ["self-test"],
      priority: 100,
    })) as { readonly id: string };
    runId = started.id;
    const fault = await judge(world, runId, patienceMs, livingOf);
    if (fault !== null) return { ok: false, runId, message: fault };
    const seconds = Math.round((performance.now() - begun) / 100) / 10;
    const service = "health" in before ? (before.health.service ?? null) : null;
    const who =
      service !== null
        ? `the service ${service}`
        : "health" in before
          ? "the daemon"
          : "a daemon that was started for it";
    return {
      ok: true,
      runId,
      message: `started a 1-second run under ${who}: ok; its output was read, nothing of it is left, and it was recorded after ${seconds} s`,
    };
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    const hint = error.hint === undefined ? "" : `. ${error.hint}`;
    return {
      ok: false,
      runId,
      message: `${runId === null ? "it could not be started" : "it could not be followed"}: ${error.message}${hint}`,
    };
  }
}

/** What is wrong with the run, in words; null: nothing. */
async function judge(
  world: World,
  runId: string,
  patienceMs: number,
  livingOf: (attemptId: string) => readonly number[],
): Promise<string | null> {
  const until = performance.now() + patienceMs;
  for (;;) {
    const seen = await withReading(world, async ({ store, output }) => {
      const tree = await store.runs.get({ runId });
      if (tree === null || !isFinal(tree.run.status)) return { tree, text: "" };
      const folder = tree.attempts.at(-1)?.folder ?? null;
      let text = "";
      if (folder !== null)
        for await (const piece of output.read({ folder, stream: "stdout", tailLines: null, raw: false })) text += piece;
      return { tree, text };
    });
    const { tree, text } = seen;
    if (tree === null) return "its run is not in the store that this command reads: the daemon has another one";
    const { run, attempts } = tree;
    if (isFinal(run.status)) {
      if (run.status !== "succeeded")
        return `it ended as ${run.status}: ${run.error?.message ?? run.reason ?? "no reason is known"}`;
      if (text.trim() !== SAYS) return `its output is ${JSON.stringify(text.slice(0, 80))}, and not what it printed`;
      const took = (run.finishedAt ?? 0) - (run.startedAt ?? 0);
      if (took < TAKES_MS * 0.9) return `it is recorded as ${took} ms long, and takes ${TAKES_MS}`;
      const left = attempts.flatMap(({ id }) => livingOf(id));
      return left.length === 0 ? null : `it has ended, and pid ${left.join(", ")} of it still lives`;
    }
    if (performance.now() > until) {
      const status = `${run.status}${run.reason === null ? "" : ` (${run.reason})`}`;
      await perform(world, cancel, { run: runId, reason: "the self-test gave up" });
      return `it is still ${status} after ${patienceMs / 1_000} s, and was cancelled: drover why ${runId}`;
    }
    await world.wait(LOOK_MS);
  }
}
