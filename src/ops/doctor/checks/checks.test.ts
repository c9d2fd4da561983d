/** Checks of what no test can plant on every machine: they are given it. */
import { describe, expect, test } from "vitest";
import { defaultLimits, type Limits } from "../../../core/limits.ts";
import type { FindingCode } from "../finding-codes.ts";
import type { Check, Said, Site } from "../findings.ts";
import { workWords } from "./daemon.ts";
import { limits } from "./limits.ts";
import { path } from "./path.ts";
import type { Probes } from "./probes.ts";

/** What a check says when this host answers so. */
async function saidBy(check: Check, probes: Partial<Probes>, caps: Partial<Limits> = {}) {
  const found: { code: FindingCode; said: Said }[] = [];
  const fine: string[] = [];
  const site = {
    probes,
    settings: { limits: { ...defaultLimits, commandCap: 256, agentCap: 4, ...caps } },
    daemon: async () => ({ kind: "down" }),
    openStore: async () => {
      throw new Error("no store");
    },
    find: (code: FindingCode, said: Said) => void found.push({ code, said }),
    ok: (message: string) => void fine.push(message),
  } as unknown as Site;
  await check.look(site);
  return { codes: found.map(({ code }) => code), found, fine };
}

const roomy = { openFiles: 1_048_576, processes: null, cgroupRoom: null, watchFault: null };

describe("limits", () => {
  const given = (more: Partial<typeof roomy> | object) => ({ limits: async () => ({ ...roomy, ...more }) });

  test("with room for all that the caps allow nothing is said", async () => {
    expect(await saidBy(limits, given({}))).toMatchObject({ codes: [], fine: ["room for 256 commands and 4 agents"] });
    // The usual limits of a system are enough for the usual caps.
    expect(await saidBy(limits, given({ openFiles: 1_024, processes: 4_096 }))).toMatchObject({ codes: [] });
  });

  test("processes_low: what the user and what the cgroup may have are both looked at", async () => {
    for (const short of [{ processes: 900 }, { cgroupRoom: 900 }])
      expect(await saidBy(limits, given(short))).toMatchObject({ codes: ["processes_low"], fine: [] });
    // Fewer at a time need less.
    const few = { commandCap: 16, agentCap: 2 };
    expect(await saidBy(limits, given({ processes: 900 }), few)).toMatchObject({ codes: [] });
  });

  test("watch_limit_low: no watcher can be made", async () => {
    const { codes, found } = await saidBy(limits, given({ watchFault: "EMFILE" }));
    expect([codes, found[0]?.said.message]).toEqual([["watch_limit_low"], expect.stringContaining("EMFILE")]);
  });
});

describe("path", () => {
  const tools = [{ name: "fallocate", without: "large logs are cut late" }];
  const bare = { path: "/a:/b", ownPath: "/a", tools, stat: () => null };

  test("shell_missing, tool_missing: what is neither in the system's folders nor on PATH", async () => {
    expect(await saidBy(path, { ...bare, findTool: () => null })).toMatchObject({
      codes: ["shell_missing", "tool_missing"],
      fine: [],
    });
    const there = { mode: 0o755, bytes: 1, madeAt: 0, changedAt: 0 };
    const onPath = { ...bare, findTool: (name: string) => (name === "sh" ? "/bin/sh" : null) };
    expect(await saidBy(path, { ...onPath, stat: (file) => (file === "/b/fallocate" ? there : null) })).toMatchObject({
      codes: [],
      fine: ["/a, and for processes also /b"],
    });
  });
});

describe("daemon", () => {
  test.each([
    [0, 0, null],
    [0, 1, "a run waits"],
    [1, 0, "a run is at work"],
    [2, 3, "2 runs are at work, 3 runs wait"],
  ])("%s at work and %s that wait without a daemon: what is at work is not said to wait", (running, waiting, words) => {
    expect(workWords(running, waiting)).toBe(words);
  });
});
