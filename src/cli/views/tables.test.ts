/** The lists on a screen of 80 columns: what names a row is read whole, long words give. */
import { describe, expect, test } from "vitest";
import type { AccountDocument, RunTreeDocument } from "../../ops/documents.ts";
import type { Screen } from "../screen.ts";
import { widthOf } from "../text.ts";
import { accountTable, agentTable, treeTable } from "./accounts.ts";
import { runPage } from "./runs.ts";

const same = (text: string): string => text;
const NOW = Date.UTC(2026, 4, 1);
const screen: Screen = {
  columns: 80,
  redraws: false,
  now: NOW,
  good: same,
  bad: same,
  warn: same,
  dim: same,
  bold: same,
};
const ago = (ms: number): string => new Date(NOW - ms).toISOString();
const LONG = "Failed to authenticate. API Error: 401 Invalid authentication credentials (request req_011CSHoEeqs5C35K)";

/** Lines of a table, each of which fits. */
function lines(text: string): readonly string[] {
  const all = text.trimEnd().split("\n");
  for (const line of all) expect(widthOf(line), line).toBeLessThanOrEqual(80);
  return all;
}

const account = (name: string): AccountDocument => ({
  id: `claude:${name}`,
  provider: "claude",
  name,
  home: null,
  enabled: true,
  status: "auth",
  active: 0,
  cap: 2,
  holds: [{ untilAt: null, reason: LONG, source: "auth", createdAt: ago(60_000) }],
  providerHolds: [],
  limitEnds: 1,
  env: {},
  secrets: {},
  lastUsedAt: ago(2_112_000),
  createdAt: ago(9_000_000),
});

describe("on 80 columns", () => {
  test("accounts are named, however long why they are held is", () => {
    const [, ...rows] = lines(accountTable({ items: [account("work"), account("the-second-team-of-us")] }, screen));
    expect(rows.map((row) => row.split(/ {2,}/)[0])).toEqual(["claude:work", "claude:the-second-team-of-us"]);
    for (const row of rows) expect(row).toMatch(/released by you {2}Failed to auth.*…$/);
  });

  test("worktrees are named by run and branch", () => {
    const [, row] = lines(
      treeTable(
        {
          items: [
            {
              runId: "run_01m8nza66yna0r24xmpt4xdt29",
              runStatus: "succeeded",
              createdAt: ago(2_112_000),
              path: "/home/me/.local/state/drover/worktrees/agent-loop-4xdt29-shop",
              branch: "drover/agent-loop/4xdt29",
              state: "kept",
              keptBecause: "uncommitted changes (src/cart.ts, src/order.ts, src/shop.ts and 3 more)",
            },
          ],
        },
        screen,
      ),
    );
    expect(row).toMatch(/^4xdt29 {2}.*drover\/agent-loop\/4xdt29 {2}uncommitted changes/);
  });

  test("what an agent can do is read whole", () => {
    const agent = (provider: string) => ({
      provider,
      program: provider,
      found: true,
      file: `/home/me/.local/share/npm/bin/${provider}`,
      version: "2.1.332",
      tested: true,
      loggedIn: true,
      detail: null,
      permissions: [],
      capabilities: { resume: true, presetSession: true, usage: true, cost: true, jsonEvents: true },
      holds: [],
    });
    const [, row] = lines(agentTable({ items: [agent("claude"), agent("codex")] }, screen));
    expect(row).toContain("resume, own ids, usage, cost, events");
  });

  test("how a try ended is read further than its first word", () => {
    const attempt = {
      number: 1,
      status: "failed",
      class: "rate_limited",
      exitCode: 1,
      startedAt: ago(2_112_000),
      pid: 1_234_567,
      counted: false,
      message: LONG,
      reaped: 0,
      adopted: false,
      logs: null,
      tail: null,
      sessionId: null,
    };
    const run = {
      id: "run_01m8nza66yna0r24xmpt4xdt29",
      status: "waiting",
      reason: "limit",
      target: { kind: "command", argv: ["x"] },
      origin: "person",
      createdAt: ago(3_000_000),
      labels: [],
      worktree: null,
      account: null,
      loop: null,
      slotAt: null,
      retryOf: null,
      parentRunId: null,
      startedAt: null,
      finishedAt: null,
      wakeAt: null,
      exitCode: null,
      error: null,
      cancel: null,
      output: null,
      usage: null,
      remedy: null,
      usualMs: null,
      steps: [{ key: "main", attempts: [attempt] }],
    } as unknown as RunTreeDocument;
    const rows = lines(runPage(run, screen));
    expect(rows.find((row) => row.startsWith("main"))).toMatch(/rate_limited .*35m 12s ago {2}Failed to authenticat/);
  });

  test("who cancelled a run is said once, and the size of an output that is being written is not called 0 B", () => {
    const logs = { stdout: "/o", stderr: "/e", stdoutBytes: 0, stderrBytes: 0 };
    const page = (reason: string, finishedAt: string | null): readonly string[] =>
      runPage(
        {
          id: "run_01m8nza66yna0r24xmpt4xdt29",
          status: "cancelled",
          reason: null,
          target: { kind: "command", argv: ["x"] },
          origin: "person",
          createdAt: ago(9_000),
          labels: [],
          worktree: null,
          account: null,
          loop: null,
          slotAt: null,
          retryOf: null,
          parentRunId: null,
          startedAt: ago(8_000),
          finishedAt,
          wakeAt: null,
          exitCode: null,
          error: null,
          cancel: { requestedAt: ago(1_000), by: "person", reason },
          output: null,
          usage: null,
          remedy: null,
          usualMs: null,
          steps: [
            {
              key: "main",
              attempts: [
                {
                  number: 1,
                  status: "running",
                  startedAt: ago(8_000),
                  finishedAt,
                  class: null,
                  exitCode: null,
                  signal: null,
                  counted: null,
                  pid: 1,
                  message: null,
                  reaped: null,
                  adopted: false,
                  tail: null,
                  sessionId: null,
                  logs,
                },
              ],
            },
          ],
        } as unknown as RunTreeDocument,
        screen,
      ).split("\n");
    const ended = page("cancelled by a person", ago(0));
    expect(ended).toContain("cancel   a person");
    expect(ended).toContain("stdout   /o (0 B)");
    const going = page("interrupted (Ctrl-C)", null);
    expect(going).toContain("cancel   a person: interrupted (Ctrl-C)");
    expect(going).toContain("stdout   /o");
  });
});
