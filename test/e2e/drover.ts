/** Drives the built program as a person or a script would, in a home of its own. */
import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { openSqlite } from "../../src/store/sqlite-adapters.ts";
import { endPids } from "../children.ts";

/** The built program. */
export const PROGRAM = resolve(fileURLToPath(import.meta.url), "../../../dist/drover.js");
/** No command of a test takes longer, on a machine that does other things too. */
const PATIENCE_MS = 45_000;

export interface Ended {
  readonly status: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
}

export interface Started {
  readonly pid: number;
  readonly ended: Promise<Ended>;
  /** What it has printed so far. */
  out(): string;
  signal(name: NodeJS.Signals): void;
}

export interface Home {
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  /** Runs a command to its end. */
  run(args: readonly string[], options?: CommandOptions): Promise<Ended>;
  /** The same, and its standard output as JSON; fails when it did not end with 0. */
  json<T = Record<string, unknown>>(args: readonly string[], options?: CommandOptions): Promise<T>;
  /** The error's document of a command that has to fail with that status. */
  refused(status: number, args: readonly string[], options?: CommandOptions): Promise<ErrorBody>;
  start(args: readonly string[], options?: CommandOptions): Started;
  /** All rows of the store, table by table. */
  dump(): string;
  close(): Promise<void>;
}

export interface CommandOptions {
  readonly env?: Readonly<Record<string, string | undefined>>;
  readonly cwd?: string;
  readonly input?: string;
  /** Another build of the program. */
  readonly program?: string;
}

export interface ErrorBody {
  readonly code: string;
  readonly message: string;
  readonly hint?: string;
  readonly path?: string;
}

/** A home of its own; `close` ends its daemon and every process of its runs, and fails when one is left. */
export function openHome({
  prefix = "drover-e2e-",
  env: more = {},
}: {
  prefix?: string;
  env?: Record<string, string>;
} = {}): Home {
  const folder = mkdtempSync(join(tmpdir(), prefix));
  const env = {
    PATH: process.env["PATH"] ?? "/usr/bin:/bin",
    HOME: folder,
    LANG: "C.UTF-8",
    TZ: "UTC",
    DROVER_HOME: join(folder, "home"),
    ...more,
  };
  const start = (
    args: readonly string[],
    { env: own = {}, cwd = folder, input, program = PROGRAM }: CommandOptions = {},
  ): Started => {
    const merged = Object.fromEntries(Object.entries({ ...env, ...own }).filter(([, value]) => value !== undefined));
    const child = spawn(process.execPath, [program, ...args], { cwd, env: merged, stdio: ["pipe", "pipe", "pipe"] });
    let out = "";
    let err = "";
    child.stdout.setEncoding("utf8").on("data", (piece: string) => (out += piece));
    child.stderr.setEncoding("utf8").on("data", (piece: string) => (err += piece));
    child.stdin.on("error", () => {}); // it may end without reading
    child.stdin.end(input ?? "");
    const timer = setTimeout(() => child.kill("SIGKILL"), PATIENCE_MS);
    const ended = new Promise<Ended>((done) => {
      child.once("close", (status, signal) => {
        clearTimeout(timer);
        done({ status, signal, out, err });
      });
    });
    return { pid: child.pid ?? -1, ended, out: () => out, signal: (name) => child.kill(name) };
  };
  const run = async (args: readonly string[], options?: CommandOptions) => {
    const ended = await start(args, options).ended;
    checkEnd(args, ended);
    return ended;
  };
  const said = (args: readonly string[], { status, out, err }: Ended): string =>
    `drover ${args.join(" ")} ended with ${status}\n${out}\n${err}`;
  return {
    folder,
    env,
    start,
    run,
    async json<T>(args: readonly string[], options?: CommandOptions) {
      const ended = await run(withJson(args), options);
      if (ended.status !== 0) throw new Error(said(args, ended));
      return JSON.parse(ended.out) as T;
    },
    async refused(status, args, options) {
      const ended = await run(withJson(args), options);
      if (ended.status !== status) throw new Error(said(args, ended));
      return (JSON.parse(ended.err.trim().split("\n").at(-1) ?? "") as { error: ErrorBody }).error;
    },
    dump() {
      const connection = openSqlite(join(folder, "home/drover.db"), { readOnly: true });
      try {
        const names = connection.query(
          "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name",
          [],
          0,
        );
        return names.rows
          .map((row) => {
            const { name } = row as { name: string };
            return `${name}\n${connection
              .query(`select * from ${name} order by 1, 2`, [], 0)
              .rows.map((one) => JSON.stringify(one))
              .join("\n")}`;
          })
          .join("\n");
      } finally {
        connection.close();
      }
    },
    async close() {
      const down = await run(["down", "--stop-runs"]);
      try {
        if (down.status !== 0) throw new Error(said(["down"], down));
        await until(() => processesOf(folder).length === 0, `no process of ${folder} is left`);
      } finally {
        endPids(processesOf(folder));
        rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
      }
    },
  };
}

const kept = resolve(fileURLToPath(import.meta.url), "../../golden");
/** Statuses by command, as the contract has them. */
const exits = new Map(
  readdirSync(kept).map((file) => [
    file.replace(/\.json$/, ""),
    (JSON.parse(readFileSync(join(kept, file), "utf8")) as { exits: readonly number[] }).exits,
  ]),
);
const codes = new Set(
  [
    ...readFileSync(resolve(fileURLToPath(import.meta.url), "../../../docs/reference/errors.md"), "utf8").matchAll(
      /^\| `(\w+)`/gm,
    ),
  ].map(([, code = ""]) => code),
);

/** Whatever a test is about: a command ends as its contract says, and its error is one of the reference. */
function checkEnd(args: readonly string[], { status, err }: Ended): void {
  const [first = "", second = ""] = args.filter((word) => word !== "--json");
  const allowed = exits.get(`${first}.${second}`) ?? exits.get(first);
  if (status !== null && allowed !== undefined && !allowed.includes(status))
    throw new Error(
      `drover ${args.join(" ")} ended with ${status}, which its contract does not have: say it in \`raises\` of the operation\n${err}`,
    );
  const code = /^\{"error":\{"code":"(\w+)"/m.exec(err)?.[1];
  if (code !== undefined && !codes.has(code))
    throw new Error(`the error ${code} is not in docs/reference/errors.md: scripts/errors.mjs does not find it`);
}

/** `--json` in front of what belongs to a command that is run. */
export function withJson(args: readonly string[]): string[] {
  const at = args.indexOf("--");
  return at === -1 ? [...args, "--json"] : [...args.slice(0, at), "--json", ...args.slice(at)];
}

/** Live processes whose environment or command line names the folder: daemons, shims, commands. */
export function processesOf(folder: string): number[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .map(Number)
    .filter((pid) => {
      try {
        if (/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"))) return false;
        return [`/proc/${pid}/environ`, `/proc/${pid}/cmdline`].some((file) =>
          readFileSync(file, "latin1").includes(folder),
        );
      } catch {
        return false; // it has ended, or it is somebody else's
      }
    });
}

/** Waits until a condition holds; fails with what was waited for. */
export async function until<T>(condition: () => T | Promise<T>, what: string, patienceMs = 30_000): Promise<T> {
  const deadline = performance.now() + patienceMs;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (performance.now() > deadline) throw new Error(`waited in vain: ${what}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}
