/** Whether what an installation writes can be written, and what mends it where it cannot. */
import { accessSync, constants, statSync } from "node:fs";
import { dirname } from "node:path";
import { shellWord } from "../core/shell-word.ts";

export interface WriteFault {
  readonly path: string;
  readonly message: string;
  readonly hint: string;
}

/** What is asked of the file system. */
export interface WriteProbe {
  /** The error's code when the path may not be written; null when it may. */
  refusal(path: string): string | null;
  /** Null when nothing is there. */
  stat(path: string): { readonly isFolder: boolean; readonly uid: number } | null;
  /** Who asks; null where users have no numbers. */
  readonly uid: number | null;
}

const fileSystem: WriteProbe = {
  refusal(path) {
    try {
      // What is in a folder is reached through it.
      accessSync(path, statSync(path).isDirectory() ? constants.W_OK | constants.X_OK : constants.W_OK);
      return null;
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? "unknown";
    }
  },
  stat(path) {
    try {
      const found = statSync(path);
      return { isFolder: found.isDirectory(), uid: found.uid };
    } catch {
      return null; // not there, or below a folder that may not be entered: that one is found first
    }
  },
  uid: process.getuid?.() ?? null,
};

/**
 * The faults of these paths, each once. Of what is not there yet, the nearest folder above has to take it.
 * @param folders paths that have to be folders
 */
export function writeFaults(
  folders: readonly string[],
  files: readonly string[],
  probe: WriteProbe = fileSystem,
): readonly WriteFault[] {
  const faults = new Map<string, WriteFault>();
  const paths = [...folders, ...files];
  for (const path of folders)
    if (probe.stat(path)?.isFolder === false)
      faults.set(path, {
        path,
        message: `${path} is no folder`,
        hint: `mv ${shellWord(path)} ${shellWord(`${path}.old`)}`,
      });
  for (const wanted of paths) {
    let path = wanted;
    while (probe.stat(path) === null && dirname(path) !== path) path = dirname(path);
    const refusal = probe.refusal(path);
    if (refusal === null || faults.has(path)) continue;
    // What is above may be the system's, as `/` is: then it is to be made there, and nobody is to be given that.
    const made = path === wanted ? null : folders.includes(wanted) ? wanted : dirname(wanted);
    const message = made === null || made === path ? `${path} cannot be written` : `${made} cannot be made in ${path}`;
    faults.set(path, { path, message, hint: mend(path, refusal, probe, made) });
  }
  return [...faults.values()];
}

/** @param made the folder that is not there yet and is to be made below `path`; null: `path` itself is meant */
function mend(path: string, refusal: string, probe: WriteProbe, made: string | null): string {
  if (refusal === "EROFS") return "Its file system is read-only: mount it for writing, or set DROVER_HOME.";
  if (refusal === "EPERM") return `It is protected: chattr -i ${shellWord(path)}`;
  const found = probe.stat(path);
  if (found !== null && probe.uid !== null && found.uid !== probe.uid)
    return made === null
      ? `sudo chown ${probe.uid} ${shellWord(path)}`
      : `sudo install -d -o ${probe.uid} -m 700 ${shellWord(made)}`;
  return `chmod ${found?.isFolder === true ? "u+rwx" : "u+rw"} ${shellWord(path)}`;
}
