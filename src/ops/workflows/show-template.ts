import { required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { anything, boolean, listOf, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "template.show",
  where: "local",
  unconfigured: true,
  raises: ["not_found", "conflict"],
  summary: "Show a workflow template: what it is for, its variables, its text",
  input: { template: required(text("the template", { placeholder: "NAME", completes: "template" })) },
  output: object({
    name: string,
    builtIn: boolean,
    file: nullable(string),
    description: string,
    variables: listOf(
      object({
        name: string,
        required: boolean,
        /** Its JSON Schema. */
        schema: anything,
        /** null where there is none, or where it is null. */
        default: anything,
        description: nullable(string),
      }),
    ),
    text: string,
  }),
  cli: { positionals: ["template"], examples: ["template show check-then-fix"] },
  async run({ places, settings }, input) {
    const { requireTemplate } = await import("./template-text.ts");
    const { source, template, bytes } = await requireTemplate(input.template, places.templates, settings.limits);
    const { description, variables } = template;
    return {
      name: source.name,
      builtIn: source.file === null,
      file: source.file,
      description,
      variables: variables.map(({ name, required, schema }) => {
        const said = (typeof schema === "boolean" ? {} : schema) as { default?: unknown; description?: string };
        return { name, required, schema, default: said.default ?? null, description: said.description ?? null };
      }),
      text: bytes.toString(),
    };
  },
});
