/** Processes that work in a folder. */
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { basename, sep } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { runErrand } from "../errand.ts";
import { ATTEMPT_MARK, isAlive, marksIn, type ProcessTable } from "../processes.ts";
import { workspaceError } from "./git.ts";

/** A process whose working directory is in a folder. */
export interface Occupant {
  readonly pid: number;
  /** Name of its program. Not its arguments, which may hold secrets. */
  readonly program: string;
}

/** How often a process that was found is looked at again, and after what time. */
const LOOKS_AGAIN = 2;
const ENDING_MS = 20;
/** `lsof` reads the whole table. */
const LSOF_MS = 20_000;
const LSOF_BYTES = 16 * 1024 * 1024;

/**
 * Living processes whose working directory is `folder` or below it, our own calls of git left out; in another user's process
 * only root can see. Errors: `workspace` when it cannot be told.
 * @param folder its real path
 */
export async function occupantsOf(folder: string, table: ProcessTable): Promise<readonly Occupant[]> {
  const look = async () => {
    const found = await workingFolders(table);
    return found.filter(
      ({ pid, path }) =>
        (path === folder || path.startsWith(folder + sep)) && isAlive(table.read(pid)) && !isErrand(pid),
    );
  };
  let found = await look();
  // One that is just ending has lost its environment but not its folder yet.
  for (let again = 0; found.length > 0 && again < LOOKS_AGAIN; again++) {
    await pause(ENDING_MS);
    const still = new Set((await look()).map(({ pid }) => pid));
    found = found.filter(({ pid }) => still.has(pid));
  }
  return found.map(({ pid }) => ({ pid, program: basename(table.words(pid).split(" ")[0] ?? "") || "a process" }));
}

/** What we run ourselves, git above all, ends by itself and is waited for. */
function isErrand(pid: number): boolean {
  try {
    const marks = marksIn(readFileSync(`/proc/${pid}/environ`));
    return marks.length > 0 && !marks.some((mark) => mark.startsWith(`${ATTEMPT_MARK}=`));
  } catch {
    return false; // gone, another user's, or no /proc: then nothing speaks for it
  }
}

/** A process, and its working directory by its real path. */
export interface WorkingFolder {
  readonly pid: number;
  readonly path: string;
}

/** Where every process works of which that can be seen. Errors: `workspace` when it cannot be told. */
export async function workingFolders(table: ProcessTable): Promise<readonly WorkingFolder[]> {
  return table.backend === "proc" ? procFolders() : lsofFolders(table);
}

function procFolders(): readonly WorkingFolder[] {
  const found: WorkingFolder[] = [];
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      found.push({ pid: Number(name), path: readlinkSync(`/proc/${name}/cwd`).replace(/ \(deleted\)$/, "") });
    } catch {
      // gone meanwhile, dead, or another user's
    }
  }
  return found;
}

async function lsofFolders(table: ProcessTable): Promise<readonly WorkingFolder[]> {
  const end = await runErrand(
    {
      argv: ["lsof", "-w", "-d", "cwd", "-F", "pn0"],
      cwd: "/",
      environment: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C" },
      timeoutMs: LSOF_MS,
      keepBytes: LSOF_BYTES,
      keep: "head",
    },
    table,
    false,
  );
  // It ends with 1 when some process could not be read.
  if (end.timedOut || end.fault !== null || !end.whole)
    throw workspaceError(`whether a process works in it cannot be told: lsof ${end.fault ?? "did not end"}`);
  const found: WorkingFolder[] = [];
  let pid = 0;
  for (const field of end.stdout.toString().split(/\0\n?/)) {
    if (field.startsWith("p")) pid = Number(field.slice(1));
    else if (field.startsWith("n")) found.push({ pid, path: field.slice(1) });
  }
  return found;
}
