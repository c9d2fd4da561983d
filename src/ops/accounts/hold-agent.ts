import { PROVIDERS } from "./agent-target.ts";
import { holdsShape, toHoldDocument } from "../documents.ts";
import { choice, required, text } from "../fields.ts";
import { holdEnd, holdFields, WITHOUT_REASON } from "./hold-until.ts";
import { defineOperation } from "../operation.ts";
import { object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "agent.hold",
  where: "write",
  summary: "Keep all accounts of a provider free for a while, or until it is released; what runs goes on",
  input: {
    provider: required(choice("the provider", PROVIDERS, { placeholder: "PROVIDER" })),
    ...holdFields,
    reason: text("why, shown by `why`, `agent ls` and `account show`", { free: true }),
  },
  output: object({ provider: string, holds: holdsShape }),
  cli: {
    positionals: ["provider"],
    excludes: [["until", "forMs"]],
    examples: ["agent hold claude --for 2h --reason 'they have an outage'"],
  },
  async run(context, input) {
    const { provider } = input;
    const holds = await context.store.accounts.holdProvider({
      provider,
      untilAt: await holdEnd(context, input),
      reason: input.reason ?? WITHOUT_REASON,
    });
    return { provider, holds: holds.map(toHoldDocument) };
  },
});
