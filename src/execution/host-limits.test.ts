import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { describe, expect, test } from "vitest";
import { endChild } from "../../test/children.ts";
import { limitsOf, watchFault } from "./host-limits.ts";

describe.runIf(process.platform === "linux")("limits of a process", () => {
  test("are those of the one that is asked about", async () => {
    const child = spawn("/bin/sh", ["-c", "ulimit -n 123; ulimit -u 4321; echo ready; exec sleep 300"]);
    try {
      await once(child.stdout, "data");
      const { openFiles, processes } = limitsOf(child.pid ?? null);
      // Root may have as many processes as it likes, whatever its limit says.
      expect([openFiles, processes]).toEqual([123, process.getuid?.() === 0 ? null : 4_321]);
    } finally {
      await endChild(child);
    }
  });

  test("of a process that is gone nothing is known", () => {
    const { pid } = spawnSync("true");
    expect(limitsOf(pid)).toEqual({ openFiles: null, processes: null, cgroupRoom: null });
  });
});

test("a watcher can be made in a folder, and of one that is not there nothing is said", async () => {
  expect(await watchFault(import.meta.dirname)).toBeNull();
  expect(await watchFault(`${import.meta.dirname}/none`)).toBeNull();
});
