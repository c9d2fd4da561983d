import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { statOf } from "./attempt-folder.ts";
import { openSpawner } from "./spawner.ts";

const folder = mkdtempSync(join(tmpdir(), "drover-place-"));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

test("a file in the place of the runs folder is an error that names it, and nothing below it is nothing", () => {
  const runsFolder = join(folder, "runs");
  writeFileSync(runsFolder, "");
  expect(() => openSpawner({ runsFolder, log: () => undefined })).toThrow(
    expect.objectContaining({ code: "state_unusable", path: runsFolder }),
  );
  expect(statOf(join(runsFolder, "bells", "att_a.1"))).toBeNull();
});
