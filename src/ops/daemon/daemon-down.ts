import { AppError } from "../../core/errors.ts";
import { duration, flag } from "../fields.ts";
import { defineOperation, type LocalContext } from "../operation.ts";
import { findInstalled } from "./service-start.ts";
import { boolean, integer, nullable, object, oneOf, string } from "../shape.ts";

/** Beyond what the daemon was asked to wait for: signals to trees with their grace, the last writes. */
const SHUTDOWN_MS = 60_000;
const LOOK_MS = 25;

export const operation = defineOperation({
  name: "down",
  where: "local",
  raises: ["conflict", "unauthorised"],
  summary: "Stop the daemon; running attempts go on without it unless told otherwise",
  input: {
    drainMs: duration("first wait for running attempts", { bare: "30s" }),
    stopRuns: flag("end what runs; it starts again with the next daemon"),
  },
  output: object({
    state: oneOf(["down"]),
    stopped: boolean,
    pid: nullable(integer),
    left: nullable(integer),
    /** The service that had started it, and that starts it again with the next session; null where none did. */
    service: nullable(string),
  }),
  cli: {
    examples: ["down", "down --drain 2m", "down --stop-runs"],
    notes: [
      "A service does not start again what was stopped by this; `up` does, and so does the next boot or login.",
      "`drover daemon uninstall` ends that.",
    ],
  },
  async run(context, input) {
    const answer = await context.askDaemon();
    const holder = await context.lockHolder();
    if ("absent" in answer) {
      if (holder === null) {
        const service = await quieted(context);
        return { state: "down" as const, stopped: service !== null, pid: null, left: await live(context), service };
      }
      throw new AppError(
        "unreachable",
        "daemon_unresponsive",
        `a daemon holds the lock${holder.pid === null ? "" : ` (pid ${holder.pid})`} and does not answer`,
        { hint: "It may be starting or stopped: try again. What runs is not harmed when you end that process." },
      );
    }
    const drainMs = input.drainMs ?? 0;
    try {
      await context.call("daemon.stop", { drainMs, stopRuns: input.stopRuns });
    } catch (error) {
      // One that was idle has ended between the two questions: what was asked for is so.
      if (!(error instanceof AppError) || error.code !== "daemon_down") throw error;
    }
    const deadline = performance.now() + drainMs + SHUTDOWN_MS;
    for (;;) {
      const now = await context.lockHolder();
      // Another one may be up already.
      if (now === null || (now.pid !== null && now.pid !== answer.health.pid)) break;
      if (performance.now() > deadline)
        throw new AppError(
          "unreachable",
          "daemon_still_up",
          `the daemon (pid ${answer.health.pid}) has not gone down yet`,
          {
            hint: `It goes on going down; its log says more: ${context.places.daemonLog}`,
          },
        );
      await context.wait(LOOK_MS);
    }
    const { pid, service = null } = answer.health;
    return { state: "down" as const, stopped: true, pid, left: await live(context), service };
  },
});

/** Stops a service that would start a daemon in a moment, as after a crash; answers its name, null where none was about to. */
async function quieted(context: LocalContext): Promise<string | null> {
  const installed = await findInstalled(context);
  if (installed === null) return null;
  const { control, name } = installed;
  const { fault, state } = await control.look(name);
  if (fault !== null || state === "inactive" || state === "failed") return null;
  await control.stop(name);
  return name;
}

/** Runs that go on without a daemon; null where the store cannot say. */
async function live(context: LocalContext): Promise<number | null> {
  try {
    return await context.reading(async ({ store }) => (await store.runs.counts({})).running);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return null; // going down does not need the store: a damaged one must not keep a daemon up
  }
}
