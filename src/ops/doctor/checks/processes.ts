/** Processes that carry the mark of an attempt that is over. */
import { AppError } from "../../../core/errors.ts";
import type { Check } from "../findings.ts";

export const processes: Check = {
  name: "processes",
  needsStore: true,
  async look({ probes, openStore, find, ok }) {
    const { store, hostId } = await openStore();
    const marked = probes.marked();
    const proof = probes.cgroups()
      ? "each attempt gets a cgroup, so its end is proved"
      : "ended trees are found by session, descendants and mark; what leaves all three cannot be found";
    if (marked.length === 0) return ok(`nothing is left over; ${proof}`);
    const attemptIds = [...new Set(marked.map((one) => one.attemptId))];
    // The mark of an attempt that this store does not know is another installation's.
    const ended = new Set((await store.attempts.endedAmong({ attemptIds })).map((one) => one.attemptId));
    const live = new Set((await store.attempts.ofHost({ hostId })).map(({ attempt }) => attempt.id));
    const left = marked.filter((one) => ended.has(one.attemptId));
    for (const one of left)
      find("process_left", {
        subject: `pid ${one.pid}`,
        message: `pid ${one.pid} is left over from ${one.attemptId} (${probes.process(one.pid)?.words ?? "gone meanwhile"})`,
        command: "drover doctor --fix",
        mending: {
          does: `end pid ${one.pid}, which is left over from ${one.attemptId}`,
          async perform() {
            if (await probes.end(one)) return;
            throw new AppError("conflict", "still_there", `pid ${one.pid} does not go`, {
              hint: "Another user's, or stuck in the kernel: look at it with ps.",
            });
          },
        },
      });
    const working = marked.filter((one) => live.has(one.attemptId)).length;
    if (left.length === 0) ok(`${working === 0 ? "" : `${working} at work, `}nothing is left over; ${proof}`);
  },
};
