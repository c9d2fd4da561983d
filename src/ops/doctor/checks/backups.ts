/** Copies of the store: the newest one, and stores that were replaced. */
import { dirname } from "node:path";
import { describeDuration } from "../../../core/duration.ts";
import type { Check } from "../findings.ts";
import { storeFileOf } from "../../config/settings.ts";

export const backups: Check = {
  name: "backups",
  async look({ world, settings, configFault, probes, find, ok }) {
    const file = configFault !== null ? null : storeFileOf(settings.store, world.places);
    if (file === null) return ok("another server's to make, or not known");
    const store = probes.stat(file);
    if (store === null) return ok("nothing is stored yet");
    const { doctorBackupMs } = settings.limits;
    const now = world.clock.now();
    const folder = dirname(file);
    const made = (await probes.list(`${folder}/backups`)).flatMap((name) => {
      const found = name.endsWith(".db") ? probes.stat(`${folder}/backups/${name}`) : null;
      return found === null ? [] : [found.changedAt];
    });
    const newest = Math.max(...made);
    const before = now - doctorBackupMs;
    // A store that is younger than that has hardly anything to lose.
    if (newest < before && store.madeAt < before)
      find("backup_missing", {
        subject: file,
        message:
          made.length === 0
            ? "there is no backup of the store"
            : `the newest backup of the store is ${describeDuration(now - newest)} old`,
        command: "drover backup",
      });
    else
      ok(
        made.length === 0
          ? "none yet, of a store that is new"
          : `the newest is ${describeDuration(Math.max(0, now - newest))} old`,
      );
    for (const name of await probes.list(folder))
      if (name.startsWith("replaced-"))
        find("store_replaced", {
          subject: `${folder}/${name}`,
          message: `${folder}/${name} holds the store that a restore replaced`,
          hint: "When nothing in it is missed:",
          command: "drover gc --replaced",
        });
  },
};
