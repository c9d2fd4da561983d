/** Bad input and faults of the store: a clear error with code, place and hint, the right status, and nothing half-stored. */
import { execFileSync, spawnSync } from "node:child_process";
import {
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";
import { type Home, openHome } from "./drover.ts";

let home: Home;
beforeAll(async () => {
  home = openHome();
  await home.json(["loop", "add", "kept", "--every", "1h", "--", "true"]);
});
afterAll(() => home.close());

const add = ["loop", "add", "x"];
const command = ["--", "true"];

test.each<[what: string, status: number, code: string, path: string, args: readonly string[]]>([
  ["an unknown flag", 2, "unknown_flag", "--tiemout", [...add, "--every", "1h", "--tiemout", "5m", ...command]],
  ["a missing value", 2, "missing_value", "--every", [...add, "--every", ...command]],
  ["a contradiction", 2, "bad_schedule", "", [...add, "--every", "1h", "--cron", "* * * * *", ...command]],
  ["another contradiction", 2, "contradiction", "--shell", [...add, "--every", "1h", "--shell", "true", ...command]],
  ["a flag given twice", 2, "given_twice", "--every", [...add, "--every", "1h", "--every", "2h", ...command]],
  ["an impossible date", 2, "bad_time", "--at", [...add, "--at", "2027-02-30", ...command]],
  [
    "an impossible end",
    2,
    "bad_time",
    "--expires-at",
    [...add, "--every", "1h", "--expires-at", "2027-13-01", ...command],
  ],
  [
    "a zone that does not exist",
    2,
    "unknown_zone",
    "--tz",
    [...add, "--cron", "* * * * *", "--tz", "Mars/Olympus", ...command],
  ],
  ["an expression that is none", 2, "bad_cron", "--cron", [...add, "--cron", "every day", ...command]],
  ["a date that never comes", 2, "bad_cron", "--cron", [...add, "--cron", "0 0 30 2 *", ...command]],
  [
    "a working directory that is not there",
    3,
    "cwd_not_found",
    "--cwd",
    [...add, "--every", "1h", "--cwd", "/no/such", ...command],
  ],
  ["a binary that is not found", 3, "command_not_found", "command", [...add, "--every", "1h", "--", "no-such-binary"]],
  ["a binary that is a folder", 3, "command_not_found", "command", [...add, "--every", "1h", "--", "/tmp"]],
  [
    "a working directory that is a file",
    3,
    "cwd_not_found",
    "--cwd",
    [...add, "--every", "1h", "--cwd", "/etc/passwd", ...command],
  ],
  [
    "a file that may not be executed",
    3,
    "command_not_found",
    "command",
    [...add, "--every", "1h", "--", "/etc/passwd"],
  ],
  ["a name that is too long", 2, "bad_name", "name", ["loop", "add", "n".repeat(101), "--every", "1h", ...command]],
  ["a command that is empty", 2, "bad_input", "command", [...add, "--every", "1h", "--", ""]],
  ["a hook that is empty", 2, "bad_input", "--on-finish", [...add, "--every", "1h", "--on-finish", "", ...command]],
  [
    "a variable given twice",
    2,
    "given_twice",
    "--env",
    [...add, "--every", "1h", "--env", "A=1", "--env", "A=2", ...command],
  ],
  ["a jitter of the whole period", 2, "bad_input", "--jitter", [...add, "--every", "1h", "--jitter", "1h", ...command]],
  [
    "a number beyond all numbers",
    2,
    "out_of_range",
    "--catch-up-limit",
    [...add, "--every", "1h", "--catch-up-limit", "99999999999999999999", ...command],
  ],
  ["too little of an id", 3, "loop_not_found", "loop", ["loop", "show", "zzz"]],
  ["a name with control characters", 2, "bad_name", "name", ["loop", "add", "a\u0007b", "--every", "1h", ...command]],
  [
    "a name that looks like an id",
    2,
    "bad_name",
    "name",
    ["loop", "add", "loop_00000000000000000000000000", "--every", "1h", ...command],
  ],
  ["a name that is taken", 4, "name_taken", "", ["loop", "add", "kept", "--every", "1h", ...command]],
  [
    "a variable that is ours",
    2,
    "bad_input",
    "--env DROVER_RUN_ID",
    [...add, "--every", "1h", "--env", "DROVER_RUN_ID=x", ...command],
  ],
  [
    "a secret from nowhere",
    2,
    "bad_input",
    "--secret KEY",
    [...add, "--every", "1h", "--secret", "KEY=sk-1", ...command],
  ],
  [
    "an expectation that is none",
    2,
    "bad_input",
    "--expect",
    [...add, "--every", "1h", "--expect", "luck", ...command],
  ],
  [
    "a part that does not exist yet",
    2,
    "not_available",
    "--pool",
    [...add, "--every", "1h", "--pool", "main", ...command],
  ],
  ["a workflow that is no file", 2, "bad_input", "--workflow", [...add, "--every", "1h", "--workflow", "ship"]],
  ["an agent that nobody knows", 2, "bad_choice", "--agent", [...add, "--every", "1h", "--agent", "acme"]],
  ["an agent without a prompt", 2, "missing_prompt", "--prompt", [...add, "--every", "1h", "--agent", "claude"]],
  [
    "a blank prompt",
    2,
    "prompt_blank",
    "--prompt",
    [...add, "--every", "1h", "--agent", "custom", "--agent-command", "/bin/cat", "--prompt", "  "],
  ],
  [
    "a prompt file that is not there",
    3,
    "file_not_found",
    "--prompt-file",
    [...add, "--every", "1h", "--agent", "claude", "--prompt-file", "no-such.md"],
  ],
  [
    "a prompt file that is a folder",
    2,
    "file_unreadable",
    "--prompt-file",
    [...add, "--every", "1h", "--agent", "claude", "--prompt-file", "/"],
  ],
  [
    "an agent that is not installed",
    3,
    "agent_not_found",
    "--agent-command",
    [...add, "--every", "1h", "--agent", "custom", "--agent-command", "no-such-agent", "--prompt", "x"],
  ],
  [
    "an agent and a command",
    2,
    "contradiction",
    "--agent",
    [...add, "--every", "1h", "--agent", "claude", "--prompt", "x", ...command],
  ],
  [
    "everything allowed for no reason",
    2,
    "reason_missing",
    "--reason",
    [...add, "--every", "1h", "--agent", "claude", "--prompt", "x", "--permission", "full"],
  ],
  [
    "an account that is not there",
    3,
    "account_not_found",
    "--account",
    [
      ...[...add, "--every", "1h", "--agent", "custom", "--agent-command", "/bin/cat", "--prompt", "x"],
      ...["--account", "nobody"],
    ],
  ],
  [
    "a worktree where there is no repository",
    2,
    "no_repository",
    "--worktree",
    [...add, "--every", "1h", "--worktree", "required", ...command],
  ],
  ["nothing to run", 2, "missing_target", "command", [...add, "--every", "1h"]],
  ["a command that nobody knows", 2, "unknown_command", "", ["lop", "add"]],
  ["a command of a later version", 2, "not_available", "", ["workflow", "ls"]],
])("%s: %i %s", async (_what, status, code, path, args) => {
  const before = home.dump();
  const error = await home.refused(status, args);
  expect(error.code).toBe(code);
  if (path !== "") expect(error.path).toBe(path);
  expect(error.hint ?? error.message).not.toBe("");
  expect(home.dump()).toBe(before);
  // The same for people: one line, no stack.
  const { out, err } = await home.run(args);
  expect(out).toBe("");
  expect(err.trimEnd().split("\n")).toHaveLength(1);
  expect(err).not.toMatch(/ at .*\.js:\d+/);
  expect(err).not.toMatch(/Too (big|small)|expected string|Invalid input/);
});

test("a misspelt command or flag is told what was meant", async () => {
  expect((await home.refused(2, ["rnus"])).hint).toContain("drover runs");
  expect((await home.refused(2, ["loop", "puase"])).hint).toContain("drover loop pause");
  expect((await home.refused(2, ["runs", "--reason", "exit"])).hint).toBe("Give --class exit.");
  expect((await home.refused(2, ["runs", "--sttaus", "failed"])).hint).toContain("--status");
});

test("a TZ that is no zone does not become UTC", async () => {
  const own = openHome({ env: { TZ: "Mars/Olympus" } });
  try {
    const cron = ["loop", "add", "x", "--cron", "0 3 * * *"];
    const error = await own.refused(2, [...cron, ...command]);
    expect(error).toMatchObject({ code: "unknown_zone", path: "TZ" });
    expect(error.hint).toContain("--tz");
    await own.json([...cron, "--tz", "Europe/Rome", ...command]);
  } finally {
    await own.close();
  }
});

describe("a configuration", () => {
  const inConfig = async (text: string, use: (of: Home) => Promise<void>) => {
    const own = openHome();
    try {
      mkdirSync(join(own.folder, "home"), { recursive: true });
      writeFileSync(join(own.folder, "home/config.yaml"), text);
      await use(own);
    } finally {
      await rm(own);
    }
  };
  /** A broken configuration stops `down` too: there is nothing to stop. */
  const rm = async (own: Home) => {
    rmSync(join(own.folder, "home/config.yaml"), { force: true });
    await own.close();
  };

  test("with faults is refused with the first one's line, and `config check` lists all", () =>
    inConfig("limits:\n  leaseMs: soon\n  minFreeBytes: lots\nstroe: x\ncaps:\n  commands: -1\n", async (own) => {
      const error = await own.refused(2, ["loop", "add", "x", "--every", "1h", "--", "true"]);
      expect(error).toMatchObject({ code: "bad_config", path: join(own.folder, "home/config.yaml:2") });
      const checked = await own.run(["config", "check", "--json"]);
      expect(checked.status).toBe(1);
      expect((JSON.parse(checked.out) as { problems: unknown[] }).problems).toMatchObject([
        { level: "error", line: 2, key: "limits.leaseMs" },
        { level: "error", line: 3, key: "limits.minFreeBytes" },
        { level: "warning", line: 4, key: "stroe" },
        { level: "error", line: 6, key: "caps.commands" },
      ]);
    }));

  test("B-073 that was cut in half is refused, not taken for an empty one", () =>
    inConfig('store: "sqlite:/tmp/x\nlim', async (own) => {
      expect((await own.refused(2, ["loop", "add", "x", "--every", "1h", "--", "true"])).code).toBe("bad_config");
      expect(readFileSync(join(own.folder, "home/config.yaml"), "utf8")).toBe('store: "sqlite:/tmp/x\nlim');
    }));

  test("with an unknown setting works, and says so", () =>
    inConfig("colour: blue\n", async (own) => {
      const { status, err } = await own.run(["runs"]);
      expect(status).toBe(0);
      expect(err).toContain("there is no setting colour");
    }));

  test("that asks for more free space than there is: status measures it itself, daemon or not", () =>
    inConfig("limits:\n  minFreeBytes: 4000TiB\n", async (own) => {
      await own.json(["loop", "add", "x", "--every", "1h", "--", "true"]);
      const { warnings } = await own.json<{ warnings: { code: string; message: string }[] }>(["status"]);
      expect(warnings.find((one) => one.code === "disk")?.message).toMatch(
        /of disk space are free, 4000 TiB are needed/,
      );
    }));

  test("gives each value its source", () =>
    inConfig("limits:\n  minFreeBytes: 2GiB\n  renewMs: 5s\n", async (own) => {
      const { items } = await own.json<{ items: unknown[] }>(["config", "show"], {
        env: { DROVER_STORE: "sqlite:/tmp/other.db" },
      });
      expect(items).toEqual(
        expect.arrayContaining([
          { key: "store", value: "sqlite:/tmp/other.db", text: "sqlite:/tmp/other.db", source: "environment" },
          { key: "limits.minFreeBytes", value: 2_147_483_648, text: "2GiB", source: "file" },
          { key: "limits.renewMs", value: 5_000, text: "5s", source: "file" },
          { key: "limits.watchMs", value: 5_000, text: "5s", source: "default" },
        ]),
      );
    }));
});

describe("a store", () => {
  /** A home with one loop and no daemon. */
  const withStore = async (use: (own: Home, file: string) => Promise<void>) => {
    const own = openHome();
    const file = join(own.folder, "home/drover.db");
    try {
      await own.json(["loop", "add", "kept", "--every", "1h", "--", "true"]);
      await use(own, file);
    } finally {
      rmSync(file, { force: true });
      rmSync(`${file}.made`, { force: true });
      await own.close();
    }
  };
  const more = ["loop", "add", "more", "--every", "1h", "--", "true"];

  test("that is locked: 4 store_busy", () =>
    withStore(async (own, file) => {
      const before = own.dump();
      const other = openSqlite(file, {});
      other.exec("begin immediate");
      try {
        expect(await own.refused(4, more)).toMatchObject({ code: "store_busy", hint: expect.any(String) as string });
      } finally {
        other.exec("rollback");
        other.close();
      }
      expect(own.dump()).toBe(before);
    }));

  test("that is damaged: 5 store_corrupt, nothing overwritten; doctor finds it", () =>
    withStore(async (own, file) => {
      const bytes = readFileSync(file);
      bytes.fill(0x5a, 4_096, 4_096 + 24_000);
      writeFileSync(file, bytes);
      expect((await own.refused(5, ["loop", "ls"])).code).toBe("store_corrupt");
      expect((await own.refused(5, more)).code).toBe("store_corrupt");
      expect((await own.refused(5, ["up"])).code).toBe("store_corrupt");
      const doctor = await own.run(["doctor", "--json"]);
      expect(doctor.status).toBe(1);
      // Said once, where it belongs.
      const { findings } = JSON.parse(doctor.out) as { findings: { code: string | null; level: string }[] };
      expect(findings.filter(({ level }) => level === "problem")).toMatchObject([{ code: "store_damaged" }]);
      expect(readFileSync(file).equals(bytes)).toBe(true);
    }));

  test("that was cut off: 5 store_corrupt", () =>
    withStore(async (own, file) => {
      truncateSync(file, Math.floor(readFileSync(file).length / 2));
      expect((await own.refused(5, more)).code).toBe("store_corrupt");
    }));

  test("B-073 that is empty or gone is no new store: 5", () =>
    withStore(async (own, file) => {
      renameSync(file, `${file}.away`);
      expect((await own.refused(5, more)).code).toBe("store_corrupt");
      expect((await own.refused(5, ["loop", "ls"])).code).toBe("store_corrupt");
      writeFileSync(file, "");
      expect((await own.refused(5, more)).code).toBe("store_corrupt");
      copyFileSync(`${file}.away`, file);
      expect((await own.json<{ items: unknown[] }>(["loop", "ls"])).items).toHaveLength(1);
    }));

  test("that is something else: 5 not_a_store", () =>
    withStore(async (own, file) => {
      rmSync(file);
      rmSync(`${file}.made`);
      writeFileSync(file, "dear diary, ".repeat(1_000));
      expect((await own.refused(5, more)).code).toBe("not_a_store");
      expect(readFileSync(file, "utf8")).toBe("dear diary, ".repeat(1_000));
    }));

  test("of a newer version: 4 newer_schema, and it is left alone", () =>
    withStore(async (own, file) => {
      const other = openSqlite(file, {});
      other.pragma("user_version = 99");
      other.close();
      const before = own.dump();
      expect((await own.refused(4, more)).code).toBe("newer_schema");
      expect((await own.refused(4, ["up"])).code).toBe("newer_schema");
      expect(own.dump()).toBe(before);
    }));

  test("that is unreachable: 5", async () => {
    const error = await home.refused(5, ["runs"], { env: { DROVER_STORE: "postgres://nobody@127.0.0.1:1/none" } });
    expect(error).toMatchObject({ code: "store_unreachable", hint: expect.any(String) as string });
  });

  test("with an address that is none: 2 bad_store_url, and no password is repeated", async () => {
    const error = await home.refused(2, ["runs"], { env: { DROVER_STORE: "mysql://me:hunter2@host/db" } });
    expect(error.code).toBe("bad_store_url");
    expect(JSON.stringify(error)).not.toContain("hunter2");
  });
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

describe.runIf(unshare !== null)("a store on a file system", () => {
  /** Runs shell text in a namespace of its own where `$HOME_FOLDER` is a small file system. */
  const inMount = (size: string, script: string): { status: number | null; out: string } => {
    const folder = mkdtempSync(join(tmpdir(), "drover-mount-"));
    try {
      const out = execFileSync(
        "unshare",
        [...(unshare ?? []), "sh", "-c", `mount -t tmpfs -o size=${size} tmpfs "$HOME_FOLDER" && ${script}`],
        {
          env: {
            PATH: process.env["PATH"],
            HOME: folder,
            TZ: "UTC",
            HOME_FOLDER: folder,
            DROVER_HOME: folder,
            NODE: process.execPath,
            DROVER: join(import.meta.dirname, "../../dist/drover.js"),
          },
          encoding: "utf8",
        },
      );
      return { status: 0, out };
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  };

  test("that is read-only: 5, and doctor says which file", () => {
    const { out } = inMount(
      "16m",
      `"$NODE" "$DROVER" loop add kept --every 1h -- true >/dev/null
       mount -o remount,ro "$HOME_FOLDER" 2>/dev/null || mount -o remount,bind,ro "$HOME_FOLDER" # a plain user may do the latter
       "$NODE" "$DROVER" loop add more --every 1h --json -- true 2>&1; echo "status $?"
       "$NODE" "$DROVER" doctor; echo "doctor $?"`,
    );
    expect(out).toMatch(/problem  folders .*drover\.db cannot be written\n.*read-only/);
    expect(out).toContain("doctor 1");
    expect(out).toMatch(/"code":"(store_read_only|state_unusable)","message":"[^"]*read-only/);
    expect(out).toContain("status 5");
  });

  test("that is full: 5 disk_full, and nothing half-stored; with room again it goes on", () => {
    const { out } = inMount(
      "2m",
      `"$NODE" "$DROVER" loop add kept --every 1h -- true >/dev/null
       cat /dev/zero >"$HOME_FOLDER/fill" 2>/dev/null
       n=0; while [ $n -lt 40 ]; do "$NODE" "$DROVER" loop add "more$n" --every 1h --json -- true >"/dev/null" 2>&1 || break; n=$((n+1)); done
       "$NODE" "$DROVER" loop add last --every 1h --json -- true 2>&1; echo "status $?"
       rm "$HOME_FOLDER/fill"
       "$NODE" "$DROVER" loop ls | grep -c last; "$NODE" "$DROVER" loop add last --every 1h -- true >/dev/null; echo "status $?"`,
    );
    expect(out).toContain('"code":"disk_full"');
    expect(out).toMatch(/status 5\n0\nstatus 0/);
  });
});
