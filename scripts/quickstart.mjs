// @ts-check
/**
 * `npm run quickstart`: installs, builds, starts a daemon on a temporary home of its own, adds two loops of commands that
 * work on this very repository, and one with an agent where one is installed and logged in, shows their slots and logs, and stops everything. Ends with 0 only if all of it succeeded
 * and nothing is left.
 */
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { installPackages, root } from "./install.mjs";

/** Slots that each loop has to succeed in, and how long that may take on a busy machine. */
const WANTED_SLOTS = 2;
const PATIENCE_MS = 90_000;
const LOOK_MS = 500;

const program = join(root, "dist/drover.js");
const colour = process.stdout.isTTY && !process.env["NO_COLOR"];
/** @param {string} text */
const bold = (text) => (colour ? `\u001b[1m${text}\u001b[0m` : text);
/** @param {string} text */
const dim = (text) => (colour ? `\u001b[2m${text}\u001b[0m` : text);
/** @param {string} text */
const step = (text) => console.log(`\n${bold(text)}`);

/** A command of drover in the home of this script. @param {string} home @param {readonly string[]} args @param {boolean} shown */
function drover(home, args, shown) {
  if (shown)
    console.log(dim(`$ drover ${args.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word}'`)).join(" ")}`));
  const { status, stdout, error } = spawnSync(process.execPath, [program, ...args], {
    cwd: root,
    env: { ...process.env, DROVER_HOME: home, DROVER_STORE: "" },
    encoding: "utf8",
    stdio: ["ignore", shown ? "inherit" : "pipe", "inherit"],
  });
  if (error) throw error;
  if (status !== 0) throw new Error(`drover ${args[0]} ended with ${status}`);
  return stdout ?? "";
}

/** Processes that belong to the home. @param {string} home */
function processesOf(home) {
  if (!existsSync("/proc/self/environ")) return [];
  return readdirSync("/proc").filter((pid) => {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return false;
    try {
      if (/\) [ZX] /.test(readFileSync(`/proc/${pid}/stat`, "latin1"))) return false;
      return [`/proc/${pid}/environ`, `/proc/${pid}/cmdline`].some((file) =>
        readFileSync(file, "latin1").includes(home),
      );
    } catch {
      return false; // it has just ended, or is another user's
    }
  });
}

const pause = () => new Promise((done) => setTimeout(done, LOOK_MS));

/** How long an agent may take to say one sentence. */
const AGENT_PATIENCE_MS = 240_000;

/** One loop with an agent that is installed and logged in, on this repository and only reading; else why there is none. @param {string} home */
async function showAgent(home) {
  step("A loop that asks an agent");
  /** @type {{ provider: string, found: boolean | null, loggedIn: boolean | null, detail: string | null }[]} */
  const agents = JSON.parse(drover(home, ["agent", "ls", "--json"], false)).items;
  const able = agents.find((agent) => agent.found === true && agent.loggedIn === true);
  if (able === undefined) {
    for (const { provider, found, detail } of agents)
      if (provider !== "custom")
        console.log(
          `left out: ${provider} ${found === true ? `is not logged in${detail === null ? "" : ` (${detail})`}` : "is not installed"}`,
        );
    return;
  }
  const prompt = "Say in one sentence what this repository is.";
  const target = ["--agent", able.provider, "--permission", "read-only", "--worktree", "off", "--prompt", prompt];
  drover(home, ["loop", "add", "ask", "--at", "+0s", "--timeout", "3m", ...target], true);
  const deadline = performance.now() + AGENT_PATIENCE_MS;
  for (;;) {
    /** @type {{ outcome: string | null, runId: string | null }[]} */
    const slots = JSON.parse(drover(home, ["loop", "slots", "ask", "--json"], false)).items;
    const [slot] = slots;
    if (slot?.runId && slot.outcome !== null) {
      drover(home, ["logs", "--transcript", slot.runId], true);
      if (slot.outcome !== "succeeded") drover(home, ["why", slot.runId], true);
      return;
    }
    if (performance.now() > deadline) {
      // A limit or a provider that is away is no fault of this installation: it is said, and the run is cancelled.
      if (slot?.runId) drover(home, ["why", slot.runId], true);
      return;
    }
    await pause();
  }
}

/** What is shown. @param {string} home */
async function show(home) {
  step("Start the daemon");
  drover(home, ["up"], true);

  step("Add two loops that work on this repository");
  const loops = {
    "newest-commit": [
      "--every",
      "2s",
      "--",
      "git",
      "-c",
      `safe.directory=${root}`,
      "log",
      "-1",
      "--oneline",
      "--no-decorate",
    ],
    "source-lines": [
      "--every",
      "3s",
      "--shell",
      `git -c safe.directory='${root}' ls-files -z src | xargs -0 cat | wc -l`,
    ],
  };
  for (const [name, args] of Object.entries(loops)) drover(home, ["loop", "add", name, ...args], true);

  step(`Wait until each has succeeded ${WANTED_SLOTS} times`);
  const deadline = performance.now() + PATIENCE_MS;
  /** @param {string} name @returns {{ outcome: string | null, runId: string | null }[]} */
  const slotsOf = (name) => JSON.parse(drover(home, ["loop", "slots", name, "--json"], false)).items;
  const succeeded = (/** @type {string} */ name) => slotsOf(name).filter((slot) => slot.outcome === "succeeded");
  for (const name of Object.keys(loops)) {
    while (succeeded(name).length < WANTED_SLOTS) {
      const failed = slotsOf(name).find((slot) => slot.outcome === "failed" || slot.outcome === "timed_out");
      if (failed?.runId) drover(home, ["show", failed.runId], true);
      if (failed) throw new Error(`a slot of ${name} ${failed.outcome}`);
      if (performance.now() > deadline) throw new Error(`${name} has not succeeded ${WANTED_SLOTS} times in time`);
      await pause();
    }
    console.log(`${name}: done`);
  }

  step("What ran, and when");
  drover(home, ["loop", "ls"], true);
  for (const name of Object.keys(loops)) drover(home, ["loop", "slots", name], true);

  step("What they printed");
  for (const name of Object.keys(loops)) {
    const runId = succeeded(name)[0]?.runId;
    if (runId) drover(home, ["logs", runId], true);
  }

  step("Why one of them ran");
  drover(home, ["why", succeeded("newest-commit")[0]?.runId ?? ""], true);

  await showAgent(home);
}

async function main() {
  step("Install and build");
  installPackages({ selfContained: true });
  const { build } = await import("./build.mjs");
  const { version, buildId } = await build();
  console.log(`drover ${version} (${buildId})`);

  // The real path: it is what a process of the home shows.
  const home = mkdtempSync(join(realpathSync(tmpdir()), "drover-quickstart-"));
  let failure = /** @type {unknown} */ (null);
  try {
    await show(home);
  } catch (error) {
    failure = error;
    const log = join(home, "logs/daemon.log");
    if (existsSync(log)) console.error(readFileSync(log, "utf8").trimEnd().split("\n").slice(-20).join("\n"));
  }

  step("Stop everything");
  try {
    drover(home, ["down", "--stop-runs"], true);
  } catch (error) {
    failure ??= error;
  }
  const deadline = performance.now() + 10_000;
  while (processesOf(home).length > 0 && performance.now() < deadline) await pause();
  const left = processesOf(home);
  for (const pid of left) process.kill(Number(pid), "SIGKILL");
  if (left.length > 0) failure ??= new Error(`processes were left: ${left.join(", ")}`);
  rmSync(home, { recursive: true, force: true, maxRetries: 5 });
  if (existsSync(home)) failure ??= new Error(`${home} is left`);
  if (failure !== null) throw failure;
  console.log("no process and no file is left");

  step("It works. Next: README.md, `node dist/drover.js --help`");
}

try {
  await main();
} catch (error) {
  console.error(error instanceof Error ? `\nquickstart failed: ${error.message}` : error);
  process.exitCode = 1;
}
