/** Readers of what processes write: any bytes, in any pieces, are read alike, and nobody falls over them. */
import { appendFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { NOW, samplesOf, targetOf } from "../../test/agents/replay.ts";
import { mutateText } from "../../test/fuzz/grammar.ts";
import { chanceOf } from "../../test/sim/chance.ts";
import type { TranscriptEntry } from "../core/agent.ts";
import { defaultLimits } from "../core/limits.ts";
import type { Provider } from "../core/target.ts";
import { openAgents } from "./agents/open-agents.ts";
import { readTranscript } from "./agents/transcript.ts";
import { followLog, readLog } from "./logs.ts";

const FOLDER = "attempt-1.1";
let runs: string;
let path: string;
beforeEach(() => {
  runs = mkdtempSync(join(tmpdir(), "drover-chunking-"));
  path = join(runs, FOLDER);
});
afterEach(() => rmSync(runs, { recursive: true, force: true }));

const begin = (): void => {
  rmSync(path, { recursive: true, force: true });
  mkdirSync(path, { mode: 0o700 });
};

/** Sizes of pieces, used in turn. */
const sizes = fc.array(fc.integer({ min: 1, max: 4_000 }), { minLength: 1, maxLength: 8 });
function* cut(bytes: Uint8Array, of: readonly number[], most: number): Generator<Uint8Array> {
  // A reading for each byte would cost minutes: the pieces grow until they are few.
  const least = Math.ceil(bytes.length / most);
  for (let at = 0, nth = 0; at < bytes.length; nth++) {
    const size = Math.max(least, of[nth % of.length] ?? 1);
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

describe("an agent's output", () => {
  const providers: readonly Provider[] = ["claude", "codex", "custom"];
  /** Recorded streams, and what becomes of them: damaged, doubled, between other lines, and with bytes of any kind. */
  const stream = fc
    .tuple(
      fc.constantFrom(...providers),
      fc.nat(),
      fc.nat(),
      fc.array(fc.uint8Array({ maxLength: 60 }), { maxLength: 3 }),
    )
    .map(([provider, nth, seed, noise]) => {
      const chance = chanceOf(String(seed));
      const samples = samplesOf(provider);
      const text = samples[nth % Math.max(1, samples.length)]?.bytes.toString("latin1") ?? '{"a":1}\nsaid\n';
      const lines = text.split("\n").slice(0, 40);
      for (let times = chance.int(0, 4); times > 0; times--) {
        const at = chance.int(0, lines.length - 1);
        lines[at] = chance.pick([
          () => mutateText(lines[at] ?? "", chance),
          () => `${lines[at]}\n${lines[at]}`,
          () => "",
          () => `${chance.hit(0.5) ? "{" : ""}${"x".repeat(chance.pick([70_000, 300_000]))}`,
          () => `{"type":"${"y".repeat(chance.pick([100, 300_000]))}","result":"r"}`,
        ])();
      }
      const bytes = noise.map((one) => Buffer.from(one));
      bytes.splice(chance.int(0, bytes.length), 0, Buffer.from(lines.join("\n"), "latin1"));
      return { provider, bytes: Buffer.concat(bytes) };
    });

  test("gives one transcript and one verdict, in whatever pieces it came and however often it was looked at", async () => {
    const reading = async (provider: Provider, out: Iterable<Uint8Array>, err: Iterable<Uint8Array>, exit: number) => {
      begin();
      const said: string[] = [];
      const agents = openAgents({
        runsFolder: runs,
        limits: defaultLimits,
        clock: { now: () => NOW },
        log: (line) => said.push(line),
      });
      const target = targetOf(provider);
      // Two streams have no order of their own: the one is over before the other begins.
      for (const [file, pieces] of [
        ["err", err],
        ["out", out],
      ] as const)
        for (const piece of pieces) {
          appendFileSync(join(path, file), piece);
          await agents.read(FOLDER, target);
        }
      const verdict = await agents.conclude(FOLDER, target, exit, NOW);
      const entries: TranscriptEntry[] = [];
      // When the file was written is not what it says.
      for await (const entry of readTranscript(path)) entries.push({ ...entry, at: 0 });
      return { verdict, entries, said };
    };
    await fc.assert(
      fc.asyncProperty(
        stream,
        sizes,
        fc.uint8Array({ maxLength: 200 }),
        fc.constantFrom(0, 1, 137),
        async (given, of, err, exit) => {
          const { provider, bytes } = given;
          const whole = await reading(provider, [bytes], [err], exit);
          expect(await reading(provider, cut(bytes, of, 40), cut(err, of, 10), exit)).toEqual(whole);
          expect(whole.verdict.ok).toBe(whole.verdict.class === null);
          expect(whole.said).toEqual([]);
        },
      ),
      { numRuns: 30 },
    );
  });
});

describe("a log", () => {
  const bytes = fc
    .array(
      fc.oneof(
        fc.uint8Array({ maxLength: 80 }).map((some) => Buffer.from(some)),
        fc.string({ unit: "binary", maxLength: 40 }).map((text) => Buffer.from(text)),
        fc
          .constantFrom("\n", "\r\n", "\u001b[31m", "\u001b]0;x\u0007", "\u009b", "\0", "é", "😀", "\ud83d")
          .map((text) => Buffer.from(text)),
      ),
      { maxLength: 20 },
    )
    .map((parts) => Buffer.concat(parts));

  test("of any bytes is followed alike in whatever pieces it came, and pages of what ends at a line join to the same", async () => {
    const followed = async (pieces: Iterable<Uint8Array>, raw: boolean): Promise<string> => {
      begin();
      const ended = new AbortController();
      let text = "";
      const place = join(path, "out");
      writeFileSync(place, "");
      const follower = followLog(path, "stdout", { raw, everyMs: 1, ended: ended.signal });
      let given = follower.next();
      for (const piece of pieces) {
        appendFileSync(place, piece);
        // It gives what may be given: then the next piece comes.
        const some = await Promise.race([given, new Promise<null>((resolve) => setImmediate(resolve, null))]);
        if (some === null || some.done === true) continue;
        text += some.value.text;
        given = follower.next();
      }
      ended.abort();
      for (let one = await given; one.done !== true; one = await follower.next()) text += one.value.text;
      return text;
    };
    await fc.assert(
      fc.asyncProperty(
        bytes,
        sizes,
        fc.integer({ min: 8, max: 60 }),
        fc.boolean(),
        async (written, of, maxBytes, raw) => {
          const whole = await followed([written], raw);
          expect(
            await followed(
              cut(
                written,
                of.map((size) => 1 + (size % 30)),
                60,
              ),
              raw,
            ),
          ).toBe(whole);
          if (raw) expect(whole).toBe(new TextDecoder("utf-8", { ignoreBOM: true }).decode(written));
          let text = "";
          for (let from = 0, atEnd = false; !atEnd; ) {
            const page = await readLog(path, "stdout", { raw: true, from, maxBytes });
            text += page.text;
            expect(page.next > from || page.atEnd).toBe(true);
            ({ next: from, atEnd } = page);
          }
          // A page ends at a character where there is one; bytes that are none come out as they do alone.
          if (!new TextDecoder().decode(written).includes("\ufffd")) expect(text).toBe(written.toString());
        },
      ),
      { numRuns: 150 },
    );
  });
});
