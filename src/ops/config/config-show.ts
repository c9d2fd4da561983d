import { defineOperation } from "../operation.ts";
import { anything, object, oneOf, pageOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "config.show",
  where: "local",
  summary: "Print every setting with its source",
  input: {},
  output: pageOf(
    object({ key: string, value: anything, text: string, source: oneOf(["default", "file", "environment"]) }),
  ),
  cli: { examples: ["config show"] },
  async run({ settings }) {
    return { items: settings.all, next: null };
  },
});
