import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { inert, makeInert } from "./inert.ts";

const ESC = "\u001b";

/** Anything that a terminal obeys: C0 but tab and newline, DEL, C1, marks of direction. */
const acts = (text: string) =>
  [...text].some((character) => {
    const code = character.codePointAt(0) ?? 0;
    return (
      (code < 32 && code !== 9 && code !== 10) ||
      (code >= 0x7f && code <= 0x9f) ||
      (code >= 0x202a && code <= 0x202e) ||
      (code >= 0x2066 && code <= 0x2069)
    );
  });

describe("inert", () => {
  test.each([
    ["a title", `${ESC}]0;x\u0007${ESC}[2K\rALL PASSED`, "\nALL PASSED"],
    ["colours", `${ESC}[1;31mred${ESC}[0m`, "red"],
    ["a link", `${ESC}]8;;https://example.org${ESC}\\text${ESC}]8;;${ESC}\\`, "text"],
    ["the clipboard", `${ESC}]52;c;aGk=\u0007x`, "x"],
    ["C1 controls", "\u009b2Jx\u009d0;t\u009cy\u0085", "xy"],
    ["a turned direction", "a\u202eb\u2066c", "abc"],
    ["writing over", "50%\r100%\r\ndone\r", "50%\n100%\ndone\n"],
    ["backspaces and bells", "ab\b\u0007c\u0000", "abc"],
    ["a charset and a reset", `${ESC}(B${ESC}cx${ESC}=y`, "xy"],
    ["tabs and newlines stay", "a\tb\nc", "a\tb\nc"],
  ])("B-039 %s", (_name, text, shown) => {
    expect(makeInert(text)).toBe(shown);
  });

  test("a sequence without an end hides nothing that comes after it", () => {
    expect(makeInert(`${ESC}]0;title\nFAILED\n`)).toBe("]0;title\nFAILED\n");
    expect(makeInert(`${ESC}[31`)).toBe("[31");
  });

  test("any text in any chunks comes out inert, the same as in one piece", () => {
    const piece = fc.oneof(
      fc.constantFrom(ESC, `${ESC}[`, `${ESC}]`, "\r", "\n", "\u009b", "\u009c", "\u0007", "2K", "m", ";", "\\"),
      fc.string({ unit: "binary", maxLength: 5 }),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 30 }), (pieces) => {
        const stream = inert();
        const out = pieces.map((text) => stream.push(text)).join("") + stream.end();
        expect(acts(out)).toBe(false);
        expect(out).toBe(makeInert(pieces.join("")));
      }),
      { numRuns: 1000 },
    );
  });
});
