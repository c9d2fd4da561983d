/** The resources whose limits people set. */
import { badInput, required, text } from "../fields.ts";

export const resourceField = required(
  text("the resource: account:PROVIDER:NAME, provider:NAME, or folder:PATH", {
    placeholder: "RESOURCE",
    completes: "resource",
  }),
);

/** Errors: AppError invalid `bad_input`, where it is none. */
export function checkResource(resource: string): void {
  if (resource.startsWith("host:"))
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
}
