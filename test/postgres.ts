/** Throw-away PostgreSQL clusters: no port, no trace, gone with the one who started them. */
import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface Cluster {
  /** Address of the database `postgres`, over a socket; the user is a superuser without password. */
  readonly url: string;
  /** Ends the server at once and removes its folder. Repeating it does nothing. */
  stop(): Promise<void>;
  /** Ends the server as a crash would, nothing flushed: the whole process tree killed, or by `SIGQUIT`, an `immediate` stop. */
  crash(how?: "SIGKILL" | "SIGQUIT"): void;
  /** Starts it again after a crash. */
  restart(): void;
}

export interface ClusterOptions {
  /**
   * Flushes as in production, for tests that crash the server; off by default. `crash`: what was committed survives the
   * death of the server, not that of the machine, and a restart does not flush the whole folder first.
   */
  readonly durable?: boolean | "crash";
  /** Folder of `initdb` and `pg_ctl`; found when not given. */
  readonly binaries?: string;
}

/** Where `initdb` is: what `pg_config` says, else Debian's newest, else the path; null when there is none. */
export function findPostgres(): string | null {
  const told = spawnSync("pg_config", ["--bindir"], { encoding: "utf8" });
  const candidates = [
    process.env["DROVER_TEST_POSTGRES_BIN"],
    told.status === 0 ? told.stdout.trim() : undefined,
    ...debianFolders(),
    ...(process.env["PATH"] ?? "").split(":"),
  ];
  return (
    candidates.find((folder) => folder !== undefined && folder !== "" && existsSync(join(folder, "initdb"))) ?? null
  );
}

function debianFolders(): string[] {
  const versions = "/usr/lib/postgresql";
  if (!existsSync(versions)) return [];
  return readdirSync(versions)
    .toSorted((a, b) => Number(b) - Number(a))
    .map((version) => join(versions, version, "bin"));
}

const accountOf = (name: string): { readonly uid: number; readonly gid: number } => {
  const id = (flag: string): number => Number(execFileSync("id", [flag, name], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
};

/**
 * Ends a cluster when this process has ended, however it did: a shell of its own waits for the end of a pipe that only we
 * hold open. Answers how to let go of it.
 */
function guard(stop: readonly string[], folder: string): () => void {
  const shell = spawn(
    "/bin/sh",
    ["-c", 'cat >/dev/null; folder=$1; shift; "$@"; rm -rf "$folder"', "sh", folder, ...stop],
    {
      cwd: "/",
      detached: true,
      stdio: ["pipe", "ignore", "ignore"],
    },
  );
  shell.unref();
  (shell.stdin as unknown as { unref(): void }).unref();
  return () => shell.stdin.end();
}

/**
 * Starts a cluster of its own on a socket in a short temporary folder. PostgreSQL refuses to run as root; there it runs as
 * the user `postgres`. Takes about two seconds.
 */
export async function startPostgres({
  durable = false,
  binaries = findPostgres() ?? undefined,
}: ClusterOptions = {}): Promise<Cluster> {
  if (binaries === undefined) throw new Error("PostgreSQL is not installed: no initdb was found");
  const folder = mkdtempSync(join(tmpdir(), "dpg-"));
  const asRoot = process.getuid?.() === 0;
  const user = asRoot ? "postgres" : undefined;
  if (user !== undefined) {
    const { uid, gid } = accountOf(user);
    chownSync(folder, uid, gid);
  }
  chmodSync(folder, 0o700);
  const data = join(folder, "data");
  const commandOf = (program: string, args: readonly string[]): readonly string[] => {
    const command = [join(binaries, program), ...args];
    return user === undefined
      ? command
      : ["setpriv", `--reuid=${user}`, `--regid=${user}`, "--init-groups", ...command];
  };
  const run = (program: string, args: readonly string[]): void => {
    const [file = "", ...rest] = commandOf(program, args);
    // The server inherits what it is given, so its output must not be a pipe that somebody reads to its end.
    const { status, error } = spawnSync(file, rest, {
      cwd: "/",
      stdio: "ignore",
      env: { PATH: process.env["PATH"] ?? "", LC_ALL: "C" },
    });
    if (status !== 0) throw new Error(`${program} failed (${error?.message ?? status}); ${logTail()}`);
  };
  const logTail = (): string => {
    const log = join(folder, "log");
    return existsSync(log) ? readFileSync(log, "utf8").slice(-2000) : "it wrote no log";
  };
  const unsafe =
    durable === true
      ? ""
      : ` -c fsync=off${durable === "crash" ? "" : " -c synchronous_commit=off -c full_page_writes=off"}`;
  const start = (): void =>
    run("pg_ctl", [
      "-D",
      data,
      "-w",
      "-t",
      "60",
      "-l",
      join(folder, "log"),
      "-o",
      `-c listen_addresses='' -k ${folder} -c max_connections=200 -c shared_buffers=32MB -c max_prepared_transactions=0${unsafe}`,
      "start",
    ]);
  const serverPid = (): number | null => {
    const file = join(data, "postmaster.pid");
    const pid = existsSync(file) ? Number(readFileSync(file, "utf8").split("\n")[0]) : 0;
    return pid > 1 ? pid : null;
  };
  const stopArguments = ["-D", data, "-w", "-m", "immediate", "stop"];
  const release = guard(commandOf("pg_ctl", stopArguments), folder);
  let ended = false;
  const end = (): void => {
    if (ended) return;
    ended = true;
    try {
      if (serverPid() !== null) run("pg_ctl", stopArguments);
    } finally {
      rmSync(folder, { recursive: true, force: true });
      release();
    }
  };
  try {
    run("initdb", [
      "-D",
      data,
      "-U",
      "postgres",
      "-A",
      "trust",
      "-E",
      "UTF8",
      "--locale=C",
      ...(durable ? [] : ["--no-sync"]),
    ]);
    start();
  } catch (error) {
    end();
    throw error;
  }
  return {
    url: `postgres://postgres@localhost/postgres?host=${encodeURIComponent(folder)}`,
    async stop() {
      end();
    },
    crash(how = "SIGKILL") {
      const pid = serverPid();
      if (pid === null) return;
      // The others end by themselves when they see that their parent is gone.
      process.kill(pid, how);
      const endsAt = performance.now() + 10_000;
      while (worksIn(data)) {
        if (performance.now() > endsAt) throw new Error("the server's processes did not end");
        Atomics.wait(nap, 0, 0, 10);
      }
      // Nobody may have taken the dead server's exit status yet, and its number then still looks alive.
      rmSync(join(data, "postmaster.pid"), { force: true });
      rmSync(join(folder, ".s.PGSQL.5432.lock"), { force: true });
    },
    restart() {
      start();
    },
  };
}

const nap = new Int32Array(new SharedArrayBuffer(4));

/** Whether a process has this folder as its own: each process of a server has its data's. */
function worksIn(folder: string): boolean {
  return readdirSync("/proc").some((entry) => {
    if (!/^\d+$/.test(entry)) return false;
    try {
      return readlinkSync(join("/proc", entry, "cwd")) === folder;
    } catch {
      // It ended meanwhile, or is somebody else's.
      return false;
    }
  });
}

let made = 0;

/** Makes an empty database in a cluster and answers its address. */
export async function makeDatabase(
  url: string,
  name = `t${process.pid}_${++made}_${Date.now().toString(36)}`,
): Promise<string> {
  const { Client } = (await import("pg")).default;
  const client = new Client({ connectionString: url });
  client.on("error", () => {}); // what was asked for fails too
  await client.connect();
  try {
    await client.query(`create database "${name}"`);
  } finally {
    await client.end();
  }
  const address = new URL(url);
  address.pathname = `/${name}`;
  return address.href;
}
