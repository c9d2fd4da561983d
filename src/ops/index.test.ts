import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { checkInput, schemaOf } from "./fields.ts";
import { findEntry, operations } from "./index.ts";

const folder = new URL("./", import.meta.url);

test("each line of the registry says what its file says", async () => {
  for (const { name, where, summary, load } of operations) {
    const { operation } = await load();
    expect({ name: operation.name, where: operation.where, summary: operation.summary }).toEqual({
      name,
      where,
      summary,
    });
  }
});

test("every file that defines an operation has its line", () => {
  const defining = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter(
    (file) =>
      /^(?!.*\.test\.ts$).*\.ts$/.test(file) &&
      /^export const operation = /m.test(readFileSync(new URL(file, folder), "utf8")),
  );
  expect(defining).toHaveLength(operations.length);
});

test("what an operation names exists: positionals, rest, own, excludes, waits", async () => {
  for (const { name, load } of operations) {
    const { cli, input } = (await load()).operation;
    const named = [
      ...(cli.positionals ?? []),
      ...(cli.rest === undefined ? [] : [cli.rest]),
      ...(cli.own ?? []),
      ...(cli.excludes ?? []).flat(),
      ...(cli.waits?.when === undefined ? [] : [cli.waits.when]),
      ...(cli.waits?.unless === undefined ? [] : [cli.waits.unless]),
    ];
    for (const key of named) expect([name, key, Object.hasOwn(input, key)]).toEqual([name, key, true]);
  }
});

test("no two flags of an operation are written alike", async () => {
  const { flagOf } = await import("./fields.ts");
  for (const { name, load } of operations) {
    const { input } = (await load()).operation;
    const flags = [
      ...Object.entries(input).map(([key, field]) => flagOf(key, field)),
      ...Object.values(input).flatMap((field) => field.short ?? []),
      "json",
      "help",
      "yes",
      "y",
      "h",
    ];
    expect([name, flags.filter((one, index) => flags.indexOf(one) !== index)]).toEqual([name, []]);
  }
});

test("inputs are described as JSON Schema, and what is no input is refused", async () => {
  for (const { load } of operations) {
    const { input } = (await load()).operation;
    expect(schemaOf(input)).toMatchObject({ type: "object", additionalProperties: false });
    expect(() => checkInput(input, { noSuchInput: 1 })).toThrow(/there is no input/);
    expect(() => checkInput(input, [])).toThrow(/must be a JSON object/);
  }
  expect(findEntry("no.such")).toBeUndefined();
});
