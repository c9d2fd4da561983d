import { AppError } from "../core/errors.ts";
import { badInput, integer, required, text } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { integer as count, object, string } from "./shape.ts";

export const operation = defineOperation({
  name: "limit.set",
  where: "write",
  summary: "Set how much of a resource may be used at a time",
  input: {
    resource: required(
      text("the resource: account:PROVIDER:NAME, provider:NAME, or folder:PATH", { placeholder: "RESOURCE" }),
    ),
    limit: required(integer("how many at most", { min: 0, max: 1_000_000 })),
  },
  output: object({ resource: string, limit: count }),
  cli: {
    positionals: ["resource", "limit"],
    examples: ["limit set account:claude:work 2", "limit set provider:codex 4"],
  },
  async run({ store }, { resource, limit }) {
    const [kind] = resource.split(":", 1);
    if (kind === "host")
      throw badInput(
        "resource",
        "a host's caps come from its configuration",
        "Set caps.commands and caps.agents in config.yaml: `drover config path` says where it is.",
      );
    if (!/^(account|provider|folder):./s.test(resource))
      throw badInput(
        "resource",
        `there is no resource ${JSON.stringify(resource)}`,
        "Write it as in account:claude:work, provider:codex or folder:/srv/app.",
      );
    const [, provider = "", name = ""] = resource.split(":");
    if (kind === "account" && name !== "default") {
      const found = await store.accounts.get({ accountId: `${provider}:${name}` });
      if (found === null)
        throw new AppError(
          "not_found",
          "no_such_account",
          `there is no account ${JSON.stringify(`${provider}:${name}`)}`,
          {
            path: "resource",
            hint: "`drover account ls` lists those that there are.",
          },
        );
    }
    await store.admission.setLimit({ resource, limit });
    return { resource, limit };
  },
});
