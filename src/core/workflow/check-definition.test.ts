import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { defaultLimits } from "../limits.ts";
import { checkDefinition } from "./check-definition.ts";
import { stepTypes } from "./definition.ts";
import { loadExpressions } from "./expression.ts";

beforeAll(loadExpressions);

const read = (text: string, limits = defaultLimits as Parameters<typeof checkDefinition>[1]) =>
  checkDefinition(parse(text), limits);
const problemsOf = (text: string): readonly string[] =>
  read(text).problems.map(({ code, path }) => (path === "" ? code : `${code} ${path}`));

/** A workflow around some steps. */
const around = (steps: string) => `
name: a
inputs: { test: { type: string }, n: { type: integer, default: 3 } }
env: { PORT: "8080" }
steps:
  - { id: first, type: command, command: [a] }
${steps.replaceAll(/^/gm, "  ")}
`;

test("a workflow is read: durations in milliseconds, steps in an order in which they can start", () => {
  const { workflow, problems } = read(`
name: build and check
defaults: { timeout: 1h30m }
steps:
  - { id: last, type: check, needs: [build, lint], command: [test], retry: { attempts: 2, backoff: 10s } }
  - { id: build, type: command, shell: make }
  - { id: lint, type: command, needs: [build], shell: make lint }
`);
  expect(problems).toEqual([]);
  expect(workflow?.order).toEqual([1, 2, 0]);
  expect(workflow?.definition.defaults?.timeout).toBe(5_400_000);
  expect(workflow?.definition.steps[0]?.id).toBe("last");
});

test.each<[type: string, fields: string]>([
  ["command", "command: [a]"],
  ["check", "shell: a"],
  ["gate", "command: [a], blockedExitCodes: [12, 13]"],
  ["agent", "provider: claude, prompt: x"],
  ["approval", "question: x, timeout: 1d, default: reject"],
  ["wait", "for: 5m"],
  ["handoff", "title: x"],
  ["workflow", "workflow: other, with: { a: [1, '${{ inputs.n }}'] }"],
  ["notify", "webhook: https://example.org/hook, message: x"],
])("a step of type %s", (type, fields) => {
  expect(problemsOf(around(`- { id: b, type: ${type}, ${fields} }`))).toEqual([]);
});

test("there is a test for each type", () => {
  expect(stepTypes.toSorted()).toEqual(
    ["agent", "approval", "check", "command", "gate", "handoff", "notify", "wait", "workflow"].toSorted(),
  );
});

describe("what is refused", () => {
  test.each<[text: string, problems: readonly string[]]>([
    ["5", ["bad_input"]],
    ["[]", ["bad_input"]],
    ["name: a", ["missing_value"]],
    ["steps: []", ["missing_value", "bad_input steps"]],
    ["{ name: a, steps: x }", ["bad_input steps"]],
    ["{ name: '', steps: [{ id: a, type: wait, for: 1s }] }", ["bad_input name"]],
    ["{ name: a, steps: [5] }", ["bad_input steps[0]"]],
    ["{ name: a, stpes: [], steps: [{ id: a, type: wait, for: 1s }] }", ["unknown_key stpes"]],
    ["{ name: a, env: { PORT: 8080 }, steps: [{ id: a, type: wait, for: 1s }] }", ["bad_input env.PORT"]],
    [
      "{ name: a, inputs: { t: { type: strin } }, steps: [{ id: a, type: wait, for: 1s }] }",
      ["bad_schema inputs.t.type"],
    ],
    [
      "{ name: a, inputs: { t: { type: string, default: 3 } }, steps: [{ id: a, type: wait, for: 1s }] }",
      ["bad_default inputs.t.default"],
    ],
    ["{ name: a, inputs: { t-t: {} }, steps: [{ id: a, type: wait, for: 1s }] }", ["bad_input inputs.t-t"]],
    [
      "{ name: a, defaults: { retry: { atempts: 2 } }, steps: [{ id: a, type: wait, for: 1s }] }",
      ["missing_value defaults.retry", "unknown_key defaults.retry.atempts"],
    ],
    [
      "{ name: a, defaults: { cwd: '${{ inputs.x }}' }, steps: [{ id: a, type: wait, for: 1s }] }",
      ["no_expression_here defaults.cwd"],
    ],
    [
      "{ name: a, env: { A: '${{ env.B }}', B: '${{ steps.a.output }}' }, steps: [{ id: a, type: wait, for: 1s }] }",
      ["unknown_name env.A", "unknown_name env.B"],
    ],
  ])("of a file: %s", (text, problems) => {
    expect(problemsOf(text)).toEqual(problems);
  });

  test.each<[step: string, problem: string]>([
    ["{ type: wait, for: 1s }", "missing_value steps[1]"],
    ["{ id: b }", "missing_value steps[1]"],
    ["{ id: b, type: comand }", "bad_choice steps[1].type"],
    ["{ id: b c, type: wait, for: 1s }", "bad_input steps[1].id"],
    ["{ id: __proto__, type: wait, for: 1s }", "bad_input steps[1].id"],
    ["{ id: 5, type: wait, for: 1s }", "bad_input steps[1].id"],
    ["{ id: first, type: wait, for: 1s }", "duplicate_id steps[1].id"],
    ["{ id: b, type: wait, for: 5 minutes }", "bad_duration steps[1].for"],
    ["{ id: b, type: wait, for: 1s, until: 2027-01-01T00:00:00Z }", "contradiction steps[1].until"],
    ["{ id: b, type: wait, until: tomorrow }", "bad_time steps[1].until"],
    ["{ id: b, type: wait }", "missing_value steps[1]"],
    ["{ id: b, type: wait, for: 1s, retry: { attempts: 2 } }", "unknown_key steps[1].retry"],
    ["{ id: b, type: command }", "missing_value steps[1]"],
    ["{ id: b, type: command, command: npm test }", "bad_input steps[1].command"],
    ["{ id: b, type: command, command: [a], shell: b }", "contradiction steps[1].shell"],
    ["{ id: b, type: command, command: [a], prompt: x }", "unknown_key steps[1].prompt"],
    ["{ id: b, type: command, command: [a], continueOnFailure: yes }", "bad_input steps[1].continueOnFailure"],
    ["{ id: b, type: command, command: [a], retry: { attempts: 0 } }", "bad_input steps[1].retry.attempts"],
    ["{ id: b, type: command, command: [a], timeout: -1s }", "bad_duration steps[1].timeout"],
    ["{ id: b, type: command, command: [a], env: { 1A: x } }", "bad_input steps[1].env.1A"],
    ["{ id: b, type: command, command: [a], env: { DROVER_X: x } }", "bad_input steps[1].env.DROVER_X"],
    ["{ id: b, type: command, command: [a], output: { type: strin } }", "bad_schema steps[1].output.type"],
    ["{ id: b, type: command, command: [a], concurrency: 3 }", "contradiction steps[1].concurrency"],
    ["{ id: b, type: command, command: [a], foreach: x }", "bad_input steps[1].foreach"],
    ["{ id: b, type: command, command: [a], foreach: '${{ inputs.n }}' }", "wrong_type steps[1].foreach"],
    ["{ id: b, type: command, command: [a], needs: first }", "bad_input steps[1].needs"],
    ["{ id: b, type: command, command: [a], needs: [frist] }", "missing_step steps[1].needs[0]"],
    ["{ id: b, type: command, command: [a], needs: [b] }", "needs_itself steps[1].needs[0]"],
    ["{ id: b, type: command, command: [a], needs: [first, first] }", "given_twice steps[1].needs[1]"],
    ["{ id: b, type: gate, command: [a], blockedExitCodes: [0] }", "bad_input steps[1].blockedExitCodes[0]"],
    ["{ id: b, type: agent, prompt: x }", "missing_value steps[1]"],
    ["{ id: b, type: agent, provider: gpt, prompt: x }", "bad_input steps[1].provider"],
    ["{ id: b, type: agent, provider: claude, prompt: x, promptFile: y }", "contradiction steps[1].promptFile"],
    ["{ id: b, type: agent, provider: custom, prompt: x }", "missing_value steps[1]"],
    ["{ id: b, type: agent, provider: claude, command: [a], prompt: x }", "contradiction steps[1].command"],
    ["{ id: b, type: agent, provider: claude, prompt: x, permission: full }", "missing_value steps[1]"],
    ["{ id: b, type: approval, question: x, default: approve }", "contradiction steps[1].default"],
    ["{ id: b, type: notify }", "missing_value steps[1]"],
    ["{ id: b, type: workflow }", "missing_value steps[1]"],
    ["{ id: b, type: command, command: [a], lock: '${{ inputs.n }}' }", "no_expression_here steps[1].lock"],
  ])("of a step: %s", (step, problem) => {
    expect(problemsOf(around(`- ${step}`))).toContain(problem);
  });

  test.each<[key: string, hint: string | RegExp]>([
    ["dependsOn", "Here it is needs."],
    ["run", "Here it is shell."],
    ["continue-on-error", "Here it is continueOnFailure."],
    ["forEach", "Did you mean foreach?"],
    ["prompt", "It belongs to type: agent."],
    ["propmt", "Did you mean prompt, of type: agent?"],
    ["zzzzzz", /^What there is: .*needs/],
  ])("a word that is not there has what was meant by it: %s", (key, hint) => {
    const [problem] = read(around(`- { id: b, type: command, command: [a], ${key}: x }`)).problems;
    expect([problem?.code, problem?.path]).toEqual(["unknown_key", `steps[1].${key}`]);
    expect(problem?.hint).toMatch(hint);
  });

  test("everything at once, each with its own place", () => {
    expect(
      problemsOf(`
name: a
inputs: { t: { type: strin } }
steps:
  - { id: b, type: comand }
  - { id: b, type: wait }
  - { id: c, type: command, command: [x, "\${{ inputs.u }}"], needs: [d, zz] }
  - { id: d, type: command, command: [x], needs: [c], if: steps.zz.output }
`),
    ).toEqual([
      "bad_choice steps[0].type",
      "duplicate_id steps[1].id",
      "missing_step steps[2].needs[1]",
      "circle steps[2].needs",
      "bad_schema inputs.t.type",
      "missing_value steps[1]",
      "unknown_input steps[2].command[1]",
      "missing_step steps[3].if",
    ]);
  });
});

test("a circle is named whole", () => {
  const { problems } = read(
    around(
      "- { id: b, type: wait, for: 1s, needs: [c] }\n- { id: c, type: wait, for: 1s, needs: [d] }\n- { id: d, type: wait, for: 1s, needs: [b, first] }",
    ),
  );
  expect(problems.map(({ message }) => message)).toEqual(["steps wait for one another: b needs c needs d needs b"]);
});

describe("values in a shell", () => {
  test.each<[step: string, path: string]>([
    ["{ id: b, type: command, shell: 'echo ${{ inputs.test }}' }", "steps[1].shell"],
    ["{ id: b, type: gate, shell: 'echo \"${{ inputs.test }}\"' }", "steps[1].shell"],
    ["{ id: b, type: notify, shell: 'x ${{' }", "steps[1].shell"],
    ["{ id: b, type: command, command: [sh, -c, 'echo ${{ inputs.test }}'] }", "steps[1].command[2]"],
    [
      "{ id: b, type: check, command: [/bin/bash, -euo, pipefail, -ec, 'echo ${{ inputs.test }}'] }",
      "steps[1].command[4]",
    ],
  ])("are refused, with the way in which they can be had: %s", (step, path) => {
    const { problems } = read(around(`- ${step}`));
    const found = problems.find(({ code }) => code === "expression_in_shell");
    expect(found?.path).toBe(path);
    expect(found?.hint).toContain('"$VALUE"');
    if (step.includes("inputs.test")) expect(found?.hint).toContain('env: { VALUE: "${{ inputs.test }}" }');
  });

  test.each([
    "{ id: b, type: command, shell: 'echo \"$VALUE\"', env: { VALUE: '${{ inputs.test }}' } }",
    "{ id: b, type: command, command: [sh, -c, 'echo \"$1\"', sh, '${{ inputs.test }}'] }",
    "{ id: b, type: command, command: [sh, '${{ inputs.test }}'] }",
  ])("are had as data: %s", (step) => {
    expect(problemsOf(around(`- ${step}`))).toEqual([]);
  });
});

describe("what an expression may read", () => {
  const steps = `
- { id: fix, type: command, command: [a], needs: [first], output: { type: object, properties: { files: { type: array, items: { type: string } }, n: { type: number }, closed: { type: object, properties: { a: {} }, additionalProperties: false } } } }
- { id: my-step, type: command, command: [a], needs: [fix] }
- { id: many, type: command, command: [a, "\${{ item }}"], foreach: "\${{ steps.fix.output.files }}", needs: [fix] }
- { id: apart, type: command, command: [a] }
`;
  const problemOf = (source: string) => {
    const quoted = JSON.stringify(`x \${{ ${source} }}`);
    return read(around(`${steps}- { id: last, type: command, command: [a, ${quoted}], needs: [my-step, many] }`))
      .problems[0];
  };

  test.each([
    "inputs.test",
    "env.PORT",
    "run.id",
    "steps.fix.output.files[0]",
    "steps.fix.output.else.where",
    "steps.first.status",
    'steps["my-step"].exitCode + 1',
    "steps.many.output[0].x",
    "steps.fix.output.n / 2",
    "has(steps.fix.output.closed.a)",
    "size(steps.fix.stdoutTail) > 3",
  ])("%s", (source) => {
    expect(problemOf(source)).toBeUndefined();
  });

  test.each<[source: string, code: string, hint: string | RegExp]>([
    ["inputs.tst", "unknown_input", "Did you mean test?"],
    ["env.PROT", "unknown_name", "Did you mean PORT?"],
    ["run.nmae", "unknown_name", /It has id, workflow/],
    ["steps.fxi.output", "missing_step", "Did you mean fix?"],
    ["steps.my-step.output", "missing_step", 'An id with - in it is read as steps["my-step"].'],
    ["steps.last.output", "not_needed", /it needs/],
    ["steps.apart.output", "not_needed", "Add apart to its needs."],
    ["steps.fix.outptu.files", "unknown_name", "Did you mean output?"],
    ["steps.fix.files", "unknown_name", /what it hands over is below output/],
    ["steps.fix.output.closed.b", "unknown_name", /mean a/],
    ["steps.fix.output.files.x.y", "unknown_name", /as it is/],
    ["steps.many.output.x", "unknown_name", /as it is/],
    ["item", "unknown_name", /foreach/],
    ["steps", "unknown_name", /As in steps/],
    ["steps[inputs.test].output", "unknown_name", /As in steps/],
    ["steps.fix.output.n + 'a'", "wrong_type", /string\(X\)/],
    ["steps.fix.status == 'succeded'", "never_equal", "Did you mean succeeded?"],
    ["always()", "unknown_function", /status/],
  ])("not %s", (source, code, hint) => {
    const problem = problemOf(source);
    expect(problem?.code).toBe(code);
    expect(problem?.hint).toMatch(hint);
  });

  test("an item has the type of the list's items, and an `if` is asked before there is one", () => {
    const of = (fields: string) =>
      problemsOf(around(`- { id: b, type: command, command: [a, "\${{ item + 1 }}"], ${fields} }`));
    expect(of("foreach: [1, 2]")).toEqual([]);
    expect(of("foreach: \"${{ ['a'] }}\"")).toEqual([]);
    expect(
      problemsOf(
        around(
          `${steps}- { id: b, type: command, command: [a, "\${{ item + 1 }}"], needs: [fix], foreach: "\${{ steps.fix.output.files }}" }`,
        ),
      ),
    ).toEqual(["wrong_type steps[5].command[1]"]);
    expect(of("foreach: [1], if: item == 1")).toEqual(["unknown_name steps[1].if"]);
  });
});

describe("an `if`", () => {
  test.each<[condition: string, problems: readonly string[]]>([
    ["steps.first.exitCode != 0", []],
    ["true", []],
    ["'always() || failure()'", []],
    ["steps.first.output", []],
    ["steps.first.output.ok && inputs.n > 2", []],
    ["inputs.test", ["wrong_type steps[1].if"]],
    ["'${{ true }}'", ["bad_expression steps[1].if"]],
    ["'1 +'", ["bad_expression steps[1].if"]],
    ["1 / 0 == 1", ["expression_failed steps[1].if"]],
    ["5", ["bad_input steps[1].if"]],
    ["false", ["unreachable_step steps[1].if"]],
    ['\'"a" == "b"\'', ["unreachable_step steps[1].if"]],
  ])("%s", (condition, problems) => {
    expect(problemsOf(around(`- { id: b, type: command, command: [a], needs: [first], if: ${condition} }`))).toEqual(
      problems,
    );
  });

  test("what takes long to be seen to be false is not looked at", () => {
    const list = JSON.stringify(Array.from({ length: 30 }, (_, i) => i));
    const condition = `${list}.exists(a, ${list}.exists(b, ${list}.exists(c, a + b + c < 0)))`;
    expect(problemsOf(around(`- { id: b, type: wait, for: 1s, if: "${condition}" }`))).toEqual([]);
    expect(problemsOf(around(`- { id: b, type: wait, for: 1s, if: "[1, 2].exists(a, a < 0)" }`))).toEqual([
      "unreachable_step steps[1].if",
    ]);
  });

  test("what can never start is named with what keeps it", () => {
    expect(
      problemsOf(
        around(`- { id: b, type: wait, for: 1s, if: false, continueOnFailure: true }
- { id: c, type: wait, for: 1s, if: false }
- { id: d, type: wait, for: 1s, needs: [first, b] }
- { id: e, type: wait, for: 1s, needs: [c] }
- { id: f, type: wait, for: 1s, needs: [e] }
- { id: g, type: wait, for: 1s, needs: [c], if: always() }`),
      ),
    ).toEqual([
      "unreachable_step steps[1].if",
      "unreachable_step steps[2].if",
      "unreachable_step steps[4].needs",
      "unreachable_step steps[5].needs",
    ]);
  });
});

test("behind a circle nothing is said of what only the circle hides", () => {
  const steps = `- { id: b, type: wait, for: 1s, needs: [c, first] }
- { id: c, type: wait, for: 1s, needs: [b] }
- { id: d, type: command, command: [a, "\${{ steps.first.output }}"], needs: [c] }`;
  expect(problemsOf(around(steps))).toEqual(["circle steps[1].needs"]);
});

test("whatever a file holds, it is a workflow or there are problems, each with a place", () => {
  const leaf = fc.constantFrom<unknown>(
    null,
    true,
    0,
    -1,
    1.5,
    "",
    "a",
    "b",
    "1s",
    "\u0000",
    "${{ steps.a.output }}",
    "${{ inputs.a",
    "steps.b.status == 'x'",
    "always()",
  );
  const word = fc.constantFrom(
    "name",
    "steps",
    "inputs",
    "env",
    "defaults",
    "id",
    "type",
    "needs",
    "if",
    "foreach",
    "output",
    "retry",
    "attempts",
    "command",
    "shell",
    "with",
    "default",
    "properties",
    "items",
    "enum",
    "required",
    "a",
    "b",
    "__proto__",
    "constructor",
    "toString",
  );
  const any = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: "medium" },
      leaf,
      fc.array(tie("value"), { maxLength: 3 }),
      fc.dictionary(word, tie("value"), { maxKeys: 4 }),
    ),
  })).value;
  const step = fc.record(
    {
      id: fc.oneof(fc.constantFrom("a", "b", "c"), any),
      type: fc.oneof(fc.constantFrom(...stepTypes), any),
      needs: fc.oneof(fc.array(fc.constantFrom("a", "b", "c")), any),
      if: any,
      command: fc.oneof(fc.array(leaf), any),
      output: any,
      foreach: any,
      env: any,
      with: any,
      prompt: any,
    },
    { requiredKeys: [] },
  );
  const file = fc.record(
    {
      name: fc.oneof(fc.constant("n"), any),
      inputs: any,
      env: any,
      defaults: any,
      steps: fc.oneof(fc.array(fc.oneof(step, any), { maxLength: 4 }), any),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(fc.oneof(file, any), (value) => {
      const { workflow, problems } = checkDefinition(value, defaultLimits);
      expect(workflow === null).toBe(problems.length > 0);
      for (const { code, message, path } of problems) {
        expect(code).toMatch(/^[a-z_]+$/);
        expect(message).not.toMatch(/undefined|\[object|NaN/);
        expect(path).toBeTypeOf("string");
      }
    }),
    { numRuns: 1_000 },
  );
});

test("what is too much is refused by its limit", () => {
  const many = around(
    "- { id: b, type: wait, for: 1s, needs: [first] }\n- { id: c, type: wait, for: 1s, needs: [first, b] }",
  );
  expect(read(many, { ...defaultLimits, workflowSteps: 3 }).problems).toEqual([]);
  expect(read(many, { ...defaultLimits, workflowSteps: 2 }).problems.map(({ path }) => path)).toEqual(["steps"]);
  expect(read(many, { ...defaultLimits, workflowNeeds: 3 }).problems).toEqual([]);
  expect(read(many, { ...defaultLimits, workflowNeeds: 2 }).problems.map(({ code }) => code)).toEqual(["too_large"]);
  const text = around('- { id: b, type: command, command: [a, "${{ 1 }}${{ 2 }}", "${{ 3 }}"] }');
  expect(read(text, { ...defaultLimits, workflowExpressions: 3 }).problems).toEqual([]);
  expect(read(text, { ...defaultLimits, workflowExpressions: 2 }).problems.map(({ path }) => path)).toEqual([
    "steps[1].command[2]",
  ]);
});
