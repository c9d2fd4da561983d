import type { FileHandle } from "node:fs/promises";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { FILES, openPlain, readAs, streamFile } from "./attempt-folder.ts";
import { inert } from "./inert.ts";
import type { Hole } from "./log-cap.ts";
import { holeIn } from "./log-cap.ts";
import type { Scrub } from "./scrub.ts";
import { NO_SECRETS, openScrub, scrubStream } from "./scrub.ts";

/** Where a reading of an output begins; at most one of them, the beginning without any. */
export interface LogStart {
  /** An offset in bytes, such as `next` of an earlier answer. */
  readonly from?: number;
  /** This many last bytes. */
  readonly tailBytes?: number;
  /** This many last lines, found within the last `MAX_TAIL_SCAN_BYTES`. */
  readonly tailLines?: number;
}

export interface LogRequest extends LogStart {
  /** Keeps control sequences. Secrets are replaced all the same. */
  readonly raw: boolean;
  /** At most about this many bytes of the output in one answer. */
  readonly maxBytes?: number;
  /** More may be written: what may be the beginning of a secret at the end is not given yet. */
  readonly isLive?: boolean;
}

/** A part of an output as text. */
export interface LogPage {
  readonly text: string;
  /** Offset of the first byte of the text. */
  readonly from: number;
  /** Where to go on. */
  readonly next: number;
  /** Nothing more was there when this was read. */
  readonly atEnd: boolean;
  /** Bytes before the text that are not in it. */
  readonly droppedBytes: number;
}

export interface FollowRequest extends LogStart {
  readonly raw: boolean;
  /** Aborted when nothing more will be written: what is there is given, then it ends. */
  readonly ended: AbortSignal;
  /** Aborted by a reader that has had enough: it ends at once. */
  readonly signal?: AbortSignal;
  /** How often the file is looked at. */
  readonly everyMs?: number;
}

/** A piece of a followed output. */
export interface LogPiece {
  readonly text: string;
  /** Bytes of the file that have been read; a new follower may begin here. */
  readonly next: number;
}

const PAGE_BYTES = 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;
/** Further back than this no line is looked for: a program that never ends a line must not make us read all. */
export const MAX_TAIL_SCAN_BYTES = 16 * 1024 * 1024;
const FOLLOW_EVERY_MS = 100;

const droppedNote = (bytes: number): string => `[... ${bytes} bytes dropped ...]`;

/** Opens the scrub of an attempt's folder. Errors: AppError invalid `attempt_damaged`. */
export const scrubOf = (path: string): Scrub => readAs(join(path, FILES.scrub), openScrub) ?? NO_SECRETS;

/** Reads a file at an offset until the buffer is full or the file ends. */
async function readAt(file: FileHandle, from: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(Math.max(0, length));
  let have = 0;
  while (have < buffer.length) {
    const { bytesRead } = await file.read(buffer, have, buffer.length - have, from + have);
    if (bytesRead === 0) break;
    have += bytesRead;
  }
  return buffer.subarray(0, have);
}

/** Bytes at an offset that continue a UTF-8 character, at most three. */
const continuations = (bytes: Uint8Array, at: number): number => {
  let count = 0;
  while (count < 3 && at + count < bytes.length && ((bytes[at + count] ?? 0) & 0xc0) === 0x80) count++;
  return count;
};

/** Length of an unfinished UTF-8 character at the end of these bytes. */
function unfinished(bytes: Uint8Array, end: number): number {
  for (let back = 1; back <= 3 && back <= end; back++) {
    const byte = bytes[end - back] ?? 0;
    if ((byte & 0xc0) === 0x80) continue;
    const needs = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return needs > back ? back : 0;
  }
  return 0;
}

/** The offset at which the asked part begins. */
async function startOf(file: FileHandle, size: number, start: LogStart, hole: Hole | undefined): Promise<number> {
  if (start.from !== undefined) return Math.max(0, start.from);
  if (start.tailBytes !== undefined) return Math.max(0, size - start.tailBytes);
  if (start.tailLines === undefined) return 0;
  if (start.tailLines <= 0) return size;
  const floor = Math.max(0, size - MAX_TAIL_SCAN_BYTES, hole?.to ?? 0);
  let lines = 0;
  for (let end = size; end > floor; ) {
    const from = Math.max(floor, end - CHUNK_BYTES);
    const bytes = await readAt(file, from, end - from);
    for (let at = bytes.length - 1; at >= 0; at--) {
      // The newline that ends the last line ends no line before it.
      if (bytes[at] === 10 && from + at !== size - 1 && ++lines === start.tailLines) return from + at + 1;
    }
    end = from;
  }
  return floor;
}

/**
 * Reads a part of an output, scrubbed and (unless raw) inert. Borders of the part are looked across, so that a secret
 * which a cut divides is seen; what a punched hole may have divided is left out. Pages end at a line where there is one.
 * An output that does not exist is empty.
 */
export async function readLog(folderPath: string, stream: "stdout" | "stderr", request: LogRequest): Promise<LogPage> {
  const file = await openPlain(join(folderPath, streamFile(stream)));
  if (file === null) return { text: "", from: 0, next: 0, atEnd: true, droppedBytes: 0 };
  try {
    const scrub = scrubOf(folderPath);
    const marginBytes = Math.max(0, scrub.longestBytes - 1);
    for (;;) {
      const { size } = await file.stat();
      const hole = holeIn(folderPath, stream, size);
      let from = Math.min(size, await startOf(file, size, request, hole));
      let note = "";
      let floor = 0;
      let ceiling = size;
      if (hole !== undefined) {
        const kept = { to: Math.max(0, hole.from - marginBytes), from: Math.min(size, hole.to + marginBytes) };
        if (from < kept.to) ceiling = Math.min(size, hole.from);
        else {
          if (from < kept.from) {
            if (request.tailBytes === undefined && request.tailLines === undefined)
              note = droppedNote(kept.from - Math.max(from, kept.to));
            from = kept.from;
          }
          floor = hole.to;
        }
      }
      const scanFrom = Math.max(floor, from - marginBytes);
      const wanted = Math.min(ceiling, from + (request.maxBytes ?? PAGE_BYTES));
      const asked = Math.min(ceiling, wanted + marginBytes) - scanFrom;
      const bytes = await readAt(file, scanFrom, asked);
      // A punch may have come between: then this may be zeros.
      const now = holeIn(folderPath, stream, size);
      if (now?.to !== hole?.to) continue;

      const emitTo = hole !== undefined && ceiling === hole.from ? Math.max(0, hole.from - marginBytes) : ceiling;
      let to = Math.min(wanted, emitTo, scanFrom + bytes.length);
      const isLast = to >= emitTo || bytes.length < asked;
      const secrets = scrub.find(bytes).map((range) => ({ from: scanFrom + range.from, to: scanFrom + range.to }));
      const isHeld = isLast && request.isLive === true && ceiling === size && marginBytes > 0;
      if (isHeld) {
        const lineEnd = scrub.spansLines ? 0 : bytes.lastIndexOf(10) + 1;
        to = Math.max(from, Math.min(to, scanFrom + Math.max(lineEnd, bytes.length - marginBytes)));
      }
      if (!isLast || isHeld) {
        const newline = isHeld ? -1 : bytes.lastIndexOf(10, to - 1 - scanFrom);
        if (newline >= 0 && scanFrom + newline >= from) to = scanFrom + newline + 1;
        else to -= unfinished(bytes, to - scanFrom);
        // A cut within a secret moves to its end, else the next page would begin in it.
        const cut = secrets.find((range) => range.from < to && to < range.to);
        if (cut !== undefined) to = Math.min(cut.to, scanFrom + bytes.length);
      }
      // A tail may begin within a character.
      const skip = request.from === undefined && from > 0 ? continuations(bytes, from - scanFrom) : 0;
      const scrubbed = scrubStream(scrub, { from: from + skip - scanFrom, to: to - scanFrom });
      const shown = Buffer.concat([scrubbed.push(bytes), scrubbed.end()]).toString("utf8");
      const text = note === "" ? shown : `${note}\n${shown}`;
      const beforeHole =
        hole !== undefined && to < size && to >= Math.max(0, hole.from - marginBytes) && ceiling === hole.from;
      return {
        text: request.raw ? text : inertText(scrub, text),
        from: from + skip,
        next: to,
        atEnd: !beforeHole && (isHeld || to >= size),
        droppedBytes: from + skip,
      };
    }
  } finally {
    await file.close();
  }
}

/** Inert text, scrubbed once more: taking out control sequences may have joined what they divided. */
function inertText(scrub: Scrub, text: string): string {
  const stream = inert();
  const plain = stream.push(text) + stream.end();
  if (scrub.longestBytes === 0) return plain;
  const again = scrubStream(scrub);
  return Buffer.concat([again.push(Buffer.from(plain)), again.end()]).toString("utf8");
}

/** Bytes to text, step by step: scrub, decode, make inert, scrub again. Shows its input from `emitFrom` on. */
function serve(scrub: Scrub, raw: boolean, emitFrom: number) {
  const first = scrubStream(scrub, { from: emitFrom, to: Number.POSITIVE_INFINITY });
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const plain = inert();
  const second = scrubStream(scrub);
  const secondDecoder = new TextDecoder("utf-8", { ignoreBOM: true });
  const again = scrub.longestBytes > 0;
  const finish = (bytes: Uint8Array): string => {
    const text = decoder.decode(bytes, { stream: true }) + decoder.decode();
    if (raw) return text;
    const shown = plain.push(text) + plain.end();
    return again ? secondDecoder.decode(Buffer.concat([second.push(Buffer.from(shown)), second.end()])) : shown;
  };
  return {
    push(bytes: Uint8Array): string {
      const text = decoder.decode(first.push(bytes), { stream: true });
      if (raw) return text;
      const shown = plain.push(text);
      return again ? secondDecoder.decode(second.push(Buffer.from(shown)), { stream: true }) : shown;
    },
    /** The input is over. */
    end: (): string => finish(first.end()),
    /** The input goes on where nobody can read it: what is held back may be the beginning of a secret, and is dropped. */
    cut: (): string => finish(new Uint8Array(0)),
  };
}

/**
 * Follows an output: what is there, then what comes, until `ended` and everything is read. Holds a descriptor, so it goes
 * on when the file is deleted or replaced; says so when the program emptied it. Holds back as many bytes as a secret is
 * long until more comes or it ends. Memory does not depend on the length of the output or of its lines.
 */
export async function* followLog(
  folderPath: string,
  stream: "stdout" | "stderr",
  request: FollowRequest,
): AsyncGenerator<LogPiece, void, undefined> {
  const place = join(folderPath, streamFile(stream));
  const everyMs = request.everyMs ?? FOLLOW_EVERY_MS;
  const wake = request.signal === undefined ? request.ended : AbortSignal.any([request.ended, request.signal]);
  const wait = () => delay(everyMs, undefined, { signal: wake }).catch(() => {}); // aborted: the loop looks by which
  const isLeft = () => request.signal?.aborted === true;

  let file = await openPlain(place);
  while (file === null) {
    const last = request.ended.aborted; // read before the file: what was written before the end is seen
    if (isLeft()) return;
    file = await openPlain(place);
    if (file === null && last) return;
    if (file === null) await wait();
  }
  try {
    const scrub = scrubOf(folderPath);
    const marginBytes = Math.max(0, scrub.longestBytes - 1);
    let at = 0; // where the next byte is read
    let pipe = serve(scrub, request.raw, 0);
    /** Goes on at an offset, looking at bytes from `floor` on. */
    const begin = async (from: number, floor: number) => {
      at = Math.max(floor, from - marginBytes);
      pipe = serve(
        scrub,
        request.raw,
        from - at + (request.from === from || from === 0 ? 0 : continuations(await readAt(file, from, 3), 0)),
      );
    };

    const { size: sizeAtStart } = await file.stat();
    const holeAtStart = holeIn(folderPath, stream, sizeAtStart);
    const start = Math.min(sizeAtStart, await startOf(file, sizeAtStart, request, holeAtStart));
    if (holeAtStart === undefined || start < holeAtStart.from - marginBytes) await begin(start, 0);
    else if (start >= holeAtStart.to + marginBytes) await begin(start, holeAtStart.to);
    else at = holeAtStart.from;

    let replaced = false;
    let withinLine = false; // a note of ours begins a line of its own
    const piece = (text: string, next: number): LogPiece => {
      if (text !== "") withinLine = !text.endsWith("\n");
      return { text, next };
    };
    const note = (before: string, what: string, next: number): LogPiece => {
      const within = before === "" ? withinLine : !before.endsWith("\n");
      return piece(`${before}${within ? "\n" : ""}${what}\n`, next);
    };
    for (;;) {
      if (isLeft()) return;
      const last = request.ended.aborted;
      const now = await file.stat();
      if (now.size < at) {
        yield note(pipe.end(), "[... the program emptied this output ...]", 0);
        await begin(0, 0);
        continue;
      }
      const hole = holeIn(folderPath, stream, now.size);
      if (hole !== undefined && hole.from <= at && at < hole.to) {
        const shown = pipe.cut();
        const next = Math.min(now.size, hole.to + marginBytes);
        const dropped = next - Math.max(0, at - marginBytes);
        await begin(next, Math.min(now.size, hole.to));
        yield note(shown, droppedNote(dropped), next);
        continue;
      }
      const end = hole !== undefined && at < hole.from ? Math.min(now.size, hole.from) : now.size;
      if (at < end) {
        const bytes = await readAt(file, at, Math.min(CHUNK_BYTES, end - at));
        if (holeIn(folderPath, stream, now.size)?.to !== hole?.to) continue; // a punch came between: this may be zeros
        at += bytes.length;
        const text = pipe.push(bytes);
        if (text !== "") yield piece(text, at);
        continue;
      }
      if (last) break;
      if (!replaced && now.nlink > 0) {
        const there = await stat(place).catch(() => null); // gone: the descriptor still has it
        if (there !== null && there.ino !== now.ino) {
          replaced = true;
          yield note("", "[... this output's file was replaced; following the one that is still written to ...]", at);
        }
      }
      await wait();
    }
    const text = pipe.end();
    if (text !== "") yield piece(text, at);
  } finally {
    await file.close();
  }
}
