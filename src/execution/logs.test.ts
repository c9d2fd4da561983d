import { appendFileSync, mkdtempSync, renameSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../test/fixtures/hostile/arena.ts";
import type { FollowRequest, LogRequest } from "./logs.ts";
import { followLog, readLog } from "./logs.ts";
import { fingerprint, formsOf } from "./scrub.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "drover-logs-"));
});
afterEach(() => {
  rmSync(folder, { recursive: true, force: true });
});

const out = () => join(folder, "out");
const read = (request: Partial<LogRequest> = {}) => readLog(folder, "stdout", { raw: false, ...request });
const keep = (...secrets: string[]) => writeFileSync(join(folder, "scrub"), JSON.stringify(fingerprint(secrets)));
const dig = (from: number, to: number) =>
  writeFileSync(join(folder, "holes"), JSON.stringify({ stdout: { from, to } }));

/** Reads page by page to the end. */
async function readPages(maxBytes: number, raw = true): Promise<string> {
  let text = "";
  for (let from = 0; ; ) {
    const page = await read({ from, maxBytes, raw });
    text += page.text;
    if (page.atEnd) return text;
    if (page.next <= from) throw new Error(`no progress at ${from}`);
    from = page.next;
  }
}

/** A follower that collects, with what a test does to it. */
function follow(request: Partial<FollowRequest> = {}) {
  const ended = new AbortController();
  const left = new AbortController();
  let text = "";
  const done = (async () => {
    for await (const piece of followLog(folder, "stdout", {
      raw: true,
      everyMs: 5,
      ended: ended.signal,
      signal: left.signal,
      ...request,
    }))
      text += piece.text;
    return text;
  })();
  return {
    done,
    end: () => ended.abort(),
    leave: () => left.abort(),
    text: () => text,
    sees: (part: string) => until(`the follower sees ${JSON.stringify(part)}`, () => text.includes(part)),
  };
}

describe("readLog", () => {
  test("an output that does not exist is empty", async () => {
    expect(await read()).toEqual({ text: "", from: 0, next: 0, atEnd: true, droppedBytes: 0 });
  });

  test("last lines, with and without a final newline, and more than there are", async () => {
    writeFileSync(out(), "one\ntwo\nthree\n");
    expect((await read({ tailLines: 2 })).text).toBe("two\nthree\n");
    expect((await read({ tailLines: 9 })).text).toBe("one\ntwo\nthree\n");
    expect((await read({ tailLines: 0 })).text).toBe("");
    writeFileSync(out(), "one\ntwo\nthree");
    expect((await read({ tailLines: 1 })).text).toBe("three");
  });

  test("a tail begins at a character, and says what is not in it", async () => {
    writeFileSync(out(), "a\u{1f600}b\u{1f600}c");
    expect(await read({ tailBytes: 4 })).toMatchObject({ text: "c", droppedBytes: 10 });
    expect((await read({ tailBytes: 5 })).text).toBe("\u{1f600}c");
  });

  test.each([65_535, 65_536, 65_537, 131_072, 10 * 1024 * 1024])(
    "B-024 B-025 a line of %i bytes comes whole, by pages or at once",
    async (bytes) => {
      const text = `${"x".repeat(bytes)}\nlast`;
      writeFileSync(out(), text);
      expect((await readPages(64 * 1024)) === text).toBe(true);
      expect((await read({ maxBytes: 64 * 1024 * 1024 })).text === text).toBe(true);
    },
  );

  test("B-031 pages of any size join to the same text, whatever is in it", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: "binary", maxLength: 300 }),
        fc.integer({ min: 8, max: 64 }),
        async (text, maxBytes) => {
          writeFileSync(out(), text);
          expect(await readPages(maxBytes)).toBe(Buffer.from(text).toString());
        },
      ),
      { numRuns: 200 },
    );
  });

  test("B-032 what the program printed is not repaired: its own replacement characters stay", async () => {
    writeFileSync(out(), '{"a":"\ufffd"}\n');
    expect((await read({ raw: true })).text).toBe('{"a":"\ufffd"}\n');
  });

  test("B-039 shown text is inert, raw text keeps its control sequences", async () => {
    writeFileSync(out(), "\u001b]0;x\u0007\u001b[2K\rALL PASSED\u202e\n");
    expect((await read()).text).toBe("\nALL PASSED\n");
    expect((await read({ raw: true })).text).toBe("\u001b]0;x\u0007\u001b[2K\rALL PASSED\u202e\n");
  });

  test("a hole is told, skipped, and never shown as zeros", async () => {
    writeFileSync(out(), Buffer.concat([Buffer.from("head\n"), Buffer.alloc(20), Buffer.from("tail\n")]));
    dig(5, 25);
    expect((await readPages(8)).replaceAll("\n", "|")).toBe("head|[... 20 bytes dropped ...]|tail|");
    expect((await read({ tailLines: 5 })).text).toBe("tail\n");
    expect((await read({ tailBytes: 12 })).text).toBe("tail\n");
    expect((await read({ from: 10 })).text).toContain("[... 15 bytes dropped ...]");
  });

  test("a damaged scrub file is an error and no unscrubbed text", async () => {
    writeFileSync(out(), "text");
    writeFileSync(join(folder, "scrub"), "{");
    await expect(read()).rejects.toThrow();
  });
});

describe("secrets and cuts", () => {
  const SECRET = "sk-test-0123456789";

  test("B-122 no secret comes out of any tail, any page, any hole, any follower", async () => {
    const secret = fc
      .string({ unit: "grapheme-ascii", minLength: 4, maxLength: 24 })
      .filter((text) => !/[[\]. ]/.test(text) && !"[secret] bytes dropped".includes(text) && !/^\d+$/.test(text));
    const part = (value: string) =>
      fc.oneof(
        fc.constant(value),
        fc.constant(`${value}\n`),
        fc.nat(24).map((at) => value.slice(at)),
        fc.nat(24).map((at) => value.slice(0, at)),
        fc.constantFrom("\n", "x", "\u001b[1m", "yy\n"),
      );
    await fc.assert(
      fc.asyncProperty(
        secret.chain((value) =>
          fc.tuple(
            fc.constant(value),
            fc.array(part(value), { maxLength: 14 }),
            fc.nat(120),
            fc.nat(120),
            fc.integer({ min: 8, max: 50 }),
            fc.boolean(),
            fc.boolean(),
          ),
        ),
        async ([value, parts, from, length, size, holed, raw]) => {
          const text = Buffer.from(parts.join(""));
          const forms = formsOf(value);
          rmSync(join(folder, "holes"), { force: true });
          keep(value);
          if (holed && from < text.length) {
            const to = Math.min(text.length, from + length);
            text.fill(0, from, to);
            dig(from, to);
          }
          writeFileSync(out(), text);
          const follower = follow({ raw });
          follower.end();
          const shown = [
            await readPages(size, raw),
            (await read({ raw, tailBytes: size })).text,
            (await read({ raw, tailLines: 2 })).text,
            (await read({ raw, from: Math.min(from, text.length) })).text,
            await follower.done,
          ];
          for (const each of shown)
            for (const form of forms)
              expect(Buffer.from(each).includes(form), JSON.stringify({ each, value, text: text.toString() })).toBe(
                false,
              );
        },
      ),
      { numRuns: 400 },
    );
  });

  test("a secret at a hole's border is not given half", async () => {
    keep(SECRET);
    const head = `aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa${SECRET.slice(0, 9)}`;
    const tail = `${SECRET.slice(12)}bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb`;
    writeFileSync(out(), Buffer.concat([Buffer.from(head), Buffer.alloc(3), Buffer.from(tail)]));
    dig(head.length, head.length + 3);
    const follower = follow();
    follower.end();
    const late = follow({ from: head.length - 3 });
    late.end();
    for (const text of [
      await readPages(1024),
      (await read({ raw: true, tailBytes: 50 })).text,
      await follower.done,
      await late.done,
    ]) {
      expect(text).not.toContain("sk-test");
      expect(text).not.toContain("456789");
      expect(text).toContain("bbbb");
    }
  });

  test("a reading that begins within a secret shows nothing of it", async () => {
    keep(SECRET);
    writeFileSync(out(), `before ${SECRET} after and some more text\n`);
    const whole = (await read({ raw: true })).text;
    for (let from = 8; from < 7 + SECRET.length; from++) {
      expect((await read({ raw: true, from })).text).toBe("[secret] after and some more text\n");
      expect((await read({ raw: true, tailBytes: 7 + SECRET.length + 27 - from })).text).toMatch(/^\[secret\] after/);
      const follower = follow({ from });
      follower.end();
      expect(await follower.done).toBe("[secret] after and some more text\n");
    }
    expect(whole).toBe("before [secret] after and some more text\n");
  });

  test("a secret that control sequences divide is seen once they are gone", async () => {
    keep(SECRET);
    writeFileSync(out(), `key \u001b[1;31m${SECRET.slice(0, 6)}\u001b[0m${SECRET.slice(6)} end\n`);
    expect((await read()).text).toBe("key [secret] end\n");
  });

  test("B-122 of an output that still grows nothing is read that may be half of a secret; of one that has ended, all", async () => {
    keep(SECRET);
    for (let at = 1; at < SECRET.length; at++) {
      writeFileSync(out(), `one line\nbefore ${SECRET.slice(0, at)}`);
      const live = await read({ isLive: true });
      expect(live).toMatchObject({ atEnd: true });
      expect("one line\nbefore ".startsWith(live.text)).toBe(true);
      expect(live.text).toContain("one line\n");
      expect((await read({ isLive: true, tailBytes: at })).text).toBe("");
      appendFileSync(out(), `${SECRET.slice(at)} after`);
      const next = await read({ from: live.next });
      expect(live.text + next.text).toBe("one line\nbefore [secret] after");
    }
  });

  test("a follower holds a secret back until it is whole", async () => {
    keep(SECRET);
    const follower = follow();
    writeFileSync(out(), `before ${SECRET.slice(0, 10)}`);
    await new Promise((resolve) => setTimeout(resolve, 30)); // time for a faulty follower to show its beginning
    expect(follower.text()).not.toContain("sk-");
    appendFileSync(out(), `${SECRET.slice(10)} after, and enough text to push it out of what is held back`);
    await follower.sees("before [secret] after");
    follower.end();
    expect(await follower.done).not.toContain("sk-");
  });
});

describe("followLog", () => {
  test("gives what is there, then what comes, then ends when it is told and everything is read", async () => {
    const follower = follow();
    writeFileSync(out(), "one\n");
    await follower.sees("one\n");
    appendFileSync(out(), "two\n");
    await follower.sees("two\n");
    appendFileSync(out(), "three");
    follower.end();
    expect(await follower.done).toBe("one\ntwo\nthree");
  });

  test("ends without output when the run ends without one, and at once when its reader leaves", async () => {
    const none = follow();
    none.end();
    expect(await none.done).toBe("");
    const bored = follow();
    bored.leave();
    expect(await bored.done).toBe("");
  });

  test("begins at the last lines", async () => {
    writeFileSync(out(), "one\ntwo\nthree\n");
    const follower = follow({ tailLines: 1 });
    await follower.sees("three\n");
    follower.end();
    expect(await follower.done).toBe("three\n");
  });

  test("B-031 a character that is written in two halves comes whole", async () => {
    const bytes = Buffer.from("\u{1f600}");
    writeFileSync(out(), Buffer.concat([Buffer.from("a"), bytes.subarray(0, 2)]));
    const follower = follow();
    await follower.sees("a");
    appendFileSync(out(), bytes.subarray(2));
    await follower.sees("\u{1f600}");
    follower.end();
    expect(await follower.done).toBe("a\u{1f600}");
  });

  test("an output that begins with what continues no character is followed from its first byte", async () => {
    writeFileSync(out(), Buffer.from([0x80, 0x61]));
    const follower = follow();
    follower.end();
    expect(await follower.done).toBe((await read({ raw: true })).text);
  });

  test("an output that its program emptied is read from the beginning, and that is said", async () => {
    writeFileSync(out(), "a long first text\n");
    const follower = follow();
    await follower.sees("first");
    truncateSync(out());
    await follower.sees("emptied");
    appendFileSync(out(), "second\n");
    await follower.sees("second");
    follower.end();
    expect(await follower.done).toBe("a long first text\n[... the program emptied this output ...]\nsecond\n");
  });

  test("a deleted file is followed by its descriptor, a replaced one is told of", async () => {
    const { closeSync, openSync, writeSync } = await import("node:fs");
    writeFileSync(out(), "one\n");
    const writer = openSync(out(), "a");
    const follower = follow();
    await follower.sees("one");
    renameSync(out(), join(folder, "moved"));
    writeFileSync(out(), "not this\n");
    await follower.sees("replaced");
    rmSync(join(folder, "moved"));
    writeSync(writer, "two\n");
    closeSync(writer);
    await follower.sees("two");
    follower.end();
    expect(await follower.done).not.toContain("not this");
  });

  test("a hole that its program says to reach past the end of the output is one to that end", async () => {
    writeFileSync(out(), "head\nlost\n");
    dig(5, 1_000_000);
    const follower = follow();
    await follower.sees("dropped");
    appendFileSync(out(), "more\n");
    await follower.sees("[... 5 bytes dropped ...]\n[... 5 bytes dropped ...]\n");
    follower.end();
    expect(await follower.done).toBe("head\n[... 5 bytes dropped ...]\n[... 5 bytes dropped ...]\n");
    expect((await readPages(4)).replaceAll("\n", "|")).toBe("head|[... 10 bytes dropped ...]|");
  });

  test("a hole that is punched ahead of a follower is told and skipped", async () => {
    writeFileSync(out(), Buffer.concat([Buffer.from("head\n"), Buffer.alloc(4096), Buffer.from("tail\n")]));
    dig(5, 5 + 4096);
    const follower = follow();
    follower.end();
    expect(await follower.done).toBe("head\n[... 4096 bytes dropped ...]\ntail\n");
  });

  test("B-026 an output without a newline is followed in flat memory", async () => {
    const chunk = Buffer.alloc(1024 * 1024, "x");
    for (let i = 0; i < 100; i++) appendFileSync(out(), chunk);
    const before = process.memoryUsage().rss;
    let bytes = 0;
    let most = 0;
    const ended = new AbortController();
    ended.abort();
    for await (const piece of followLog(folder, "stdout", { raw: false, ended: ended.signal })) {
      bytes += piece.text.length;
      most = Math.max(most, process.memoryUsage().rss - before);
    }
    expect(bytes).toBe(100 * 1024 * 1024);
    expect(most).toBeLessThan(32 * 1024 * 1024);
  });
});
