/** `doctor`: each finding is planted for real, found by its code, and where `--fix` mends it, gone afterwards. */
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { makeId } from "../../src/core/ids.ts";
import { type FindingCode, findingKinds } from "../../src/ops/doctor/finding-codes.ts";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";
import { endChild } from "../children.ts";
import { type CommandOptions, type Home, openHome, PROGRAM, until } from "./drover.ts";

interface Diagnosis {
  readonly ok: boolean;
  readonly findings: readonly {
    readonly check: string;
    readonly level: string;
    readonly code: FindingCode | null;
    readonly subject: string | null;
    readonly message: string;
    readonly command: string | null;
    readonly fixable: boolean;
  }[];
  readonly counts: readonly { readonly code: FindingCode; readonly count: number; readonly shown: number }[];
  readonly actions: readonly { readonly does: string; readonly state: string; readonly error: string | null }[];
  readonly selfTest: { readonly ok: boolean; readonly message: string; readonly runId: string | null } | null;
}

/** Codes of what cannot be planted on any machine: the checks are given it, or judge it, in the test of that file. */
const ELSEWHERE: { readonly [code in FindingCode]?: string } = {
  shell_missing: "src/ops/doctor/checks/checks.test.ts",
  tool_missing: "src/ops/doctor/checks/checks.test.ts",
  processes_low: "src/ops/doctor/checks/checks.test.ts",
  watch_limit_low: "src/ops/doctor/checks/checks.test.ts",
};
const OF_SERVICE = "src/ops/daemon/service.test.ts";

const covered = new Set<FindingCode>();
const homes: Home[] = [];
afterAll(async () => {
  for (const home of homes) await home.close();
});

function newHome(config?: string): Home {
  const home = openHome({ prefix: "drover-doctor-" });
  homes.push(home);
  mkdirSync(join(home.folder, "home"), { mode: 0o700 });
  if (config !== undefined) writeFileSync(join(home.folder, "home/config.yaml"), config);
  return home;
}

async function diagnose(home: Home, args: readonly string[] = [], options?: CommandOptions): Promise<Diagnosis> {
  const { status, out, err } = await home.run(["doctor", "--json", ...args], options);
  if (out === "") throw new Error(`doctor ended with ${status}: ${err}`);
  const answer = JSON.parse(out) as Diagnosis;
  // Notes do not count.
  const counts = answer.findings.filter(({ level }) => level === "problem" || level === "warning").length;
  expect([answer.ok, status]).toEqual(counts === 0 ? [true, 0] : [false, 1]);
  for (const { code, check, subject, level } of answer.findings)
    if (code === null) expect(level).toBe("ok");
    else {
      const { check: own } = findingKinds[code];
      // An agent's program is looked for by the check of agents.
      const checks: readonly string[] = code === "daemon_lacks_program" ? [own, "agents"] : [own];
      expect([code, subject === null, own === "any" || checks.includes(check)]).toEqual([code, false, true]);
    }
  return answer;
}

const codesOf = ({ findings }: Diagnosis): ReadonlySet<FindingCode> =>
  new Set(findings.flatMap(({ code }) => (code === null ? [] : [code])));
const of = ({ findings }: Diagnosis, code: FindingCode) => findings.filter((one) => one.code === code);

/** A test that plants these, and fails when one of them is not found. */
function scene(
  name: string,
  finds: readonly FindingCode[],
  body: (look: typeof diagnose) => Promise<void>,
  timeoutMs = 120_000,
): void {
  for (const code of finds) covered.add(code);
  test(
    `${name}: ${finds.join(", ")}`,
    async () => {
      const seen = new Set<FindingCode>();
      await body(async (...given) => {
        const answer = await diagnose(...given);
        for (const code of codesOf(answer)) seen.add(code);
        return answer;
      });
      expect(finds.filter((code) => !seen.has(code))).toEqual([]);
    },
    timeoutMs,
  );
}

/** Changes the store behind everybody's back. */
function plant(home: Home, ...statements: readonly string[]): void {
  const connection = openSqlite(join(home.folder, "home/drover.db"), {});
  try {
    for (const statement of statements) connection.exec(statement);
  } finally {
    connection.close();
  }
}

const hostOf = (home: Home): string => readFileSync(join(home.folder, "home/host"), "utf8").trim();
const program = (home: Home, name: string, text: string): string => {
  // Not `bin`: that is on everybody's path.
  const folder = join(home.folder, "tools");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return folder;
};
/** A run that has ended, with its one step and attempt. */
async function endedRun(home: Home): Promise<{ runId: string; stepId: string; attemptId: string }> {
  const run = await home.json<{ id: string; steps: { attempts: { id: string }[] }[] }>(["run", "--", "true"]);
  const connection = openSqlite(join(home.folder, "home/drover.db"), { readOnly: true });
  try {
    const [row] = connection.query("select id, step_id from attempts where run_id = ?", [run.id], 0).rows as {
      id: string;
      step_id: string;
    }[];
    return { runId: run.id, stepId: row?.step_id ?? "", attemptId: row?.id ?? "" };
  } finally {
    connection.close();
  }
}
const AWAY = "host_00000000000000000000000002";
const LONG_AGO = Date.UTC(2025, 5, 1);
/** A command line that doctor names, run word by word. */
async function type(home: Home, command: string | null | undefined): Promise<void> {
  for (const line of (command ?? "").split(" && ")) {
    const [first, ...words] = line.split(" ");
    expect(first).toBe("drover");
    const again = words[0] === "retry" ? ["--detach"] : [];
    expect(await home.run([...words, ...again]), line).toMatchObject({ status: 0 });
  }
}

test("where nothing is wrong nothing is found, and a look leaves nothing behind", async () => {
  const home = newHome();
  const before = readdirSync(join(home.folder, "home"));
  const answer = await diagnose(home);
  expect([answer.ok, answer.counts, answer.actions]).toEqual([true, [], []]);
  expect(readdirSync(join(home.folder, "home"))).toEqual(before);
});

scene(
  "states without a way out",
  [
    "run_stuck",
    "step_stuck",
    "turn_stuck",
    "attempt_ending",
    "attempt_host_gone",
    "account_absent",
    "host_silent",
    "claim_stuck",
    "loop_asleep",
    "slot_open",
    "daemon_missing",
  ],
  async (look) => {
    const home = newHome();
    const runs = [];
    for (let nth = 0; nth < 7; nth++) runs.push(await endedRun(home));
    const [none, step, turn, ending, gone, account, pinned] = runs as [
      (typeof runs)[0],
      (typeof runs)[0],
      (typeof runs)[0],
      (typeof runs)[0],
      (typeof runs)[0],
      (typeof runs)[0],
      (typeof runs)[0],
    ];
    await home.json(["loop", "add", "asleep", "--every", "1h", "--", "true"]);
    await home.json(["loop", "add", "turns", "--every", "1h", "--", "true"]);
    await home.run(["down"]);
    const lives = (runId: string, status: string) =>
      `update runs set status = '${status}', reason = null, finished_at = null where id = '${runId}'`;
    const stepIs = (stepId: string, status: string, reason: string | null) =>
      `update steps set status = '${status}', reason = ${reason === null ? "null" : `'${reason}'`}, wake_at = null, finished_at = null where id = '${stepId}'`;
    const attemptLives = (attemptId: string, more: string) =>
      `update attempts set status = 'running', finished_at = null, class = null, counted = null${more} where id = '${attemptId}'`;
    plant(
      home,
      lives(none.runId, "running"),
      lives(step.runId, "waiting"),
      stepIs(step.stepId, "waiting", "nobody"),
      `update runs set status = 'queued', waits_turn = 1, finished_at = null, loop_id = (select id from loops where name = 'turns') where id = '${turn.runId}'`,
      stepIs(turn.stepId, "pending", "turn"),
      lives(ending.runId, "running"),
      stepIs(ending.stepId, "running", null),
      attemptLives(ending.attemptId, `, ending_since = ${LONG_AGO}`),
      lives(gone.runId, "running"),
      stepIs(gone.stepId, "running", null),
      attemptLives(gone.attemptId, `, host_id = '${AWAY}'`),
      `update runs set status = 'queued', finished_at = null, account_wish = 'claude:gone' where id = '${account.runId}'`,
      stepIs(account.stepId, "ready", null),
      `update runs set status = 'queued', finished_at = null, host_pin = '${AWAY}' where id = '${pinned.runId}'`,
      stepIs(pinned.stepId, "ready", null),
      `insert into claims (attempt_id, resource_key, created_at) values ('${none.attemptId}', 'host:${hostOf(home)}:command', 1)`,
      "update loops set wake_at = null where name = 'asleep'",
      `insert into slots (loop_id, at, until_at, count, run_id, late_ms, created_at)
         select id, ${LONG_AGO}, ${LONG_AGO}, 1, null, 0, 1 from loops where name = 'asleep'`,
    );
    const before = await look(home);
    const about = (code: FindingCode) => of(before, code).map(({ subject }) => subject);
    expect(about("run_stuck")).toEqual([none.runId]);
    expect(about("step_stuck")).toEqual([step.stepId]);
    expect(about("turn_stuck")).toEqual([turn.runId]);
    expect(about("attempt_ending")).toEqual([ending.attemptId]);
    expect(about("attempt_host_gone")).toEqual([gone.attemptId]);
    expect(about("account_absent")).toEqual([account.runId]);
    expect(about("host_silent")).toEqual([AWAY]);
    expect(about("claim_stuck")).toEqual([none.attemptId]);
    expect(about("slot_open")).toEqual([`asleep@${new Date(LONG_AGO).toISOString()}`]);

    // What it would do is listed, and not done.
    const planned = await look(home, ["--fix", "--dry-run"]);
    expect(planned.actions.map(({ state }) => state)).toEqual(["planned", "planned", "planned"]);
    expect(codesOf(planned)).toEqual(codesOf(before));
    // Nobody is there to answer: nothing is done.
    expect(await home.refused(2, ["doctor", "--fix"])).toMatchObject({ code: "needs_yes", path: "--yes" });

    const after = await look(home, ["--fix", "--yes"]);
    expect(after.actions.map(({ does, state, error }) => [does, state, error])).toEqual(
      planned.actions.map(({ does }) => [does, "done", null]),
    );
    for (const code of ["claim_stuck", "loop_asleep", "slot_open"] as const) expect(of(after, code)).toEqual([]);
    // What only a person decides is left, and the command that is named for it mends it.
    for (const code of ["run_stuck", "step_stuck", "turn_stuck", "account_absent", "host_silent"] as const)
      await type(home, of(after, code)[0]?.command);
    const last = codesOf(await look(home));
    for (const code of ["run_stuck", "step_stuck", "turn_stuck", "account_absent"] as const)
      expect([code, last.has(code)]).toEqual([code, false]);
  },
  240_000,
);

scene(
  "what was left over",
  [
    "folder_open",
    "process_left",
    "worktree_stray",
    "worktree_gone",
    "worktree_making",
    "worktree_locked",
    "worktree_half_removed",
    "logs_overdue",
    "log_folder_stray",
    "history_overdue",
    "wal_large",
    "store_large",
    "backup_missing",
    "store_replaced",
    "clock_behind",
    "clock_stepped",
    "host_slept",
    "clock_unsynchronised",
  ],
  async (look) => {
    const home = newHome(
      "limits:\n  doctorStuckMs: 1ms\n  doctorBackupMs: 1ms\n  doctorWalBytes: 1KB\n  doctorStoreBytes: 1KB\n",
    );
    const at = (...parts: string[]) => join(home.folder, "home", ...parts);
    const { attemptId, runId } = await endedRun(home);
    const other = await endedRun(home);
    const third = await endedRun(home);
    const past = await endedRun(home);
    await home.run(["down"]);

    chmodSync(at("runs"), 0o755);
    const sleeps = (mark: string): ChildProcess =>
      spawn("sleep", ["300"], {
        env: { PATH: "/usr/bin:/bin", DROVER_ATTEMPT_ID: mark },
        detached: true,
        stdio: "ignore",
      });
    const left = sleeps(attemptId);
    const foreign = sleeps("att_00000000000000000000000077");

    const repository = join(home.folder, "repository");
    const git = (...args: string[]) => execFileSync("git", ["-c", "user.name=a", "-c", "user.email=a@b", ...args]);
    git("init", "-q", repository);
    git("-C", repository, "commit", "-q", "--allow-empty", "-m", "first");
    for (const name of ["stray", "kept"])
      git("-C", repository, "worktree", "add", "-q", "--detach", at("worktrees/repository", name));
    writeFileSync(at("worktrees/repository/kept/work"), "work\n");
    writeFileSync(join(repository, ".git/worktrees/kept/index.lock"), "");
    mkdirSync(at("worktrees/.gone/half"), { recursive: true });
    const tree = (of: string, path: string, state: string) =>
      `insert into worktrees (run_id, host_id, cwd, path, repository, state, created_at)
         values ('${of}', '${hostOf(home)}', '${repository}', '${path}', '${repository}', '${state}', ${LONG_AGO})`;
    const old = (nth: number) => makeId("att", LONG_AGO, new Uint8Array(10).fill(nth));
    for (const nth of [1, 2]) mkdirSync(at("runs", `${old(nth)}.1`));
    mkdirSync(at("replaced-20250601T000000Z"));
    const line = (cause: string, steppedMs: number, asleepMs: number) =>
      `${JSON.stringify({ at: new Date().toISOString(), level: "info", event: "woke_after_gap", data: { cause, steppedMs, asleepMs, lateMs: 0 } })}\n`;
    writeFileSync(at("logs/daemon.log"), line("clock_step", -3_600_000, 0) + line("asleep", 0, 7_200_000), {
      flag: "a",
    });
    const PATH = `${program(home, "timedatectl", "echo no")}:${process.env["PATH"]}`;
    plant(
      home,
      tree(runId, at("worktrees/repository/gone"), "kept"),
      tree(other.runId, at("worktrees/repository/kept"), "kept"),
      tree(third.runId, at("worktrees/repository/making"), "making"),
      `insert into attempts (id, step_id, run_id, number, purpose, token, status, host_id, incarnation, lease_until, finished_at, created_at)
         values ('${old(1)}', 'step_old', '${runId}', 99, 'try', 1, 'succeeded', '${hostOf(home)}', 1, 1, ${LONG_AGO}, ${LONG_AGO})`,
      `update runs set queued_at = ${LONG_AGO}, finished_at = ${LONG_AGO} where id = '${past.runId}'`,
      `update hosts set last_seen_at = ${Date.now() + 86_400_000}`,
    );
    // Somebody who reads keeps the log from being written back.
    const reader = openSqlite(at("drover.db"), { readOnly: true });
    try {
      reader.exec("begin; select count(*) from runs");
      plant(home, "create table filling (text); insert into filling values (hex(randomblob(20000)))");
      const before = await look(home, [], { env: { PATH } });
      expect(of(before, "process_left").map(({ subject }) => subject)).toEqual([`pid ${left.pid}`]);
      expect(of(before, "worktree_stray").map(({ subject }) => subject)).toEqual([at("worktrees/repository/stray")]);
      expect(of(before, "worktree_gone").map(({ subject }) => subject)).toEqual([at("worktrees/repository/gone")]);
      expect(of(before, "logs_overdue").map(({ subject }) => subject)).toEqual([at("runs", `${old(1)}.1`)]);
      expect(of(before, "log_folder_stray").map(({ subject }) => subject)).toEqual([at("runs", `${old(2)}.1`)]);
      // A look changes nothing: what a dead daemon left half done is there still.
      expect(existsSync(at("worktrees/.gone/half"))).toBe(true);
      expect(left.signalCode).toBeNull();
    } finally {
      reader.close();
    }
    const after = await look(home, ["--fix", "--yes"]);
    expect(after.actions.map(({ state }) => state)).toEqual(after.actions.map(() => "done"));
    for (const code of [
      "folder_open",
      "process_left",
      "worktree_stray",
      "worktree_gone",
      "worktree_making",
      "worktree_half_removed",
    ] as const)
      expect([code, of(after, code)]).toEqual([code, []]);
    await until(() => left.signalCode !== null || left.exitCode !== null, "the process that was left over is gone");
    // Another installation's is not ours to end, and nothing that holds work goes.
    expect(foreign.signalCode).toBeNull();
    expect(existsSync(at("worktrees/repository/kept/work"))).toBe(true);
    expect(existsSync(at("worktrees/repository/stray"))).toBe(false);
    await endChild(foreign);
  },
  240_000,
);

scene(
  "agents, accounts and programs",
  [
    "agent_missing",
    "agent_broken",
    "agent_untested",
    "login_missing",
    "account_folder",
    "account_held",
    "provider_held",
    "program_missing",
    "loop_folder_missing",
    "check_failed",
  ],
  async (look) => {
    const home = newHome("limits:\n  doctorCheckMs: 6s\n");
    const own = program(
      home,
      "claude",
      `case "$1" in --version) echo "2.1.332 (Claude Code)";; *) echo '{"loggedIn":false}';; esac`,
    );
    const PATH = `${own}:${process.env["PATH"]}`;
    const env = { PATH };
    const claude = await home.json<{ home: string }>(["account", "add", "claude", "work"], { env });
    await home.json(["account", "add", "codex", "work"], { env });
    await home.json(["account", "hold", "claude:work", "--reason", "rest"], { env });
    await home.json(["agent", "hold", "codex", "--reason", "outage"], { env });
    program(home, "nightly", "true");
    mkdirSync(join(home.folder, "place"));
    await home.json(["loop", "add", "nightly", "--every", "1h", "--", "nightly"], { env });
    await home.json(["loop", "add", "placed", "--every", "1h", "--cwd", join(home.folder, "place"), "--", "true"], {
      env,
    });
    rmSync(join(own, "nightly"));
    rmSync(join(home.folder, "place"), { recursive: true });
    const first = await look(home, [], { env });
    expect(of(first, "agent_missing")).toMatchObject([
      { subject: "codex", message: expect.stringContaining("codex:work needs it") },
    ]);
    expect(of(first, "login_missing")).toMatchObject([
      { subject: "claude:work", command: "drover account login claude:work" },
    ]);
    for (const [code, subject] of [
      ["account_held", "claude:work"],
      ["provider_held", "codex"],
    ] as const) {
      expect(of(first, code)).toMatchObject([{ subject }]);
      await type(home, of(first, code)[0]?.command);
    }
    program(home, "codex", "echo codex-cli 99.0.0");
    chmodSync(claude.home, 0o755);
    const second = await look(home, [], { env });
    expect(of(second, "account_held")).toEqual([]);
    expect(of(second, "account_folder")).toMatchObject([{ subject: claude.home, fixable: true }]);
    program(home, "codex", "exit 3");
    const third = await look(home, ["--fix", "--yes"], { env });
    expect(of(third, "account_folder")).toEqual([]);
    // One that hangs costs its own check and no other.
    program(home, "codex", "sleep 300");
    const hung = await look(home, [], { env });
    expect(of(hung, "check_failed")).toMatchObject([{ subject: "agents" }]);
    expect(hung.findings.some(({ check, level }) => check === "store" && level === "ok")).toBe(true);
    expect(of(hung, "program_missing")).toHaveLength(1);
  },
  240_000,
);

scene(
  "the daemon's PATH is another",
  ["daemon_lacks_program", "step_overdue", "daemon_silent", "daemon_other_build"],
  async (look) => {
    const home = newHome();
    const PATH = `${program(home, "only-mine", "true")}:${process.env["PATH"]}`;
    await home.json(["loop", "add", "mine", "--every", "1h", "--", "only-mine"], { env: { PATH } });
    const { stepId, runId, attemptId } = await endedRun(home);
    await home.run(["down"]);
    expect(await home.run(["up"])).toMatchObject({ status: 0 });
    // Nobody tells the daemon of it, so nobody wakes it.
    plant(
      home,
      `update runs set status = 'waiting', finished_at = null where id = '${runId}'`,
      `update steps set status = 'waiting', reason = 'retry', wake_at = ${LONG_AGO}, finished_at = null where id = '${stepId}'`,
    );
    const first = await look(home, [], { env: { PATH } });
    expect(of(first, "daemon_lacks_program")).toMatchObject([{ subject: "only-mine" }]);
    expect(of(first, "step_overdue")).toMatchObject([{ subject: stepId }]);
    // What is mended beside a daemon is mended by it.
    plant(
      home,
      `insert into claims (attempt_id, resource_key, created_at) values ('${attemptId}', 'host:${hostOf(home)}:command', 1)`,
    );
    const mended = await look(home, ["--fix", "--yes"]);
    expect(mended.actions).toMatchObject([{ does: `give back what ${attemptId} holds of caps`, state: "done" }]);
    expect(of(mended, "claim_stuck")).toEqual([]);

    const { daemon } = await home.json<{ daemon: { pid: number } }>(["status"]);
    process.kill(daemon.pid, "SIGSTOP");
    try {
      expect(of(await look(home), "daemon_silent")).toMatchObject([
        { subject: `pid ${daemon.pid}`, command: `kill -CONT ${daemon.pid}` },
      ]);
    } finally {
      process.kill(daemon.pid, "SIGCONT");
    }
    const folder = mkdtempSync(join(tmpdir(), "drover-other-"));
    try {
      const root = join(dirname(PROGRAM), "..");
      cpSync(dirname(PROGRAM), join(folder, "dist"), { recursive: true });
      cpSync(join(root, "package.json"), join(folder, "package.json"));
      symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
      const { build } = await home.json<{ build: string }>(["version"]);
      for (const name of readdirSync(join(folder, "dist"), { recursive: true, encoding: "utf8" })) {
        const file = join(folder, "dist", name);
        if (!/\.m?js$/.test(name) || !readFileSync(file, "utf8").includes(`"${build}"`)) continue;
        writeFileSync(file, readFileSync(file, "utf8").replaceAll(`"${build}"`, '"another"'));
      }
      const seen = await look(home, [], { program: join(folder, "dist/drover.js") });
      expect(of(seen, "daemon_other_build")).toMatchObject([{ command: "drover down && drover up" }]);
    } finally {
      rmSync(folder, { recursive: true });
    }
    // The command that is named mends the other one too.
    await type(home, "drover down && drover up");
    expect(of(await look(home), "step_overdue")).toEqual([]);
  },
  240_000,
);

scene("the lock", ["lock_held_elsewhere"], async (look) => {
  const home = newHome();
  const file = join(home.folder, "home/daemon.lock");
  // As another machine does that shares the folder: the number that it wrote is of no process here.
  const holder = openSqlite(file, {});
  try {
    holder.exec("begin exclusive");
    writeFileSync(`${file}.pid`, "4194000\n");
    const answer = await look(home);
    expect(of(answer, "lock_held_elsewhere")).toMatchObject([{ subject: file, command: `fuser -v ${file}` }]);
  } finally {
    holder.close();
  }
});

describe("the store", () => {
  async function withStore(): Promise<Home> {
    const home = newHome();
    await home.json(["loop", "add", "one", "--at", "2099-01-01T00:00:00Z", "--", "true"]);
    return home;
  }

  scene("that is none", ["store_unusable", "not_looked_at"], async (look) => {
    const home = newHome();
    writeFileSync(join(home.folder, "text"), "this is no store\n".repeat(1_000));
    const answer = await look(home, [], { env: { DROVER_STORE: `sqlite:${join(home.folder, "text")}` } });
    expect(of(answer, "store_unusable")).toHaveLength(1);
    expect(of(answer, "not_looked_at").map(({ subject }) => subject)).toContain("stuck");
  });

  scene("that is damaged, after its pages were written", ["store_damaged"], async (look) => {
    const home = await withStore();
    plant(home, "pragma wal_checkpoint(truncate)");
    const file = join(home.folder, "home/drover.db");
    const bytes = readFileSync(file);
    // A page in the middle: it opens, and only a look at every page finds it.
    bytes.fill(0x5a, bytes.length - 8 * 4_096, bytes.length - 7 * 4_096);
    writeFileSync(file, bytes);
    expect(of(await look(home), "store_damaged").length).toBeGreaterThan(0);
    expect(readFileSync(file).equals(bytes)).toBe(true);
  });

  scene("of another version", ["store_newer", "store_older"], async (look) => {
    const home = await withStore();
    plant(home, "pragma user_version = 999");
    expect(of(await look(home), "store_newer")).toHaveLength(1);
    plant(home, "pragma user_version = 1");
    expect(of(await look(home), "store_older")).toMatchObject([{ level: "note", command: "drover up" }]);
  });

  scene("that takes long to look through", ["store_not_checked"], async (look) => {
    const home = await withStore();
    writeFileSync(join(home.folder, "home/config.yaml"), "limits:\n  doctorStoreMs: 1ms\n");
    expect(of(await look(home), "store_not_checked")).toMatchObject([{ level: "note" }]);
  });
});

scene("the configuration", ["config_invalid", "config_doubtful", "not_looked_at", "disk_short"], async (look) => {
  const home = newHome("limits:\n  leaseMs: soon\n");
  expect(of(await look(home), "config_invalid")).toMatchObject([
    { message: expect.stringContaining("config.yaml:2:") },
  ]);
  writeFileSync(join(home.folder, "home/config.yaml"), "stroe: here\nlimits:\n  minFreeBytes: 900TB\n");
  const answer = await look(home);
  expect(of(answer, "config_doubtful")).toHaveLength(1);
  expect(of(answer, "disk_short")).toMatchObject([{ subject: join(home.folder, "home") }]);
});

scene("the clock of another year", ["clock_wrong"], async (look) => {
  const home = newHome();
  const early = join(home.folder, "early.cjs");
  writeFileSync(early, "Date.now = () => Date.UTC(1970, 0, 2);\n");
  const answer = await look(home, [], { env: { NODE_OPTIONS: `--require ${early}` } });
  expect(of(answer, "clock_wrong")).toMatchObject([{ message: "the clock says 1970-01-02T00:00:00.000Z" }]);
});

covered.add("open_files_low");
test("the limit of open files: open_files_low", () => {
  const home = newHome();
  const out = spawnSync("/bin/sh", ["-c", `ulimit -n 256; exec "$0" "$1" doctor --json`, process.execPath, PROGRAM], {
    env: home.env,
    encoding: "utf8",
  }).stdout;
  const answer = JSON.parse(out) as Diagnosis;
  expect(of(answer, "open_files_low")).toMatchObject([{ message: expect.stringContaining("may open 256 files") }]);
});

describe("the self-test", () => {
  test("starts a run through the daemon and follows it to its end", async () => {
    const home = newHome();
    await home.json(["up"]);
    const answer = await diagnose(home, ["--self-test"]);
    expect(answer.selfTest).toMatchObject({
      ok: true,
      message: expect.stringMatching(/^started a 1-second run under the daemon: ok/),
    });
    expect(await home.json(["show", answer.selfTest?.runId ?? ""])).toMatchObject({ status: "succeeded" });
  });

  scene("that cannot go", ["self_test_failed"], async (look) => {
    const home = newHome("limits:\n  doctorCheckMs: 3s\ncaps:\n  commands: 0\n");
    const answer = await look(home, ["--self-test"]);
    expect(answer.selfTest).toMatchObject({ ok: false });
    const [failed] = of(answer, "self_test_failed");
    expect(failed).toMatchObject({ level: "problem", message: expect.stringContaining("it is still queued") });
    expect(await home.json(["show", failed?.subject ?? ""])).toMatchObject({ status: "cancelled" });
  });
});

/** That of util-linux: `-e` hands the status on, `-c` takes a command. */
const hasScript = /util-linux/.test(spawnSync("script", ["--version"], { encoding: "utf8" }).stdout ?? "");
if (!hasScript) console.warn("skipped: there is no `script` of util-linux");

test.runIf(hasScript)("on a terminal it lists what it would do and asks; only a yes does it", async () => {
  const home = newHome();
  const logs = join(home.folder, "home/logs");
  mkdirSync(logs);
  const answered = async (typed: string): Promise<string> => {
    const line = `exec '${process.execPath}' '${PROGRAM}' doctor --fix`;
    const child = spawn("script", ["-qec", line, "/dev/null"], { env: { ...home.env, TERM: "xterm", NO_COLOR: "1" } });
    let screen = "";
    child.stdout.setEncoding("utf8").on("data", (piece: string) => (screen += piece));
    const ended = new Promise((done) => child.once("close", done));
    try {
      await until(() => screen.includes("[y/N]") || child.exitCode !== null, "the question is on the screen");
      child.stdin.write(typed);
      await ended;
      return screen;
    } finally {
      await endChild(child);
    }
  };
  const mode = () => statSync(logs).mode & 0o777;
  chmodSync(logs, 0o755);
  // A line, a no, and the end of the input are no yes.
  for (const typed of ["\n", "no\n", "\u0004"]) {
    expect(await answered(typed)).toContain(`chmod 700 ${logs}`);
    expect([typed, mode()]).toEqual([typed, 0o755]);
  }
  expect(await answered("y\n")).toMatch(/done +chmod 700/);
  expect(mode()).toBe(0o700);
});

/** Whether a file system of our own can be mounted: as root, or in a user namespace. */
const unshare = (() => {
  const flags = process.getuid?.() === 0 ? ["-m"] : ["-r", "-m"];
  const folder = mkdtempSync(join(tmpdir(), "drover-mount-"));
  try {
    return spawnSync("unshare", [...flags, "mount", "-t", "tmpfs", "tmpfs", folder]).status === 0 ? flags : null;
  } finally {
    rmSync(folder, { recursive: true });
  }
})();
if (unshare === null)
  console.warn("skipped: no file system can be mounted here, so none is full of files or read-only");
const FULL = ["file_unwritable", "inodes_short"] as const;
for (const code of FULL) covered.add(code);

test.runIf(unshare !== null)(`a file system of its own: ${FULL.join(", ")}`, () => {
  const folder = mkdtempSync(join(tmpdir(), "drover-mount-"));
  try {
    const script = `mount -t tmpfs -o size=64m,nr_inodes=500 tmpfs "$1" && "$2" "$3" loop add kept --every 1h -- true >/dev/null
      { mount -o remount,ro "$1" 2>/dev/null || mount -o remount,bind,ro "$1"; } && exec "$2" "$3" doctor --json`;
    const { stdout, stderr } = spawnSync(
      "unshare",
      [...(unshare ?? []), "sh", "-c", script, "sh", folder, process.execPath, PROGRAM],
      { env: { PATH: process.env["PATH"], HOME: folder, DROVER_HOME: folder, TZ: "UTC" }, encoding: "utf8" },
    );
    expect(stdout, stderr).not.toBe("");
    const codes = codesOf(JSON.parse(stdout) as Diagnosis);
    for (const code of FULL) expect([code, codes.has(code)]).toEqual([code, true]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("every code has a test that plants it, and no page is missing one", () => {
  const codes = Object.keys(findingKinds) as FindingCode[];
  const reference = readFileSync(join(import.meta.dirname, "../../docs/reference/findings.md"), "utf8");
  for (const code of codes) {
    const file = ELSEWHERE[code] ?? (findingKinds[code].check === "service" ? OF_SERVICE : null);
    const isPlanted =
      covered.has(code) ||
      (file !== null && readFileSync(join(import.meta.dirname, "../..", file), "utf8").includes(code));
    expect([code, isPlanted, reference.includes(`\`${code}\``)]).toEqual([code, true, true]);
  }
});
