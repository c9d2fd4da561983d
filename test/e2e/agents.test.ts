/** Agents from the command line to their end: a `custom` one, through the real program, daemon and all. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

interface Attempt {
  readonly class: string | null;
  readonly counted: boolean | null;
  readonly account: string | null;
  readonly sessionId: string | null;
}
interface Run {
  readonly id: string;
  readonly status: string;
  readonly reason: string | null;
  readonly output: unknown;
  readonly account: string | null;
  readonly error: { readonly class: string; readonly message: string } | null;
  readonly usage: unknown;
  readonly worktree: {
    readonly path: string;
    readonly branch: string;
    readonly kept: boolean;
    readonly state: string;
    readonly keptBecause: string | null;
    readonly commits: number | null;
  } | null;
  readonly warnings?: readonly { readonly code: string }[];
  readonly steps: readonly { readonly attempts: readonly Attempt[] }[];
}

let home: Home;
let work: string;
let repository: string;

/** An agent of a few lines of shell; answers its path. */
function agent(name: string, text: string): string {
  const file = join(home.folder, name);
  writeFileSync(file, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return file;
}

const git = (cwd: string, ...args: string[]): string =>
  execFileSync("git", ["-c", "user.name=t", "-c", "user.email=t@example.com", ...args], { cwd, encoding: "utf8" });

beforeAll(async () => {
  home = openHome();
  work = join(home.folder, "work");
  mkdirSync(work);
  repository = join(realpathSync(home.folder), "repository");
  mkdirSync(repository);
  git(repository, "init", "-q", "-b", "main");
  writeFileSync(join(repository, "a"), "1\n");
  git(repository, "add", "a");
  git(repository, "commit", "-q", "-m", "first");
  await home.json(["up"]);
});
afterAll(() => home.close());

/** Runs an agent to its end; answers the run's document, whatever its exit status. */
async function run(args: readonly string[], options: { cwd?: string; input?: string } = {}): Promise<Run> {
  const { out, err } = await home.run(["run", "--json", "--agent", "custom", ...args], { cwd: work, ...options });
  if (out === "") throw new Error(err);
  return JSON.parse(out) as Run;
}

const idOf = async (args: readonly string[], options: { cwd?: string } = {}): Promise<string> =>
  (await home.json<Run>(["run", "--detach", "--agent", "custom", ...args], { cwd: work, ...options })).id;
const show = (id: string): Promise<Run> => home.json<Run>(["show", id]);
const why = async (id: string): Promise<string> => (await home.json<{ sentence: string }>(["why", id])).sentence;
const ended = (id: string): Promise<Run> =>
  until(async () => {
    const now = await show(id);
    return ["queued", "running", "waiting"].includes(now.status) ? null : now;
  }, `${id} has ended`) as Promise<Run>;

describe("prompts", () => {
  let keeps: string;
  beforeAll(() => {
    keeps = agent("keeps.sh", `cat >"$DROVER_RUN_ID.prompt"; echo "done"`);
  });
  const given = (id: string): Buffer => readFileSync(join(work, `${id}.prompt`));

  test.each(["- do x", "--flag-like", "---\ntitle", "$(id) `id` 'q' \"q\" \\", "ends with lines\n\n"])(
    "B-035 %j arrives as it is",
    async (prompt) => {
      const { id, status, output } = await run(["--agent-command", keeps, `--prompt=${prompt}`]);
      expect([status, output]).toEqual(["succeeded", { result: "done" }]);
      expect(given(id).toString()).toBe(prompt);
    },
  );

  test.each([131_071, 131_072, 200_000, 3_000_000])("B-037 %i bytes arrive, no UTF-8 among them", async (bytes) => {
    const content = Buffer.alloc(bytes, Buffer.from([0x41, 0xff, 0x80, 0x0a, 0xfe, 0x2d, 0x2d]));
    writeFileSync(join(work, "prompt.md"), content);
    const { id, status } = await run(["--agent-command", keeps, "--prompt-file", "prompt.md"]);
    expect(status).toBe("succeeded");
    expect(given(id).equals(content)).toBe(true);
  });

  test("- is standard input; words after -- are the agent's", async () => {
    const echoes = agent("echoes.sh", 'cat >/dev/null; printf "%s|" "$@"');
    const { output } = await run(["--agent-command", echoes, "--prompt", "-", "--", "--json", "two words"], {
      input: "from a pipe",
    });
    expect(output).toEqual({ result: "--json|two words|" });
  });

  test("B-033 a NUL byte is refused with 2 and words, never a stack trace", async () => {
    const error = await home.refused(2, ["run", "--agent", "custom", "--agent-command", keeps, "--prompt", "-"], {
      input: "a\0b",
    });
    expect(error.code).toBe("nul_byte");
  });

  test("a prompt is in no command line and no environment", async () => {
    const looks = agent("looks.sh", "cat >/dev/null; cat /proc/$$/cmdline /proc/$$/environ | tr '\\0' '\\n'");
    const { output } = await run(["--agent-command", looks, "--prompt", "canary-of-a-prompt"]);
    expect(JSON.stringify(output)).toContain("DROVER_RUN_ID");
    expect(JSON.stringify(output)).not.toContain("canary-of-a-prompt");
  });
});

describe("ends", () => {
  test("status 0 and nothing said is no success", async () => {
    const silent = agent("silent.sh", "cat >/dev/null");
    const { status, error } = await run(["--agent-command", silent, "--prompt", "x"]);
    expect([status, error?.class]).toEqual(["failed", "no_result"]);
  });

  test("says success but writes nothing: --expect changes fails it", async () => {
    const liar = agent("liar.sh", "cat >/dev/null; echo all done");
    const { status, error } = await run(["--agent-command", liar, "--prompt", "x", "--expect", "changes"], {
      cwd: repository,
    });
    expect([status, error?.class]).toEqual(["failed", "check_failed"]);
  });

  test("what it wrote to DROVER_OUTPUT is its output", async () => {
    const writes = agent("writes.sh", `cat >/dev/null; echo '{"n": 1}' >"$DROVER_OUTPUT"; echo said`);
    expect((await run(["--agent-command", writes, "--prompt", "x"])).output).toEqual({ n: 1 });
  });

  test("its transcript is read by people and by programs", async () => {
    const speaks = agent("speaks.sh", "cat >/dev/null; printf 'one\\033[2Jtwo\\n'");
    const { id } = await run(["--agent-command", speaks, "--prompt", "x"]);
    const people = await home.run(["logs", "--transcript", id]);
    expect(people.status).toBe(0);
    expect(people.out).toContain("one");
    expect(people.out).not.toContain("\u001b");
    const { entries, stream } = await home.json<{ entries: { kind: string }[]; stream: string }>([
      "logs",
      id,
      "--transcript",
    ]);
    expect(stream).toBe("transcript");
    const lines = (await home.run(["logs", "--transcript", "-f", "--json", id])).out.trim().split("\n");
    expect(lines.map((line) => (JSON.parse(line) as { entry: unknown }).entry)).toEqual(entries);
    expect((await home.refused(2, ["logs", "--transcript", "--stderr", id])).code).toBe("contradiction");
    const command = await home.json<Run>(["run", "--", "true"]);
    expect((await home.refused(2, ["logs", "--transcript", command.id])).code).toBe("no_transcript");
  });
});

test("a loop of an agent is added, shown, run and edited", async () => {
  const says = agent("says.sh", 'cat; echo "$DROVER_MODEL"');
  const added = await home.json<{ target: { prompt: { head: string } }; warnings: { code: string }[] }>(
    [
      ...["loop", "add", "nightly", "--cron", "0 4 * * *", "--tz", "UTC", "--agent", "custom", "--agent-command", says],
      ...["--prompt", "Tidy up.\nAll of it.", "--model", "m1"],
    ],
    { cwd: work },
  );
  expect(added.target.prompt.head).toBe("Tidy up.");
  expect(added.warnings.map((one) => one.code)).toContain("no_worktree");
  const { out } = await home.run(["loop", "show", "nightly"]);
  expect(out).toContain("says.sh: Tidy up.");
  expect(out).toContain("timeout 2h, idle timeout 15m");
  const first = await home.json<{ run: Run }>(["loop", "run", "nightly", "--wait"]);
  expect(first.run.output).toEqual({ result: "Tidy up.\nAll of it.m1" });
  await home.json(["loop", "edit", "nightly", "--prompt", "Less. "]);
  const second = await home.json<{ run: Run }>(["loop", "run", "nightly", "--wait"]);
  expect(second.run.output).toEqual({ result: "Less. m1" });
  await home.json(["loop", "edit", "nightly", "--", "true"]);
  expect(await home.json(["loop", "show", "nightly"])).toMatchObject({
    target: { kind: "command", argv: ["true"] },
    policy: { timeoutMs: null, idleTimeoutMs: null },
  });
});

describe("accounts", () => {
  test("its variables reach the agent, others' keys do not", async () => {
    writeFileSync(join(home.folder, "key"), "key-of-the-account\n", { mode: 0o600 });
    await home.json([
      ...["account", "add", "custom", "own", "--env", "ACCOUNT=own"],
      ...["--secret", `MY_KEY=file:${join(home.folder, "key")}`],
    ]);
    const tells = agent(
      "tells.sh",
      'cat >/dev/null; echo "$ACCOUNT ${#MY_KEY} ${ANTHROPIC_API_KEY:-none}"; echo "$MY_KEY"',
    );
    const { output, account, id } = await run(["--agent-command", tells, "--prompt", "x", "--account", "own"]);
    expect(account).toBe("custom:own");
    expect(JSON.stringify(output)).toContain("own 18 none");
    for (const shown of [JSON.stringify(await show(id)), (await home.run(["logs", id])).out])
      expect(shown).not.toContain("key-of-the-account");
  });

  test("a hold keeps it from starting, why says so, release lets it go", async () => {
    const quick = agent("quick.sh", "cat; echo ok");
    const args = ["--agent-command", quick, "--prompt", "x", "--account", "custom:own"];
    await home.json(["account", "hold", "custom:own", "--for", "2h", "--reason", "mine now"]);
    const person = await home.run(["run", "--agent", "custom", ...args], { cwd: work });
    expect(person.status).toBe(7);
    expect(person.err).toContain("custom:own is held until");
    const id = await idOf(args);
    await until(async () => (await why(id)).includes("held"), "why says that it is held");
    expect(await why(id)).toMatch(
      /^It is queued because custom:own is held until \S+: mine now \(in 1h 5\dm\)(; \d+ stand before it)?; `drover account release custom:own` ends that\.$/,
    );
    expect((await home.refused(4, ["account", "rm", "custom:own"])).code).toBe("account_in_use");
    expect(await home.json(["account", "release", "custom:own"])).toMatchObject({ holds: [] });
    expect((await ended(id)).status).toBe("succeeded");
  });

  test("a hold of the provider keeps all of its accounts from starting, and why says that it is the provider", async () => {
    const quick = agent("quick.sh", "cat; echo ok");
    const args = ["--agent-command", quick, "--prompt", "x", "--account", "custom:own"];
    await home.json(["agent", "hold", "custom", "--for", "2h", "--reason", "not today"]);
    const id = await idOf(args);
    await until(async () => (await why(id)).includes("held"), "why says that it is held");
    expect(await why(id)).toMatch(
      /^It is queued because the provider custom is held until \S+: not today \(in 1h 5\dm\)(; \d+ stand before it)?; `drover agent release custom` ends that\.$/,
    );
    await home.json(["account", "release", "custom:own"]);
    expect(await why(id)).toContain("the provider custom is held");
    await home.json(["agent", "release", "custom"]);
    expect((await ended(id)).status).toBe("succeeded");
  });

  test("disabled: 7, and why says what mends it", async () => {
    const quick = agent("quick.sh", "cat; echo ok");
    await home.json(["account", "disable", "custom:own"]);
    const waiting = await home.run(
      ["run", "--json", "--agent", "custom", "--agent-command", quick, "--prompt", "x", "--account", "own"],
      { cwd: work },
    );
    expect(waiting.status).toBe(7);
    const { id } = JSON.parse(waiting.out) as Run;
    expect(await why(id)).toContain("`drover account enable custom:own` lets it work");
    await home.json(["account", "enable", "custom:own"]);
    expect((await ended(id)).status).toBe("succeeded");
  });

  test("a cap of an account is 8, and why names it", async () => {
    const gate = join(home.folder, "gate");
    const waits = agent("waits.sh", `cat >/dev/null; while [ ! -e ${gate} ]; do sleep 0.1; done; echo ok`);
    mkdirSync(join(home.folder, "w1"));
    mkdirSync(join(home.folder, "w2"));
    await home.json(["account", "add", "custom", "narrow", "--cap", "1"]);
    const args = ["--agent-command", waits, "--prompt", "x", "--account", "narrow"];
    const first = await idOf(args, { cwd: join(home.folder, "w1") });
    await until(async () => (await show(first)).status === "running", "the first one runs");
    const second = await home.run(["run", "--json", "--agent", "custom", ...args], { cwd: join(home.folder, "w2") });
    expect(second.status).toBe(8);
    const { id } = JSON.parse(second.out) as Run;
    expect(await why(id)).toContain("1/1 of account:custom:narrow");
    expect(await home.json(["account", "show", "narrow"])).toMatchObject({ active: 1, cap: 1 });
    writeFileSync(gate, "");
    expect((await ended(id)).status).toBe("succeeded");
  });

  test("two that share a folder run one after another, and why says what would help", async () => {
    const gate = join(home.folder, "gate2");
    const waits = agent("waits2.sh", `cat >/dev/null; while [ ! -e ${gate} ]; do sleep 0.1; done; echo ok`);
    const args = ["--agent-command", waits, "--prompt", "x"];
    const first = await idOf(args);
    await until(async () => (await show(first)).status === "running", "the first one runs");
    const second = await idOf(args);
    await until(
      async () => (await why(second)).includes(" is busy: another agent writes in it"),
      "the second one waits for the folder",
    );
    expect(await why(second)).toContain("--worktree auto gives each a tree of its own");
    writeFileSync(gate, "");
    expect((await ended(second)).status).toBe("succeeded");
  });
});

/** The stand-in under the name of a provider's command line: its closing events are as recorded. */
describe("limits", () => {
  const claude = (prompt: string): readonly string[] => ["--agent", "claude", "--prompt", prompt];
  const start = async (prompt: string): Promise<{ readonly exit: number | null; readonly run: Run }> => {
    const { status, out, err } = await home.run(["run", "--json", ...claude(prompt)], { cwd: work });
    if (out === "") throw new Error(err);
    return { exit: status, run: JSON.parse(out) as Run };
  };
  beforeAll(() => {
    mkdirSync(join(home.folder, "bin"));
    symlinkSync(resolve(import.meta.dirname, "../agents/stand-in.mjs"), join(home.folder, "bin/claude"));
  });

  test("what an agent says is shown as it comes, in the words of the transcript", async () => {
    const { status, out } = await home.run(["run", ...claude("MODE=ok well done")], { cwd: work });
    expect(status).toBe(0);
    expect(out).toContain("result well done\n");
    expect(out).not.toContain('"type"');
  });

  test("a usage limit: 8, no try is used up, why names the reset and what tries earlier", async () => {
    const resetAt = Math.floor(Date.now() / 1_000) + 3_600;
    const { exit, run: limited } = await start(`MODE=usage-limit ${resetAt}`);
    expect([exit, limited.status, limited.reason]).toEqual([8, "waiting", "limit"]);
    expect(limited.steps[0]?.attempts).toMatchObject([{ class: "quota", counted: false, account: "claude:default" }]);
    const said = await why(limited.id);
    expect(said).toMatch(/^It waits because claude:default is held until \S+ \(in (1h|59m \d+s)\): it met a limit/);
    expect(said).toContain("`drover account release claude:default` tries at once");
    const account = await home.json<{ status: string; holds: { untilAt: string }[] }>([
      "account",
      "show",
      "claude:default",
    ]);
    expect(account.status).toBe("quota");
    expect(Date.parse(account.holds[0]?.untilAt ?? "")).toBeGreaterThanOrEqual(resetAt * 1_000);

    const { exit: heldExit, run: held } = await start("MODE=ok later");
    expect([heldExit, held.status]).toEqual([8, "queued"]);
    await home.json(["cancel", limited.id]);
    await home.json(["account", "release", "claude:default"]);
    expect((await ended(held.id)).status).toBe("succeeded");
    expect(await home.json(["account", "show", "claude:default"])).toMatchObject({ status: "ok", holds: [] });
  });

  test("not logged in: 7, the account is held until it is released, and everybody says how", async () => {
    const { exit, run: refused } = await start("MODE=401");
    expect([exit, refused.status, refused.reason]).toEqual([7, "waiting", "account"]);
    expect(await why(refused.id)).toContain(
      "`drover account login claude:default` logs it in, then `drover account release claude:default` wakes it",
    );
    const { warnings } = await home.json<{ warnings: { code: string; hint: string }[] }>(["status"]);
    expect(warnings).toContainEqual(
      expect.objectContaining({
        code: "account_held",
        hint: "drover account login claude:default && drover account release claude:default",
      }),
    );
    const login = JSON.parse((await home.run(["account", "login", "claude:default", "--json"])).out) as {
      next: string;
    };
    expect(login.next).toBe("drover account release claude:default");
    const doctor = await home.run(["doctor", "--json"]);
    expect(doctor.status).toBe(1);
    expect(doctor.out).toContain("claude:default is held until it is released");
    expect(await home.json(["account", "release", "claude:default"])).toMatchObject({ woken: 1 });
    await until(async () => (await show(refused.id)).steps[0]?.attempts.length === 2, "it tries again");
    await home.json(["cancel", refused.id]);
    await home.json(["account", "release", "claude:default"]);
  });

  test("the provider is overloaded: 8, and only this run waits", async () => {
    const { exit, run: busy } = await start("MODE=529");
    expect([exit, busy.status, busy.reason]).toEqual([8, "waiting", "capacity"]);
    expect(await why(busy.id)).toMatch(/^It waits because its provider is short of capacity; it goes on in \S+ /);
    expect((await start("MODE=ok meanwhile")).run.status).toBe("succeeded");
    await home.json(["cancel", busy.id]);
  });
});

describe("worktrees", () => {
  test("one that changes nothing leaves none", async () => {
    const idle = agent("idle.sh", "cat >/dev/null; pwd; git rev-parse --abbrev-ref HEAD");
    const done = await run(["--agent-command", idle, "--prompt", "x"], { cwd: repository });
    expect(done.status).toBe("succeeded");
    const said = (done.output as { result: string }).result;
    expect(said).not.toContain(`${repository}\n`);
    expect(said).toMatch(/\ndrover\/\S+$/);
    await until(async () => (await show(done.id)).worktree?.state === "removed", "the tree is gone");
    expect(git(repository, "branch", "--list", "drover/*").trim()).toBe("");
    expect(existsSync((await show(done.id)).worktree?.path ?? "")).toBe(false);
  });

  test("work is kept, shown, listed, refused to be removed, and given up by name with a rescue ref", async () => {
    const works = agent(
      "works.sh",
      "cat >/dev/null; echo new >b; git add b; git -c user.name=t -c user.email=t@example.com commit -qm work; echo left >c; echo ok",
    );
    const done = await run(["--agent-command", works, "--prompt", "x", "--expect", "commit"], { cwd: repository });
    expect(done.status).toBe("succeeded");
    const kept = await until(async () => {
      const now = await show(done.id);
      return now.worktree?.kept === true ? now : null;
    }, "the tree is kept");
    expect(kept?.worktree).toMatchObject({ commits: 1, state: "kept" });
    const { path = "", branch = "" } = kept?.worktree ?? {};
    expect(readFileSync(join(path, "c"), "utf8")).toBe("left\n");
    const { items } = await home.json<{ items: { runId: string; path: string }[] }>(["worktree", "ls"]);
    expect(items).toContainEqual(expect.objectContaining({ runId: done.id, path, branch }));
    expect((await home.run(["show", done.id])).out).toContain(`worktree  ${branch}`);

    const refused = await home.refused(4, ["worktree", "rm", done.id]);
    expect(refused.code).toBe("worktree_holds_work");
    expect(refused.hint).toContain(`--discard ${done.id}`);
    const dry = await home.json<{ items: unknown[] }>(["worktree", "prune", "--dry-run"]);
    expect(dry.items).toContainEqual(expect.objectContaining({ path, verdict: "kept" }));
    await home.json(["worktree", "prune"]);
    expect(existsSync(path)).toBe(true);

    const other = await home.json<Run>(["run", "--", "true"]);
    expect((await home.refused(2, ["worktree", "rm", done.id, "--discard", other.id])).code).toBe("contradiction");
    const { rescueRef } = await home.json<{ rescueRef: string }>(["worktree", "rm", path, "--discard", done.id]);
    expect(existsSync(path)).toBe(false);
    expect(git(repository, "show", `${rescueRef}:c`)).toBe("left\n");
    expect((await home.refused(3, ["worktree", "rm", done.id])).code).toBe("no_worktree");
  });

  test("the tree of a run that has not ended is not removed", async () => {
    const gate = join(home.folder, "gate3");
    const waits = agent("waits3.sh", `cat >/dev/null; while [ ! -e ${gate} ]; do sleep 0.1; done; echo ok`);
    const id = await idOf(["--agent-command", waits, "--prompt", "x"], { cwd: repository });
    await until(async () => (await show(id)).status === "running", "it runs");
    expect((await home.refused(4, ["worktree", "rm", id])).code).toBe("run_not_ended");
    writeFileSync(gate, "");
    expect((await ended(id)).status).toBe("succeeded");
  });
});
