/**
 * What has broken elsewhere when commands and agents ran unattended: 113 cases by number, and what here holds each of them. A
 * test is named after its case (`B-024 an oversized event ...`); this one finds those names and fails when a number has none.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative, resolve, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { readSource } from "./source.ts";

/** Parts that do not exist yet. A case that needs one waits for it; what of its kind exists already has its tests all the same. */
type Part = "budgets" | "dashboard" | "events" | "lanes" | "MCP" | "pools" | "questions" | "work items" | "workflows";

interface Case {
  readonly id: string;
  /** What went wrong. */
  readonly title: string;
  /** Files whose tests are named after it. */
  readonly tests: readonly string[];
  /** The part that it waits for. */
  readonly waits?: Part;
  /** The kind of host that its tests need: elsewhere they are skipped. */
  readonly host?: string;
}

const agentRows = "test/agents/odd.test.ts";
const agentCases = "test/agents/cases.test.ts";
const realAgents = "test/agents/real.test.ts";
const agentTrees = "test/agents/worktrees.test.ts";
const daemon = "test/e2e/daemon.test.ts";
const engine = "src/engine/engine.test.ts";
const engineAgents = "src/engine/agents.test.ts";
const lines = "src/execution/agents/lines.test.ts";
const logs = "src/execution/logs.test.ts";
const spawner = "src/execution/spawner.contract.ts";
const trees = "src/execution/worktrees/open-worktrees.test.ts";
const accounts = "src/store/accounts.contract.ts";
const store = "src/store/operations.contract.ts";

const CASES: readonly Case[] = [
  { id: "B-001", title: "a killed agent's tool holds the pipe open", tests: ["test/fault/hostile.test.ts"] },
  { id: "B-002", title: "draining helpers' pipes outlasts the time limit", tests: ["test/fault/hostile.test.ts"] },
  { id: "B-003", title: "a wrapper goes first and the hard kill is left out", tests: ["test/fault/hostile.test.ts"] },
  { id: "B-004", title: "one process is ended where a tree runs", tests: ["test/fault/hostile.test.ts"] },
  {
    id: "B-006",
    title: "an agent that kills itself is started for ever",
    tests: [agentCases, "src/core/run-end.test.ts", "src/core/run.test.ts"],
  },
  { id: "B-007", title: "each session leaves its servers alive", tests: [spawner] },
  { id: "B-008", title: "a finished agent does not exit", tests: [agentRows, engineAgents] },
  { id: "B-009", title: "a hook's limit waits for its grandchild", tests: [engine, "src/execution/files.test.ts"] },
  { id: "B-010", title: "an archived card's worker is still at work", tests: [engine], waits: "work items" },
  { id: "B-012", title: "what is parked is started again and again", tests: [], waits: "questions" },
  { id: "B-013", title: "helpers that start helpers", tests: [daemon] },
  {
    id: "B-014",
    title: "a second way in forgets the depth",
    tests: [daemon, "src/ops/runs/run-token.test.ts"],
    waits: "MCP",
  },
  { id: "B-015", title: "a graceful stop that is none", tests: ["test/fault/hostile.test.ts"] },
  {
    id: "B-017",
    title: "the service manager ends runs at a restart",
    tests: ["test/e2e/service.test.ts"],
    host: "Linux, with root and systemd",
  },
  {
    id: "B-018",
    title: "a user's service ends with the last session",
    tests: ["test/e2e/service.test.ts"],
    host: "Linux, with root and systemd",
  },
  { id: "B-019", title: "SIGKILL at any moment", tests: ["test/fault/kills.test.ts"] },
  {
    id: "B-020",
    title: "a service does not find the agents",
    tests: ["test/e2e/service.test.ts"],
    host: "Linux, with root and systemd",
  },
  {
    id: "B-021",
    title: "a run that the kernel ended for want of memory",
    tests: [
      "src/ops/daemon/service.test.ts",
      "src/engine/classify.test.ts",
      "src/execution/memory-kills.test.ts",
      "test/fault/memory.test.ts",
    ],
  },
  {
    id: "B-022",
    title: "an unread stream fills its pipe",
    tests: [agentRows, "src/execution/agents/open-agents.test.ts"],
  },
  {
    id: "B-024",
    title: "a message over the limit kills the reader",
    tests: [agentRows, "src/execution/agents/claude.test.ts", lines, logs],
  },
  { id: "B-025", title: "a hidden limit of lines", tests: [agentRows, lines, logs] },
  {
    id: "B-026",
    title: "no newline ever",
    tests: [agentRows, lines, "src/execution/agents/open-agents.test.ts", logs],
  },
  {
    id: "B-027",
    title: "a cap on output ends the run and loses what was read",
    tests: ["src/execution/log-cap.test.ts"],
  },
  { id: "B-028", title: "EPIPE of a dead child takes the server along", tests: [agentRows, agentCases, spawner] },
  { id: "B-030", title: "equal errors fill the disk", tests: ["src/ops/daemon/daemon-log.test.ts"] },
  {
    id: "B-031",
    title: "a character cut between two chunks",
    tests: ["src/execution/agents/claude.test.ts", lines, logs],
  },
  { id: "B-032", title: "replacement characters of the agent's own", tests: [agentRows, lines, logs] },
  {
    id: "B-033",
    title: "a NUL byte in a prompt",
    tests: ["test/e2e/agents.test.ts", "test/e2e/commands.test.ts", "src/execution/environment.test.ts"],
  },
  { id: "B-034", title: "a NUL byte that is stored fails for ever", tests: ["src/ops/accounts/agent-target.test.ts"] },
  {
    id: "B-035",
    title: "a prompt that looks like an option",
    tests: [agentCases, "test/e2e/agents.test.ts", "src/execution/environment.test.ts"],
  },
  { id: "B-036", title: "an end of options that another agent does not know", tests: [agentCases, realAgents] },
  {
    id: "B-037",
    title: "a prompt over the kernel's limit of an argument",
    tests: ["test/e2e/agents.test.ts", "src/execution/environment.test.ts", spawner],
  },
  {
    id: "B-039",
    title: "output that commands the terminal",
    tests: [agentRows, daemon, "src/cli/text.test.ts", "src/execution/inert.test.ts", logs],
  },
  { id: "B-040", title: "typed into a terminal, never accepted", tests: [], waits: "lanes" },
  { id: "B-041", title: "clock changes: twice in autumn, never in spring", tests: ["src/core/cron.test.ts"] },
  { id: "B-043", title: "two day fields joined with AND", tests: ["src/core/cron.test.ts"] },
  { id: "B-045", title: "a wall clock that is set back makes waits longer", tests: ["src/engine/wake.test.ts"] },
  { id: "B-047", title: "a delay over 24.8 days fires at once", tests: ["src/core/schedule.test.ts"] },
  { id: "B-048", title: "nights slept through leave no trace", tests: ["test/fault/sleep.test.ts", engine, store] },
  {
    id: "B-049",
    title: "catching up after a restart but not after a suspend",
    tests: ["test/fault/sleep.test.ts", engine],
  },
  { id: "B-050", title: "a storm on waking", tests: ["src/core/plan.test.ts", "src/core/schedule.test.ts"] },
  { id: "B-051", title: "catching up while nothing can run yet", tests: [engine] },
  { id: "B-052", title: "only what somebody looks at is scheduled", tests: [agentCases] },
  { id: "B-053", title: "schedules that end silently", tests: [engine] },
  { id: "B-054", title: "a slot that met nothing to run it is lost", tests: [engineAgents] },
  { id: "B-055", title: "two schedulers fire one job", tests: [daemon] },
  { id: "B-056", title: "dozens of daemons on one installation", tests: [daemon] },
  { id: "B-057", title: "an agent's own timer and ours fire the same job", tests: [agentCases] },
  {
    id: "B-058",
    title: "a pid that belongs to somebody else by now",
    tests: [daemon, "src/execution/judge.test.ts", "src/execution/processes.test.ts"],
  },
  { id: "B-060", title: "a busy machine loses its lease on live work", tests: [engine] },
  { id: "B-061", title: "a lease that is never renewed", tests: [engine, store] },
  { id: "B-062", title: "a worker that wakes overwrites its successor", tests: [engine, store] },
  { id: "B-064", title: "a finished job is overwritten as interrupted", tests: [store, "src/core/run.test.ts"] },
  { id: "B-065", title: "a person and the daemon take the same work", tests: [], waits: "work items" },
  { id: "B-066", title: "agents that choose their work choose the same", tests: [], waits: "work items" },
  { id: "B-067", title: "a delivery that comes again", tests: [], waits: "events" },
  { id: "B-069", title: "a health check that cries at idle workers", tests: [], waits: "lanes" },
  {
    id: "B-070",
    title: "a short conflict of writers leaves half a start",
    tests: [engine, "src/store/sqlite.test.ts"],
  },
  { id: "B-071", title: "everybody migrates at once", tests: ["src/store/migrate.test.ts"] },
  { id: "B-072", title: "a damaged store goes on serving", tests: ["src/store/sqlite-connection.test.ts"] },
  {
    id: "B-073",
    title: "a truncated file is taken for an empty one",
    tests: ["test/e2e/bad-input.test.ts", "src/store/sqlite-connection.test.ts"],
  },
  {
    id: "B-075",
    title: "logs take the room that the state needs",
    tests: [engine, "src/execution/full-disk.test.ts", "src/execution/log-cap.test.ts"],
  },
  { id: "B-076", title: "a verdict that cannot be written looks like work", tests: [engine] },
  { id: "B-077", title: "a watch for each folder uses up the handles", tests: [daemon], host: "Linux" },
  {
    id: "B-078",
    title: "no watch is left, and the daemon dies of it",
    tests: [daemon],
    host: "Linux, with user namespaces",
  },
  { id: "B-080", title: "dead runs stay `running` for days", tests: [engine] },
  { id: "B-081", title: "who hands work to whom is forgotten", tests: [], waits: "workflows" },
  { id: "B-082", title: "interrupted by a stop, and never taken up again", tests: [engine] },
  { id: "B-083", title: "the dead hold every place", tests: [engine] },
  { id: "B-084", title: "waiting uses up the time limit", tests: [engine] },
  {
    id: "B-085",
    title: "a reset without a zone is read as UTC",
    tests: [agentRows, "src/core/limit-end.test.ts", "src/execution/agents/reset-time.test.ts"],
  },
  { id: "B-086", title: "tries used up against a limit", tests: [accounts, "src/core/run.test.ts"] },
  { id: "B-087", title: "a weekly limit retried every second", tests: [accounts] },
  { id: "B-088", title: "a storm of retries keeps itself alive", tests: [accounts, "src/core/limit-end.test.ts"] },
  { id: "B-089", title: "quick refusals use up a budget of attempts", tests: [accounts, "src/core/run.test.ts"] },
  { id: "B-091", title: "a throttled account stalls while another is idle", tests: [], waits: "pools" },
  { id: "B-092", title: "one login renewed by many at once", tests: [agentCases, engineAgents] },
  { id: "B-093", title: "a limit kept as a connection error", tests: ["src/execution/agents/failure-text.test.ts"] },
  { id: "B-094", title: "spend counted in memory", tests: [], waits: "budgets" },
  { id: "B-095", title: "a cap on what costs nothing", tests: [], waits: "budgets" },
  { id: "B-096", title: "success with an error inside", tests: [agentRows, "src/execution/agents/claude.test.ts"] },
  {
    id: "B-097",
    title: "no work, and healthy",
    tests: [agentCases, engineAgents, "src/execution/agents/custom.test.ts"],
  },
  {
    id: "B-098",
    title: "a clean exit without a result",
    tests: [agentRows, engineAgents, "src/execution/agents/codex.test.ts"],
  },
  {
    id: "B-100",
    title: "a needed tool was refused, and success",
    tests: [agentRows, "src/execution/agents/claude.test.ts"],
  },
  {
    id: "B-101",
    title: "our own signal makes a failure of it",
    tests: [agentRows, engineAgents, "src/engine/classify.test.ts"],
  },
  { id: "B-102", title: "a branch that is checked out in a forgotten tree", tests: [trees] },
  { id: "B-103", title: "the folder of an aborted start", tests: [engineAgents, trees] },
  { id: "B-104", title: "a tree that begins at an old commit", tests: [agentTrees, trees] },
  { id: "B-105", title: "trees made at once", tests: [agentTrees, trees] },
  { id: "B-106", title: "a failed command that made the branch", tests: [trees] },
  { id: "B-107", title: "many on one folder", tests: [agentCases] },
  { id: "B-108", title: "a clean-up that deletes work", tests: [agentTrees, trees] },
  { id: "B-109", title: "a rebuild that deletes edits", tests: [trees] },
  { id: "B-110", title: "an orphan by our list alone", tests: [trees] },
  { id: "B-111", title: "a tree that is gone, and work in the home folder", tests: [agentCases, trees] },
  { id: "B-112", title: "an agent writes into the main checkout", tests: [agentCases, engineAgents, trees] },
  { id: "B-113", title: "a branch in the way of the branch's name", tests: [trees] },
  { id: "B-115", title: "git asks, and nobody is there", tests: [trees] },
  {
    id: "B-116",
    title: "a session that is in use",
    tests: [agentCases, engineAgents, "src/engine/resumption.test.ts"],
  },
  { id: "B-117", title: "two drivers of one session", tests: [accounts], waits: "lanes" },
  { id: "B-118", title: "two live workers under one session", tests: [accounts] },
  {
    id: "B-119",
    title: "an update that its old workers do not understand",
    tests: ["test/e2e/upgrade.test.ts", "test/fault/upgrade.test.ts"],
  },
  {
    id: "B-120",
    title: "a program that is away counts as a crash",
    tests: ["test/e2e/found-starts.test.ts", engineAgents, store, "src/core/run.test.ts"],
  },
  {
    id: "B-121",
    title: "the version in use is removed",
    tests: [agentCases, "src/execution/agents/surroundings.test.ts"],
  },
  {
    id: "B-122",
    title: "the host's environment, and keys in outputs",
    tests: ["test/agents/canaries.test.ts", daemon, "src/execution/environment.test.ts", "src/execution/scrub.test.ts"],
  },
  { id: "B-123", title: "keys on the command line", tests: [agentCases, daemon, spawner] },
  { id: "B-124", title: "a web page reaches the local server", tests: [daemon] },
  { id: "B-126", title: "a question that nobody was there to answer", tests: [], waits: "questions" },
  { id: "B-128", title: "who asks keeps the place", tests: [], waits: "questions" },
  { id: "B-129", title: "a stream that broke shows `busy` for ever", tests: [], waits: "dashboard" },
  { id: "B-130", title: "a stream that reconnects counts twice", tests: [], waits: "dashboard" },
  { id: "B-131", title: "a list that loads all outputs", tests: ["src/store/lists.contract.ts"] },
  { id: "B-133", title: "failing all night without a notice", tests: ["src/core/run-end.test.ts"] },
];

const root = resolve(fileURLToPath(import.meta.url), "../..");

/** A call that makes a test or a group of tests, up to the parenthesis before its title; one that is switched off is none. */
const MAKES = /(?:^|[^\w.])(?:test|describe)(?:\.(?:each|for|skipIf|runIf)\(\))*$/;

/** The code before `at`, with what stands in parentheses taken out. */
function callBefore(code: string, at: number): string {
  let end = at;
  let kept = "";
  for (;;) {
    let from = end;
    while (from > 0 && /[\w.$]/.test(code[from - 1] ?? "")) from -= 1;
    kept = code.slice(from, end) + kept;
    if (code[from - 1] !== ")") return kept;
    let depth = 0;
    let open = from - 1;
    for (; open >= 0; open -= 1) {
      if (code[open] === ")") depth += 1;
      if (code[open] === "(" && --depth === 0) break;
    }
    kept = `()${kept}`;
    end = open;
  }
}

/** Numbers of cases that the titles of real tests in a text name. */
function namedIn(path: string, text: string): ReadonlySet<string> {
  const { code, strings, templates } = readSource(path, text);
  return new Set(
    [...strings, ...templates].flatMap(({ text: title, start }) => {
      const before = code.slice(0, start).trimEnd();
      if (!before.endsWith("(") || !MAKES.test(callBefore(before, before.length - 1))) return [];
      return [...title.matchAll(/\bB-\d{3}\b/g)].map(([id]) => id);
    }),
  );
}

/** What each file of tests names. */
const named = new Map(
  ["src", "test"]
    .flatMap((folder) =>
      readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((file) => join(root, folder, file)),
    )
    .filter((file) => /\.(?:test|contract)\.ts$/.test(file) && !file.includes(`${sep}node_modules${sep}`))
    .map((file) => [relative(root, file).replaceAll(sep, "/"), namedIn(file, readFileSync(file, "utf8"))] as const)
    .filter(([file]) => file !== "test/cases.test.ts"),
);

test("a name counts as a test's only where it is the title of one that runs", () => {
  const of = (text: string) => [...namedIn("x.test.ts", text)];
  expect(of('test("B-001 it ends", () => {});')).toEqual(["B-001"]);
  expect(of('describe.each([["a)"], ["b"]])("B-001 B-002 %s", () => {});')).toEqual(["B-001", "B-002"]);
  expect(of('test.skipIf(!there)(\n  "B-001 it ends", () => {});')).toEqual(["B-001"]);
  expect(of("test(`B-001 ${way} ends`, () => {});")).toEqual(["B-001"]);
  for (const none of [
    '// test("B-001 it ends")',
    'const rows = ["B-001"];',
    'log("B-001 it ends");',
    'test.skip("B-001 it ends", () => {});',
    'test.todo("B-001 it ends");',
    'test.each([["B-001"]])("%s", () => {});',
    'contest("B-001 it ends");',
  ])
    expect([none, of(none)]).toEqual([none, []]);
});

test("every case stands here once, in order, with a title", () => {
  const ids = CASES.map(({ id }) => id);
  expect(ids).toHaveLength(113);
  expect(ids).toEqual([...new Set(ids)].toSorted());
  expect(CASES.filter(({ id, title }) => !/^B-(?:0\d\d|1[0-2]\d|13[0-3])$/.test(id) || title.length < 10)).toEqual([]);
});

test("what stands here as held is named by the tests of those files", () => {
  const claims = CASES.flatMap(({ id, tests }) => tests.map((file) => ({ id, file })));
  expect(claims.filter(({ id, file }) => !named.get(file)?.has(id))).toEqual([]);
  expect(CASES.filter(({ tests, waits }) => tests.length === 0 && waits === undefined).map(({ id }) => id)).toEqual([]);
});

test("what tests name stands here as held", () => {
  const held = new Set(CASES.filter(({ tests }) => tests.length > 0).map(({ id }) => id));
  const unknown = [...named].flatMap(([file, ids]) =>
    [...ids].filter((id) => !held.has(id)).map((id) => ({ file, id })),
  );
  expect(unknown).toEqual([]);
});
