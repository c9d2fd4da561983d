import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Arena } from "../../test/fixtures/hostile/arena.ts";
import { openArena, sh, table, until } from "../../test/fixtures/hostile/arena.ts";
import type { CommandTarget } from "../core/target.ts";
import { openFiles } from "./files.ts";
import { openNotifier } from "./notifier.ts";
import { isAlive } from "./processes.ts";

let arena: Arena;
beforeEach(() => {
  arena = openArena();
});
afterEach(async () => {
  await arena.close();
});

const git = (...words: string[]) =>
  execFileSync(
    "git",
    ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false", ...words],
    { cwd: arena.cwd, stdio: "pipe", env: { PATH: process.env["PATH"] ?? "", HOME: arena.cwd } },
  );

const repository = () => {
  git("init", "-q", "-b", "main");
  writeFileSync(join(arena.cwd, "tracked"), "1");
  git("add", ".");
  git("commit", "-qm", "first");
};

let number = 0;
/** Runs a script in an attempt with expectations and answers what was unmet. */
async function unmet(
  script: string,
  expectations: string[],
  over: Partial<CommandTarget> = {},
): Promise<string | null> {
  const folder = `att_expect.${++number}`;
  await arena.start(folder, sh(script), { expect: expectations, ...over });
  await arena.ended(folder);
  return await arena.files.unmet(folder, arena.launch(folder, ["true"], { expect: expectations, ...over }).target);
}

describe("expectations", () => {
  test("output is a word on standard output or in DROVER_OUTPUT", async () => {
    expect(await unmet("true", ["output"])).toMatch(/nothing was printed/);
    expect(await unmet("echo only a problem >&2", ["output"])).toMatch(/nothing was printed/);
    expect(await unmet("echo x", ["output"])).toBeNull();
    expect(await unmet('echo 1 >"$DROVER_OUTPUT"', ["output"])).toBeNull();
  });

  test("file: a file that is there and not empty, from the working directory", async () => {
    expect(await unmet("true", ["file:made"])).toBe("file expected, but made does not exist");
    expect(await unmet(": >made", ["file:made"])).toBe("file expected, but made is empty");
    expect(await unmet("echo x >made", ["file:made", `file:${join(arena.cwd, "made")}`])).toBeNull();
  });

  test("cmd: a check with status 0, with the attempt's variables and without its secrets", async () => {
    expect(
      await unmet("true", ['cmd:test "$OWN" = value && test -n "$DROVER_OUTPUT"'], { env: { OWN: "value" } }),
    ).toBeNull();
    expect(await unmet("true", ['cmd:echo "the reason" >&2; exit 3'])).toBe(
      'check ended with status 3: echo "the reason" >&2; exit 3 (the reason)',
    );
    writeFileSync(join(arena.cwd, "key"), "a-secret-value");
    expect(
      await unmet("true", ['cmd:test -z "$KEY"; cat key; exit 1'], { secrets: { KEY: "file:key" } }),
    ).not.toContain("a-secret-value");
  });

  test("cmd: a check that never ends is ended at its limit with all that it started", async () => {
    const files = openFiles({ runsFolder: arena.runsFolder, checkTimeoutMs: 1000 });
    const folder = arena.path("att_limit.1").split("/").at(-1) ?? "";
    await arena.start("att_limit.1", ["true"]);
    await arena.ended("att_limit.1");
    const { target } = arena.launch("att_limit.1", ["true"], {
      expect: ["cmd:sleep 300 & echo $! >pid; setsid sleep 300 & wait"],
    });
    expect(await files.unmet(folder, target)).toMatch(/did not end within 1000 ms/);
    const pid = Number(readFileSync(join(arena.cwd, "pid"), "utf8"));
    await until("the check is gone", () => !isAlive(table.read(pid)));
  });

  test("changes: any difference that git would see, also to a file that was changed before", async () => {
    repository();
    expect(await unmet("cat tracked; touch .git/whatever", ["changes"])).toMatch(/nothing changed/);
    expect(await unmet("echo 2 >tracked", ["changes"])).toBeNull();
    expect(await unmet("true", ["changes"])).toMatch(/nothing changed/);
    expect(await unmet("echo three >tracked", ["changes"])).toBeNull();
    expect(await unmet("echo new >untracked", ["changes"])).toBeNull();
    expect(await unmet("echo newer >>untracked", ["changes"])).toBeNull();
    expect(await unmet("rm untracked", ["changes"])).toBeNull();
    expect(await unmet("mkdir 'a b'; echo x >'a b/c\"d'", ["changes"])).toBeNull();
  });

  test("commit: what another worktree of the repository commits meanwhile is no commit of this one", async () => {
    repository();
    const other = join(arena.cwd, "..", "other");
    git("worktree", "add", "-q", "-b", "theirs", other);
    const commit = "git -c user.name=T -c user.email=t@example.org commit -q --allow-empty -m more";
    expect(await unmet(`cd ${other} && ${commit}`, ["commit"])).toMatch(/there is no new one/);
    expect(await unmet(`git switch -q -c mine && ${commit}2 && git switch -q main`, ["commit"])).toBeNull();
  });

  describe("of an agent", () => {
    const agentUnmet = async (
      folder: string,
      script: string,
      expect_: string[],
      said: string | null,
      since?: string,
    ) => {
      const over = { provider: "custom" as const, command: sh(script) as [string, ...string[]], expect: expect_ };
      const more = { cwd: place, ...(since === undefined ? {} : { since }) };
      const launch = arena.agent(folder, over, more);
      await arena.spawner.prepare(launch);
      await arena.spawner.ask(folder);
      await arena.ended(folder);
      return arena.files.unmet(folder, launch.target, said);
    };
    let place: string;
    beforeEach(() => {
      repository();
      place = join(arena.cwd, "..", "tree");
      git("worktree", "add", "-q", "-b", "run", place);
    });

    test("what counts is where it worked, not the folder that its target names", async () => {
      expect(await agentUnmet("att_where.1", "true", ["changes"], "done")).toMatch(/nothing changed/);
      writeFileSync(join(arena.cwd, "theirs"), "1");
      expect(await agentUnmet("att_where.2", `echo 1 >${join(arena.cwd, "tracked")}`, ["changes"], "done")).toMatch(
        /nothing changed/,
      );
      expect(await agentUnmet("att_where.3", "echo 1 >mine", ["changes", "file:mine"], "done")).toBeNull();
    });

    test("what an attempt that it goes on with has changed is changed", async () => {
      expect(await agentUnmet("att_since.1", "echo 1 >mine", ["changes"], null)).toBeNull();
      expect(await agentUnmet("att_since.2", "true", ["changes"], "done", "att_since.1")).toBeNull();
      expect(await agentUnmet("att_since.3", "true", ["changes"], "done", "att_since.2")).toBeNull();
      // A folder that is gone is no help: what is there now is the beginning then.
      expect(await agentUnmet("att_since.4", "true", ["changes"], "done", "att_gone.1")).toMatch(/nothing changed/);
    });

    test("its output is what it said or handed over, not what it printed", async () => {
      expect(await agentUnmet("att_said.1", "echo printed", ["output"], null)).toMatch(/output expected/);
      expect(await agentUnmet("att_said.2", "true", ["output"], "done")).toBeNull();
      expect(await agentUnmet("att_said.3", 'echo "{}" >"$DROVER_OUTPUT"', ["output"], null)).toBeNull();
    });
  });

  test("changes and commit outside a repository, and in one without a commit", async () => {
    expect(await unmet("true", ["changes"])).toMatch(/in no git repository/);
    git("init", "-q");
    expect(await unmet("true", ["commit"])).toMatch(/there is no new one/);
    expect(
      await unmet("git -c user.name=T -c user.email=t@example.org commit -q --allow-empty -m one", ["commit"]),
    ).toBeNull();
  });

  test("commit: a new commit on HEAD or a branch; a checkout or a reset of what was there is none", async () => {
    repository();
    git("branch", "other");
    const commit = "git -c user.name=T -c user.email=t@example.org commit -q --allow-empty -m more"; // the same commit twice in a second is one commit
    expect(await unmet("echo 2 >tracked", ["commit"])).toMatch(/there is no new one/);
    expect(await unmet("git checkout -q other", ["commit"])).toMatch(/there is no new one/);
    expect(await unmet(commit, ["commit"])).toBeNull();
    expect(await unmet("git reset -q --hard HEAD~1", ["commit"])).toMatch(/there is no new one/);
    expect(await unmet(`git checkout -q -b side && ${commit} && git checkout -q main`, ["commit", "changes"])).toMatch(
      /nothing changed|^null$/,
    );
    expect(await unmet(`git checkout -q --detach && ${commit}-detached`, ["commit"])).toBeNull();
  });

  test("a repository's own hooks and monitor do not run for a look", async () => {
    repository();
    writeFileSync(join(arena.cwd, ".git/hooks/post-index-change"), `#!/bin/sh\ntouch ${join(arena.cwd, "../ran")}\n`, {
      mode: 0o755,
    });
    writeFileSync(join(arena.cwd, ".git/monitor"), `#!/bin/sh\ntouch ${join(arena.cwd, "../ran")}\n`, { mode: 0o755 });
    git("config", "core.fsmonitor", join(arena.cwd, ".git/monitor"));
    expect(await unmet("true", ["changes"])).toMatch(/nothing changed/);
    expect(() => readFileSync(join(arena.cwd, "../ran"))).toThrow();
  });
});

describe("output", () => {
  const output = async (script: string, over: Partial<CommandTarget> = {}) => {
    const folder = `att_output.${++number}`;
    await arena.start(folder, sh(script), over);
    await arena.ended(folder);
    return await arena.files.output(folder);
  };

  test("JSON as it was written, null when nothing was", async () => {
    expect(await output(`echo '{"a": 1}' >"$DROVER_OUTPUT"`)).toBe('{"a": 1}');
    expect(await output("true")).toBeNull();
    expect(await output(': >"$DROVER_OUTPUT"')).toBeNull();
  });

  test("secrets in it are replaced", async () => {
    expect(
      await output(`printf '{"a": "%s"}' "$KEY" >"$DROVER_OUTPUT"`, { secrets: { KEY: "cmd:echo a-secret-value" } }),
    ).toBe('{"a": "[secret]"}');
  });

  test.each([
    ["no JSON", 'echo "{" >"$DROVER_OUTPUT"'],
    ["too large", 'head -c 1048577 /dev/zero >"$DROVER_OUTPUT"'],
    ["a link", 'ln -s /etc/hostname "$DROVER_OUTPUT"'],
    ["a pipe", 'mkfifo "$DROVER_OUTPUT"'],
    ["a folder", 'mkdir "$DROVER_OUTPUT"'],
  ])("%s is refused", async (_what, script) => {
    await expect(output(script)).rejects.toMatchObject({ code: "output_invalid" });
  });
});

test("tail is the scrubbed end of a stream, and removing takes the folder, twice too", async () => {
  await arena.start("att_tail.1", sh("seq 1 1000; echo problem >&2"));
  await arena.ended("att_tail.1");
  const tail = await arena.files.tail("att_tail.1", "stdout", 9);
  expect(tail).toEqual({ text: "999\n1000\n", droppedBytes: 3893 - 9 });
  expect(await arena.files.tail("att_tail.1", "stderr", 100)).toEqual({ text: "problem\n", droppedBytes: 0 });
  expect(await arena.files.tail("att_none.1", "stderr", 100)).toEqual({ text: "", droppedBytes: 0 });
  mkdirSync(join(arena.runsFolder, "not-an-attempt"));
  symlinkSync("/", join(arena.runsFolder, "att_link.1"));
  expect(await arena.files.folders()).toEqual([expect.stringMatching(/^att_tail\w*\.1$/)]);
  expect(await arena.judge("att_tail.1")).toMatchObject({ kind: "ended" });
  await arena.files.remove("att_tail.1");
  await arena.files.remove("att_tail.1");
  expect(await arena.files.folders()).toEqual([]);
  expect(await arena.files.freeBytes()).toBeGreaterThan(0);
  await expect(arena.files.remove("../work")).rejects.toMatchObject({ code: "folder_invalid" });
  rmSync(join(arena.runsFolder, "att_link.1"));
});

describe("hooks", () => {
  const hook = (shell: string, timeoutMs = 5000) =>
    openNotifier().hook({
      name: "on_finish",
      shell,
      cwd: arena.cwd,
      input: '{"id":"run_1"}',
      variables: { DROVER_RUN_ID: "run_1", DROVER_ATTEMPT_ID: "att_hook" },
      timeoutMs,
    });

  test("gets the run's document and variables, and answers its status and what it said", async () => {
    expect(await hook('cat; echo " $DROVER_RUN_ID"; exit 3')).toEqual({ exit: 3, tail: '{"id":"run_1"} run_1\n' });
  });

  test("B-009 a hook's helper that holds its output delays nothing and is ended", async () => {
    const startedAt = performance.now();
    expect(await hook("sleep 600 & echo $! >pid; exit 0", 3000)).toMatchObject({ exit: 0 });
    expect(performance.now() - startedAt).toBeLessThan(2500);
    const pid = Number(readFileSync(join(arena.cwd, "pid"), "utf8"));
    expect(isAlive(table.read(pid))).toBe(false);
  });

  test("B-009 a hook's limit is for its whole tree", async () => {
    const startedAt = performance.now();
    expect(await hook("trap '' TERM; setsid sleep 600 & echo $! >pid; while :; do sleep 0.1; done", 300)).toMatchObject(
      { exit: null },
    );
    expect(performance.now() - startedAt).toBeLessThan(2500);
    const pid = Number(readFileSync(join(arena.cwd, "pid"), "utf8"));
    expect(isAlive(table.read(pid))).toBe(false);
  });

  test("a hook that cannot start, reads nothing or prints a lot is its own affair", async () => {
    rmSync(arena.cwd, { recursive: true });
    expect(await hook("true")).toMatchObject({ exit: null });
    mkdirSync(arena.cwd);
    expect(await hook("exec <&-; exit 0")).toMatchObject({ exit: 0 });
    const loud = await hook("head -c 20000000 /dev/zero | tr '\\0' x; echo end");
    expect(loud.exit).toBe(0);
    expect(loud.tail.endsWith("end\n")).toBe(true);
    expect(loud.tail.length).toBeLessThan(5000);
  });
});
