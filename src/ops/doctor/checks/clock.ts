/** The clock: whether it can be right, whether it went back, and what the daemon saw of it lately. */
import { describeDuration } from "../../../core/duration.ts";
import type { Check } from "../findings.ts";

/** No clock of ours is right before this: the year in which this was written. */
const EARLIEST_NOW = Date.UTC(2025, 0, 1);
/** The newest time of the store may lie this far ahead of our clock before that is worth a word. */
const AHEAD_MS = 60_000;
/** Gaps are told of for this long. */
const LATELY_MS = 86_400_000;

export const clock: Check = {
  name: "clock",
  async look({ world, probes, openStore, find, ok }) {
    const now = world.clock.now();
    if (now < EARLIEST_NOW)
      return find("clock_wrong", {
        subject: "clock",
        message: `the clock says ${new Date(now).toISOString()}`,
        hint: "Slots would be recorded at wrong times.",
        command: "sudo timedatectl set-ntp true",
      });
    let fine = true;
    const opened = await openStore().catch(() => null); // the check of the store says why
    if (opened !== null) {
      const { store } = opened;
      const hosts = await store.hosts.list({});
      const seen = [...hosts.map((host) => host.lastSeenAt), (await store.stuck.newest({})) ?? 0];
      const ahead = Math.max(...seen) - now;
      if (ahead > AHEAD_MS) {
        fine = false;
        find("clock_behind", {
          subject: "clock",
          message: `the store has seen times ${describeDuration(ahead)} ahead of this clock`,
          hint: "The clock was set back, or another host's is fast. Nothing fires twice; what was recorded up to then is not done again.",
        });
      }
    }
    if ((await probes.clockSynchronised()) === false) {
      fine = false;
      find("clock_unsynchronised", {
        subject: "clock",
        message: "the system says that its clock is not synchronised",
        command: "sudo timedatectl set-ntp true",
      });
    }
    for (const gap of await probes.clockGaps(now - LATELY_MS)) {
      const at = new Date(gap.at).toISOString();
      if (gap.cause === "clock_step")
        find("clock_stepped", {
          subject: at,
          message: `at ${at} the clock was set ${describeDuration(Math.abs(gap.steppedMs))} ${gap.steppedMs < 0 ? "back" : "forward"}`,
        });
      if (gap.cause === "asleep")
        find("host_slept", {
          subject: at,
          message: `this machine slept for ${describeDuration(gap.asleepMs)}, until ${at}`,
        });
    }
    if (fine) ok(`${new Date(now).toISOString()}, zone ${world.hostZone}`);
  },
};
