import { execFile } from "node:child_process";
import { closeSync, openSync, readSync, renameSync, rmSync, statfsSync, writeSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { FILES, readAs, statOf, streamFile, writeText } from "./attempt-folder.ts";

/** How much of an output stays on the disk. */
export interface LogCap {
  /** Nothing is given back before a stream occupies this much. */
  readonly softBytes: number;
  readonly headBytes: number;
  readonly tailBytes: number;
  /** At most one punch per attempt and this time: a punch first writes the range out, which would slow a burst. */
  readonly everyMs: number;
}

/** 64 MiB a stream, of which 4 MiB from the beginning and 16 MiB from the end are kept (`cli.md`, Defaults). */
export const DEFAULT_LOG_CAP: LogCap = {
  softBytes: 64 * 1024 * 1024,
  headBytes: 4 * 1024 * 1024,
  tailBytes: 16 * 1024 * 1024,
  everyMs: 10_000,
};

/** The range of a stream that was given back; it reads as zeros. */
export interface Hole {
  readonly from: number;
  readonly to: number;
}

/** Holes by stream. */
export interface Holes {
  readonly stdout?: Hole | undefined;
  readonly stderr?: Hole | undefined;
}

const hole = z.object({ from: z.number().int().min(0), to: z.number().int().min(0) });
const holesFile = z.object({ stdout: hole.optional(), stderr: hole.optional() });

/**
 * What of an output was given back, as far as the output reaches: its command can write anything where that is said.
 * Errors: AppError invalid `attempt_damaged`: what would be shown around a hole is not known to be scrubbed.
 */
export function holeIn(path: string, stream: "stdout" | "stderr", size: number): Hole | undefined {
  const found = readHoles(path)[stream];
  const to = Math.min(found?.to ?? 0, size);
  return found === undefined || to <= found.from ? undefined : { from: found.from, to };
}

/** All that the file says. Errors: those of `holeIn`. */
export const readHoles = (path: string): Holes =>
  readAs(join(path, FILES.holes), (text) => holesFile.parse(JSON.parse(text))) ?? {};

const writeHoles = (path: string, holes: Holes): void => writeText(join(path, FILES.holes), JSON.stringify(holes));

const BLOCK = 4096;
const down = (bytes: number): number => Math.floor(bytes / BLOCK) * BLOCK;

/**
 * Gives the middle of each stream that is over the cap back to the disk. Offsets stay valid, the writer notices nothing.
 * `holes` is written before the punch, so that no reader takes zeros for output. Where holes are refused (or there is no
 * `fallocate`), an ended attempt's stream is copied into a sparse file in its place; a live one is left alone.
 */
export async function capLogs(path: string, cap: LogCap, ended: boolean, fallocate: string | null): Promise<void> {
  for (const stream of ["stdout", "stderr"] as const) {
    const file = join(path, streamFile(stream));
    const found = statOf(file);
    // The length never shrinks; what counts is what it occupies.
    if (found === null || found.blocks * 512 <= cap.softBytes) continue;
    const holes = readHoles(path);
    const from = down(cap.headBytes);
    const to = down(found.size - cap.tailBytes);
    const start = Math.max(from, holes[stream]?.to ?? from);
    if (to <= start) continue;
    writeHoles(path, { ...holes, [stream]: { from, to } });
    if (fallocate !== null && (await punch(fallocate, file, start, to - start))) continue;
    if (ended && hasRoom(path, cap)) copySparse(file, from, to);
    else writeHoles(path, holes);
  }
}

const hasRoom = (path: string, cap: LogCap): boolean => {
  const disk = statfsSync(path);
  return disk.bavail * disk.bsize > 2 * (cap.headBytes + cap.tailBytes);
};

/** Asynchronous: the flush before a punch takes as long as the disk. */
function punch(fallocate: string, file: string, offset: number, length: number): Promise<boolean> {
  return new Promise((resolve) => {
    execFile(
      fallocate,
      ["-p", "-o", String(offset), "-l", String(length), file],
      { env: {}, timeout: 60_000 },
      (error) => resolve(error === null),
    );
  });
}

/** The same file with its middle never written; only when nobody appends any more. */
function copySparse(file: string, from: number, to: number): void {
  const place = `${file}.sparse`;
  const source = openSync(file, "r");
  const target = openSync(place, "wx", 0o600);
  try {
    const buffer = Buffer.allocUnsafe(1024 * 1024);
    const copy = (start: number, end: number) => {
      let at = start;
      while (at < end) {
        const read = readSync(source, buffer, 0, Math.min(buffer.length, end - at), at);
        if (read === 0) return;
        writeSync(target, buffer, 0, read, at);
        at += read;
      }
    };
    copy(0, from);
    copy(to, Number.MAX_SAFE_INTEGER);
    renameSync(place, file);
  } finally {
    closeSync(source);
    closeSync(target);
    rmSync(place, { force: true });
  }
}
