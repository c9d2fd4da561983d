import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { faults, type Schema } from "../../../test/schema-reader.ts";
import { AppError } from "../../core/errors.ts";
import { defaultLimits } from "../../core/limits.ts";
import { checkDefinition } from "../../core/workflow/check-definition.ts";
import { stepKeys } from "../../core/workflow/definition.ts";
import { loadExpressions } from "../../core/workflow/expression.ts";
import {
  drawMermaid,
  drawnSteps,
  drawText,
  readWorkflowFile,
  requireWorkflow,
  workflowSchema,
} from "./workflow-file.ts";

const folder = mkdtempSync(join(tmpdir(), "drover-workflows-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));
const examples = fileURLToPath(new URL("../../../examples/workflows/", import.meta.url));
const exampleFiles = readdirSync(examples)
  .filter((name) => name.endsWith(".yaml"))
  .map((name) => join(examples, name));

function fileOf(text: string | Uint8Array, name = "w.yaml"): string {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}
const problemsOf = async (text: string | Uint8Array) =>
  (await readWorkflowFile(fileOf(text), defaultLimits)).problems.map(
    ({ code, line, column }) => `${line}:${column} ${code}`,
  );

test("there are examples", () => {
  expect(exampleFiles.length).toBeGreaterThan(2);
});

test.each(exampleFiles)("%s is fine, for drover and for an editor", async (file) => {
  expect((await readWorkflowFile(file, defaultLimits)).problems).toEqual([]);
  expect(faults(workflowSchema() as Schema, parse(readFileSync(file, "utf8")))).toEqual([]);
});

test("a problem has the line and the column of what is wrong", async () => {
  expect(
    await problemsOf(`name: a
steps:
  - id: one
    type: wait
    for: soon
  - id: two
    type: comand
    needs: [one, three]
  - id: four
    type: command
    command: [a, "\${{ inputs.x }}"]
    with: {}
`),
  ).toEqual(["5:10 bad_duration", "7:11 bad_choice", "8:18 missing_step", "11:18 unknown_input", "12:5 unknown_key"]);
});

test("JSON is read as well", async () => {
  const text = JSON.stringify({ name: "a", steps: [{ id: "b", type: "wait", for: "1s" }] }, null, 2);
  expect((await readWorkflowFile(fileOf(text, "w.json"), defaultLimits)).workflow?.definition.steps).toHaveLength(1);
  expect(await problemsOf(text.replace('"1s"', '"soon"'))).toEqual(["7:14 bad_duration"]);
});

test("a key that is there twice is told beside all else, and the file is not taken", async () => {
  const { workflow, problems } = await readWorkflowFile(
    fileOf("name: a\nname: b\nsteps:\n  - { id: a, type: wait, for: 1s, for: 2s }\n"),
    defaultLimits,
  );
  expect(workflow).toBeNull();
  expect(problems.map(({ code }) => code)).toEqual(["duplicate_key", "duplicate_key"]);
});

test("a file with problems is refused with all of them, one by itself under its own name", async () => {
  const refusal = async (text: string): Promise<AppError> => {
    try {
      await requireWorkflow(fileOf(text), defaultLimits);
    } catch (error) {
      if (error instanceof AppError) return error;
      throw error;
    }
    throw new Error("it is taken");
  };
  expect(await refusal("name: a\nsteps:\n  - { id: a, type: wait }\n")).toMatchObject({
    kind: "invalid",
    code: "missing_value",
  });
  const two = await refusal("name: a\nsteps:\n  - { id: a, type: wait }\n  - { id: b, type: wait }\n");
  expect([two.code, two.problems?.length]).toEqual(["bad_workflow", 2]);
});

describe("hostile files", () => {
  const step = (i: number, more = "") =>
    `  - id: s${i}\n    type: command\n    command: [a, "\${{ inputs.x }}"]\n${more}`;
  const many = (count: number, more: (i: number) => string) =>
    `name: a\ninputs: { x: { type: string } }\nsteps:\n${Array.from({ length: count }, (_, i) => step(i, more(i))).join("")}`;

  test("10,000 steps that need one another are read", async () => {
    const text = many(10_000, (i) =>
      i === 0
        ? ""
        : `    needs: [s${i - 1}${i > 2 ? `, s${Math.floor(i / 2)}` : ""}]\n    if: steps.s0.exitCode != ${i}\n`,
    );
    const { workflow, problems } = await readWorkflowFile(fileOf(text), defaultLimits);
    expect(problems).toEqual([]);
    expect(workflow?.order).toHaveLength(10_000);
  });

  test("one step more than the limit is refused", async () => {
    const limits = { ...defaultLimits, workflowSteps: 20 };
    const read = async (count: number) => (await readWorkflowFile(fileOf(many(count, () => "")), limits)).problems;
    expect(await read(20)).toEqual([]);
    expect(await read(21)).toMatchObject([{ code: "too_large", line: 3, column: 1 }]);
  });

  test("of very many faults the first are told, and how many there are", async () => {
    const { problems, count } = await readWorkflowFile(fileOf(many(300, () => "    needs: [t]\n")), defaultLimits);
    expect([problems.length, count]).toEqual([100, 300]);
    expect(problems[99]).toMatchObject({ code: "missing_step", path: "steps[99].needs[0]" });
  });

  test("more bytes than a file may hold are not read", async () => {
    const file = fileOf(`name: a # ${"x".repeat(defaultLimits.declaredBytes)}`);
    await expect(readWorkflowFile(file, defaultLimits)).rejects.toThrow("holds more than");
  });

  test.each<[what: string, text: string | Uint8Array, codes: readonly string[]]>([
    ["nothing", "", ["empty_file"]],
    ["no text", Uint8Array.of(0xff, 0xfe, 0x41), ["not_utf8"]],
    ["lists in lists", `name: a\nsteps: ${"[".repeat(10_000)}${"]".repeat(10_000)}`, ["bad_yaml"]],
    ["lists in lists, 200 deep", `name: a\nsteps: ${"[".repeat(200)}${"]".repeat(200)}`, ["too_deep"]],
    ["JSON in JSON", `{"name":${'{"a":'.repeat(5_000)}1${"}".repeat(5_000)}}`, ["bad_yaml"]],
    [
      "a billion laughs",
      `a: &a [x,x,x,x,x,x,x,x,x]\n${["b", "c", "d", "e", "f", "g", "h", "i"].map((name, i) => `${name}: &${name} [${Array.from({ length: 9 }, () => `*${"abcdefgh"[i]}`).join(",")}]\n`).join("")}name: x\nsteps: *i\n`,
      ["too_many_aliases"],
    ],
    [
      "names of prototypes",
      "name: a\n__proto__: { name: b }\nconstructor: 1\nsteps:\n  - { id: a, type: wait, for: 1s, __proto__: { if: false }, toString: 1 }\n",
      ["unknown_key", "unknown_key", "unknown_key", "unknown_key"],
    ],
    [
      "half a million expressions",
      `name: a\nsteps:\n  - { id: a, type: command, command: [a, "${"${{ 1 }}".repeat(100_000)}"] }\n`,
      ["too_large"],
    ],
  ])("%s", async (_what, text, codes) => {
    const { workflow, problems } = await readWorkflowFile(fileOf(text), defaultLimits);
    expect(workflow).toBeNull();
    expect(problems.map(({ code }) => code)).toEqual(codes);
  });
});

describe("a picture", async () => {
  const steps = drawnSteps(
    await requireWorkflow(
      fileOf(`name: a
steps:
  - { id: last, type: check, needs: [b, first], shell: x, if: 'steps.first.stdoutTail == "<b>"' }
  - { id: first, type: command, shell: x }
  - { id: b, type: wait, needs: [first], foreach: [1, 2], for: 1s }
`),
      defaultLimits,
    ),
  );

  test("of lines has each step behind those that it needs", () => {
    expect(drawText(steps)).toBe(
      `first  command
  b  wait, for each item  after first
    last  check  after b, first  if steps.first.stdoutTail == "<b>"
`,
    );
  });

  test("of Mermaid has nothing in it that Mermaid or a page would obey", () => {
    expect(drawMermaid(steps)).toBe(
      `flowchart TD
  s0["first<br/>command"]
  s1["b<br/>wait, for each item"]
  s0 --> s1
  s2["last<br/>check<br/>if steps.first.stdoutTail == #34;#60;b#62;#34;"]
  s1 -.-> s2
  s0 -.-> s2
`,
    );
  });
});

describe("the published schema", () => {
  const said = (text: string) => faults(workflowSchema() as Schema, parse(text));
  test.each<[text: string, wrong: readonly string[]]>([
    ["{ name: a, steps: [{ id: a, type: wait, for: 1h30m }] }", []],
    ["{ name: a }", [" required"]],
    ["{ name: a, steps: [] }", [".steps minItems"]],
    ["{ name: a, stesp: [], steps: [{ id: a, type: wait }] }", [".stesp additionalProperties"]],
    ["{ name: a, steps: [{ id: a, type: wiat }] }", [".steps[0] oneOf"]],
    ["{ name: a, steps: [{ id: a, type: wait, prompt: x }] }", [".steps[0] oneOf"]],
    ["{ name: a, steps: [{ id: a, type: wait, for: 5 }] }", [".steps[0] oneOf"]],
    ["{ name: a, steps: [{ id: a, type: wait, for: 5 minutes }] }", [".steps[0] oneOf"]],
    [
      "{ name: a, defaults: { timeout: 5 minutes }, steps: [{ id: a, type: wait, for: 1s }] }",
      [".defaults.timeout pattern"],
    ],
  ])("%s", (text, wrong) => {
    expect(said(text)).toEqual(wrong);
  });

  test("takes whatever drover takes: no editor marks a file that is fine", async () => {
    await loadExpressions();
    const value = fc.constantFrom<unknown>(
      "1h30m",
      "0s",
      "x",
      "${{ inputs.a }}",
      "inputs.a == null",
      "always()",
      1,
      12,
      true,
      false,
      "off",
      "claude",
      "reject",
      ["a", "b"],
      [12],
      [],
      { A: "x" },
      { attempts: 2, backoff: "1s" },
      { type: "string" },
    );
    const fields = fc.dictionary(fc.constantFrom(...stepKeys), value, { maxKeys: 5 });
    const base = fc.constantFrom<object>(
      { type: "command", shell: "x" },
      { type: "check", command: ["a"] },
      { type: "gate", shell: "x" },
      { type: "agent", provider: "codex", prompt: "x" },
      { type: "approval", question: "x", timeout: "1h" },
      { type: "wait", for: "1s" },
      { type: "handoff" },
      { type: "workflow", workflow: "x" },
      { type: "notify", webhook: "x" },
    );
    let taken = 0;
    fc.assert(
      fc.property(
        base,
        fields,
        fc.dictionary(fc.constantFrom("env", "defaults", "description"), value, { maxKeys: 1 }),
        (of, more, head) => {
          const file = { name: "a", inputs: { a: {} }, steps: [{ ...more, ...of, id: "b" }], ...head };
          if (checkDefinition(file, defaultLimits).workflow === null) return;
          taken++;
          expect(faults(workflowSchema() as Schema, file)).toEqual([]);
        },
      ),
      { numRuns: 600 },
    );
    expect(taken).toBeGreaterThan(40);
  });
});
