import { folder, pairs, required, text } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { integer, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "template.render",
  where: "local",
  unconfigured: true,
  raises: ["not_found", "conflict", "unreachable"],
  summary: "Make a workflow's file of a template; it is checked, and nothing runs",
  input: {
    template: required(text("the template", { placeholder: "NAME", completes: "template" })),
    set: pairs("a variable's value; a list or a set of names as JSON", { free: true }),
    out: folder("the file that it is written to, which must not be there yet; standard output unless given", {
      placeholder: "FILE",
      completes: "file",
    }),
  },
  output: object({
    template: string,
    /** Of the workflow. */
    name: string,
    steps: integer,
    file: nullable(string),
    text: string,
  }),
  cli: {
    positionals: ["template"],
    examples: [
      "template render check-then-fix --set check='npm test' --set tries=2",
      "template render report-only --out report.yaml",
    ],
    notes: ["A value is data: ${{ }} in it is text in the workflow too."],
  },
  async run({ places, settings }, input) {
    const [{ renderTemplateText, requireTemplate }, { writeWhole }] = await Promise.all([
      import("./template-text.ts"),
      import("../write-whole.ts"),
    ]);
    const { source, template, bytes } = await requireTemplate(input.template, places.templates, settings.limits);
    const made = await renderTemplateText(source.name, bytes, template, input.set ?? {}, settings.limits);
    if (input.out !== undefined) await writeWhole(input.out, [made.text], { mode: 0o666 });
    return { template: source.name, name: made.name, steps: made.steps, file: input.out ?? null, text: made.text };
  },
});
