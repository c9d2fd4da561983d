import { defineOperation } from "../operation.ts";
import { object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "version",
  where: "local",
  unconfigured: true,
  summary: "Print the version",
  input: {},
  output: object({ version: string, build: string, node: string, platform: string }),
  cli: { examples: ["version --json"] },
  async run({ build }) {
    return {
      version: build.version,
      build: build.id,
      node: process.versions.node,
      platform: `${process.platform}-${process.arch}`,
    };
  },
});
