// @ts-check
/**
 * The agent command lines that the tests run, in `test/agents/node_modules`: about 800 MB, so no part of what everybody installs.
 *
 *   node scripts/agents.mjs     installs them unless they are there in the versions of test/agents/package.json
 */
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { npm, root, staleness } from "./install.mjs";

const FOLDER = "test/agents";

/** A command line that has not said its version by then will not. */
const VERSION_LIMIT_MS = 60_000;

/** Programs, and the package whose version each has to say. */
const PROGRAMS = { claude: "@anthropic-ai/claude-code", codex: "@openai/codex" };

/** @param {string} file */
const readJson = (file) => (existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : undefined);

/** Where their programs are. */
export const agentsBin = join(root, FOLDER, "node_modules/.bin");

/**
 * What keeps the tests from running the real command lines, in one sentence; undefined when nothing does.
 * A program is asked: a file that is there can lack the native part that it starts.
 * @returns {string | undefined}
 */
export function agentsMissing() {
  const { dependencies } = readJson(join(root, FOLDER, "package.json"));
  for (const [program, name] of Object.entries(PROGRAMS)) {
    const { status, stdout } = spawnSync(join(agentsBin, program), ["--version"], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
      timeout: VERSION_LIMIT_MS,
    });
    const wanted = dependencies[name];
    if (status !== 0) return `${program} ${wanted} is not installed in ${FOLDER} (node scripts/agents.mjs)`;
    if (!stdout.split(/\s+/).includes(wanted)) return `${program} in ${FOLDER} says ${stdout.trim()}, not ${wanted}`;
  }
  return undefined;
}

/** Installs them if any is missing or of another version, and makes sure that each runs. */
export function installAgents() {
  const stale = staleness(
    readJson(join(root, FOLDER, "package-lock.json")),
    readJson(join(root, FOLDER, "node_modules/.package-lock.json")),
  );
  if (stale.length > 0) {
    console.log(`installing ${Object.values(PROGRAMS).join(" and ")} for tests into ${FOLDER}, about 800 MB`);
    npm(["ci", "--prefix", FOLDER], false);
  }
  const missing = agentsMissing();
  if (missing !== undefined) throw new Error(missing);
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) installAgents();
