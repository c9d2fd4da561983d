import fc from "fast-check";
import { expect, test } from "vitest";
import { isWhole, readTemplate, renderTemplate } from "./template.ts";

const sourcesOf = (text: string) => readTemplate(text).holes.map(({ source }) => source);

test.each<[text: string, sources: readonly string[]]>([
  ["plain $x {{ y }}", []],
  ["${{ a }}", [" a "]],
  ["x ${{a}} y ${{ b }}z", ["a", " b "]],
  ['${{ {"k": {"l": 1}} }}', [' {"k": {"l": 1}} ']],
  ['${{ "}}" }}', [' "}}" ']],
  ["${{ '\\'}}' }}", [" '\\'}}' "]],
  ['${{ "${{" }}', [' "${{" ']],
])("the expressions of %s", (text, sources) => {
  expect(sourcesOf(text)).toEqual(sources);
  expect(readTemplate(text).open).toBeNull();
});

test("one that nothing closes has its place", () => {
  expect(readTemplate("ab ${{ x }} ${{ y").open).toBe(12);
  expect(readTemplate('${{ "}}').open).toBe(0);
  expect(readTemplate("${{ a } }").open).toBe(0);
});

test("one expression and nothing else keeps its type; in a text a value is written out", () => {
  const list = ["a", 1];
  expect(renderTemplate(readTemplate("${{ x }}"), [list])).toBe(list);
  expect(renderTemplate(readTemplate(" ${{ x }}"), [list])).toBe(' ["a",1]');
  expect(renderTemplate(readTemplate("${{ a }}-${{ b }}-${{ c }}-${{ d }}"), ["t", 2, null, true])).toBe("t-2--true");
  expect(isWhole(readTemplate("${{ a }}${{ b }}"))).toBe(false);
});

test("a value is data: what stands in it is never read again", () => {
  fc.assert(
    fc.property(fc.string(), fc.string(), fc.string(), (before, value, after) => {
      const quiet = (text: string) => text.replaceAll("${{", "");
      const template = readTemplate(`${quiet(before)}$\{{ x }}${quiet(after)}-`);
      expect(renderTemplate(template, [`${value}$\{{ y }}`])).toBe(`${quiet(before)}${value}$\{{ y }}${quiet(after)}-`);
    }),
  );
});
