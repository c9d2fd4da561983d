import { defineOperation } from "../operation.ts";
import { boolean, integer, nullable, object, pageOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "template.ls",
  where: "local",
  unconfigured: true,
  summary: "List workflow templates: the built-in ones, and your own in the configuration folder",
  input: {},
  output: pageOf(
    object({
      name: string,
      builtIn: boolean,
      file: nullable(string),
      description: nullable(string),
      variables: integer,
      /** Why it cannot be used. */
      problem: nullable(string),
    }),
  ),
  cli: {
    examples: ["template ls"],
    notes: ["Your own are files NAME.yaml in templates/ of the configuration folder, which `config path` names."],
  },
  async run({ places, settings }) {
    const [{ listTemplates }, { readTemplate }] = await Promise.all([
      import("./template-sources.ts"),
      import("./template-text.ts"),
    ]);
    const items = [];
    for (const source of listTemplates(places.templates, settings.limits)) {
      const { template, fault } = await readTemplate(source, settings.limits);
      items.push({
        name: source.name,
        builtIn: source.file === null,
        file: source.file,
        description: template?.description ?? null,
        variables: template?.variables.length ?? 0,
        problem: fault?.message ?? null,
      });
    }
    return { items, next: null };
  },
});
