/** Workflows of the simulated world: each kind of step that a process stands for, in graphs that fail and are skipped in places. */
import { createHash } from "node:crypto";
import { defaultLimits } from "../../src/core/limits.ts";
import type { Store } from "../../src/core/ports.ts";
import { workflowTarget, type Target } from "../../src/core/target.ts";
import { loadExpressions } from "../../src/core/workflow/expression.ts";
import { pinnedText, readPinned } from "../../src/core/workflow/pinned.ts";
import { skeletonOf } from "../../src/core/workflow/skeleton.ts";
import type { Chance } from "./chance.ts";

const step = (id: string, habit: string, more: object = {}): object => ({
  id,
  type: "command",
  command: ["work", habit],
  ...more,
});
/** Wide, deep, and one with all that the truth table has. */
const FLOWS: readonly (readonly object[])[] = [
  [
    step("a", "quick"),
    step("b", "mixed", { needs: ["a"], continueOnFailure: true, retry: { attempts: 2, backoff: "1m" } }),
    step("c", "fail", { needs: ["a"] }),
    step("d", "quick", { needs: ["b"], if: "steps.b.exitCode != 0" }),
    step("e", "quick", { needs: ["c"], if: "failure()", lock: "one" }),
    step("f", "quick", { needs: ["d", "e"], if: "always()", lock: "one" }),
  ],
  [
    step("gate", "mixed", { type: "gate", blockedExitCodes: [1], timeout: "1h" }),
    ...["p", "q", "r"].map((id) => step(id, "mixed", { needs: ["gate"], retry: { attempts: 3, backoff: "1s" } })),
    step("last", "tree", { needs: ["p", "q", "r"] }),
    step("else", "quick", { needs: ["last"], if: "!success()" }),
  ],
  [
    step("list", "quick"),
    step("each", "mixed", { needs: ["list"], foreach: [1, 2, 3, 4, 5], concurrency: 2, continueOnFailure: true }),
    step("all", "fail", { needs: ["each"], foreach: ["a", "b"] }),
    step("then", "quick", { needs: ["all"], if: "failure()" }),
  ],
  [step("x", "quick"), step("y", "quick", { needs: ["x"], if: "steps.x.output.n > 1" }), step("z", "mixed")],
];

interface Flow {
  readonly target: Target;
  readonly content: string;
}
let made: readonly Flow[] | null = null;

/** Reads them once: what the language needs is loaded before any world begins. */
export async function loadFlows(): Promise<void> {
  if (made !== null) return;
  await loadExpressions();
  made = FLOWS.map((steps, i) => {
    const content = Buffer.from(pinnedText({ text: "", value: { name: `flow ${i}`, steps }, files: {} }));
    const digest = createHash("sha256").update(content).digest("hex");
    const definition = { digest, bytes: content.length, head: "" };
    return {
      target: workflowTarget.parse({ kind: "workflow", name: `flow ${i}`, file: "/w.yaml", definition, cwd: "/a" }),
      content: content.toString("base64"),
    };
  });
}

export const someFlow = (chance: Chance): Target => chance.pick(made ?? []).target;

/** Keeps them in the store of a world. */
export async function keepFlows(store: Store): Promise<void> {
  for (const { target, content } of made ?? []) {
    if (target.kind !== "workflow") continue;
    const { workflow } = readPinned(Buffer.from(content, "base64").toString(), defaultLimits);
    await store.prompts.put({ digest: target.definition.digest, content, bytes: target.definition.bytes });
    await store.definitions.put({ digest: target.definition.digest, steps: skeletonOf(workflow) });
  }
}
