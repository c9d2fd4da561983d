/** A systemd user manager of a test's own, in a mount namespace of its own: this machine's is never asked. */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { endChild, endPids } from "../children.ts";
import { type Ended, type ErrorBody, processesOf, until, withJson } from "./drover.ts";

const SYSTEMD = ["/usr/lib/systemd/systemd", "/lib/systemd/systemd"].find((file) => existsSync(file));

/**
 * What makes the surroundings of a manager: a system that says that it was booted with systemd, and cgroups of its own. The
 * old mounts of cgroups go first: hidden ones would still be listed, and be taken for the place to make cgroups in.
 */
const SURROUNDINGS = `set -eu
mount -t tmpfs tmpfs /run/systemd
mkdir -p /run/systemd/system
umount --recursive --lazy /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mkdir "/sys/fs/cgroup/drover-test-$$"
echo $$ > "/sys/fs/cgroup/drover-test-$$/cgroup.procs"
exec env -i PATH=/usr/bin:/bin HOME="$1" XDG_RUNTIME_DIR="$2" "$3" --user
`;
const SWEEP = `mount -t cgroup2 none /sys/fs/cgroup
find "/sys/fs/cgroup/drover-test-$1" -depth -type d -exec rmdir {} +
`;

/** Why no manager can be had here; null where one can be tried. */
export function whyNoSystemd(): string | null {
  if (process.platform !== "linux") return "systemd is for Linux";
  if (SYSTEMD === undefined) return "systemd is not installed";
  if (process.getuid?.() !== 0) return "only root can make the surroundings of a user manager";
  for (const program of ["unshare", "nsenter", "systemctl"])
    if (spawnSync(program, ["--version"]).error !== undefined) return `${program} is not installed`;
  const { status, stderr } = spawnSync(
    "unshare",
    [
      "--mount",
      "--propagation",
      "private",
      "sh",
      "-c",
      "mount -t tmpfs tmpfs /run/systemd && umount --recursive --lazy /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && mkdir /sys/fs/cgroup/drover-probe-$$ && rmdir /sys/fs/cgroup/drover-probe-$$",
    ],
    { encoding: "utf8" },
  );
  return status === 0 ? null : `the surroundings of a user manager cannot be made: ${stderr.trim()}`;
}

export interface UserSystemd {
  /** Everything lies in it; its name holds what units have to escape, but for the backslash, from below which Node loads nothing. */
  readonly folder: string;
  readonly home: string;
  readonly env: Readonly<Record<string, string>>;
  /** Runs the program as a command of that session. */
  run(program: string, args: readonly string[], env?: Readonly<Record<string, string | undefined>>): Promise<Ended>;
  json<T>(program: string, args: readonly string[]): Promise<T>;
  refused(status: number, program: string, args: readonly string[]): Promise<ErrorBody>;
  systemctl(...args: string[]): Ended;
  close(): Promise<void>;
}

/** Starts a manager, and waits until it answers. Errors: with what it said. */
export async function openSystemd(): Promise<UserSystemd> {
  const folder = join(mkdtempSync(join(tmpdir(), "drover-service-")), "a b %n $HOME 'c\" d");
  const home = join(folder, "home");
  const runtime = join(folder, "run");
  for (const path of [home, runtime]) mkdirSync(path, { recursive: true, mode: 0o700 });
  const script = join(folder, "surroundings.sh");
  writeFileSync(script, SURROUNDINGS);
  const manager = spawn(
    "unshare",
    ["--mount", "--propagation", "private", "sh", script, home, runtime, SYSTEMD ?? ""],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  const pid = String(manager.pid);
  let said = "";
  manager.stderr.setEncoding("utf8").on("data", (piece: string) => (said += piece));
  const env = {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    HOME: home,
    XDG_RUNTIME_DIR: runtime,
    LANG: "C.UTF-8",
  };
  const within = ["--target", pid, "--mount", "--"];
  const systemctl = (...args: string[]): Ended => {
    const { status, signal, stdout, stderr } = spawnSync(
      "nsenter",
      [...within, "systemctl", "--user", "--no-pager", ...args],
      { env, encoding: "utf8" },
    );
    return { status, signal, out: stdout, err: stderr };
  };
  const run: UserSystemd["run"] = (program, args, more = {}) =>
    new Promise((done) => {
      const own = Object.fromEntries(Object.entries({ ...env, ...more }).filter(([, value]) => value !== undefined));
      const child = spawn("nsenter", [...within, process.execPath, program, ...args], {
        env: own,
        stdio: ["ignore", "pipe", "pipe"],
      });
      let out = "";
      let err = "";
      child.stdout.setEncoding("utf8").on("data", (piece: string) => (out += piece));
      child.stderr.setEncoding("utf8").on("data", (piece: string) => (err += piece));
      child.once("close", (status, signal) => done({ status, signal, out, err }));
    });
  const failed = (args: readonly string[], { status, out, err }: Ended): Error =>
    new Error(`drover ${args.join(" ")} ended with ${status}\n${out}\n${err}\n${systemctl("status").out}\n${said}`);
  const close = async (): Promise<void> => {
    await endChild(manager);
    endPids(processesOf(folder));
    await until(() => processesOf(folder).length === 0, "nothing of the manager is left");
    spawnSync("unshare", ["--mount", "--propagation", "private", "sh", "-c", SWEEP, "sweep", pid]);
    rmSync(join(folder, ".."), { recursive: true, force: true, maxRetries: 5 });
  };
  try {
    await until(() => {
      if (manager.exitCode !== null) throw new Error(`the manager ended with ${manager.exitCode}: ${said}`);
      return systemctl("is-system-running").out.trim() === "running";
    }, "the user manager answers");
  } catch (error) {
    await close();
    throw error;
  }
  return {
    folder,
    home,
    env,
    run,
    systemctl,
    close,
    async json<T>(program: string, args: readonly string[]) {
      const ended = await run(program, withJson(args));
      if (ended.status !== 0) throw failed(args, ended);
      return JSON.parse(ended.out) as T;
    },
    async refused(status, program, args) {
      const ended = await run(program, withJson(args));
      if (ended.status !== status) throw failed(args, ended);
      return (JSON.parse(ended.err.trim().split("\n").at(-1) ?? "") as { error: ErrorBody }).error;
    },
  };
}

/** Whether a process is there, and is no zombie. */
export function isAlive(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch {
    return false; // gone
  }
}
