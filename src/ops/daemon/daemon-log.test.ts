import { appendFileSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type LogLine, openDaemonLog } from "./daemon-log.ts";
import { followDaemonLog, readDaemonLog, type ReadLine } from "./daemon-log-read.ts";

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
    {
      at: "2026-01-01T00:00:00.000Z",
      level: "error",
      event: "mishap",
      data: { message: "no" },
      repeated: 999_999,
      until: "2026-01-01T00:00:00.000Z",
    },
  ]);
});

test("what was folded is told when the log is closed, with the time of the last one; a second close does nothing", () => {
  const log = openDaemonLog({ file, now: () => now });
  for (let nth = 0; nth < 42; nth++) {
    log.write("warn", "mishap");
    now += 1_000;
  }
  log.close();
  log.close();
  log.write("warn", "too late");
  expect(lines()).toMatchObject([
    { event: "mishap", at: "2026-01-01T00:00:00.000Z" },
    { event: "mishap", repeated: 41, until: "2026-01-01T00:00:41.000Z" },
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

describe("reading", () => {
  const text = (line: ReadLine): string => ("event" in line ? `${line.event} ${String(line.data["nth"])}` : line.text);
  const words = (from: number, to: number): string[] =>
    Array.from({ length: to - from }, (_, index) => `line ${from + index}`);

  test("all lines, or the last of them, are read across the files that were put aside", async () => {
    expect(await readDaemonLog(file, null)).toBeNull();
    const log = openDaemonLog({ file, now: () => now, maxBytes: 1_000, keep: 3 });
    for (let nth = 0; nth < 40; nth++) log.write("info", "line", { nth });
    expect(readdirSync(join(folder, "logs"))).toHaveLength(4);
    const all = (await readDaemonLog(file, null))?.map(text) ?? [];
    expect(all.length).toBeGreaterThan(20);
    expect(all).toEqual(words(40 - all.length, 40));
    for (const tail of [0, 1, 13, 1_000])
      expect((await readDaemonLog(file, tail))?.map(text)).toEqual(tail === 0 ? [] : all.slice(-tail));
    log.close();
  });

  test("a line that was torn, is empty or is none of ours is shown as it is", async () => {
    const log = openDaemonLog({ file, now: () => now });
    log.write("info", "line", { nth: 1 });
    log.close();
    appendFileSync(file, '\nnull\n{"at":7}\n{"at":"2026');
    expect((await readDaemonLog(file, null))?.map(text)).toEqual(["line 1", "null", '{"at":7}', '{"at":"2026']);
  });

  test("following loses and repeats nothing while files are put aside and removed", async () => {
    const log = openDaemonLog({ file, now: () => now, maxBytes: 2_000, keep: 5 });
    for (let nth = 0; nth < 30; nth++) log.write("info", "line", { nth });
    const stop = new AbortController();
    const seen: string[] = [];
    const following = (async () => {
      for await (const line of followDaemonLog(file, 5, stop.signal)) seen.push(text(line));
    })();
    const until = async (count: number): Promise<void> => {
      const deadline = performance.now() + 30_000;
      while (seen.length < count && performance.now() < deadline) await new Promise((done) => setTimeout(done, 10));
    };
    await until(5);
    expect(seen).toEqual(words(25, 30));
    // Put aside twice between two looks.
    for (let nth = 30; nth < 90; nth++) log.write("info", "line", { nth });
    await until(65);
    expect(seen).toEqual(words(25, 90));
    for (let nth = 90; nth < 100; nth++) {
      log.write("info", "line", { nth });
      await until(nth - 24);
    }
    expect(seen).toEqual(words(25, 100));
    log.close();
    rmSync(file);
    const next = openDaemonLog({ file, now: () => now });
    next.write("info", "line", { nth: 100 });
    await until(76);
    stop.abort();
    await following;
    expect(seen).toEqual(words(25, 101));
    next.close();
  });
});
