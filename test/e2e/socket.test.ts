/** The daemon's socket, lock and folder under it: taken away, replaced, full, or no folder at all. */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { dirname, join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type Home, openHome, until } from "./drover.ts";

/** Far less than the minute for which a daemon may start. */
const FAST_MS = 25_000;

interface Status {
  readonly daemon: { readonly state: string; readonly pid: number | null };
  readonly warnings: readonly { readonly code: string; readonly message: string }[];
}

let home: Home;
beforeEach(() => {
  home = openHome();
});
afterEach(() => home.close());

const state = (): string => join(home.folder, "home");
const socket = (): string => join(state(), "drover.sock");
const status = (): Promise<Status> => home.json<Status>(["status"]);

async function timed<T>(work: Promise<T>): Promise<T> {
  const startedAt = performance.now();
  const result = await work;
  expect(performance.now() - startedAt).toBeLessThan(FAST_MS);
  return result;
}

describe("the socket is gone while the daemon runs", () => {
  test("it is made anew, and commands find the same daemon", async () => {
    await home.json(["loop", "add", "a", "--every", "1h", "--", "true"]);
    const { pid } = await home.json<{ pid: number }>(["up"]);
    unlinkSync(socket());
    const silent = await status();
    expect(silent.daemon.pid).toBe(pid);
    expect(silent.warnings.map((one) => one.code)).not.toContain("not_firing");
    // One that comes at that very moment waits for it.
    expect(await timed(home.json(["up"]))).toMatchObject({ started: false, pid });
    unlinkSync(socket());
    expect((await timed(home.run(["run", "--", "echo", "hello"]))).out).toBe("hello\n");
    expect(await status()).toMatchObject({ daemon: { state: "up", pid } });
    expect(statSync(socket()).mode & 0o777).toBe(0o600);
    const lines = readFileSync(join(state(), "logs/daemon.log"), "utf8").trim().split("\n");
    expect(lines.filter((line) => line.includes('"socket_lost"'))).toHaveLength(1);
    await home.json(["down"]);
    expect(existsSync(socket())).toBe(false);
  });

  test("it cannot be made anew: commands fail soon and name the pid, and it is back when it can", async () => {
    const runtime = join(home.folder, "runtime");
    mkdirSync(runtime, { mode: 0o700 });
    const env = { DROVER_HOME: undefined, XDG_RUNTIME_DIR: runtime };
    const { pid } = await home.json<{ pid: number }>(["up"], { env });
    try {
      rmSync(runtime, { recursive: true });
      writeFileSync(runtime, "in the way");
      for (const args of [["up"], ["run", "--", "true"]]) {
        const error = await timed(home.refused(5, args, { env }));
        expect(error).toMatchObject({ code: "daemon_unresponsive" });
        expect(error.message).toContain(`pid ${pid}`);
        expect(error.hint).toContain(`kill ${pid}`);
        expect(error.message).not.toContain("{");
      }
      expect(await home.json<Status>(["status"], { env })).toMatchObject({ daemon: { state: "unresponsive", pid } });
      unlinkSync(runtime);
      mkdirSync(runtime, { mode: 0o700 });
      expect(await timed(home.json(["up"], { env }))).toMatchObject({ started: false, pid });
    } finally {
      rmSync(runtime, { recursive: true, force: true });
      mkdirSync(runtime, { mode: 0o700 });
      await until(async () => (await home.run(["down", "--json"], { env })).status === 0, "it is down");
    }
  });
});

describe("the lock", () => {
  test("its file is removed: the daemon that steps back leaves the other one's socket and side file", async () => {
    const first = home.start(["up", "--foreground"]);
    await until(async () => (await status()).daemon.state === "up", "it is up");
    unlinkSync(join(state(), "daemon.lock"));
    const second = home.start(["up", "--foreground"]);
    await timed(first.ended);
    await until(async () => (await status()).daemon.state === "up", "the other is up");
    expect(await status()).toMatchObject({ daemon: { pid: second.pid } });
    expect(existsSync(socket())).toBe(true);
    expect(readFileSync(join(state(), "daemon.lock.pid"), "utf8")).toBe(`${second.pid}\n`);
    // Even when it cannot be asked.
    second.signal("SIGSTOP");
    try {
      expect(await status()).toMatchObject({ daemon: { state: "unresponsive", pid: second.pid } });
    } finally {
      second.signal("SIGCONT");
    }
  });

  test("the lock and its side file are for this user alone, also when they were not", async () => {
    mkdirSync(state(), { recursive: true, mode: 0o700 });
    writeFileSync(join(state(), "daemon.lock.pid"), "1\n");
    chmodSync(join(state(), "daemon.lock.pid"), 0o644);
    const daemon = home.start(["up", "--foreground"]);
    await until(async () => (await status()).daemon.state === "up", "it is up");
    for (const name of ["daemon.lock", "daemon.lock.pid"])
      expect([name, statSync(join(state(), name)).mode & 0o777]).toEqual([name, 0o600]);
    daemon.signal("SIGTERM");
    await daemon.ended;
  });

  test("the short folder for a long path goes with the daemon", async () => {
    const env = { DROVER_HOME: join(home.folder, "d".repeat(120)) };
    const places = await home.json<{ socket: string }>(["config", "path"], { env });
    await home.json(["up"], { env });
    expect(existsSync(places.socket)).toBe(true);
    await home.json(["down"], { env });
    expect(existsSync(dirname(places.socket))).toBe(false);
  });
});

describe("DROVER_HOME cannot be one", () => {
  const commands = [["status"], ["up"], ["run", "--", "true"], ["loop", "add", "a", "--every", "1h", "--", "true"]];

  test("a file, and below a file: 5, and the path is named", async () => {
    const file = join(home.folder, "file");
    writeFileSync(file, "");
    for (const path of [file, join(file, "below")])
      for (const args of commands) {
        const error = await home.refused(5, args, { env: { DROVER_HOME: path } });
        expect([args, error.code, error.path]).toEqual([args, "state_unusable", path]);
      }
  });

  test.skipIf(process.getuid?.() === 0)("not writable: 5 [root may write everywhere]", async () => {
    const folder = join(home.folder, "closed");
    mkdirSync(folder, { mode: 0o500 });
    for (const args of commands.slice(1))
      expect(await home.refused(5, args, { env: { DROVER_HOME: folder } })).toMatchObject({
        code: "state_unusable",
        path: folder,
      });
  });
});

/** A file system of its own of that size; null where this user may not mount one. */
function mountSmall(kilobytes: number): { readonly folder: string; close(): void } | null {
  const folder = mkdtempSync(join(tmpdir(), "drover-full-"));
  const made = spawnSync("mount", ["-t", "tmpfs", "-o", `size=${kilobytes}k,mode=700`, "tmpfs", folder]);
  if (made.status !== 0) {
    rmSync(folder, { recursive: true });
    return null;
  }
  return {
    folder,
    close() {
      spawnSync("umount", ["-l", folder]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

describe("a full disk", () => {
  const fill = (folder: string): void => {
    const filled = spawnSync("dd", ["if=/dev/zero", `of=${join(folder, "filler")}`, "bs=4k"]);
    expect(String(filled.stderr)).toContain("No space left");
  };

  test("status and down work, up and run say disk_full [needs root for a mount]", async ({ skip }) => {
    const disk = mountSmall(8192);
    if (disk === null) return skip("this user may not mount a small file system");
    const env = { DROVER_HOME: join(disk.folder, "home") };
    try {
      await home.json(["up"], { env });
      fill(disk.folder);
      expect(await home.json<Status>(["status"], { env })).toMatchObject({ daemon: { state: "up" } });
      expect(await home.json(["down"], { env })).toMatchObject({ stopped: true });
      expect(await home.json<Status>(["status"], { env })).toMatchObject({ daemon: { state: "down" } });
      fill(disk.folder);
      for (const args of [["up"], ["run", "--", "true"]])
        expect(await timed(home.refused(5, args, { env }))).toMatchObject({ code: "disk_full" });
      expect(await home.json<Status>(["status"], { env })).toMatchObject({ daemon: { state: "down" } });
      expect(await home.json(["down"], { env })).toMatchObject({ stopped: false });
    } finally {
      await home.run(["down", "--stop-runs"], { env });
      disk.close();
    }
  });

  test("nothing could ever be written there: the same", async ({ skip }) => {
    const disk = mountSmall(64);
    if (disk === null) return skip("this user may not mount a small file system");
    const env = { DROVER_HOME: join(disk.folder, "home") };
    try {
      fill(disk.folder);
      for (const args of [["up"], ["run", "--", "true"]])
        expect(await timed(home.refused(5, args, { env }))).toMatchObject({ code: "disk_full" });
      expect(await home.json<Status>(["status"], { env })).toMatchObject({ daemon: { state: "down" } });
    } finally {
      disk.close();
    }
  });
});

describe("commands that were started from elsewhere", () => {
  test("find the daemon whatever their runtime folder is, and a record that is stale or somebody else's harms nobody", async () => {
    const within = (name: string) => {
      const runtime = join(home.folder, name);
      mkdirSync(runtime, { mode: 0o700 });
      return { DROVER_HOME: undefined, XDG_RUNTIME_DIR: runtime };
    };
    const [first, second] = [within("first"), within("second")];
    const none = { DROVER_HOME: undefined };
    const record = join(home.folder, ".local/state/drover/daemon.socket");
    const { pid, socket: listens } = await home.json<{ pid: number; socket: string }>(["up"], { env: first });
    expect(listens).toContain(first.XDG_RUNTIME_DIR);
    expect(readFileSync(record, "utf8")).toBe(`${listens}\n`);
    expect(statSync(record).mode & 0o777).toBe(0o600);
    for (const env of [second, none]) {
      expect(await home.json<Status>(["status"], { env })).toMatchObject({ daemon: { state: "up", pid } });
      expect(await home.json(["up"], { env })).toMatchObject({ started: false, pid, socket: listens });
      expect(await home.json(["config", "path"], { env })).toMatchObject({ socket: listens });
      expect((await timed(home.run(["run", "--", "echo", "hello"], { env }))).out).toBe("hello\n");
    }
    expect(await timed(home.json(["down"], { env: second }))).toMatchObject({ stopped: true, pid });
    expect(existsSync(record)).toBe(false);

    // One that died leaves its record; the next one listens elsewhere.
    const killed = home.start(["up", "--foreground"], { env: first });
    await until(async () => (await home.json<Status>(["status"], { env: none })).daemon.state === "up", "it is up");
    killed.signal("SIGKILL");
    await killed.ended;
    expect(readFileSync(record, "utf8")).toBe(`${listens}\n`);
    expect(await home.json<Status>(["status"], { env: none })).toMatchObject({ daemon: { state: "down" } });
    const next = await home.json<{ pid: number; socket: string }>(["up"], { env: second });
    expect(next.socket).toContain(second.XDG_RUNTIME_DIR);
    try {
      for (const text of ["relative\n", `${join(home.folder, "gone.sock")}\n`, "", `/${"x".repeat(5_000)}`, "/\0"]) {
        writeFileSync(record, text);
        expect(await home.json<Status>(["status"], { env: second })).toMatchObject({ daemon: { pid: next.pid } });
      }
      // A record that others may write is not followed.
      writeFileSync(record, `${next.socket}\n`);
      chmodSync(record, 0o666);
      expect(await home.json<Status>(["status"], { env: none })).toMatchObject({ daemon: { state: "unresponsive" } });
      chmodSync(record, 0o600);
      expect(await home.json<Status>(["status"], { env: none })).toMatchObject({ daemon: { state: "up" } });
    } finally {
      await home.json(["down"], { env: second });
    }
  });

  test("a socket of another user is not spoken to", async () => {
    if (process.getuid?.() !== 0) return console.log("skipped: only root can give a socket to somebody else");
    const { pid, socket: listens } = await home.json<{ pid: number; socket: string }>(["up"]);
    chownSync(listens, 65_534, 65_534);
    expect(await status()).toMatchObject({ daemon: { state: "unresponsive", pid } });
    chownSync(listens, 0, 0);
    expect(await status()).toMatchObject({ daemon: { state: "up", pid } });
  });

  test("an empty or relative home is none: no place lies in the working directory", async () => {
    const { homedir } = userInfo();
    for (const HOME of ["", "relative"]) {
      const env = { DROVER_HOME: undefined, HOME, XDG_STATE_HOME: "rel", XDG_CONFIG_HOME: "" };
      expect(await home.json(["config", "path"], { env })).toMatchObject({
        state: join(homedir, ".local/state/drover"),
        config: join(homedir, ".config/drover/config.yaml"),
      });
    }
    const refused = await home.refused(2, ["status"], { env: { DROVER_HOME: "relative" } });
    expect(refused).toMatchObject({ code: "bad_home", path: "DROVER_HOME" });
    expect(refused.hint).toContain("$PWD");
  });
});
