import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

/** Longest time of one bench with tiny sizes; on a quiet machine each takes some seconds. */
const LIMIT_MS = 400_000;

/** A bench of tiny sizes, on the program that is built for these tests: what it prints, and how it ended. */
function bench(name: string) {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["scripts/bench.mjs", name, "--built", "--tiny"], {
    encoding: "utf8",
    timeout: LIMIT_MS,
  });
  return { status, lines: stdout.split("\n"), stderr };
}

// Speeds are no test's business: that each bench works, and holds every bar that it is about against something, is.
test.each([
  ["starts", ["P4", "P11"]],
  ["steps", ["P1", "P1b", "P2"]],
  ["loops", ["P5"]],
  ["output", ["P7"]],
  ["seeing", ["P8"]],
  ["attempts", ["P3"]],
  ["cold", ["P9"]],
  ["restart", ["P10"]],
  ["idle", ["P12"]],
])("the bench %s says something of each of its bars", { timeout: LIMIT_MS }, (name, bars) => {
  const { status, lines, stderr } = bench(name);
  expect(stderr.replaceAll(/^round .*$/gm, "").trim()).toBe("");
  expect(status).toBe(0);
  for (const bar of bars) {
    const held = lines.filter((line) => line.startsWith(`${bar} `));
    expect(held.length, bar).toBeGreaterThan(0);
    for (const line of held) expect(line).toMatch(/ at (?:most|least) [\d.]+(?: times)?: not judged$/);
  }
});

test("a bench that is not there is told with those that are", () => {
  const { status, lines, stderr } = bench("p99");
  expect(status).toBe(2);
  expect(stderr).toContain("there is no bench p99");
  expect(lines.filter((line) => /^\w+: P\d/.test(line)).length).toBeGreaterThan(3);
});
