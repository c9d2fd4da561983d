/** The system's limits against our caps: what would fail only when everything is at work. */
import type { Check } from "../findings.ts";

/** Files that a daemon has open beside those of its attempts, and for each. */
const FILES = { own: 128, perCommand: 1, perAgent: 4 };
/** Processes and threads of an attempt: the shim, the command, what that starts; an agent is a runtime with threads and tools. */
const PROCESSES = { perCommand: 3, perAgent: 40 };

export const limits: Check = {
  name: "limits",
  async look({ settings, probes, daemon, find, ok }) {
    const { commandCap, agentCap } = settings.limits;
    const seen = await daemon();
    const who = seen.kind === "up" ? "the daemon" : "a daemon that is started from here";
    const found = await probes.limits(seen.kind === "up" ? seen.pid : null);
    let fine = true;
    const files = FILES.own + FILES.perCommand * commandCap + FILES.perAgent * agentCap;
    if (found.openFiles !== null && found.openFiles < files) {
      fine = false;
      find("open_files_low", {
        subject: "ulimit -n",
        message: `${who} may open ${found.openFiles} files; ${commandCap} commands and ${agentCap} agents may need ${files}`,
        hint: "Under a service set its LimitNOFILE=; or lower caps.commands.",
        command: `ulimit -n ${Math.max(1_024, files)} && drover down && drover up`,
      });
    }
    const processes = PROCESSES.perCommand * commandCap + PROCESSES.perAgent * agentCap;
    const rooms = [
      ["ulimit -u", found.processes],
      ["pids.max of the cgroup", found.cgroupRoom],
    ] as const;
    for (const [what, room] of rooms) {
      if (room === null || room >= processes) continue;
      fine = false;
      find("processes_low", {
        subject: what,
        message: `${what} leaves ${who} ${room} processes and threads; ${commandCap} commands and ${agentCap} agents may need ${processes}`,
        hint: "Raise it (TasksMax= of a service), or lower caps.commands and caps.agents in config.yaml.",
      });
    }
    if (found.watchFault !== null) {
      fine = false;
      find("watch_limit_low", {
        subject: "fs.inotify",
        message: `no file watcher can be made (${found.watchFault}): the daemon learns of ends by looking around, seconds later`,
        command: "sudo sysctl fs.inotify.max_user_instances=512 fs.inotify.max_user_watches=65536",
      });
    }
    if (fine) ok(`room for ${commandCap} commands and ${agentCap} agents`);
  },
};
