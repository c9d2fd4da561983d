/** Tells people and programs how runs ended. A hook has its own limit and delays nothing. */
import type { Limits } from "../core/limits.ts";
import type { Hook, Notifier, Store } from "../core/ports.ts";
import type { RunRecord } from "../core/records.ts";
import { createGate } from "./gate.ts";
import type { Log } from "./ports.ts";
import type { Actor } from "./wake.ts";
import { Halted, type Weather } from "./weather.ts";

export interface Hooks extends Actor {
  /** Hooks at work. */
  count(): number;
}

export interface HooksOptions {
  readonly store: Store;
  readonly notifier: Notifier;
  readonly limits: Limits;
  readonly weather: Weather;
  readonly log: Log;
  readonly hostId: string;
  readonly again: () => void;
  readonly onDone: () => void;
}

/** The actor `hooks`: at least once for each run, in the order of their ends, a few at a time. */
export function createHooks({ store, notifier, limits, weather, log, hostId, again, onDone }: HooksOptions): Hooks {
  const gate = createGate(limits.hooksAtOnce);
  const atWork = new Set<string>();

  async function serve(run: RunRecord, names: readonly string[]): Promise<void> {
    // Side by side: one that hangs keeps the other, perhaps the alarm, from nobody.
    const notes = await Promise.all(
      names.map(async (name) => {
        const hook = hookOf(run, name);
        if (hook === null) return [];
        const { exit } = await notifier.hook(hook);
        if (exit !== 0) log("warn", "hook_failed", { run: run.id, hook: name, exit });
        return [`${name} ${exit === null ? "reached its time limit" : `exited with ${exit}`}`];
      }),
    );
    const note = notes.flat().length === 0 ? null : notes.flat().join("; ");
    await weather.persist("runs.hooksDone", () => store.runs.hooksDone({ runId: run.id, note }));
  }

  return {
    name: "hooks",
    count: () => atWork.size,
    async tick() {
      const due = await store.runs.hooksDue({ hostId, limit: limits.hooksAtOnce + atWork.size });
      for (const { run, hooks } of due) {
        if (atWork.has(run.id)) continue;
        atWork.add(run.id);
        void gate
          .run(() => serve(run, hooks))
          .catch((error: unknown) => {
            if (!(error instanceof Halted)) weather.mishap(`hooks of ${run.id}`, error, 1);
          })
          .then(() => {
            atWork.delete(run.id);
            onDone();
            again();
          });
      }
    },
  };
}

function hookOf(run: RunRecord, name: string): Hook | null {
  const { onFinish, onFailure, hookTimeoutMs } = run.policy;
  const shell = name === "on_finish" ? onFinish : name === "on_failure" ? onFailure : null;
  if (shell === null) return null;
  return {
    name: name === "on_finish" ? "on_finish" : "on_failure",
    shell,
    cwd: run.target.cwd,
    input: `${JSON.stringify(documentOf(run))}\n`,
    variables: {
      DROVER_RUN_ID: run.id,
      DROVER_LOOP: run.loopName ?? "",
      DROVER_SLOT: iso(run.slotAt) ?? "",
      DROVER_DEPTH: String(run.depth),
      DROVER_RUN_STATUS: run.status,
    },
    timeoutMs: hookTimeoutMs,
  };
}

const iso = (at: number | null): string | null => (at === null ? null : new Date(at).toISOString());

/** The run as a hook reads it: the names of `show --json`. */
function documentOf(run: RunRecord): Record<string, unknown> {
  return {
    id: run.id,
    kind: run.kind,
    status: run.status,
    reason: run.reason,
    loop: run.loopName,
    slotAt: iso(run.slotAt),
    parentRunId: run.parentRunId,
    retryOf: run.retryOf,
    createdAt: iso(run.createdAt),
    startedAt: iso(run.startedAt),
    finishedAt: iso(run.finishedAt),
    durationMs: run.startedAt === null || run.finishedAt === null ? null : run.finishedAt - run.startedAt,
    exitCode: run.exitStatus,
    error: run.error,
    output: parsed(run.output),
  };
}

function parsed(output: string | null): unknown {
  if (output === null) return null;
  try {
    return JSON.parse(output);
  } catch {
    return null; // the store keeps JSON; what is none is not handed on
  }
}
