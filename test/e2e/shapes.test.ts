/**
 * What commands answer with a store that has something of everything: each document has the keys that its operation declares,
 * no other, and those of the contract hold something. (In `commands.test.ts` each command answers in its shape once; here
 * nothing is empty.)
 */
import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findEntry, operations } from "../../src/ops/index.ts";
import { differenceFrom } from "../../src/ops/shape.ts";
import { type Home, openHome } from "./drover.ts";

let home: Home;
const runs: { [what: string]: string } = {};

beforeAll(async () => {
  home = openHome({ prefix: "drover-shapes-" });
  const repository = join(home.folder, "repository");
  mkdirSync(repository);
  const git = (...words: string[]) =>
    execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@example.org", ...words], { cwd: repository });
  git("init", "-q", "-b", "main");
  git("commit", "-q", "--allow-empty", "-m", "first");
  writeFileSync(join(home.folder, "agent.sh"), "#!/bin/sh\ncat\n", { mode: 0o755 });

  const loop = (...words: string[]) => home.json(["loop", "add", ...words]);
  await loop("all", "--every", "1h", "--label", "l", "--timeout", "1m", "--on-failure", "true", "--", "true");
  await loop("night", "--cron", "30 2 * * *", "--tz", "Europe/Rome", "--shell", "echo $HOME");
  await loop("once", "--at", "+2h", "--", "true");
  await loop("says", "--dynamic", "--", "true");
  await loop("put-away", "--every", "1h", "--", "true");
  await loop("broken", "--every", "1h", "--breaker", "1", "--", "false");
  await loop("quick", "--every", "1s", "--expires-after-runs", "1", "--", "true");
  await home.json(["loop", "pause", "once", "--reason", "on holiday"]);
  await home.json(["loop", "archive", "put-away"]);
  await home.json(["account", "add", "claude", "work"]);
  await home.json(["account", "hold", "claude:work", "--for", "1h", "--reason", "for the demo"]);
  await home.json(["agent", "hold", "codex", "--reason", "too dear"]);
  await home.json(["limit", "set", "account:claude:work", "1"]);
  await home.json(["up"]);

  const run = async (what: string, ...words: string[]) => {
    const { out, err } = await home.run(["run", "--json", ...words]);
    runs[what] = (JSON.parse(out || err) as { id: string }).id;
  };
  await run("good", "--label", "l", "--", "sh", "-c", 'echo out; echo err >&2; echo \'{"a": 1}\' >"$DROVER_OUTPUT"');
  await run("bad", "--attempts", "2", "--backoff", "10ms", "--", "sh", "-c", "echo last words; exit 3");
  await run("late", "--timeout", "200ms", "--grace", "100ms", "--", "sleep", "30");
  await run("killed", "--", "sh", "-c", "kill -9 $$");
  await run("tree", "--worktree", "required", "--cwd", repository, "--", "sh", "-c", "echo work >work");
  await run(
    "agent",
    "--agent",
    "custom",
    "--agent-command",
    join(home.folder, "agent.sh"),
    "--prompt",
    "hello",
    "--worktree",
    "off",
  );
  await run("long", "--detach", "--", "sleep", "1000");
  await home.json(["cancel", runs["long"] ?? "", "--reason", "not needed"]);
  const again = await home.run(["retry", runs["bad"] ?? "", "--wait", "--json"]);
  runs["again"] = (JSON.parse(again.out) as { id: string }).id;
  await home.run(["loop", "run", "broken", "--wait"]);
  await home.run(["loop", "run", "all", "--wait"]);
});
afterAll(() => home.close());

/** Every key of a document that holds something, by its path. */
function held(value: unknown, path: string, into: Set<string>): void {
  if (value === null || value === undefined) return;
  into.add(path);
  if (Array.isArray(value)) for (const one of value) held(one, `${path}[]`, into);
  else if (typeof value === "object")
    for (const [key, one] of Object.entries(value)) held(one, path === "" ? key : `${path}.${key}`, into);
}

/** The document of a command, held against what the operation declares. */
async function documentOf(name: string, words: readonly string[]): Promise<unknown> {
  const { out, err } = await home.run([...name.split("."), ...words, "--json"]);
  const { operation } = (await findEntry(name)?.load()) ?? {};
  if (operation === undefined || out === "") throw new Error(`no document of ${name}: ${err}`);
  const document = JSON.parse(out) as unknown;
  expect([name, words, differenceFrom(operation.output, document)]).toEqual([name, words, null]);
  return document;
}

const RUN =
  "id kind status reason target loop slotAt createdAt startedAt finishedAt durationMs exitCode error.class error.message output retryOf worktree.path worktree.branch worktree.base worktree.commits worktree.kept";
const STEP = "key type status";
const ATTEMPT =
  "id number status host startedAt finishedAt exitCode signal class counted logs.stdout logs.stderr logs.stdoutBytes logs.stderrBytes adopted reaped";
const under = (prefix: string, keys: string): readonly string[] => keys.split(" ").map((key) => prefix + key);

/** Command lines for each operation that reads, and keys of its answer that the contract names and that hold something here. */
const reads: readonly (readonly [
  name: string,
  lines: () => readonly (readonly string[])[],
  keys: readonly string[],
])[] = [
  [
    "status",
    () => [[]],
    [
      "daemon.state",
      "daemon.pid",
      "daemon.version",
      "daemon.uptimeMs",
      "store.kind",
      "store.location",
      "runs.running",
      "runs.queued",
      "runs.waiting",
      "next.loop",
      "next.at",
    ],
  ],
  [
    "loop.ls",
    () => [[], ["--archived"], ["--label", "l"], ["--limit", "2"]],
    ["items[].name", "items[].status", "next"],
  ],
  [
    "loop.show",
    () => ["all", "night", "once", "says", "broken", "quick"].map((name) => [name]),
    ["name", "schedule", "target", "policy"],
  ],
  [
    "loop.slots",
    () => [["quick"], ["quick", "--each"], ["quick", "--limit", "1"], ["all"]],
    under("items[].", "at outcome runId startedAt lateMs"),
  ],
  [
    "runs",
    () => [[], ["--limit", "2"], ["--status", "failed"], ["--label", "l"], ["--loop", "all"], ["--since", "1h"]],
    under("items[].", "id kind status reason target createdAt durationMs exitCode error.class"),
  ],
  ["manifest", () => Object.values(runs).map((id) => [id]), []],
  [
    "show",
    () => Object.values(runs).map((id) => [id]),
    [
      ...under("", RUN.replace(" slotAt", "").replace(" loop ", " ")),
      ...under("steps[].", STEP),
      ...under("steps[].attempts[].", ATTEMPT),
    ],
  ],
  [
    "logs",
    () => [
      [runs["good"] ?? ""],
      [runs["good"] ?? "", "--stderr"],
      [runs["bad"] ?? "", "--tail", "1", "--attempt", "2"],
      [runs["agent"] ?? "", "--transcript"],
    ],
    ["runId", "step", "attempt", "stream", "text"],
  ],
  [
    "why",
    () => [
      ...Object.values(runs).map((id) => [id]),
      ...["all", "night", "once", "says", "broken", "quick"].map((name) => [name]),
    ],
    ["sentence"],
  ],
  ["events", () => [[], ["--run", runs["good"] ?? ""], ["--limit", "3"]], ["items[].type", "next"]],
  ["limit.ls", () => [[]], ["items[].resource", "items[].limit", "items[].used"]],
  ["account.ls", () => [[]], ["items[].id", "items[].provider"]],
  ["account.show", () => [["claude:work"], ["claude:default"]], ["id", "home"]],
  ["agent.ls", () => [[]], ["items[].provider"]],
  ["worktree.ls", () => [[]], ["items[].path"]],
  [
    "schedule.next",
    () => [
      ["30 2 * * *", "--tz", "Europe/Rome"],
      ["90s", "-n", "2"],
    ],
    ["items[].at", "items[].local"],
  ],
  ["schedule.explain", () => [["30 2 * * *", "--tz", "Europe/Rome"], ["90s"]], []],
  ["config.path", () => [[]], []],
  ["config.show", () => [[]], []],
  ["config.check", () => [[]], ["ok"]],
  ["doctor", () => [[]], []],
  ["daemon.status", () => [[]], []],
  [
    "export",
    () => [[join(home.folder, "bundle")], ["--history"]],
    ["loops", "accounts", "limits", "runs", "slots", "sha256"],
  ],
  ["version", () => [[]], ["version"]],
  ["completion", () => [["bash"], ["zsh"], ["fish"]], ["shell", "script"]],
];

describe("with something of everything in the store", () => {
  test.each(reads)("%s answers what it declares", async (name, lines, keys) => {
    const found = new Set<string>();
    for (const words of lines()) held(await documentOf(name, words), "", found);
    expect([name, keys.filter((key) => !found.has(key))]).toEqual([name, []]);
  });

  test("every operation that reads is among them", () => {
    const named = reads.map(([name]) => name);
    expect(
      operations
        .filter(({ where, name, hidden }) => where === "read" && hidden !== true && !named.includes(name))
        .map(({ name }) => name),
    ).toEqual([]);
  });
});
