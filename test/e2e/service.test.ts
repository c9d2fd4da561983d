/** The daemon as a service: its whole life under a real systemd user manager, and what is said where none can be asked. */
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome, PROGRAM, until } from "./drover.ts";
import { isAlive, openSystemd, type UserSystemd, whyNoSystemd } from "./user-systemd.ts";

interface Finding {
  readonly code: string;
  readonly level: string;
  readonly message: string;
  readonly hint: string;
}
interface Installed {
  readonly change: string;
  readonly file: string;
  readonly text: string;
  readonly path: string;
  readonly started: boolean;
  readonly pid: number | null;
  readonly selfTest: { readonly ok: boolean; readonly message: string } | null;
  readonly warnings: readonly { readonly code: string }[];
}
interface Status {
  readonly service: {
    readonly name: string;
    readonly installed: boolean;
    readonly enabled: boolean | null;
    readonly state: string | null;
    readonly programMoved: boolean;
    readonly findings: readonly Finding[];
  };
  readonly daemon: { readonly state: string; readonly pid: number | null; readonly service: string | null };
}
interface RunDocument {
  readonly id: string;
  readonly status: string;
  readonly steps: readonly {
    readonly attempts: readonly { readonly pid: number | null; readonly adopted: boolean }[];
  }[];
}

/** A restart takes five seconds, and each look some calls of systemctl, on a machine that does other things too. */
const soon = <T>(condition: () => T | Promise<T>, what: string): Promise<T> => until(condition, what, 120_000);

const why = whyNoSystemd();
if (why !== null) console.warn(`skipped: the life of the service under systemd: ${why}`);

describe.skipIf(why !== null)("under systemd", { timeout: 300_000 }, () => {
  let manager: UserSystemd;
  /** An installation of the built program, which is upgraded and moved; its path has what units have to escape. */
  let program: string;
  let runId: string;
  let runPid: number;
  beforeAll(async () => {
    manager = await openSystemd();
    program = put("lib", null);
  });
  afterAll(() => manager.close());

  function put(name: string, build: string | null): string {
    const folder = join(manager.folder, name);
    mkdirSync(folder, { recursive: true });
    cpSync(dirname(PROGRAM), join(folder, "dist"), { recursive: true });
    if (!existsSync(join(folder, "node_modules")))
      symlinkSync(join(dirname(PROGRAM), "../node_modules"), join(folder, "node_modules"));
    if (build !== null)
      for (const file of readdirSync(join(folder, "dist")).filter((one) => /\.m?js$/.test(one))) {
        const path = join(folder, "dist", file);
        writeFileSync(path, readFileSync(path, "utf8").replaceAll(ownBuild, build));
      }
    return join(folder, "dist/drover.js");
  }
  const ownBuild = (
    JSON.parse(spawnSync(process.execPath, [PROGRAM, "version", "--json"], { encoding: "utf8" }).stdout) as {
      build: string;
    }
  ).build;

  /** Also where it ends with 1, since something is found. */
  const status = async (): Promise<Status> =>
    JSON.parse((await manager.run(PROGRAM, ["daemon", "status", "--json"])).out) as Status;
  const show = () => manager.json<RunDocument>(PROGRAM, ["show", runId]);
  const up = async () => {
    await soon(async () => (await status()).daemon.state === "up", "the daemon is up");
    return status();
  };
  /** Ends the daemon as `kill` would; answers its pid. */
  const end = async (signal: NodeJS.Signals): Promise<number> => {
    const { pid } = (await status()).daemon;
    if (pid === null) throw new Error("there is no daemon to end");
    process.kill(pid, signal);
    return pid;
  };
  const expectRunOn = async () => {
    expect((await show()).status).toBe("running");
    expect(isAlive(runPid)).toBe(true);
  };

  test("a daemon that was started by hand is taken over by the service that is installed", async () => {
    const byHand = await manager.json<{ pid: number; service: string | null }>(program, ["up"]);
    expect(byHand.service).toBeNull();
    const dry = await manager.json<Installed>(program, ["daemon", "install", "--enable", "--dry-run"]);
    expect(existsSync(dry.file)).toBe(false);
    expect(await status()).toMatchObject({ service: { installed: false }, daemon: { pid: byHand.pid } });

    const made = await manager.json<Installed>(program, ["daemon", "install", "--enable"]);
    expect(made).toMatchObject({ change: "created", started: true, text: dry.text });
    expect(made.selfTest?.message).toContain("the service drover: ok");
    expect(readFileSync(made.file, "utf8")).toBe(made.text);
    expect(isAlive(byHand.pid)).toBe(false);
    expect(await status()).toMatchObject({
      service: { name: "drover", installed: true, enabled: true, state: "active" },
      daemon: { pid: made.pid, service: "drover" },
    });
    const env = await manager.run(program, ["run", "--", "sh", "-c", 'echo "$PATH"']);
    expect(env.out).toBe(`${made.path}\n`);
    // The second time there is nothing to do.
    expect(await manager.json<Installed>(program, ["daemon", "install", "--enable"])).toMatchObject({
      change: "unchanged",
      started: false,
      pid: made.pid,
    });
    const { id } = await manager.json<{ id: string }>(program, ["run", "--detach", "--", "sleep", "1000"]);
    runId = id;
    runPid = await soon(async () => (await show()).steps[0]?.attempts[0]?.pid ?? 0, "it runs");
    await expectRunOn();
  });

  test("killed, it is started again, and what runs goes on under it", async () => {
    const pid = await end("SIGKILL");
    const again = await up();
    expect(again.daemon).toMatchObject({ service: "drover" });
    expect(again.daemon.pid).not.toBe(pid);
    await soon(async () => (await show()).steps[0]?.attempts[0]?.adopted, "it is adopted");
    await expectRunOn();
    // A signal by hand is no wish to have it down.
    await end("SIGTERM");
    await soon(async () => ((await status()).daemon.pid ?? again.daemon.pid) !== again.daemon.pid, "another one is up");
    expect((await up()).daemon).toMatchObject({ service: "drover" });
    await expectRunOn();
  });

  test("upgraded in place, the new build is started, and what runs goes on", async () => {
    put("lib", "another00000");
    const { pid } = (await status()).daemon;
    const made = await manager.json<Installed>(program, ["daemon", "install", "--enable"]);
    expect(made).toMatchObject({ change: "unchanged", started: true, selfTest: { ok: true } });
    expect(made.pid).not.toBe(pid);
    await expectRunOn();
  });

  test("B-020 what only a version manager's folder holds is found by the service that was installed from a shell with it", async () => {
    const folder = join(manager.folder, "versions/v1/bin");
    mkdirSync(folder, { recursive: true });
    for (const name of ["claude", "only-there"])
      writeFileSync(join(folder, name), "#!/bin/sh\necho from the folder\n", { mode: 0o755 });
    expect(await manager.run(program, ["run", "--", "only-there"])).toMatchObject({ status: 3 });
    const env = { PATH: `${folder}:${manager.env["PATH"]}` };
    const dry = await manager.run(program, ["daemon", "install", "--enable", "--json"], env);
    const made = JSON.parse(dry.out) as Installed & { readonly agents: readonly object[] };
    expect(made).toMatchObject({ change: "replaced", started: true, selfTest: { ok: true } });
    expect(made.agents).toContainEqual({ provider: "claude", program: "claude", file: join(folder, "claude") });
    // Asked by a shell without it.
    expect((await manager.run(program, ["run", "--", "only-there"])).out).toBe("from the folder\n");
    await expectRunOn();
  });

  test("B-018 lingering that is off is said by install, status and doctor, with the command, and is no failure", async () => {
    const folder = join(manager.folder, "loginctl");
    mkdirSync(folder);
    writeFileSync(join(folder, "loginctl"), "#!/bin/sh\necho no\n", { mode: 0o755 });
    const env = { PATH: `${folder}:${manager.env["PATH"]}` };
    const made = await manager.run(program, ["daemon", "install"], env);
    expect(made.status).toBe(0);
    const seen = await manager.run(program, ["daemon", "status"], env);
    for (const { out, err } of [made, seen]) expect(out + err).toContain("loginctl enable-linger");
    const looked = await manager.run(program, ["doctor", "--json"], env);
    const { findings } = JSON.parse(looked.out) as { findings: readonly { readonly code: string }[] };
    expect(findings).toContainEqual(
      expect.objectContaining({ code: "service_linger_off", command: "loginctl enable-linger" }),
    );
  });

  test("moved away, its status says so with the command that mends it", async () => {
    renameSync(join(manager.folder, "lib"), join(manager.folder, "elsewhere"));
    await end("SIGKILL");
    const ended = await manager.run(PROGRAM, ["daemon", "status", "--json"]);
    expect(ended.status).toBe(1);
    const { service } = JSON.parse(ended.out) as Status;
    expect(service.findings[0]).toMatchObject({ code: "service_program_moved", level: "problem" });
    expect(service.findings[0]?.message).toContain(program);
    const told = await manager.run(PROGRAM, ["daemon", "status"]);
    expect(told.out).toContain("drover daemon install --enable");
    await expectRunOn();
    const made = await manager.json<Installed>(PROGRAM, ["daemon", "install", "--enable"]);
    expect(made).toMatchObject({ change: "replaced", started: true, selfTest: { ok: true } });
    program = PROGRAM;
    expect((await status()).service).toMatchObject({ programMoved: false, findings: [] });
    await expectRunOn();
  });

  test("down stays down, also between two starts, and up starts the service", async () => {
    const { pid } = (await status()).daemon;
    expect(await manager.json(program, ["down"])).toMatchObject({ stopped: true, pid, service: "drover" });
    // A restart would be waiting now.
    await soon(async () => (await status()).service.state !== "stopping", "the manager has seen it");
    expect(await status()).toMatchObject({
      service: { state: "inactive", enabled: true, findings: [{ code: "service_stopped", hint: "drover up" }] },
      daemon: { state: "down" },
    });
    await expectRunOn();
    expect(await manager.json(program, ["up"])).toMatchObject({ started: true, service: "drover" });

    await up();
    await end("SIGKILL");
    await soon(async () => (await status()).service.state === "waiting", "it is about to be started again");
    expect(await manager.json(program, ["down"])).toMatchObject({ stopped: true, pid: null, service: "drover" });
    expect((await status()).service.state).toBe("inactive");
    expect(await manager.json(program, ["up"])).toMatchObject({ started: true, service: "drover" });
  });

  test("B-017 systemctl stops, starts and restarts it as any other, what runs goes on, and one that serves what is queued steps down for it", async () => {
    expect(manager.systemctl("stop", "drover")).toMatchObject({ status: 0 });
    expect((await status()).service.state).toBe("inactive");
    await expectRunOn();
    // Starts a daemon that fires nothing.
    expect(await manager.run(program, ["run", "--detach", "--", "true"])).toMatchObject({ status: 0 });
    const { daemon } = await status();
    expect(daemon).toMatchObject({ state: "up", service: null });
    expect(manager.systemctl("start", "drover")).toMatchObject({ status: 0 });
    await soon(async () => (await status()).daemon.service === "drover", "the service has taken over");
    await expectRunOn();
    expect((await status()).service.findings).toEqual([]);
    const { pid } = (await status()).daemon;
    expect(manager.systemctl("restart", "drover")).toMatchObject({ status: 0 });
    await soon(async () => ((await status()).daemon.pid ?? pid) !== pid, "another one is up");
    await expectRunOn();
  });

  test("a file that somebody changed is neither replaced nor removed unless that is said", async () => {
    const { file } = await manager.json<Installed>(program, ["daemon", "install", "--dry-run"]);
    appendFileSync(file, "# mine\n");
    const stale = (await status()).service.findings.map(({ code }) => code);
    expect(stale).toEqual(expect.arrayContaining(["service_edited", "service_stale"]));
    expect(await manager.refused(4, program, ["daemon", "install"])).toMatchObject({
      code: "service_edited",
      path: file,
    });
    expect(await manager.refused(4, program, ["daemon", "uninstall"])).toMatchObject({ code: "service_edited" });
    expect(await manager.json(program, ["daemon", "install", "--replace"])).toMatchObject({ change: "replaced" });
    const kept = readFileSync(file, "utf8");
    writeFileSync(file, "[Service]\nExecStart=/bin/true\n");
    expect(await manager.refused(4, program, ["daemon", "install", "--enable"])).toMatchObject({
      code: "service_foreign",
    });
    expect(await manager.refused(4, program, ["daemon", "uninstall", "--edited"])).toMatchObject({
      code: "service_foreign",
    });
    writeFileSync(file, kept);
    expect(manager.systemctl("daemon-reload")).toMatchObject({ status: 0 });
  });

  test("removed, it is gone, and what runs goes on", async () => {
    const { pid } = (await status()).daemon;
    const { file } = await manager.json<Installed>(program, ["daemon", "install", "--dry-run"]);
    expect(await manager.json(program, ["daemon", "uninstall"])).toMatchObject({
      removed: true,
      stopped: true,
      left: 1,
    });
    expect(existsSync(file)).toBe(false);
    expect(isAlive(pid ?? -1)).toBe(false);
    expect(manager.systemctl("show", "drover", "--property=LoadState").out).toBe("LoadState=not-found\n");
    expect(readdirSync(dirname(file))).toEqual([]);
    await expectRunOn();
    expect(await manager.json(program, ["daemon", "uninstall"])).toMatchObject({ removed: false });
    // By hand as before.
    expect(await manager.json(program, ["up"])).toMatchObject({ started: true, service: null });
    await soon(async () => (await manager.run(program, ["cancel", runId])).status === 0, "it is cancelled");
    expect(isAlive(runPid)).toBe(false);
    expect(await manager.json(program, ["down"])).toMatchObject({ stopped: true, service: null });
  });
});

const hasSystemctl = spawnSync("systemctl", ["--version"]).status === 0;
if (!hasSystemctl) console.warn("skipped: a service manager that cannot be asked: there is no systemctl");

describe.skipIf(!hasSystemctl)("where the user's systemd cannot be asked", () => {
  let home: Home;
  beforeEach(() => {
    home = openHome();
  });
  afterEach(() => home.close());
  /** No session, as in a shell of cron in a container. */
  const env = { XDG_RUNTIME_DIR: "/nonexistent", DBUS_SESSION_BUS_ADDRESS: undefined };

  test("nothing is enabled half, and what can be done is done and said", async () => {
    const refused = await home.refused(5, ["daemon", "install", "--enable"], { env });
    expect(refused).toMatchObject({ code: "service_unreachable" });
    expect(refused.hint).toContain("loginctl enable-linger");
    const folder = join(home.folder, ".config/systemd/user");
    expect(existsSync(folder)).toBe(false);
    const made = await home.json<Installed>(["daemon", "install"], { env });
    expect(made).toMatchObject({ change: "created", started: false, selfTest: null });
    expect(made.warnings.map(({ code }) => code)).toContain("service_unreachable");
    expect(dirname(made.file)).toBe(folder);
    const { service } = await home.json<Status>(["daemon", "status"], { env });
    expect(service).toMatchObject({ installed: true, enabled: null, state: null });
    expect(service.findings.map(({ code }) => code)).toContain("service_unreachable");
    // A daemon that somebody asks for now is more than none.
    const up = await home.json<{ service: string | null; warnings: { code: string }[] }>(["up"], { env });
    expect(up).toMatchObject({ started: true, service: null, warnings: [{ code: "service_unreachable" }] });
    expect(await home.json(["daemon", "uninstall"], { env })).toMatchObject({ removed: true, stopped: false });
    expect(existsSync(made.file)).toBe(false);
  });

  test("a link to what is not there is somebody's, and is replaced only when that is said", async () => {
    const { file } = await home.json<Installed>(["daemon", "install", "--dry-run"], { env });
    mkdirSync(dirname(file), { recursive: true });
    symlinkSync(join(home.folder, "dotfiles/drover.service"), file);
    expect(await home.refused(4, ["daemon", "install"], { env })).toMatchObject({
      code: "service_foreign",
      path: file,
    });
    expect(lstatSync(file).isSymbolicLink()).toBe(true);
    await home.json(["daemon", "install", "--replace"], { env });
    expect(lstatSync(file).isFile()).toBe(true);
    expect(existsSync(join(home.folder, "dotfiles"))).toBe(false);
  });

  test("a password of the store is kept out of the unit, and a broken configuration is said before anything is written", async () => {
    const store = "postgres://me:hidden@127.0.0.1:1/none";
    const refused = await home.refused(2, ["daemon", "install"], { env: { ...env, DROVER_STORE: store } });
    expect(refused).toMatchObject({ code: "store_password", path: "DROVER_STORE" });
    expect(JSON.stringify(refused)).not.toContain("hidden");
    mkdirSync(join(home.folder, "home"), { mode: 0o700 });
    writeFileSync(join(home.folder, "home/config.yaml"), "caps: [");
    expect(await home.refused(2, ["daemon", "install"], { env })).toMatchObject({ code: "bad_config" });
    expect(existsSync(join(home.folder, ".config/systemd/user"))).toBe(false);
    expect(await home.json(["daemon", "status"], { env })).toMatchObject({ service: { installed: false } });
    writeFileSync(join(home.folder, "home/config.yaml"), "");
  });
});

describe("the daemon's log", { timeout: 180_000 }, () => {
  let home: Home;
  beforeEach(() => {
    home = openHome();
  });
  afterEach(() => home.close());

  test("is printed, followed until Ctrl-C, and inert; it needs no store", async () => {
    expect(await home.refused(3, ["daemon", "logs"])).toMatchObject({ code: "no_log" });
    expect(await home.refused(3, ["daemon", "logs", "-f"])).toMatchObject({ code: "no_log" });
    for (const tail of ["-1", "x", "1.5"])
      expect(await home.refused(2, ["daemon", "logs", "--tail", tail])).toMatchObject({ path: "--tail" });
    await home.json(["up"]);
    const file = join(home.folder, "home/logs/daemon.log");
    appendFileSync(
      file,
      `${JSON.stringify({ at: "2026-01-01T00:00:00.000Z", level: "warn", event: "odd", data: { message: "\u001b[2J two words" } })}\n`,
    );
    appendFileSync(file, "\u001b[31mtorn");
    appendFileSync(file, "\n");
    const { out } = await home.run(["daemon", "logs"]);
    expect(out).toMatch(/ info {2}daemon_up pid=\d+ version=/);
    expect(out).toMatch(/ warn {2}odd message="/);
    expect(out).not.toContain("\u001b");
    const { items } = await home.json<{ items: { event?: string; text?: string }[] }>([
      "daemon",
      "logs",
      "--tail",
      "2",
    ]);
    expect(items).toMatchObject([{ event: "odd" }, { text: "\u001b[31mtorn" }]);

    const following = home.start(["daemon", "logs", "-f", "--tail", "1", "--json"]);
    await soon(() => following.out() !== "", "it is followed");
    await home.json(["down"]);
    await soon(() => following.out().includes('"daemon_down"'), "the end is followed");
    following.signal("SIGINT");
    expect((await following.ended).status).toBe(130);
    expect(JSON.parse(following.out().split("\n")[1] ?? "")).toMatchObject({ event: "daemon_going_down" });

    writeFileSync(join(home.folder, "home/drover.db"), "no store at all");
    writeFileSync(join(home.folder, "home/config.yaml"), "caps: [");
    expect((await home.run(["daemon", "logs"])).out.startsWith(out)).toBe(true);
    writeFileSync(join(home.folder, "home/config.yaml"), "");
  });
});
