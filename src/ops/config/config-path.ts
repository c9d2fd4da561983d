import { defineOperation } from "../operation.ts";
import { socketsOf } from "../daemon/socket-record.ts";
import { boolean, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "config.path",
  where: "local",
  unconfigured: true,
  summary: "Print where configuration, state, logs and the socket are",
  input: {},
  output: object({
    config: string,
    exists: boolean,
    state: string,
    runs: string,
    logs: string,
    socket: string,
    home: nullable(string),
  }),
  cli: { examples: ["config path"] },
  async run({ places }) {
    const { existsSync } = await import("node:fs");
    return {
      config: places.configFile,
      exists: existsSync(places.configFile),
      state: places.state,
      runs: places.runs,
      logs: places.logs,
      socket: socketsOf(places)[0] ?? places.socket,
      home: places.home,
    };
  },
});
