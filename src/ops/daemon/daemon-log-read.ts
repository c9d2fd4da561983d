/** Reading the daemon's log: across the files that were put aside, and on while it is written and put aside again. */
import { type FileHandle, open } from "node:fs/promises";
import type { LogLine } from "./daemon-log.ts";

/** A line of the log; one that is no JSON, as the torn last one of a daemon that was killed, is `text`. */
export type ReadLine = LogLine | { readonly text: string };

/** How often a followed log is looked at. */
const LOOK_MS = 200;
const PIECE_BYTES = 64 * 1024;
/** More files than anybody keeps: where the search for older ones ends. */
const MOST_FILES = 1_000;

interface OpenFile {
  readonly handle: FileHandle;
  readonly inode: bigint;
  /** When it was last written, as it was opened; nanoseconds. */
  readonly writtenAt: bigint;
}

/**
 * The files that there are, oldest first. They are opened newest first, so that one that is put aside meanwhile is found
 * again under its next name, and none is missed.
 */
async function openFiles(file: string): Promise<OpenFile[]> {
  const found: OpenFile[] = [];
  try {
    for (let nth = 0; nth < MOST_FILES; nth++) {
      const next = await openFile(nth === 0 ? file : `${file}.${nth}`);
      if (next === null && nth > 0) break;
      if (next === null) continue;
      if (found.some(({ inode }) => inode === next.inode)) await next.handle.close();
      else found.unshift(next);
    }
    return found;
  } catch (error) {
    await closeAll(found);
    throw error;
  }
}

async function openFile(path: string): Promise<OpenFile | null> {
  let handle: FileHandle;
  try {
    handle = await open(path, "r");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return null;
    throw error;
  }
  const { ino, mtimeNs } = await handle.stat({ bigint: true });
  return { handle, inode: ino, writtenAt: mtimeNs };
}

/** The files that came after one, oldest first. */
async function newerThan(file: string, current: OpenFile | undefined): Promise<OpenFile[]> {
  const there = await openFiles(file);
  if (current === undefined) return there;
  const known = there.findIndex(({ inode }) => inode === current.inode);
  // Ours was removed: what was last written before its end is older.
  const end = known === -1 ? (await current.handle.stat({ bigint: true })).mtimeNs : 0n;
  const past = known === -1 ? there.findLastIndex(({ writtenAt }) => writtenAt <= end) : known;
  await closeAll(there.splice(0, past + 1));
  return there;
}

const closeAll = async (files: readonly OpenFile[]): Promise<void> => {
  for (const { handle } of files) await handle.close();
};

/** Cuts bytes into lines; what has no end yet is kept for the next. */
class Lines {
  #rest: Buffer = Buffer.alloc(0);

  *add(bytes: Buffer): Generator<string> {
    let text = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
    for (let at = text.indexOf(10); at !== -1; at = text.indexOf(10)) {
      if (at > 0) yield text.toString("utf8", 0, at);
      text = text.subarray(at + 1);
    }
    this.#rest = Buffer.from(text);
  }

  /** What stays without an end, because nothing more will be written to its file. */
  *end(): Generator<string> {
    if (this.#rest.length > 0) yield this.#rest.toString("utf8");
    this.#rest = Buffer.alloc(0);
  }
}

/** Everything from a place of a file to its end; answers the place. */
async function* readOn(handle: FileHandle, from: number): AsyncGenerator<Buffer, number> {
  const piece = Buffer.alloc(PIECE_BYTES);
  for (let at = from; ; ) {
    const { bytesRead } = await handle.read(piece, 0, piece.length, at);
    if (bytesRead === 0) return at;
    at += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
}

function parse(text: string): ReadLine {
  try {
    const line = JSON.parse(text) as Partial<LogLine> | null;
    if (typeof line?.at === "string" && typeof line.level === "string" && typeof line.event === "string")
      return line as LogLine;
  } catch {
    // shown as it is
  }
  return { text };
}

/** All lines that are there, oldest first, or the last `tail` of them; null where there is no log. */
export async function readDaemonLog(file: string, tail: number | null): Promise<readonly ReadLine[] | null> {
  const lines: ReadLine[] = [];
  for await (const line of followDaemonLog(file, tail, AbortSignal.abort())) lines.push(line);
  if (lines.length > 0) return lines;
  const files = await openFiles(file);
  await closeAll(files);
  return files.length === 0 ? null : lines;
}

/**
 * The lines that are there, or the last `tail` of them, then those that come, until `signal` is aborted. A file that is put
 * aside is read to its end first.
 */
export async function* followDaemonLog(
  file: string,
  tail: number | null,
  signal: AbortSignal,
): AsyncGenerator<ReadLine> {
  let files = await openFiles(file);
  try {
    const lines = new Lines();
    let kept: string[] = [];
    let at = 0;
    /** What is in a file from a place on. */
    async function* rest(one: OpenFile, isLast: boolean, from: number): AsyncGenerator<string> {
      const pieces = readOn(one.handle, from);
      for (;;) {
        const { done, value } = await pieces.next();
        if (done === true) {
          at = value;
          break;
        }
        yield* lines.add(value);
      }
      if (!isLast) yield* lines.end();
    }
    for (const [nth, one] of files.entries())
      for await (const text of rest(one, nth === files.length - 1, 0)) {
        if (tail === null) yield parse(text);
        else if (tail > 0) {
          kept.push(text);
          // Twice as many at most, so that the cost of each line is the same.
          if (kept.length >= 2 * tail) kept = kept.slice(-tail);
        }
      }
    for (const text of tail === null || tail === 0 ? [] : kept.slice(-tail)) yield parse(text);
    if (signal.aborted) {
      for (const text of lines.end()) if (tail !== 0) yield parse(text);
      return;
    }
    while (!signal.aborted) {
      const current = files.at(-1);
      if (current !== undefined) {
        const { size } = await current.handle.stat();
        if (size < at) at = 0; // somebody emptied it
        for await (const text of rest(current, true, at)) yield parse(text);
      }
      const newer = await newerThan(file, current);
      if (newer.length > 0) {
        // What was written to ours between our look and its being put aside, then all that are newer.
        if (current !== undefined) for await (const text of rest(current, false, at)) yield parse(text);
        await closeAll(files);
        files = newer;
        for (const one of files.slice(0, -1)) for await (const text of rest(one, false, 0)) yield parse(text);
        at = 0;
        continue;
      }
      await new Promise<void>((done) => {
        const end = (): void => {
          clearTimeout(timer);
          signal.removeEventListener("abort", end);
          done();
        };
        const timer = setTimeout(end, LOOK_MS);
        signal.addEventListener("abort", end);
      });
    }
  } finally {
    await closeAll(files);
  }
}
