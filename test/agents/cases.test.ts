/** Cases of what breaks when agents run unattended, through the built program: the stand-in on the PATH, and where it can show it the real command line. */
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "../e2e/drover.ts";
import { isOver, livingOf, openStage, type RunSeen } from "./harness.ts";
import { describeInstalled } from "./installed.ts";
import { type ModelServer, openModelServer } from "./model-server.ts";
import { gone, openRealHome, type RealHome } from "./real.ts";

const STAND_IN = resolve(fileURLToPath(import.meta.url), "../stand-in.mjs");
const AT_ONCE = 8;
const LOSSES = 3;

const CONFIG = `limits:
  agentCap: ${AT_ONCE}
  agentLookMs: 100ms
  lostLoopEnds: ${LOSSES}
  watchMs: 1s
`;

let home: Home;
let path: string;
beforeAll(async () => {
  home = openHome({ prefix: "drover-cases-" });
  const bin = join(home.folder, "bin"); // one of a user's own folders, which a daemon looks into by itself
  mkdirSync(bin);
  for (const name of ["claude", "codex"]) symlinkSync(STAND_IN, join(bin, name));
  mkdirSync(join(home.folder, "home"), { mode: 0o700 });
  writeFileSync(join(home.folder, "home/config.yaml"), CONFIG);
  path = `${bin}${delimiter}${process.env["PATH"] ?? ""}`;
  await up();
});
afterAll(() => home.close());

const up = () => home.json(["up"], { env: { PATH: path } });

interface Escaped {
  readonly escaped: { readonly headMoved: boolean; readonly paths: readonly string[]; readonly count: number } | null;
}
type Seen = RunSeen & { readonly worktree: (RunSeen["worktree"] & Escaped) | null };

let names = 0;
const folderOf = (): string => {
  const folder = join(home.folder, `w${++names}`);
  mkdirSync(folder);
  return folder;
};

/** Each account is a test's own: a limit of one holds no other. */
async function account(provider: string): Promise<string> {
  const name = `a${++names}`;
  await home.json(["account", "add", provider, name]);
  return name;
}

const words = (provider: string, name: string, cwd: string, flags: readonly string[]): string[] => [
  ...["--agent", provider, "--account", name, "--cwd", cwd, "--grace", "1s", ...flags],
];
const prompt = (mode: string): string => `Do it.\nMODE=${mode}\n`;

/** Starts a run and answers its id. */
async function begin(provider: string, name: string, cwd: string, mode: string, flags: readonly string[] = []) {
  const { id } = await home.json<{ id: string }>(
    ["run", "--detach", ...words(provider, name, cwd, flags), "--prompt", "-"],
    { input: prompt(mode) },
  );
  return id;
}
const show = (id: string): Promise<Seen> => home.json<Seen>(["show", id]);
async function over(id: string, patienceMs = 60_000): Promise<Seen> {
  let seen: Seen | undefined;
  await until(async () => isOver((seen = await show(id))), `${id} is over`, patienceMs);
  if (seen === undefined) throw new Error("nothing was seen");
  return seen;
}
async function run(provider: string, mode: string, flags: readonly string[] = [], cwd = folderOf()): Promise<Seen> {
  const seen = await over(await begin(provider, await account(provider), cwd, mode, flags));
  expect(livingOf(seen)).toEqual([]);
  return seen;
}
const attemptsOf = (of: RunSeen) => of.steps.flatMap(({ attempts }) => attempts);
const text = async (...args: string[]): Promise<string> => (await home.run(args)).out;

/** A repository with one commit. */
function repository(): string {
  const folder = folderOf();
  const git = (...args: string[]) =>
    execFileSync("git", args, {
      cwd: folder,
      env: {
        PATH: process.env["PATH"],
        HOME: home.folder,
        GIT_CONFIG_NOSYSTEM: "1",
        GIT_AUTHOR_NAME: "drover tests",
        GIT_AUTHOR_EMAIL: "tests@drover.invalid",
        GIT_COMMITTER_NAME: "drover tests",
        GIT_COMMITTER_EMAIL: "tests@drover.invalid",
      },
      stdio: "ignore",
    });
  git("init", "-q", "-b", "main");
  writeFileSync(join(folder, "README.md"), "first\n");
  git("add", "-A");
  git("commit", "-q", "-m", "first");
  return folder;
}

describe("B-112 the main checkout", () => {
  test("an agent that writes into it is flagged with the paths, and nothing is put back", async () => {
    const shop = repository();
    const readme = join(shop, "README.md");
    const seen = await run("claude", `write ${readme}`, ["--worktree", "required"], shop);
    expect(seen.status).toBe("succeeded");
    expect(seen.worktree?.escaped).toEqual({ headMoved: false, paths: ["README.md"], count: 1 });
    const shown = (await text("show", seen.id)).replaceAll(/\s+/g, " ");
    expect(shown).toContain("the main checkout changed while it ran: 1 file changed (README.md)");
    expect(shown).toContain("it may be the agent's doing or somebody else's");
    expect(await text("why", seen.id)).toMatch(/While it ran, the checkout .* changed: 1 file changed \(README\.md\)/);
    const events = await home.json<{ items: { type: string; data: unknown }[] }>(["events", "--run", seen.id]);
    expect(events.items.find(({ type }) => type === "worktree.escaped")?.data).toMatchObject({ paths: ["README.md"] });
    expect(readFileSync(readme, "utf8")).toBe("written by the stand-in\n");
  });

  test("one that stays in its tree is not", async () => {
    const shop = repository();
    appendFileSync(join(shop, "README.md"), "mine, before\n");
    const seen = await run("claude", "write README.md", ["--worktree", "required"], shop);
    expect(seen).toMatchObject({ status: "succeeded", worktree: { escaped: null } });
    expect(await text("show", seen.id)).not.toContain("main checkout");
    expect(await text("why", seen.id)).not.toContain("checkout");
  });

  test("what was noted outlives the daemon", async () => {
    const shop = repository();
    const id = await begin("claude", await account("claude"), shop, "slow 4000", ["--worktree", "required"]);
    await until(async () => (await show(id)).status === "running", "it runs");
    await home.json(["down"]);
    writeFileSync(join(shop, "new.txt"), "x");
    await up();
    expect(await over(id)).toMatchObject({
      status: "succeeded",
      worktree: { escaped: { headMoved: false, paths: ["new.txt"], count: 1 } },
    });
  });
});

describe("B-116 a session that is somebody's", () => {
  const FLAGS = ["--attempts", "1"];
  const classes = (seen: RunSeen) => attemptsOf(seen).map((attempt) => attempt.class);
  const sessions = (seen: RunSeen) => attemptsOf(seen).map(({ sessionId }) => sessionId);

  test("is resumed", async () => {
    const seen = await run("claude", "session-used", FLAGS);
    expect([seen.status, classes(seen)]).toEqual(["succeeded", ["protocol", null]]);
    expect(new Set(sessions(seen)).size).toBe(1);
  });

  test("else it is copied", async () => {
    const seen = await run("claude", "session-held", FLAGS);
    expect([seen.status, classes(seen)]).toEqual(["succeeded", ["protocol", "protocol", null]]);
    const [first, second, copy] = sessions(seen);
    expect(second).toBe(first);
    expect(copy).not.toBe(first);
  });

  test("else it is left, and no way is tried twice", async () => {
    const seen = await run("claude", "session-shut", FLAGS);
    expect([seen.status, classes(seen)]).toEqual(["succeeded", ["protocol", "protocol", "protocol", null]]);
    expect(attemptsOf(seen).map(({ counted }) => counted)).toEqual([false, false, false, true]);
    expect(sessions(seen)[3]).not.toBe(sessions(seen)[0]);
  });
});

test("B-006 an agent that kills its own group, its shim with it, ends after a few losses with one notice", async () => {
  const cwd = folderOf();
  const flags = ["--attempts", "10", "--backoff", "1s", "--env", "STAND_IN_MODE=group"];
  const notice = ["--on-failure", "echo told >> notices"];
  await home.json(
    ["loop", "add", "lost", "--at", "+0s", ...words("claude", await account("claude"), cwd, flags), ...notice].concat([
      "--prompt",
      "Do it.",
    ]),
  );
  const runs = () => home.json<{ items: { id: string }[] }>(["runs", "--loop", "lost"]);
  await until(async () => (await runs()).items.length > 0, "it is there");
  const seen = await over((await runs()).items[0]?.id ?? "");
  expect(attemptsOf(seen).map(({ class: of, counted }) => [of, counted])).toEqual(
    Array.from({ length: LOSSES }, () => ["lost", false]),
  );
  expect(seen.error?.class).toBe("crash_loop");
  expect(seen.error?.message).toContain(`${LOSSES} times in a row`);
  await until(() => existsSync(join(cwd, "notices")), "it is told");
  expect(readFileSync(join(cwd, "notices"), "utf8")).toBe("told\n");
});

test("B-107 seven agents on one folder come one after another, and why says that it is busy", async () => {
  const cwd = folderOf();
  const name = await account("claude");
  const flags = ["--worktree", "off"];
  // The first one stays until it is cancelled: however slow the host, the others meet it.
  const first = await begin("claude", name, cwd, "silence", flags);
  const ids: string[] = [];
  for (let i = 0; i < 6; i++) ids.push(await begin("claude", name, cwd, "slow 100", flags));
  expect(await text("why", ids.at(-1) ?? "")).toContain(`the folder ${cwd} is busy`);
  await home.run(["cancel", first]);
  const seen = await Promise.all([first, ...ids].map((id) => over(id)));
  expect(seen.map(({ status }) => status)).toEqual(["cancelled", ...ids.map(() => "succeeded")]);
  const times = seen
    .map((one) => attemptsOf(one)[0] as unknown as { startedAt: string; finishedAt: string })
    .toSorted((a, b) => a.startedAt.localeCompare(b.startedAt));
  for (const [i, { startedAt }] of times.entries())
    if (i > 0) expect(startedAt >= (times[i - 1]?.finishedAt ?? "")).toBe(true);
});

test("B-107 those that only read do not wait", async () => {
  const cwd = folderOf();
  const name = await account("claude");
  const flags = ["--worktree", "off", "--permission", "read-only"];
  const ids = await Promise.all([1, 2, 3].map(() => begin("claude", name, cwd, "silence", flags)));
  await until(
    async () => (await Promise.all(ids.map(show))).every(({ status }) => status === "running"),
    "all of them run",
  );
  for (const id of ids) await home.run(["cancel", id]);
  for (const id of ids) expect((await over(id)).status).toBe("cancelled");
});

test("B-052 two loops with nobody looking both fire, and agents that die before their first word have failed", async () => {
  const loops = ["claude", "codex"] as const;
  for (const provider of loops)
    await home.json(
      ["loop", "add", `dies-${provider}`, "--at", "+0s", "--attempts", "1"].concat(
        words(provider, await account(provider), folderOf(), ["--env", "STAND_IN_MODE=signal SIGKILL"]),
        ["--prompt", "Do it."],
      ),
    );
  for (const provider of loops) {
    const runs = () => home.json<{ items: { id: string }[] }>(["runs", "--loop", `dies-${provider}`]);
    await until(async () => (await runs()).items.length > 0, `${provider} was fired`);
    const seen = await over((await runs()).items[0]?.id ?? "");
    expect(seen).toMatchObject({ status: "failed", output: null, error: { class: "signal" } });
    expect(seen.error?.message).toContain("without a result");
  }
});

test("B-092 eight starts on one home whose login has run out renew it once, and none is refused", async () => {
  const name = await account("codex");
  const accounts = await home.json<{ items: { id: string; home: string }[] }>(["account", "ls"]);
  const folder = accounts.items.find(({ id }) => id === `codex:${name}`)?.home ?? "";
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  writeFileSync(join(folder, "login.json"), JSON.stringify({ token: 1, until: 0 }));
  const ids = await Promise.all(
    Array.from({ length: AT_ONCE }, () => begin("codex", name, folderOf(), "login", ["--attempts", "1"])),
  );
  const seen = await Promise.all(ids.map((id) => over(id)));
  expect(seen.map(({ status }) => status)).toEqual(ids.map(() => "succeeded"));
  expect(readdirSync(folder).filter((file) => /^(?:spent|replayed)/.test(file))).toEqual(["spent-1"]);
});

test("B-028 a hundred agents that leave a prompt of 1 MB unread fail one by one, and the daemon stays as it is", async () => {
  const daemon = async () => (await home.json<{ daemon: { pid: number } }>(["status"])).daemon.pid;
  const bytes = (pid: number) =>
    Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
  const cwd = folderOf();
  const promptFile = (i: number): string => {
    const file = join(cwd, `prompt-${i}`);
    writeFileSync(file, `${i} ${"x".repeat(1024 * 1024)}`);
    return file;
  };
  const start = (file: string) =>
    home.json<{ id: string }>(
      [
        "run",
        "--detach",
        "--agent",
        "custom",
        "--agent-command",
        "true",
        "--attempts",
        "1",
        "--worktree",
        "auto",
      ].concat(["--cwd", folderOf(), "--prompt-file", file]),
    );
  const pid = await daemon();
  await over((await start(promptFile(0))).id);
  const before = bytes(pid);
  const ids: string[] = [];
  const file = promptFile(1);
  while (ids.length < 100)
    ids.push(...(await Promise.all(Array.from({ length: 10 }, () => start(file)))).map(({ id }) => id));
  const list = async () =>
    (await home.json<{ items: RunSeen[] }>(["runs", "--limit", "200"])).items.filter(({ id }) => ids.includes(id));
  await until(async () => (await list()).every(isOver), "they are over");
  const seen = await list();
  expect(seen).toHaveLength(100);
  for (const one of seen) expect(one).toMatchObject({ status: "failed", output: null, error: { class: "no_result" } });
  expect(await daemon()).toBe(pid);
  expect(bytes(pid) - before).toBeLessThan(64 * 1024 * 1024);
}, 240_000);

test("B-097 silence and exit 0 are no success, whatever is there besides", async () => {
  const cwd = folderOf();
  const ended = await home.run([
    ...["run", ...words("claude", await account("claude"), cwd, ["--attempts", "1", "--expect", "file:hello.txt"])],
    ...["--env", "STAND_IN_MODE=exit 0", "--prompt", "Do it.", "--json"],
  ]);
  expect(ended.status).toBe(1);
  const silent = JSON.parse(ended.out) as Seen;
  expect(silent).toMatchObject({ status: "failed", output: null, error: { class: "no_result" } });
  const said = await run("claude", "ok", ["--attempts", "1", "--expect", "file:hello.txt"], cwd);
  expect(said).toMatchObject({ status: "failed", error: { class: "check_failed" } });
  expect(said.error?.message).toContain("hello.txt");
});

test("B-111 a tree that is gone at the next try fails that try, says how it is made again, and nothing works elsewhere", async () => {
  const shop = repository();
  const started = join(home.folder, "started");
  const agent = join(home.folder, "bin/says-where");
  writeFileSync(agent, `#!/bin/sh\ncat > /dev/null\npwd >> ${started}\necho done\n`, { mode: 0o755 });
  const { id } = await home.json<{ id: string }>(
    ["run", "--detach", "--agent", "custom", "--agent-command", agent, "--cwd", shop, "--worktree", "required"].concat([
      "--attempts",
      "2",
      "--backoff",
      "3s",
      "--expect",
      "file:never",
      "--prompt",
      "Do it.",
    ]),
  );
  await until(async () => (await show(id)).status === "waiting", "the first try is over");
  const tree = (await show(id)).worktree?.path ?? "";
  rmSync(tree, { recursive: true });
  const seen = await over(id);
  expect(seen).toMatchObject({ status: "failed", error: { class: "workspace" } });
  expect(seen.error?.message).toContain("is not there any more");
  expect(seen.error?.message).toContain(`git -C ${shop} worktree add`);
  expect(readFileSync(started, "utf8")).toBe(`${tree}\n`);
});

describe("a program that is replaced", () => {
  const version = (said: string): string => {
    const file = join(folderOf(), "agent");
    writeFileSync(file, `#!/bin/sh\ncat > /dev/null\necho ${said}\n`, { mode: 0o755 });
    return file;
  };
  const link = () => join(home.folder, "bin/agent");
  const lead = (to: string): void => {
    rmSync(link(), { force: true });
    symlinkSync(to, link());
  };
  const target = () => [
    ...["--agent", "custom", "--agent-command", link(), "--attempts", "1"],
    ...["--cwd", folderOf(), "--prompt", "Do it."],
  ];
  const next = async () => over((await home.json<{ id: string }>(["run", "--detach", ...target()])).id);

  test("B-121 the next start takes the new one, although the old one is gone", async () => {
    const old = version("old");
    lead(old);
    expect(await next()).toMatchObject({ status: "succeeded", output: { result: "old" } });
    lead(version("new"));
    rmSync(old);
    expect(await next()).toMatchObject({ status: "succeeded", output: { result: "new" } });
  });

  test("a link that leads nowhere is a program of the work's own that is not found: counted, and at once", async () => {
    lead(version("found"));
    await home.json(["loop", "add", "nowhere", "--every", "1h", ...target()]);
    lead(join(home.folder, "nowhere"));
    const { runId } = await home.json<{ runId: string }>(["loop", "run", "--detach", "nowhere"]);
    const seen = await over(runId);
    expect(seen).toMatchObject({ status: "failed", error: { class: "not_found" }, steps: [{ triesCounted: 1 }] });
    expect(attemptsOf(seen)).toHaveLength(1);
  });
});

const readOrNothing = (file: string): string => {
  try {
    return readFileSync(file, "latin1");
  } catch {
    return ""; // it has ended, or is somebody else's
  }
};

test("B-123 while agents work no secret of theirs is in any command line of the machine", async () => {
  const values = { account: "sk-account-0123456789abcdef", run: "sk-run-fedcba9876543210" };
  const secrets = folderOf();
  for (const [name, value] of Object.entries(values)) writeFileSync(join(secrets, name), value, { mode: 0o600 });
  for (const [provider, key] of [
    ["claude", "ANTHROPIC_API_KEY"],
    ["codex", "CODEX_API_KEY"],
  ] as const) {
    const name = `a${++names}`;
    await home.json(["account", "add", provider, name, "--secret", `${key}=file:${join(secrets, "account")}`]);
    const flags = ["--secret", `OTHER=file:${join(secrets, "run")}`];
    const id = await begin(provider, name, folderOf(), "silence", flags);
    let pid = 0;
    await until(async () => (pid = attemptsOf(await show(id))[0]?.pid ?? 0) !== 0, "it runs");
    await until(() => readOrNothing(`/proc/${pid}/environ`).includes(values.account), "it has its key");
    expect(readOrNothing(`/proc/${pid}/environ`)).toContain(values.run);
    const lines = readdirSync("/proc")
      .filter((file) => /^\d+$/.test(file))
      .map((file) => readOrNothing(`/proc/${file}/cmdline`));
    expect(lines.some((line) => line.includes(provider))).toBe(true);
    for (const value of Object.values(values)) expect(lines.filter((line) => line.includes(value))).toEqual([]);
    await home.run(["cancel", id]);
    await over(id);
  }
});

/** Renews logins, each token once, slowly enough that others who ask meanwhile still have the old one. */
async function openLoginServer() {
  const sent: string[] = [];
  const login = (number: number, until: number) => {
    const claims = {
      email: "tests@drover.invalid",
      exp: until,
      "https://api.openai.com/auth": { chatgpt_account_id: "a" },
    };
    const token = [{ alg: "none" }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url"));
    const jwt = `${token.join(".")}.c2ln`;
    return { id_token: jwt, access_token: jwt, refresh_token: `token-${number}` };
  };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece: Buffer) => (body += piece.toString()));
    request.on("end", () => {
      if (request.url !== "/token") return response.writeHead(404).end("{}");
      const { refresh_token: token } = JSON.parse(body) as { refresh_token: string };
      const isNew = !sent.includes(token);
      sent.push(token);
      const answer = isNew
        ? login(sent.length + 1, Math.floor(Date.now() / 1000) + 36_000)
        : { error: { code: "refresh_token_reused", message: "Your refresh token has already been used." } };
      return setTimeout(() => response.writeHead(isNew ? 200 : 401).end(JSON.stringify(answer)), 500);
    });
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const { port } = server.address() as AddressInfo;
  const tokens = { ...login(1, Math.floor(Date.now() / 1000) - 3_600), account_id: "a" };
  return {
    address: `http://127.0.0.1:${port}`,
    sent,
    runOut: { auth_mode: "chatgpt", OPENAI_API_KEY: null, tokens, last_refresh: "2026-01-01T00:00:00Z" },
    close: () => server.close(),
  };
}

describeInstalled("the real command lines", () => {
  let server: ModelServer;
  let real: RealHome;
  beforeEach(async () => {
    server = await openModelServer();
    real = openRealHome();
  });
  afterEach(async () => {
    await gone(real.folder);
    real.close();
    await server.close();
  });

  test.each(["claude", "codex"] as const)(
    "B-035 B-036 %s gets prompts that look like options as they are",
    async (provider) => {
      for (const [i, said] of ["- do x", "--help", "---\ntitle", "-", "-- x"].entries()) {
        const { verdict } = await real.run(provider, { base: server.base("ok", `dash-${i}`), prompt: said });
        expect([said, verdict.ok]).toEqual([said, true]);
        expect(server.requests(`dash-${i}`)[0]?.talk?.userTexts).toContain(said);
      }
    },
  );

  test("B-057 neither has timers of its own that would do the work of a loop once more", async () => {
    for (const provider of ["claude", "codex"] as const) {
      await real.run(provider, { base: server.base("ok", `timers-${provider}`), prompt: "Say OK." });
      const request = server.requests(`timers-${provider}`)[0];
      expect(request?.talk?.tools.length).toBeGreaterThan(3);
      // Also among those that are only named, to be loaded when they are wanted.
      expect(JSON.stringify(request?.body).match(/\b(?:Cron\w+|ScheduleWakeup|RemoteTrigger)\b/g)).toBeNull();
    }
  });

  test("B-116 Claude Code says that an id is used, goes on with it, and in a copy of it", async () => {
    const id = "11111111-2222-4333-8444-555555555555";
    const base = server.base("ok", "copy");
    const first = await real.run("claude", { base, prompt: "the first task", session: { id, resume: false } });
    expect(first.verdict).toMatchObject({ ok: true, sessionId: id });
    const again = await real.run("claude", { base, prompt: "once more", session: { id, resume: false } });
    expect(again.verdict).toMatchObject({ ok: false, class: "protocol", sessionUsed: true, sessionId: null });
    const resumed = await real.run("claude", { base, prompt: "go on", session: { id, resume: true } });
    expect(resumed.verdict).toMatchObject({ ok: true, sessionId: id });
    const copy = await real.run("claude", { base, prompt: "copied", session: { id, resume: true, fork: true } });
    expect(copy.verdict.ok).toBe(true);
    expect(copy.verdict.sessionId).not.toBe(id);
    expect(JSON.stringify(server.requests("copy").at(-1)?.body)).toContain("the first task");
  });

  test("B-092 four starts of Codex on one home whose login has run out renew it once", async () => {
    const stage = await openStage();
    const logins = await openLoginServer();
    try {
      const env = [
        `OPENAI_BASE_URL=${stage.server.base("ok", "login")}/v1`,
        `CODEX_REFRESH_TOKEN_URL_OVERRIDE=${logins.address}/token`,
      ];
      await stage.home.json(["account", "add", "codex", "login", ...env.flatMap((one) => ["--env", one])]);
      const { items } = await stage.home.json<{ items: { id: string; home: string }[] }>(["account", "ls"]);
      const folder = items.find(({ id }) => id === "codex:login")?.home ?? "";
      mkdirSync(folder, { recursive: true, mode: 0o700 });
      writeFileSync(join(folder, "config.toml"), `chatgpt_base_url = "${logins.address}"\n`);
      writeFileSync(join(folder, "auth.json"), JSON.stringify(logins.runOut), { mode: 0o600 });
      const start = async () =>
        (
          await stage.home.json<{ id: string }>(
            [
              "run",
              "--detach",
              "--agent",
              "codex",
              "--account",
              "login",
              "--model",
              "gpt-fake",
              "--attempts",
              "1",
            ].concat(["--cwd", stage.repository, "--permission", "read-only", "--prompt", "Say OK."]),
          )
        ).id;
      const ids = await Promise.all([1, 2, 3, 4].map(start));
      for (const id of ids) {
        await until(async () => isOver(await stage.show(id)), `${id} is over`, 60_000);
        expect((await stage.show(id)).status).toBe("succeeded");
      }
      expect(logins.sent).toEqual(["token-1"]);
    } finally {
      logins.close();
      await stage.close();
    }
  }, 180_000);

  test("B-116 Codex goes on in a copy of a session, and says when there is none", async () => {
    const base = server.base("ok", "copy");
    const first = await real.run("codex", { base, prompt: "the first task" });
    const id = first.verdict.sessionId ?? "";
    const copy = await real.run("codex", { base, prompt: "copied", session: { id, resume: true, fork: true } });
    expect(copy.verdict.ok).toBe(true);
    expect(copy.verdict.sessionId).not.toBe(id);
    expect(JSON.stringify(server.requests("copy").at(-1)?.body)).toContain("the first task");
    const none = { id: "11111111-2222-4333-8444-555555555555", resume: true };
    for (const session of [none, { ...none, fork: true }])
      expect((await real.run("codex", { base, prompt: "x", session })).verdict).toMatchObject({
        class: "protocol",
        sessionGone: true,
      });
  });
});
