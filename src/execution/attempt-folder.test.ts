import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FILES, openPlain, readFolder, readPrepared, readText, statOf, writeText } from "./attempt-folder.ts";
import { isCgroupOf } from "./cgroups.ts";
import { readHoles } from "./log-cap.ts";
import { scrubOf } from "./logs.ts";

let path: string;
beforeEach(() => {
  path = mkdtempSync(join(tmpdir(), "drover-attempt-"));
});
afterEach(() => rmSync(path, { recursive: true }));

/** What a command may put where a file of ours was. */
const others: readonly (readonly [what: string, put: (place: string) => void])[] = [
  ["a pipe that nobody writes to", (place) => execFileSync("mkfifo", [place])],
  ["a folder", (place) => mkdirSync(place)],
  ["a link to a device", (place) => symlinkSync("/dev/zero", place)],
  ["a link to itself", (place) => symlinkSync(place, place)],
];

describe.each(others)("%s where a file of ours was", (_what, put) => {
  test("is refused at once, with a code", async () => {
    const place = join(path, FILES.stdout);
    put(place);
    expect(() => readText(place)).toThrow(expect.objectContaining({ code: "attempt_damaged" }));
    await expect(openPlain(place)).rejects.toMatchObject({ code: "attempt_damaged" });
  });

  test("as evidence is one that is not whole: it says nothing, and keeps nobody waiting", () => {
    put(join(path, FILES.id));
    put(join(path, FILES.run));
    expect(readFolder(path)).toMatchObject({ id: "torn", shim: null, run: { ticket: null, exit: null } });
  });

  test("is not written into: what we write takes its place", () => {
    const place = join(path, FILES.holes);
    put(`${place}.new`);
    writeText(place, "{}");
    expect(readFileSync(place, "utf8")).toBe("{}");
  });
});

test("nothing is where links lead in a circle, below a file, and under a name that is too long", () => {
  symlinkSync("loop", join(path, "loop"));
  writeFileSync(join(path, "file"), "");
  for (const name of ["loop", "file/below", "n".repeat(300), "none"]) expect(statOf(join(path, name)), name).toBeNull();
  expect(statOf(join(path, "file"))).not.toBeNull();
});

test.each(["", "{", "null", "[1]", "[".repeat(100_000)])(
  "what is no document of ours is refused with a code, not shown unscrubbed: %#",
  (text) => {
    for (const file of [FILES.prepared, FILES.scrub, FILES.holes]) writeFileSync(join(path, file), text);
    for (const read of [readPrepared, scrubOf, readHoles])
      expect(() => read(path)).toThrow(expect.objectContaining({ kind: "invalid", code: "attempt_damaged" }));
  },
);

test("a shim leads its session: an identity that names another one is damaged, and nobody's processes are ended by it", () => {
  const line = (pid: number, session: number) =>
    `${pid} (sh) S 1 ${session} ${session} 0 -1 ${"0 ".repeat(12)}20 123 0\n`;
  const shimOf = (text: string) => {
    writeFileSync(join(path, FILES.id), text);
    return readFolder(path).shim;
  };
  expect(shimOf(line(4_321, 4_321))).toMatchObject({ pid: 4_321, session: 4_321 });
  expect(shimOf(line(4_321, 1))).toBeNull();
  expect(shimOf(line(4_321, 0))).toBeNull();
  expect(shimOf(line(4_321, 432))).toBeNull();
});

test("only the cgroup of this very attempt is ended with it, whatever its folder says", () => {
  const own = "/sys/fs/cgroup/user.slice/drover-0123456789ab/att_1.2";
  expect(isCgroupOf(own, "att_1.2")).toBe(true);
  for (const other of [
    "/sys/fs/cgroup",
    "/sys/fs/cgroup/user.slice",
    "/sys/fs/cgroup/drover-0123456789ab",
    "/sys/fs/cgroup/drover-0123456789ab/att_1.3",
    `${own}/..`,
    `/sys/fs/cgroup/drover-0123456789ab/../user.slice/att_1.2`,
    "/sys/fs/cgroup/drover-x/att_1.2",
    "",
    "-",
  ])
    expect(isCgroupOf(other, "att_1.2"), other).toBe(false);
});
