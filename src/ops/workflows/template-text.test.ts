import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { AppError } from "../../core/errors.ts";
import { defaultLimits as limits } from "../../core/limits.ts";
import { checkExpression, evaluate, loadExpressions } from "../../core/workflow/expression.ts";
import { readTemplate as readHoles, renderTemplate } from "../../core/workflow/template.ts";
import { listTemplates } from "./template-sources.ts";
import { renderTemplateText, requireTemplate } from "./template-text.ts";

const folder = mkdtempSync(join(tmpdir(), "drover-templates-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Renders a template of the folder. */
async function render(name: string, given: Readonly<Record<string, string>> = {}): Promise<string> {
  const { template, bytes } = await requireTemplate(name, folder, limits);
  return (await renderTemplateText(name, bytes, template, given, limits)).text;
}

function own(text: string, name = "mine"): string {
  writeFileSync(join(folder, `${name}.yaml`), text);
  return name;
}

const problemsOf = async (work: Promise<unknown>): Promise<readonly string[]> => {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    return (error.problems ?? []).map(({ code, line, column }) =>
      line === undefined ? code : `${line}:${column} ${code}`,
    );
  }
  return [];
};

const builtIn = listTemplates(join(folder, "none"), limits).map(({ name }) => name);
const REQUIRED: { readonly [name: string]: Readonly<Record<string, string>> } = {
  "scheduled-audit": { question: "dependencies with known holes" },
};

test("the built-in ones are those that are promised", () => {
  expect(builtIn).toEqual([
    "check-then-fix",
    "plan-work-verify",
    "report-only",
    "review-diff",
    "scheduled-audit",
    "worker-verifier",
  ]);
});

test.each(builtIn)("%s gives the workflow of examples/workflows", async (name) => {
  const example = new URL(`../../../examples/workflows/${name}.yaml`, import.meta.url);
  expect(await render(name, REQUIRED[name])).toBe(readFileSync(example, "utf8"));
});

test("check-then-fix tries as often as it is told, and only the last try fails the run", async () => {
  for (const tries of [1, 2, 5]) {
    const { steps } = parse(await render("check-then-fix", { tries: String(tries) })) as {
      steps: { id: string; continueOnFailure?: boolean }[];
    };
    const checks = steps.filter(({ id }) => !id.startsWith("fix"));
    expect(steps.map(({ id }) => id).filter((id) => id.startsWith("fix"))).toHaveLength(tries);
    expect(checks.map(({ continueOnFailure }) => continueOnFailure === true)).toEqual([
      ...Array.from({ length: tries }, () => true),
      false,
    ]);
  }
});

test("a step whose `when` is false is left out, and so is a key without a value", async () => {
  const steps = async (given: Readonly<Record<string, string>>) =>
    (parse(await render("plan-work-verify", given)) as { steps: { id: string; needs?: string[]; account?: string }[] })
      .steps;
  const asked = await steps({ workerAccount: "work" });
  expect(asked.find(({ id }) => id === "work")).toMatchObject({ needs: ["plan", "agree"], account: "work" });
  const trusted = await steps({ approve: "false" });
  expect(trusted.map(({ id }) => id)).not.toContain("agree");
  const work = trusted.find(({ id }) => id === "work");
  expect(work).toMatchObject({ needs: ["plan"] });
  expect(Object.keys(work ?? {})).not.toContain("account");
});

describe("values", () => {
  const at = (given: Readonly<Record<string, string>>) => problemsOf(render("check-then-fix", given));
  test.each<[given: Readonly<Record<string, string>>, codes: readonly string[]]>([
    [{ tries: "3" }, []],
    [{ tries: "6" }, ["bad_input"]],
    [{ tries: "many" }, ["bad_input"]],
    [{ agent: "clade", tires: "1" }, ["unknown_variable", "bad_input"]],
    [{ account: "123" }, []],
    [{ name: "no/../name " }, ["bad_input"]],
  ])("%j", async (given, codes) => {
    const found = await at(given);
    expect(found.map((one) => one.replace(/^\d+:\d+ /, ""))).toEqual(codes);
  });

  test("what has no default has to be given", async () => {
    expect(await problemsOf(render("scheduled-audit"))).toEqual(["missing_value"]);
  });

  test("are data: whatever they hold, the workflow that runs says just that", async () => {
    await loadExpressions();
    const name = own(`description: x
variables: { a: { type: string }, b: { type: [string, array] } }
workflow:
  name: data
  inputs: { plain: { type: string, default: "\${{ vars.a }}" } }
  steps:
    - id: one
      type: agent
      provider: claude
      prompt: "$\${{ vars.a }}{{ 1 }} {\${{ vars.a }}\${{ vars.a }}{ \${{ 1 + 1 }}"
    - id: two
      type: command
      command: [echo, "\${{ vars.a }}", "plain \${{ vars.b }}"]
      env: { WHOLE: "\${{ vars.b }}" }
`);
    const piece = fc.constantFrom(
      "$",
      "{",
      "{{",
      "${{",
      "}}",
      "${{ inputs.plain }}",
      "${{ vars.b }}",
      '"',
      "'",
      "\\",
      " ",
      ": ",
      "#",
      "- ",
      "\n",
      "x",
      "true",
      "1",
      "*a",
      "&a",
      "é",
      "\t",
    );
    const text = fc.array(piece, { maxLength: 8 }).map((pieces) => pieces.join(""));
    const read = (source: string): unknown => {
      const template = readHoles(source);
      expect(template.open).toBeNull();
      const values = template.holes.map((hole) => {
        const { expression } = checkExpression(hole.source, { typeOf: () => ({ schema: true }) }, limits);
        expect(expression?.references).toEqual([]);
        const none = { inputs: {}, steps: {}, run: {}, env: {}, status: { failed: false, met: true } };
        return expression === null ? null : evaluate(expression, none, limits);
      });
      return renderTemplate(template, values);
    };
    await fc.assert(
      fc.asyncProperty(text, text, async (a, b) => {
        const said = parse(await render(name, { a, b: JSON.stringify(b) })) as {
          inputs: { plain: { default: string } };
          steps: { prompt: string; command: string[]; env: { WHOLE: string } }[];
        };
        const [one, two] = said.steps;
        expect(said.inputs.plain.default).toBe(a);
        expect(read(one?.prompt ?? "")).toBe(`$${a}{{ 1 }} {${a}${a}{ 2`);
        expect(two?.command.map(read)).toEqual(["echo", a, `plain ${b}`]);
        expect(read(two?.env.WHOLE ?? "")).toBe(b);
      }),
      { numRuns: 150 },
    );
  });
});

describe("a template that is wrong says where", () => {
  const step = (text: string) => `description: x
variables: { a: { type: string }, n: { type: integer, default: 1 } }
workflow:
  name: w
  inputs: { i: { type: string } }
  steps:
    - ${text}
`;
  test.each<[what: string, text: string, problems: readonly string[]]>([
    ["an unknown section", "description: x\nworkfow: {}\nworkflow: { name: a }\n", ["2:1 unknown_key"]],
    ["no workflow", "description: x\n", ["1:1 missing_value"]],
    [
      "a default that does not fit",
      "description: x\nvariables: { a: { type: integer, default: x } }\nworkflow: {}\n",
      ["2:43 bad_default"],
    ],
    ["an unknown variable", step('{ id: a, type: wait, for: "${{ vars.b }}" }'), ["7:33 unknown_variable"]],
    [
      "a variable in a shell",
      step('{ id: a, type: command, shell: "echo ${{ vars.a }}" }'),
      ["7:38 expression_in_shell"],
    ],
    [
      "a variable in the line of a shell",
      step('{ id: a, type: command, command: [sh, -c, "echo ${{ vars.a }}"] }'),
      ["7:49 expression_in_shell"],
    ],
    [
      "a variable in a check's line",
      step('{ id: a, type: command, command: [a], expect: ["cmd:${{ vars.a }}"] }'),
      ["7:54 expression_in_shell"],
    ],
    [
      "a variable in an if",
      step("{ id: a, type: wait, for: 1s, if: 'vars.a == \"x\"' }"),
      ["7:41 variable_in_condition"],
    ],
    [
      "a variable with what runs",
      step('{ id: a, type: command, command: [a, "${{ vars.a + inputs.i }}"] }'),
      ["7:44 mixed_expression"],
    ],
    [
      "a variable as a key",
      step('{ id: a, type: command, command: [a], env: { "${{ vars.a }}": x } }'),
      ["7:69 no_expression_here"],
    ],
    ["a when of what runs", step("{ id: a, type: wait, for: 1s, when: inputs.i }"), ["7:43 bad_expression"]],
    ["an alias", step("{ id: &a a, type: command, command: [*a] }"), ["7:44 alias_in_template"]],
  ])("%s", async (_what, text, problems) => {
    expect(await problemsOf(render(own(text), { a: "x" }))).toEqual(problems);
  });

  test("a when that is no truth", async () => {
    expect(await problemsOf(render(own(step("{ id: a, type: wait, for: 1s, when: vars.n }")), { a: "x" }))).toEqual([
      "wrong_type",
    ]);
  });
});
