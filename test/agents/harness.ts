/** The built program with the real command lines: a home, a repository with an origin, an account for each test, a model server. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import { type Home, openHome, processesOf, until } from "../e2e/drover.ts";
import { programs } from "./installed.ts";
import { type ModelServer, openModelServer } from "./model-server.ts";
import { folderOutside, type RealProvider, surroundingsOf } from "./real.ts";

interface UsageSeen {
  readonly outputTokens: number;
  readonly costUsd: number | null;
  readonly of?: string;
}

/** Of a run's document what these tests read. */
export interface RunSeen {
  readonly id: string;
  readonly status: string;
  readonly reason: string | null;
  readonly wakeAt: string | null;
  readonly output: unknown;
  readonly error: { readonly class: string; readonly message: string } | null;
  readonly usage: UsageSeen | null;
  readonly worktree: { readonly path: string; readonly branch: string | null } | null;
  readonly steps: readonly {
    readonly triesCounted: number;
    readonly attempts: readonly {
      readonly id: string;
      readonly status: string;
      readonly pid: number | null;
      readonly class: string | null;
      readonly counted: boolean | null;
      readonly sessionId: string | null;
      readonly account: string | null;
      readonly usage: UsageSeen | null;
      readonly agent: { readonly resetAt?: number | null; readonly httpStatus?: number | null } | null;
    }[];
  }[];
}

export interface Stage {
  readonly home: Home;
  readonly server: ModelServer;
  readonly repository: string;
  /** A file outside of everything that an agent of these tests may write. */
  readonly outside: string;
  /** An account of its own with a folder of its own, led to the server; answers its name. */
  account(provider: RealProvider, scenario: string, testId: string): Promise<void>;
  /** Logs the user in, in the provider's own place; answers the flags that lead a run under it to the server. */
  ownLogin(provider: RealProvider, scenario: string, testId: string): readonly string[];
  /** Adds a loop that is due now, and answers its run as soon as there is one. */
  loop(name: string, words: readonly string[]): Promise<string>;
  show(runId: string): Promise<RunSeen>;
  /** The run once that holds. */
  seen(runId: string, holds: (run: RunSeen) => boolean, what: string): Promise<RunSeen>;
  /** Live processes of a run's attempts. */
  left(run: RunSeen): readonly number[];
  close(): Promise<void>;
}

/** Ends that are for good. */
export const isOver = ({ status }: RunSeen): boolean =>
  ["succeeded", "failed", "timed_out", "cancelled", "skipped"].includes(status);

/** Quick looks, and pauses that are longer than any test: what waits waits. */
const CONFIG = `limits:
  agentCap: 4
  agentLookMs: 200ms
  idleLookMs: 200ms
  throttleBackoffMs: 1h
  throttleBackoffCapMs: 2h
`;

/** The key of the user's own login, as the server sees it. */
export const OWN_KEY = "sk-of-the-users-own-login-0123456789";

/** Where each keeps the user's own login below the home folder, as its own login command leaves it. */
const OWN_LOGINS: { readonly [P in RealProvider]: readonly [file: string, content: unknown] } = {
  claude: [
    ".claude/.credentials.json",
    {
      claudeAiOauth: {
        accessToken: OWN_KEY,
        refreshToken: `${OWN_KEY}-again`,
        expiresAt: Date.now() + 365 * 86_400_000,
        scopes: ["user:inference", "user:profile"],
        subscriptionType: "pro",
      },
    },
  ],
  codex: [".codex/auth.json", { auth_mode: "apikey", OPENAI_API_KEY: OWN_KEY }],
};

export async function openStage(): Promise<Stage> {
  const server = await openModelServer();
  const home = openHome({
    prefix: "drover-agents-",
    env: { PATH: `${programs}${delimiter}${process.env["PATH"] ?? "/usr/bin:/bin"}` },
  });
  mkdirSync(join(home.folder, "home"), { mode: 0o700 });
  writeFileSync(join(home.folder, "home/config.yaml"), CONFIG);

  const repository = join(home.folder, "shop");
  const identity = { GIT_AUTHOR_NAME: "drover tests", GIT_AUTHOR_EMAIL: "tests@drover.invalid" };
  const git = (cwd: string, ...args: string[]): string =>
    execFileSync("git", args, {
      cwd,
      env: {
        PATH: process.env["PATH"],
        HOME: home.folder,
        GIT_CONFIG_NOSYSTEM: "1",
        ...identity,
        GIT_COMMITTER_NAME: identity.GIT_AUTHOR_NAME,
        GIT_COMMITTER_EMAIL: identity.GIT_AUTHOR_EMAIL,
      },
      encoding: "utf8",
      stdio: ["ignore", "pipe", "pipe"],
    });
  mkdirSync(repository);
  git(repository, "init", "-q", "-b", "main");
  writeFileSync(join(repository, "README.md"), "first\n");
  git(repository, "add", "-A");
  git(repository, "commit", "-q", "-m", "first");
  git(home.folder, "clone", "-q", "--bare", repository, join(home.folder, "shop.git"));
  git(repository, "remote", "add", "origin", join(home.folder, "shop.git"));
  git(repository, "fetch", "-q", "origin");
  await home.json(["up"]);

  // Codex may write in temporary folders, where the home of these tests is.
  const outside = join(folderOutside(), `drover-outside-${process.pid}.txt`);
  const show = (runId: string) => home.json<RunSeen>(["show", runId]);
  return {
    home,
    server,
    repository,
    outside,
    async account(provider, scenario, testId) {
      // Usage limits of Claude Code are events only with a login's token.
      const variables = surroundingsOf(provider, server.base(scenario, testId), scenario.startsWith("quota"));
      const flags = Object.entries(variables).flatMap(([name, value]) => {
        if (!/KEY|TOKEN/.test(name)) return ["--env", `${name}=${value}`];
        const file = join(home.folder, `${testId}.key`);
        writeFileSync(file, value, { mode: 0o600 });
        return ["--secret", `${name}=file:${file}`];
      });
      await home.json(["account", "add", provider, testId, ...flags]);
    },
    ownLogin(provider, scenario, testId) {
      const [file, content] = OWN_LOGINS[provider];
      mkdirSync(dirname(join(home.folder, file)), { recursive: true, mode: 0o700 });
      writeFileSync(join(home.folder, file), JSON.stringify(content), { mode: 0o600 });
      const variables = Object.entries(surroundingsOf(provider, server.base(scenario, testId)));
      return variables
        .filter(([name]) => name.endsWith("URL"))
        .flatMap(([name, value]) => ["--env", `${name}=${value}`]);
    },
    async loop(name, words) {
      await home.json(["loop", "add", name, "--at", "+0s", "--cwd", repository, ...words]);
      return until(async () => {
        const { items } = await home.json<{ items: { id: string }[] }>(["runs", "--loop", name]);
        return items[0]?.id ?? null;
      }, `${name} has a run`).then(String);
    },
    show,
    seen: async (runId, holds, what) => {
      let last: RunSeen | null = null;
      try {
        return await until(async () => {
          last = await show(runId);
          return holds(last) ? last : null;
        }, what).then((run) => run as RunSeen);
      } catch (error) {
        throw new Error(`${String(error)}\n${JSON.stringify(last, null, 1)}`);
      }
    },
    left: livingOf,
    async close() {
      try {
        await home.close();
      } finally {
        rmSync(outside, { force: true }); // what a test that fails has let through
        await server.close();
      }
    },
  };
}

/** Live processes of a run's attempts. */
export const livingOf = ({ steps }: RunSeen): readonly number[] =>
  steps.flatMap(({ attempts }) => attempts.flatMap(({ id }) => marked(id)));

/** Live processes that carry an attempt's mark, whatever their command line says. */
function marked(attemptId: string): number[] {
  return processesOf(attemptId).filter((pid) => {
    const file = `/proc/${pid}/environ`;
    try {
      return existsSync(file) && readFileSync(file, "latin1").includes(`DROVER_ATTEMPT_ID=${attemptId}`);
    } catch {
      return false; // it has ended meanwhile
    }
  });
}
