import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { isAlive, openProcessTable } from "./processes.ts";
import { resolveSecrets } from "./secrets.ts";

const table = openProcessTable();
let cwd: string;
beforeEach(() => {
  cwd = mkdtempSync(join(tmpdir(), "drover-secrets-"));
});
afterEach(() => rmSync(cwd, { recursive: true, force: true }));

const resolve = (command: string) =>
  resolveSecrets(
    { KEY: `cmd:${command}` },
    {
      daemon: {},
      cwd,
      environment: { PATH: process.env["PATH"] ?? "" },
      shell: "/bin/sh",
      timeoutMs: 30_000,
      table,
    },
  );

describe("a secret from a command", () => {
  test.each([
    ["that ends with a line", "echo the-secret"],
    ["that ends without one", "printf the-secret"],
    ["that leaves something with an output of its own", "printf the-secret; sleep 300 >/dev/null 2>&1 & echo $! >pid"],
    ["that leaves something that holds its output, its line complete", "sleep 300 & echo $! >pid; echo the-secret"],
  ])("%s is what it printed; what it left is ended", async (_, command) => {
    expect(await resolve(command)).toEqual({ KEY: "the-secret" });
    if (command.includes("pid"))
      expect(isAlive(table.read(Number(readFileSync(join(cwd, "pid"), "utf8"))))).toBe(false);
  });

  test.each([
    ["ended in the middle of a line, and something holds its output", "sleep 300 & printf the-sec"],
    ["left the rest to something that prints it later", "(sleep 300; echo ret) & printf the-sec"],
  ])("that %s is refused, and nothing of it is told", async (_, command) => {
    const refused: unknown = await resolve(command).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "secret_unresolved", path: "secrets.KEY" });
    expect(String(refused)).toContain("ended in the middle of a line");
    expect(JSON.stringify(refused)).not.toContain("the-sec");
  });
});
