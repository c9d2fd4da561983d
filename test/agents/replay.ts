/** What the adapters' tests share: targets, and streams of events that are put through an adapter. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { AgentReading, AgentVerdict, TranscriptEntry } from "../../src/core/agent.ts";
import { defaultLimits } from "../../src/core/limits.ts";
import { type AgentTarget, agentTarget, type Provider } from "../../src/core/target.ts";
import { adapterOf } from "../../src/execution/agents/index.ts";
import { frameLines } from "../../src/execution/agents/lines.ts";

/** A fixed instant, some hours before the resets in the recorded streams. */
export const NOW = Date.UTC(2026, 10, 30, 6, 0, 0);

/** A target of that provider, with what a test wants of it. */
export const targetOf = (provider: Provider, wanted: Partial<AgentTarget> = {}): AgentTarget => ({
  ...agentTarget.parse({
    kind: "agent",
    provider,
    prompt: { digest: "0".repeat(64), bytes: 1, head: "x" },
    cwd: "/project",
  }),
  ...wanted,
});

/** How it ended, for `replay`. */
export interface Ending {
  readonly exit?: number | null;
  readonly stderr?: string;
}

/** Puts a stream through an adapter, cut into pieces of these sizes. */
export function replay(
  provider: Provider,
  stream: string | Uint8Array | readonly unknown[],
  { exit = 0, stderr = "" }: Ending = {},
  sizes: readonly number[] = [65_536],
): { readonly entries: readonly TranscriptEntry[]; readonly reading: AgentReading; readonly verdict: AgentVerdict } {
  const bytes =
    stream instanceof Uint8Array
      ? stream
      : Buffer.from(typeof stream === "string" ? stream : stream.map((event) => `${JSON.stringify(event)}\n`).join(""));
  const reader = adapterOf(provider).start({ zone: "UTC", limits: defaultLimits });
  const framing = frameLines({ lineBytes: defaultLimits.lineBytes, nestedTextBytes: 16_384, seal: (text) => text });
  const entries: TranscriptEntry[] = [];
  const take = (framed: ReturnType<typeof framing.push>) => {
    for (const each of framed)
      if (each.kind === "line") entries.push(...reader.line(each.line, NOW));
      else entries.push({ kind: "note", at: NOW, text: each.text });
  };
  for (let from = 0, index = 0; from < bytes.length; index++) {
    const size = Math.max(1, sizes[Math.min(index, sizes.length - 1)] ?? 1);
    take(framing.push(bytes.subarray(from, from + size)));
    from += size;
  }
  take(framing.end());
  const reading = reader.reading();
  return { entries, reading, verdict: reader.finish({ exit, stderrTail: stderr, now: NOW }) };
}

const SAMPLES = fileURLToPath(new URL("samples", import.meta.url));

/** The recorded streams of a provider, with the exit status of each. */
export function samplesOf(
  provider: Provider,
): readonly { readonly name: string; readonly bytes: Buffer; readonly exit: number | null }[] {
  const exits = JSON.parse(readFileSync(join(SAMPLES, "exits.json"), "utf8")) as Record<string, number | null>;
  return readdirSync(SAMPLES)
    .filter((file) => file.startsWith(`${provider}-`) && file.endsWith(".jsonl"))
    .map((file) => file.replace(".jsonl", ""))
    .toSorted()
    .map((name) => ({ name, bytes: readFileSync(join(SAMPLES, `${name}.jsonl`)), exit: exits[name] ?? null }));
}

/** What every adapter promises, whatever it is fed. */
export function describeAdapter(provider: Provider): void {
  describe(`any reader of ${provider}`, () => {
    test("gives the same entries and verdict however the stream is cut", () => {
      const samples = samplesOf(provider);
      fc.assert(
        fc.property(
          fc.nat(Math.max(0, samples.length - 1)),
          fc.array(fc.integer({ min: 1, max: 3_000 }), { minLength: 1, maxLength: 40 }),
          (index, sizes) => {
            const sample = samples[index];
            if (sample === undefined) return;
            const whole = replay(provider, sample.bytes, sample);
            expect(replay(provider, sample.bytes, sample, sizes)).toEqual(whole);
          },
        ),
        { numRuns: 60 },
      );
    });

    test("never throws, and never finds success in what is none of its events", () => {
      const scalar = fc.oneof(
        fc.string(),
        fc.double(),
        fc.boolean(),
        fc.constant(null),
        fc.constant([]),
        fc.constant({}),
      );
      const word = fc.constantFrom(
        "type",
        "subtype",
        "message",
        "content",
        "item",
        "id",
        "error",
        "usage",
        "session_id",
        "thread_id",
        "text",
        "result",
        "is_error",
        "permission_denials",
        "rate_limit_info",
        "errors",
        "status",
      );
      const value = fc.oneof(
        scalar,
        fc.constantFrom(
          "system",
          "init",
          "assistant",
          "user",
          "result",
          "success",
          "item.completed",
          "turn.failed",
          "error",
          "tool_use",
          "tool_result",
          "command_execution",
          "rejected",
        ),
        fc.array(fc.dictionary(word, scalar), { maxLength: 3 }),
        fc.dictionary(word, fc.oneof(scalar, fc.array(fc.dictionary(word, scalar), { maxLength: 2 }))),
      );
      fc.assert(
        fc.property(
          fc.array(fc.dictionary(word, value), { maxLength: 8 }),
          fc.option(fc.nat(255)),
          fc.string(),
          (events, exit, stderr) => {
            const { verdict, entries } = replay(provider, events, { exit, stderr });
            expect(verdict.ok).toBe(verdict.class === null);
            expect(verdict.ok).toBe(verdict.message === null);
            if (provider !== "custom" && !events.some((event) => event["type"] === "result"))
              expect(verdict.ok).toBe(false);
            for (const entry of entries) if ("text" in entry) expect(typeof entry.text).toBe("string");
          },
        ),
        { numRuns: 500 },
      );
    });

    test("never throws on bytes", () => {
      fc.assert(fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => void replay(provider, bytes, { exit: 1 })));
    });
  });
}
