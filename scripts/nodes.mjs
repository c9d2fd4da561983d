// @ts-check
/**
 * The store's suite, and the first steps of a new user, under other versions of Node: the driver below the store is another
 * one from 24 on, and compiled code belongs to one version.
 *
 *   node scripts/nodes.mjs     all of them, by themselves
 */
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, rmSync } from "node:fs";
import { basename, delimiter, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { npm, root } from "./install.mjs";
import { closingLine, readReport } from "./parts.mjs";

/** One release of each line that is supported beside the oldest, which runs everything. */
const VERSIONS = ["22.23.3", "24.21.0"];

/** An installation compiles for some minutes on a small machine; the suite takes less. */
const LIMIT_MS = 20 * 60_000;

/** What a run needs of the checkout. */
const CHECKOUT = ["src", "test", "scripts", "package.json", "package-lock.json", "tsconfig.json", "vitest.config.ts"];

/**
 * Brings a Node of that version into `.cache/` as the npm package that holds one platform's program and headers.
 * @param {string} version
 * @returns {string} the folder of the program
 */
function installNode(version) {
  const name = `node-${process.platform}-${process.arch}`;
  const folder = `.cache/node-${version}`;
  const bin = join(root, folder, "node_modules", name, "bin");
  mkdirSync(join(root, folder), { recursive: true });
  if (!existsSync(join(bin, "node"))) npm(["install", "--prefix", folder, "--no-save", `${name}@${version}`], false);
  return bin;
}

/**
 * Runs the suite under one version in a copy of the checkout, since installed packages belong to one version.
 * @param {string} version
 * @returns {import("./parts.mjs").Count}
 */
function runUnder(version) {
  const bin = installNode(version);
  const copy = join(root, `.cache/node-${version}/checkout`);
  mkdirSync(copy, { recursive: true });
  for (const name of CHECKOUT) {
    rmSync(join(copy, name), { recursive: true, force: true });
    if (!existsSync(join(root, name))) continue;
    cpSync(join(root, name), join(copy, name), {
      recursive: true,
      filter: (from) => basename(from) !== "node_modules",
    });
  }
  const report = join(copy, "report.json");
  rmSync(report, { force: true });
  const run = (/** @type {readonly string[]} */ args) =>
    spawnSync(join(bin, "node"), args, {
      cwd: copy,
      env: { ...process.env, NO_COLOR: "1", PATH: `${bin}${delimiter}${process.env["PATH"]}` },
      stdio: ["ignore", "inherit", "inherit"],
      timeout: LIMIT_MS,
      killSignal: "SIGKILL",
    }).status === 0;
  if (!run(["scripts/install.mjs"])) return { passed: 0, failed: 1, skipped: 0 };
  const vitest = join("node_modules/.bin/vitest");
  // The dots are followed by what failed, in words: the other report is only counted.
  const passed = run([
    vitest,
    "run",
    "--project",
    "store",
    "--reporter=dot",
    "--reporter=json",
    `--outputFile.json=${report}`,
  ]);
  const count = readReport(report, passed);
  if (existsSync(join(copy, "scripts/quickstart.mjs"))) {
    if (run(["scripts/quickstart.mjs"])) count.passed += 1;
    else count.failed += 1;
  }
  return count;
}

/**
 * Runs the suite under every other version and adds the counts up.
 * @returns {import("./parts.mjs").Count}
 */
export function runOnOtherNodes() {
  const total = { passed: 0, failed: 0, skipped: 0 };
  const major = process.versions.node.split(".")[0];
  for (const version of VERSIONS.filter((other) => other.split(".")[0] !== major)) {
    const startedAt = performance.now();
    console.log(`-- node ${version}`);
    let count = { passed: 0, failed: 1, skipped: 0 };
    try {
      count = runUnder(version);
    } catch (error) {
      console.error(error instanceof Error ? error.message : error);
    }
    console.log(`-- node ${version}: ${closingLine(count)}, ${((performance.now() - startedAt) / 1000).toFixed(1)} s`);
    total.passed += count.passed;
    total.failed += count.failed;
    total.skipped += count.skipped;
  }
  return total;
}

if (process.argv[1] && resolve(process.argv[1]) === fileURLToPath(import.meta.url)) {
  const count = runOnOtherNodes();
  console.log(closingLine(count));
  if (count.failed > 0) process.exitCode = 1;
}
