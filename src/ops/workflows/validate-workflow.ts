import { folder, required } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, integer, listOf, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "workflow.validate",
  where: "local",
  unconfigured: true,
  summary: "List every problem of a workflow's file with its line",
  input: { file: required(folder("the workflow's file, YAML or JSON", { placeholder: "FILE", completes: "file" })) },
  output: object({
    file: string,
    ok: boolean,
    name: nullable(string),
    steps: integer,
    count: integer,
    problems: listOf(
      object({
        code: string,
        message: string,
        "hint?": string,
        "path?": string,
        file: string,
        "line?": integer,
        "column?": integer,
      }),
    ),
  }),
  cli: {
    positionals: ["file"],
    exit: (answer: { readonly ok: boolean }) => (answer.ok ? 0 : 1),
    examples: ["workflow validate fix-failing-test.yaml"],
    notes: [
      "Ends with 1 when there is a problem. It looks at the file alone: no program, account or prompt file is looked for.",
    ],
  },
  async run({ settings }, { file }) {
    const { readWorkflowFile } = await import("./workflow-file.ts");
    const { workflow, problems, count } = await readWorkflowFile(file, settings.limits);
    const definition = workflow?.definition;
    return {
      file,
      ok: count === 0,
      name: definition?.name ?? null,
      steps: definition?.steps.length ?? 0,
      count,
      problems,
    };
  },
});
