/**
 * A newcomer's hour, with the package as npm installs it and a home where nothing is: install, a first loop, loops from a
 * file, a mistake and the way out of it that drover itself names, a backup, everything lost, and the same history again.
 */
import { spawn, spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { endPids } from "../children.ts";
import { processesOf, until } from "./drover.ts";

const root = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const NPM_PATIENCE_MS = 240_000;
const COMMAND_PATIENCE_MS = 60_000;
/** From here on SQLite comes with Node. */
const NODE_WITH_SQLITE = 24;
const ADDON = "better-sqlite3/build/Release/better_sqlite3.node";

let folder = "";
const at = (...parts: string[]): string => join(folder, ...parts);
const home = (...parts: string[]): string => at("home", ...parts);

/** What a terminal of this person has: nothing of drover but its program. */
const environment = (): Record<string, string> => ({
  PATH: `${at("prefix/bin")}:${dirname(process.execPath)}:/usr/local/bin:/usr/bin:/bin`,
  HOME: home(),
  LANG: "C.UTF-8",
  TZ: "UTC",
});

interface Ended {
  readonly status: number | null;
  readonly out: string;
  readonly err: string;
}

/** Types a line. */
function type(line: string, cwd = home()): Promise<Ended> {
  const child = spawn("/bin/sh", ["-c", line], { cwd, env: environment(), stdio: ["ignore", "pipe", "pipe"] });
  let out = "";
  let err = "";
  child.stdout.setEncoding("utf8").on("data", (piece: string) => (out += piece));
  child.stderr.setEncoding("utf8").on("data", (piece: string) => (err += piece));
  const timer = setTimeout(() => child.kill("SIGKILL"), COMMAND_PATIENCE_MS);
  return new Promise((done) => {
    child.once("close", (status) => {
      clearTimeout(timer);
      done({ status, out, err });
    });
  });
}

/** Types a line that has to work. */
async function works(line: string, cwd?: string): Promise<string> {
  const { status, out, err } = await type(line, cwd);
  if (status !== 0) throw new Error(`${line} ended with ${status}\n${out}\n${err}`);
  return out;
}

const asJson = async <T>(line: string): Promise<T> => JSON.parse(await works(`${line} --json`)) as T;

/** Installs the package into an empty prefix; where npm cannot fetch what it depends on, this checkout's packages stand in. */
function install(): void {
  mkdirSync(home(), { recursive: true });
  const npm = (args: readonly string[]): Ended => {
    const { status, stdout, stderr } = spawnSync("npm", args, {
      cwd: root,
      encoding: "utf8",
      timeout: NPM_PATIENCE_MS,
      env: { ...process.env, npm_config_fund: "false", npm_config_audit: "false", npm_config_update_notifier: "false" },
    });
    return { status, out: stdout, err: stderr };
  };
  // What is packed was built for this test run already; packing would build it anew under other tests' feet.
  const packed = npm(["pack", "--ignore-scripts", "--pack-destination", folder]);
  if (packed.status !== 0) throw new Error(`npm pack ended with ${packed.status}\n${packed.err}`);
  const tarball = at(packed.out.trim().split("\n").at(-1) ?? "");
  const modules = at("prefix/lib/node_modules");
  const installed = npm([
    "install",
    "--global",
    "--prefix",
    at("prefix"),
    "--prefer-offline",
    "--ignore-scripts",
    tarball,
  ]);
  if (installed.status !== 0) {
    process.stderr.write(`npm fetched nothing, the packages of this checkout stand in:\n${installed.err}\n`);
    mkdirSync(at("prefix/bin"), { recursive: true });
    mkdirSync(modules, { recursive: true });
    spawnSync("tar", ["-xzf", tarball, "-C", modules]);
    cpSync(join(modules, "package"), join(modules, "drover"), { recursive: true });
    spawnSync("ln", ["-s", join(root, "node_modules"), join(modules, "drover/node_modules")]);
    spawnSync("ln", ["-s", join(modules, "drover/dist/drover.js"), at("prefix/bin/drover")]);
  } else if (Number(process.versions.node.split(".")[0]) < NODE_WITH_SQLITE) {
    // What an install compiles in a minute has been compiled for this very Node.
    const addon = join(modules, "drover/node_modules", ADDON);
    if (!existsSync(addon)) {
      mkdirSync(dirname(addon), { recursive: true });
      copyFileSync(join(root, "node_modules", ADDON), addon);
    }
  }
}

beforeAll(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "drover-newcomer-")));
  install();
}, NPM_PATIENCE_MS * 2);

afterAll(async () => {
  await type("drover down --stop-runs");
  endPids(processesOf(folder));
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
});

interface Slot {
  readonly at: string;
  readonly outcome: string | null;
  readonly runId: string | null;
}
interface Run {
  readonly id: string;
  readonly status: string;
  readonly loop: string | null;
  readonly error: { readonly class: string; readonly message: string } | null;
}
interface List<T> {
  readonly items: readonly T[];
}

const runsOf = async (loop: string): Promise<readonly Run[]> =>
  (await asJson<List<Run>>(`drover runs --loop ${loop}`)).items;
const ended = (run: Run): boolean => !["queued", "running", "waiting"].includes(run.status);

/** Runs a loop now, and answers the run when it has ended. */
async function runNow(loop: string): Promise<Run> {
  const { runId } = await asJson<{ runId: string }>(`drover loop run ${loop} --detach`);
  const show = () => asJson<Run>(`drover show ${runId}`);
  await until(async () => ended(await show()), `the run ${runId} of ${loop} ends`);
  return show();
}

/** All that a person can see of what was and of what is set. */
async function history(): Promise<Record<string, unknown>> {
  const runs = await asJson<List<Run>>("drover runs --limit 1000");
  const loops = await asJson<List<{ readonly name: string }>>("drover loop ls");
  return {
    runs: runs.items,
    shown: await Promise.all(runs.items.slice(0, 5).map((run) => asJson(`drover show ${run.id}`))),
    // A home that was wiped is another host, and what is restored on it works there.
    loops: loops.items.map((loop) => ({ ...loop, hostPin: null })),
    slots: await Promise.all(loops.items.map(({ name }) => asJson(`drover loop slots ${name}`))),
    limits: await asJson("drover limit ls"),
  };
}

test("from an install to the same history after a loss", { timeout: 400_000 }, async () => {
  // An empty home: it says what it is and what it lacks, and makes nothing.
  expect(await works("drover --version")).toMatch(/^drover \d+\.\d+\.\d+\n$/);
  expect(await works("drover --help")).toContain("drover");
  expect(await works("drover status")).toMatch(/daemon +down/);
  expect(readdirSync(home())).toEqual([]);

  // A first loop, and what it printed.
  await works("drover up");
  await works("drover loop add hello --every 1s -- echo good morning");
  const first = await until(
    async () =>
      (await asJson<List<Slot>>("drover loop slots hello")).items.find(({ outcome }) => outcome === "succeeded"),
    "a slot of the first loop succeeds",
  );
  expect(await works(`drover logs ${first?.runId}`)).toBe("good morning\n");
  expect(await works(`drover why ${first?.runId}`)).toContain("succeeded");
  await works("drover loop pause hello");

  // A file of loops.
  const project = home("project");
  const file = join(project, "drover.yaml");
  mkdirSync(project);
  const declared = (command: string): string =>
    `version: 1\nloops:\n  nightly:\n    cron: "30 2 * * *"\n    tz: Etc/UTC\n    command: ${command}\n    labels: [reports]\n`;
  writeFileSync(file, declared('[sh, -c, "echo written > report.txt"]'));
  expect(await works(`drover apply ${file} --dry-run`)).toContain("nightly");
  expect((await asJson<List<{ name: string }>>("drover loop ls")).items.map(({ name }) => name)).toEqual(["hello"]);
  expect(await works(`drover apply ${file}`)).toContain("nightly");
  expect((await runNow("nightly")).status).toBe("succeeded");
  expect(readFileSync(join(project, "report.txt"), "utf8")).toBe("written\n");

  // An edit with a slip in it is not taken, and its place is named.
  writeFileSync(file, declared("[pyton, report.py]"));
  const refused = await type("drover apply drover.yaml", project);
  expect(refused.status).toBe(3);
  expect(refused.err).toMatch(/drover\.yaml:6:\d+: .*pyton/);
  // One whose mistake shows only when it runs, applied from where the person stands.
  writeFileSync(file, declared('[sh, -c, "sleep 600; echo late > report.txt"]\n    timeout: 300ms'));
  expect(await works("drover apply drover.yaml", project)).toContain("timeout");
  const failed = await runNow("nightly");
  expect(failed).toMatchObject({ status: "timed_out", error: { class: "timeout" } });

  // The way out is named: the file that says it, and the command that makes it so.
  const command = `drover apply ${file}`;
  for (const line of [`drover why ${failed.id}`, `drover why nightly`, `drover show ${failed.id}`]) {
    const said = (await works(line)).replace(/\s+/g, " ");
    expect(said, line).toContain(file);
    expect(said, line).toContain(`\`${command}\``);
  }
  writeFileSync(file, declared('[sh, -c, "echo mended > report.txt"]\n    timeout: 5m'));
  expect(await works(command)).toContain("nightly");
  expect((await runNow("nightly")).status).toBe("succeeded");
  expect(readFileSync(join(project, "report.txt"), "utf8")).toBe("mended\n");
  expect(await works(command)).toMatch(/unchanged/);

  // A backup, and then everything is gone but that one file and the project.
  const saved = home("drover-backup.db");
  // What was planned just before the pause waits with its loop, and a restore would end it.
  for (const run of await runsOf("hello")) if (!ended(run)) await works(`drover cancel ${run.id}`);
  await works(`drover backup ${saved}`);
  await works("drover down");
  const before = await history();
  expect((before["runs"] as readonly Run[]).length).toBeGreaterThanOrEqual(4);
  expect(await runsOf("nightly")).toHaveLength(3);
  for (const name of readdirSync(home()))
    if (!["project", "drover-backup.db"].includes(name)) rmSync(home(name), { recursive: true });
  expect(await works("drover runs")).not.toContain("nightly");

  // The same history, and it goes on.
  await works(`drover restore ${saved} --yes`);
  expect(await history()).toEqual(before);
  await works("drover up");
  expect((await runNow("nightly")).status).toBe("succeeded");
  expect(await runsOf("nightly")).toHaveLength(4);
  expect(await works(`drover why ${failed.id}`)).toContain("timed out");
});
