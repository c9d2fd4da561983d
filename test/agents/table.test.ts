/** Runs every row of the table with both command lines, as a loop in a worktree, and holds that the documentation says the same. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { until } from "../e2e/drover.ts";
import { isOver, openStage, OWN_KEY, type RunSeen, type Stage } from "./harness.ts";
import { describeInstalled } from "./installed.ts";
import { type Expected, printTable, type Row, rows } from "./rows.ts";

const inAnHour = Math.floor(Date.now() / 1000) + 3600;

const { dependencies } = JSON.parse(readFileSync(join(import.meta.dirname, "package.json"), "utf8")) as {
  dependencies: Record<string, string>;
};

test("docs/reference/agents-table.md says what these tests read", async () => {
  const versions = {
    claude: dependencies["@anthropic-ai/claude-code"] ?? "",
    codex: dependencies["@openai/codex"] ?? "",
  };
  await expect(printTable(versions)).toMatchFileSnapshot("../../docs/reference/agents-table.md");
});

describeInstalled.each(["claude", "codex"] as const)("%s in a loop", (provider) => {
  let stage: Stage;
  beforeAll(async () => {
    stage = await openStage();
  });
  afterAll(() => stage.close());

  let tests = 0;

  test.each(rows)("$name", async (row) => {
    const testId = `t${++tests}`;
    const { home, server } = stage;
    const scenario = row.scenario.replace("RESET", String(inAnHour));
    const isOwn = row.account === "default";
    const account = isOwn ? stage.ownLogin(provider, scenario, testId) : ["--account", testId];
    if (!isOwn) await stage.account(provider, scenario, testId);
    const words = [
      ...["--agent", provider, ...account, "--worktree", "required"],
      ...(provider === "codex" ? ["--model", "gpt-fake"] : []),
      ...["--prompt", row.prompt.replace("OUTSIDE", stage.outside), ...row.flags],
    ];
    const ids: string[] = [];
    for (let n = 1; n <= row.runs; n++) ids.push(await stage.loop(`${testId}-${n}`, words));
    const [id = ""] = ids;

    if (row.meanwhile !== "nothing") {
      const { pid, tree } = await atWork(stage, id);
      await until(() => existsSync(join(tree, "began")), "the tool runs");
      if (row.then === "answer") server.become(testId, "ok");
      if (row.meanwhile === "cancel") await home.json(["cancel", id]);
      else process.kill(pid, "SIGTERM");
    }
    if (row.then === "release") {
      await stage.seen(id, ({ status }) => status === "waiting", "it waits");
      server.become(testId, "ok");
      await home.json(["account", "release", `${provider}:${testId}`]);
    }
    const expected = row.expected[provider];
    const isThere = expected.status === "waiting" ? ({ status }: RunSeen) => status === "waiting" : isOver;
    const runs: RunSeen[] = [];
    for (const one of ids) runs.push(await stage.seen(one, isThere, `${row.name} is ${expected.status}`));
    for (const run of runs) {
      await until(() => stage.left(run).length === 0, "no process is left");
      expect(seenOf(run, server.requests(testId).length), JSON.stringify(run.error)).toEqual(expected);
      await holdMore(stage, row, run, testId);
    }
    for (const one of ids) await home.run(["cancel", one]);
  });

  function seenOf(run: RunSeen, requests: number): Expected {
    const attempts = run.steps.flatMap((step) => step.attempts);
    const last = attempts.at(-1);
    const resetAt = last?.agent?.resetAt ?? null;
    const apartMs = resetAt === null ? null : Math.abs(resetAt - inAnHour * 1000);
    return {
      status: run.status as Expected["status"],
      waits: run.status === "waiting" ? (run.reason as Expected["waits"]) : null,
      class: (run.status === "succeeded" ? null : (last?.class ?? null)) as Expected["class"],
      reset:
        apartMs === null
          ? "none"
          : apartMs === 0
            ? "exact"
            : apartMs <= 60_000
              ? "to the minute"
              : (`${apartMs}` as never),
      requests,
      tries: run.steps.reduce((total, step) => total + step.triesCounted, 0),
      left: stage.left(run).length,
    };
  }
});

/** The process of a run's live attempt, and the worktree that it works in. */
async function atWork(stage: Stage, id: string): Promise<{ pid: number; tree: string }> {
  const run = await stage.seen(
    id,
    ({ steps, worktree }) =>
      worktree !== null && steps.some(({ attempts }) => attempts.some(({ pid }) => pid !== null)),
    "it is at work",
  );
  const pid = run.steps.flatMap(({ attempts }) => attempts).find((attempt) => attempt.pid !== null)?.pid ?? 0;
  return { pid, tree: run.worktree?.path ?? "" };
}

/** What a row promises beside its columns. */
async function holdMore({ server, outside, home }: Stage, row: Row, run: RunSeen, testId: string): Promise<void> {
  const requests = server.requests(testId);
  expect(existsSync(outside)).toBe(false);
  switch (row.name) {
    case "success, a file written":
      expect(readFileSync(join(run.worktree?.path ?? "", "made.txt"), "utf8")).toBe("written by the model");
      expect(run.output).toEqual({ result: "OK" });
      expect(run.usage?.outputTokens).toBe(14);
      break;
    case "the same with a second try, which resumes by id with the history": {
      const attempts = run.steps.flatMap((step) => step.attempts);
      expect(new Set(attempts.map(({ sessionId }) => sessionId)).size).toBe(1);
      expect(requests.at(-1)?.talk).toMatchObject({ allResults: 1, newResults: 0 });
      expect(requests.at(-1)?.talk?.userTexts.join("\n")).toMatch(/tail -f[\s\S]*Your work was interrupted/);
      break;
    }
    case "usage limit with a reset time": {
      expect((await home.run(["why", run.id])).out).toMatch(/limit/);
      // It is tried again when the limit is over and not before; the wait is jittered towards later.
      expect(Date.parse(run.wakeAt ?? "")).toBeGreaterThanOrEqual(inAnHour * 1000);
      expect(Date.parse(run.wakeAt ?? "")).toBeLessThan(inAnHour * 1000 + 10 * 60_000);
      break;
    }
    case "nothing changed in two tries, the second resumes": {
      const attempts = run.steps.flatMap((step) => step.attempts);
      expect(new Set(attempts.map(({ sessionId }) => sessionId)).size).toBe(1);
      const [first, second] = attempts.map(({ usage }) => usage);
      expect(second).toEqual(first);
      expect(first).toMatchObject({ outputTokens: 7 });
      expect(first?.of).toBeUndefined();
      expect(run.usage?.outputTokens).toBe(14);
      // Codex names no price.
      const costUsd = first?.costUsd ?? null;
      if (run.steps[0]?.attempts[0]?.account?.startsWith("claude")) expect(costUsd).toBeGreaterThan(0);
      expect(run.usage?.costUsd ?? null).toBe(costUsd === null ? null : 2 * costUsd);
      break;
    }
    case "two at once on one home":
      // That both are answered is the proof: the server answers neither before the other has asked.
      expect(requests).toHaveLength(2);
      break;
    case "the user's own login": {
      const attempts = run.steps.flatMap((step) => step.attempts);
      expect(attempts.map(({ account }) => account)).toEqual([expect.stringMatching(/:default$/)]);
      for (const { headers } of requests) expect(headers.authorization).toBe(`Bearer ${OWN_KEY}`);
      // The work is as much in a tree of its own as under any account.
      expect(readFileSync(join(run.worktree?.path ?? "", "made.txt"), "utf8")).toBe("written by the model");
      break;
    }
    default:
  }
}
