import fc from "fast-check";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { AppError } from "../../core/errors.ts";
import { parseDuration } from "../../core/duration.ts";
import { LOOP_FORM, readLoopForm } from "./declared-form.ts";
import { faults, type Schema } from "../../../test/schema-reader.ts";
import { configSchema, declarationSchema } from "./declared-schema.ts";

const good = `
version: 1
loops:
  fetch: {every: 1h30m, command: [git, fetch], timeout: 0s, attempts: 3, labels: [a], env: {A: "1"}, secrets: {B: env:B}}
  report: {cron: "30 2 * * *", tz: Europe/Rome, shell: make report, cwd: sub, expect: [output], onFailure: notify}
  deps: {at: 2027-01-01T00:00:00Z, agent: {provider: codex, promptFile: p.md, permission: read-only}}
  tidy: {dynamic: true, agent: {provider: custom, command: [./a.sh, --x], prompt: Tidy.}, worktree: off}
accounts: {claude:work: {cap: 2, home: ~/logins/work}, codex:team: }
limits: {provider:codex: 4}
`;

test("the schema of drover.yaml takes what apply takes, and names what it does not", () => {
  const schema = declarationSchema() as Schema;
  expect(faults(schema, parse(good))).toEqual([]);
  const said = (text: string) => faults(schema, parse(text));
  expect(said("loops: {}")).toEqual([" required"]);
  expect(said("version: 2")).toEqual([".version const"]);
  expect(said("version: 1\nworkflows: {}")).toEqual([".workflows additionalProperties"]);
  const loop = (text: string) => said(`version: 1\nloops: {a: {${text}}}`);
  expect(loop("every: 5m, shell: x, timeout: 90")).toEqual([".loops.a.timeout type"]);
  expect(loop("every: 5m, shell: x, timeout: 90 s")).toEqual([".loops.a.timeout pattern"]);
  expect(loop("every: 5m, shell: x, overlap: skipp")).toEqual([".loops.a.overlap enum"]);
  expect(loop("every: 5m, shell: x, attempts: 0")).toEqual([".loops.a.attempts minimum"]);
  expect(loop("every: 5m, shell: x, evry: 5m")).toEqual([".loops.a.evry additionalProperties"]);
  expect(loop("every: 5m, cron: x, shell: x")).toEqual([".loops.a oneOf"]);
  expect(loop("every: 5m, dynamic: false, shell: x")).toEqual([]);
  expect(loop("dynamic: false, shell: x")).toEqual([".loops.a oneOf"]);
  expect(loop("every: 5m")).toEqual([".loops.a oneOf"]);
  expect(loop("every: 5m, command: echo")).toEqual([".loops.a.command type"]);
  expect(loop("every: 5m, agent: {provider: gpt, prompt: x}")).toEqual([".loops.a.agent.provider enum"]);
  expect(loop("every: 5m, agent: {provider: codex}")).toEqual([".loops.a.agent oneOf"]);
  expect(loop("every: 5m, shell: x, workflow: x")).toEqual([".loops.a oneOf"]);
  expect(loop("every: 5m, workflow: w.yaml, inputs: {a: x}")).toEqual([]);
  expect(loop("every: 5m, shell: x, pool: x")).toEqual([".loops.a.pool additionalProperties"]);
});

test("what the reader takes the schema takes too: no editor marks what apply would do", () => {
  const schema = (
    (declarationSchema()["properties"] as Record<string, Schema>)["loops"] as { additionalProperties: Schema }
  ).additionalProperties;
  const word = fc.constantFrom(...LOOP_FORM.keys(), "nothing");
  const value = fc.oneof(
    fc.constantFrom("5m", "1h", "0s", "x", "", 1, 3, -1, true, false, "files", "skip", "auto", "2027-01-01"),
    fc.constantFrom([], ["a"], ["output"], [1], {}, { A: "x" }, { A: 1 }, { B: "env:C" }),
  );
  const reading = { cwd: "/", readBytes: () => "" };
  const form = fc.dictionary(word, value, { maxKeys: 4 });
  fc.assert(
    fc.property(form, (more) => {
      const whole: Record<string, unknown> = { every: "5m", shell: "date", ...more };
      if (readLoopForm(whole, reading).faults === null) expect(faults(schema, whole)).toEqual([]);
    }),
    { numRuns: 500 },
  );
});

test("its form of a duration is that of the reader", () => {
  const { pattern } = (
    (declarationSchema()["properties"] as Record<string, Schema>)["loops"] as {
      additionalProperties: { properties: Record<string, { pattern: string }> };
    }
  ).additionalProperties.properties["timeout"] as { pattern: string };
  for (const text of ["", "5", "5m", "1h30m", "1w2d3h4m5s6ms", "30m1h", "5 m", "1.5h", "m"]) {
    let isRead = true;
    try {
      parseDuration(text);
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      isRead = false;
    }
    expect([text, new RegExp(pattern, "u").test(text)]).toEqual([text, isRead]);
  }
});

test("the schema of config.yaml takes each setting as it is printed", () => {
  const schema = configSchema() as Schema;
  expect(
    faults(
      schema,
      parse(
        "store: sqlite:x.db\ncaps: {agents: 2}\nlimits: {leaseMs: 60s, minFreeBytes: 1GiB, maxDepth: 3, logCapBytes: 1000}",
      ),
    ),
  ).toEqual([]);
  expect(faults(schema, parse("limits: {leaseMs: soon, leaseM: 1}\nstore: 3"))).toEqual([
    ".store type",
    ".limits.leaseMs pattern",
    ".limits.leaseM additionalProperties",
  ]);
});
