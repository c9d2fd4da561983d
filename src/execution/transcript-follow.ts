/** Reads an attempt's transcript, to its end or as it grows. */
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { TranscriptEntry } from "../core/agent.ts";
import { isAbsent } from "./attempt-folder.ts";

/** Name of the transcript in an attempt's folder: one entry a line, as JSON. */
export const TRANSCRIPT = "transcript";

export interface FollowTranscript {
  /** Aborted when nothing more will be written: what is there is given, then it ends. */
  readonly ended: AbortSignal;
  /** Aborted by a reader that has had enough. */
  readonly signal?: AbortSignal;
  /** How often the file is looked at. */
  readonly everyMs?: number;
}

const CHUNK_BYTES = 64 * 1024;
const EVERY_MS = 100;

/**
 * Entries as they come, each once. A line that is not whole is waited for and at the end left out. A daemon that was
 * started anew writes the transcript from its beginning again: what was given is not given twice.
 * @param folder the attempt's folder
 */
export async function* followTranscript(
  folder: string,
  { ended, signal, everyMs = EVERY_MS }: FollowTranscript,
): AsyncGenerator<TranscriptEntry> {
  let given = 0;
  let seen = 0;
  let offset = 0;
  let rest: Buffer = Buffer.alloc(0);
  const buffer = Buffer.allocUnsafe(CHUNK_BYTES);
  let inode: number | null = null;
  for (;;) {
    // Looked at before reading: what is written before the end is read after it.
    const isLast = ended.aborted;
    const file = await openThere(join(folder, TRANSCRIPT));
    if (file !== null)
      try {
        const found = await file.stat();
        if (found.size < offset || (inode !== null && inode !== found.ino)) {
          seen = 0;
          offset = 0;
          rest = Buffer.alloc(0);
        }
        inode = found.ino;
        for (;;) {
          if (signal?.aborted === true) return;
          const { bytesRead } = await file.read(buffer, 0, CHUNK_BYTES, offset);
          if (bytesRead === 0) break;
          offset += bytesRead;
          rest = Buffer.concat([rest, buffer.subarray(0, bytesRead)]);
          for (let end = rest.indexOf(10); end !== -1; end = rest.indexOf(10)) {
            const entry = entryOf(rest.subarray(0, end).toString());
            rest = rest.subarray(end + 1);
            seen += 1;
            if (seen <= given) continue;
            given = seen;
            if (entry !== null) yield entry;
          }
        }
      } finally {
        await file.close();
      }
    if (isLast || signal?.aborted === true) return;
    await delay(everyMs, undefined, {
      signal: AbortSignal.any(signal === undefined ? [ended] : [ended, signal]),
    }).catch(
      () => {}, // told to stop waiting
    );
  }
}

async function openThere(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, "r");
  } catch (error) {
    if (isAbsent(error)) return null; // nothing was said yet
    throw error;
  }
}

function entryOf(line: string): TranscriptEntry | null {
  try {
    const entry = JSON.parse(line) as TranscriptEntry | null;
    return typeof entry === "object" && entry !== null && typeof entry.kind === "string" ? entry : null;
  } catch {
    return null; // torn by a full disk or a power cut
  }
}
