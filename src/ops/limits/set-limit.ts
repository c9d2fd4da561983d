import { AppError } from "../../core/errors.ts";
import { notServed } from "../accounts/account-answer.ts";
import { warningShape } from "../documents.ts";
import { integer, required } from "../fields.ts";
import { checkResource, resourceField } from "./limit-resource.ts";
import { defineOperation } from "../operation.ts";
import { integer as count, listOf, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "limit.set",
  where: "write",
  raises: ["not_found"],
  summary: "Set how much of a resource may be used at a time",
  input: {
    resource: resourceField,
    limit: required(integer("how many at most", { min: 0, max: 1_000_000 })),
  },
  output: object({ resource: string, limit: count, warnings: listOf(warningShape) }),
  cli: {
    positionals: ["resource", "limit"],
    examples: ["limit set account:claude:work 2", "limit set provider:codex 4"],
    notes: ["`drover limit rm` takes a limit away again."],
  },
  async run(context, { resource, limit }) {
    const { store } = context;
    checkResource(resource);
    const [kind, provider = "", name = ""] = resource.split(":");
    if (kind === "account" && name !== "default") {
      const found = await store.accounts.get({ accountId: `${provider}:${name}` });
      if (found === null)
        throw new AppError(
          "not_found",
          "account_not_found",
          `there is no account ${JSON.stringify(`${provider}:${name}`)}`,
          {
            path: "resource",
            hint: "`drover account ls` lists those that there are.",
          },
        );
    }
    await store.admission.setLimit({ resource, limit });
    return { resource, limit, warnings: await notServed(context) };
  },
});
