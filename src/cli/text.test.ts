import fc from "fast-check";
import { expect, test } from "vitest";
import { cut, inertLine, inertText, table, widthOf, wrap } from "./text.ts";

const OBEYED = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

test("B-039 foreign text holds nothing that a terminal obeys", () => {
  expect(inertLine("\u001b]0;x\u0007\u001b[2K\rPASSED")).toBe("\\x1b]0;x\\x07\\x1b[2K\\rPASSED");
  expect(inertLine("a\u202egnp.exe")).toBe("a\\u{202e}gnp.exe");
  expect(inertText("one\n\ttwo\u009b")).toBe("one\n    two\\x9b");
  fc.assert(fc.property(fc.string({ unit: "binary", maxLength: 60 }), (text) => !OBEYED.test(inertLine(text))));
});

test.each([
  ["plain", 5],
  ["", 0],
  ["日本語", 6],
  ["e\u0301", 1],
  ["한글", 4],
  ["👍", 2],
  ["👩‍👩‍👧", 2],
  ["🇮🇹", 2],
  ["❤️", 2],
  ["ｆｕｌｌ", 8],
  ["\u001b[31mred\u001b[39m", 3],
])("%s is %i columns wide", (text, width) => {
  expect(widthOf(text)).toBe(width);
});

test("what is cut fits, and says that it was cut", () => {
  expect(cut("abcdef", 4)).toBe("abc…");
  expect(cut("abcd", 4)).toBe("abcd");
  expect(cut("日本語", 4)).toBe("日…");
  fc.assert(
    fc.property(
      fc.string({ unit: "grapheme", maxLength: 20 }),
      fc.integer({ min: 1, max: 12 }),
      (text, columns) => widthOf(cut(text, columns)) <= columns,
    ),
  );
});

const dim = (text: string) => text;

test("a table's columns stand under one another, whatever is in them", () => {
  const rows = [
    ["日本", "1"],
    ["b", "20"],
  ];
  expect(table([{ title: "NAME" }, { title: "N", right: true }], rows, { columns: 80, dim })).toBe(
    "NAME   N\n日本   1\nb     20\n",
  );
});

test("an elastic column gives way, others do not", () => {
  const text = table([{ title: "ID" }, { title: "COMMAND", elastic: true }], [["run_1", "x".repeat(60)]], {
    columns: 30,
    dim,
  });
  for (const line of text.trimEnd().split("\n")) expect(widthOf(line)).toBeLessThanOrEqual(30);
  expect(text).toContain("run_1  xxx");
});

test("without a terminal nothing is cut, nothing titled, and a tab parts the cells", () => {
  expect(
    table([{ title: "A", elastic: true }, { title: "B" }], [["x".repeat(200), "a\tb\nc"]], { columns: null, dim }),
  ).toBe(`${"x".repeat(200)}\ta\\tb\\nc\n`);
});

test("lines break between words, and a long word keeps a line of its own", () => {
  expect(wrap("its end is proved", 9)).toEqual(["its end", "is proved"]);
  expect(wrap('{"a":1,"b":2}', 8)).toEqual(['{"a":1,', '"b":2}']);
  expect(wrap("/usr/bin:/bin", 9)).toEqual(["/usr/bin:", "/bin"]);
  expect(wrap("a verylongword b", 5)).toEqual(["a", "verylongword", "b"]);
});

test("before a column that says why is cut short, spare columns go and long names give", () => {
  const head = [
    { title: "NAME", elastic: true, share: 1 / 3 },
    { title: "TOOK", spare: true },
    { title: "REASON", elastic: true, least: 20 },
  ];
  const rows = [["n".repeat(40), "4s", "the queue was full"]];
  const at = (columns: number) => table(head, rows, { columns, dim }).split("\n")[1];
  expect(at(80)).toBe(`${"n".repeat(40)}  4s    the queue was full`);
  expect(at(60)).toBe(`${"n".repeat(33)}…  4s    the queue was full`);
  expect(at(30)).toBe(`${"n".repeat(9)}…  the queue was full`);
});
