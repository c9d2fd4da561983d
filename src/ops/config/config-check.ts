import { defineOperation } from "../operation.ts";
import { readConfigFile, readSettings } from "./settings.ts";
import { boolean, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";

export const operation = defineOperation({
  name: "config.check",
  where: "local",
  unconfigured: true,
  summary: "List every problem of the configuration with its line",
  input: {},
  output: object({
    file: string,
    exists: boolean,
    ok: boolean,
    problems: listOf(
      object({ level: oneOf(["error", "warning"]), line: nullable(integer), key: nullable(string), message: string }),
    ),
  }),
  cli: {
    exit: (answer: { readonly ok: boolean }) => (answer.ok ? 0 : 1),
    examples: ["config check"],
    notes: ["Ends with 1 when there is an error; unknown settings are warnings."],
  },
  async run({ places }) {
    const text = readConfigFile(places);
    const { problems } = await readSettings(process.env, places, text);
    return {
      file: places.configFile,
      exists: text !== null,
      ok: problems.every((problem) => problem.level !== "error"),
      problems,
    };
  },
});
