/** Files of workflows through the real binary: what is wrong with one, and what it looks like. Nothing of it needs a store. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Home, openHome } from "./drover.ts";

let home: Home;
let cwd: string;

beforeEach(() => {
  home = openHome({ prefix: "drover-workflows-" });
  cwd = join(home.folder, "repo");
  mkdirSync(cwd);
});
afterEach(() => home.close());

const example = resolve("examples/workflows/release.yaml");
const bad = `name: bad
steps:
  - id: one
    type: comand
    shell: echo \${{ inputs.name }}
  - { id: two, type: wait, needs: [won], for: soon }
`;

test("a good one is fine, from wherever it is named", async () => {
  expect(await home.json(["workflow", "validate", example])).toEqual({
    file: example,
    ok: true,
    name: "release",
    steps: 6,
    count: 0,
    problems: [],
  });
  writeFileSync(join(cwd, "w.yaml"), readFileSync(example));
  const { status, out } = await home.run(["workflow", "validate", "w.yaml"], { cwd });
  expect([status, out]).toEqual([0, `${join(cwd, "w.yaml")} is fine: release, 6 steps\n`]);
});

test("every problem of a bad one is a line with its place, for people and for programs", async () => {
  const file = join(cwd, "bad.yaml");
  writeFileSync(file, bad);
  const { status, out, err } = await home.run(["workflow", "validate", "bad.yaml"], { cwd });
  expect([status, err]).toEqual([1, ""]);
  const lines = out.trimEnd().split("\n");
  expect(lines.map((line) => line.replace(`${file}:`, "").replace(/ .*/, ""))).toEqual([
    "4:11:",
    "5:12:",
    "6:36:",
    "6:47:",
    "4",
  ]);
  expect(out).not.toContain("\u001b");
  const json = await home.run(["workflow", "validate", file, "--json"]);
  expect(json.status).toBe(1);
  const { count, problems } = JSON.parse(json.out) as { count: number; problems: { code: string }[] };
  expect([count, ...problems.map(({ code }) => code)]).toEqual([
    4,
    "bad_choice",
    "expression_in_shell",
    "missing_step",
    "bad_duration",
  ]);
});

test("a picture is drawn of a good one; a bad one is refused with all that is wrong", async () => {
  const text = await home.run(["workflow", "graph", example]);
  expect(text.out.split("\n").slice(0, 2)).toEqual(["changes  gate", "  tests  check  after changes"]);
  const mermaid = await home.run(["workflow", "graph", example, "--mermaid"]);
  expect(mermaid.out).toMatch(/^flowchart TD\n {2}s0\["changes<br\/>gate"\]\n/);
  writeFileSync(join(cwd, "bad.yaml"), bad);
  const error = await home.refused(2, ["workflow", "graph", "bad.yaml"], { cwd });
  expect(error.code).toBe("bad_workflow");
  expect((await home.refused(3, ["workflow", "graph", "none.yaml"], { cwd })).code).toBe("file_not_found");
  expect((await home.refused(2, ["workflow", "validate", "."], { cwd })).code).toBe("file_unreadable");
});

test("the published schema is the program's own", async () => {
  const schema = await home.json(["config", "schema", "workflow.yaml"]);
  expect(schema).toEqual(JSON.parse(readFileSync(resolve("docs/reference/workflow.schema.json"), "utf8")));
});
