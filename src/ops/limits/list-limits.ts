import { defineOperation } from "../operation.ts";
import { integer, nullable, object, pageOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "limit.ls",
  where: "read",
  summary: "List caps with what is used of them",
  input: {},
  output: pageOf(object({ resource: string, host: nullable(string), limit: integer, used: integer })),
  cli: { examples: ["limit ls"] },
  async run({ store }) {
    const [usage, hosts] = await Promise.all([store.admission.usage({}), store.hosts.list({})]);
    const names = new Map(hosts.map((host) => [host.id, host.name]));
    const items = usage.map(({ resource, limit, used }) => ({
      resource,
      /** The name of the host whose cap it is. */
      host: names.get(resource.split(":")[1] ?? "") ?? null,
      limit,
      used,
    }));
    return { items, next: null };
  },
});
