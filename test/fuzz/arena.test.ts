/** What the arena demands is demanded: an operation that breaks a promise is found, whichever it is. */
import { writeFileSync, writeSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { AppError } from "../../src/core/errors.ts";
import { text } from "../../src/ops/fields.ts";
import { findEntry } from "../../src/ops/index.ts";
import { defineOperation, type LocalContext } from "../../src/ops/operation.ts";
import { object, string } from "../../src/ops/shape.ts";
import { type Arena, openArena } from "./arena.ts";
import { openWatchdog, type Watchdog } from "./watchdog.ts";

let dog: Watchdog;
let arena: Arena;
beforeAll(async () => {
  dog = openWatchdog();
  arena = await openArena(dog);
});
afterAll(async () => {
  await arena.close();
  await dog.close();
});

const refusal = (code = "bad_input", kind: "invalid" | "conflict" = "invalid"): AppError =>
  new AppError(kind, code, "no");
const planted = (run: (context: LocalContext) => Promise<unknown>) =>
  defineOperation({
    name: "limit.set",
    where: "local",
    summary: "planted",
    input: { reason: text("why") },
    output: object({ answer: string }),
    run,
  });

test.each<[what: string, found: RegExp, run: (context: LocalContext) => Promise<unknown>]>([
  ["a fault of our own", /a fault of our own/, async () => Promise.reject(new TypeError("x is not a function"))],
  [
    "a code that is written down nowhere",
    /not in docs\/reference\/errors\.md/,
    () => Promise.reject(refusal("no_such_code")),
  ],
  [
    "a kind that its operation does not have",
    /does not say in `raises`/,
    () => Promise.reject(refusal("busy", "conflict")),
  ],
  ["an answer that is not of its shape", /answer is no text/, async () => ({ answer: 1 })],
  [
    "the words of a library",
    /no words for people/,
    () => Promise.reject(new AppError("invalid", "bad_input", "Invalid input: expected string")),
  ],
  [
    "a stored half",
    /refused, and the store is another/,
    async (context) => {
      await context.perform("limit.set", { resource: "provider:claude", limit: 3 });
      throw refusal();
    },
  ],
  [
    "a file that is left",
    /refused, and the home is another/,
    async ({ places }) => {
      writeFileSync(join(places.state, "half"), "x");
      throw refusal();
    },
  ],
])("%s", async (_what, found, run) => {
  await expect(arena.tries(planted(run), {})).rejects.toThrow(found);
});

const stack = "Error: x\n    at run (/a/src/b.ts:1:2)\n";
test.each<[how: string, found: RegExp, print: () => void]>([
  ["a stack past every stream", /: a stack/, () => writeSync(2, stack)],
  ["a stack by the stream", /: a stack/, () => process.stderr.write(stack)],
  [
    "a stack in the words of an error",
    /: a stack/,
    () => {
      throw new AppError("invalid", "bad_input", stack);
    },
  ],
  ["a control sequence", /: control characters/, () => writeSync(2, Buffer.from("\u001b[2J"))],
])("%s on standard error", async (_how, found, print) => {
  const [doctor, { inspect }] = [await findEntry("doctor")?.load(), arena.world];
  if (doctor === undefined) throw new Error("there is a doctor");
  const world = arena.world as { inspect: typeof inspect };
  world.inspect = async (...given) => {
    print();
    return inspect(...given);
  };
  try {
    await expect(arena.triesWords(doctor.operation, [])).rejects.toThrow(found);
  } finally {
    world.inspect = inspect;
  }
  await arena.triesWords(doctor.operation, []);
});

test("what is refused as it should be, and what is answered, is let pass", async () => {
  expect(
    await arena.tries(
      planted(() => Promise.reject(refusal())),
      {},
    ),
  ).toBeNull();
  expect(
    await arena.tries(
      planted(async () => ({ answer: "x" })),
      {},
    ),
  ).toEqual({ answer: "x" });
});
