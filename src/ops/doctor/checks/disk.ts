/** Room on the file systems of the state and the store. */
import { dirname } from "node:path";
import { describeSize } from "../../../core/size.ts";
import type { Check } from "../findings.ts";
import { storeFileOf } from "../../config/settings.ts";

/** With fewer files left than this, attempts fail whatever space is free: each needs about ten. */
const LEAST_FILES = 1_000;

export const disk: Check = {
  name: "disk",
  async look({ world, settings, configFault, probes, find, ok }) {
    const { state } = world.places;
    const storeFile = configFault !== null ? null : storeFileOf(settings.store, world.places);
    const apart = storeFile === null || dirname(storeFile) === state ? [] : [dirname(storeFile)];
    const least = settings.limits.minFreeBytes;
    for (const path of [state, ...apart]) {
      const { freeBytes, freeFiles } = await probes.disk(path);
      const isShort = freeBytes < least;
      const isFew = freeFiles !== null && freeFiles < LEAST_FILES;
      if (isShort)
        find("disk_short", {
          subject: path,
          message: `${describeSize(freeBytes)} free at ${path}: nothing starts below ${describeSize(least)}`,
          hint: "Free some space, or lower limits.minFreeBytes. What takes it:",
          command: `du -xh -d 2 ${path} | sort -h | tail`,
        });
      if (isFew)
        find("inodes_short", {
          subject: path,
          message: `room for ${freeFiles} more files at ${path}, whatever space is free`,
          hint: "Remove small files there, or move the state folder with DROVER_HOME.",
          command: `df -i ${path}`,
        });
      if (!isShort && !isFew) ok(`${describeSize(freeBytes)} free`);
    }
  },
};
