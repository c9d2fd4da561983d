/** The real daemon on a small file system of its own that fills up, or may not be written any more, and comes back. */
import { execFileSync } from "node:child_process";
import { mkdirSync, statfsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { install, until, type Installation } from "./installation.ts";
import { createWitness, readTables, type Tables } from "./truth.ts";

const mayMount = process.platform === "linux" && process.getuid?.() === 0;
const DISK_MIB = 16;

// Only root may mount one.
describe.skipIf(!mayMount)("the disk of the state folder", () => {
  let at: Installation;
  let state: string;
  const mount = (...args: string[]) => execFileSync("/bin/mount", [...args, state]);
  beforeEach(async () => {
    at = install();
    state = join(at.home, "state");
    mkdirSync(state, { mode: 0o700 });
    mount("-t", "tmpfs", "-o", `size=${DISK_MIB}m,mode=700`, "tmpfs");
    writeFileSync(
      join(state, "config.yaml"),
      "limits:\n  minFreeBytes: 2MiB\n  storeBackoffCapMs: 400ms\n  watchMs: 500ms\n  uncountedBackoffCapMs: 500ms\n",
    );
    expect(await at.run("up")).toMatchObject({ status: 0 });
    await at.json("loop", "add", "often", "--every", "1s", "--shell", "echo done");
    await until("a slot to succeed", succeeded);
  });
  afterEach(async () => {
    try {
      await at.run("down", "--stop-runs", "--drain", "0s");
    } finally {
      execFileSync("/bin/umount", ["-l", state]);
      await at.close();
    }
  });

  const tables = (): Promise<Tables> => readTables(join(state, "drover.db"));
  const succeeded = async () => (await tables()).slots.some((slot) => slot["outcome"] === "succeeded");
  /** Nothing is broken, and a slot that is due after now succeeds. */
  const goesOn = async () => {
    const now = Date.now();
    if (at.daemons().length === 0) expect(await at.run("up")).toMatchObject({ status: 0 });
    await until("a later slot to succeed", async () =>
      (await tables()).slots.some((slot) => slot["outcome"] === "succeeded" && Number(slot["at"]) > now),
    );
    expect(createWitness()(await tables())).toEqual([]);
  };

  test("full: nothing starts and nothing is broken; with room it goes on by itself", { timeout: 180_000 }, async () => {
    const filler = join(state, "filler");
    for (let i = 0, step = 262_144; step >= 4_096; )
      try {
        writeFileSync(`${filler}-${i++}`, Buffer.alloc(step));
      } catch {
        step /= 2;
      }
    expect(statfsSync(state).bavail * statfsSync(state).bsize).toBeLessThan(65_536);
    const before = await at.run("status", "--json");
    expect(before.stdout).not.toBe("");
    const asked = await at.run("run", "--detach", "--shell", "echo by hand", "--json");
    // Taken in, to start when there is room, or refused with a code: never half of it.
    if (asked.status !== 0)
      expect((JSON.parse(asked.stderr.trim().split("\n").at(-1) ?? "") as { error: { code: string } }).error.code).toBe(
        "disk_full",
      );
    const starts = (await tables()).attempts.length;
    const fullAt = Date.now();
    await until("some slots to pass", () => Date.now() > fullAt + 3_000);
    const after = await tables();
    expect(after.attempts.length - starts).toBeLessThanOrEqual(1);
    expect(createWitness()(after)).toEqual([]);
    execFileSync("/bin/sh", ["-c", 'rm -f "$0"-*', filler]);
    await goesOn();
  });

  test("read-only: it says so and nothing is broken; once it may be written it goes on", {
    timeout: 180_000,
  }, async () => {
    const file = (await at.json<{ daemon: { pid: number | null } }>("status")).daemon.pid;
    expect(file).not.toBeNull();
    // What is open for writing keeps a file system writable: it takes the daemon's death first.
    process.kill(file as number, "SIGKILL");
    await until("the daemon to be gone", () => at.daemons().length === 0 && at.marked().length === 0);
    // What has died may hold a file open for a moment longer.
    await until("nobody to write there", () => {
      try {
        mount("-o", "remount,ro");
        return true;
      } catch (error) {
        if (String(error).includes("busy")) return false;
        throw error;
      }
    });
    const up = await at.run("up", "--json");
    expect(up.status, up.stderr).toBe(5);
    expect((JSON.parse(up.stderr.trim().split("\n").at(-1) ?? "") as { error: { code: string } }).error.code).toMatch(
      /^(?:state_unusable|store_read_only)$/,
    );
    // What only looks still does.
    expect(await at.run("runs", "--json")).toMatchObject({ status: 0 });
    mount("-o", "remount,rw");
    expect(await at.run("up")).toMatchObject({ status: 0 });
    await goesOn();
  });
});
