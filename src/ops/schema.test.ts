import fc from "fast-check";
import { expect, test } from "vitest";
import { z } from "zod";
import { loopPolicy } from "../core/loop.ts";
import { target } from "../core/target.ts";
import { AppError } from "../core/errors.ts";
import { checkInput } from "./fields.ts";
import { readAs, requireForm } from "./schema.ts";

const form = z.strictObject({
  text: z.string().min(2).max(4).optional(),
  whole: z.int().min(1).max(5).optional(),
  choice: z.enum(["a", "b"]).optional(),
  list: z
    .array(z.strictObject({ kind: z.literal("k") }))
    .min(1)
    .max(2)
    .optional(),
  either: z.union([z.string(), z.boolean()]).optional(),
  kinds: z
    .discriminatedUnion("kind", [z.strictObject({ kind: z.literal("x") }), z.strictObject({ kind: z.literal("y") })])
    .optional(),
  record: z.record(z.string().regex(/^a/, "a name begins with a"), z.string()).optional(),
});

test.each<[value: unknown, wrong: string]>([
  ["x", "form: it must be an object"],
  [{ text: 1 }, "form.text: it must be text"],
  [{ text: "x" }, "form.text: it must be at least 2 characters"],
  [{ whole: 1.5 }, "form.whole: it must be a whole number"],
  [{ whole: 9 }, "form.whole: it must be at most 5"],
  [{ choice: "c" }, 'form.choice: it must be "a" or "b"'],
  [{ list: [] }, "form.list: it must be at least 1 items"],
  [{ list: [{ kind: "q" }] }, 'form.list.0.kind: it must be "k"'],
  [{ either: 1 }, "form.either: it is nothing that may stand here"],
  [{ kinds: { kind: "z" } }, "form.kinds.kind: it must be x or y"],
  [{ record: { b: "1" } }, "form.record.b: a name begins with a"],
  [{ record: [] }, "form.record: it must be an object"],
  [{ more: 1 }, 'form: there is no "more"'],
])("what does not fit is said in our words: %j", (value, wrong) => {
  expect(() => requireForm(form, value, "form")).toThrow(
    expect.objectContaining({ code: "bad_input", message: wrong }),
  );
});

test("no word of the schema library is shown, whatever is sent", () => {
  fc.assert(
    fc.property(
      fc.constantFrom<z.ZodType>(form, target, loopPolicy),
      fc.jsonValue(),
      fc.dictionary(fc.constantFrom("kind", "text", "whole", "argv", "env", "cwd", "attempts"), fc.jsonValue()),
      (schema, value, keys) => {
        for (const sent of [value, keys]) {
          const { wrong } = readAs(schema, sent);
          expect(wrong?.message ?? "").not.toMatch(/Invalid|expected|received|Too (big|small)|Unrecognized|NaN/);
        }
      },
    ),
  );
});

test("what is nested too deeply to be checked is refused at the door", () => {
  let deep: unknown = 0;
  for (let depth = 0; depth < 100_000; depth++) deep = depth % 2 === 0 ? [deep] : { a: deep };
  for (const input of [{ changes: deep }, { other: deep }]) {
    let thrown: unknown;
    try {
      checkInput({}, input);
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(AppError);
    expect(thrown).toMatchObject({ kind: "invalid", code: "too_deep" });
  }
});
