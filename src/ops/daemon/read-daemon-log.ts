import { AppError } from "../../core/errors.ts";
import { followDaemonLog, readDaemonLog } from "./daemon-log-read.ts";
import { flag, integer } from "../fields.ts";
import { defineOperation, type LocalContext } from "../operation.ts";
import { anything, integer as count, object, pageOf, string } from "../shape.ts";

const input = {
  follow: flag("go on with what comes, until Ctrl-C", { short: "f" }),
  tail: integer("only the last lines", { min: 0, max: 10_000_000, short: "n" }),
} as const;

const noLog = ({ places }: Pick<LocalContext, "places">): AppError =>
  new AppError("not_found", "no_log", "there is no log: no daemon has run here yet", {
    path: places.daemonLog,
    hint: "drover up",
  });

export const operation = defineOperation({
  name: "daemon.logs",
  where: "local",
  unconfigured: true,
  raises: ["not_found"],
  summary: "Print the daemon's own log, also what was put aside when it grew",
  input,
  /** A line that is none of the log's, as one that was torn, has `text` alone. */
  output: pageOf(
    object({
      "at?": string,
      "level?": string,
      "event?": string,
      "data?": anything,
      "repeated?": count,
      "until?": string,
      "text?": string,
    }),
  ),
  cli: {
    pieces: true,
    examples: ["daemon logs --tail 50", "daemon logs -f"],
    notes: ["With --json and -f each line is an object of its own. What runs put out: `drover logs`."],
  },
  async run(context, { tail }) {
    const items = await readDaemonLog(context.places.daemonLog, tail ?? null);
    if (items === null) throw noLog(context);
    return { items, next: null };
  },
  async *follow(context, { follow, tail }, signal) {
    const { daemonLog } = context.places;
    if ((await readDaemonLog(daemonLog, 0)) === null) throw noLog(context);
    yield* followDaemonLog(daemonLog, tail ?? null, follow ? signal : AbortSignal.abort());
  },
});
