/** The service manager of this system. */
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import type { ServiceControl } from "../../core/service.ts";
import { completePath } from "../environment.ts";
import type { AskerOptions } from "./ask.ts";
import { launchd } from "./launchd.ts";
import { systemd } from "./systemd.ts";

/** This user's service manager; null where there is none that drover knows. */
export function openServices(options: AskerOptions & { readonly home: string }): ServiceControl | null {
  if (process.platform === "darwin") return launchd({ ...options, uid: process.getuid?.() ?? 0 });
  const folders = completePath(options.environment["PATH"] ?? "", options.home).split(":");
  return folders.some((folder) => isProgram(join(folder, "systemctl"))) ? systemd(options) : null;
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false; // not there
  }
}
