/** What grows: outputs past their time, the store and its log. */
import { describeDuration } from "../../../core/duration.ts";
import { madeAt } from "../../../core/ids.ts";
import { describeSize } from "../../../core/size.ts";
import type { Check } from "../findings.ts";
import { storeFileOf } from "../../config/settings.ts";

/** The janitor looks every hour, and a machine may be off for a while. */
const GRACE_MS = 2 * 86_400_000;
/** The oldest folders, which are asked about. */
const ASKED = 200;

export const growth: Check = {
  name: "growth",
  needsStore: true,
  async look({ world, settings, probes, openStore, find, ok }) {
    const { store, hostId } = await openStore();
    const { limits } = settings;
    const { runs } = world.places;
    let fine = true;
    // As the janitor reckons: a folder is known by its attempt, so it goes no later than that.
    const logRetentionMs = Math.min(limits.logRetentionMs, limits.retentionMs);
    const before = world.clock.now() - logRetentionMs - GRACE_MS;
    const folders = (await probes.list(runs)).flatMap((name) => {
      const id = name.split(".", 1)[0] ?? "";
      const at = madeAt(id);
      return at === null ? [] : [{ name, id, at }];
    });
    // Ids sort by time, so nothing has to be read of a folder to know its age.
    const old = folders
      .filter(({ at }) => at < before)
      .toSorted((a, b) => a.at - b.at)
      .slice(0, ASKED);
    const attemptIds = [...new Set(old.map(({ id }) => id))];
    const ended = new Map(
      (attemptIds.length === 0 ? [] : await store.attempts.endedAmong({ attemptIds })).map((one) => [
        one.attemptId,
        one.finishedAt,
      ]),
    );
    const overdue = old.filter(({ id }) => (ended.get(id) ?? Number.POSITIVE_INFINITY) < before);
    const [oldest] = overdue;
    if (oldest !== undefined) {
      fine = false;
      const many = overdue.length === ASKED ? `${ASKED} or more` : String(overdue.length);
      find("logs_overdue", {
        subject: `${runs}/${oldest.name}`,
        message: `${many === "1" ? "a folder of an attempt is" : `${many} folders of attempts are`} kept for longer than ${describeDuration(logRetentionMs)}; the oldest is of ${new Date(oldest.at).toISOString()}`,
        hint: "A daemon that is up removes them by itself; its log says why when it cannot.",
        command: "drover gc",
      });
    }
    const live = new Set((await store.attempts.ofHost({ hostId })).map(({ attempt }) => attempt.id));
    for (const { name, id } of old)
      if (!ended.has(id) && !live.has(id))
        find("log_folder_stray", {
          subject: `${runs}/${name}`,
          message: `${runs}/${name} is of no attempt that this store knows`,
          hint: "It is of another store, or of one that was replaced. When it is not missed, gc removes it with what else is past its time:",
          command: "drover gc --dry-run",
        });
    const { runs: past } = await store.history.prunable({
      ageMs: limits.retentionMs + GRACE_MS,
      keep: limits.retentionRuns,
      limit: limits.retentionBatch,
      after: null,
    });
    if (past > 0)
      find("history_overdue", {
        subject: "runs",
        message: `${past === limits.retentionBatch ? `${past} or more` : past} ${past === 1 ? "run" : "runs"} ended more than ${describeDuration(limits.retentionMs + GRACE_MS)} ago and ${past === 1 ? "was" : "were"} not removed`,
        hint: "A daemon that is up removes them by itself, a part at a time.",
        command: "drover gc",
      });
    const file = storeFileOf(settings.store, world.places);
    const bytes = file === null ? null : (probes.stat(file)?.bytes ?? null);
    const wal = file === null ? null : (probes.stat(`${file}-wal`)?.bytes ?? null);
    if (file !== null && wal !== null && wal > limits.doctorWalBytes) {
      fine = false;
      find("wal_large", {
        subject: `${file}-wal`,
        message: `the store's write-ahead log has ${describeSize(wal)}: something that reads keeps it from being written back`,
        hint: "A `drover events -f` or another reader that is hours old:",
        command: `fuser -v ${file}`,
      });
    }
    if (file !== null && bytes !== null && bytes > limits.doctorStoreBytes)
      find("store_large", { subject: file, message: `the store has ${describeSize(bytes)}` });
    const outputs = folders.length === 1 ? "the output of 1 attempt" : `outputs of ${folders.length} attempts`;
    if (fine) ok(bytes === null ? outputs : `${outputs}, a store of ${describeSize(bytes)}`);
  },
};
