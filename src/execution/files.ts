import { lstatSync } from "node:fs";
import { open, readdir, rm, statfs } from "node:fs/promises";
import { join, resolve } from "node:path";
import { AppError } from "../core/errors.ts";
import type { Files } from "../core/ports.ts";
import type { ProcessTarget } from "../core/target.ts";
import type { Prepared } from "./attempt-folder.ts";
import { FILES, readPrepared, requireFolderName, statOf, streamFile } from "./attempt-folder.ts";
import { composeEnvironment } from "./environment.ts";
import { runErrand } from "./errand.ts";
import { readLog, scrubOf } from "./logs.ts";
import { openProcessTable } from "./processes.ts";
import { hasNewCommit, openGit, readRepository } from "./repository.ts";
import { scrubJson, scrubTail, scrubText, tailMarginBytes } from "./scrub.ts";

export interface FilesOptions {
  readonly runsFolder: string;
  /** The daemon's own environment, for checks. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly shell?: string;
  /** `DROVER_OUTPUT` may hold this much; larger results are left in files of their own. */
  readonly maxOutputBytes?: number;
  /** For the whole tree of a `cmd:` expectation. */
  readonly checkTimeoutMs?: number;
}

const MAX_OUTPUT_BYTES = 1024 * 1024;
const CHECK_TIMEOUT_MS = 60_000;
/** What a failed check printed last is told with it, up to this much. */
const CHECK_TAIL_BYTES = 1024;

/** The files that attempts leave, from the real disk. */
export function openFiles(options: FilesOptions): Files {
  const {
    runsFolder,
    shell = "/bin/sh",
    environment = process.env,
    maxOutputBytes = MAX_OUTPUT_BYTES,
    checkTimeoutMs = CHECK_TIMEOUT_MS,
  } = options;
  const table = openProcessTable();
  const pathOf = (folder: string) => join(runsFolder, requireFolderName(folder));

  /** Everything that is checked runs without the secrets: they are known at the start only. */
  const environmentOf = (target: ProcessTarget, prepared: Prepared | null) =>
    composeEnvironment({ daemon: environment, target, secrets: {}, variables: prepared?.variables ?? {} });

  const unmetCommand = async (path: string, target: ProcessTarget, command: string): Promise<string | null> => {
    const scrub = scrubOf(path);
    const end = await runErrand(
      {
        argv: [shell, "-c", command],
        cwd: target.cwd,
        environment: environmentOf(target, readPrepared(path)),
        timeoutMs: checkTimeoutMs,
        keepBytes: CHECK_TAIL_BYTES + tailMarginBytes(scrub),
        keep: "tail",
      },
      table,
    );
    if (end.exit === 0) return null;
    if (end.timedOut) return `check did not end within ${checkTimeoutMs} ms: ${command}`;
    if (end.fault !== null) return `check could not be started: ${command}`;
    const said =
      [end.stdout, end.stderr]
        .map((printed) => scrubTail(scrub, printed, CHECK_TAIL_BYTES))
        .join("")
        .trim()
        .split("\n")
        .at(-1) ?? "";
    return `check ended with status ${end.exit ?? "none (a signal)"}: ${command}${said === "" ? "" : ` (${said})`}`;
  };

  const unmetInRepository = async (
    path: string,
    target: ProcessTarget,
    wanted: "changes" | "commit",
  ): Promise<string | null> => {
    const before = readPrepared(path)?.repository ?? null;
    if (before === null) return `${wanted} expected, but ${target.cwd} was in no git repository that could be read`;
    const git = openGit(target.cwd, environmentOf(target, null), table);
    if (wanted === "commit")
      return (await hasNewCommit(git, before)) ? null : "commit expected, but there is no new one";
    const after = await readRepository(git);
    if (after === null) return `changes expected, but the repository of ${target.cwd} cannot be read`;
    return after.digest === before.digest && after.head === before.head
      ? "changes expected, but nothing changed"
      : null;
  };

  const hasOutput = (path: string): boolean =>
    [FILES.output, FILES.stdout].some((file) => (statOf(join(path, file))?.size ?? 0) > 0);

  const wrote = (path: string): boolean => (statOf(join(path, FILES.output))?.size ?? 0) > 0;

  return {
    async tail(folder, stream, maxBytes) {
      // Most outputs are empty, and this is asked for both at each end.
      if ((statOf(join(pathOf(folder), streamFile(stream)))?.size ?? 0) === 0) return { text: "", droppedBytes: 0 };
      const page = await readLog(pathOf(folder), stream, {
        tailBytes: maxBytes,
        raw: false,
        maxBytes: Number.MAX_SAFE_INTEGER,
      });
      return { text: page.text, droppedBytes: page.droppedBytes };
    },

    async output(folder) {
      const path = join(pathOf(folder), FILES.output);
      const found = lstatSync(path, { throwIfNoEntry: false });
      if (found === undefined) return null;
      const invalid = (why: string, hint: string) =>
        new AppError("invalid", "output_invalid", `the output in DROVER_OUTPUT ${why}`, { hint });
      // A link or a pipe that the process put there could make us read anything, or for ever.
      if (!found.isFile()) throw invalid("is not a file", "write the file itself");
      if (found.size === 0) return null;
      if (found.size > maxOutputBytes)
        throw invalid(
          `has ${found.size} bytes; at most ${maxOutputBytes} are taken`,
          "write large results to a file of your own and name it here",
        );
      const file = await open(path, "r");
      try {
        // Made by the process, with its own umask; it may hold what the logs hold.
        if (found.uid === process.getuid?.()) await file.chmod(0o600);
        const buffer = Buffer.alloc(maxOutputBytes + 1);
        const { bytesRead } = await file.read(buffer, 0, buffer.length, 0);
        if (bytesRead > maxOutputBytes)
          throw invalid(
            `has more than ${maxOutputBytes} bytes`,
            "write large results to a file of your own and name it here",
          );
        const scrub = scrubOf(pathOf(folder));
        const text = scrubText(scrub, buffer.toString("utf8", 0, bytesRead)).trim();
        if (text === "") return null;
        try {
          JSON.parse(text);
        } catch {
          throw invalid("is not JSON", 'write one JSON document, such as {"ok": true}');
        }
        return scrubJson(scrub, text);
      } finally {
        await file.close();
      }
    },

    async unmet(folder, given, said) {
      const path = pathOf(folder);
      // Where it worked: a worktree, or the target's own folder.
      const target: ProcessTarget = { ...given, cwd: readPrepared(path)?.cwd ?? given.cwd };
      for (const expectation of target.expect) {
        const colon = expectation.indexOf(":");
        const kind = colon < 0 ? expectation : expectation.slice(0, colon);
        const argument = expectation.slice(colon + 1);
        let unmet: string | null = null;
        if (kind === "output")
          unmet = (target.kind === "agent" ? (said ?? "") !== "" || wrote(path) : hasOutput(path))
            ? null
            : "output expected, but nothing was printed or written";
        else if (kind === "changes" || kind === "commit") unmet = await unmetInRepository(path, target, kind);
        else if (kind === "file") unmet = unmetFile(target.cwd, argument);
        else if (kind === "cmd") unmet = await unmetCommand(path, target, argument);
        else unmet = `unknown expectation: ${expectation}`;
        if (unmet !== null) return unmet;
      }
      return null;
    },

    async freeBytes() {
      const disk = await statfs(runsFolder);
      return disk.bavail * disk.bsize;
    },

    async folders() {
      const entries = await readdir(runsFolder, { withFileTypes: true });
      return entries
        .filter((entry) => entry.isDirectory() && /^[A-Za-z0-9_-]+\.\d+$/.test(entry.name))
        .map((entry) => entry.name);
    },

    async remove(folder) {
      await rm(pathOf(folder), { recursive: true, force: true });
    },
  };
}

function unmetFile(cwd: string, file: string): string | null {
  const found = statOf(resolve(cwd, file));
  if (found === null) return `file expected, but ${file} does not exist`;
  if (found.isFile() && found.size === 0) return `file expected, but ${file} is empty`;
  return null;
}
