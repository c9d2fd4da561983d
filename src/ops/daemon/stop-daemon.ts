import { duration, flag, withDefault } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { boolean, integer, object } from "../shape.ts";

export const operation = defineOperation({
  name: "daemon.stop",
  where: "act",
  // After an upgrade it is the new command that has to stop the old daemon.
  anyVersion: true,
  summary: "Ask the daemon to go down",
  input: {
    drainMs: withDefault(duration("how long to wait for running attempts"), 0),
    stopRuns: flag("end what runs"),
  },
  output: object({ pid: integer, stopping: boolean }),
  async run({ control }, input) {
    const { pid } = control.health();
    control.stop({ drainMs: input.drainMs, stopRuns: input.stopRuns });
    return { pid, stopping: true };
  },
});
