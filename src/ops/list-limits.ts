import { defineOperation } from "./operation.ts";
import { integer, object, pageOf, string } from "./shape.ts";

export const operation = defineOperation({
  name: "limit.ls",
  where: "read",
  summary: "List caps with what is used of them",
  input: {},
  output: pageOf(object({ resource: string, limit: integer, used: integer })),
  cli: { examples: ["limit ls"] },
  async run({ store }) {
    return { items: await store.admission.usage({}), next: null };
  },
});
