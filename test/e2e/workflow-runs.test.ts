/** Workflows run through the real binary: what starts, what is skipped, what is said of it, and what survives a kill. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { RunTreeDocument } from "../../src/ops/documents.ts";
import { type Home, openHome, processesOf, until } from "./drover.ts";

let home: Home;
let cwd: string;

beforeEach(() => {
  home = openHome({ prefix: "drover-runs-" });
  cwd = join(home.folder, "repo");
  mkdirSync(cwd);
});
afterEach(() => home.close());

function write(text: string, name = "w.yaml"): string {
  const file = join(cwd, name);
  writeFileSync(file, text);
  return file;
}
const standing = ({ steps }: Pick<RunTreeDocument, "steps">) =>
  Object.fromEntries(steps.map(({ key, status, reason }) => [key, reason === null ? status : `${status}(${reason})`]));

const branching = `name: branching
inputs: { n: { type: integer, default: 3 }, word: { type: string, default: "$(id) \`id\` \\"; id" } }
env: { WORD: "\${{ inputs.word }}" }
steps:
  - id: one
    type: command
    shell: echo "hello $WORD"; echo oops >&2; echo "{\\"list\\":[\\"a\\",\\"b\\"],\\"n\\":$N}" > "$DROVER_OUTPUT"
    env: { N: "\${{ inputs.n }}" }
    output: { type: object, required: [n], properties: { n: { type: integer }, list: { type: array, items: { type: string } } } }
  - { id: bad, type: check, command: [sh, -c, exit 3], continueOnFailure: true }
  - id: two
    needs: [one, bad]
    if: steps.bad.exitCode == 3 && steps.one.output.n == 3
    type: command
    command: [printf, "%s|%s|%s", "\${{ steps.one.output.list }}", "\${{ steps.one.stdoutTail }}", "\${{ run.workflow }}"]
  - { id: not, needs: [one], if: steps.one.output.n > 3, type: command, command: [echo, never] }
  - { id: behind-not, needs: [not], type: command, command: [echo, never] }
  - { id: gate, needs: [one], type: gate, shell: exit 75, blockedExitCodes: [75] }
  - { id: behind-gate, needs: [gate], type: command, command: [echo, never] }
  - id: last
    needs: [two, behind-gate, behind-not]
    if: always()
    type: command
    shell: echo "$S"
    env: { S: "\${{ steps[\\"behind-gate\\"].status }} \${{ steps[\\"behind-not\\"].exitCode }}" }
`;

test("a run does what its file says, and can say of each step what became of it", async () => {
  write(branching);
  const { status, out, err } = await home.run(["run", "w.yaml"], { cwd });
  expect([status, err]).toEqual([0, ""]);
  const lines = out.trimEnd().split("\n");
  expect(lines).toContain("one  succeeded");
  expect(lines).toContain("bad  failed (exited with status 3)");
  expect(lines).toContain("behind-gate  skipped (blocked)");

  const { items } = await home.json<{ items: { id: string; kind: string }[] }>(["runs"]);
  const run = await home.json<RunTreeDocument>(["show", items[0]?.id ?? ""]);
  expect(run).toMatchObject({ kind: "workflow", status: "succeeded", error: null, output: null });
  expect(standing(run)).toEqual({
    one: "succeeded",
    bad: "failed(exit)",
    two: "succeeded",
    not: "skipped(condition)",
    "behind-not": "skipped(needs_skipped)",
    gate: "skipped(blocked)",
    "behind-gate": "skipped(blocked)",
    last: "succeeded",
  });
  expect(run.steps.find(({ key }) => key === "two")?.needs).toEqual(["one", "bad"]);
  expect(run.steps[0]?.output).toEqual({ list: ["a", "b"], n: 3 });
  const logs = async (step: string) => (await home.run(["logs", run.id, "--step", step])).out;
  // What a value holds is data: the shell is handed it, and runs nothing of it.
  expect(await logs("one")).toBe('hello $(id) `id` "; id\n');
  expect(await logs("two")).toBe('["a","b"]|hello $(id) `id` "; id\n|branching');
  expect(await logs("last")).toBe("skipped \n");

  const shown = (await home.run(["show", run.id])).out;
  expect(shown).toMatch(/behind-not\s+command\s+skipped\s+needs_skipped\s+not\s/);
  const why = await home.json<{ facts: { steps: { step: string; sentence: string }[] } }>(["why", run.id]);
  expect(Object.fromEntries(why.facts.steps.map(({ step, sentence }) => [step, sentence]))).toEqual({
    bad: "It failed: exited with status 3; what needs it goes on.",
    not: "Its `if` is not true.",
    "behind-not": "It needs not, skipped by a condition.",
    gate: "It blocks: it exited with status 75, which blocks.",
    "behind-gate": "gate blocks.",
  });
});

test.each<[what: string, args: readonly string[], status: number, code: string]>([
  ["a number that is none", ["--input", "n=many"], 2, "bad_value"],
  ["an input that it does not have", ["--input", "m=1"], 2, "unknown_input"],
  ["a limit that the file says", ["--timeout", "5m"], 2, "contradiction"],
  ["a command besides", ["--", "true"], 2, "contradiction"],
  ["an agent besides", ["--agent", "claude"], 2, "contradiction"],
])("%s is refused, and nothing is kept", async (_what, args, status, code) => {
  write(branching);
  expect((await home.refused(status, ["run", "w.yaml", ...args], { cwd })).code).toBe(code);
  expect(await home.json(["runs"])).toMatchObject({ items: [] });
});

test("what this version does not run is refused with its step, and a word that is no file with what to do", async () => {
  write("name: a\nsteps:\n  - { id: ask, type: approval, question: now? }\n");
  expect(await home.refused(2, ["run", "w.yaml"], { cwd })).toMatchObject({
    code: "not_available",
    message: "the step ask is of type approval, which this version does not run",
  });
  expect((await home.refused(2, ["run", "make"], { cwd })).hint).toContain("A command goes after --.");
  write("name: a\ninputs: { must: {} }\nsteps:\n  - { id: b, type: command, command: [a] }\n");
  expect((await home.refused(2, ["run", "w.yaml"], { cwd })).code).toBe("missing_value");
});

test("the same key twice is one run, and its definition is pinned when it begins", async () => {
  const mark = join(cwd, "mark");
  write(
    `name: a\nsteps:\n  - { id: b, type: command, shell: 'echo x >> ${mark}; while [ ! -e ${mark}.go ]; do sleep 0.05; done' }\n  - { id: c, needs: [b], type: command, command: [echo, first] }\n`,
  );
  const start = async () => (await home.json<RunTreeDocument>(["run", "w.yaml", "--key", "k", "--detach"], { cwd })).id;
  const id = await start();
  expect(await start()).toBe(id);
  await until(() => existsSync(mark), "the first step is at work");
  write("name: a\nsteps:\n  - { id: d, type: command, command: [echo, second] }\n");
  expect((await home.refused(4, ["run", "w.yaml", "--key", "k"], { cwd })).code).toBe("key_taken");
  writeFileSync(`${mark}.go`, "");
  const ended = async () => {
    const run = await home.json<RunTreeDocument>(["show", id]);
    return run.finishedAt === null ? null : run;
  };
  expect(standing((await until(ended, "the run has ended")) ?? { steps: [] })).toEqual({
    b: "succeeded",
    c: "succeeded",
  });
  expect((await home.run(["logs", id, "--step", "c"])).out).toBe("first\n");
  expect(readFileSync(mark, "utf8")).toBe("x\n");
});

test("an error in an expression ends its step with the place and the reason", async () => {
  write(`name: a
steps:
  - { id: b, type: command, shell: 'echo "{}" > "$DROVER_OUTPUT"' }
  - { id: c, needs: [b], if: steps.b.output.n > 1, type: command, command: [echo] }
`);
  const { status } = await home.run(["run", "w.yaml"], { cwd });
  expect(status).toBe(1);
  const { items } = await home.json<{ items: RunTreeDocument[] }>(["runs"]);
  expect(items[0]).toMatchObject({ status: "failed", reason: "expression", error: { class: "env_invalid" } });
  expect(items[0]?.error?.message).toMatch(/^if: steps\.b\.output\.n > 1: .*at character/);
});

test("an output that does not fit is a failure of its step", async () => {
  write(`name: a
steps:
  - { id: b, type: command, shell: 'echo "{\\"n\\":\\"x\\"}" > "$DROVER_OUTPUT"', output: { type: object, properties: { n: { type: integer } } } }
  - { id: c, type: command, command: ["true"], output: { type: object } }
`);
  expect((await home.run(["run", "w.yaml"], { cwd })).status).toBe(1);
  const { items } = await home.json<{ items: { id: string }[] }>(["runs"]);
  const run = await home.json<RunTreeDocument>(["show", items[0]?.id ?? ""]);
  expect(standing(run)).toEqual({ b: "failed(output_invalid)", c: "failed(output_invalid)" });
  expect(run.steps.map(({ attempts }) => attempts[0]?.message)).toEqual([
    expect.stringContaining(".n"),
    "the output does not fit the step's schema: nothing was written to DROVER_OUTPUT",
  ]);
});

test("a step is done for each item, and what they hand over is one list; a retry begins at what did not succeed", async () => {
  const mark = join(cwd, "mark");
  write(`name: a
steps:
  - { id: list, type: command, shell: 'echo "[\\"x y\\",2]" > "$DROVER_OUTPUT"; echo list >> ${mark}' }
  - id: each
    needs: [list]
    foreach: \${{ steps.list.output }}
    concurrency: 1
    type: command
    shell: echo "{\\"was\\":\\"$ITEM\\"}" > "$DROVER_OUTPUT"
    env: { ITEM: "\${{ item }}" }
  - { id: late, needs: [each], type: command, shell: 'test -e ${mark}.now && echo "$ALL"', env: { ALL: "\${{ steps.each.output }}" } }
`);
  expect((await home.run(["run", "w.yaml"], { cwd })).status).toBe(1);
  const newest = async () => {
    const { items } = await home.json<{ items: { id: string }[] }>(["runs"]);
    return home.json<RunTreeDocument>(["show", items[0]?.id ?? ""]);
  };
  const first = await newest();
  expect(standing(first)).toEqual({
    list: "succeeded",
    each: "succeeded",
    "each[0]": "succeeded",
    "each[1]": "succeeded",
    late: "failed(exit)",
  });
  expect(first.steps.find(({ key }) => key === "each")?.output).toEqual([{ was: "x y" }, { was: "2" }]);
  writeFileSync(`${mark}.now`, "");
  expect((await home.run(["retry", first.id, "--wait"])).status).toBe(0);
  const again = await newest();
  expect([again.retryOf, standing(again)]).toEqual([
    first.id,
    { list: "succeeded", each: "succeeded", late: "succeeded" },
  ]);
  expect((await home.run(["logs", again.id])).out).toBe('[{"was":"x y"},{"was":"2"}]\n');
  expect((await home.run(["retry", first.id, "--wait", "--from", "list"])).status).toBe(0);
  expect(readFileSync(mark, "utf8")).toBe("list\nlist\n");
});

test("a cancel ends the trees of all its steps, and starts no other", async () => {
  write(`name: a
steps:
  - { id: b, type: command, shell: 'sleep 300 & sleep 300' }
  - { id: c, type: command, command: [sleep, "300"] }
  - { id: d, needs: [b], if: always(), type: command, command: [echo] }
`);
  const { id } = await home.json<RunTreeDocument>(["run", "w.yaml", "--detach"], { cwd });
  const run = () => home.json<RunTreeDocument>(["show", id]);
  await until(
    async () => (await run()).steps.every(({ key, attempts }) => key === "d" || attempts[0]?.status === "running"),
    "both are at work",
  );
  expect((await home.run(["cancel", id, "--reason", "enough"])).status).toBe(0);
  expect(standing(await run())).toEqual({ b: "cancelled(enough)", c: "cancelled(enough)", d: "cancelled(enough)" });
  await until(
    () => processesOf(home.folder).every((pid) => !readFileSync(`/proc/${pid}/cmdline`, "latin1").startsWith("sleep")),
    "nothing of it is left",
  );
});

test("a loop starts a workflow: the run has its steps, and says whose slot it is", async () => {
  write(
    'name: a\nsteps:\n  - { id: b, type: command, command: [echo, "${{ run.loop }} ${{ inputs.x }}"] }\ninputs: { x: {} }\n',
  );
  await home.json(["loop", "add", "nightly", "--every", "1h", "--workflow", "w.yaml", "--input", "x=7"], { cwd });
  const { status } = await home.run(["loop", "run", "nightly", "--wait"]);
  expect(status).toBe(0);
  const { items } = await home.json<{ items: { id: string }[] }>(["runs"]);
  expect((await home.run(["logs", items[0]?.id ?? ""])).out).toBe("nightly 7\n");
});

test("B-019 a kill of the daemon repeats no finished step of a workflow, and loses none", {
  timeout: 120_000,
}, async () => {
  const log = join(cwd, "log");
  const layers = 6;
  const wide = 5;
  const key = (layer: number, of: number) => `s${layer}-${of}`;
  const steps = Array.from({ length: layers * wide }, (_, i) => {
    const [layer, of] = [Math.floor(i / wide), i % wide];
    const needs = layer === 0 ? "" : `needs: [${key(layer - 1, of)}, ${key(layer - 1, (of + 1) % wide)}], `;
    return `  - { id: ${key(layer, of)}, ${needs}type: command, shell: 'echo $DROVER_STEP >> ${log}; sleep 0.1; echo "{\\"of\\":\\"$DROVER_STEP\\"}" > "$DROVER_OUTPUT"' }\n`;
  });
  write(`name: thirty\nsteps:\n${steps.join("")}`);
  await home.run(["up"]);
  const { id } = await home.json<RunTreeDocument>(["run", "w.yaml", "--detach"], { cwd });
  const begun = () => (existsSync(log) ? readFileSync(log, "utf8").split("\n").length - 1 : 0);
  for (const at of [1, 4, 7, 11, 16, 22, 27]) {
    await until(() => begun() >= at, `${at} steps have begun`);
    const { daemon } = await home.json<{ daemon: { pid: number } }>(["status"]);
    process.kill(daemon.pid, "SIGKILL");
    await home.run(["up"]);
  }
  const run = await until(
    async () => {
      const found = await home.json<RunTreeDocument>(["show", id]);
      return found.finishedAt === null ? null : found;
    },
    "the run has ended",
    60_000,
  );
  expect(run?.status).toBe("succeeded");
  const counts = new Map<string, number>();
  for (const line of readFileSync(log, "utf8").trimEnd().split("\n")) counts.set(line, (counts.get(line) ?? 0) + 1);
  for (const step of run?.steps ?? []) {
    expect([step.key, step.status, step.output]).toEqual([step.key, "succeeded", { of: step.key }]);
    const lost = step.attempts.filter(({ status }) => status !== "succeeded");
    expect([step.key, counts.get(step.key)]).toEqual([
      step.key,
      1 + lost.filter(({ startedAt }) => startedAt !== null).length,
    ]);
    for (const attempt of lost) expect(attempt.class).toBe("lost");
  }
});
