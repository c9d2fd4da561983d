/** The man pages: one for every command, which groff sets without a warning, and which say what the help says. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { writeManPages } from "../../scripts/man.mjs";
import { operations } from "../../src/ops/index.ts";

const hasGroff = spawnSync("groff", ["--version"]).status === 0;
if (!hasGroff) console.warn("skipped: man pages are not set: there is no groff");

let folder = "";
let files: readonly string[] = [];
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "drover-man-"));
  files = await writeManPages(folder);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const set = (...words: readonly string[]) =>
  spawnSync("groff", ["-man", "-Tutf8", "-P-c", "-rLL=78n", ...words], { cwd: folder, encoding: "utf8" });
/** Without overstriking, and with the hyphens of a keyboard. */
const textOf = (file: string): string =>
  set(file)
    .stdout.replace(/.\u0008/g, "")
    .replaceAll("−", "-");

test("every command has a page, and package.json names each, as npm links those alone", () => {
  const named = new Set(files);
  const missing = operations
    .filter(({ hidden, name }) => hidden !== true && !named.has(`drover-${name.replaceAll(".", "-")}.1`))
    .map(({ name }) => name);
  expect(missing).toEqual([]);
  const { man, files: packed } = JSON.parse(
    readFileSync(resolve(import.meta.dirname, "../../package.json"), "utf8"),
  ) as {
    man: readonly string[];
    files: readonly string[];
  };
  expect(man).toEqual(files.map((file) => `man/${file}`).toSorted());
  expect(packed).toContain("man");
});

test.skipIf(!hasGroff)("groff sets them all without a warning, and notices a fault", () => {
  const { status, stderr } = set("-ww", "-z", ...files);
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  const faulty = spawnSync("groff", ["-man", "-ww", "-z", "-Tutf8"], {
    input: ".TH X 1\n.NO_SUCH\n",
    encoding: "utf8",
  });
  expect(faulty.stderr).not.toBe("");
});

test.skipIf(!hasGroff)(
  "a page says usage, flags with what is usual, examples as typed, statuses and the answer",
  () => {
    const page = textOf("drover-loop-add.1");
    expect(page).toContain("drover loop add NAME [FLAGS] [-- COMMAND ...]");
    expect(page).toMatch(/--backoff D\n\s+first pause before another try;[^]*\(usually\s+60s\)/);
    expect(page).toContain(`drover loop add report --cron "30 2 * * *" --tz Europe/Rome`);
    expect(page).toContain("--prompt 'Tidy up.' -- --quick");
    expect(page).toMatch(/EXIT STATUS\n\s+0\s+it was done/);
    expect(page).toMatch(/ANSWER[^]*schedule/);
    expect(textOf("drover.1")).toMatch(/COMMANDS[^]*loop add[^]*DROVER_HOME[^]*SEE ALSO/);
  },
);
