import { choice, withDefault } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { anything } from "../shape.ts";

export const operation = defineOperation({
  name: "config.schema",
  where: "local",
  unconfigured: true,
  summary: "Print the JSON Schema of drover.yaml, of a workflow or of config.yaml, for editors",
  input: {
    file: withDefault(
      choice("the file", ["drover.yaml", "workflow.yaml", "config.yaml"], { placeholder: "FILE" }),
      "drover.yaml",
    ),
  },
  output: anything,
  cli: {
    positionals: ["file"],
    examples: ["config schema", "config schema workflow.yaml", "config schema config.yaml"],
    notes: ["Editors find it by a first line: # yaml-language-server: $schema=drover.schema.json"],
  },
  async run(_context, { file }) {
    if (file === "workflow.yaml") return (await import("../workflows/workflow-file.ts")).workflowSchema();
    const { configSchema, declarationSchema } = await import("../declared/declared-schema.ts");
    return file === "config.yaml" ? configSchema() : declarationSchema();
  },
});
