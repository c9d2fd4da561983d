import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Framed, frameLines, type LineLimits } from "./lines.ts";
import { outline } from "./outline.ts";

const seal = (text: string) => text;
const LIMITS: LineLimits = { lineBytes: 262_144, nestedTextBytes: 16_384, seal };

/** Frames bytes that come in pieces of these sizes, the last one again and again. */
function frame(bytes: Uint8Array, sizes: readonly number[] = [65_536], limits = LIMITS): Framed[] {
  const framing = frameLines(limits);
  const framed: Framed[] = [];
  let index = 0;
  for (let at = 0; at < bytes.length; index++) {
    const size = Math.max(1, sizes[Math.min(index, sizes.length - 1)] ?? 1);
    framed.push(...framing.push(bytes.subarray(at, at + size)));
    at += size;
  }
  framed.push(...framing.end());
  return framed;
}
const linesOf = (framed: readonly Framed[]) => framed.flatMap((each) => (each.kind === "line" ? [each.line] : []));
const notesOf = (framed: readonly Framed[]) => framed.flatMap((each) => (each.kind === "note" ? [each.text] : []));
const texts = (text: string | Uint8Array, sizes?: readonly number[]) =>
  linesOf(frame(Buffer.from(text), sizes)).map(({ text: line }) => line);

describe("lines", () => {
  test("end with a newline, with a carriage return before it, or with the stream", () => {
    expect(texts("a\nb\r\nc")).toEqual(["a", "b", "c"]);
    expect(texts("a\n")).toEqual(["a"]);
    expect(texts("")).toEqual([]);
  });

  test("that are empty divide paragraphs; a flood of them is not kept", () => {
    expect(texts("a\n\nb")).toEqual(["a", "", "b"]);
    expect(texts(`a${"\n".repeat(10_000)}b`)).toEqual(["a", "", "", "b"]);
  });

  test("that are events are read, behind a byte order mark and between colours too", () => {
    const [plain, marked, coloured, text, list] = linesOf(
      frame(Buffer.from('{"a":1}\n\ufeff{"a":2}\n\u001b[1m{"a":3}\u001b[0m\nhello {x}\n[1]\n')),
    );
    expect([plain, marked, coloured, text, list].map((line) => line?.event)).toEqual([
      { a: 1 },
      { a: 2 },
      { a: 3 },
      null,
      null,
    ]);
    expect(text?.text).toBe("hello {x}");
  });

  test.each([65_535, 65_536, 65_537, 131_072])("B-025 a line of %i bytes, with and without its end", (length) => {
    const event = JSON.stringify({ type: "x", text: "" });
    const line = JSON.stringify({ type: "x", text: "y".repeat(length - event.length) });
    expect(line.length).toBe(length);
    for (const end of ["\n", ""]) {
      const framed = frame(Buffer.from(line + end));
      expect(linesOf(framed).map(({ event: read }) => read?.["type"])).toEqual(["x"]);
      expect(linesOf(framed)[0]?.text).toBe(line);
      expect(notesOf(framed)).toEqual([]);
    }
  });

  test("B-024 an oversized event keeps the framing, and says how much was cut", () => {
    const filler = "z".repeat(10_485_760 - JSON.stringify({ type: "user", text: "" }).length);
    const big = JSON.stringify({ type: "user", text: filler });
    const framed = frame(Buffer.from(`${big}\n{"type":"result","is_error":false}\n`));
    expect(notesOf(framed)).toEqual(["truncated: 10485760 -> 262144"]);
    expect(linesOf(framed).map(({ event }) => event?.["type"])).toEqual(["user", "result"]);
    expect(String(linesOf(framed)[0]?.event?.["text"]).length).toBeLessThanOrEqual(262_144);
  });

  test("B-024 an oversized closing event says what decides, wherever that stands", () => {
    const closing = {
      usage: { input_tokens: 1234, deep: Array.from({ length: 20_000 }, (_, i) => ({ i, text: "t".repeat(90) })) },
      result: "r".repeat(3_000_000),
      permission_denials: [{ tool_name: "Write", tool_input: { content: "c".repeat(2_000_000) } }],
      session_id: "s-1",
      is_error: false,
      api_error_params: { rate_limit_info: { resetsAt: 1_796_000_226 } },
      type: "result",
    };
    const [line] = linesOf(frame(Buffer.from(`${JSON.stringify(closing)}\n`), [1, 77, 8_191]));
    expect(line?.event).toMatchObject({
      type: "result",
      is_error: false,
      session_id: "s-1",
      usage: { input_tokens: 1234 },
      permission_denials: [{ tool_name: "Write" }],
      api_error_params: { rate_limit_info: { resetsAt: 1_796_000_226 } },
    });
    expect(JSON.stringify(line?.event).length).toBeLessThan(2 * LIMITS.lineBytes);
  });

  test("B-026 without a line end nothing grows, and it is said once", () => {
    const framing = frameLines(LIMITS);
    const chunk = Buffer.alloc(65_536, "x");
    const framed: Framed[] = [];
    const before = process.memoryUsage().rss;
    for (let i = 0; i < 8_000; i++) framed.push(...framing.push(chunk));
    expect(process.memoryUsage().rss - before).toBeLessThan(32 * 1_048_576);
    framed.push(...framing.push(Buffer.from("\nnext\n")));
    expect(notesOf(framed)).toEqual([
      expect.stringMatching(/^unframed output/),
      `truncated: ${8_000 * 65_536} -> 4096`,
    ]);
    expect(linesOf(framed).map(({ text }) => text.length)).toEqual([4_096, 4]);
  });

  test("B-026 an event without an end stays bounded too", () => {
    const framing = frameLines(LIMITS);
    const framed: Framed[] = [...framing.push(Buffer.from('{"type":"x","text":"'))];
    const chunk = Buffer.alloc(65_536, 'y\\"');
    const before = process.memoryUsage().rss;
    for (let i = 0; i < 1_000; i++) framed.push(...framing.push(chunk));
    framed.push(...framing.end());
    expect(process.memoryUsage().rss - before).toBeLessThan(32 * 1_048_576);
    expect(notesOf(framed)[0]).toMatch(/^unframed output/);
  });

  test("B-031 a character that is cut anywhere stays one", () => {
    const bytes = Buffer.from('{"a":"😀é"}\nplain 😀\n');
    for (let at = 1; at < bytes.length; at++) expect(texts(bytes, [at, 1])).toEqual(['{"a":"😀é"}', "plain 😀"]);
  });

  test("B-032 U+FFFD from the producer is counted, flagged when it first appears, and left as it is", () => {
    const bytes = Buffer.from('{"a":"\ufffd\ufffd\ufffd"}\n{"b":"\\ufffd"}\n{"c":"\\\\ufffd"}\n');
    const framed = frame(bytes);
    expect(notesOf(framed)).toEqual(["warning: producer sent U+FFFD (3)", "warning: producer sent U+FFFD (4)"]);
    expect(framed[0]?.kind).toBe("note");
    expect(linesOf(framed)[0]?.event).toEqual({ a: "\ufffd\ufffd\ufffd" });
  });

  test("bytes that are no UTF-8 are told apart from that", () => {
    expect(notesOf(frame(Buffer.from([0x61, 0xff, 0xfe, 0x0a])))).toEqual(["warning: bytes that are no UTF-8 (2)"]);
  });

  test("a range that was given back to the disk costs the line that it cut, and no more", () => {
    const bytes = Buffer.concat([Buffer.from('{"a":1}\n{"b":'), Buffer.alloc(3_000_000), Buffer.from('3}\n{"c":3}\n')]);
    for (const sizes of [[65_536], [7, 511], [100_000]]) {
      const framed = frame(bytes, sizes);
      expect(linesOf(framed).map(({ event }) => event)).toEqual([{ a: 1 }, { c: 3 }]);
      expect(notesOf(framed)[0]).toMatch(/^\d+ bytes of the log were given back/);
    }
  });

  test("an output that was emptied begins again", () => {
    const framing = frameLines(LIMITS);
    const framed = [
      ...framing.push(Buffer.from('{"a":1}\n{"half')),
      ...framing.restart(),
      ...framing.push(Buffer.from('{"b":2}\n')),
    ];
    expect(linesOf(framed).map(({ event }) => event)).toEqual([{ a: 1 }, { b: 2 }]);
    expect(notesOf(framed)).toEqual(["the program emptied this output"]);
  });

  test("of any content, cut anywhere, never throw and are always the same", () => {
    const piece = fc.oneof(
      fc.string({ unit: "binary", maxLength: 40 }).map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes)),
      fc
        .constantFrom("\n", "\r\n", '{"type":"x"', '"}', "\u001b[31m", "\\", "\0\0", "\ufeff")
        .map((text) => Buffer.from(text)),
      fc.json().map((text) => Buffer.from(`${text}\n`)),
    );
    const small = { lineBytes: 64, nestedTextBytes: 16, seal };
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 20 }),
        fc.array(fc.integer({ min: 1, max: 30 }), { minLength: 1, maxLength: 9 }),
        (pieces, sizes) => {
          const bytes = Buffer.concat(pieces);
          expect(frame(bytes, sizes, small)).toEqual(frame(bytes, [bytes.length + 1], small));
        },
      ),
      { numRuns: 400 },
    );
  });
});

describe("an outline", () => {
  const read = (text: string, bytes = 1_000_000, sizes = [3], nestedTextBytes = bytes) => {
    const reading = outline({ bytes, nestedTextBytes, seal });
    const all = Buffer.from(text);
    for (let at = 0, i = 0; at < all.length; i++) {
      const size = sizes[i % sizes.length] ?? 1;
      reading.push(all.subarray(at, at + size));
      at += size;
    }
    return reading.end();
  };

  test("with room for everything is what JSON.parse reads", () => {
    const object = fc.dictionary(
      fc.string({ maxLength: 20 }).filter((key) => key !== "__proto__"),
      fc.jsonValue({ maxDepth: 4 }),
      { noNullPrototype: true },
    );
    const hasProto = (text: string) => text.includes("__proto__");
    fc.assert(
      fc.property(object, fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 5 }), (value, sizes) => {
        const text = JSON.stringify(value, null, sizes[0]);
        fc.pre(!hasProto(text));
        expect(read(text, 1_000_000, sizes)).toEqual(JSON.parse(text));
      }),
      { numRuns: 300 },
    );
  });

  test("of what is no whole object is null, and never throws", () => {
    for (const text of [
      "",
      "[1]",
      "1",
      '{"a"',
      '{"a":1',
      '{"a":tru}',
      '{"a":1}}',
      '{"a":1]',
      "{,}",
      `${'{"a":'.repeat(20_000)}`,
    ])
      expect(read(text, 1_000_000, [4_096])).toBeNull();
    fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => void read(`{${text}`)));
  });

  test("cuts texts at whole characters and escapes", () => {
    for (let bytes = 1; bytes < 40; bytes++) {
      const cut = read('{"m":{"t":"a\\u00e9\\ud83d\\ude00é😀\\\\\\n"}}', 10_000, [5], bytes);
      const text = (cut?.["m"] as { t: string } | undefined)?.t ?? "";
      expect("aé😀é😀\\\n".startsWith(text.replace(/[\ud800-\udbff]$/, ""))).toBe(true);
    }
  });

  test("hands what it cut to be sealed, and nothing else", () => {
    const sealed: string[] = [];
    const keep = (text: string) => `${sealed.push(text)}`;
    const reading = outline({ bytes: 4_096, nestedTextBytes: 100, seal: keep });
    reading.push(Buffer.from(JSON.stringify({ m: { t: "x".repeat(300), u: "y".repeat(100) } })));
    expect(reading.end()).toEqual({ m: { t: "1", u: "y".repeat(100) } });
    expect(sealed).toEqual(["x".repeat(100)]);
  });
});
