import { flag, folder, required } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, integer, listOf, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "workflow.graph",
  where: "local",
  unconfigured: true,
  summary: "Draw the steps of a workflow's file and what they wait for",
  input: {
    file: required(folder("the workflow's file, YAML or JSON", { placeholder: "FILE", completes: "file" })),
    mermaid: flag("draws it as a flowchart of Mermaid, for a page"),
  },
  output: object({
    file: string,
    name: string,
    graph: string,
    steps: listOf(
      object({
        id: string,
        type: string,
        needs: listOf(string),
        if: nullable(string),
        foreach: boolean,
        depth: integer,
      }),
    ),
  }),
  cli: {
    positionals: ["file"],
    examples: ["workflow graph fix-failing-test.yaml", "workflow graph fix-failing-test.yaml --mermaid"],
    notes: ["A step is further to the right the more steps end one after another before it starts."],
  },
  async run({ settings }, { file, mermaid }) {
    const { drawMermaid, drawnSteps, drawText, requireWorkflow } = await import("./workflow-file.ts");
    const workflow = await requireWorkflow(file, settings.limits);
    const steps = drawnSteps(workflow);
    const { name } = workflow.definition;
    return { file, name, graph: mermaid ? drawMermaid(steps) : drawText(steps), steps };
  },
});
