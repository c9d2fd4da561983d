/** The daemon as a whole: one of them, started and stopped from anywhere, outlived by what it runs; and who may ask it. */
import { spawn, spawnSync } from "node:child_process";
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
import { request } from "node:http";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome, processesOf, PROGRAM, until } from "./drover.ts";

let home: Home;
beforeEach(() => {
  home = openHome();
});
afterEach(() => home.close());

interface Run {
  readonly id: string;
  readonly status: string;
  readonly depth: number;
  readonly parentRunId: string | null;
  readonly steps: readonly {
    readonly attempts: readonly { readonly adopted: boolean; readonly pid: number | null }[];
  }[];
}
interface Status {
  readonly daemon: { readonly state: string; readonly mode: string | null; readonly pid: number | null };
  readonly runs: { readonly running: number };
  readonly warnings: readonly { readonly code: string }[];
}

const show = (id: string): Promise<Run> => home.json<Run>(["show", id]);
const status = (): Promise<Status> => home.json<Status>(["status"]);
const isRunning = async (id: string): Promise<boolean> => (await show(id)).status === "running";

/** Runs the program from a shell that first does something to what it inherits. */
const within = (shell: string, args: readonly string[], wrapped: readonly string[] = []) =>
  spawnSync(
    wrapped[0] ?? "/bin/sh",
    [
      ...(wrapped.length > 0 ? [...wrapped.slice(1), "/bin/sh"] : []),
      "-c",
      `${shell} && exec "$0" "$@"`,
      process.execPath,
      PROGRAM,
      ...args,
    ],
    { env: home.env, cwd: home.folder, encoding: "utf8" },
  );

describe.skipIf(process.platform !== "linux")("watches of files", () => {
  test("B-077 a tree of thousands of folders costs the daemon no watch and no handle", async () => {
    const shop = join(home.folder, "shop");
    for (let i = 0; i < 2_000; i++) mkdirSync(join(shop, `a${i % 50}/b${i}`), { recursive: true });
    const git = (...args: string[]) =>
      spawnSync("git", ["-c", "user.name=t", "-c", "user.email=t@drover.invalid", ...args], {
        cwd: shop,
        env: home.env,
      });
    git("init", "-q", "-b", "main");
    for (let i = 0; i < 2_000; i++) writeFileSync(join(shop, `a${i % 50}/b${i}/file`), "x");
    git("add", "-A");
    expect(git("commit", "-q", "-m", "first").status).toBe(0);
    expect(within("ulimit -n 128", ["up"])).toMatchObject({ status: 0 });
    const { pid } = (await status()).daemon;
    const go = join(home.folder, "go");
    const { id } = await home.json<Run>([
      ...["run", "--detach", "--cwd", shop, "--worktree", "required", "--", "sh", "-c"],
      `while [ ! -e ${go} ]; do sleep 0.05; done; ls -d a*/b* | wc -l`,
    ]);
    await until(() => isRunning(id), "it runs");
    const watches = readdirSync(`/proc/${pid}/fdinfo`).flatMap(
      (fd) => readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8").match(/^inotify wd:/gm) ?? [],
    );
    expect(watches.length).toBeGreaterThan(0);
    expect(watches.length).toBeLessThanOrEqual(2);
    writeFileSync(go, "");
    await until(async () => (await show(id)).status === "succeeded", "it has ended");
    expect((await home.run(["logs", id])).out.trim()).toBe("2000");
    expect((await status()).daemon.pid).toBe(pid);
  }, 180_000);

  const noWatches = ["unshare", "--user", "--map-root-user"];
  const shell = "echo 0 > /proc/sys/user/max_inotify_instances";
  const canTakeThem = spawnSync("unshare", [...noWatches.slice(1), "/bin/sh", "-c", shell]).status === 0;
  if (!canTakeThem) console.warn("skipped: no watch of files is left: user namespaces cannot be made here");

  test.skipIf(!canTakeThem)(
    "B-078 where none is left the daemon is up all the same, ends are seen, and doctor says it",
    async () => {
      expect(within(shell, ["up"], noWatches)).toMatchObject({ status: 0 });
      const { pid } = (await status()).daemon;
      for (const exit of [0, 3])
        expect((await home.run(["run", "--", "sh", "-c", `sleep 0.3; exit ${exit}`])).status).toBe(exit === 0 ? 0 : 1);
      expect((await status()).daemon.pid).toBe(pid);
      const { findings } = JSON.parse(within(shell, ["doctor", "--json"], noWatches).stdout) as {
        findings: readonly { readonly code: string }[];
      };
      expect(findings.map(({ code }) => code)).toContain("watch_limit_low");
      expect(readFileSync(join(home.folder, "home/logs/daemon.log"), "utf8")).toContain("cannot be watched");
    },
    180_000,
  );
});

describe("up and down", () => {
  test("up starts it, up again says so, down stops it, down again says so", async () => {
    expect(await status()).toMatchObject({ daemon: { state: "down", pid: null }, warnings: [] });
    const up = await home.json<{ started: boolean; pid: number }>(["up"]);
    expect(up.started).toBe(true);
    expect(await home.json(["up"])).toMatchObject({ started: false, pid: up.pid });
    expect(await status()).toMatchObject({ daemon: { state: "up", mode: "full", pid: up.pid } });
    expect(await home.json(["down"])).toEqual({ state: "down", stopped: true, pid: up.pid, left: 0, service: null });
    expect(await home.json(["down"])).toEqual({ state: "down", stopped: false, pid: null, left: 0, service: null });
    expect(processesOf(home.folder)).toEqual([]);
    expect(existsSync(join(home.folder, "home/drover.sock"))).toBe(false);
  });

  test("down refuses what it does not know: 2", async () => {
    expect((await home.refused(2, ["down", "--drain", "soon"])).code).toBe("bad_duration");
    expect((await home.refused(2, ["down", "now"])).code).toBe("too_many_words");
  });

  test("what runs goes on without it, and the next one adopts it with its true end", async () => {
    await home.json(["up"]);
    const { id } = await home.json<Run>([
      "run",
      "--detach",
      "--",
      "sh",
      "-c",
      "while [ ! -e done ]; do sleep 0.05; done; exit 9",
    ]);
    await until(() => isRunning(id), "it runs");
    expect(await home.json(["down"])).toMatchObject({ stopped: true, left: 1 });
    expect(await isRunning(id)).toBe(true);
    await home.json(["up"]);
    await until(async () => (await show(id)).steps[0]?.attempts[0]?.adopted === true, "it is adopted");
    writeFileSync(join(home.folder, "done"), "");
    await until(async () => (await show(id)).status === "failed", "it has ended");
    expect(await show(id)).toMatchObject({ exitCode: 9, error: { class: "exit" } });
  });

  test("an end that came while no daemon was there is recorded by the next one", async () => {
    await home.json(["up"]);
    const { id } = await home.json<Run>(["run", "--detach", "--", "sh", "-c", "sleep 0.6; echo late words; exit 4"]);
    await until(() => isRunning(id), "it runs");
    await home.json(["down"]);
    await until(() => processesOf(home.folder).length === 0, "it has ended");
    await home.json(["up"]);
    await until(async () => (await show(id)).status === "failed", "its end is recorded");
    expect(await show(id)).toMatchObject({ exitCode: 4 });
    expect((await home.run(["logs", id])).out).toBe("late words\n");
  });

  test("--drain waits for what runs, --stop-runs ends it and the next daemon starts it again", async () => {
    await home.json(["up"]);
    const short = await home.json<Run>(["run", "--detach", "--", "sleep", "1"]);
    await until(() => isRunning(short.id), "it runs");
    expect(await home.json(["down", "--drain"])).toMatchObject({ left: 0 });
    expect(await show(short.id)).toMatchObject({ status: "succeeded" });

    await home.json(["up"]);
    const long = await home.json<Run>([
      "run",
      "--detach",
      "--",
      "sh",
      "-c",
      "echo start >>starts; [ $(wc -l <starts) -gt 1 ] || sleep 600",
    ]);
    await until(() => existsSync(join(home.folder, "starts")), "it runs");
    expect(await home.json(["down", "--stop-runs"])).toMatchObject({ left: 0 });
    expect(processesOf(home.folder)).toEqual([]);
    await home.json(["up"]);
    await until(async () => (await show(long.id)).status === "succeeded", "it ran again");
    expect(await show(long.id)).toMatchObject({
      steps: [{ attempts: [{ status: "cancelled", counted: false }, { status: "succeeded" }] }],
    });
  });

  test("up waits for one that is going down, and is up afterwards", async () => {
    const { pid } = await home.json<{ pid: number }>(["up"]);
    const gate = join(home.folder, "gate");
    const { id } = await home.json<Run>(["run", "--detach", "--shell", `until [ -e ${gate} ]; do sleep 0.1; done`]);
    await until(() => isRunning(id), "it runs");
    const down = home.run(["down", "--drain", "40s"]);
    await until(async () => (await status()).daemon.state === "draining", "it is going down");
    const waiting = home.json<{ started: boolean; pid: number }>(["up"]);
    writeFileSync(gate, "");
    const up = await waiting;
    expect(up.started).toBe(true);
    expect(up.pid).not.toBe(pid);
    expect((await down).status).toBe(0);
    expect(await show(id)).toMatchObject({ status: "succeeded" });
  });

  test("TERM takes it down; what runs goes on", async () => {
    const daemon = home.start(["up", "--foreground"]);
    await until(async () => (await status()).daemon.state === "up", "it is up");
    const { id } = await home.json<Run>(["run", "--detach", "--", "sleep", "600"]);
    await until(() => isRunning(id), "it runs");
    daemon.signal("SIGTERM");
    expect((await daemon.ended).status).toBe(0);
    expect((await status()).daemon.state).toBe("down");
    expect(await isRunning(id)).toBe(true);
    // Nobody is there to end it, so a daemon is started that does.
    expect(await home.json(["cancel", id])).toMatchObject({ run: { status: "cancelled" } });
  });

  test("up says why it cannot", async () => {
    mkdirSync(join(home.folder, "home"), { recursive: true });
    writeFileSync(join(home.folder, "home/drover.db"), "no database at all ".repeat(100));
    expect(await home.refused(5, ["up"])).toMatchObject({
      code: "not_a_store",
      path: join(home.folder, "home/drover.db"),
    });
  });

  test("its log is JSON lines, and everything it keeps is for this user alone", async () => {
    await home.json(["up"]);
    await home.json(["run", "--", "true"]);
    await home.json(["down"]);
    const lines = readFileSync(join(home.folder, "home/logs/daemon.log"), "utf8").trim().split("\n");
    const events = lines.map((line) => (JSON.parse(line) as { event: string }).event);
    expect(events).toEqual(expect.arrayContaining(["daemon_up", "daemon_going_down", "daemon_down"]));
    for (const name of ["home", "home/drover.db", "home/logs/daemon.log", "home/run-token.key", "home/runs"])
      expect([name, statSync(join(home.folder, name)).mode & 0o077]).toEqual([name, 0]);
  });
});

describe("without a daemon", () => {
  test("reading makes nothing", async () => {
    for (const args of [["runs"], ["loop", "ls"], ["status"], ["events"], ["limit", "ls"]]) await home.json(args);
    await home.refused(3, ["show", "nobody"]);
    expect(existsSync(join(home.folder, "home"))).toBe(false);
  });

  test("a change is written by the command itself, and says that nothing will fire", async () => {
    const added = await home.json<{ warnings: readonly { code: string; hint: string }[] }>([
      "loop",
      "add",
      "a",
      "--every",
      "1h",
      "--",
      "true",
    ]);
    expect(added.warnings).toMatchObject([{ code: "not_firing", hint: "drover up" }]);
    expect(await home.json(["loop", "pause", "a", "--reason", "not now"])).toMatchObject({
      status: "paused",
      pausedReason: "not now",
    });
    expect((await status()).daemon.state).toBe("down");
  });

  test("twenty changes at once are twenty changes", async () => {
    const names = Array.from({ length: 20 }, (_, nth) => `loop-${nth}`);
    await Promise.all(names.map((name) => home.json(["loop", "add", name, "--every", "1h", "--", "true"])));
    const { items } = await home.json<{ items: readonly { name: string }[] }>(["loop", "ls"]);
    expect(items.map((one) => one.name).toSorted()).toEqual(names.toSorted());
  });

  test("run starts one that fires no schedules and ends when it is idle", async () => {
    await home.json(["loop", "add", "never", "--every", "1s", "--", "touch", "fired"]);
    const { out, status: exit } = await home.run(["run", "--", "echo", "hello"]);
    expect({ out, exit }).toEqual({ out: "hello\n", exit: 0 });
    expect((await status()).daemon).toMatchObject({ state: "up", mode: "until_idle" });
    expect((await status()).warnings).toMatchObject([{ code: "not_firing" }]);
    await until(async () => (await status()).daemon.state === "down", "it has ended");
    expect(existsSync(join(home.folder, "fired"))).toBe(false);
  });

  test("up takes over from one that ends when idle: what runs goes on", async () => {
    const { id } = await home.json<Run>([
      "run",
      "--detach",
      "--",
      "sh",
      "-c",
      "echo once >>once; while [ ! -e done ]; do sleep 0.05; done",
    ]);
    await until(() => isRunning(id), "it runs");
    const before = (await status()).daemon.pid;
    const up = await home.json<{ started: boolean; pid: number }>(["up"]);
    expect(up.started).toBe(true);
    expect(up.pid).not.toBe(before);
    expect((await status()).daemon).toMatchObject({ mode: "full", pid: up.pid });
    writeFileSync(join(home.folder, "done"), "");
    await until(async () => (await show(id)).status === "succeeded", "it has ended");
    expect(readFileSync(join(home.folder, "once"), "utf8")).toBe("once\n");
  });
});

describe("one daemon", () => {
  test("B-055 of ten started at once one is up, the others say so", async () => {
    const all = await Promise.all(
      Array.from({ length: 10 }, () => home.json<{ pid: number; started: boolean }>(["up"])),
    );
    expect(new Set(all.map((one) => one.pid)).size).toBe(1);
    expect(all.filter((one) => one.started)).toHaveLength(1);
    await until(() => processesOf(home.folder).length <= 2, "only the daemon and its spawner are left");
  });

  test("B-056 whatever the way it is started: by another path, a link, another folder; 4 names the owner", async () => {
    const { pid } = await home.json<{ pid: number }>(["up"]);
    const error = await home.refused(4, ["up", "--foreground"]);
    expect(error).toMatchObject({ code: "already_running" });
    expect(error.message).toContain(String(pid));
    const link = join(home.folder, "drover-link");
    symlinkSync(join(import.meta.dirname, "../../dist/drover.js"), link);
    const child = spawn(process.execPath, [link, "up", "--foreground"], { env: home.env, cwd: "/", stdio: "ignore" });
    expect(await new Promise((done) => child.once("exit", done))).toBe(4);
    // A link to the folder is the same folder.
    const other = join(home.folder, "other-way");
    symlinkSync(join(home.folder, "home"), other);
    expect((await home.refused(4, ["up", "--foreground"], { env: { DROVER_HOME: other } })).code).toBe(
      "already_running",
    );
  });

  test("two state folders with one store are one daemon", async () => {
    const store = `sqlite:${join(home.folder, "shared.db")}`;
    await home.json(["up"], { env: { DROVER_STORE: store } });
    const other = { DROVER_STORE: store, DROVER_HOME: join(home.folder, "second") };
    expect((await home.refused(4, ["up", "--foreground"], { env: other })).code).toBe("already_running");
    await home.json(["down"]);
  });

  test("B-058 a pid file of somebody else stops nobody, and nobody is harmed", async () => {
    mkdirSync(join(home.folder, "home"), { recursive: true, mode: 0o700 });
    const sleeper = spawn("sleep", ["600"], { stdio: "ignore" });
    try {
      writeFileSync(join(home.folder, "home/daemon.lock.pid"), `${sleeper.pid}\n`);
      expect((await home.json<{ pid: number }>(["up"])).pid).not.toBe(sleeper.pid);
      await home.json(["down", "--stop-runs"]);
      expect(sleeper.exitCode).toBeNull();
      expect(sleeper.signalCode).toBeNull();
    } finally {
      sleeper.kill("SIGKILL");
    }
  });

  test("B-058 a socket that nobody listens on does not block", async () => {
    await home.json(["up"]);
    const pid = (await status()).daemon.pid ?? 0;
    process.kill(pid, "SIGKILL");
    await until(async () => (await status()).daemon.state === "down", "it is gone");
    expect(existsSync(join(home.folder, "home/drover.sock"))).toBe(true);
    expect((await home.json<{ started: boolean }>(["up"])).started).toBe(true);
  });

  test("a socket that somebody else took is not the daemon: the lock decides", async () => {
    mkdirSync(join(home.folder, "home"), { recursive: true, mode: 0o700 });
    const path = join(home.folder, "home/drover.sock");
    const taken = spawn(process.execPath, [
      "-e",
      `require("node:net").createServer((c) => c.destroy()).listen(process.argv[1])`,
      path,
    ]);
    try {
      await until(() => existsSync(path), "it listens");
      expect((await home.json<{ started: boolean }>(["up"])).started).toBe(true);
    } finally {
      taken.kill("SIGKILL");
    }
  });

  test("a path that is too long for a socket is shortened, into a folder for this user alone", async () => {
    const deep = join(home.folder, "d".repeat(120));
    const places = await home.json<{ socket: string }>(["config", "path"], { env: { DROVER_HOME: deep } });
    expect(Buffer.byteLength(places.socket)).toBeLessThan(104);
    await home.json(["up"], { env: { DROVER_HOME: deep } });
    expect(statSync(dirname(places.socket)).mode & 0o777).toBe(0o700);
    await home.json(["down"], { env: { DROVER_HOME: deep } });
  });
});

describe("who asks", () => {
  interface Reply {
    readonly status: number;
    readonly body: string;
  }
  const ask = (path: string, headers: Readonly<Record<string, string>>, method = "POST", body = "{}"): Promise<Reply> =>
    new Promise((done, fail) => {
      const outgoing = request(
        { socketPath: join(home.folder, "home/drover.sock"), path, method, headers },
        (incoming) => {
          let text = "";
          incoming.setEncoding("utf8").on("data", (piece: string) => (text += piece));
          incoming.on("end", () => done({ status: incoming.statusCode ?? 0, body: text }));
        },
      );
      outgoing.on("error", fail);
      outgoing.end(method === "GET" ? undefined : body);
    });
  const json = { host: "drover", "content-type": "application/json" };
  const codeOf = (reply: Reply): unknown => (JSON.parse(reply.body) as { error: { code: string } }).error.code;

  test("B-124 no page of a browser: Host, Origin, GET", async () => {
    await home.json(["up"]);
    for (const path of ["/api/v1/health", "/api/v1/ops/runs", "/api/v1/ops/loop.add", "/"]) {
      expect(await ask(path, { ...json, host: "evil.example" })).toMatchObject({ status: 403 });
      expect(await ask(path, { ...json, origin: "https://evil.example" })).toMatchObject({ status: 403 });
      expect(await ask(path, { ...json, "sec-fetch-site": "cross-site" })).toMatchObject({ status: 403 });
    }
    expect((await ask("/api/v1/ops/runs", json, "GET")).status).toBe(405);
    expect(await ask("/api/v1/health", json, "GET")).toMatchObject({ status: 200 });
    expect(statSync(join(home.folder, "home/drover.sock")).mode & 0o777).toBe(0o600);
  });

  test("errors are documents: 400, 404, 409, 413; never a stack trace", async () => {
    await home.json(["up"]);
    expect(codeOf(await ask("/api/v1/ops/runs", { host: "drover" }))).toBe("not_json");
    expect(codeOf(await ask("/api/v1/ops/runs", json, "POST", "{"))).toBe("not_json");
    expect(codeOf(await ask("/api/v1/ops/runs", json, "POST", "[]"))).toBe("bad_input");
    expect(codeOf(await ask("/api/v1/ops/runs", json, "POST", '{"colour":1}'))).toBe("unknown_key");
    expect(codeOf(await ask("/api/v1/ops/runs", json, "POST", '{"limit":"many"}'))).toBe("bad_input");
    expect(await ask("/api/v1/ops/none", json)).toMatchObject({ status: 404 });
    expect(await ask("/api/v1/ops/up", json)).toMatchObject({ status: 404 });
    expect(await ask("/api/v1/ops/show", json, "POST", '{"run":"nobody"}')).toMatchObject({ status: 404 });
    expect(await ask("/api/v1/ops/%ff", json)).toMatchObject({ status: 404 });
    expect(
      (await ask("/api/v1/ops/runs", { ...json, "content-length": String(64 * 1024 * 1024) }, "POST", " ")).status,
    ).toBe(413);
    expect(await ask("/api/v1/ops/runs", json)).toMatchObject({ status: 200 });
  });

  test("a command of another minor version is told to restart: 409", async () => {
    await home.json(["up"]);
    const reply = await ask("/api/v1/ops/runs", { ...json, "drover-version": "99.1.0" });
    expect(reply.status).toBe(409);
    expect(codeOf(reply)).toBe("restart_needed");
  });

  test("a whole command of another minor version says restart needed, and still reads", async () => {
    const root = join(import.meta.dirname, "../..");
    mkdirSync(join(root, ".cache"), { recursive: true });
    const other = mkdtempSync(join(root, ".cache/e2e-"));
    try {
      cpSync(join(root, "dist"), other, { recursive: true });
      const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
      for (const name of readdirSync(other).filter((file) => /\.m?js$/.test(file)))
        writeFileSync(
          join(other, name),
          readFileSync(join(other, name), "utf8").replaceAll(`"${version}"`, '"99.1.0"'),
        );
      await home.json(["up"]);
      const program = join(other, "drover.js");
      expect((await home.run(["loop", "add", "x", "--every", "1h", "--json", "--", "true"], { program })).status).toBe(
        4,
      );
      expect((await home.run(["run", "--json", "--", "true"], { program })).err).toContain('"code":"restart_needed"');
      expect((await home.run(["loop", "ls", "--json"], { program })).out).toBe('{"items":[],"next":null}\n');
      expect((await home.run(["status", "--json"], { program })).out).toContain('"code":"restart_needed"');
      expect((await home.run(["down", "--json"], { program })).status).toBe(0);
    } finally {
      rmSync(other, { recursive: true });
    }
  });

  test("B-013 runs started by runs are counted: depth and descendants", async () => {
    mkdirSync(join(home.folder, "home"), { recursive: true, mode: 0o700 });
    writeFileSync(join(home.folder, "home/config.yaml"), "limits:\n  maxDepth: 2\n  maxDescendants: 3\n");
    await home.json(["up"]);
    const drover = `'${process.execPath}' '${join(import.meta.dirname, "../../dist/drover.js")}'`;
    const nest = join(home.folder, "nest.sh");
    // Each run starts another of itself, and says what became of that.
    writeFileSync(
      nest,
      `#!/bin/sh\n${drover} run --wait-limit 30s -- "$0" >>"${home.folder}/said" 2>&1; echo "depth $DROVER_DEPTH: $?" >>"${home.folder}/said"\n`,
    );
    chmodSync(nest, 0o755);
    const top = await home.json<Run>(["run", "--", nest]);
    const said = readFileSync(join(home.folder, "said"), "utf8");
    expect(said).toContain("runs started by runs nest 2 deep at most");
    expect(said).toContain("depth 2: 4");
    const { items } = await home.json<{ items: readonly Run[] }>(["runs"]);
    expect(items.map((run) => run.depth).toSorted()).toEqual([0, 1, 2]);
    expect(items.filter((run) => run.parentRunId === top.id)).toHaveLength(1);

    // Four children of one run: three are.
    const many = join(home.folder, "many.sh");
    writeFileSync(
      many,
      `#!/bin/sh\nfor n in 1 2 3 4; do ${drover} run --wait-limit 30s -- true; echo "child $n: $?"; done\n`,
    );
    chmodSync(many, 0o755);
    const { out } = await home.run(["run", "--", many]);
    expect(out).toBe("child 1: 0\nchild 2: 0\nchild 3: 0\nchild 4: 4\n");
  });

  test("B-014 the depth is the token's, whatever the child says or forgets", async () => {
    mkdirSync(join(home.folder, "home"), { recursive: true, mode: 0o700 });
    writeFileSync(join(home.folder, "home/config.yaml"), "limits:\n  maxDepth: 0\n");
    await home.json(["up"]);
    const drover = `'${process.execPath}' '${join(import.meta.dirname, "../../dist/drover.js")}'`;
    const old = await home.json<Run>(["run", "--", "true"]);
    await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
    const tries = [
      `${drover} retry ${old.id}`,
      `${drover} loop run a`,
      `DROVER_DEPTH=0 ${drover} run -- true`,
      `env -u DROVER_DEPTH ${drover} run -- true`,
      `env -u DROVER_RUN_TOKEN ${drover} run -- true`,
      `DROVER_RUN_TOKEN=v1.run_00000000000000000000000000.0.${"A".repeat(43)} ${drover} run -- true`,
      // Everything forgotten: the parents' environment still says it.
      `env -i PATH="$PATH" HOME="$HOME" DROVER_HOME='${join(home.folder, "home")}' ${drover} run -- true`,
      `node -e 'const q=require("http").request({socketPath:process.env.DROVER_SOCKET,path:"/api/v1/ops/run",method:"POST",headers:{host:"drover","content-type":"application/json","drover-run-token":process.env.DROVER_RUN_TOKEN}},r=>process.exit(r.statusCode===409?4:1));q.end(JSON.stringify({command:["true"],cwd:"/"}))'`,
    ];
    const { out } = await home.run(["run", "--shell", tries.map((one) => `${one} 2>/dev/null; echo $?`).join("\n")]);
    expect(out.trim().split("\n")).toEqual(["4", "4", "4", "4", "6", "6", "4", "4"]);
    expect((await home.json<{ items: readonly Run[] }>(["runs"])).items).toHaveLength(2);
  });

  test("B-122 B-123 a process gets the allowed environment, a secret in no command line and in no log", async () => {
    const secret = "sk-test-1234567890abcdef";
    const env = { FAKE_TOKEN: secret, UNRELATED: "yes" };
    await home.json(["up"], { env });
    const seen = await home.run(
      [
        "run",
        "--secret",
        "KEY=env:FAKE_TOKEN",
        "--",
        "sh",
        "-c",
        'env; echo "key: $KEY"; printf "%s" "$KEY" | head -c 9; sleep 0.2; printf "%s\\n" "$KEY" | tail -c +10',
      ],
      { env },
    );
    expect(seen.status).toBe(0);
    expect(seen.out).toContain("key: [secret]");
    expect(seen.out).not.toContain("UNRELATED");
    expect(seen.out).not.toContain(secret);
    expect(home.dump()).not.toContain(secret);
    const { items } = await home.json<{ items: readonly Run[] }>(["runs"]);
    for (const raw of [[], ["--raw"]])
      expect((await home.run(["logs", items[0]?.id ?? "", ...raw])).out).not.toContain(secret);
    expect(readFileSync(join(home.folder, "home/logs/daemon.log"), "utf8")).not.toContain(secret);
  });

  test("B-039 what a process prints reaches no terminal as a command", async () => {
    await home.json(["up"]);
    const hostile = String.raw`\033]0;x\a\033[2K\rALL PASSED\033]8;;http://x\a\033]52;c;eA==\a\302\233A\342\200\256end\n`;
    const { out, status: exit } = await home.run(["run", "--shell", `printf '${hostile}'; exit 0`]);
    expect(exit).toBe(0);
    expect(out).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/);
    const { items } = await home.json<{ items: readonly Run[] }>(["runs"]);
    const raw = await home.run(["logs", items[0]?.id ?? "", "--raw"]);
    expect(raw.out).toContain("\u001b]0;x\u0007");
    for (const args of [["show", items[0]?.id ?? ""], ["runs"], ["why", items[0]?.id ?? ""]])
      expect((await home.run(args)).out).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/);
  });
});
