import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openProcessTable } from "../processes.ts";
import { adapterOf } from "./index.ts";
import { openVersions } from "./program.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-program-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const versionOf = async (text: string): Promise<string | null> => {
  const program = join(folder, "claude");
  writeFileSync(program, `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  return openVersions()(adapterOf("claude"), program, {
    cwd: "/",
    environment: { PATH: process.env["PATH"] ?? "" },
    timeoutMs: 30_000,
    table: openProcessTable(),
  });
};

test("a version counts when its line is complete, whatever holds the output then", async () => {
  expect(await versionOf("echo '2.1.332 (Claude Code)'; sleep 300 &")).toBe("2.1.332");
  expect(await versionOf("printf 2.1.332")).toBe("2.1.332");
});

test("half a version is none: it may be another one", async () => {
  expect(await versionOf("printf 2.1.33; (sleep 300; echo 2) &")).toBeNull();
});
