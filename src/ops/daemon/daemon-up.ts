import { AppError } from "../../core/errors.ts";
import { type Warning, warningShape } from "../documents.ts";
import { flag } from "../fields.ts";
import { type DaemonEnd, defineOperation } from "../operation.ts";
import { findInstalled, startInstalled } from "./service-start.ts";
import { boolean, integer, listOf, nullable, object, oneOf, string } from "../shape.ts";
import { socketsOf } from "./socket-record.ts";

/**
 * What a service manager is told by the exit status: 0 is wanted, and stays; everything else is started again. Without one,
 * a daemon in the foreground that ended in order has done what it was asked for.
 */
function exitOf({ why, service }: DaemonEnd): number {
  if (service === null || why === "down") return 0;
  if (why.startsWith("SIG")) return 130;
  return why === "superseded" ? 4 : 5;
}

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
    /** The service that started it; null for one that was started by hand. */
    service: nullable(string),
    /** With --foreground why it ended: `down`, a signal's name, `idle`, `superseded`, or the code of what failed. */
    ended: nullable(string),
    warnings: listOf(warningShape),
  }),
  cli: {
    exit: (answer: { readonly ended: string | null; readonly service: string | null }) =>
      answer.ended === null ? 0 : exitOf({ why: answer.ended, service: answer.service }),
    exits: [4, 5, 130],
    examples: ["up", "up --foreground"],
    notes: ["Where a service is installed, it is the service that is started: `drover daemon install`."],
  },
  async run(context, input) {
    const { places } = context;
    const log = places.daemonLog;
    const mode = input.untilIdle ? "until_idle" : "full";
    if (input.foreground) {
      const { why, service } = await context.beDaemon(mode);
      const { socket } = places;
      return {
        state: "down",
        started: false,
        pid: null,
        version: null,
        socket,
        log,
        service,
        ended: why,
        warnings: [],
      };
    }
    const warnings: Warning[] = [];
    const { health, started } = await start();
    const [socket = places.socket] = socketsOf(places);
    const { pid, version, service = null } = health;
    return { state: "up", started, pid, version, socket, log, service, ended: null, warnings };

    async function start() {
      const installed = mode === "full" ? await findInstalled(context) : null;
      if (installed !== null)
        try {
          return await startInstalled(context, installed);
        } catch (error) {
          if (!(error instanceof AppError) || error.code !== "service_unreachable") throw error;
          // As from a shell without a session: a daemon that somebody asks for now is more than none.
          warnings.push({
            code: "service_unreachable",
            message: `${error.message}; the daemon was started beside the service`,
            hint: error.hint ?? "drover daemon status",
          });
        }
      return context.startDaemon(mode);
    }
  },
});
