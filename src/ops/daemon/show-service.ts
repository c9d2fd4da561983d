import { defineOperation } from "../operation.ts";
import { serviceShape } from "./service-answer.ts";
import { serviceFacts } from "./service-facts.ts";
import { serviceStateOf, type ServiceState } from "./service-state.ts";
import { settingsAsFarAsRead } from "../config/settings.ts";
import { nullable, object, oneOf, integer, string } from "../shape.ts";

export const operation = defineOperation({
  name: "daemon.status",
  where: "local",
  unconfigured: true,
  raises: ["unreachable"],
  summary: "Show the service that starts the daemon: installed, enabled, active, and whether its paths are right",
  input: {},
  output: object({
    /** null on a system without a service manager that drover knows. */
    service: nullable(serviceShape),
    daemon: object({
      state: oneOf(["up", "draining", "down", "unresponsive"]),
      pid: nullable(integer),
      version: nullable(string),
      service: nullable(string),
    }),
  }),
  cli: {
    exit: ({ service }: { readonly service: ServiceState | null }) =>
      service?.findings.some(({ level }) => level === "problem") === true ? 1 : 0,
    examples: ["daemon status", "daemon status --json"],
    notes: ["It ends with 1 where the service cannot do its work, as when the program that it starts has moved."],
  },
  async run(context) {
    const settings = await settingsAsFarAsRead(context.env, context.places);
    const facts = await serviceFacts({ ...context, settings });
    const answer = await context.askDaemon();
    const holder = "health" in answer ? null : await context.lockHolder();
    return {
      service: facts === null ? null : serviceStateOf(facts),
      daemon:
        "health" in answer
          ? {
              state: answer.health.state,
              pid: answer.health.pid,
              version: answer.health.version,
              service: answer.health.service ?? null,
            }
          : {
              state: holder === null ? ("down" as const) : ("unresponsive" as const),
              pid: holder?.pid ?? null,
              version: null,
              service: null,
            },
    };
  },
});
