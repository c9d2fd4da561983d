/** Whether the store opens, is whole, and is of this version. */
import { AppError } from "../../../core/errors.ts";
import type { FindingCode } from "../finding-codes.ts";
import type { Check } from "../findings.ts";
import { storeFileOf, withoutPassword } from "../../config/settings.ts";

/** Codes of opening a store, and what they are here; every other is `store_unusable`. */
const CODES: Readonly<Record<string, FindingCode>> = {
  store_corrupt: "store_damaged",
  newer_schema: "store_newer",
  older_schema: "store_older",
};

export const store: Check = {
  name: "store",
  async look({ world, settings, configFault, probes, openStore, find, ok }) {
    if (configFault !== null)
      return find("not_looked_at", { subject: "store", message: "the configuration has to be mended first" });
    const file = storeFileOf(settings.store, world.places);
    const place = file ?? withoutPassword(settings.store);
    const isNew = file !== null && probes.stat(file) === null;
    try {
      const { store: opened } = await openStore();
      await opened.runs.counts({});
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return find(CODES[error.code] ?? "store_unusable", {
        subject: place,
        message: error.message,
        ...(error.hint === undefined ? {} : { hint: error.hint }),
        ...(error.code === "older_schema" ? { command: "drover up" } : {}),
      });
    }
    if (isNew) return ok("nothing is stored yet");
    const { faults, whole } = await probes.storeFaults(settings.limits.doctorStoreMs);
    for (const fault of faults)
      find("store_damaged", {
        subject: place,
        message: `the store is damaged: ${fault}`,
        hint: "Stop the daemon with `drover down`, keep the damaged file, and put the newest backup in its place.",
      });
    if (faults.length > 0) return;
    if (!whole)
      find("store_not_checked", {
        subject: place,
        message: `it opens and answers; not every page of it could be looked at in ${settings.limits.doctorStoreMs / 1_000} s`,
        hint: "Set limits.doctorStoreMs higher to look at all of it.",
      });
    else ok(place);
  },
};
