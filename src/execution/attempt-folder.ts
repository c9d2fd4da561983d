import type { Stats } from "node:fs";
import {
  closeSync,
  constants,
  fstatSync,
  linkSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import { AppError } from "../core/errors.ts";
import type { Identity } from "./processes.ts";
import { parseIdentity } from "./processes.ts";

/**
 * The files of an attempt's folder (0700; each file 0600).
 *
 * | file | written by | means |
 * | --- | --- | --- |
 * | `stdin` | prepare | what the command reads; none when that is nothing |
 * | `scrub` | prepare | fingerprints of the secrets, never the secrets (`scrub.ts`) |
 * | `prepared` | prepare | what later judgements need: variables, repository, working directory (`Prepared`) |
 * | `out`, `err` | the command, appended | its outputs, raw; `out.pipe` and `err.pipe` beside them with `output: "pipe"` |
 * | `output` | the command | `DROVER_OUTPUT` |
 * | `holes` | trim | the ranges of `out` and `err` that were given back to the disk (`log-cap.ts`) |
 * | `transcript` | the daemon | what an agent said and did, derived from `out` and `err` |
 * | `id` | shim, first | its own stat line: pid, session, start time |
 * | `run` | shim or tombstone, never both | the ticket; lines below |
 * | `../bells` | shim, last | a line with the folder's name: a bell, never evidence |
 * | `../void` | the spawner, once | the text of every tombstone: planting is a link(2) to it, so it needs no room on a full disk |
 *
 * Lines of `run`, each counting only with its newline: `go` (ticket of the shim) or `void` (tombstone); then `group PATH`
 * (it entered that cgroup), `readers PID PID` (the two that write what comes through the pipes), `reaper yes` (it is a child subreaper), `cmd STAT` (the command's own process, `cmd -` where
 * unknown), `nocwd`, `nocmd`, `noexec`, `exit N UPTIME`, `left N` (children that a subreaper still has).
 */
export const FILES = {
  stdin: "stdin",
  scrub: "scrub",
  prepared: "prepared",
  stdout: "out",
  stderr: "err",
  output: "output",
  holes: "holes",
  transcript: "transcript",
  id: "id",
  run: "run",
} as const;

/** The tombstones' text, beside the attempts' folders. Not in each of them: to make a file is the dearest part of a start. */
const TOMBSTONE = "void";

/** Writes the text that tombstones are links to, in one step. */
export function writeTombstone(runsFolder: string): void {
  writeText(join(runsFolder, TOMBSTONE), "void\n");
}

/** Whether that text is there. */
export const hasTombstone = (runsFolder: string): boolean => statOf(join(runsFolder, TOMBSTONE)) !== null;

/** The bells, beside the attempts' folders. One file for all: to make and to remove a file is the dearest part of an end. */
export const BELLS = "bells";

/** The file of one output. */
export const streamFile = (stream: "stdout" | "stderr"): string => FILES[stream];

/** What `prepare` saw and later judgements need. Holds no secret. */
export interface Prepared {
  readonly cwd: string;
  /** The variables that drover set, without the run token. */
  readonly variables: Readonly<Record<string, string>>;
  /** The working directory's repository at the start; null where there is none or nothing asks for it. */
  readonly repository: {
    readonly head: string | null;
    readonly digest: string;
    readonly tips: readonly string[];
  } | null;
}

const preparedFile = z.object({
  cwd: z.string(),
  variables: z.record(z.string(), z.string()),
  repository: z.object({ head: z.string().nullable(), digest: z.string(), tips: z.array(z.string()) }).nullable(),
});

/** What `prepare` left in a folder; null when it left nothing, or the folder is gone. Errors: AppError invalid `attempt_damaged`. */
export const readPrepared = (path: string): Prepared | null =>
  readAs(join(path, FILES.prepared), (text) => preparedFile.parse(JSON.parse(text)));

/** A bare folder name `<attempt id>.<token>`; anything else could name a place outside the runs folder. */
export function requireFolderName(folder: string): string {
  if (!/^[A-Za-z0-9_-]+\.\d+$/.test(folder))
    throw new AppError("invalid", "folder_invalid", `not an attempt's folder: ${JSON.stringify(folder)}`);
  return folder;
}

/** The attempt's id in its folder's name, which is also its mark. */
export const attemptIdOf = (folder: string): string => folder.slice(0, folder.lastIndexOf("."));

/** What `run` says. */
export interface RunRecord {
  /** null: created, but the first line is not whole. */
  readonly ticket: "go" | "void" | null;
  readonly command: Identity | null;
  /** True once a `cmd` line is there, also where it cannot name the process. */
  readonly commandSeen: boolean;
  readonly fault: "nocwd" | "nocmd" | "noexec" | null;
  readonly exit: { readonly status: number; readonly uptimeMs: number | null } | null;
  readonly cgroup: string | null;
  readonly reaper: boolean;
  /** Our own processes in the tree: they end by themselves when the last writer is gone. */
  readonly readers: readonly number[];
  /** Children that the shim as a subreaper had at its end. */
  readonly left: number | null;
}

/** Reads the text of `run`; lines without their newline do not count, lines of a newer version are skipped. */
export function parseRun(text: string): RunRecord {
  const lines = text.split("\n").slice(0, -1);
  const [first] = lines;
  let command: Identity | null = null;
  let commandSeen = false;
  let fault: RunRecord["fault"] = null;
  let exit: RunRecord["exit"] = null;
  let cgroup: string | null = null;
  let reaper = false;
  let readers: number[] = [];
  let left: number | null = null;
  for (const line of lines.slice(1)) {
    const space = line.indexOf(" ");
    const word = space < 0 ? line : line.slice(0, space);
    const rest = space < 0 ? "" : line.slice(space + 1);
    switch (word) {
      case "cmd":
        commandSeen = true;
        command = parseIdentity(rest);
        break;
      case "nocwd":
      case "nocmd":
      case "noexec":
        fault ??= word;
        break;
      case "exit": {
        const [status, uptime] = rest.split(" ");
        if (exit !== null || !/^\d+$/.test(status ?? "")) break;
        const seconds = Number.parseFloat(uptime ?? "");
        exit = { status: Number(status), uptimeMs: Number.isFinite(seconds) ? Math.round(seconds * 1000) : null };
        break;
      }
      case "group":
        cgroup = rest;
        break;
      case "reaper":
        reaper = rest === "yes";
        break;
      case "readers":
        readers = rest.split(" ").map(Number);
        break;
      case "left":
        left = /^\d+$/.test(rest) ? Number(rest) : null;
        break;
    }
  }
  return {
    ticket: first === "go" || first === "void" ? first : null,
    command,
    commandSeen,
    fault,
    exit,
    cgroup,
    reaper,
    readers,
    left,
  };
}

/** The files as they are at one moment. */
export interface FolderState {
  readonly there: boolean;
  readonly shim: Identity | null;
  /** `torn`: it exists but is not whole: its writer had no room, or is just at it. */
  readonly id: "none" | "torn" | "whole";
  readonly run: RunRecord | null;
  readonly startedAt: number;
  readonly endedAt: number;
}

/**
 * Reads `id` and `run`. A file that vanishes in between reads as absent, what the command put in its place as one that is
 * not whole; other errors (EIO, EACCES) are thrown.
 */
export function readFolder(path: string): FolderState {
  const id = evidence(join(path, FILES.id));
  const run = evidence(join(path, FILES.run));
  const idLine = id?.endsWith("\n") === true ? id.slice(0, -1) : null;
  const found = idLine === null ? null : parseIdentity(idLine);
  // A shim leads its session. What says otherwise is damaged, and its session somebody else's, whose processes are not to be ended.
  const shim = found?.session === found?.pid ? found : null;
  let startedAt = 0;
  let endedAt = 0;
  if (run !== null) {
    const stat = statOf(join(path, FILES.run));
    endedAt = Math.round(stat?.mtimeMs ?? 0);
    // Some file systems keep no time of birth; `id` is written once, just before.
    const born = stat?.birthtimeMs ?? 0;
    startedAt = Math.round(born > 0 && born <= endedAt + 1 ? born : (statOf(join(path, FILES.id))?.mtimeMs ?? endedAt));
  }
  return {
    there: statOf(path) !== null,
    shim,
    id: id === null ? "none" : shim === null ? "torn" : "whole",
    run: run === null ? null : parseRun(run),
    startedAt,
    endedAt,
  };
}

/** Whether an error of the file system says that nothing is there. */
export const isAbsent = (error: unknown): boolean =>
  error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR");

/** A pipe is opened without waiting for its other end: what has to be a file may be anything that its command put there. */
const PLAIN = constants.O_RDONLY | constants.O_NONBLOCK;
/** What the system says of an open that no file would be refused: a socket, links in a circle, a name that is too long. */
const NO_FILE = new Set(["ENXIO", "ELOOP", "ENAMETOOLONG"]);

/** The error for what lies where drover put something, and cannot be that: a command may write there too. */
const damaged = (path: string, why: string, cause?: unknown): AppError =>
  new AppError("invalid", "attempt_damaged", `${path} ${why}`, {
    path,
    hint: "A command may have written there. `drover show` has what was kept of an attempt in the store.",
    cause,
  });

const isNoFile = (error: unknown): boolean =>
  error instanceof Error && "code" in error && NO_FILE.has(String(error.code));

/** The text of a file, null when there is none. Never waits. Errors: AppError invalid `attempt_damaged` for what is no plain file. */
export function readText(path: string): string | null {
  let descriptor: number;
  try {
    descriptor = openSync(path, PLAIN);
  } catch (error) {
    if (isAbsent(error)) return null;
    throw isNoFile(error) ? damaged(path, "is no plain file", error) : error;
  }
  try {
    if (!fstatSync(descriptor).isFile()) throw damaged(path, "is no plain file");
    return readFileSync(descriptor, "utf8");
  } finally {
    closeSync(descriptor);
  }
}

/** The same for reading piece by piece. */
export async function openPlain(path: string, flags = 0): Promise<FileHandle | null> {
  let file: FileHandle;
  try {
    file = await open(path, PLAIN | flags);
  } catch (error) {
    if (isAbsent(error)) return null; // not begun, or gone
    throw isNoFile(error) ? damaged(path, "is no plain file", error) : error;
  }
  if ((await file.stat()).isFile()) return file;
  await file.close();
  throw damaged(path, "is no plain file");
}

/** A file that drover wrote, read as what it has to be; null when there is none. Errors: AppError invalid `attempt_damaged`. */
export function readAs<T>(path: string, read: (text: string) => T): T | null {
  const text = readText(path);
  if (text === null) return null;
  try {
    return read(text);
  } catch (error) {
    throw damaged(path, "cannot be read", error);
  }
}

function evidence(path: string): string | null {
  try {
    return readText(path);
  } catch (error) {
    if (error instanceof AppError && error.code === "attempt_damaged") return "";
    throw error;
  }
}

/** Writes a file whole or not at all, never through what is there in its place. */
export function writeText(path: string, text: string): void {
  const fresh = `${path}.new`;
  rmSync(fresh, { recursive: true, force: true });
  writeFileSync(fresh, text, { mode: 0o600, flag: "wx" });
  renameSync(fresh, path);
}

/** What is at that path, null when nothing is, also below a file, behind links in a circle, and under a name that no file can have. */
export function statOf(path: string): Stats | null {
  try {
    return statSync(path, { throwIfNoEntry: false }) ?? null;
  } catch (error) {
    if (isAbsent(error) || isNoFile(error)) return null;
    throw error;
  }
}

/**
 * Declares "never started" for good, or finds that the shim was first. One step on the disk: with create-then-write, a
 * death between the two leaves a `run` that nobody can read.
 */
export function plantTombstone(path: string): "planted" | "refused" | "gone" {
  const runsFolder = dirname(path);
  for (let tries = 0; ; tries++) {
    try {
      linkSync(join(runsFolder, TOMBSTONE), join(path, FILES.run));
      return "planted";
    } catch (error) {
      if (isFull(error)) throw noSpace(path, error);
      const code = error instanceof Error && "code" in error ? error.code : "";
      if (code === "EEXIST") return "refused";
      if (isAbsent(error) && statOf(path) === null) return "gone";
      // Somebody removed the text, or it has as many links as the file system allows (65,000 on ext4).
      if (tries > 0 || !(isAbsent(error) || code === "EMLINK")) throw error;
      writeTombstone(runsFolder);
    }
  }
}

/** The one error for a full disk. */
export const noSpace = (path: string, cause: unknown): AppError =>
  new AppError("unreachable", "no_space", "no space is left on the disk that holds the runs", {
    hint: "Free some space; work goes on by itself.",
    path,
    cause,
  });

/** Whether an error of the file system says that there is no room. */
export const isFull = (error: unknown): boolean =>
  error instanceof Error && "code" in error && (error.code === "ENOSPC" || error.code === "EDQUOT");
