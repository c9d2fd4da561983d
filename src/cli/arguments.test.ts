import { expect, test } from "vitest";
import { AppError } from "../core/errors.ts";
import { bytes, choice, duration, flag, folder, integer, pairs, required, text, texts } from "../ops/fields.ts";
import { defineOperation } from "../ops/operation.ts";
import { object } from "../ops/shape.ts";
import { nearest } from "../core/nearest.ts";
import { commonIn, parseArguments, requireGiven } from "./arguments.ts";

const operation = defineOperation({
  name: "thing.do",
  where: "local",
  summary: "Do a thing",
  input: {
    name: required(text("a name")),
    command: texts("a command", { empty: true }),
    timeoutMs: duration("a time"),
    drainMs: duration("a time with a usual value", { bare: "30s" }),
    count: integer("a number", { min: -5, max: 9, short: "n" }),
    follow: flag("a switch", { short: "f" }),
    quiet: flag("another switch", { short: "q" }),
    mode: choice("a choice", ["one", "two"]),
    label: texts("labels", { commas: true }),
    env: pairs("variables"),
    cwd: folder("a folder"),
    reason: text("a sentence", { free: true }),
    note: bytes("a note"),
  },
  output: object({}),
  cli: { positionals: ["name"], rest: "command", excludes: [["follow", "quiet"]] },
  run: async () => ({}),
});

const parse = (...words: string[]) => parseArguments(operation, words, "/home/me/work").input;
const code = (...words: string[]): string => {
  try {
    requireGiven(operation, parse(...words));
  } catch (error) {
    if (error instanceof AppError) return `${error.code} ${error.path}`;
    throw error;
  }
  return "fine";
};

test("reads every form in which a value may be written", () => {
  expect(parse("a", "--timeout", "1h30m", "--count=3", "--label", "x,y", "--label", "z")).toEqual({
    name: "a",
    timeoutMs: 5_400_000,
    count: 3,
    label: ["x", "y", "z"],
  });
  expect(parse("-n5", "a")).toEqual({ name: "a", count: 5 });
  expect(parse("-n", "-5", "a")).toEqual({ name: "a", count: -5 });
  expect(parse("-fn", "2")).toEqual({ follow: true, count: 2 });
  expect(parse("--env", "A=", "--env", "B=x=y")).toEqual({ env: { A: "", B: "x=y" } });
});

test("everything after -- is the command's, also what looks like ours", () => {
  expect(parse("a", "--follow", "--", "ls", "--json", "", "--", "-x")).toEqual({
    name: "a",
    follow: true,
    command: ["ls", "--json", "", "--", "-x"],
  });
});

test("a path is the caller's", () => {
  expect(parse("--cwd", "../other/./x")).toEqual({ cwd: "/home/me/other/x" });
  expect(parse("--cwd", "/a/../b")).toEqual({ cwd: "/b" });
});

test("a value may be left out only where it says what that means", () => {
  expect(parse("--drain", "--follow")).toEqual({ drainMs: 30_000, follow: true });
  expect(parse("--drain")).toEqual({ drainMs: 30_000 });
  expect(parse("--drain", "2m")).toEqual({ drainMs: 120_000 });
});

test.each(["--help", "-h", "--json", "--", "--note", "--bogus", "-", "--note=x"])("a sentence may be %j", (word) => {
  expect(parse("a", "--reason", word, "-f")).toEqual({ name: "a", reason: word, follow: true });
  expect(parse("a", `--reason=${word}`, "-f")).toEqual({ name: "a", reason: word, follow: true });
  expect(commonIn(operation, ["a", "--reason", word, "-f"])).toEqual({ help: false, json: false });
  if (word !== "-") expect(parse("--note", word)).toEqual({ note: word });
});

test("the common flags are seen where the others are wrong, and not behind --", () => {
  expect(commonIn(operation, ["--bogus", "-h", "--count", "--json"])).toEqual({ help: true, json: true });
  expect(commonIn(operation, ["--mode", "one", "--", "--json", "-h"])).toEqual({ help: false, json: false });
  expect(commonIn(operation, ["--reason", "--", "--json"])).toEqual({ help: false, json: true });
});

test.each([
  [["caf\ufffd"], "bad_unicode name"],
  [["a", "--reason", "caf\ufffd"], "bad_unicode --reason"],
  [["a", "--note=caf\ufffd"], "bad_unicode --note"],
  [["a", "--env", "A=\ufffd"], "bad_unicode --env"],
  [["a", "--cwd", "\ufffd"], "bad_unicode --cwd"],
  [["a", "--", "cat", "caf\ufffd"], "bad_unicode command"],
])("what was typed and is not UTF-8 is refused: %j", (words, expected) => {
  expect(code(...words)).toBe(expected);
});

test.each([
  [["a", "--nme", "x"], "unknown_flag --nme"],
  [["a", "-z"], "unknown_flag -z"],
  [["a", "--timeout"], "missing_value --timeout"],
  [["a", "--timeout", "--", "ls"], "missing_value --timeout"],
  [["a", "--timeout", "--follow"], "missing_value --timeout"],
  [["a", "--count", "10"], "out_of_range --count"],
  [["a", "--count", "1e1"], "bad_input --count"],
  [["a", "--mode", "three"], "bad_choice --mode"],
  [["a", "--mode", "one", "--mode", "two"], "given_twice --mode"],
  [["a", "--follow=yes"], "bad_input --follow"],
  [["a", "--env", "=x"], "bad_input --env"],
  [["a", "--env", "A=1", "--env", "A=2"], "given_twice --env"],
  [["a", "--timeout", "5 m"], "bad_duration --timeout"],
  [["a", "b"], "too_many_words b"],
  [["a", "-f", "-q"], "contradiction --quiet"],
  [["a\0b"], "nul_byte name"],
  [[], "missing_value name"],
])("refuses %j: %s", (words, expected) => {
  expect(code(...words)).toBe(expected);
});

test("a misspelt word is told which one was meant, and only when one is near", () => {
  expect(nearest("--tiemout", ["--timeout", "--time"])).toBe("--timeout");
  expect(nearest("rnus", ["run", "runs", "up"])).toBe("runs");
  expect(nearest("xyzzy", ["run", "runs", "up"])).toBeNull();
});
