import { execFileSync } from "node:child_process";
import { appendFileSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ANEW_BYTES, type Bells, CHECK_MS, LOOK_BYTES, openBells } from "./bells.ts";

let folder: string;
let file: string;
let bells: Bells | undefined;
let rung: string[];
let said: string[];
const open = () => {
  bells = openBells(
    file,
    (message) => said.push(message),
    (name) => rung.push(name),
  );
};
const ring = (name: string) => appendFileSync(file, `${name}\n`);

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-bells-"));
  file = join(folder, "bells");
  [rung, said] = [[], []];
});
afterEach(() => {
  vi.useRealTimers();
  bells?.close();
  rmSync(folder, { recursive: true, force: true });
});

test("each line that is added rings once, in order; what was there before and what is half written does not", async () => {
  ring("att_old.1");
  open();
  ring("att_a.1");
  appendFileSync(file, "att_");
  await vi.waitFor(() => expect(rung).toEqual(["att_a.1"]));
  appendFileSync(file, "b.2\n");
  ring("att_c.1");
  await vi.waitFor(() => expect(rung).toEqual(["att_a.1", "att_b.2", "att_c.1"]));
});

test("a file that has grown is begun anew once it is read, and goes on ringing", async () => {
  open();
  const name = `att_${"x".repeat(200)}.1`;
  const count = Math.ceil(ANEW_BYTES / name.length);
  for (let i = 0; i < count; i++) ring(name);
  await vi.waitFor(() => expect(rung).toHaveLength(count));
  await vi.waitFor(() => expect(statSync(file).size).toBe(0));
  ring("att_after.1");
  await vi.waitFor(() => expect(rung.at(-1)).toBe("att_after.1"));
});

test("a file that somebody emptied goes on ringing", async () => {
  open();
  ring("att_a.1");
  await vi.waitFor(() => expect(rung).toHaveLength(1));
  writeFileSync(file, "");
  ring("b.1");
  await vi.waitFor(() => expect(rung).toEqual(["att_a.1", "b.1"]));
});

test("one that was removed is watched again after some seconds, and what was added meanwhile rings then", async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  open();
  rmSync(file);
  ring("att_meanwhile.1");
  bells?.check();
  expect(rung).toEqual([]);
  vi.advanceTimersByTime(CHECK_MS);
  bells?.check();
  expect(rung).toEqual(["att_meanwhile.1"]);
});

test("where it cannot be, that is told, and nothing is thrown", () => {
  file = join(folder, "missing", "bells");
  open();
  bells?.check();
  expect(said).toEqual([expect.stringContaining("ended attempts cannot be watched")]);
});

test("what a command writes there holds nobody up: a line without an end is let go of, and of a flood its end is read", async () => {
  open();
  ring("att_a.1");
  await vi.waitFor(() => expect(rung).toEqual(["att_a.1"]));
  appendFileSync(file, Buffer.alloc(3 * LOOK_BYTES, "x\n"));
  await vi.waitFor(() => expect(statSync(file).size).toBe(0));
  expect(rung.length).toBeLessThanOrEqual(1 + LOOK_BYTES / 2);
  appendFileSync(file, Buffer.alloc(3 * LOOK_BYTES, "x"));
  await vi.waitFor(() => expect(statSync(file).size).toBe(0));
  ring("");
  ring("att_b.1");
  await vi.waitFor(() => expect(rung.at(-1)).toBe("att_b.1"));
  expect(rung.every((name) => name.length <= 256)).toBe(true);
});

test("a pipe in the file's place is said, and waited for by nobody", () => {
  execFileSync("mkfifo", [file]);
  open();
  expect(said).toEqual([`ended attempts cannot be watched: ${file} is not a file`]);
});
