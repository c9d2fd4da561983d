/** Which files declare something, and what they hold. */
import { closeSync, fstatSync, openSync, readdirSync, readSync, realpathSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { AppError } from "../../core/errors.ts";
import { describeSize } from "../../core/size.ts";
import { badInput } from "../fields.ts";

/** Names of files in a folder that declare something. */
const DECLARES = /^(?:.*[^.].*\.)?drover\.(?:ya?ml|json)$/;

/** Files and folders that were named. A file's name is its canonical path: it says who declared a loop. */
export interface Sources {
  readonly files: readonly string[];
  /** Canonical paths of the folders among what was named. */
  readonly folders: readonly string[];
}

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error ? String(error.code) : "");

function unreadable(error: unknown, path: string): AppError {
  const code = codeOf(error);
  if (code === "ENOENT" || code === "ENOTDIR")
    return new AppError("not_found", "file_not_found", `there is no file or folder ${JSON.stringify(path)}`, {
      path: "path",
      hint: "Check its spelling.",
    });
  return badInput(
    "path",
    `${JSON.stringify(path)} cannot be read: ${code === "EACCES" ? "this user may not read it" : code}`,
    "Give files and folders that this user may read.",
    "file_unreadable",
  );
}

const noFile = (path: string): AppError =>
  badInput("path", `${JSON.stringify(path)} is no file`, "Give a file, or a folder with files.", "file_unreadable");

/**
 * The files that these paths mean: a file itself; of a folder its `drover.yaml` and all `*.drover.yaml`, not those of folders in it.
 * Errors: AppError not_found `file_not_found`, `no_files`; invalid `file_unreadable`.
 * @param mayBeEmpty a folder may hold none: what its files declared before is taken away
 */
export function sourcesOf(paths: readonly string[], mayBeEmpty: boolean): Sources {
  const files = new Set<string>();
  const folders = new Set<string>();
  for (const path of paths) {
    try {
      const whole = realpathSync(path);
      const found = statSync(whole);
      if (!found.isDirectory()) {
        // A pipe would be waited for, and is another one at the next look.
        if (!found.isFile()) throw noFile(path);
        files.add(whole);
        continue;
      }
      folders.add(whole);
      const names = readdirSync(whole)
        .filter((name) => DECLARES.test(name))
        .toSorted();
      if (names.length === 0 && !mayBeEmpty)
        throw new AppError("not_found", "no_files", `there is no drover.yaml in ${JSON.stringify(path)}`, {
          path: "path",
          hint: "A folder's files are named drover.yaml or NAME.drover.yaml; name any other file itself.",
        });
      for (const name of names) files.add(realpathSync(join(whole, name)));
    } catch (error) {
      if (error instanceof AppError) throw error;
      throw unreadable(error, path);
    }
  }
  return { files: [...files], folders: [...folders] };
}

/** Whether a file that declared something is one of these, or was one of these folders'. */
export const isOf = ({ files, folders }: Sources, file: string): boolean =>
  files.includes(file) || (folders.includes(dirname(file)) && DECLARES.test(basename(file)));

/** Reads a file as it is. Errors: AppError invalid `too_large`, `file_unreadable`, not_found `file_not_found`. */
export function readSource(file: string, maxBytes: number): Buffer {
  let descriptor: number | null = null;
  try {
    descriptor = openSync(file, "r");
    const stat = fstatSync(descriptor);
    if (!stat.isFile()) throw noFile(file);
    // Read to its end, also where it grows meanwhile.
    const bytes = Buffer.alloc(Math.min(stat.size, maxBytes) + 1);
    let have = 0;
    for (let got = -1; got !== 0 && have < bytes.length; have += got)
      got = readSync(descriptor, bytes, have, bytes.length - have, null);
    if (have > maxBytes)
      throw badInput(
        "path",
        `${JSON.stringify(file)} holds more than ${maxBytes} bytes (${describeSize(maxBytes)})`,
        "Divide it into several files, or raise limits.declaredBytes.",
        "too_large",
      );
    return bytes.subarray(0, have);
  } catch (error) {
    throw error instanceof AppError ? error : unreadable(error, file);
  } finally {
    if (descriptor !== null) closeSync(descriptor);
  }
}
