/** Whether the folders are this user's alone, and can be written. */
import { dirname } from "node:path";
import type { Check } from "../findings.ts";
import { storeFileOf } from "../../config/settings.ts";
import { writeFaults } from "../../writable.ts";

export const folders: Check = {
  name: "folders",
  look({ world, settings, configFault, probes, find, ok }) {
    const { state, runs, logs, daemonLog } = world.places;
    const storeFile = configFault !== null ? null : storeFileOf(settings.store, world.places);
    const ofStore = storeFile === null ? [] : [storeFile, `${storeFile}-wal`, `${storeFile}-shm`];
    const faults = writeFaults(
      [state, runs, logs, ...(storeFile === null ? [] : [dirname(storeFile)])],
      [daemonLog, ...ofStore],
    );
    for (const { path, message, hint } of faults)
      find("file_unwritable", {
        subject: path,
        message,
        ...(/^(?:sudo|chmod|mv) /.test(hint) ? { command: hint } : { hint }),
      });
    const open = [state, runs, logs].filter((path) => ((probes.stat(path)?.mode ?? 0) & 0o077) !== 0);
    for (const path of open)
      find("folder_open", {
        subject: path,
        message: `others can look into ${path}`,
        command: `chmod 700 ${path}`,
        mending: { does: `chmod 700 ${path}`, perform: async () => probes.closeToOthers(path) },
      });
    if (open.length === 0 && faults.length === 0) ok("for this user alone, and can be written");
  },
};
