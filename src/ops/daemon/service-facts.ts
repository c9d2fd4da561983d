/** What is seen of the service of a state folder, for `serviceStateOf`. */
import { readFileSync, realpathSync } from "node:fs";
import { AppError } from "../../core/errors.ts";
import type { ServiceControl, ServiceKind } from "../../core/service.ts";
import type { Warning } from "../documents.ts";
import { isFile } from "../look.ts";
import type { Reach } from "../operation.ts";
import { homeOf, type Places } from "../places.ts";
import { plistFile, plistText, readPlist } from "./service-plist.ts";
import type { ReadServiceFile } from "./service-file.ts";
import { servicePlanOf, serviceName, type ServicePlan } from "./service-plan.ts";
import type { ServiceFacts } from "./service-state.ts";
import { readUnit, unitFile, unitText } from "./service-unit.ts";
import type { Settings } from "../config/settings.ts";

export interface ServiceReach extends Pick<Reach, "env" | "askDaemon" | "service" | "self"> {
  readonly places: Places;
  readonly settings: Settings;
}

/** How each manager's files are called, written and read. */
interface Spelling {
  file(folder: string, name: string): string;
  text(plan: ServicePlan): string;
  read(text: string): ReadServiceFile;
}

const SPELLINGS: { readonly [K in ServiceKind]: Spelling } = {
  systemd: { file: unitFile, text: unitText, read: readUnit },
  launchd: { file: plistFile, text: plistText, read: readPlist },
};

export const spellingOf = (kind: ServiceKind): Spelling => SPELLINGS[kind];

/** Where the service's file is, or would be: in a folder that the manager looks into, whatever this shell's is. */
export async function serviceFileOf(
  control: ServiceControl,
  { env, places }: Pick<ServiceReach, "env" | "places">,
): Promise<{ readonly name: string; readonly file: string }> {
  const name = serviceName(places, homeOf(env) ?? "/");
  return { name, file: spellingOf(control.kind).file(await control.folder(), name) };
}

/** Plans the service that this command would install. Errors: as of `servicePlanOf`. */
export async function planHere(
  control: ServiceControl,
  { env, places, settings, self }: Pick<ServiceReach, "env" | "places" | "settings" | "self">,
): Promise<{ readonly plan: ServicePlan; readonly warnings: readonly Warning[] }> {
  const { node, nodeOptions, program, path } = await self();
  return servicePlanOf({
    kind: control.kind,
    env,
    places,
    home: homeOf(env) ?? "/",
    usualHome: homeOf({}),
    node,
    nodeOptions,
    program,
    path,
    store: settings.store,
    shutdownMs: settings.limits.shutdownMs,
    restartMs: settings.limits.serviceRestartMs,
    realpath(file) {
      try {
        return realpathSync(file);
      } catch {
        return null; // it leads nowhere
      }
    },
  });
}

/** Looks at the service of this state folder; null on a system without a service manager that drover knows. */
export async function serviceFacts(reach: ServiceReach): Promise<ServiceFacts | null> {
  const control = await reach.service();
  if (control === null) return null;
  const { name, file } = await serviceFileOf(control, reach);
  const [look, answer] = await Promise.all([control.look(name), reach.askDaemon()]);
  const { read, text: write } = spellingOf(control.kind);
  const text = readText(file);
  const found = text === null ? null : read(text);
  const plan = await planHere(control, reach)
    .then((made) => made.plan)
    .catch((error: unknown) => {
      if (error instanceof AppError) return null; // it could not be installed from here, which `install` says
      throw error;
    });
  const [node = "", ...args] = found?.words ?? [];
  const isScript = (word: string) => word.startsWith("/");
  const program = args.find(isScript);
  return {
    kind: control.kind,
    name,
    file,
    found,
    missing: [node, ...(program === undefined ? [] : [program])].filter((one) => isScript(one) && !isFile(one)),
    plan,
    current: found === null || plan === null || write({ ...plan, node, args, env: found.env }) === text,
    look,
    daemon: "health" in answer ? { pid: answer.health.pid, service: answer.health.service ?? null } : null,
  };
}

/** What the file holds; null where there is none. Errors: AppError unreachable `service_unreadable`. */
export function readText(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown";
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw new AppError("unreachable", "service_unreadable", `the service's file cannot be read (${code})`, {
      path: file,
      hint: "Make it readable for this user, or move it away.",
      cause: error,
    });
  }
}
