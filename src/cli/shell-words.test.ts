import { describe, expect, test } from "vitest";
import { forBash, forFish, forZsh, readBashLine } from "./shell-words.ts";

const BREAKS = " \t\n\"'@><=;|&(:";
const read = (line: string) => readBashLine(line, BREAKS);

describe("a line of bash up to the cursor", () => {
  test.each<[string, readonly string[], string, string, number]>([
    ["drover ", [], "", "none", 0],
    ["drover loop show my", ["loop", "show"], "my", "none", 0],
    ["drover loop show my\\ lo", ["loop", "show"], "my lo", "none", 0],
    ['drover loop show "my lo', ["loop", "show"], "my lo", "double", 0],
    ["drover loop show 'my lo", ["loop", "show"], "my lo", "single", 0],
    ["drover loop show 'my loop' ", ["loop", "show", "my loop"], "", "none", 0],
    // Readline begins its word anew behind these, and only there.
    ["drover runs --loop=na", ["runs"], "--loop=na", "none", 7],
    ['drover runs --loop="my', ["runs"], "--loop=my", "double", 7],
    ["drover account show claude:wo", ["account", "show"], "claude:wo", "none", 7],
    ["drover account show claude\\:wo", ["account", "show"], "claude:wo", "none", 0],
    ['drover x "a $b \\" \\n', ["x"], 'a $b " \\n', "double", 0],
    ["A=1 B='x y' drover runs ", ["runs"], "", "none", 0],
    ["drover x '' ", ["x", ""], "", "none", 0],
  ])("%s", (line, before, current, quote, kept) => {
    expect(read(line)).toEqual({ before, current, quote, kept });
  });
});

describe("offers in the form of each shell", () => {
  const odd = { value: 'it\'s $5: "a b" `c` \\d ~é!', about: "" };
  test("bash: quoted for the quotation that is open, from where readline begins", () => {
    const to = { columns: 80, lists: true };
    expect(forBash([odd], read("drover x "), to)).toEqual([
      'it\\\'s\\ \\$5:\\ \\"a\\ b\\"\\ \\`c\\`\\ \\\\d\\ \\~é\\!',
    ]);
    expect(forBash([odd], read("drover x 'it"), to)).toEqual(["it'\\''s $5: \"a b\" `c` \\d ~é!"]);
    expect(forBash([odd], read('drover x "it'), to)).toEqual(['it\'s \\$5: \\"a b\\" \\`c\\` \\\\d ~é!']);
    expect(forBash([{ value: "--loop=my loop", about: "" }], read("drover x --loop=m"), to)).toEqual(["my\\ loop"]);
  });

  test("bash: what it is stands behind where several are listed, cut to the terminal", () => {
    const offers = [
      { value: "a", about: "active" },
      { value: "long", about: "x".repeat(100) },
    ];
    expect(forBash(offers, read("drover x "), { columns: 40, lists: true })).toEqual([
      "a     (active)",
      `long  (${"x".repeat(27)}...)`,
    ]);
    expect(forBash(offers, read("drover x "), { columns: 40, lists: false })).toEqual(["a", "long"]);
    expect(forBash(offers.slice(0, 1), read("drover x "), { columns: 40, lists: true })).toEqual(["a"]);
  });

  test("zsh and fish: a value and what it is; colons and backslashes are told apart from the separator", () => {
    const offers = [odd, { value: "a:b\\c", about: "one: two" }];
    expect(forZsh(offers)).toEqual(['it\'s $5\\: "a b" `c` \\\\d ~é!', "a\\:b\\\\c:one: two"]);
    expect(forFish(offers)).toEqual([odd.value, "a:b\\c\tone: two"]);
  });

  test("what would break a line is not offered, and a description is one line", () => {
    const offers = [
      { value: "a\nb", about: "" },
      { value: "\u001b[2J", about: "" },
      { value: "c", about: "x\n\u001b[31my" },
    ];
    expect(forFish(offers)).toEqual(["c\tx [31my"]);
    expect(forZsh(offers)).toEqual(["c:x [31my"]);
    expect(forBash(offers, read("drover "), { columns: 80, lists: true })).toEqual(["c"]);
  });
});
