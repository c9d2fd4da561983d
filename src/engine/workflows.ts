/** Asks the definitions of workflows what becomes of steps whose needs have ended: outside the store, whose writer everybody waits for. */
import { AppError } from "../core/errors.ts";
import type { Limits } from "../core/limits.ts";
import type { StepToJudge, StepVerdict, Store } from "../core/ports.ts";
import { type Asked, askedOf, decide, readsOf } from "../core/workflow/decide.ts";
import { loadExpressions } from "../core/workflow/expression.ts";
import { readPinned } from "../core/workflow/pinned.ts";
import type { Log } from "./ports.ts";
import type { Actor } from "./wake.ts";

export interface WorkflowsOptions {
  readonly store: Store;
  readonly limits: Limits;
  readonly log: Log;
  readonly hostId: string;
  readonly again: () => void;
  /** Steps may start. */
  readonly onReady: () => void;
  /** A run came to its end by what was said of its steps. */
  readonly onEnded: () => void;
}

/** Definitions that are kept as they were read. */
const KEPT = 20;

/** The actor `judge`. Two daemons that ask about one step are told the same, and the store takes the first answer. */
export function createWorkflows({ store, limits, log, hostId, again, onReady, onEnded }: WorkflowsOptions): Actor {
  const definitions = new Map<string, Asked>();

  /** The definition of a run, or why there is none. */
  async function definitionOf({ target }: StepToJudge["run"]): Promise<Asked | string> {
    if (target.kind !== "workflow") return "its run is of no workflow";
    const { digest } = target.definition;
    const known = definitions.get(digest);
    if (known !== undefined) return known;
    const kept = await store.prompts.get({ digest });
    const read = kept === null ? "its definition is not kept any more" : readKept(kept.content);
    // One that cannot be read now may be kept again.
    if (typeof read === "string") return read;
    definitions.set(digest, read);
    if (definitions.size > KEPT) definitions.delete(definitions.keys().next().value as string);
    return read;
  }

  function readKept(content: string): Asked | string {
    try {
      const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
      const { workflow, files } = readPinned(new TextDecoder().decode(bytes), limits);
      return askedOf(workflow, files);
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }

  const cannot = ({ stepId }: StepToJudge, message: string): StepVerdict => ({
    stepId,
    does: "fail",
    class: "env_invalid",
    reason: "definition",
    message,
  });

  async function verdictsOf(asks: readonly StepToJudge[]): Promise<readonly StepVerdict[]> {
    const [first] = asks;
    if (first === undefined) return [];
    const asked = await definitionOf(first.run);
    if (typeof asked === "string") return asks.map((ask) => cannot(ask, asked));
    /** One that cannot be decided on ends; a bug in it would else hold up all others for ever. */
    const safely = <T>(ask: StepToJudge, of: () => T): T | StepVerdict => {
      try {
        return of();
      } catch (error) {
        if (!(error instanceof AppError)) log("error", "bug", { step: ask.stepId, message: String(error) });
        return cannot(ask, error instanceof Error ? error.message : String(error));
      }
    };
    const keys = asks.flatMap((ask) => {
      const read = safely(ask, () => readsOf(asked, ask.definitionStep, limits));
      return "stepId" in read ? [] : read;
    });
    const ended = keys.length === 0 ? [] : await store.steps.ended({ runId: first.run.id, keys: [...new Set(keys)] });
    return asks.map((ask) => safely(ask, () => decide(asked, ask, ended, limits)));
  }

  return {
    name: "judge",
    async tick() {
      const asks = await store.steps.toJudge({ hostId, limit: limits.judgeSteps });
      if (asks.length === 0) return;
      await loadExpressions();
      const byRun = new Map<string, StepToJudge[]>();
      for (const ask of asks) byRun.set(ask.run.id, [...(byRun.get(ask.run.id) ?? []), ask]);
      let changed = false;
      for (const [runId, ofRun] of byRun) {
        const { run, judged } = await store.steps.judge({ runId, verdicts: await verdictsOf(ofRun), limits });
        if (run !== "queued" && run !== "running" && run !== "waiting") onEnded();
        changed ||= judged > 0;
      }
      if (!changed) return;
      onReady();
      // Also what an end of these has made ready to be asked.
      again();
    },
  };
}
