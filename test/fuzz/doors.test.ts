/** The door of each operation, which is what a request and a command line meet first: it takes what fits, and refuses the rest with a code. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseArguments, requireGiven } from "../../src/cli/arguments.ts";
import { AppError } from "../../src/core/errors.ts";
import { checkInput } from "../../src/ops/fields.ts";
import { operations } from "../../src/ops/index.ts";
import { chanceOf } from "../sim/chance.ts";
import { budget } from "./budget.ts";
import { examplesOf, inputFor, type Pool, wordsFor } from "./grammar.ts";

/** Nothing was answered yet. */
const empty: Pool = { texts: [], accepted: () => [], namesOf: () => [] };

/** Runs it, and lets only an AppError for people pass. */
function refusedOrFine(act: () => unknown): void {
  try {
    act();
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    expect(error.kind).toBe("invalid");
    expect(error.code).toMatch(/^[a-z_]+$/);
    expect(error.message).not.toBe("");
  }
}

describe.each(operations)("$name", ({ load }) => {
  test("takes any JSON and any words, and refuses what is wrong with a code", async () => {
    const { operation } = await load();
    const examples = examplesOf(operation);
    fc.assert(
      fc.property(fc.noShrink(fc.nat()), (seed) => {
        const own = chanceOf(String(seed));
        const input = inputFor(operation, examples, own, empty);
        refusedOrFine(() => checkInput(operation.input, input));
        refusedOrFine(() => {
          const { input: read } = parseArguments(operation, wordsFor(operation, input, own), "/home/me", () => "eA==");
          requireGiven(operation, read);
          checkInput(operation.input, read);
        });
      }),
      budget(150),
    );
  });

  test("a list holds what it says it holds: null, which alone means that nothing is given, is no item", async () => {
    const { operation } = await load();
    for (const [key, field] of Object.entries(operation.input)) {
      if (!field.many || field.schema["type"] === "object") continue;
      expect(() => field.check([null], key), key).toThrow(AppError);
      if (field.choices !== null) expect(() => field.check([], key), key).toThrow(AppError);
    }
  });
});
