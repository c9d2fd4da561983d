/** The installed service, as `daemon status` judges it. */
import type { Check } from "../findings.ts";
import { serviceFacts } from "../../daemon/service-facts.ts";
import { serviceStateOf } from "../../daemon/service-state.ts";

/** A hint that is nothing but a command. */
const COMMAND = /^(?:drover|systemctl|loginctl|launchctl) [^.;:]*$/;

export const service: Check = {
  name: "service",
  async look({ world, settings, find, ok }) {
    const facts = await serviceFacts({
      env: world.env,
      places: world.places,
      settings,
      askDaemon: () => world.askDaemon(),
      service: () => world.service(),
      self: () => world.self(),
    });
    if (facts === null) return ok("there is no service manager here that drover knows");
    const state = serviceStateOf(facts);
    for (const { code, level, message, hint } of state.findings)
      find(code, { subject: state.file, message, level, ...(COMMAND.test(hint) ? { command: hint } : { hint }) });
    if (!state.installed) ok("none is installed: drover daemon install makes one");
    else if (state.findings.length === 0) ok(`${state.name}, ${state.state ?? "state unknown"}`);
  },
};
