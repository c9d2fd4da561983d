/** The kernel ends a run's process for want of memory, in a group of processes that may have only so much. */
import { mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { countMemoryKills } from "../../src/execution/memory-kills.ts";
import { openHome, until } from "../e2e/drover.ts";

/** A hierarchy of cgroups in which memory can be limited, and the name of its limit; null where there is none for us. */
function memoryHierarchy(): { readonly root: string; readonly limit: string } | null {
  if (process.platform !== "linux" || process.getuid?.() !== 0 || countMemoryKills() === null) return null;
  for (const line of readFileSync("/proc/self/mountinfo", "utf8").split("\n")) {
    const [, root, type, options] = /^\S+ \S+ \S+ \S+ (\S+) .* - (cgroup2?) \S+ (\S+)$/.exec(line) ?? [];
    if (root === undefined || options === undefined) continue;
    if (type === "cgroup" && options.split(",").includes("memory")) return { root, limit: "memory.limit_in_bytes" };
    if (type === "cgroup2" && / ?\bmemory\b/.test(readFileSync(join(root, "cgroup.subtree_control"), "utf8")))
      return { root, limit: "memory.max" };
  }
  return null;
}

const memory = memoryHierarchy();

test.skipIf(memory === null)(
  "B-021 a run that the kernel ends for want of memory is `oom`; the daemon and the other runs stay [needs root and a memory controller]",
  async () => {
    if (memory === null) return;
    const group = join(memory.root, `drover-test-${process.pid}`);
    const home = openHome({ prefix: "drover-memory-" });
    mkdirSync(group);
    try {
      writeFileSync(join(group, memory.limit), String(64 * 1024 * 1024));
      await home.json(["up"]);
      const pid = (await home.json<{ daemon: { pid: number } }>(["status"])).daemon.pid;
      const other = await home.json<{ id: string }>(["run", "--detach", "--", "sleep", "30"]);
      const eats = "const all = []; for (;;) all.push(Buffer.alloc(1_000_000, 1))";
      const within = `echo $$ > ${group}/cgroup.procs; exec ${process.execPath} -e "${eats}"`;
      const ended = await home.run(["run", "--json", "--shell", within]);
      expect(ended.status, ended.err).toBe(1);
      expect(JSON.parse(ended.out)).toMatchObject({ status: "failed", error: { class: "oom" }, exitCode: 137 });
      // Whatever was killed before: a kill of somebody else's is none for want of memory.
      await until(async () => {
        const killed = await home.run(["run", "--json", "--shell", "kill -9 $$"]);
        return (JSON.parse(killed.out) as { error: { class: string } }).error.class === "signal";
      }, "a kill long after it is a signal again");
      expect(await home.json(["status"])).toMatchObject({ daemon: { pid } });
      expect(await home.json(["show", other.id])).toMatchObject({ status: "running" });
    } finally {
      await home.close();
      rmdirSync(group);
    }
  },
);
