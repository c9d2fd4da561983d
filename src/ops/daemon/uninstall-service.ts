import { rmSync } from "node:fs";
import { AppError } from "../../core/errors.ts";
import { flag } from "../fields.ts";
import { defineOperation } from "../operation.ts";
import { readText, serviceFileOf, spellingOf } from "./service-facts.ts";
import { type Warning, warningShape } from "../documents.ts";
import { boolean, integer, listOf, nullable, object, string } from "../shape.ts";

export const operation = defineOperation({
  name: "daemon.uninstall",
  where: "local",
  unconfigured: true,
  raises: ["conflict", "unreachable"],
  summary: "Stop the service and remove it; runs go on",
  input: { edited: flag("also when somebody has changed its file") },
  output: object({
    removed: boolean,
    file: string,
    stopped: boolean,
    /** Runs that go on without a daemon; null where the store cannot say. */
    left: nullable(integer),
    warnings: listOf(warningShape),
  }),
  cli: {
    examples: ["daemon uninstall"],
    notes: ["Only what drover has written is removed. `drover up` starts a daemon by hand afterwards."],
  },
  async run(context, input) {
    const control = await context.service();
    if (control === null)
      throw new AppError("unreachable", "no_service_manager", "neither systemd nor launchd is found here");
    const { name, file } = await serviceFileOf(control, context);
    const text = readText(file);
    const warnings: Warning[] = [];
    if (text === null) return { removed: false, file, stopped: false, left: null, warnings };
    const { ours, edited } = spellingOf(control.kind).read(text);
    if (!ours)
      throw new AppError("conflict", "service_foreign", `${file} was not written by drover, and stays`, {
        path: file,
        hint: "Look at it, and remove it by hand if nobody needs it.",
      });
    if (edited && !input.edited)
      throw new AppError("conflict", "service_edited", `${file} was changed by hand`, {
        path: file,
        hint: "--edited removes it all the same.",
      });
    const look = await control.look(name);
    const runs = look.state === "active" || look.state === "starting" || look.state === "waiting";
    if (look.fault === null) {
      if (runs) await control.stop(name);
      await control.disable(name);
    } else
      warnings.push({
        code: "service_unreachable",
        message: `the service manager cannot be asked, and may start it once more: ${look.fault}`,
        hint: "drover status says whether a daemon is up",
      });
    rmSync(file, { force: true });
    if (look.fault === null) await control.reload();
    for (const path of look.dropIns)
      warnings.push({
        code: "service_drop_in",
        message: `${path} is not drover's, and stays`,
        hint: "Remove it by hand.",
      });
    const left = await context
      .reading(async ({ store }) => (await store.runs.counts({})).running)
      .catch((error: unknown) => {
        if (error instanceof AppError) return null; // removing a service does not need the store
        throw error;
      });
    return { removed: true, file, stopped: runs, left, warnings };
  },
});
