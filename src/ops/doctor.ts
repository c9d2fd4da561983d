import { flag } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { boolean, listOf, nullable, object, oneOf, string } from "./shape.ts";

export const operation = defineOperation({
  name: "doctor",
  where: "local",
  unconfigured: true,
  summary: "Check store, lock, clock, disk, PATH, agents, accounts and what was left over; ends with 1 on findings",
  input: { fix: flag("mend what can be mended without loss") },
  output: object({
    ok: boolean,
    findings: listOf(
      object({ check: string, level: oneOf(["ok", "warning", "problem"]), message: string, hint: nullable(string) }),
    ),
  }),
  cli: {
    exit: (answer: { readonly ok: boolean }) => (answer.ok ? 0 : 1),
    examples: ["doctor", "doctor --json"],
  },
  async run(context, input) {
    const findings = await context.inspect(input.fix);
    return { ok: findings.every((finding) => finding.level === "ok"), findings };
  },
});
