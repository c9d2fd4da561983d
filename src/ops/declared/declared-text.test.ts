import fc from "fast-check";
import { expect, test } from "vitest";
import { parse } from "yaml";
import { readDeclaredText } from "./declared-text.ts";

const read = (text: string | Uint8Array) => readDeclaredText(typeof text === "string" ? Buffer.from(text) : text);
const said = (text: string | Uint8Array) =>
  read(text).problems.map(({ code, message, hint, line, column }) => `${line}:${column} ${code}: ${message}. ${hint}`);

test("YAML, JSON, CRLF and a byte order mark are read alike", () => {
  const value = { version: 1, loops: { a: { every: "5m", command: ["x"] } } };
  for (const text of [
    'version: 1\nloops:\n  a:\n    every: 5m\n    command: ["x"]\n',
    "version: 1\r\nloops:\r\n  a:\r\n    every: 5m\r\n    command:\r\n      - x\r\n",
    `\ufeff${JSON.stringify(value)}`,
    JSON.stringify(value, null, "\t"),
  ])
    expect(read(text)).toMatchObject({ value, problems: [] });
});

test("words of older YAML are text", () => {
  expect(read("a: yes\nb: on\nc: off\nd: 2026-05-01\ne: 0o7\nf: 1_000\ng: ~\n").value).toEqual({
    a: "yes",
    b: "on",
    c: "off",
    d: "2026-05-01",
    e: 7,
    f: "1_000",
    g: null,
  });
});

test("what is no text or no YAML is told with its line", () => {
  expect(said(Buffer.from([0x61, 0x3a, 0x20, 0x31, 0x0a, 0x62, 0x3a, 0xff]))).toEqual([
    "2:1 not_utf8: this is not UTF-8. Save the file as UTF-8.",
  ]);
  expect(said(Buffer.from("\ufeffa: 1", "utf16le"))).toEqual(["1:1 not_utf8: this is UTF-16. Save the file as UTF-8."]);
  expect(said("a: 'x\0y'")).toEqual(["1:1 not_utf8: there is a NUL byte in it. Save the file as UTF-8."]);
  expect(said("\n  \n")).toEqual(["1:1 empty_file: the file is empty. Begin it with `version: 1`."]);
  expect(said("a:\n\tb: 1\n")).toEqual(["2:1 bad_yaml: a tab cannot indent. Indent with spaces."]);
  expect(said("a: 1\nb: 2\na: 3\n")).toEqual([
    "3:1 duplicate_key: this key is here twice. Give each key once; a name is one too.",
  ]);
  expect(said("cron: */5 * * * *\n")[0]).toMatch(/^1:11 bad_yaml: .* A text that begins with \* or & needs quotes\.$/);
  expect(said("a: 1\ncron: *nightly\n")).toEqual([
    "2:7 bad_yaml: the alias *nightly names no anchor that stands before it. A text that begins with * or & needs quotes.",
  ]);
  expect(said("a: 1\n---\nb: 2\n")[0]).toMatch(/more than one document/);
  expect(said("a: !!python/object x\n")[0]).toMatch(/^1:4 bad_yaml: unresolved tag/);
  expect(said("shell: echo a: b\n")[0]).toMatch(/Put a text with `: ` in it into quotes/);
  expect(said('a: "x\nb: 1\n')[0]).toMatch(/missing closing/);
});

test("a duplicate key does not hide what else is wrong: the rest is read", () => {
  expect(read("a: 1\na: 2\nb: 3\n")).toMatchObject({ value: { b: 3 }, problems: [{ code: "duplicate_key" }] });
});

test("aliases are understood, and may not stand for much more than the file holds", () => {
  expect(read("x: &env {A: '1'}\nloops:\n  a: {env: *env}\n  b: {env: *env}\n").value).toMatchObject({
    loops: { a: { env: { A: "1" } }, b: { env: { A: "1" } } },
  });
  const bomb = Array.from({ length: 30 }, (_, i) =>
    i === 0
      ? `a0: &a0 [lol, lol]\n`
      : `a${i}: &a${i} [${Array(9)
          .fill(`*a${i - 1}`)
          .join(", ")}]\n`,
  ).join("");
  expect(said(bomb)).toEqual([
    "1:1 too_many_aliases: its aliases stand for much more than the file itself holds. Write out what they stand for.",
  ]);
  expect(said("a: &a\n  b: *a\n")[0]).toMatch(/too_many_aliases: an alias stands for what it is part of/);
});

test("each part has its place: a value's own, of others the key's; names may hold dots", () => {
  const text = read(
    "version: 1\nloops:\n  a.b:\n    every:   5m\n    labels: [x, y]\n    env:\n      MODE: z\n  a:\n    b: 1\n",
  );
  expect(text.locate("loops.a.b.every")).toEqual({ line: 4, column: 14 });
  expect(text.locate("loops.a.b.labels[1]")).toEqual({ line: 5, column: 17 });
  expect(text.locate("loops.a.b.env")).toEqual({ line: 6, column: 5 });
  expect(text.locate("loops.a.b.env.MODE")).toEqual({ line: 7, column: 13 });
  expect(text.locate("loops.a.b.agent.provider")).toEqual({ line: 3, column: 3 });
  expect(text.locate("loops.nobody")).toEqual({ line: 2, column: 1 });
});

/** A file large enough to be read in pieces. */
const large = (entry: (i: number) => string, count = 1_300): string =>
  `# head\nversion: 1\n\nlimits: {"provider:codex": 3}\nloops:   # all of them\n\n  # the first\n${Array.from({ length: count }, (_, i) => entry(i)).join("")}accounts:\n  claude:work:\n    cap: 2\n`;
const usual = (i: number): string =>
  `  loop-${i}:\n    every: ${i + 1}m\n    shell: |\n      echo ${i}\n       indented\n\n    # a comment\n    env: {A: "x: y", "B": 'two\n      lines'}\n    labels:\n    - a\n    - ${i}\n`;

test.each<[text: string, said: string]>([
  [
    "a: { b: ${{ x }} }\n",
    '1:10 bad_yaml: { begins a set of keys here. An expression stands in quotes here: "${{ ... }}".',
  ],
  [
    "a: [b, ${{ x }}]\n",
    '1:9 bad_yaml: { begins a set of keys here. An expression stands in quotes here: "${{ ... }}".',
  ],
  ["a: {{ x }}\n", '1:5 bad_yaml: { begins a set of keys here. An expression stands in quotes here: "${{ ... }}".'],
  [
    'a: "b" == c\n',
    "1:8 bad_yaml: something stands behind the closing quote. A text that begins with a quote ends with it: put all of it into other quotes.",
  ],
])("an expression that YAML takes for something else has the way out: %j", (text, first) => {
  expect(said(text)[0]).toBe(first);
});

test("a large file in pieces says what it says as a whole, and each place is the same", () => {
  const text = large(usual);
  expect(text.length).toBeGreaterThan(140_000);
  const found = read(text);
  expect(found).toMatchObject({ problems: [] });
  expect(found.value).toEqual(parse(text));
  const lineOf = (part: string) => text.slice(0, text.indexOf(part)).split("\n").length;
  for (const i of [0, 1, 700, 1_299]) {
    expect(found.locate(`loops.loop-${i}.every`)).toEqual({ line: lineOf(`  loop-${i}:\n`) + 1, column: 12 });
    expect(found.locate(`loops.loop-${i}.env.B`).line).toBe(lineOf(`  loop-${i}:\n`) + 7);
  }
  expect(found.locate("accounts.claude:work.cap")).toEqual({ line: lineOf("    cap: 2"), column: 10 });
  expect(found.locate("version")).toEqual({ line: 2, column: 10 });
});

test("a large list in pieces says what it says as a whole, and each place is the same", () => {
  const step = (i: number) =>
    `  - id: s${i}\n    # a comment\n    needs:\n      - s${i + 1}\n    shell: |\n      - id: not one\n      echo ${i} ${"x".repeat(60)}\n`;
  const head = "name: large\n\nsteps:\n";
  const text = `${head}${Array.from({ length: 1_300 }, (_, i) => step(i)).join("")}env:\n  A: b\n`;
  expect(text.length).toBeGreaterThan(140_000);
  const found = read(text);
  expect(found).toMatchObject({ problems: [] });
  expect(found.value).toEqual(parse(text));
  for (const i of [1_299, 0, 1, 700, 699]) {
    expect(found.locate(`steps[${i}].id`)).toEqual({ line: 4 + 7 * i, column: 9 });
    expect(found.locate(`steps[${i}].needs[0]`)).toEqual({ line: 7 + 7 * i, column: 9 });
  }
  expect(found.locate("steps")).toEqual({ line: 3, column: 1 });
  expect(found.locate("env.A").line).toBe(5 + 7 * 1_300);
  // A list is none any more where something else stands in it.
  expect(read(text.replace("env:\n", "  env: 1\nenv:\n")).problems).not.toEqual([]);
});

test("what crosses pieces is read whole: an open quote, an anchor, a name that comes twice, a tab", () => {
  const broken = (at: number, entry: string) => large((i) => (i === at ? entry : usual(i)));
  const lines = broken(900, '  torn:\n    shell: "echo\n').split("\n");
  expect(said(lines.join("\n"))[0]).toMatch(/bad_yaml/);
  const twice = broken(1_100, "  loop-7:\n    every: 1m\n");
  expect(read(twice).problems).toMatchObject([
    { code: "duplicate_key", line: twice.slice(0, twice.lastIndexOf("  loop-7:")).split("\n").length },
  ]);
  const tab = broken(500, "  tab:\n\tevery: 1m\n");
  expect(read(tab).problems).toMatchObject([{ line: tab.slice(0, tab.indexOf("\tevery")).split("\n").length }]);
  const shared = large((i) =>
    i === 0 ? "  loop-0: &one\n    every: 1m\n" : i === 1_299 ? "  last: *one\n" : usual(i),
  );
  expect((read(shared).value as { loops: Record<string, unknown> }).loops["last"]).toEqual({ every: "1m" });
});

test("any text is read or refused, never more", () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: "binary" }), fc.uint8Array()), (bytes) => {
      const { value, problems, locate } = read(typeof bytes === "string" ? bytes : Buffer.from(bytes));
      expect(value !== undefined || problems.length > 0).toBe(true);
      expect(locate("loops.a.b").line).toBeGreaterThan(0);
    }),
    { numRuns: 300 },
  );
});
