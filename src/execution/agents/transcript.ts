/** The transcript of an attempt: its file, what is kept of it, how it is read. */
import { constants } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import type { AgentVerdict, TranscriptEntry } from "../../core/agent.ts";
import { FILES, isAbsent, isFull, openPlain } from "../attempt-folder.ts";
import { makeInert } from "../inert.ts";
import { type Scrub, scrubStream } from "../scrub.ts";

/** Longest text of an entry; what is longer is cut, and the raw log has it whole. */
export const ENTRY_BYTES = 8_192;
/** Longest message of a verdict. */
export const MESSAGE_BYTES = 1_024;
/** Longest name of a tool or id. */
const NAME_BYTES = 256;
/** What control sequences may hide between two letters. */
const SLACK_BYTES = 4_096;
/** A line is an entry of at most `ENTRY_BYTES` and its names, as JSON. */
const LONGEST_LINE = 16 * ENTRY_BYTES;
/** What is gathered before it is written. */
const BUFFER_BYTES = 262_144;

/** What stands for every text when the fingerprints of the secrets cannot be read. */
const WITHHELD = "[withheld: the fingerprints of this attempt's secrets cannot be read]";

/** Makes texts fit to be kept and shown: without secrets and control sequences, bounded. */
export interface Serving {
  text(text: string, maxBytes: number): { readonly text: string; readonly cutBytes: number };
  /** The beginning of a text that was cut, without what could be half of a secret at its end. */
  seal(text: string): string;
  /** An id, which has to be kept as it is: one that holds a secret, or is no id, is none. */
  id(text: string): string | null;
}

/** @param scrub null: it cannot be known what is secret, so nothing is shown */
export function serveTexts(scrub: Scrub | null): Serving {
  if (scrub === null)
    return {
      text: (text) => ({ text: WITHHELD, cutBytes: Buffer.byteLength(text) }),
      seal: (text) => text,
      id: (text) => text, // without it nothing could go on
    };
  const marginBytes = scrub.longestBytes;
  const scrubbed = (text: string, toBytes: number): string => {
    const bytes = Buffer.from(text);
    if (scrub.longestBytes === 0 && bytes.length <= toBytes) return text;
    const stream = scrubStream(scrub, { from: 0, to: toBytes });
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat([stream.push(bytes), stream.end()]), {
      stream: true, // a character that the cut divides goes
    });
  };
  const serving: Serving = {
    id: (text) => (serving.text(text, NAME_BYTES).text === text ? text : null),
    seal(text) {
      if (marginBytes === 0) return text;
      const inert = makeInert(scrubbed(text, Number.POSITIVE_INFINITY));
      return scrubbed(inert, Math.max(0, Buffer.byteLength(inert) - marginBytes));
    },
    text(text, maxBytes) {
      const looked = maxBytes + SLACK_BYTES + marginBytes;
      const isLong = text.length > looked;
      // Behind a cut a secret may stand half: of what is so near to it nothing is shown.
      const source = isLong ? text.slice(0, looked) : text;
      const plain = scrubbed(source, Number.POSITIVE_INFINITY);
      const inert = makeInert(plain);
      // Taking out control sequences may have joined what they divided.
      const shown = scrubbed(inert, isLong ? Math.min(maxBytes, Buffer.byteLength(inert) - marginBytes) : maxBytes);
      const isCut = isLong || Buffer.byteLength(inert) > maxBytes;
      return { text: shown, cutBytes: isCut ? Math.max(0, Buffer.byteLength(text) - Buffer.byteLength(shown)) : 0 };
    },
  };
  return serving;
}

/** An entry as it is kept. */
export function serveEntry(serving: Serving, entry: TranscriptEntry): TranscriptEntry {
  let cutBytes = entry.cutBytes ?? 0;
  const long = (text: string): string => {
    const served = serving.text(text, ENTRY_BYTES);
    cutBytes += served.cutBytes;
    return served.text;
  };
  const name = (text: string): string => serving.text(text, NAME_BYTES).text;
  const served = ((): TranscriptEntry => {
    switch (entry.kind) {
      case "session":
        return { ...entry, sessionId: name(entry.sessionId), model: entry.model === null ? null : name(entry.model) };
      case "tool_call":
        return { ...entry, id: name(entry.id), tool: name(entry.tool), input: long(entry.input) };
      case "tool_result":
        return { ...entry, id: name(entry.id), text: long(entry.text) };
      case "usage":
        return entry;
      default:
        return { ...entry, text: long(entry.text) };
    }
  })();
  return cutBytes === 0 ? served : { ...served, cutBytes };
}

/** A verdict as it is kept. @param maxBytes of its result */
export function serveVerdict(serving: Serving, verdict: AgentVerdict, maxBytes: number): AgentVerdict {
  const short = (text: string | null): string | null => (text === null ? null : serving.text(text, MESSAGE_BYTES).text);
  return {
    ...verdict,
    sessionId: verdict.sessionId === null ? null : serving.id(verdict.sessionId),
    message: short(verdict.message),
    resetSource: short(verdict.resetSource),
    text: verdict.text === null ? null : serving.text(verdict.text, maxBytes).text,
    refusedTools: verdict.refusedTools.slice(0, 32).map((tool) => serving.text(tool, NAME_BYTES).text),
  };
}

/** Writes a transcript; what cannot be written is counted, never thrown. */
export interface TranscriptWriter {
  add(entry: TranscriptEntry): void;
  /** Whether so much is gathered that it should be written before more is added. */
  isFull(): boolean;
  flush(): Promise<void>;
  /** Writes what is left, with what was left out said. */
  close(at: number): Promise<void>;
}

export interface TranscriptOptions {
  /** The attempt's folder. */
  readonly folderPath: string;
  readonly serving: Serving;
  /** All that the file holds: three quarters from the beginning, the rest is for what decides and for the end. */
  readonly maxBytes: number;
  log(message: string): void;
}

const decides = (entry: TranscriptEntry): boolean =>
  entry.kind === "session" ||
  entry.kind === "limit" ||
  entry.kind === "result" ||
  (entry.kind === "error" && entry.final);

/** The texts that came last. */
interface Recent {
  push(text: string): void;
  /** All of them; each is gone when it is given. */
  takeNewestFirst(): Generator<string, void, undefined>;
}

/**
 * Keeps texts, as many as fit. In one piece of memory: as strings they would live just long enough to be moved among
 * what lives long, and a flood of them would grow the heap by tens of megabytes.
 * @param maxBytes more than any one text takes
 * @param leaveOut takes the length of each that goes
 */
function keepRecent(maxBytes: number, leaveOut: (bytes: number) => void): Recent {
  const memory = Buffer.allocUnsafe(2 * maxBytes);
  let ends: number[] = [];
  /** How many of the oldest are gone, and where the first that is kept begins. */
  let gone = 0;
  let from = 0;
  return {
    push(text) {
      const bytes = Buffer.byteLength(text);
      let to = ends.at(-1) ?? 0;
      while (to - from + bytes > maxBytes && gone < ends.length) {
        const end = ends[gone++] as number;
        leaveOut(end - from);
        from = end;
      }
      if (to + bytes > memory.length) {
        memory.copyWithin(0, from, to);
        ends = ends.slice(gone).map((end) => end - from);
        to -= from;
        gone = 0;
        from = 0;
      }
      memory.write(text, to);
      ends.push(to + bytes);
    },
    *takeNewestFirst() {
      while (ends.length > gone) {
        const end = ends.pop() as number;
        yield memory.toString("utf8", ends.length > gone ? ends.at(-1) : from, end);
      }
      ends = [];
      gone = 0;
      from = 0;
    },
  };
}

/** Begins a transcript anew. */
export function writeTranscript({ folderPath, serving, maxBytes, log }: TranscriptOptions): TranscriptWriter {
  const path = join(folderPath, FILES.transcript);
  const headBytes = Math.floor((maxBytes * 3) / 4);
  const recentBytes = Math.max(Math.floor(maxBytes / 16), LONGEST_LINE);
  /** Left for the end, whatever comes before it. */
  const reserveBytes = Math.floor(maxBytes / 8);
  let begun = false;
  let buffer: string[] = [];
  let bufferBytes = 0;
  let takenBytes = 0;
  let headIsFull = false;
  let recent: Recent | null = null;
  const leftOut = { entries: 0, bytes: 0 };
  let lost = 0;
  let isTorn = false;
  let lastAt = 0;

  const encode = (entry: TranscriptEntry): string => `${JSON.stringify(serveEntry(serving, entry))}\n`;

  const take = (line: string): void => {
    buffer.push(line);
    const bytes = Buffer.byteLength(line);
    bufferBytes += bytes;
    takenBytes += bytes;
  };

  const leaveOut = (bytes: number): void => {
    leftOut.entries++;
    leftOut.bytes += bytes;
  };

  const sayLeftOut = (at: number): void => {
    if (leftOut.entries === 0) return;
    take(
      encode({ kind: "note", at, text: `${leftOut.entries} entries, about ${leftOut.bytes} bytes, are left out here` }),
    );
    leftOut.entries = 0;
    leftOut.bytes = 0;
  };

  /** Writes the entries that came last, as many as fit. */
  const takeRecent = (at: number, upToBytes: number): void => {
    const lines: string[] = [];
    let bytes = 256; // for the note in front
    let fits = true;
    for (const kept of recent?.takeNewestFirst() ?? []) {
      const line: string = fits ? encode(JSON.parse(kept) as TranscriptEntry) : "";
      fits &&= takenBytes + bytes + Buffer.byteLength(line) <= upToBytes;
      if (fits) {
        bytes += Buffer.byteLength(line);
        lines.push(line);
      } else leaveOut(Buffer.byteLength(kept));
    }
    if (takenBytes + 256 <= upToBytes) sayLeftOut(at);
    for (const line of lines.toReversed()) take(line);
  };

  async function begin(): Promise<void> {
    if (begun) return;
    const file = await open(path, OURS | constants.O_CREAT | constants.O_TRUNC, 0o600);
    await file.close();
    begun = true;
  }

  async function flush(): Promise<void> {
    const count = buffer.length;
    const content = buffer.join("");
    buffer = [];
    bufferBytes = 0;
    try {
      await begin();
      if (content === "") return;
      const file = await open(path, OURS | constants.O_APPEND);
      try {
        if (lost > 0) {
          const note = encode({
            kind: "note",
            at: lastAt,
            text: `${lost} entries are lost: they could not be written`,
          });
          await file.appendFile(isTorn ? `\n${note}` : note);
          lost = 0;
          isTorn = false;
        }
        isTorn = true;
        await file.appendFile(content);
        isTorn = false;
      } finally {
        await file.close();
      }
    } catch (error) {
      // The run goes on without its transcript: the raw log has everything.
      if (lost === 0 && !isAbsent(error))
        log(
          `a transcript cannot be written${isFull(error) ? ": no space is left on the disk" : `: ${messageOf(error)}`}`,
        );
      lost += count;
    }
  }

  return {
    add(entry) {
      lastAt = entry.at;
      if (!headIsFull) {
        const line = encode(entry);
        if (takenBytes + Buffer.byteLength(line) <= headBytes) {
          take(line);
          return;
        }
        headIsFull = true;
      }
      if (decides(entry)) {
        const line = encode(entry);
        const length = Buffer.byteLength(line);
        if (takenBytes + length + 512 <= maxBytes - reserveBytes) {
          takeRecent(entry.at, maxBytes - reserveBytes - length);
          take(line);
          return;
        }
      }
      recent ??= keepRecent(recentBytes, leaveOut);
      // Texts are served when it is sure that they are written; a long one at once, so that what is kept is bounded.
      const text = JSON.stringify(entry);
      recent.push(text.length <= 2 * ENTRY_BYTES ? text : JSON.stringify(serveEntry(serving, entry)));
    },
    isFull: () => bufferBytes >= BUFFER_BYTES,
    flush,
    async close(at) {
      takeRecent(at, maxBytes);
      await flush();
    },
  };
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

const base = { at: z.number(), cutBytes: z.number().optional() };
const worded = { ...base, text: z.string() };
const entrySchema = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("session"), ...base, sessionId: z.string(), model: z.string().nullable() }),
  z.object({ kind: z.literal("text"), ...worded }),
  z.object({ kind: z.literal("thinking"), ...worded }),
  z.object({ kind: z.literal("tool_call"), ...base, id: z.string(), tool: z.string(), input: z.string() }),
  z.object({ kind: z.literal("tool_result"), ...worded, id: z.string(), ok: z.boolean() }),
  z.object({
    kind: z.literal("usage"),
    ...base,
    usage: z.object({
      inputTokens: z.number(),
      cachedInputTokens: z.number(),
      outputTokens: z.number(),
      costUsd: z.number().nullable(),
      of: z.enum(["attempts", "session"]).exactOptional(),
      costOf: z.literal("session").exactOptional(),
    }),
  }),
  z.object({ kind: z.literal("limit"), ...worded, resetAt: z.number().nullable() }),
  z.object({ kind: z.literal("error"), ...worded, final: z.boolean() }),
  z.object({ kind: z.literal("result"), ...worded, ok: z.boolean() }),
  z.object({ kind: z.literal("note"), ...worded }),
]);

/** An entry in a line of the file; null for a torn line, and for what is none. */
function parseEntry(line: string): TranscriptEntry | null {
  if (line === "") return null;
  try {
    const { cutBytes, ...entry } = entrySchema.parse(JSON.parse(line));
    return cutBytes === undefined ? entry : { ...entry, cutBytes };
  } catch {
    return null;
  }
}

const CHUNK_BYTES = 65_536;
/** Not through a link that the agent may have put there, and not into a pipe that nobody reads. */
const OURS = constants.O_WRONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
const FOLLOW_EVERY_MS = 100;

/** What a transcript holds now, entry by entry; nothing when there is none. */
export async function* readTranscript(folderPath: string): AsyncGenerator<TranscriptEntry, void, undefined> {
  yield* followTranscript(folderPath, { ended: AbortSignal.abort() });
}

export interface TranscriptFollowing {
  /** Aborted when nothing more will be written: what is there is given, then it ends. */
  readonly ended: AbortSignal;
  /** Aborted by a reader that has had enough. */
  readonly signal?: AbortSignal;
  /** How often the file is looked at. */
  readonly everyMs?: number;
}

/**
 * What a transcript holds, and then what comes. A daemon that starts writes it anew: what was given before is not given
 * twice. Lines that are none, such as one that a full disk has torn, are passed over.
 */
export async function* followTranscript(
  folderPath: string,
  { ended, signal, everyMs = FOLLOW_EVERY_MS }: TranscriptFollowing,
): AsyncGenerator<TranscriptEntry, void, undefined> {
  const path = join(folderPath, FILES.transcript);
  const wake = signal === undefined ? ended : AbortSignal.any([ended, signal]);
  const isLeft = () => signal?.aborted === true;
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
  let file: FileHandle | null = null;
  let at = 0;
  let seen = 0;
  let given = 0;
  let carry: Buffer = Buffer.alloc(0);
  try {
    for (;;) {
      if (isLeft()) return;
      const last = ended.aborted; // read before the file: what was written before the end is seen
      file ??= await openPlain(path, constants.O_NOFOLLOW);
      while (file !== null) {
        if ((await file.stat()).size < at) {
          at = 0;
          seen = 0;
          carry = Buffer.alloc(0);
        }
        const { bytesRead } = await file.read(chunk, 0, chunk.length, at);
        if (bytesRead === 0) break;
        at += bytesRead;
        const bytes = Buffer.concat([carry, chunk.subarray(0, bytesRead)]);
        let from = 0;
        for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, from)) {
          const entry = parseEntry(bytes.toString("utf8", from, end));
          from = end + 1;
          if (entry === null || ++seen <= given) continue;
          given = seen;
          yield entry;
          if (isLeft()) return;
        }
        carry = bytes.length - from > LONGEST_LINE ? Buffer.alloc(0) : bytes.subarray(from);
      }
      if (last) return;
      await delay(everyMs, undefined, { signal: wake }).catch(() => {}); // aborted: the loop looks by which
    }
  } finally {
    await file?.close();
  }
}
