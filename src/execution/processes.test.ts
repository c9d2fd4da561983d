import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, expect, test } from "vitest";
import {
  ATTEMPT_MARK,
  bootId,
  hasNoEnvironment,
  isAlive,
  isSame,
  marksIn,
  openProcessTable,
  orphans,
  parseIdentity,
  parseStat,
} from "./processes.ts";

const tail = "S 1 40 41 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";

describe("parseStat", () => {
  test.each([
    ["a plain name", `42 (sh) ${tail}`],
    ["a name with a parenthesis", `42 (a) b (c)) ${tail}`],
    ["a name with spaces and a newline", `42 (a\n) Z 1 2 3) ${tail}`],
  ])("%s", (_name, line) => {
    expect(parseStat(line)).toEqual({ pid: 42, parent: 1, group: 40, session: 41, state: "S", started: "777" });
  });

  test.each(["", "42", "42 (sh", "42 (sh) S 1", "x (sh) S 1 2"])("%j is no process", (line) => {
    expect(parseStat(line)).toBeNull();
  });

  test("pids that signal everything are no identity", () => {
    for (const pid of ["0", "1", "-1", ""]) expect(parseIdentity(pid)).toBeNull();
    expect(parseIdentity(`1 (init) ${tail}`)).toBeNull();
    expect(parseIdentity("42")).toEqual({ pid: 42, session: 42, started: null });
  });
});

test("B-058 a reused pid and a zombie are not the process that was meant", () => {
  const found = parseStat(`42 (sh) ${tail}`);
  expect(isSame(found, { pid: 42, session: 42, started: "777" })).toBe(true);
  expect(isSame(found, { pid: 42, session: 42, started: "778" })).toBe(false);
  // Started within the same clock tick.
  expect(isSame(found, { pid: 43, session: 42, started: "777" })).toBe(false);
  expect(isAlive(parseStat(`42 (sh) ${tail.replace("S", "Z")}`))).toBe(false);
});

test("a mark is an entry of its own, not the end of another's name", () => {
  expect(marksIn(Buffer.from("A=1\0DROVER_ATTEMPT_ID=att_1\0B=2\0"))).toEqual(["DROVER_ATTEMPT_ID=att_1"]);
  expect(marksIn(Buffer.from("XDROVER_ATTEMPT_ID=att_1\0"))).toEqual([]);
  expect(marksIn(Buffer.from("V=DROVER_ATTEMPT_ID=att_1\0DROVER_ERRAND_ID=e"))).toEqual(["DROVER_ERRAND_ID=e"]);
});

// Both backends on the one system: /proc is the truth, `ps` must agree with it.
describe.each(["proc", "ps"] as const)("the process table by %s", (backend) => {
  test("finds a marked process with its group and start, and sees that it is gone", async () => {
    const id = `att_table_${backend}`;
    const child = spawn("/bin/sleep", ["60"], { detached: true, env: { [ATTEMPT_MARK]: id }, stdio: "ignore" });
    try {
      await once(child, "spawn");
      const pid = child.pid ?? 0;
      const table = openProcessTable(backend);
      const found = table.read(pid);
      expect(found).toMatchObject({ pid, parent: process.pid, group: pid, session: pid });
      expect(orphans(id, table)).toEqual([{ pid, pidStarted: found?.started, attemptId: id }]);
      expect(orphans("att_table_other", table)).toEqual([]);
      expect((await table.look(null)).snapshot.byPid.get(pid)?.started).toBe(found?.started);
      child.kill("SIGKILL");
      await once(child, "exit");
      expect(table.read(pid)).toBeNull();
    } finally {
      child.kill("SIGKILL");
    }
  });
});

test("a look since a tree's beginning finds all of it, and says whether the list was quiet", async () => {
  const table = openProcessTable("proc");
  const forks = table.forks() ?? 0;
  const child = spawn("/bin/sh", ["-c", "sleep 60 & sleep 60 & echo ready; wait"], {
    detached: true,
    env: { [ATTEMPT_MARK]: `att_since_${process.pid}` },
    stdio: ["ignore", "pipe", "ignore"],
  });
  try {
    await once(child.stdout, "data");
    const pid = child.pid ?? 0;
    let look = await table.look({ pid, forks });
    // Others make processes meanwhile, and the second of the two may still be loading its program.
    while (!look.quiet) look = await table.look({ pid, forks });
    const { snapshot } = look;
    expect(snapshot.bySession.get(pid)).toHaveLength(3);
    expect(snapshot.byMark.get(`${ATTEMPT_MARK}=att_since_${process.pid}`)).toHaveLength(3);
    expect(snapshot.all.length).toBeLessThan(table.snapshot().all.length);
  } finally {
    process.kill(-(child.pid ?? Number.NaN), "SIGKILL");
  }
});

test("a process between two programs has no mark yet, and a look that met it is not quiet", () => {
  // As the kernel shows one that has its new memory and nothing in it, one whose environment is being laid out, one that
  // has it, one without any variable, and one that has given its memory back.
  const line = (size: number, code: number, start: number, end: number) =>
    `42 (sh) R 1 42 42 0 -1 ${"0 ".repeat(13)}777 ${size} 0 0 ${code} ${"0 ".repeat(23)}${start} ${end} 0`;
  expect(hasNoEnvironment(line(4096, 0, 0, 0))).toBe(false);
  expect(hasNoEnvironment(line(4096, 0, 100, 100))).toBe(false);
  expect(hasNoEnvironment(line(4096, 10, 100, 200))).toBe(false);
  expect(hasNoEnvironment(line(4096, 10, 100, 100))).toBe(true);
  expect(hasNoEnvironment(line(0, 0, 0, 0))).toBe(true);
  expect(hasNoEnvironment("")).toBe(true);
});

test("a quiet look finds the mark of a process that runs one program after the other", async () => {
  const table = openProcessTable("proc");
  const id = `att_programs_${process.pid}`;
  const next = 'n=$((n+1)); export n; [ "$n" -gt 500 ] && exec /bin/sleep 60; exec /bin/sh -c "$again"';
  const child = spawn("/bin/sh", ["-c", next], {
    detached: true,
    env: { [ATTEMPT_MARK]: id, n: "0", again: next },
    stdio: "ignore",
  });
  try {
    await once(child, "spawn");
    const pid = child.pid ?? 0;
    const forks = table.forks() ?? 0;
    let quietLooks = 0;
    for (let over = false; !over; ) {
      over = table.words(pid).startsWith("/bin/sleep");
      const { snapshot, quiet } = await table.look({ pid, forks });
      if (!quiet) continue;
      quietLooks++;
      expect(snapshot.byMark.get(`${ATTEMPT_MARK}=${id}`)?.map((found) => found.pid)).toEqual([pid]);
    }
    expect(quietLooks).toBeGreaterThan(10);
  } finally {
    child.kill("SIGKILL");
  }
});

test("this boot has a name", () => {
  expect(bootId()).toMatch(/^[0-9a-f-]{36}$/);
});
