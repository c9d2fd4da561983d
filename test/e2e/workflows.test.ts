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

test("a template becomes a workflow's file, which is never written over", async () => {
  const { items } = await home.json<{ items: { name: string; builtIn: boolean }[] }>(["template", "ls"]);
  expect(items.map(({ name, builtIn }) => `${name} ${builtIn}`)).toContain("check-then-fix true");
  const shown = await home.json<{ variables: { name: string }[] }>(["template", "show", "check-then-fix"]);
  expect(shown.variables.map(({ name }) => name)).toContain("tries");
  const render = ["template", "render", "check-then-fix", "--set", "tries=2", "--set", "check=make all"];
  const made = await home.json<{ file: string; steps: number }>([...render, "--out", "made.yaml"], { cwd });
  expect([made.file, made.steps]).toEqual([join(cwd, "made.yaml"), 5]);
  const text = readFileSync(made.file, "utf8");
  expect((await home.run(render)).out).toBe(text);
  expect(await home.json(["workflow", "validate", made.file])).toMatchObject({ ok: true, steps: 5 });
  writeFileSync(made.file, "mine");
  expect((await home.refused(4, [...render, "--out", "made.yaml"], { cwd })).code).toBe("target_exists");
  expect(readFileSync(made.file, "utf8")).toBe("mine");
});

test("a template of one's own is found in the configuration folder, and one that is wrong says where", async () => {
  const { config } = await home.json<{ config: string }>(["config", "path"]);
  const folder = join(config, "../templates");
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    join(folder, "mine.yaml"),
    "description: Waits\nvariables: { time: { type: string } }\nworkflow:\n  name: mine\n  steps: [{ id: a, type: wait, for: '${{ vars.time }}' }]\n",
  );
  writeFileSync(join(folder, "broken.yaml"), "description: x\nworkflow: { name: '${{ vars.nmae }}' }\n");
  writeFileSync(join(folder, "report-only.yaml"), "description: x\nworkflow: {}\n");
  const { items } = await home.json<{ items: { name: string; builtIn: boolean; problem: string | null }[] }>([
    "template",
    "ls",
  ]);
  const own = items.filter(({ builtIn }) => !builtIn).map(({ name, problem }) => [name, problem !== null]);
  expect(own).toEqual([
    ["broken", true],
    ["mine", false],
    ["report-only", true],
  ]);
  expect((await home.run(["template", "render", "mine", "--set", "time=5m"])).out).toContain("for: '5m'");
  expect((await home.refused(2, ["template", "render", "mine"])).code).toBe("missing_value");
  expect((await home.refused(2, ["template", "render", "mine", "--set", "time=soon"])).code).toBe("bad_duration");
  const broken = await home.run(["template", "show", "broken"]);
  expect([broken.status, broken.err]).toEqual([2, expect.stringContaining("broken.yaml:2:19: there is no variable")]);
  expect((await home.refused(3, ["template", "show", "mein"])).code).toBe("template_not_found");
});

test("I13: an input whose name calls it a secret is neither shown nor in the manifest", async () => {
  const canary = "canary-of-an-input-6c19";
  const file = join(cwd, "secret.yaml");
  writeFileSync(
    file,
    "name: secret\ninputs: { api_token: { type: string }, branch: { type: string } }\nsteps: [{ id: a, type: command, command: ['true'] }]\n",
  );
  const inputs = ["--input", `api_token=${canary}`, "--input", "branch=main"];
  const { id } = await home.json<{ id: string }>(["run", file, ...inputs], { cwd });
  for (const look of [
    ["show", id, "--json"],
    ["show", id],
    ["manifest", id],
    ["runs", "--json"],
    ["export", "--history"],
  ]) {
    const { out, status } = await home.run(look);
    expect([look[0], status, out.includes(canary)]).toEqual([look[0], 0, false]);
  }
  const { asked, definition } = await home.json<{
    asked: { target: { inputs: unknown } };
    definition: { name: string };
  }>(["manifest", id]);
  expect([asked.target.inputs, definition.name]).toEqual([{ api_token: "[secret]", branch: "main" }, "secret"]);
});
