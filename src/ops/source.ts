/** Bytes that a flag names: of a file, or of standard input. */
import { closeSync, openSync, readSync } from "node:fs";
import { badInput } from "./fields.ts";
import { AppError } from "../core/errors.ts";

/** More is not sent: what the daemon's socket takes, less the rest of the request, after base64. */
const MAX_BYTES = 17 * 1024 * 1024;
const CHUNK_BYTES = 64 * 1024;
/** How long is waited before a standard input that has nothing yet, and was left non-blocking by somebody, is asked again. */
const AGAIN_MS = 10;
const STANDARD_INPUT = 0;

const WHY: Readonly<Record<string, string>> = {
  EACCES: "this user may not read it",
  EISDIR: "it is a folder",
  ENOTDIR: "a part of its path is no folder",
  ELOOP: "its links lead in a circle",
  ENAMETOOLONG: "its name is too long",
};

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error ? String(error.code) : "unknown");

/**
 * All bytes as base64. Errors never hold what was read: AppError not_found `file_not_found`, invalid `file_unreadable`,
 * `too_large`. @param file an absolute path, or `-`
 */
export function readBytes(file: string, path: string): string {
  const name = file === "-" ? "standard input" : file;
  let descriptor = STANDARD_INPUT;
  try {
    if (file !== "-") descriptor = openSync(file, "r");
    return readAll(descriptor, name, path).toString("base64");
  } catch (error) {
    if (error instanceof AppError) throw error;
    const code = codeOf(error);
    if (code === "ENOENT")
      throw new AppError("not_found", "file_not_found", `there is no file ${JSON.stringify(file)}`, {
        path,
        hint: "Check its spelling; a relative name is looked for where the command is typed.",
      });
    throw badInput(
      path,
      `${file === "-" ? name : JSON.stringify(name)} cannot be read: ${WHY[code] ?? code}`,
      "Give a file that this user may read, or - for standard input.",
      "file_unreadable",
    );
  } finally {
    if (descriptor !== STANDARD_INPUT) closeSync(descriptor);
  }
}

function readAll(descriptor: number, name: string, path: string): Buffer {
  const chunks: Buffer[] = [];
  let have = 0;
  for (;;) {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    let got: number;
    try {
      got = readSync(descriptor, chunk, 0, CHUNK_BYTES, null);
    } catch (error) {
      if (codeOf(error) === "EOF") got = 0;
      else if (codeOf(error) === "EAGAIN") {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, AGAIN_MS);
        continue;
      } else throw error;
    }
    if (got === 0) return Buffer.concat(chunks);
    have += got;
    if (have > MAX_BYTES)
      throw badInput(
        path,
        `${name} holds more than ${MAX_BYTES} bytes`,
        "Put what is long into a file that the prompt names.",
        "too_large",
      );
    chunks.push(chunk.subarray(0, got));
  }
}
