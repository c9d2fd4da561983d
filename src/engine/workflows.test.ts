/** Steps of workflows, asked by a whole engine. */
import { createHash } from "node:crypto";
import { expect, test } from "vitest";
import { runDraft } from "../../test/drafts.ts";
import { createStage } from "../../test/sim/stage.ts";
import { workflowTarget } from "../core/target.ts";
import { pinnedText } from "../core/workflow/pinned.ts";

test("a definition that was away for one run is read again for the next", async () => {
  let isAway = true;
  const stage = createStage({
    wrap: (ports) => {
      const { prompts } = ports.store;
      const get: typeof prompts.get = async (input) => (isAway ? null : prompts.get(input));
      return { ...ports, store: { ...ports.store, prompts: { ...prompts, get } } };
    },
  });
  await stage.start();
  const value = { name: "w", steps: [{ id: "one", type: "command", command: ["work", "quick"] }] };
  const content = Buffer.from(pinnedText({ text: "", value, files: {} }));
  const digest = createHash("sha256").update(content).digest("hex");
  await stage.store.prompts.put({ digest, content: content.toString("base64"), bytes: content.length });
  const condition = "none" as const;
  const steps = [{ key: "one", kind: "command" as const, condition, continueOnFailure: false, needs: [] }];
  await stage.store.definitions.put({ digest, steps });
  const definition = { digest, bytes: content.length, head: "" };
  const target = workflowTarget.parse({ kind: "workflow", name: "w", file: "/w.yaml", definition, cwd: "/" });
  const endOf = async () => {
    const { run } = await stage.store.runs.add(runDraft(target));
    await stage.until(async () => (await stage.tree(run.id)).run.finishedAt !== null);
    return (await stage.tree(run.id)).run;
  };
  expect(await endOf()).toMatchObject({
    status: "failed",
    error: { class: "env_invalid", message: "its definition is not kept any more" },
  });
  isAway = false;
  expect(await endOf()).toMatchObject({ status: "succeeded" });
});
