import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type LogLine, openDaemonLog } from "./daemon-log.ts";

let folder: string;
let file: string;
let now = 0;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-log-"));
  file = join(folder, "logs/daemon.log");
  now = Date.UTC(2026, 0, 1);
});
afterEach(() => rmSync(folder, { recursive: true }));

const lines = (): LogLine[] =>
  readFileSync(file, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as LogLine);

test("B-030 a million equal errors are two lines", () => {
  const log = openDaemonLog({ file, now: () => now });
  for (let nth = 0; nth < 1_000_000; nth++) log.write("error", "mishap", { message: "no" });
  log.close();
  expect(lines()).toEqual([
    { at: "2026-01-01T00:00:00.000Z", level: "error", event: "mishap", data: { message: "no" } },
    { at: "2026-01-01T00:00:00.000Z", level: "error", event: "mishap", data: { message: "no" }, repeated: 999_999 },
  ]);
});

test("B-030 errors that take turns are folded too, and told again after a while", () => {
  const log = openDaemonLog({ file, now: () => now, foldMs: 1_000 });
  for (let nth = 0; nth < 100; nth++) log.write("warn", nth % 2 === 0 ? "even" : "odd");
  now += 1_000;
  log.write("warn", "even");
  log.close();
  expect(lines().map(({ event, repeated }) => [event, repeated ?? 0])).toEqual([
    ["even", 0],
    ["odd", 0],
    ["even", 49],
    ["even", 0],
    ["odd", 49],
  ]);
});

test("B-030 different errors stay within the files' size", () => {
  const log = openDaemonLog({ file, now: () => now, maxBytes: 10_000, keep: 2 });
  for (let nth = 0; nth < 5_000; nth++) log.write("error", "mishap", { nth });
  log.close();
  const names = readdirSync(join(folder, "logs")).toSorted();
  expect(names).toEqual(["daemon.log", "daemon.log.1", "daemon.log.2"]);
  for (const name of names) expect(statSync(join(folder, "logs", name)).size).toBeLessThan(10_200);
  expect(lines().at(-1)?.data).toEqual({ nth: 4_999 });
});

test("a line is cut rather than endless, and stays JSON", () => {
  const log = openDaemonLog({ file, now: () => now });
  log.write("error", "mishap", { message: "x".repeat(1_000_000) });
  log.close();
  expect(readFileSync(file, "utf8").length).toBeLessThan(20_000);
  expect(lines()[0]?.event).toBe("mishap");
});

test("the file is for its owner alone, and goes on after a restart", () => {
  const first = openDaemonLog({ file, now: () => now });
  first.write("info", "up");
  first.close();
  const second = openDaemonLog({ file, now: () => now });
  second.write("info", "up");
  second.close();
  expect(lines()).toHaveLength(2);
  expect(statSync(file).mode & 0o777).toBe(0o600);
});
