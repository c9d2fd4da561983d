import fc from "fast-check";
import { expect, test } from "vitest";
import { allOf, isYes, lastOf, readUnit, UNIT_LIMITS, wordsOf } from "./unit-file.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const unit = (...texts: string[]) => readUnit(texts.map((text, index) => ({ path: `f${index}`, bytes: bytes(text) })));

test("settings by section, with the first of their lines; comments and blank lines are none", () => {
  const { settings, problems } = unit("# a\n; b\n\n[Unit]\nA = b c \r\nB=x \\\n  # among\n  y\\\n z\n[Timer]\nA=2");
  expect(problems).toEqual([]);
  expect(settings.map(({ section, key, value, line }) => [section, key, value, line])).toEqual([
    ["Unit", "A", "b c", 5],
    ["Unit", "B", "x    y  z", 6],
    ["Timer", "A", "2", 11],
  ]);
});

test("drop-ins come after the unit; an empty assignment of a list forgets what stands before it", () => {
  const found = unit("[Service]\nExecStart=/a\nExecStart=/b\nNice=1\n", "[Service]\nExecStart=\nExecStart=/c\nNice=\n");
  expect(allOf(found, "Service", "ExecStart").map(({ value, path }) => [value, path])).toEqual([["/c", "f1"]]);
  expect(lastOf(found, "Service", "Nice")).toBeNull();
  expect(lastOf(found, "Service", "ExecStart")?.value).toBe("/c");
  expect(allOf(found, "Service", "None")).toEqual([]);
});

test("what is wrong is told with its place, all of it", () => {
  const { problems } = unit(
    "A=1\n[S]\nhello\nB=\0\n",
    `[S]\nC=${"x".repeat(UNIT_LIMITS.lineLength)}`,
    "x".repeat(UNIT_LIMITS.bytes + 1),
  );
  expect(problems.map(({ path, line, reason }) => `${path}:${line} ${reason}`)).toEqual([
    "f0:1 it stands before the first section",
    "f0:3 it is neither a section nor NAME=value",
    "f0:4 it holds a NUL byte",
    expect.stringContaining("f1:2 the line is longer"),
    expect.stringContaining("f2:1 the file is larger"),
  ]);
  expect(readUnit([{ path: "p", bytes: new Uint8Array([0xff]) }]).problems).toHaveLength(1);
});

test.each([
  ["a  b\tc", ["a", "b", "c"]],
  ['"a b" c', ["a b", "c"]],
  ["'a \"b\"' c", ['a "b"', "c"]],
  ['a"b c"d', ["ab cd"]],
  ["''", [""]],
  ["a\\sb\\tc", ["a b\tc"]],
  ["\\x41\\102\\u0043\\U00000044", ["ABCD"]],
  ["a\\ b", ["a\\ b"]],
  ["\\; a\\;b", [";", "a\\;b"]],
  ["a\\", ["a\\"]],
  ["a\\qb", ["a\\qb"]],
  ["\\\\ \\' \\\"", ["\\", "'", '"']],
  ["", []],
  ['"open', null],
])("the words of %j", (value, words) => {
  expect(wordsOf(value)?.map(({ text }) => text) ?? null).toEqual(words);
});

test("yes and no", () => {
  expect(["yes", "On", "1", "TRUE"].map(isYes)).toEqual([true, true, true, true]);
  expect(["no", "off", "0", "false"].map(isYes)).toEqual([false, false, false, false]);
  expect(isYes("maybe")).toBeNull();
});

test("any bytes are read or told, never a throw", () => {
  const piece = fc.constantFrom(..."[Unit] [ ] = A=b \\ # ; \n \r\n \0 ' \" \\x41 \\x \\u é".split(" "), " ");
  const text = fc.array(piece, { maxLength: 40 }).map((all) => bytes(all.join("")));
  fc.assert(
    fc.property(fc.oneof(text, fc.uint8Array()), fc.string(), (input, value) => {
      for (const { line } of readUnit([{ path: "p", bytes: input }]).settings) expect(line).toBeGreaterThan(0);
      wordsOf(value);
    }),
    { numRuns: 1_000 },
  );
});
