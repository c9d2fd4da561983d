import {
  appendFileSync,
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { NOW, targetOf } from "../../../test/agents/replay.ts";
import { until } from "../../../test/fixtures/hostile/arena.ts";
import type { TranscriptEntry } from "../../core/agent.ts";
import { defaultLimits, type Limits } from "../../core/limits.ts";
import { fingerprint, formsOf } from "../scrub.ts";
import { openAgents } from "./open-agents.ts";
import { ENTRY_BYTES, followTranscript, readTranscript, serveTexts, writeTranscript } from "./transcript.ts";
import { NO_SECRETS, openScrub } from "../scrub.ts";

const FOLDER = "attempt-1.1";
let runs: string;
let said: string[];
beforeEach(() => {
  runs = mkdtempSync(join(tmpdir(), "drover-agents-"));
  mkdirSync(join(runs, FOLDER), { mode: 0o700 });
  said = [];
});
afterEach(() => {
  chmodSync(join(runs, FOLDER), 0o700);
  rmSync(runs, { recursive: true, force: true });
});

const path = (file: string) => join(runs, FOLDER, file);
const put = (file: string, ...parts: (string | Uint8Array | object)[]) => {
  for (const part of parts)
    appendFileSync(
      path(file),
      typeof part === "string" || part instanceof Uint8Array ? part : `${JSON.stringify(part)}\n`,
    );
};
const open = (limits: Partial<Limits> = {}) =>
  openAgents({
    runsFolder: runs,
    limits: { ...defaultLimits, ...limits },
    clock: { now: () => NOW },
    log: (line) => said.push(line),
  });
const entries = async (): Promise<TranscriptEntry[]> => {
  const found: TranscriptEntry[] = [];
  for await (const entry of readTranscript(join(runs, FOLDER))) found.push(entry);
  return found;
};
const texts = async () => (await entries()).map((entry) => ("text" in entry ? entry.text : entry.kind));

const claude = targetOf("claude");
const init = { type: "system", subtype: "init", session_id: "s-1", model: "opus" };
const words = (text: string) => ({ type: "assistant", message: { model: "opus", content: [{ type: "text", text }] } });
const result = {
  type: "result",
  subtype: "success",
  is_error: false,
  result: "OK",
  session_id: "s-1",
  num_turns: 1,
  usage: { input_tokens: 1, output_tokens: 2 },
};

describe("reading", () => {
  test("begins before there is an output, and goes on with what comes", async () => {
    const agents = open();
    expect(await agents.read(FOLDER, claude)).toEqual({
      sessionId: null,
      progress: 0,
      answered: false,
      closed: false,
      trouble: null,
    });
    put("out", init, '{"type":"assista');
    expect(await agents.read(FOLDER, claude)).toMatchObject({ sessionId: "s-1", progress: 0 });
    put("out", 'nt","message":{"model":"opus","content":[{"type":"text","text":"hi"}]}}\n');
    expect(await agents.read(FOLDER, claude)).toMatchObject({ progress: 1, answered: true, closed: false });
    put("out", result);
    expect(await agents.read(FOLDER, claude)).toMatchObject({ closed: true });
    expect(await agents.conclude(FOLDER, claude, 0, NOW)).toMatchObject({ ok: true, text: "OK", sessionId: "s-1" });
    expect((await entries()).map(({ kind }) => kind)).toEqual(["session", "text", "usage", "result"]);
    // What its provider counts over the whole session is said so where it is shown.
    expect((await entries())[2]).toMatchObject({ usage: { outputTokens: 2, costOf: "session" } });
    expect(statSync(path("transcript")).mode & 0o777).toBe(0o600);
  });

  test("again after a restart says the same, and writes the transcript anew", async () => {
    put("out", init, words("a"));
    await open().read(FOLDER, claude);
    put("out", words("b"), result);
    const verdict = await open().conclude(FOLDER, claude, 0, NOW);
    expect(verdict).toMatchObject({ ok: true, sessionId: "s-1" });
    expect(await texts()).toEqual(["session", "a", "b", "usage", "OK"]);
    expect(await open().conclude(FOLDER, claude, 0, NOW)).toEqual(verdict);
  });

  test("of a folder that is gone is a verdict all the same", async () => {
    rmSync(join(runs, FOLDER), { recursive: true });
    expect(await open().conclude(FOLDER, claude, null, NOW)).toMatchObject({ ok: false, class: "no_result" });
    expect(said).toEqual([]);
    mkdirSync(join(runs, FOLDER));
  });

  test("does not end with a last line that has no end", async () => {
    put("out", init, words("a"), JSON.stringify(result));
    const agents = open();
    expect(await agents.read(FOLDER, claude)).toMatchObject({ closed: false });
    expect((await agents.conclude(FOLDER, claude, 0, NOW)).ok).toBe(true);
  });

  test("goes on at the beginning of an output that its program emptied", async () => {
    const agents = open();
    put("out", init, words("a long text that is gone"));
    await agents.read(FOLDER, claude);
    truncateSync(path("out"), 0);
    put("out", result);
    await agents.read(FOLDER, claude);
    expect(await texts()).toContain("the program emptied this output");
    expect((await agents.conclude(FOLDER, claude, 0, NOW)).ok).toBe(true);
  });

  test("passes over what was given back to the disk", async () => {
    const head = Buffer.from(`${JSON.stringify(init)}\n${JSON.stringify(words("lost"))}`);
    put("out", head, new Uint8Array(100_000), '"}\n', words("kept"), result);
    writeFileSync(path("holes"), JSON.stringify({ stdout: { from: head.length - 10, to: head.length + 100_000 } }));
    const verdict = await open().conclude(FOLDER, claude, 0, NOW);
    expect(verdict).toMatchObject({ ok: true, sessionId: "s-1" });
    expect(await texts()).toEqual([
      "session",
      expect.stringMatching(/bytes of the log were given back/),
      "kept",
      "usage",
      "OK",
    ]);
  });

  test("of Codex leaves out what it says at each start of itself, and keeps what it says of the work", async () => {
    const codex = { ...claude, provider: "codex" } as typeof claude;
    const event = (more: object) => `${JSON.stringify(more)}\n`;
    put(
      "err",
      "WARNING: proceeding, even though we could not create PATH aliases: Refusing to create helper binaries\n",
    );
    put("err", "an error of its own\n");
    const warned = (message: string) => event({ type: "item.completed", item: { id: "i", type: "error", message } });
    put("out", event({ type: "thread.started", thread_id: "t-1" }));
    put(
      "out",
      warned("Model metadata for `new` not found. Defaulting to fallback metadata; this can degrade performance"),
    );
    put("out", warned("Something else is odd."), event({ type: "turn.completed" }));
    expect(await open().conclude(FOLDER, codex, 0, NOW)).toMatchObject({ ok: true });
    expect(await texts()).toEqual(["session", "Something else is odd.", "", "standard error: an error of its own"]);
  });

  test("B-022 of standard error keeps notes, a bounded number, and the last words for the verdict", async () => {
    put("err", "noise\n".repeat(200_000), "Error: the last words\n");
    put("out", init);
    const verdict = await open().conclude(FOLDER, claude, 3, NOW);
    expect(verdict).toMatchObject({ class: "exit", message: "exited with 3 without a result: Error: the last words" });
    const notes = await texts();
    expect(notes.length).toBeLessThan(300);
    expect(notes).toContain("standard error: 199801 more lines are in the log");
  });

  test("reads one after another, never twice at once", async () => {
    const agents = open();
    put("out", init, ...Array.from({ length: 500 }, (_, i) => words(`w${i}`)), result);
    const all = await Promise.all([
      agents.read(FOLDER, claude),
      agents.read(FOLDER, claude),
      agents.conclude(FOLDER, claude, 0, NOW),
    ]);
    expect(all[2]).toMatchObject({ ok: true });
    expect(await texts()).toEqual(["session", ...Array.from({ length: 500 }, (_, i) => `w${i}`), "usage", "OK"]);
  });

  test("B-026 a flood grows nothing", async () => {
    put("out", init);
    const chunk = Buffer.alloc(1_048_576, `${JSON.stringify(words("flood"))}\nplain line\n{"type":"x"}\n`);
    const rough = Buffer.alloc(1_048_576, "x");
    for (let i = 0; i < 24; i++) put("out", i < 12 ? chunk : rough);
    put("out", "\n", result);
    const before = process.memoryUsage().rss;
    expect((await open().conclude(FOLDER, claude, 0, NOW)).ok).toBe(true);
    expect(process.memoryUsage().rss - before).toBeLessThan(128 * 1_048_576);
    expect(statSync(path("transcript")).size).toBeLessThanOrEqual(defaultLimits.transcriptBytes);
  });

  test("B-026 a flood of short lines blocks nobody", async () => {
    put("out", init, '{"type":"x"}\n{}\nab\n'.repeat(200_000), result);
    const slices: number[] = [];
    let isOver = false;
    const watch = (async () => {
      let since = process.cpuUsage();
      while (!isOver) {
        await turn();
        const { user, system } = process.cpuUsage(since);
        slices.push((user + system) / 1_000);
        since = process.cpuUsage();
      }
    })();
    expect((await open().conclude(FOLDER, claude, 0, NOW)).ok).toBe(true);
    isOver = true;
    await watch;
    // Of the processor, not of the clock: the machine has other work. The longest ones are garbage collections.
    const [longest = 0] = slices.toSorted((one, other) => other - one).slice(5);
    expect(longest).toBeLessThan(15);
  });

  test("reads local times in the agent's own zone", async () => {
    const limit = { type: "turn.failed", error: { message: "You’ve hit your usage limit. Try again at 7:19 AM." } };
    put("out", { type: "thread.started", thread_id: "t" }, limit);
    const at = async (zone: string) =>
      (await open().conclude(FOLDER, targetOf("codex", { env: { TZ: zone } }), 1, NOW)).resetAt;
    expect(await at("UTC")).toBe(Date.UTC(2026, 10, 30, 7, 20));
    expect(await at("Asia/Tokyo")).toBe(Date.UTC(2026, 10, 30, 22, 20));
    expect(await at("Nowhere/Else")).toBe(Date.UTC(2026, 10, 30, 7, 20));
  });
});

describe("the transcript", () => {
  test("keeps the beginning, what decides and the end, within its bound, and says what it left out", async () => {
    const maxBytes = 200_000;
    put("out", init);
    for (let i = 0; i < 5_000; i++) put("out", words(`word ${i} ${"x".repeat(100)}`));
    put("out", { type: "rate_limit_event", rate_limit_info: { status: "rejected", rateLimitType: "five_hour" } });
    for (let i = 0; i < 5_000; i++) put("out", words(`late ${i} ${"x".repeat(100)}`));
    put("out", result);
    const verdict = await open({ transcriptBytes: maxBytes }).conclude(FOLDER, claude, 0, NOW);
    expect(verdict.ok).toBe(true);
    expect(statSync(path("transcript")).size).toBeLessThanOrEqual(maxBytes);
    const kept = await entries();
    expect(kept[0]).toMatchObject({ kind: "session" });
    expect(kept.some(({ kind }) => kind === "limit")).toBe(true);
    expect(kept.at(-1)).toMatchObject({ kind: "result", ok: true });
    const lines = await texts();
    expect(lines.some((line) => line.startsWith("late 4999"))).toBe(true);
    expect(lines.some((line) => /^\d+ entries, about \d+ bytes, are left out here$/.test(line))).toBe(true);
  });

  // Many lengths, so that the end stands anywhere in the memory that holds what came last.
  const lengths = Array.from({ length: 24 }, (_, i) => 400 + 9 * i);
  test.each(lengths)("every entry of %d is kept in its place or counted as left out", async (length) => {
    const size = (i: number) => [0, 40, 900, 7_000, 20_000][(i * 7919) % 5] ?? 0;
    const letter = (i: number) => ["x", "\u00e9", "\ud83d\ude00", '"', "\u0001"][(i * 104_729) % 5] ?? "";
    put("out", init);
    for (let i = 0; i < length; i++) {
      put("out", words(`n${i} ${letter(i).repeat(size(i))}`));
      if (i === 300)
        put("out", { type: "rate_limit_event", rate_limit_info: { status: "rejected", rateLimitType: "five_hour" } });
    }
    await open({ transcriptBytes: 400_000 }).conclude(FOLDER, claude, 0, NOW);
    let next = 0;
    let notes = 0;
    for (const text of await texts()) {
      const leftOut = /^(\d+) entries, about/.exec(text)?.[1];
      const number = /^n(\d+) /.exec(text)?.[1];
      if (leftOut !== undefined) {
        next += Number(leftOut);
        notes++;
      } else if (number !== undefined) expect(Number(number)).toBe(next++);
    }
    expect(next).toBe(length);
    expect(notes).toBeGreaterThan(1);
  });

  test("bounds even what decides", async () => {
    put("out", init);
    for (let i = 0; i < 3_000; i++) put("out", { ...result, result: `r${i} ${"x".repeat(200)}` });
    await open({ transcriptBytes: 100_000 }).conclude(FOLDER, claude, 0, NOW);
    expect(statSync(path("transcript")).size).toBeLessThanOrEqual(100_000);
    expect((await texts()).at(-1)).toMatch(/^r2999 /);
  });

  test("cuts long texts and says by how much", async () => {
    put("out", init, words("é".repeat(50_000)), result);
    await open().conclude(FOLDER, claude, 0, NOW);
    const [long] = (await entries()).filter(({ kind }) => kind === "text");
    if (long?.kind !== "text") throw new Error("no text");
    expect(Buffer.byteLength(long.text)).toBeLessThanOrEqual(ENTRY_BYTES);
    expect(long.cutBytes).toBe(100_000 - Buffer.byteLength(long.text));
    expect(long.text).toMatch(/^é+$/);
  });

  test("B-122 holds no secret, wherever it stands and however it is cut", async () => {
    const secret = "sk-test-4b1c9e77aa0d41f2";
    writeFileSync(path("scrub"), JSON.stringify(fingerprint([secret])));
    put("out", init);
    for (let at = 0; at < 40; at++) put("out", words(`${"x".repeat(ENTRY_BYTES - at)}${secret} after`));
    for (let at = 0; at < 40; at++) put("out", words(`${"y".repeat(16_384 - at)}${secret}${"z".repeat(400_000)}`));
    for (let at = 0; at < 40; at++) put("out", `${"p".repeat(4_096 - at)}${secret}${"z".repeat(400_000)}\n`);
    for (const form of formsOf(secret)) put("out", words(`a ${form.toString()} b`), `${form.toString()}\n`);
    put("out", words(`sk-test-\u001b[31m4b1c9e77aa0d41f2`));
    for (let at = 0; at < 40; at++) put("err", `${"e".repeat(490 - at)}${secret}${"f".repeat(at * 500)}\n`);
    put("out", { ...result, result: `the key is ${secret}`, subtype: "error_during_execution", is_error: true });
    const agents = open();
    await agents.read(FOLDER, claude);
    const verdict = await agents.conclude(FOLDER, claude, 1, NOW);
    const kept = readFileSync(path("transcript"), "utf8") + JSON.stringify(verdict);
    for (const part of [secret, secret.slice(0, -1), secret.slice(0, 12), secret.slice(1)])
      expect(kept).not.toContain(part);
    expect(verdict.message).toContain("[secret]");
  });

  test("B-122 shows nothing when the fingerprints are damaged", async () => {
    writeFileSync(path("scrub"), "{half");
    put("out", init, words("a secret word"), result);
    const verdict = await open().conclude(FOLDER, claude, 0, NOW);
    expect(verdict).toMatchObject({ ok: true, sessionId: "s-1" });
    expect(readFileSync(path("transcript"), "utf8") + JSON.stringify(verdict)).not.toContain("secret word");
    expect(said).toHaveLength(1);
  });

  test("B-039 holds no control sequences", async () => {
    put("out", init, words("\u001b]0;x\u0007\u001b[2K\rALL PASSED\u202e"), result);
    await open().conclude(FOLDER, claude, 0, NOW);
    expect(await texts()).toContain("\nALL PASSED");
  });

  test("that cannot be written stops nothing, and says so when it can", async () => {
    symlinkSync(join(runs, "elsewhere"), path("transcript"));
    put("out", init, words("a"));
    const agents = open();
    expect(await agents.read(FOLDER, claude)).toMatchObject({ progress: 1 });
    expect(said).toHaveLength(1);
    expect(existsSync(join(runs, "elsewhere"))).toBe(false);
    rmSync(path("transcript"));
    put("out", words("b"), result);
    expect((await agents.conclude(FOLDER, claude, 0, NOW)).ok).toBe(true);
    expect(await texts()).toEqual(["2 entries are lost: they could not be written", "b", "usage", "OK"]);
  });

  test("is read past torn lines and what is none", async () => {
    put(
      "transcript",
      '{"kind":"text","at":1,"text":"a"}\n{"kind":"te\n[]\n{"kind":"dance","at":1}\n{"kind":"text","at":1,"text":"b"}\n{"kind":"text","at"',
    );
    expect(await texts()).toEqual(["a", "b"]);
    rmSync(path("transcript"));
    expect(await entries()).toEqual([]);
  });

  test("is followed from before it is there to its end; what is written anew is not given twice", async () => {
    const ended = new AbortController();
    const seen: string[] = [];
    const done = (async () => {
      for await (const entry of followTranscript(join(runs, FOLDER), { ended: ended.signal, everyMs: 2 }))
        seen.push("text" in entry ? entry.text : entry.kind);
    })();
    put("out", init, words("a"));
    await open().read(FOLDER, claude);
    await until("the first entries are seen", () => seen.length === 2);
    put("out", words("b"), result);
    await open().conclude(FOLDER, claude, 0, NOW);
    ended.abort();
    await done;
    expect(seen).toEqual(["session", "a", "b", "usage", "OK"]);
  });

  test("is left at once by a reader that has had enough", async () => {
    const leave = new AbortController();
    const never = new AbortController();
    put("transcript", '{"kind":"text","at":1,"text":"a"}\n{"kind":"text","at":1,"text":"b"}\n');
    const seen: TranscriptEntry[] = [];
    for await (const entry of followTranscript(join(runs, FOLDER), { ended: never.signal, signal: leave.signal })) {
      seen.push(entry);
      leave.abort();
    }
    expect(seen).toHaveLength(1);
  });
});

describe("texts as they are served", () => {
  test("are whole where they fit, whatever the secrets", () => {
    expect(serveTexts(NO_SECRETS).text("hello", 10)).toEqual({ text: "hello", cutBytes: 0 });
    const scrub = openScrub(JSON.stringify(fingerprint(["hunter22"])));
    expect(serveTexts(scrub).text("say hunter22 now", 100)).toEqual({ text: "say [secret] now", cutBytes: 0 });
    expect(serveTexts(scrub).text("é".repeat(10), 9)).toEqual({ text: "éééé", cutBytes: 12 });
  });

  test("a writer without anything to say still leaves an empty transcript", async () => {
    const writer = writeTranscript({
      folderPath: join(runs, FOLDER),
      serving: serveTexts(NO_SECRETS),
      maxBytes: 1_000,
      log: (line) => said.push(line),
    });
    await writer.close(NOW);
    expect(readFileSync(path("transcript"), "utf8")).toBe("");
  });
});
