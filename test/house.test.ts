import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, test } from "vitest";
import { build } from "../scripts/build.mjs";
import { toCommonJs } from "../scripts/commonjs.mjs";
import { staleness } from "../scripts/install.mjs";
import { closingLine, countTests } from "../scripts/parts.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const folders: string[] = [];
function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "drover-house-"));
  folders.push(folder);
  return folder;
}
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
});

describe("the install step", () => {
  const wanted = {
    packages: {
      "": { version: "0.1.0" },
      "node_modules/a": { version: "1.0.0" },
      "node_modules/b-linux": { version: "2.0.0", optional: true },
    },
  };

  test("does nothing when every package is there", () => {
    expect(staleness(wanted, wanted)).toEqual([]);
    expect(staleness(wanted, { packages: { "node_modules/a": { version: "1.0.0" } } })).toEqual([]);
  });

  test("sees a missing folder, a missing package and another version", () => {
    expect(staleness(wanted, undefined)).toEqual(["node_modules/a", "node_modules/b-linux"]);
    expect(staleness(wanted, { packages: {} })).toEqual(["node_modules/a"]);
    const other = { "node_modules/a": { version: "1.0.1" }, "node_modules/b-linux": { version: "1.0.0" } };
    expect(staleness(wanted, { packages: other })).toEqual(["node_modules/a", "node_modules/b-linux"]);
  });
});

describe("the count of a run", () => {
  const none = { numPassedTests: 0, numFailedTests: 0, numPendingTests: 0, numTodoTests: 0, testResults: [] };

  test("adds up what was passed, failed and left out", () => {
    const report = { ...none, numPassedTests: 5, numFailedTests: 2, numPendingTests: 1, numTodoTests: 1 };
    expect(countTests({ passed: false, report })).toEqual({ passed: 5, failed: 2, skipped: 2 });
  });

  test("counts a file that could not be loaded as a failure", () => {
    const testResults = [
      { status: "failed", assertionResults: [] },
      { status: "failed", assertionResults: [{ status: "failed" }] },
      { status: "passed", assertionResults: [{ status: "passed" }] },
    ];
    const report = { ...none, numPassedTests: 1, numFailedTests: 1, testResults };
    expect(countTests({ passed: false, report })).toEqual({ passed: 1, failed: 2, skipped: 0 });
  });

  test("never calls a run clean that ended badly", () => {
    expect(countTests({ passed: false, report: { ...none, numPassedTests: 3 } }).failed).toBe(1);
    expect(countTests({ passed: false, report: undefined }).failed).toBe(1);
    expect(countTests({ passed: true, report: undefined }).failed).toBe(1);
  });

  test("is said in the form that CI reads", () => {
    expect(closingLine({ passed: 3, failed: 0, skipped: 0 })).toBe("3 passed, 0 failed");
    expect(closingLine({ passed: 3, failed: 1, skipped: 2 })).toBe("3 passed, 1 failed, 2 skipped");
  });
});

describe.runIf(existsSync(join(root, "src/main.ts")))("the build", () => {
  test("gives the same sources the same id, and another when it is asked to", { timeout: 180_000 }, async () => {
    const folder = temporaryFolder();
    const first = await build({ outdir: join(folder, "one") });
    const again = await build({ outdir: join(folder, "two") });
    const newer = await build({ outdir: join(folder, "two"), buildId: "newer" });
    expect(first.buildId).toMatch(/^[0-9a-f]{12}$/);
    expect(again.buildId).toBe(first.buildId);
    expect(newer.buildId).toBe("newer");
    const main = readFileSync(join(folder, "one/drover.js"), "utf8");
    expect(main.startsWith("#!/usr/bin/env node\n")).toBe(true);
    expect(statSync(join(folder, "one/drover.js")).mode & 0o777).toBe(0o755);
    expect(readFileSync(join(folder, "one/LICENSES.txt"), "utf8")).toContain("zod");
  });
});

test("a bundled file that makes an object of one of Node's classes makes it", async () => {
  const file = join(temporaryFolder(), "made.js");
  writeFileSync(
    file,
    `import { StringDecoder } from "node:string_decoder";\nexport const made = () => new StringDecoder("utf8").write(Buffer.from("a"));\n`,
  );
  writeFileSync(`${file}.map`, '{"version":3,"sources":[],"names":[],"mappings":""}');
  await toCommonJs(file);
  const { made } = createRequire(import.meta.url)(file) as { made: () => string };
  expect(made()).toBe("a");
});

describe("the linter", () => {
  const planted: Readonly<Record<string, string>> = {
    "typescript(no-floating-promises)": "work();",
    "typescript(no-misused-promises)": "[1].forEach(async () => { await work(); });",
    "typescript(await-thenable)": "export const three = await (3 as number);",
    "typescript(switch-exhaustiveness-check)":
      'export function place(kind: "a" | "b") { switch (kind) { case "a": return 1; } return 0; }',
    "typescript(only-throw-error)": 'export function fail() { throw "text"; }',
    "typescript(no-explicit-any)": "export const anything = (value: any) => value;",
    "import(no-cycle)": 'import { other } from "./other.ts"; export const mine = other;',
    "import(no-default-export)": "export default 1;",
    "eslint(no-restricted-globals)": "export const wait = setTimeout;",
    "eslint(no-console)": "console.log(1);",
  };

  test("finds a planted fault of each kind, and none in clean code", () => {
    const folder = temporaryFolder();
    const core = join(folder, "src/core");
    mkdirSync(core, { recursive: true });
    copyFileSync(join(root, ".oxlintrc.json"), join(folder, ".oxlintrc.json"));
    const compilerOptions = {
      strict: true,
      module: "nodenext",
      target: "es2023",
      rewriteRelativeImportExtensions: true,
    };
    writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["src"] }));
    writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
    const lint = (): string =>
      spawnSync(process.execPath, [join(root, "node_modules/.bin/oxlint"), "src", "-f", "unix"], {
        cwd: folder,
        encoding: "utf8",
        // The reader of types is looked for on the PATH when there are no packages beside the sources.
        env: { ...process.env, PATH: `${join(root, "node_modules/.bin")}:${process.env["PATH"]}` },
      }).stdout;
    const start = "export async function work(): Promise<void> {}\n";
    writeFileSync(join(core, "other.ts"), 'import { mine } from "./0.ts"; export const other: number = mine;\n');
    writeFileSync(join(core, "0.ts"), "export const mine = 1;\n");
    expect(lint()).not.toContain("[Error/");
    for (const [i, text] of Object.values(planted).entries()) {
      // The cycle's file has the name that other.ts imports.
      const name = text.includes("./other.ts") ? "0" : String(i + 1);
      writeFileSync(join(core, `${name}.ts`), `${start}${text}\n`);
    }
    const found = lint();
    expect(Object.keys(planted).filter((rule) => !found.includes(`[Error/${rule}]`))).toEqual([]);
  });
});

test("the compiler is as strict as the house style asks", () => {
  const { compilerOptions } = JSON.parse(readFileSync(join(root, "tsconfig.json"), "utf8"));
  const asked = [
    "strict",
    "noUncheckedIndexedAccess",
    "exactOptionalPropertyTypes",
    "noImplicitOverride",
    "noPropertyAccessFromIndexSignature",
    "noImplicitReturns",
    "noFallthroughCasesInSwitch",
    "noUnusedLocals",
    "noUnusedParameters",
    "verbatimModuleSyntax",
    "isolatedModules",
    "erasableSyntaxOnly",
    "rewriteRelativeImportExtensions",
  ];
  expect(asked.filter((flag) => compilerOptions[flag] !== true)).toEqual([]);
});

test("CI runs the test command and nothing else", () => {
  const lines = readFileSync(join(root, ".ci/run"), "utf8").split("\n");
  expect(statSync(join(root, ".ci/run")).mode & 0o111).not.toBe(0);
  expect(lines.filter((line) => line !== "" && !line.startsWith("#"))).toEqual([
    "set -euo pipefail",
    'cd "$(dirname "$' + '{BASH_SOURCE[0]}")/.."',
    'export HOME="$' + '{HOME:-$PWD/.cache/home}"',
    "exec npm test --silent </dev/null",
  ]);
});
