import { createHash, randomBytes } from "node:crypto";
import { z } from "zod";
import { makeInert } from "./inert.ts";

/**
 * Scrubbing without keeping secrets: a file of fingerprints, made when the secrets are known, lets any later process find
 * them in an output, also after they were changed at their source. A fingerprint is a length, a keyed rolling hash (fast,
 * only a filter) and a salted SHA-256 (the proof). Key and salt are of one attempt, so files cannot be compared.
 */
export interface Fingerprints {
  readonly version: 1;
  /** 64 random bits, as two numbers of 32. */
  readonly key: readonly [number, number];
  readonly salt: string;
  readonly needles: readonly { readonly bytes: number; readonly rolling: number; readonly digest: string }[];
  /** Whether a secret holds a line end: else what ends with one is no part of a secret. */
  readonly spansLines: boolean;
}

/** What stands where a secret was. */
export const REPLACEMENT = "[secret]";

/** Shorter ones would be found everywhere, and replacing them would tell more than it hides. */
export const MIN_SECRET_BYTES = 4;

const fingerprintsFile = z.object({
  version: z.literal(1),
  key: z.tuple([z.number(), z.number()]),
  salt: z.string(),
  needles: z.array(z.object({ bytes: z.number().int().min(1), rolling: z.number(), digest: z.string() })),
  spansLines: z.boolean().default(true),
});

/** A half-open range of bytes. */
export interface Range {
  readonly from: number;
  readonly to: number;
}

/** Finds secrets by their fingerprints. */
export interface Scrub {
  /** Length of the longest form of a secret in bytes, 0 without secrets. */
  readonly longestBytes: number;
  /** Whether one of them holds a line end. */
  readonly spansLines: boolean;
  /** Every place where a form of a secret stands whole, overlapping ones joined, in order. */
  find(bytes: Uint8Array): readonly Range[];
}

/** A scrub that knows no secret. */
export const NO_SECRETS: Scrub = { longestBytes: 0, spansLines: false, find: () => [] };

/**
 * The forms in which a secret is looked for: itself; base64, plain and URL-safe, whole and as the inner part of a longer
 * text at each of the three alignments; percent-encoded; as inside a JSON string, by whatever wrote it; and each long line
 * of a secret of several lines, which programs print one by one.
 */
export function formsOf(secret: string): readonly Buffer[] {
  const value = Buffer.from(secret);
  const texts = new Set<string>([secret, encodeURIComponent(value.toString()), ...jsonForms(secret)]);
  for (const alphabet of ["base64", "base64url"] as const) {
    texts.add(value.toString(alphabet).replace(/=+$/, ""));
    for (const before of [0, 1, 2]) {
      const padded = Buffer.concat([Buffer.alloc(before), value])
        .toString(alphabet)
        .replace(/=+$/, "");
      // Characters that hold bits of the secret's bytes only.
      texts.add(padded.slice(Math.ceil((before * 8) / 6), Math.floor(((before + value.length) * 8) / 6)));
    }
  }
  const lines = secret.split(/\r?\n/);
  if (lines.length > 1)
    for (const line of lines.filter(({ length }) => length >= MIN_LINE_CHARACTERS)) {
      texts.add(line);
      for (const form of jsonForms(line)) texts.add(form);
    }
  return [...texts].map((text) => Buffer.from(text)).filter((form) => form.length >= MIN_SECRET_BYTES);
}

/**
 * A text as it stands inside a JSON string: with and without slashes escaped (PHP does), and with all that is no ASCII
 * escaped, in small letters or large ones (Python, Java); and inside JSON that is itself in a JSON string.
 */
function jsonForms(text: string): readonly string[] {
  const escape = (form: string, digits: (code: string) => string): string =>
    form.replace(/[\u007f-\uffff]/g, (one) => `\\u${digits(one.charCodeAt(0).toString(16).padStart(4, "0"))}`);
  const written = (plain: string): readonly string[] => {
    const form = JSON.stringify(plain).slice(1, -1);
    const all = [form, escape(form, (code) => code), escape(form, (code) => code.toUpperCase())];
    return [...new Set(all.flatMap((one) => [one, one.replaceAll("/", "\\/")]))];
  };
  const once = written(text);
  return [...once, ...once.flatMap(written)];
}

const LINE_END = 0x0a;

/** A line of a longer secret is a secret of its own from here on: a line of base64 is 64, a word of prose is not. */
const MIN_LINE_CHARACTERS = 12;

/** Fingerprints of these secrets under a fresh key and salt. */
export function fingerprint(secrets: readonly string[]): Fingerprints {
  const random = randomBytes(24);
  const key: [number, number] = [random.readUInt32LE(0), random.readUInt32LE(4)];
  const salt = random.subarray(8).toString("hex");
  const hashing = rolling(key);
  const seen = new Set<string>();
  const needles: Fingerprints["needles"][number][] = [];
  let spansLines = false;
  for (const form of secrets.flatMap(formsOf)) {
    if (form.includes(LINE_END)) spansLines = true;
    const digest = digestOf(salt, form);
    if (seen.has(digest)) continue;
    seen.add(digest);
    needles.push({ bytes: form.length, rolling: hashing.whole(form), digest });
  }
  return { version: 1, key, salt, needles, spansLines };
}

/** Reads a file of fingerprints; absent means that the attempt had no secrets. Throws on a damaged one: serving unscrubbed would be worse. */
export function openScrub(text: string | null): Scrub {
  if (text === null) return NO_SECRETS;
  const { key, salt, needles, spansLines } = fingerprintsFile.parse(JSON.parse(text));
  if (needles.length === 0) return NO_SECRETS;
  const hashing = rolling(key);
  const byLength = new Map<number, Map<number, Set<string>>>();
  for (const needle of needles) {
    const hashes = byLength.get(needle.bytes) ?? new Map<number, Set<string>>();
    byLength.set(
      needle.bytes,
      hashes.set(needle.rolling, (hashes.get(needle.rolling) ?? new Set()).add(needle.digest)),
    );
  }
  return {
    longestBytes: Math.max(...byLength.keys()),
    spansLines,
    find(bytes) {
      const found: Range[] = [];
      for (const [length, hashes] of byLength) {
        hashing.slide(bytes, length, hashes, (at, digests) => {
          if (digests.has(digestOf(salt, bytes.subarray(at, at + length)))) found.push({ from: at, to: at + length });
        });
      }
      return join(found);
    },
  };
}

const digestOf = (salt: string, form: Uint8Array): string =>
  createHash("sha256").update(salt).update(form).digest("hex");

/** Overlapping and touching ranges as one. */
function join(ranges: readonly Range[]): readonly Range[] {
  const joined: { from: number; to: number }[] = [];
  for (const range of ranges.toSorted((a, b) => a.from - b.from)) {
    const last = joined.at(-1);
    if (last !== undefined && range.from <= last.to) last.to = Math.max(last.to, range.to);
    else joined.push({ ...range });
  }
  return joined;
}

/** A polynomial hash modulo 2^32 over bytes that the key maps to random words first. */
function rolling([multiply, mix]: readonly [number, number]) {
  const factor = multiply | 1; // odd: no bit of a byte is ever shifted out
  const words = new Int32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    // The finish of murmur3: a change of one bit of the byte or the key changes half of the word.
    let word = Math.imul(byte + 1, 0x9e3779b1) ^ mix;
    word = Math.imul(word ^ (word >>> 16), 0x85ebca6b);
    word = Math.imul(word ^ (word >>> 13), 0xc2b2ae35);
    words[byte] = word ^ (word >>> 16);
  }
  const word = (byte: number | undefined) => words[byte ?? 0] ?? 0;
  return {
    whole(bytes: Uint8Array): number {
      let hash = 0;
      for (const byte of bytes) hash = (Math.imul(hash, factor) + word(byte)) | 0;
      return hash;
    },
    slide(
      bytes: Uint8Array,
      length: number,
      hashes: ReadonlyMap<number, Set<string>>,
      hit: (at: number, digests: Set<string>) => void,
    ): void {
      if (bytes.length < length) return;
      let leaving = 1; // factor^(length - 1)
      for (let i = 1; i < length; i++) leaving = Math.imul(leaving, factor);
      let hash = 0;
      for (let i = 0; i < length; i++) hash = (Math.imul(hash, factor) + word(bytes[i])) | 0;
      for (let at = 0; ; at++) {
        const digests = hashes.get(hash);
        if (digests !== undefined) hit(at, digests);
        if (at + length >= bytes.length) return;
        hash = (Math.imul((hash - Math.imul(word(bytes[at]), leaving)) | 0, factor) + word(bytes[at + length])) | 0;
      }
    },
  };
}

/** The same bytes with every secret replaced. */
export function scrubAll(scrub: Scrub, bytes: Uint8Array): Buffer {
  const stream = scrubStream(scrub);
  return Buffer.concat([stream.push(bytes), stream.end()]);
}

/** What a text says without the secrets: for messages that are stored. */
export const scrubText = (scrub: Scrub, text: string): string => scrubAll(scrub, Buffer.from(text)).toString();

/**
 * A JSON document without the secrets in its texts and keys, however they are escaped in it. Texts without one stand as
 * they stood, and so does everything else.
 * @param json that it is JSON is known
 */
export function scrubJson(scrub: Scrub, json: string): string {
  if (scrub.longestBytes === 0) return json;
  let clean = "";
  let from = 0;
  for (let open = json.indexOf('"'); open >= 0; open = json.indexOf('"', from)) {
    let end = open + 1;
    for (; json[end] !== '"'; end++) if (json[end] === "\\") end++;
    const text = JSON.parse(json.slice(open, end + 1)) as string;
    const bytes = Buffer.from(text);
    const found = scrub.find(bytes).length > 0;
    clean +=
      json.slice(from, open) + (found ? JSON.stringify(scrubAll(scrub, bytes).toString()) : json.slice(open, end + 1));
    from = end + 1;
  }
  return clean + json.slice(from);
}

/**
 * The end of what a command printed, without secrets and control sequences; half of a secret that the cut divides is none
 * of it.
 * @param printed at least `tailMarginBytes` more than `maxBytes`, where there was more
 */
export function scrubTail(scrub: Scrub, printed: Uint8Array, maxBytes: number): string {
  const stream = scrubStream(scrub, { from: Math.max(0, printed.length - maxBytes), to: printed.length });
  const plain = makeInert(Buffer.concat([stream.push(printed), stream.end()]).toString());
  // Taking out control sequences may have joined what they divided.
  return scrubText(scrub, plain);
}

/** How much in front of a tail has to be looked at. */
export const tailMarginBytes = (scrub: Scrub): number => Math.max(0, scrub.longestBytes - 1);

/** Bytes in, scrubbed bytes out; holds back what could still become part of a secret. */
export interface ScrubStream {
  push(bytes: Uint8Array): Buffer;
  /** Everything held back: no more bytes come. */
  end(): Buffer;
}

/**
 * Scrubs a stream. Its answers joined do not depend on how the input was cut.
 * @param emit the part of the input that is answered, as offsets into it; bytes outside are only looked at, so that a
 * secret across the border of a cut is seen whole
 */
export function scrubStream(scrub: Scrub, emit: Range = { from: 0, to: Number.POSITIVE_INFINITY }): ScrubStream {
  const holdBytes = Math.max(0, scrub.longestBytes - 1);
  let carry: Uint8Array = new Uint8Array(0);
  let base = 0; // offset of carry[0] in the input
  let coveredTo = 0; // up to here the input is known to be secret
  let replacing = false; // the last byte that was answered was secret

  const advance = (bytes: Uint8Array, decidedTo: number): Buffer => {
    const parts: Uint8Array[] = [];
    let at = base;
    const put = (from: number, to: number) => {
      const start = Math.max(from, emit.from);
      const end = Math.min(to, emit.to);
      if (start < end) parts.push(bytes.subarray(start - base, end - base));
    };
    const putSecret = (from: number, to: number) => {
      if (Math.max(from, emit.from) >= Math.min(to, emit.to)) return;
      if (!replacing) parts.push(Buffer.from(REPLACEMENT));
      replacing = true;
    };
    const ranges = holdBytes === 0 && scrub.longestBytes === 0 ? [] : scrub.find(bytes);
    const cover = (to: number) => {
      const end = Math.min(to, decidedTo);
      if (end <= at) return;
      putSecret(at, end);
      at = end;
    };
    cover(coveredTo);
    for (const range of ranges) {
      const from = base + range.from;
      if (from >= decidedTo) break;
      if (from > at) {
        put(at, from);
        replacing = false;
        at = from;
      }
      coveredTo = Math.max(coveredTo, base + range.to);
      cover(coveredTo);
    }
    if (at < decidedTo) {
      put(at, decidedTo);
      replacing = false;
    }
    // Matches that begin before `decidedTo` and reach over it are remembered in `coveredTo`; the rest is looked at again.
    carry = bytes.slice(decidedTo - base);
    base = decidedTo;
    return Buffer.concat(parts);
  };

  return {
    push(bytes) {
      const all = carry.length === 0 ? bytes : Buffer.concat([carry, bytes]);
      // A whole line is decided where no secret goes on after it: else what a program says last would be seen at its end only.
      const lineEnd = scrub.spansLines ? 0 : all.lastIndexOf(LINE_END) + 1;
      const decidedTo = base + Math.max(0, all.length - holdBytes, lineEnd);
      if (decidedTo === base) {
        carry = carry.length === 0 ? Uint8Array.from(all) : all;
        return Buffer.alloc(0);
      }
      return advance(all, decidedTo);
    },
    end: () => advance(carry, base + carry.length),
  };
}
