import { texts } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { listOf, nullable, object, string } from "../shape.ts";

/** Names that are looked for at most. */
const LOOKED = 2_000;

export const operation = defineOperation({
  name: "daemon.look",
  where: "act",
  summary: "Say where the daemon finds programs, by its own PATH",
  input: { programs: texts("the name of a program, without a folder") },
  output: object({ found: listOf(object({ name: string, file: nullable(string) })) }),
  async run({ findProgram }, { programs = [] }) {
    const found = [];
    for (const name of programs.slice(0, LOOKED))
      found.push({ name, file: name.includes("/") ? null : await findProgram(name, "/", undefined) });
    return { found };
  },
});
