/** The end-to-end table: what happens to a real agent, and what drover makes of it. Read by the test and by the documentation. */
import type { FailureClass, RunStatus } from "../../src/core/run.ts";
import type { RealProvider } from "./real.ts";

/** What is seen of a run of one provider. */
export interface Expected {
  readonly status: RunStatus;
  /** Why it waits; null where it does not. */
  readonly waits: "limit" | "account" | "capacity" | null;
  readonly class: FailureClass | null;
  /** Whether the reset that the server stated is known; Codex says the minute only. */
  readonly reset: "none" | "exact" | "to the minute";
  /** Requests that the model server received. */
  readonly requests: number;
  /** Tries used up, of those that `attempts` allows. */
  readonly tries: number;
  /** Processes of its attempts that are alive afterwards. */
  readonly left: number;
}

export interface Row {
  /** What is tried, for people. */
  readonly name: string;
  /** Of `model-server.ts`; `RESET` stands for an instant an hour away. */
  readonly scenario: string;
  /** `OUTSIDE`: a file that no agent may write. */
  readonly prompt: string;
  /** Of `drover loop add`. */
  readonly flags: readonly string[];
  /** What a person or the machine does while a tool runs. */
  readonly meanwhile: "nothing" | "TERM" | "cancel";
  /** What a person does once it waits or was interrupted; the model then answers. */
  readonly then: "nothing" | "release" | "answer";
  /** Runs at once under one account. */
  readonly runs: 1 | 2;
  /** An account with a folder of its own, or the user's own login. */
  readonly account: "own folder" | "default";
  readonly expected: { readonly [P in RealProvider]: Expected };
}

const well: Expected = { status: "succeeded", waits: null, class: null, reset: "none", requests: 1, tries: 1, left: 0 };
const failed = (of: FailureClass, requests: number): Expected => ({ ...well, status: "failed", class: of, requests });
const waiting = (waits: Expected["waits"], of: FailureClass, requests: number): Expected => ({
  ...well,
  status: "waiting",
  waits,
  class: of,
  requests,
  tries: 0,
});
const both = (expected: Expected): Row["expected"] => ({ claude: expected, codex: expected });

const plain = {
  prompt: "Say OK.",
  flags: [],
  meanwhile: "nothing",
  then: "nothing",
  runs: 1,
  account: "own folder",
} as const satisfies Partial<Row>;

/** Prints a word that the harness waits for, and stays. */
const STAYS = "SHELL=touch began; tail -f /dev/null";

export const rows: readonly Row[] = [
  {
    ...plain,
    name: "success, a file written",
    scenario: "tool",
    prompt: "Write it.\nFILE=made.txt",
    flags: ["--expect", "changes", "--expect", "file:made.txt"],
    expected: both({ ...well, requests: 2 }),
  },
  {
    ...plain,
    name: "success, nothing changed, under `--expect changes`",
    scenario: "ok",
    flags: ["--expect", "changes"],
    expected: both(failed("check_failed", 1)),
  },
  {
    ...plain,
    name: "rate limit",
    scenario: "429",
    expected: { claude: waiting("limit", "rate_limited", 3), codex: waiting("limit", "rate_limited", 2) },
  },
  {
    ...plain,
    name: "rate limit, released by a person",
    scenario: "429",
    then: "release",
    expected: { claude: { ...well, requests: 4 }, codex: { ...well, requests: 3 } },
  },
  {
    ...plain,
    name: "usage limit with a reset time",
    scenario: "quota~RESET",
    expected: {
      claude: { ...waiting("limit", "quota", 1), reset: "exact" },
      codex: { ...waiting("limit", "quota", 1), reset: "to the minute" },
    },
  },
  {
    ...plain,
    name: "not logged in, or a key that is refused",
    scenario: "401",
    expected: { claude: waiting("account", "auth", 3), codex: waiting("account", "auth", 2) },
  },
  {
    ...plain,
    name: "the same, released by a person",
    scenario: "401",
    then: "release",
    expected: { claude: { ...well, requests: 4 }, codex: { ...well, requests: 3 } },
  },
  {
    ...plain,
    name: "overloaded",
    scenario: "529",
    expected: { claude: waiting("capacity", "overloaded", 3), codex: waiting("capacity", "overloaded", 2) },
  },
  { ...plain, name: "context overflow", scenario: "context", expected: both(failed("context", 1)) },
  {
    ...plain,
    name: "a model that is not there",
    scenario: "404",
    expected: { claude: failed("env_invalid", 2), codex: failed("env_invalid", 1) },
  },
  {
    ...plain,
    name: "stream dropped every time",
    scenario: "drop",
    expected: { claude: failed("network", 3), codex: failed("network", 2) },
  },
  { ...plain, name: "stream dropped once", scenario: "droponce", expected: both({ ...well, requests: 2 }) },
  {
    ...plain,
    name: "silence until the idle timeout of 4 s",
    scenario: "hang",
    flags: ["--idle-timeout", "4s", "--grace", "3s"],
    expected: both({ ...well, status: "timed_out", class: "idle_timeout" }),
  },
  {
    ...plain,
    name: "cancelled in the middle of a tool",
    scenario: "shell",
    prompt: STAYS,
    meanwhile: "cancel",
    expected: both({ ...well, status: "cancelled", class: "cancelled", tries: 0 }),
  },
  {
    ...plain,
    name: "TERM from outside in the middle of a tool",
    scenario: "shell",
    prompt: STAYS,
    meanwhile: "TERM",
    expected: both(failed("signal", 1)),
  },
  {
    ...plain,
    name: "the same with a second try, which resumes by id with the history",
    scenario: "shell",
    prompt: STAYS,
    flags: ["--attempts", "2", "--backoff", "1s"],
    meanwhile: "TERM",
    then: "answer",
    expected: both({ ...well, requests: 2, tries: 2 }),
  },
  {
    ...plain,
    name: "nothing changed in two tries, the second resumes",
    scenario: "ok",
    flags: ["--expect", "changes", "--attempts", "2", "--backoff", "1s"],
    expected: both({ ...failed("check_failed", 2), tries: 2 }),
  },
  {
    ...plain,
    name: "two at once on one home",
    scenario: "together~2",
    runs: 2,
    expected: both({ ...well, requests: 2 }),
  },
  {
    ...plain,
    name: "the user's own login",
    scenario: "tool",
    prompt: "Write it.\nFILE=made.txt",
    flags: ["--expect", "changes"],
    account: "default",
    expected: both({ ...well, requests: 2 }),
  },
  {
    ...plain,
    name: "a refused tool",
    scenario: "tool",
    prompt: "Write it.\nFILE=OUTSIDE",
    // Codex says nothing of what its sandbox refused: only the work tells.
    flags: ["--expect", "changes"],
    expected: { claude: failed("refused", 2), codex: failed("check_failed", 2) },
  },
];

const seen = ({ status, waits, class: of, reset, requests, tries, left }: Expected): string[] => [
  waits === null ? status : `${status} (${waits})`,
  of === null ? "" : `\`${of}\``,
  reset === "none" ? "" : reset,
  String(requests),
  String(tries),
  String(left),
];

/** The table as a page of the documentation. */
export function printTable(versions: { readonly [P in RealProvider]: string }): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  const titles = ["what happens", "agent", "run", "class", "reset time", "requests", "tries", "processes left"];
  const body = rows.flatMap(({ name, expected }) =>
    (["claude", "codex"] as const).map((provider, at) =>
      line([at === 0 ? name : "", provider, ...seen(expected[provider])]),
    ),
  );
  return `# What happens to an agent, and what drover makes of it

Each line is a test that runs a loop with the real command line (Claude Code ${versions.claude}, Codex ${versions.codex}) in a git worktree, against a model server on this machine that answers, limits, breaks off or says nothing. The test reads this very table.

- **requests**: what the model server received, the provider's own few retries among them.
- **tries**: how many of \`--attempts\` were used up. Limits, overload and logins use up none.
- **reset time**: whether drover knows when the limit is over. Codex says the minute only.

${[line(titles), line(titles.map(() => "---")), ...body].join("\n")}
`;
}
