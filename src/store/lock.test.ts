import { spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { endChild } from "../../test/children.ts";
import { buildWorker } from "../../test/writer.ts";
import { acquireLock } from "./lock.ts";
import type { Lock, LockOwner } from "./lock.ts";

let root: string;
let file: string;
let holder: string;
let made = 0;
const children: ChildProcess[] = [];

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), "drover-lock-"));
  holder = fileURLToPath(await buildWorker("test/store/holder.ts"));
});
beforeEach(() => {
  file = join(root, String(++made), "daemon.lock");
});
afterEach(async () => {
  for (const child of children.splice(0)) await endChild(child);
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

/** A process that wants the lock; answers what it got. It stays until it is killed when it holds it. */
async function hold(): Promise<{ readonly child: ChildProcess; readonly said: string }> {
  const child = spawn(process.execPath, [holder, file], { stdio: ["ignore", "pipe", "inherit"] });
  children.push(child);
  const [chunk] = (await once(child.stdout as NodeJS.ReadableStream, "data")) as [Buffer];
  return { child, said: chunk.toString().trim() };
}

const take = async (): Promise<() => void> => {
  const lock: Lock = await acquireLock(file);
  if (!lock.held) throw new Error("busy");
  return lock.release;
};

test("one process holds it; the others are told who", async () => {
  const { child, said } = await hold();
  expect(said).toBe("held");
  expect(await acquireLock(file)).toEqual({ held: false, owner: { pid: child.pid } });
  expect((await hold()).said).toBe(`busy ${child.pid}`);
});

test("kill -9 frees it at once, whatever the side file says", async () => {
  const { child } = await hold();
  await endChild(child);
  expect(existsSync(`${file}.pid`)).toBe(true);
  const release = await take();
  release();
});

test("of eight who want it at once, one gets it", async () => {
  const answers = await Promise.all(Array.from({ length: 8 }, () => hold()));
  expect(answers.filter(({ said }) => said === "held")).toHaveLength(1);
});

test("a second wish of the same process is busy, and does not drop the lock", async () => {
  const release = await take();
  expect(await acquireLock(file)).toEqual({ held: false, owner: { pid: process.pid } });
  expect((await hold()).said).toBe(`busy ${process.pid}`);
  release();
  expect((await hold()).said).toBe("held");
});

test("released, it can be taken again, and its side file is gone", async () => {
  const release = await take();
  release();
  release();
  expect(existsSync(`${file}.pid`)).toBe(false);
  (await take())();
});

test("whoever waits is asked each time, and gets it when it is free", async () => {
  const { child } = await hold();
  const owners: (LockOwner | null)[] = [];
  const lock = await acquireLock(file, {
    async onBusy(owner) {
      owners.push(owner);
      if (owners.length === 2) await endChild(child);
      return true;
    },
  });
  expect(lock.held).toBe(true);
  expect(owners).toEqual([{ pid: child.pid }, { pid: child.pid }]);
  if (lock.held) lock.release();
});

test("a side file of nonsense is nobody", async () => {
  const { child } = await hold();
  writeFileSync(`${file}.pid`, "not a number");
  expect(await acquireLock(file)).toEqual({ held: false, owner: null });
  await endChild(child);
});

test("a file that cannot be a lock is an error, not a lock", async () => {
  const release = await take();
  release();
  writeFileSync(file, "this is a letter\n".repeat(100));
  await expect(acquireLock(file)).rejects.toMatchObject({ code: "not_a_store" });
});
