import { execFileSync } from "node:child_process";
import { readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { entries } from "../scripts/entries.mjs";
import { importsOf, readSource } from "./source.ts";
import { type Fault, isProof, LAYERS, privateText, RULE_NAMES, tidy } from "./tidy.ts";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const entrySources = entries.map(({ source }) => source);
/** Written in two halves, so that this file does not hold what it looks for. */
const MACHINE_PATHS = ["work", "root"].map((name) => `/${name}/`);
const LARGEST_TEXT_BYTES = 4 * 1024 * 1024;

/** Every text file of the checkout that is not ignored, committed or not yet. */
function readCheckout(): Map<string, string> {
  // A clone that another user made is ours to read all the same.
  const args = ["-c", `safe.directory=${root}`, "ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const names = execFileSync("git", args, { cwd: root, encoding: "utf8", maxBuffer: 64 * 1024 * 1024 }).split("\0");
  const texts = new Map<string, string>();
  for (const name of names) {
    const stat = name === "" ? undefined : statSync(join(root, name), { throwIfNoEntry: false });
    if (stat === undefined || !stat.isFile() || stat.size > LARGEST_TEXT_BYTES) continue;
    const text = readFileSync(join(root, name), "utf8");
    if (!text.includes("\0")) texts.set(name, text);
  }
  return texts;
}

const show = ({ rule, path, line, what }: Fault): string => `${path}:${line}: ${rule}: ${what}`;

describe("the checkout", () => {
  const texts = readCheckout();
  const sources = new Map([...texts].filter(([path]) => /^(?:src|test)\/.*\.ts$/.test(path)));
  const faults = tidy(sources, entrySources);

  test("is read: the walk sees the sources it is about", () => {
    expect([...sources.keys()].filter((path) => path.startsWith("src/core/")).length).toBeGreaterThan(3);
  });

  test.each(RULE_NAMES)("keeps the rule: %s", (name) => {
    expect(faults.filter(({ rule }) => rule === name).map(show)).toEqual([]);
  });

  test("names no path of one machine and no registry", () => {
    expect(privateText(texts, MACHINE_PATHS).map(show)).toEqual([]);
  });

  test("has a word of its own in every file name", () => {
    const scripts = new Map([...texts].filter(([path]) => /^(?:scripts|bench|examples)\//.test(path)));
    const named = tidy(new Map([...scripts.keys()].map((path) => [path, ""])), []);
    expect(named.filter(({ rule }) => rule === "names").map(show)).toEqual([]);
  });

  test.todo("writes statuses out only in core/run.ts and store");
});

describe("a planted fault is found", () => {
  const clean: Readonly<Record<string, string>> = {
    "src/main.ts": 'import "./main/world.ts"; import "./cli/program.ts"; import "./core/run.ts";',
    "src/main/world.ts":
      'import "../cli/program.ts"; import "../store/open.ts"; import "../engine/runner.ts"; import "node:os";',
    "src/cli/program.ts": 'import { z } from "zod"; import "../ops/index.ts"; import "node:fs";',
    "src/ops/index.ts":
      'import type { Run } from "../core/run.ts"; export const operations = () => import("./list-runs.ts");',
    "src/ops/list-runs.ts":
      'import "../engine/runner.ts"; export const text = "Update the loop, set it aside, then delete it with its name as given";',
    "src/engine/runner.ts":
      'import type { Run } from "../core/run.ts"; export const go = (at: number) => new Date(at);',
    "src/core/run.ts":
      "export interface Run { process: string }\n// Date.now() and Math.random() are only spoken of here\n",
    "src/store/open.ts":
      'import "pg"; export function* operation() { return yield* one(sql`select * from runs where id = ${1}`); }',
  };
  const found = (path: string, text: string): string[] =>
    tidy(new Map(Object.entries({ ...clean, [path]: text })), ["src/main.ts"])
      .filter((fault) => fault.path === path)
      .map(({ rule }) => rule);
  const addTo = (path: string, text: string): string[] => found(path, `${clean[path]}\n${text}`);

  test("and a clean tree has none", () => {
    expect(tidy(new Map(Object.entries(clean)), ["src/main.ts"])).toEqual([]);
  });

  test.each([
    ["core imports the store", "src/core/run.ts", 'import { open } from "../store/open.ts";'],
    ["core imports a type of the engine", "src/core/run.ts", 'import type { go } from "../engine/runner.ts";'],
    ["core re-exports the store", "src/core/run.ts", 'export { open } from "../store/open.ts";'],
    ["core imports over several lines", "src/core/run.ts", 'import {\n  open,\n} from "../store/open.ts";'],
    ["core loads the store late", "src/core/run.ts", 'export const late = () => import("../store/open.ts");'],
    ["core names a worker of the store", "src/core/run.ts", 'new URL("../store/open.ts", import.meta.url);'],
    ["core imports a package", "src/core/run.ts", 'import { Cron } from "croner";'],
    ["core imports Node", "src/core/run.ts", 'import { readFileSync } from "node:fs";'],
    ["engine imports Node", "src/engine/runner.ts", 'import { readFileSync } from "node:fs";'],
    ["engine imports the store", "src/engine/runner.ts", 'import "../store/open.ts";'],
    ["store imports the engine", "src/store/open.ts", 'import "../engine/runner.ts";'],
    ["ops import the store", "src/ops/list-runs.ts", 'import "../store/open.ts";'],
    ["ops import a surface", "src/ops/list-runs.ts", 'import "../cli/program.ts";'],
    ["a surface imports the engine", "src/cli/program.ts", 'import "../engine/runner.ts";'],
    ["anybody imports main", "src/cli/program.ts", 'import "../main.ts";'],
    ["anybody imports a part of main", "src/cli/program.ts", 'import "../main/world.ts";'],
    ["a part of main imports main", "src/main/world.ts", 'import "../main.ts";'],
    ["a part of main imports a package", "src/main/world.ts", 'import { z } from "zod";'],
    ["a layer imports scripts", "src/cli/program.ts", 'import "../../scripts/build.mjs";'],
  ])("layers: %s", (_name, path, text) => {
    expect(addTo(path, text)).toEqual(["layers"]);
  });

  test("layers: a folder that is no layer, a file in none", () => {
    expect(found("src/extras/run.test.ts", "")).toEqual([]);
    expect(found("src/extras/run.ts", "")).toEqual(["layers", "reached"]);
    expect(found("src/second.ts", "")).toEqual(["layers", "reached"]);
  });

  test("layers: each layer of the table is checked", () => {
    for (const [layer, { layers }] of Object.entries(LAYERS)) {
      for (const other of Object.keys(LAYERS)) {
        const faults = found(`src/${layer}/planted.ts`, `import "../${other}/planted.ts";`);
        expect([layer, other, faults.includes("layers")]).toEqual([
          layer,
          other,
          layer !== other && !layers.includes(other),
        ]);
      }
    }
  });

  test("proofs: what ships imports a test", () => {
    expect(addTo("src/store/open.ts", 'import "./store.contract.ts";')).toEqual(["proofs"]);
    expect(addTo("src/main.ts", 'import "../test/postgres.ts";')).toEqual(["proofs"]);
  });

  test.each([
    ["spawn outside of execution", "src/cli/program.ts", 'import { spawn } from "node:child_process";'],
    ["spawn in main", "src/main.ts", 'const { execFile } = await import("node:child_process");'],
    ["spawn in a part of main", "src/main/world.ts", 'const { spawn } = await import("node:child_process");'],
    ["spawn by its short name", "src/main.ts", 'import cp from "child_process";'],
    ["a driver in main", "src/main.ts", 'const sqlite = require("better-sqlite3");'],
    ["a driver in a part of main", "src/main/world.ts", 'process.getBuiltinModule("node:sqlite");'],
    ["a driver by a name", "src/main.ts", 'const name = "node:sqlite"; process.getBuiltinModule(name);'],
    ["a built-in driver", "src/main.ts", 'process.getBuiltinModule("node:sqlite");'],
    ["PostgreSQL in main", "src/main.ts", 'const pg = await import("pg");'],
    ["git outside of execution", "src/main.ts", 'run("git", ["status"]);'],
  ])("owned: %s", (_name, path, text) => {
    expect(addTo(path, text)).toEqual(["owned"]);
  });

  test.each([
    ["Date.now", "export const now = Date.now();"],
    ["Date.now inside a template", "export const now = `at ${Date.now()}`;"],
    ["Date.now after a regular expression", "export const now = /[`'\"/]/.test(x) ? Date.now() : 0;"],
    ["new Date()", "export const now = new Date();"],
    ["new Date", "export const now = new Date;"],
    ["Date()", "export const now = Date();"],
    ["Math.random", "export const chance = Math.random();"],
    ["a timer", "setTimeout(() => {}, 5);"],
    ["a timer as a value", "export const wait = setTimeout;"],
    ["process", "export const home = process.env;"],
    ["performance", "export const now = performance.now();"],
    ["globalThis", 'export const home = globalThis["process"];'],
  ])("injected: %s", (_name, text) => {
    expect(addTo("src/core/run.ts", text)).toEqual(["injected"]);
    expect(addTo("src/engine/runner.ts", text)).toEqual(["injected"]);
    expect(addTo("src/cli/program.ts", text)).toEqual([]);
  });

  test.each([
    ["a tagged template", "export const q = sql`delete_everything`;"],
    ["a template", "export const q = `select id from runs where id = ${1}`;"],
    ["a string", 'export const q = "UPDATE runs SET status = 1";'],
    ["a definition", "export const q = 'create table runs (id text)';"],
  ])("sql: %s", (_name, text) => {
    expect(addTo("src/ops/list-runs.ts", text)).toEqual(["sql"]);
    expect(addTo("src/store/open.ts", text)).toEqual([]);
  });

  test("yields: a bare yield in a store operation", () => {
    expect(addTo("src/store/open.ts", "export function* two() { const row = yield one(q); return row; }")).toEqual([
      "yields",
    ]);
    expect(addTo("src/store/open.ts", "export function* two() { yield; }")).toEqual(["yields"]);
    expect(found("src/store/operation.ts", "export function* one() { return yield 1; }")).toEqual(["reached"]);
  });

  test.each(["utils", "date-utils", "helpers", "loop-manager", "shared", "common", "handler"])(
    "names: a file named %s",
    (name) => {
      expect(found(`src/core/${name}.ts`, "")).toContain("names");
      expect(found(`src/core/${name}/run.ts`, "")).toContain("names");
    },
  );

  test("names: an export that ends in a word for nothing", () => {
    expect(addTo("src/core/run.ts", "export class RunManager {}")).toEqual(["names"]);
    expect(addTo("src/core/run.ts", "export function settleRun() {}")).toEqual([]);
  });

  test("todos: one without an issue number", () => {
    expect(addTo("src/core/run.ts", "// TODO later")).toEqual(["todos"]);
    expect(addTo("src/core/run.ts", "/*\n * FIXME: later\n */")).toEqual(["todos"]);
    expect(addTo("src/core/run.ts", "// TODO(#12): later")).toEqual([]);
  });

  test("reached: a file that nobody imports, and two that import only each other", () => {
    expect(found("src/core/alone.ts", "")).toEqual(["reached"]);
    const pair = { ...clean, "src/core/a.ts": 'import "./b.ts";', "src/core/b.ts": 'import "./a.ts";' };
    expect(tidy(new Map(Object.entries(pair)), ["src/main.ts"]).map(({ path }) => path)).toEqual([
      "src/core/a.ts",
      "src/core/b.ts",
    ]);
    expect(tidy(new Map(Object.entries(pair)), ["src/main.ts", "src/core/a.ts"])).toEqual([]);
    const tested = { ...clean, "src/core/a.ts": "", "src/core/a.test.ts": 'import "./a.ts";' };
    expect(tidy(new Map(Object.entries(tested)), ["src/main.ts"])).toEqual([]);
  });

  test("private: a path of a machine, a registry", () => {
    const text = (line: string): number => privateText(new Map([["docs/a.md", line]]), MACHINE_PATHS).length;
    for (const path of MACHINE_PATHS) {
      expect(text(`see ${path}main`)).toBe(1);
      expect(text(`"${path}main"`)).toBe(1);
      expect(text(`see ..${path}main and ~${path}x and /home/me${path}x`)).toBe(0);
    }
    expect(text(`  "resolved": ${'"https'}://a.example/zod.tgz"`)).toBe(1);
    expect(text(`${"regis"}try=https://a.example/`)).toBe(1);
  });
});

describe("the reader", () => {
  const imports = (text: string): string[] => importsOf(readSource("a.ts", text)).map(({ specifier }) => specifier);

  test("sees every form of import and none that is only spoken of", () => {
    expect(
      imports(`
        import a, { b as c } from "one";
        import type { D } from 'two';
        import "three";
        export * from "four";
        export type { E } from "five";
        const f = await import("six");
        const g = require("seven");
        type H = import("eight").H;
        // import "no";
        /* export * from "no" */
        const text = 'import "no"';
        const more = \`import "no" \${import("nine")}\`;
        const from = "no"; export const x = { from: "no" };
        const pattern = /import "no"/;
      `),
    ).toEqual(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]);
  });

  test("keeps lines and lengths, and tells code from text", () => {
    const text = "const a = `x${b ? `y${c}` : '}'}z`; // d\nconst e = f / g / h; const i = /[/]`/;\nconst j = 'k';\n";
    const { code, strings, templates, comments, lineAt } = readSource("a.ts", text);
    expect(code).toHaveLength(text.length);
    expect(code.split("\n")).toHaveLength(4);
    expect(code).toContain("f / g / h");
    expect(code).not.toContain("k");
    expect(strings.map((one) => one.text)).toEqual(["}", "k"]);
    expect(templates.map((one) => one.text)).toEqual(["y?", "x?z"]);
    expect(comments.map((one) => one.text)).toEqual(["// d"]);
    expect(lineAt(text.indexOf("'k'"))).toBe(3);
  });

  test("tells a proof from what ships", () => {
    expect(["src/a/b.test.ts", "src/a/b.contract.ts", "src/store/contract.ts", "test/a.ts"].every(isProof)).toBe(true);
    expect(["src/a/b.ts", "src/core/latest.ts", "src/a/contracts.ts"].some(isProof)).toBe(false);
  });
});
