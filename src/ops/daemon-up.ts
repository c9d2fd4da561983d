import { flag } from "./fields.ts";
import { defineOperation } from "./operation.ts";
import { socketsOf } from "./socket-record.ts";
import { boolean, integer, nullable, object, oneOf, string } from "./shape.ts";

export const operation = defineOperation({
  name: "up",
  where: "local",
  raises: ["conflict"],
  summary: "Start the daemon, and return when it is ready",
  input: {
    foreground: flag("be the daemon, until Ctrl-C or TERM"),
    untilIdle: flag("fire no schedules, and end when nothing is left to run"),
  },
  output: object({
    state: oneOf(["up", "down"]),
    started: boolean,
    pid: nullable(integer),
    version: nullable(string),
    socket: string,
    log: string,
  }),
  cli: { examples: ["up", "up --foreground"] },
  async run(context, input) {
    const { places } = context;
    const log = places.daemonLog;
    const mode = input.untilIdle ? "until_idle" : "full";
    if (input.foreground) {
      await context.beDaemon(mode);
      return { state: "down", started: false, pid: null, version: null, socket: places.socket, log };
    }
    const { health, started } = await context.startDaemon(mode);
    const [socket = places.socket] = socketsOf(places);
    return { state: "up", started, pid: health.pid, version: health.version, socket, log };
  },
});
