// @ts-check
/** The parts of `npm run check` and `npm test`, and how they are run and counted. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root } from "./install.mjs";

/** No part takes longer: CI ends everything after 90 minutes without saying which one it was. */
const PART_LIMIT_MS = 60 * 60_000;

/**
 * @typedef {object} Part
 * @property {string} name
 * @property {readonly string[]} command a program of `node_modules/.bin` and its arguments
 * @property {Readonly<Record<string, string>>} [env]
 */

/** What needs no test run, quickest first. @type {readonly Part[]} */
export const staticParts = [
  { name: "format", command: ["biome", "format", "."] },
  { name: "types", command: ["tsc", "--noEmit", "--pretty", "false", "-p", "."] },
  { name: "lint", command: ["oxlint", "src"] },
  { name: "unused", command: ["knip", "--no-progress"] },
];

/** @typedef {{ passed: number, failed: number, skipped: number }} Count */

/**
 * Runs a part to its end, shows what it prints, and then its time.
 * @param {Part} part
 * @returns {boolean} whether it passed
 */
export function runPart({ name, command, env }) {
  const [program = "", ...args] = command;
  const startedAt = performance.now();
  console.log(`-- ${name}`);
  // By this Node, whichever one the PATH would find.
  const { status, error } = spawnSync(process.execPath, [join(root, "node_modules/.bin", program), ...args], {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ["ignore", "inherit", "inherit"],
    timeout: PART_LIMIT_MS,
    killSignal: "SIGKILL",
  });
  if (error) console.error(error.message);
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
  console.log(`-- ${name}: ${status === 0 ? "passed" : "FAILED"}, ${seconds} s`);
  return status === 0;
}

/**
 * Counts a run of vitest from its report. What failed without being a test counts as one failure: a file that could not
 * be loaded, an error outside of any test, a run without a report.
 * @param {{ passed: boolean, report: VitestReport | undefined }} run
 * @returns {Count}
 *
 * @typedef {{ numPassedTests: number, numFailedTests: number, numPendingTests: number, numTodoTests: number,
 *   testResults: readonly { status: string, assertionResults: readonly { status: string }[] }[] }} VitestReport
 */
export function countTests({ passed, report }) {
  if (report === undefined) return { passed: 0, failed: 1, skipped: 0 };
  const brokenFiles = report.testResults.filter(
    (file) => file.status === "failed" && !file.assertionResults.some(({ status }) => status === "failed"),
  ).length;
  const failed = report.numFailedTests + brokenFiles;
  return {
    passed: report.numPassedTests,
    failed: failed === 0 && !passed ? 1 : failed,
    skipped: report.numPendingTests + report.numTodoTests,
  };
}

/**
 * Counts a run of vitest from the file that it left, if it left one.
 * @param {string} file
 * @param {boolean} passed whether vitest ended with 0
 * @returns {Count}
 */
export function readReport(file, passed) {
  return countTests({ passed, report: existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : undefined });
}

/**
 * Runs vitest and counts its tests.
 * @param {string} name
 * @param {readonly string[]} args
 * @param {Readonly<Record<string, string>>} [env]
 * @returns {Count}
 */
export function runTests(name, args, env = {}) {
  const file = join(root, ".cache", `report-${process.pid}.json`);
  mkdirSync(join(root, ".cache"), { recursive: true });
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${file}`];
  const passed = runPart({ name, command: ["vitest", "run", ...reporters, ...args], env });
  try {
    return readReport(file, passed);
  } finally {
    rmSync(file, { force: true });
  }
}

/**
 * The closing line, in the form that CI reads.
 * @param {Count} count
 */
export function closingLine({ passed, failed, skipped }) {
  return `${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`;
}
