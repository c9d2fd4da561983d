import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { fingerprint, formsOf, NO_SECRETS, openScrub, REPLACEMENT, scrubAll, scrubStream, scrubText } from "./scrub.ts";

const scrubFor = (...secrets: string[]) => openScrub(JSON.stringify(fingerprint(secrets)));

// A secret inside the replacement's own text could not be told from it.
const secret = fc
  .string({ unit: "binary", minLength: 4, maxLength: 40 })
  .filter((text) => Buffer.byteLength(text) >= 4 && !/[[\]]/.test(text) && !REPLACEMENT.includes(text));
const secrets = fc.array(secret, { minLength: 1, maxLength: 4 });
/** Text that is made of secrets, parts of secrets, their encodings and noise. */
const textWith = (values: readonly string[]) =>
  fc
    .array(
      fc.oneof(
        fc.constantFrom(...values),
        fc.constantFrom(...values.flatMap(formsOf)).map((form) => form.toString()),
        fc.tuple(fc.constantFrom(...values), fc.nat(60)).map(([value, at]) => value.slice(0, at)),
        fc.tuple(fc.constantFrom(...values), fc.nat(60)).map(([value, at]) => value.slice(at)),
        fc.string({ maxLength: 20 }),
      ),
      { maxLength: 12 },
    )
    .map((parts) => Buffer.from(parts.join("")));

const holdsNone = (bytes: Uint8Array, values: readonly string[]) => {
  for (const value of values)
    for (const form of formsOf(value))
      expect(Buffer.from(bytes).includes(form), `${JSON.stringify(value)} came out`).toBe(false);
};

describe("scrub", () => {
  test("B-122 no secret comes out, whatever the secrets and however the output is cut into chunks", () => {
    fc.assert(
      fc.property(
        secrets.chain((values) =>
          fc.tuple(fc.constant(values), textWith(values), fc.array(fc.nat(30), { maxLength: 40 })),
        ),
        ([values, text, sizes]) => {
          const scrub = scrubFor(...values);
          const stream = scrubStream(scrub);
          const parts: Buffer[] = [];
          let at = 0;
          for (const size of sizes) {
            parts.push(stream.push(text.subarray(at, at + size)));
            at = Math.min(text.length, at + size);
          }
          parts.push(stream.push(text.subarray(at)), stream.end());
          const out = Buffer.concat(parts);
          holdsNone(out, values);
          expect(out.equals(scrubAll(scrub, text))).toBe(true);
        },
      ),
      { numRuns: 500 },
    );
  });

  test("byte by byte, not even the longest form of a secret comes out", () => {
    const value = 'a "secret" of mine';
    for (const form of formsOf(value)) {
      const stream = scrubStream(scrubFor(value));
      const out = [...form].map((byte) => stream.push(Uint8Array.of(byte)));
      expect(Buffer.concat([...out, stream.end()]).toString(), form.toString()).toBe(REPLACEMENT);
    }
  });

  test("two parts of an output, cut anywhere and looked at across the cut, hold no secret together", () => {
    fc.assert(
      fc.property(
        secrets.chain((values) => fc.tuple(fc.constant(values), textWith(values), fc.nat(200))),
        ([values, text, place]) => {
          const scrub = scrubFor(...values);
          const cut = Math.min(text.length, place);
          const margin = scrub.longestBytes - 1;
          const part = (from: number, to: number) => {
            const start = Math.max(0, from - margin);
            const stream = scrubStream(scrub, { from: from - start, to: to - start });
            return Buffer.concat([stream.push(text.subarray(start, to + margin)), stream.end()]);
          };
          holdsNone(Buffer.concat([part(0, cut), part(cut, text.length)]), values);
        },
      ),
      { numRuns: 500 },
    );
  });

  test("what is no secret comes out as it went in", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 500 }), (bytes) => {
        expect(scrubAll(scrubFor("a secret that is not there"), bytes).equals(Buffer.from(bytes))).toBe(true);
        expect(scrubAll(NO_SECRETS, bytes).equals(Buffer.from(bytes))).toBe(true);
      }),
    );
  });

  test("overlapping secrets are replaced together, and no rest of either is left", () => {
    expect(scrubText(scrubFor("abcdef", "defghi"), "xx abcdefghi yy")).toBe(`xx ${REPLACEMENT} yy`);
  });

  test("encodings are found: base64 at each alignment, URL, JSON, each line of a key", () => {
    const key = '-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0\nse"cr/et+with spaces\n-----END KEY-----';
    const scrub = scrubFor(key, 'p@ss/w:rd"1');
    const user = Buffer.from('user:p@ss/w:rd"1').toString("base64");
    for (const text of [
      encodeURIComponent('p@ss/w:rd"1'),
      JSON.stringify({ password: 'p@ss/w:rd"1' }),
      `Basic ${user}`,
      `Basic ${Buffer.from('ab:p@ss/w:rd"1:more').toString("base64")}`,
      "line 2 is MIIEvQIBADANBgkqhkiG9w0 alone",
    ]) {
      expect(scrubText(scrub, text), text).toContain(REPLACEMENT);
    }
    expect(scrubText(scrub, `Basic ${user}`)).not.toContain(Buffer.from('p@ss/w:rd"1').toString("base64").slice(3, 10));
  });

  test("the file of fingerprints holds neither a secret nor its base64, and differs for each attempt", () => {
    const text = JSON.stringify(fingerprint(["sk-canary-0123456789"]));
    expect(text).not.toContain("canary");
    expect(text).not.toContain(Buffer.from("sk-canary-0123456789").toString("base64").slice(0, 12));
    expect(JSON.stringify(fingerprint(["sk-canary-0123456789"]))).not.toBe(text);
  });

  test("a damaged file of fingerprints is an error, not an output without scrubbing", () => {
    expect(() => openScrub('{"version":1')).toThrow();
    expect(() => openScrub('{"version":2,"needles":[]}')).toThrow();
  });
});
