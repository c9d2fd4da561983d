import { beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { defaultLimits } from "../limits.ts";
import { runPolicy } from "../loop.ts";
import type { EndedStep, StepToJudge } from "../ports.ts";
import type { RunRecord } from "../records.ts";
import { workflowTarget } from "../target.ts";
import { checkDefinition } from "./check-definition.ts";
import { askedOf, besideFile, decide, type DecideBounds, notRunnable, readsOf } from "./decide.ts";
import { loadExpressions } from "./expression.ts";
import { conditionOf, skeletonOf } from "./skeleton.ts";

beforeAll(loadExpressions);

const limits = defaultLimits;
function workflowOf(steps: string, head = "") {
  const { workflow, problems } = checkDefinition(
    parse(`name: w\ninputs: { n: { type: integer, default: 3 }, text: { type: string } }\n${head}\nsteps:\n${steps}`),
    limits,
  );
  expect(problems).toEqual([]);
  if (workflow === null) throw new Error("it is fine");
  return workflow;
}
const target = (inputs: object) =>
  workflowTarget.parse({
    kind: "workflow",
    name: "w",
    file: "/repo/flows/w.yaml",
    definition: { digest: "a".repeat(64), bytes: 1, head: "" },
    inputs,
    cwd: "/repo",
    env: { FROM: "the run" },
  });
const ended = (key: string, over: Partial<EndedStep> = {}): EndedStep => ({
  key,
  status: "succeeded",
  output: null,
  result: { exitCode: 0, stdoutTail: "", stderrTail: "", class: null, message: null },
  ...over,
});

/** What the last of these steps becomes, the others being as they ended. */
function decided(
  steps: string,
  ends: readonly EndedStep[] = [],
  {
    head = "",
    text = "x",
    files = {},
    bounds = limits,
  }: { head?: string; text?: string; files?: Readonly<Record<string, string>>; bounds?: DecideBounds } = {},
) {
  const workflow = workflowOf(steps, head);
  const { definition } = workflow;
  const step = definition.steps.at(-1);
  const skeleton = skeletonOf(workflow).at(-1);
  const ask: StepToJudge = {
    stepId: "step_1",
    key: step?.id ?? "",
    definitionStep: step?.id ?? "",
    item: null,
    condition: skeleton?.condition ?? "none",
    run: {
      id: "run_1",
      loopName: "nightly",
      slotAt: 0,
      target: target({ n: 3, text }),
      policy: runPolicy.parse({ labels: ["a"], onFinish: "tell" }),
    } as unknown as RunRecord,
    needs: (skeleton?.needs ?? []).map((of) => {
      const one = definition.steps[of];
      const end = ends.find(({ key }) => key === one?.id);
      return { status: end?.status ?? "succeeded", reason: null, continueOnFailure: one?.continueOnFailure === true };
    }),
  };
  return decide(askedOf(workflow, files), ask, ends, bounds);
}
const spec = (...of: Parameters<typeof decided>) => {
  const verdict = decided(...of);
  if (verdict.does !== "start") throw new Error(JSON.stringify(verdict));
  return verdict;
};

describe("a step that starts", () => {
  test("has its values as data, in its arguments and variables, and the shell's line as it was written", () => {
    const text = "$(id) `id` ${{ inputs.n }} '";
    const of = { head: 'env: { A: "${{ inputs.text }}", B: b }', text };
    expect(
      spec('  - { id: a, type: command, command: [echo, "<${{ env.A }}>", "${{ inputs.n }}"] }', [], of).spec.target,
    ).toMatchObject({
      kind: "command",
      argv: ["echo", `<${text}>`, "3"],
      env: { FROM: "the run", A: text, B: "b" },
      cwd: "/repo",
    });
    const shell =
      '  - { id: a, type: command, shell: "echo $A", env: { B: "${{ run.loop }} ${{ run.slot }} ${{ run.id }}" } }';
    expect(spec(shell, [], of).spec.target).toMatchObject({
      argv: ["/bin/sh", "-c", "echo $A"],
      shell: true,
      env: { A: text, B: "nightly 1970-01-01T00:00:00.000Z run_1" },
    });
  });

  test("takes what it does not say from the defaults, and the rest from its run", () => {
    const head = "defaults: { timeout: 5m, retry: { attempts: 3, backoff: 2s }, cwd: sub, envPass: [X], priority: 2 }";
    const { target: of, policy } = spec("  - { id: a, type: command, command: [a] }", [], { head }).spec;
    expect(of).toMatchObject({ cwd: "/repo/flows/sub", envPass: ["X"], worktree: "off" });
    expect(policy).toMatchObject({ attempts: 3, backoffMs: 2_000, timeoutMs: 300_000, priority: 2, labels: ["a"] });
    const own = spec("  - { id: a, type: command, command: [a], timeout: 0s, retry: { attempts: 1 }, cwd: /x }", [], {
      head,
    });
    expect(own.spec.target.cwd).toBe("/x");
    expect(own.spec.policy).toMatchObject({ attempts: 1, timeoutMs: null, onFinish: "tell" });
  });

  test("of an agent has a prompt of so many bytes, not letters", () => {
    const steps = '  - { id: a, type: agent, provider: codex, prompt: "${{ inputs.text }}" }';
    const bounds = { ...limits, promptBytes: 8 };
    expect(decided(steps, [], { text: "12345678", bounds }).does).toBe("start");
    expect(decided(steps, [], { text: "€€€", bounds })).toMatchObject({
      does: "fail",
      message: expect.stringMatching(/8 bytes/),
    });
  });

  test("of an agent has its prompt filled in, from a file too, and a verifier changes nothing", () => {
    const worker = spec(
      '  - { id: a, type: agent, provider: claude, account: "claude:work", prompt: "n is ${{ inputs.n }}" }',
    );
    expect(worker).toMatchObject({
      prompt: "n is 3",
      spec: { target: { kind: "agent", account: "work", worktree: "auto" } },
    });
    expect(worker.spec.policy).toMatchObject({
      timeoutMs: limits.agentTimeoutMs,
      idleTimeoutMs: limits.agentIdleTimeoutMs,
    });
    const verifier = spec("  - { id: a, type: agent, provider: codex, role: verifier, promptFile: p.md }", [], {
      files: { "p.md": "look at ${{ inputs.n }}" },
    });
    expect(verifier).toMatchObject({ prompt: "look at 3", spec: { target: { permission: "read-only" } } });
  });

  test("carries what its end is judged by", () => {
    const gate = "  - { id: a, type: gate, shell: x, blockedExitCodes: [75], lock: deploy, output: { type: object } }";
    expect(spec(gate).spec).toMatchObject({
      blockedExitCodes: [75],
      lock: "deploy",
      output: { type: "object" },
      base: "/repo",
    });
  });
});

describe("an `if`", () => {
  const two = (condition: string, more = "") =>
    `  - { id: a, type: command, command: [a]${more} }\n  - { id: b, needs: [a], if: '${condition}', type: command, command: [b] }`;
  const failed = ended("a", {
    status: "failed",
    result: { exitCode: 3, stdoutTail: "", stderrTail: "no", class: "exit", message: "m" },
  });

  test.each<[condition: string, more: string, end: EndedStep, does: string]>([
    ["steps.a.exitCode == 0", "", ended("a"), "start"],
    ["steps.a.exitCode != 0", "", ended("a"), "skip"],
    ['steps.a.exitCode == 3 && steps.a.stderrTail == "no"', ", continueOnFailure: true", failed, "start"],
    ["failure()", "", failed, "start"],
    ["failure()", "", ended("a"), "skip"],
    ["success()", "", failed, "skip"],
    ['always() && steps.a.status == "failed"', "", failed, "start"],
    ["steps.a.output == null", "", ended("a", { status: "skipped", result: null }), "start"],
  ])("%s%s", (condition, more, end, does) => {
    // One that was skipped is asked about only where the condition asks.
    const asks = end.status === "skipped" ? `always() && ${condition}` : condition;
    expect(decided(two(asks, more), [end]).does).toBe(does);
  });

  test.each<[condition: string, says: RegExp]>([
    ["steps.a.output.n > 1", /^if: steps\.a\.output\.n > 1: .*, at character \d+$/],
    ["steps.a.output", /^if: steps\.a\.output is \{"x":1\}, not true or false$/],
  ])("%s fails its step with the place and the reason", (condition, says) => {
    const verdict = decided(two(condition), [ended("a", { output: '{"x":1}' })]);
    expect(verdict).toMatchObject({ does: "fail", class: "env_invalid", reason: "expression" });
    expect(verdict.does === "fail" && verdict.message).toMatch(says);
  });

  test("reads ends of steps by its references alone", () => {
    const workflow = workflowOf(
      `${two("steps.a.exitCode == 0")}\n  - { id: c, needs: [b], type: command, command: ["\${{ steps.a.stdoutTail }}", "\${{ inputs.n }}"] }`,
    );
    const asked = askedOf(workflow, {});
    expect(["a", "b", "c"].map((key) => readsOf(asked, key, limits))).toEqual([[], ["a"], ["a"]]);
  });
});

test.each<[what: string, step: string, text: string, says: RegExp]>([
  ["a NUL in an argument", '{ id: a, type: command, command: [a, "${{ inputs.text }}"] }', "a\0b", /NUL/],
  ["an empty program", '{ id: a, type: command, command: ["${{ inputs.text }}"] }', "", /empty/],
  ["a blank prompt", '{ id: a, type: agent, provider: codex, prompt: "${{ inputs.text }}" }', " ", /blank/],
  [
    "an account of another provider",
    "{ id: a, type: agent, provider: codex, account: 'claude:x', prompt: x }",
    "",
    /claude:x/,
  ],
])("%s fails the step", (_what, step, text, says) => {
  const verdict = decided(`  - ${step}`, [], { text });
  expect(verdict.does === "fail" && verdict.message).toMatch(says);
});

describe("a list", () => {
  const of = (foreach: string) =>
    `  - { id: a, type: command, command: [echo, "<\${{ item }}>"], foreach: ${foreach}, concurrency: 2 }`;
  test.each<[foreach: string, items: readonly string[]]>([
    ['[1, b, { c: "${{ inputs.n }}" }]', ["1", '"b"', '{"c":"3"}']],
    ['"${{ [inputs.n, 4].map(x, x + 1) }}"', ["4", "5"]],
    ['"${{ [] }}"', []],
  ])("%s", (foreach, items) => {
    expect(decided(of(foreach))).toEqual({ stepId: "step_1", does: "each", items, concurrency: 2 });
  });

  test("that is none, or is too long, fails its step", () => {
    const says = (steps: string, ends: readonly EndedStep[] = []) => {
      const verdict = decided(steps, ends);
      return verdict.does === "fail" ? verdict.message : verdict;
    };
    const after =
      '  - { id: b, type: command, command: [b] }\n  - { id: a, needs: [b], type: command, command: [a], foreach: "${{ steps.b.output }}" }';
    expect(says(after, [ended("b", { output: '{"x":1}' })])).toBe('foreach: it is {"x":1}, not a list');
    const long = JSON.stringify(Array.from({ length: limits.foreachItems + 1 }, () => 0));
    expect(says(after, [ended("b", { output: long })])).toBe("foreach: it has 10001 items, more than 10000");
  });

  test("gives each item its own values", () => {
    const workflow = workflowOf(of('["x"]'));
    const ask = {
      stepId: "s",
      key: "a[0]",
      definitionStep: "a",
      item: '{"y":1}',
      condition: "none",
      needs: [],
    } as const;
    const run = {
      id: "run_1",
      target: target({ n: 3 }),
      policy: runPolicy.parse({}),
      slotAt: null,
    } as unknown as RunRecord;
    const verdict = decide(askedOf(workflow, {}), { ...ask, run }, [], limits);
    expect(verdict.does === "start" && verdict.spec.target).toMatchObject({ argv: ["echo", '<{"y":1}>'] });
  });
});

test("what is not run is named by its step", () => {
  expect(notRunnable(workflowOf("  - { id: a, type: wait, for: 1s }"))).toMatchObject({ path: "steps[0]" });
  expect(notRunnable(workflowOf("  - { id: a, type: check, command: [a] }"))).toBeNull();
});

test.each(["none", "true", "always()", "!failure ()", "steps.a.exitCode == 0 || success()"] as const)(
  "the store asks about `%s` as the language does",
  (written) => {
    expect(conditionOf(written === "none" ? undefined : written)).toBe(
      written === "none" ? "none" : written === "true" ? "plain" : "asks",
    );
  },
);

test("a path goes from the file's folder on", () => {
  expect([besideFile("/a/w.yaml", "b.md"), besideFile("/w.yaml", "b.md"), besideFile("/a/w.yaml", "/b.md")]).toEqual([
    "/a/b.md",
    "/b.md",
    "/b.md",
  ]);
});
