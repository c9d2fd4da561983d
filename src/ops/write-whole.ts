/** A file that is there whole or not at all, and never instead of another one. */
import { closeSync, existsSync, fsyncSync, linkSync, openSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { dirname } from "node:path";
import { AppError } from "../core/errors.ts";

/**
 * Writes lines to a file that is not there yet; it has its name when it is whole. Errors: AppError conflict `target_exists`,
 * unreachable `disk_full`, invalid `bad_target`. @param mode as of a new file, less the umask
 */
export async function writeWhole(
  file: string,
  lines: AsyncIterable<string> | Iterable<string>,
  { mode = 0o600, seen = () => {} }: { readonly mode?: number; readonly seen?: (line: string) => void } = {},
): Promise<void> {
  const fresh = `${file}.${process.pid}.partial`;
  try {
    // Said before the work, and held by the link after it.
    if (existsSync(file)) throw Object.assign(new Error("there"), { code: "EEXIST" });
    const handle = await open(fresh, "wx", mode);
    try {
      for await (const line of lines) {
        seen(line);
        await handle.write(line);
      }
      await handle.sync();
    } finally {
      await handle.close();
    }
    publish(fresh, file);
  } catch (error) {
    throw targetFault(error, file);
  } finally {
    rmSyncQuietly(fresh);
  }
}

function rmSyncQuietly(path: string): void {
  try {
    rmSync(path, { force: true });
  } catch {
    // it could not be made either, which is said
  }
}

function publish(fresh: string, file: string): void {
  try {
    linkSync(fresh, file);
  } catch (error) {
    const { code } = error as { readonly code?: unknown };
    if (!["EPERM", "ENOTSUP", "ENOSYS", "EMLINK"].includes(String(code))) throw error;
    throw new AppError("invalid", "bad_target", `${file} lies on a file system without links`, {
      path: file,
      hint: "Write it to standard output: drover ... > FILE",
    });
  }
  const place = openSync(dirname(file), "r");
  fsyncSync(place);
  closeSync(place);
}

function targetFault(error: unknown, file: string): unknown {
  if (error instanceof AppError) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (code === "EEXIST")
    return new AppError("conflict", "target_exists", `${file} is there already`, {
      path: file,
      hint: "Name another file: nothing is ever replaced.",
    });
  if (code === "ENOSPC" || code === "EDQUOT")
    return new AppError("unreachable", "disk_full", `no space is left for ${file}`, {
      path: file,
      hint: "Free some space, or name a file on another disk; what was written of it was removed.",
    });
  return /^E[A-Z]+$/.test(code)
    ? new AppError("invalid", "bad_target", `no file can be made at ${file} (${code})`, {
        path: file,
        hint: "Name a file in a folder that is there and that this user may write.",
      })
    : error;
}
