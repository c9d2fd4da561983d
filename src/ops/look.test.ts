import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { isFile, isFolder, lookAt } from "./look.ts";

const folder = mkdtempSync(join(tmpdir(), "drover-look-"));
afterAll(() => rmSync(folder, { recursive: true }));
writeFileSync(join(folder, "file"), "");
symlinkSync("loop", join(folder, "loop"));
symlinkSync(folder, join(folder, "link"));

test.each([
  ["too long a name", join(folder, "n".repeat(300))],
  ["too long a path", "/a".repeat(5_000)],
  ["links in a circle", join(folder, "loop")],
  ["below a file", join(folder, "file", "below")],
  ["not there", join(folder, "none")],
])("a path that cannot be looked at is nothing, and no fault of ours: %s", (_why, path) => {
  expect(lookAt(path)).toBeNull();
  expect(isFolder(path)).toBe(false);
  expect(isFile(path)).toBe(false);
});

test("what is there is a file or a folder, also behind a link", () => {
  expect([isFile(join(folder, "file")), isFolder(join(folder, "file"))]).toEqual([true, false]);
  expect([isFile(join(folder, "link")), isFolder(join(folder, "link"))]).toEqual([false, true]);
});
