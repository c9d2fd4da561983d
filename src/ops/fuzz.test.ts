import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseArguments, requireGiven } from "../cli/arguments.ts";
import { AppError } from "../core/errors.ts";
import { checkInput, flagOf } from "./fields.ts";
import { operations } from "./index.ts";

/** Runs it, and lets only an AppError for people pass. */
function refusedOrFine(act: () => unknown): boolean {
  try {
    act();
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    expect(error.kind).toBe("invalid");
    expect(error.code).toMatch(/^[a-z_]+$/);
    expect(error.message).not.toBe("");
  }
  return true;
}

const hostile = fc.oneof(
  fc.jsonValue(),
  fc.constantFrom(
    "",
    "\0",
    "\ud800",
    "../../etc/passwd",
    "-1",
    "NaN",
    "1e309",
    "__proto__",
    "$(id)",
    "'; drop table runs; --",
  ),
  fc.string({ unit: "binary" }),
  fc.integer(),
  fc.double(),
);

describe.each(operations)("$name", ({ load }) => {
  test("takes any JSON, and refuses what is wrong with a code", async () => {
    const { input } = (await load()).operation;
    const keys = [...Object.keys(input), "__proto__", "constructor", "other"];
    fc.assert(
      fc.property(fc.oneof(fc.dictionary(fc.constantFrom(...keys), hostile), hostile), (given) =>
        refusedOrFine(() => checkInput(input, given)),
      ),
      { numRuns: 150 },
    );
  });

  test("takes any words, and refuses what is wrong with a code", async () => {
    const { operation } = await load();
    const flags = Object.entries(operation.input).map(([key, field]) => `--${flagOf(key, field)}`);
    const word = fc.oneof(
      fc.constantFrom(...flags, "--", "--json", "-", "-x", "--=", "=", "--help=1"),
      fc.string({ unit: "binary", maxLength: 12 }),
      fc.constantFrom("5m", "1", "-1", "A=b", "2026-02-30", "* * * * *", "\u0000", "\u001b[2J"),
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 8 }), (words) =>
        refusedOrFine(() => {
          const { input } = parseArguments(operation, words, "/home/me", () => "eA==");
          requireGiven(operation, input);
          checkInput(operation.input, input);
        }),
      ),
      { numRuns: 150 },
    );
  });
});
