import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Arena } from "../../test/fixtures/hostile/arena.ts";
import { openArena, sh, table, until } from "../../test/fixtures/hostile/arena.ts";
import { isAlive } from "./processes.ts";
import { RESIDENT_TITLE } from "./shim.ts";
import type { SpawnerOptions } from "./spawner.ts";

/** Processes that this one made, with their command lines: the resident is among them. */
function residents(): { pid: number; words: string }[] {
  const own = table.snapshot().byParent.get(process.pid) ?? [];
  return own.filter(isAlive).flatMap(({ pid }) => {
    const words = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").trim();
    return words.endsWith(" -s") || words === RESIDENT_TITLE || words.includes("node:child_process")
      ? [{ pid, words }]
      : [];
  });
}

/** What every way to start attempts has to hold. */
function spawnerContract(name: string, options: Pick<SpawnerOptions, "backend" | "shell" | "processes">): void {
  // What fills the pipe to a resident and more; once is enough for that.
  const many = name === "sh and setsid" ? 400 : 40;
  describe(`spawner by ${name}`, () => {
    let arena: Arena;
    beforeEach(() => {
      arena = openArena(options);
    });
    afterEach(async () => {
      await arena.close();
    });

    test("input, outputs, exit status, instants and bell of an ordinary command", async () => {
      const rung: string[] = [];
      arena.spawner.onBell((folder) => rung.push(folder));
      const before = Date.now();
      await arena.start("att_plain.1", sh("cat; echo problem >&2; exit 7"), {}, { input: "hello" });
      const end = await arena.ended("att_plain.1");
      expect(end).toMatchObject({ kind: "ended", exit: 7 });
      expect(end).not.toHaveProperty("fault");
      expect(end.startedAt).toBeGreaterThanOrEqual(before - 1000);
      expect(end.endedAt).toBeGreaterThanOrEqual(end.startedAt);
      if (options.processes === "ps") expect(end.durationMs).toBeNull();
      else expect(end.durationMs).toBeGreaterThanOrEqual(0);
      expect(arena.text("att_plain.1", "out")).toBe("hello");
      expect(arena.text("att_plain.1", "err")).toBe("problem\n");
      expect(arena.spawner.measure("att_plain.1")).toMatchObject({ stdoutBytes: 5, stderrBytes: 8 });
      await until("the bell", () => rung.some((folder) => folder.startsWith("att_plain")));
    });

    test("folders are 0700 and files 0600, but the command keeps the daemon's umask", async () => {
      await arena.start("att_modes.1", sh("umask; echo x >made"));
      await arena.ended("att_modes.1");
      expect(Number.parseInt(arena.text("att_modes.1", "out"), 8)).toBe(process.umask());
      expect(statSync(join(arena.cwd, "made")).mode & 0o777).toBe(0o666 & ~process.umask());
      expect(statSync(arena.path("att_modes.1")).mode & 0o777).toBe(0o700);
      for (const file of readdirSync(arena.path("att_modes.1")))
        expect(statSync(arena.path("att_modes.1", file)).mode & 0o077, file).toBe(0);
    });

    test("any arguments and environment arrive byte for byte", async () => {
      const word = fc
        .oneof(
          fc.string({ unit: "binary", maxLength: 30 }),
          fc.constantFrom(
            "",
            "'",
            "'\\''",
            '"',
            "$(id)",
            "`id`",
            "\\",
            "\n",
            "\u0001",
            "-n",
            "--",
            "*",
            "~",
            "!",
            "\ufffd",
            "\u{1f600}",
            "a\r\nb",
            "}; exit 1; {",
          ),
        )
        .filter((text) => !text.includes("\0"));
      const names = fc
        .stringMatching(/^[A-Za-z_][A-Za-z0-9_]{0,12}$/)
        .filter(
          (each) =>
            !/^(IFS|OPTIND|PWD|OLDPWD|PS[124]|UID|EUID|PPID|SHLVL|RANDOM|LINENO|GROUPS|SECONDS|DIRSTACK|_|BASH.*|PATH|HOME|DROVER.*|LC_.*|LANG)$/.test(
              each,
            ),
        );
      let number = 0;
      await fc.assert(
        fc.asyncProperty(
          fc.array(word, { maxLength: 12 }),
          fc.dictionary(names, word, { maxKeys: 8 }),
          async (words, env) => {
            const folder = `att_fuzz.${++number}`;
            await arena.start(folder, ["/usr/bin/printf", "%s\\0", "first", ...words], { env });
            await arena.start(`att_env.${number}`, ["/usr/bin/env", "-0"], { env });
            await arena.ended(folder);
            await arena.ended(`att_env.${number}`);
            expect(arena.text(folder, "out").split("\0").slice(0, -1)).toEqual(["first", ...words]);
            const got = new Map(
              arena
                .text(`att_env.${number}`, "out")
                .split("\0")
                .map((line) => [line.slice(0, line.indexOf("=")), line.slice(line.indexOf("=") + 1)]),
            );
            for (const [key, value] of Object.entries(env)) expect(got.get(key), key).toBe(value);
          },
        ),
        { numRuns: many === 400 ? 25 : 5 },
      );
    });

    test("B-037 prompts of any size arrive by standard input", async () => {
      for (const bytes of [131_071, 131_072, 200_000, 3_000_000]) {
        const input = Buffer.alloc(bytes, "prompt ");
        await arena.start(`att_prompt.${bytes}`, ["/usr/bin/sha256sum"], {}, { input });
        await arena.ended(`att_prompt.${bytes}`);
        expect(arena.text(`att_prompt.${bytes}`, "out")).toContain(createHash("sha256").update(input).digest("hex"));
      }
    });

    test("B-028 a command that ends before it has read its prompt is that attempt's affair", async () => {
      const input = Buffer.alloc(1_000_000, "x");
      for (let i = 1; i <= 20; i++) await arena.start(`att_gone.${i}`, ["true"], {}, { input });
      for (let i = 1; i <= 20; i++) expect(await arena.ended(`att_gone.${i}`)).toMatchObject({ exit: 0 });
    });

    test("an attempt ignores and blocks no signal, and has no descriptor but three", async () => {
      await arena.start(
        "att_signals.1",
        sh("grep -E '^Sig(Ign|Blk)' /proc/self/status; ls /proc/self/fd | tr '\\n' ' '"),
      );
      await arena.ended("att_signals.1");
      // The fourth is the folder that ls lists.
      expect(arena.text("att_signals.1", "out")).toMatch(/SigBlk:\s+0+\nSigIgn:\s+0+\n0 1 2 3 $/);
    });

    test("B-123 a secret is in no command line, no file, and not in the resident's environment", async () => {
      const value = "canary-0123456789-secret";
      writeFileSync(join(arena.cwd, "key"), `${value}\n`);
      const seen: string[] = [];
      await arena.spawner.prepare(
        arena.launch("att_canary.1", sh("echo up; sleep 30"), { secrets: { KEY: "file:key" } }),
      );
      await arena.spawner.ask("att_canary.1");
      for (let round = 0; round < 200; round++) {
        for (const pid of readdirSync("/proc").filter((entry) => /^\d+$/.test(entry))) {
          const words = (() => {
            try {
              return readFileSync(`/proc/${pid}/cmdline`, "utf8");
            } catch {
              return ""; // gone meanwhile
            }
          })();
          if (words.includes(value)) seen.push(words);
        }
        if (round > 5 && arena.spawner.measure("att_canary.1").stdoutBytes > 0) break;
        await new Promise(setImmediate);
      }
      expect(seen).toEqual([]);
      for (const { pid } of residents()) expect(readFileSync(`/proc/${pid}/environ`, "utf8")).not.toContain("canary");
      const found = spawnSync(
        "/bin/grep",
        ["-rlaE", `${value}|${Buffer.from(value).toString("base64").slice(0, 16)}`, arena.runsFolder],
        { encoding: "utf8" },
      );
      expect({ status: found.status, files: found.stdout }).toEqual({ status: 1, files: "" });
      await arena.end("att_canary.1", 0);
    });

    describe("commands that cannot run", () => {
      const faults: readonly (readonly [string, readonly [string, ...string[]], number, string])[] = [
        ["not found", ["no-such-command-here"], 127, "nocmd"],
        ["not found at its path", ["/no/such/command"], 127, "nocmd"],
        ["not executable", ["./plain"], 126, "noexec"],
        ["a folder", ["./folder"], 126, "noexec"],
      ];
      test.each(faults)("%s", async (_what, argv, exit, fault) => {
        writeFileSync(join(arena.cwd, "plain"), "x");
        mkdirSync(join(arena.cwd, "folder"));
        await arena.start("att_fault.1", argv);
        expect(await arena.ended("att_fault.1")).toMatchObject({ exit, fault });
      });

      test("a missing interpreter ends with 126 or 127", async () => {
        writeFileSync(join(arena.cwd, "script"), "#!/no/such/interpreter\n", { mode: 0o755 });
        await arena.start("att_interpreter.1", ["./script"]);
        const end = await arena.ended("att_interpreter.1");
        expect([126, 127]).toContain(end.exit);
        // dash tells that it was exec that failed; bash leaves 126 and 127 ambiguous there.
        if (realpathSync(options.shell ?? "/bin/sh").endsWith("dash")) expect(end.fault).toBe("noexec");
      });

      test("a missing or closed working directory", async () => {
        await arena.start("att_nocwd.1", ["true"], { cwd: join(arena.cwd, "missing") });
        expect(await arena.ended("att_nocwd.1")).toMatchObject({ exit: 125, fault: "nocwd" });
        writeFileSync(join(arena.cwd, "file"), "");
        await arena.start("att_nocwd.2", ["true"], { cwd: join(arena.cwd, "file") });
        expect(await arena.ended("att_nocwd.2")).toMatchObject({ fault: "nocwd" });
      });

      test("126 and 127 of the command itself are its own", async () => {
        for (const exit of [126, 127, 125]) {
          await arena.start(`att_own.${exit}`, sh(`exit ${exit}`));
          const end = await arena.ended(`att_own.${exit}`);
          expect(end.exit).toBe(exit);
          expect(end).not.toHaveProperty("fault");
        }
      });

      test("a missing standard input starts nothing", async () => {
        await arena.spawner.prepare(arena.launch("att_nostdin.1", sh("echo ran"), {}, { input: "x" }));
        rmSync(arena.path("att_nostdin.1", "stdin"));
        await arena.spawner.ask("att_nostdin.1");
        const end = await arena.ended("att_nostdin.1");
        expect(end.exit).not.toBe(0);
        expect(existsSync(arena.path("att_nostdin.1", "out")) ? arena.text("att_nostdin.1", "out") : "").toBe("");
      });
    });

    test("death by a signal is 128 and its number", async () => {
      for (const [signal, number] of [
        ["KILL", 9],
        ["TERM", 15],
        ["SEGV", 11],
      ] as const) {
        await arena.start(`att_signal.${number}`, sh(`kill -${signal} $$`));
        expect(await arena.ended(`att_signal.${number}`)).toMatchObject({ exit: 128 + number });
      }
    });

    test("a storm of signals to the whole group leaves exactly one record", async () => {
      await arena.start(
        "att_storm.1",
        sh("trap '' TERM INT HUP; echo up; i=0; while [ $i -lt 40 ]; do i=$((i+1)); sleep 0.01; done; exit 5"),
      );
      const live = await arena.printed("att_storm.1");
      const group = live.kind === "live" ? (table.read(live.pid)?.group ?? 0) : 0;
      expect(group).toBeGreaterThan(1);
      for (let i = 0; i < 15; i++)
        for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) process.kill(-group, signal);
      expect(await arena.ended("att_storm.1")).toMatchObject({ exit: 5 });
      expect(arena.text("att_storm.1", "run").match(/^exit /gm)).toHaveLength(1);
    });

    test("a second shim on the same folder refuses and changes nothing", async () => {
      await arena.start("att_twice.1", sh("echo once >>../twice; exit 3"));
      await arena.ended("att_twice.1");
      const files = () => [arena.text("att_twice.1", "id"), arena.text("att_twice.1", "run").replace(/^left.*\n/m, "")];
      const before = files();
      const shim = readdirSync(arena.runsFolder).find((each) => each.startsWith("shim-")) ?? "";
      const second = spawnSync(
        options.shell ?? "/bin/sh",
        [
          join(arena.runsFolder, shim),
          arena.path("att_twice.1"),
          arena.cwd,
          "/dev/null",
          "0022",
          "-",
          "-",
          "files",
          "/bin/sh",
          "-c",
          "echo twice >>../twice",
        ],
        { encoding: "utf8" },
      );
      expect(second.status).not.toBe(0);
      expect(files()).toEqual(before);
      expect(readFileSync(join(arena.cwd, "../twice"), "utf8")).toBe("once\n");
    });

    test("a shim or a tombstone's text that somebody removed is written again", async () => {
      for (const name of readdirSync(arena.runsFolder)) if (name !== "bells") rmSync(join(arena.runsFolder, name));
      await arena.spawner.prepare(arena.launch("att_again.1", ["true"]));
      rmSync(join(arena.runsFolder, "void"));
      expect(await arena.judge("att_again.1", true)).toMatchObject({ kind: "never_started" });
      await arena.start("att_again.2", ["true"]);
      expect(await arena.ended("att_again.2")).toMatchObject({ exit: 0 });
    });

    test("a planted tombstone wins over a shim that comes later", async () => {
      await arena.spawner.prepare(arena.launch("att_late.1", sh("echo ran")));
      expect(await arena.judge("att_late.1")).toEqual({ kind: "asked" });
      expect(await arena.judge("att_late.1", true)).toMatchObject({ kind: "never_started" });
      await expect(arena.spawner.ask("att_late.1")).rejects.toThrow();
      expect(await arena.judge("att_late.1")).toMatchObject({ kind: "never_started" });
    });

    test("what is asked of a stopped resident never runs once its tombstone stands; the resident is replaced", async () => {
      await arena.close();
      arena = openArena({ ...options, stuckMs: 0 });
      let replaced = 0;
      arena.spawner.onReplaced(() => replaced++);
      await arena.start("att_first.1", ["true"]);
      await arena.ended("att_first.1");
      const [resident] = residents().toReversed();
      if (resident === undefined) throw new Error("no resident process found");
      process.kill(resident.pid, "SIGSTOP");
      const folders = Array.from({ length: many }, (_, i) => `att_stuck.${i + 1}`);
      for (const folder of folders) await arena.start(folder, sh(`echo ran >>../ran`));
      process.kill(resident.pid, "SIGSTOP");
      const second = arena.again();
      for (const folder of folders.slice(1)) {
        // All tombstones before the first word of the resident: judged by one that may not replace it.
        const other = await second.judge({ folder, bootId: arena.spawner.bootId, plant: true });
        expect(other).toMatchObject({ kind: "never_started" });
        if (folder === folders[20]) break;
      }
      for (const folder of folders) expect(await arena.judge(folder, true)).toMatchObject({ kind: "never_started" });
      await until("the resident is replaced", () => replaced > 0);
      await arena.start("att_after.1", sh("echo ran >>../after"));
      expect(await arena.ended("att_after.1")).toMatchObject({ exit: 0 });
      expect(existsSync(join(arena.cwd, "../ran"))).toBe(false);
    });

    test(`${many} requests in the pipe, tombstones, then the resident goes on: nothing starts`, async () => {
      await arena.start("att_first.1", ["true"]);
      await arena.ended("att_first.1");
      const [resident] = residents().toReversed();
      if (resident === undefined) throw new Error("no resident process found");
      process.kill(resident.pid, "SIGSTOP");
      const folders = Array.from({ length: many }, (_, i) => `att_pipe.${i + 1}`);
      for (const folder of folders) await arena.start(folder, sh(`echo ran >>../ran`));
      for (const folder of folders) expect(await arena.judge(folder, true)).toMatchObject({ kind: "never_started" });
      process.kill(resident.pid, "SIGCONT");
      await arena.start("att_last.1", ["true"]);
      await arena.ended("att_last.1");
      expect(existsSync(join(arena.cwd, "../ran"))).toBe(false);
    });

    test("a resident killed with requests in flight: live attempts end truly, the others are judged, and the next one starts", async () => {
      let replaced = 0;
      arena.spawner.onReplaced(() => replaced++);
      await arena.start("att_live.1", sh("echo up; while [ ! -e ../stop ]; do sleep 0.02; done; exit 9"));
      await arena.printed("att_live.1");
      for (const { pid } of residents()) process.kill(pid, "SIGKILL");
      await until("the death is heard", () => replaced > 0);
      await arena.start("att_next.1", ["true"]);
      expect(await arena.ended("att_next.1")).toMatchObject({ exit: 0 });
      writeFileSync(join(arena.cwd, "../stop"), "");
      expect(await arena.ended("att_live.1")).toMatchObject({ exit: 9 });
    });

    test("a shim killed with -9: the command is an orphan, its tree can be ended, then it is lost", async () => {
      await arena.start("att_orphan.1", sh("echo up; sleep 60"));
      await arena.printed("att_orphan.1");
      const shim = Number.parseInt(arena.text("att_orphan.1", "id"), 10);
      process.kill(shim, "SIGKILL");
      await until("the shim is gone", () => !isAlive(table.read(shim)));
      // By ps nobody knows which process the command is: it is found by its mark, when the tree is ended.
      expect(await arena.judge("att_orphan.1")).toMatchObject({ kind: options.processes === "ps" ? "lost" : "orphan" });
      expect(await arena.end("att_orphan.1", 100)).toMatchObject({ left: 0 });
      expect(await arena.judge("att_orphan.1")).toEqual({ kind: "lost", why: "exit_unknown" });
      expect(arena.marked("att_orphan.1")).toEqual([]);
    });

    test("a restarted daemon adopts what lives and settles what ended meanwhile", async () => {
      await arena.start("att_adopt.1", sh("echo up; while [ ! -e ../stop ]; do sleep 0.02; done; exit 4"));
      await arena.printed("att_adopt.1");
      await arena.spawner.close();
      const next = arena.again();
      expect(await next.judge({ folder: "att_adopt.1", bootId: next.bootId, plant: true })).toMatchObject({
        kind: "live",
        started: true,
      });
      writeFileSync(join(arena.cwd, "../stop"), "");
      const end = await until("the adopted ends", async () => {
        const judgement = await next.judge({ folder: "att_adopt.1", bootId: next.bootId, plant: true });
        return judgement.kind === "ended" ? judgement : null;
      });
      expect(end).toMatchObject({ exit: 4 });
    });

    test("after a reboot only a record counts", async () => {
      await arena.start("att_boot.1", sh("exit 6"));
      await arena.ended("att_boot.1");
      await arena.spawner.prepare(arena.launch("att_boot.2", ["true"]));
      const judge = (folder: string) =>
        arena.spawner.judge({ folder, bootId: "00000000-0000-0000-0000-000000000000", plant: true });
      expect(await judge("att_boot.1")).toMatchObject({ kind: "ended", exit: 6 });
      expect(await judge("att_boot.2")).toEqual({ kind: "lost", why: "host_restarted" });
      expect(await judge("att_boot.3")).toEqual({ kind: "lost", why: "host_restarted" });
    });

    test("a folder deleted while it runs: live while it lives, then lost", async () => {
      await arena.start("att_folder.1", sh("echo up; while [ ! -e ../stop ]; do sleep 0.02; done"));
      await arena.printed("att_folder.1");
      rmSync(arena.path("att_folder.1"), { recursive: true });
      expect(await arena.judge("att_folder.1", true)).toMatchObject({ kind: "live" });
      expect(arena.spawner.measure("att_folder.1")).toMatchObject({ stdoutBytes: 0, stderrBytes: 0 });
      writeFileSync(join(arena.cwd, "../stop"), "");
      await until("it is lost", async () => {
        const judgement = await arena.judge("att_folder.1", true);
        return judgement.kind === "lost" && judgement.why === "folder_vanished";
      });
      expect(existsSync(arena.path("att_folder.1"))).toBe(false);
    });

    test("a lost file of bells hides no end", async () => {
      rmSync(join(arena.runsFolder, "bells"));
      await arena.start("att_bell.1", sh("exit 2"));
      expect(await arena.ended("att_bell.1")).toMatchObject({ exit: 2 });
    });

    test("output by a pipe: a program that empties its own output loses nothing, and helpers do not hold the end up", async () => {
      await arena.start("att_pipe.1", sh("echo one; echo two >/dev/stdout; echo three >&2; sleep 60 & exit 3"), {
        output: "pipe",
      });
      expect(await arena.ended("att_pipe.1")).toMatchObject({ exit: 3 });
      await until(
        "both outputs are there",
        () =>
          arena.spawner.measure("att_pipe.1").stdoutBytes === 8 &&
          arena.spawner.measure("att_pipe.1").stderrBytes === 6,
      );
      expect(arena.text("att_pipe.1", "out")).toBe("one\ntwo\n");
      expect(await arena.spawner.sweep({ folder: "att_pipe.1", mark: "att_pipe", graceMs: 200 })).toMatchObject({
        killed: 1,
        left: 0,
      });
      expect(arena.marked("att_pipe.1")).toEqual([]);
    });

    test("output by a pipe: a command that cannot run leaves no reader behind", async () => {
      await arena.start("att_nopipe.1", ["no-such-command-here"], { output: "pipe" });
      expect(await arena.ended("att_nopipe.1")).toMatchObject({ fault: "nocmd" });
      await until("nothing is left", () => arena.marked("att_nopipe.1").length === 0);
    });

    test("B-007 what a command leaves behind is swept after its own end, counted, and its status kept", async () => {
      for (let i = 1; i <= 5; i++) {
        await arena.start(`att_sweep${i}.1`, sh("setsid sleep 300 & exit 0"));
        await arena.ended(`att_sweep${i}.1`);
        const report = await arena.spawner.sweep({ folder: `att_sweep${i}.1`, mark: `att_sweep${i}`, graceMs: 500 });
        expect(report).toMatchObject({ killed: 1, left: 0 });
        expect(await arena.judge(`att_sweep${i}.1`)).toMatchObject({ kind: "ended", exit: 0 });
      }
    });

    describe("prepare refuses", () => {
      test.each([
        ["an unset variable", { A: "env:DROVER_TEST_NOT_SET" }, "secret_unresolved"],
        ["a missing file", { A: "file:/no/such/file" }, "secret_unresolved"],
        ["a device", { A: "file:/dev/zero" }, "secret_unresolved"],
        ["a command that fails", { A: "cmd:echo not-to-be-told; exit 3" }, "secret_unresolved"],
        ["a secret that is too short", { A: "cmd:printf abc" }, "env_invalid"],
      ])("a secret from %s, and makes no folder", async (_what, secrets, code) => {
        const launch = arena.launch("att_refused.1", ["true"], { secrets });
        const error: unknown = await arena.spawner.prepare(launch).catch((thrown: unknown) => thrown);
        expect(error).toMatchObject({ code, kind: "invalid", path: "secrets.A" });
        expect(String(error)).not.toContain("not-to-be-told");
        expect(existsSync(arena.path("att_refused.1"))).toBe(false);
      });

      test("a folder that was used, and a name that is no folder's", async () => {
        await arena.spawner.prepare(arena.launch("att_used.1", ["true"]));
        await expect(arena.spawner.prepare(arena.launch("att_used.1", ["true"]))).rejects.toThrow();
        for (const folder of ["../att.1", "att", ".1", "a/b.1"])
          await expect(arena.judge(folder)).rejects.toMatchObject({ code: "folder_invalid" });
      });
    });

    test("a command that prints a secret and never ends is ended at its limit, tree and all", async () => {
      await arena.close();
      arena = openArena({ ...options, secretTimeoutMs: 1000 });
      const launch = arena.launch("att_slow.1", ["true"], {
        secrets: { A: `cmd:sleep 300 & echo $! >${join(arena.cwd, "pid")}; wait` },
      });
      await expect(arena.spawner.prepare(launch)).rejects.toMatchObject({ code: "secret_unresolved" });
      const pid = Number(readFileSync(join(arena.cwd, "pid"), "utf8"));
      await until("the command is gone", () => !isAlive(table.read(pid)));
    });

    test("one trailing newline of a file or command is cut, and the secret is scrubbed from what is served", async () => {
      writeFileSync(join(arena.cwd, "key"), "file-secret-1\n\n");
      symlinkSync("key", join(arena.cwd, "link"));
      await arena.start("att_secret.1", sh('printf "%s|%s|" "$A" "$B"; printf %s "$B" | base64'), {
        secrets: { A: "file:link", B: "cmd:echo cmd-secret-2" },
      });
      await arena.ended("att_secret.1");
      expect(arena.text("att_secret.1", "out")).toMatch(/^file-secret-1\n\|cmd-secret-2\|/);
      rmSync(join(arena.cwd, "key"));
      const { text } = await arena.files.tail("att_secret.1", "stdout", 4096);
      expect(text).toBe(
        "[secret]|[secret]|[secret]==\n".replace(
          "==",
          Buffer.from("cmd-secret-2").toString("base64").match(/=*$/)?.[0] ?? "",
        ),
      );
    });
  });
}

spawnerContract("sh and setsid", { backend: "shell" });
spawnerContract("sh and setsid, bash as the shell", { backend: "shell", shell: "/bin/bash" });
spawnerContract("a lean Node child", { backend: "node" });
spawnerContract("perl", { backend: "perl" });
// What macOS has, tried where /proc is there to compare with.
spawnerContract("perl, processes by ps", { backend: "perl", processes: "ps" });
