/** Whether a daemon is up and well, and who holds its lock. */
import type { Check, Site } from "../findings.ts";

export const daemon: Check = {
  name: "daemon",
  async look(site) {
    const { world, probes, find, ok } = site;
    const seen = await site.daemon();
    const { lockFile, daemonLog } = world.places;
    if (seen.kind === "up") {
      const { pid, version, build } = seen;
      if (version === world.build.version && build === world.build.id) return ok(`up, pid ${pid}`);
      return find("daemon_other_build", {
        subject: `pid ${pid}`,
        message: `the daemon (pid ${pid}) is another build: ${version} (${build}), this is ${world.build.version} (${world.build.id})`,
        hint: "What runs goes on meanwhile.",
        command: "drover down && drover up",
      });
    }
    if (seen.kind === "silent") {
      const process = seen.pid === null ? null : probes.process(seen.pid);
      // The number is written by whoever takes the lock: when no such process is here, its holder is somewhere else.
      if (process === null)
        return find("lock_held_elsewhere", {
          subject: lockFile,
          message: `the lock is held, and ${seen.pid === null ? "nobody says by whom" : `pid ${seen.pid}, which took it last, is not on this machine`}`,
          hint: "Another machine or container shares this folder, or a program has the file open. Give each machine a DROVER_HOME of its own.",
          command: `fuser -v ${lockFile}`,
        });
      const stopped = process.state === "T";
      return find("daemon_silent", {
        subject: `pid ${seen.pid}`,
        message: `pid ${seen.pid} holds the lock and ${stopped ? "is stopped" : "does not answer"} (${process.words})`,
        hint: `Its log says more: ${daemonLog}. What runs is not harmed when it is ended.`,
        command: stopped ? `kill -CONT ${seen.pid}` : `kill ${seen.pid}`,
      });
    }
    const waiting = await workWithout(site);
    if (waiting === null) return ok("down; the lock is free");
    find("daemon_missing", { subject: "daemon", message: `no daemon is up, and ${waiting}`, command: "drover up" });
  },
};

/** What is at work and what waits, in words; null where there is neither. */
export function workWords(running: number, waiting: number): string | null {
  const atWork = running === 1 ? "a run is at work" : `${running} runs are at work`;
  const waits = waiting === 1 ? "a run waits" : `${waiting} runs wait`;
  if (running > 0) return waiting > 0 ? `${atWork}, ${waits}` : atWork;
  return waiting > 0 ? waits : null;
}

/** What a daemon is missed by, in words; null: nothing, or the store cannot say. */
async function workWithout({ openStore }: Site): Promise<string | null> {
  const opened = await openStore().catch(() => null); // the check of the store says why
  if (opened === null) return null;
  const { queued, running, waiting } = await opened.store.runs.counts({});
  const told = workWords(running, queued + waiting);
  if (told !== null) return told;
  const [next] = await opened.store.loops.nextFires({ limit: 1 });
  return next === undefined ? null : `${next.name} starts next, at ${new Date(next.at).toISOString()}`;
}
