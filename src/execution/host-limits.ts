/** The limits of this host for processes, as far as the system says. */
import { readFileSync, watch } from "node:fs";
import { join } from "node:path";

/** Limits of a process and what it starts; null where the system does not say, or sets none. */
export interface ProcessLimits {
  readonly openFiles: number | null;
  /** Processes and threads of its user; null also where that does not apply, as for root. */
  readonly processes: number | null;
  /** How many more its cgroup, and those above it, let be made. */
  readonly cgroupRoom: number | null;
}

/** Reads them. @param pid of another process; null for this one */
export function limitsOf(pid: number | null): ProcessLimits {
  const of = pid ?? "self";
  const text = readOr(`/proc/${of}/limits`);
  /** The soft limit in a line of that file. */
  const soft = (name: string): number | null => {
    const value = new RegExp(`^${name}\\s+(\\d+|unlimited)`, "m").exec(text)?.[1];
    return value === undefined || value === "unlimited" ? null : Number(value);
  };
  const isRoot = /^Uid:\s+\d+\s+0\b/m.test(readOr(`/proc/${of}/status`));
  return {
    openFiles: soft("Max open files"),
    processes: isRoot ? null : soft("Max processes"),
    cgroupRoom: cgroupRoom(String(of)),
  };
}

/** The least room of the unified hierarchy, from a process's cgroup up. */
function cgroupRoom(of: string): number | null {
  const mount = /^\S+ \S+ \S+ \S+ (\S+) [^\n]* - cgroup2 /m.exec(readOr("/proc/self/mountinfo"))?.[1];
  const own = /^0::(\/.*)$/m.exec(readOr(`/proc/${of}/cgroup`))?.[1];
  if (mount === undefined || own === undefined) return null;
  let least: number | null = null;
  const parts = own.split("/").filter((part) => part !== "");
  for (let depth = parts.length; depth >= 0; depth--) {
    const folder = join(mount, ...parts.slice(0, depth));
    const max = Number.parseInt(readOr(join(folder, "pids.max")), 10);
    const used = Number.parseInt(readOr(join(folder, "pids.current")), 10);
    if (Number.isNaN(max)) continue; // none is set there
    const room = Math.max(0, max - (Number.isNaN(used) ? 0 : used));
    least = least === null ? room : Math.min(least, room);
  }
  return least;
}

/** Why no watcher of files can be made in a folder, by making one; null: it can, or the folder is not there. */
export async function watchFault(folder: string): Promise<string | null> {
  return new Promise((resolve) => {
    try {
      const watcher = watch(folder, { persistent: false });
      watcher.once("error", (error) => resolve(codeOf(error)));
      watcher.close();
      resolve(null);
    } catch (error) {
      const code = codeOf(error);
      resolve(code === "EMFILE" || code === "ENOSPC" ? code : null);
    }
  });
}

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error ? String(error.code) : "unknown");

function readOr(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return ""; // not this system's, or the process is gone
  }
}
