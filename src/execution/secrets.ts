import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { resolve } from "node:path";
import { AppError } from "../core/errors.ts";
import { MAX_WORD_BYTES } from "./environment.ts";
import { ownOutput, runErrand } from "./errand.ts";
import type { ProcessTable } from "./processes.ts";
import { MIN_SECRET_BYTES } from "./scrub.ts";

/** Where secrets are looked for and with what. */
export interface SecretSurroundings {
  readonly daemon: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** What a `cmd:` source runs with: the allow-list, no secrets. */
  readonly environment: Readonly<Record<string, string>>;
  readonly shell: string;
  /** For a whole `cmd:`. */
  readonly timeoutMs: number;
  readonly table: ProcessTable;
}

/**
 * Resolves every secret of a target now: `env:NAME`, `file:PATH`, `cmd:STRING`; of the last two one trailing newline is
 * cut. Values are returned, never kept. Errors: `secret_unresolved`, `env_invalid`. No message says what a source printed.
 */
export async function resolveSecrets(
  sources: Readonly<Record<string, string>>,
  surroundings: SecretSurroundings,
): Promise<Record<string, string>> {
  const resolved: Record<string, string> = {};
  for (const [name, source] of Object.entries(sources)) {
    const value = await resolveSecret(name, source, surroundings);
    const path = `secrets.${name}`;
    if (value.includes("\0"))
      throw new AppError(
        "invalid",
        "env_invalid",
        `the secret ${name} holds a NUL byte, which no process can be given`,
        { path },
      );
    if (Buffer.byteLength(value) < MIN_SECRET_BYTES) {
      throw new AppError(
        "invalid",
        "env_invalid",
        `the secret ${name} is shorter than ${MIN_SECRET_BYTES} bytes and could not be scrubbed from outputs`,
        {
          hint: "Pass it with --env if it is no secret.",
          path,
        },
      );
    }
    resolved[name] = value;
  }
  return resolved;
}

async function resolveSecret(name: string, source: string, at: SecretSurroundings): Promise<string> {
  const colon = source.indexOf(":");
  const from = source.slice(colon + 1);
  switch (source.slice(0, colon)) {
    case "env": {
      const value = at.daemon[from];
      if (value === undefined)
        throw unresolved(name, `the daemon's environment has no ${from}`, "set it where the daemon is started");
      return value;
    }
    case "file": {
      const path = resolve(at.cwd, from.startsWith("~/") ? `${at.daemon["HOME"] ?? homedir()}${from.slice(1)}` : from);
      try {
        // A device or a pipe would never end.
        if (!(await stat(path)).isFile()) throw unresolved(name, `${from} is not a file`);
        const bytes = await readFile(path);
        return textOf(name, bytes);
      } catch (error) {
        if (error instanceof AppError) throw error;
        const code = error instanceof Error && "code" in error ? String(error.code) : "error";
        throw unresolved(name, `${from} cannot be read (${code})`);
      }
    }
    case "cmd": {
      const end = await runErrand(
        {
          argv: [at.shell, "-c", from],
          cwd: at.cwd,
          environment: at.environment,
          timeoutMs: at.timeoutMs,
          keepBytes: MAX_WORD_BYTES + 1,
          keep: "head",
        },
        at.table,
      );
      if (end.timedOut) throw unresolved(name, `its command did not end within ${at.timeoutMs} ms`);
      if (end.fault !== null) throw unresolved(name, "its command could not be started", `does ${at.cwd} exist?`);
      if (end.exit !== 0)
        throw unresolved(
          name,
          `its command ended with status ${end.exit ?? "none"}`,
          "run it by hand in the working directory",
        );
      // Half a secret is a wrong one: it locks accounts out, and what is scrubbed is then not the secret.
      const printed = ownOutput(end);
      if (printed === null)
        throw unresolved(
          name,
          "its command ended in the middle of a line while something that it started may still print the rest",
          "let it end its line, or take the output away from what it leaves: `... >/dev/null &`",
        );
      return textOf(name, printed);
    }
    default:
      throw unresolved(name, "its source is none of env:NAME, file:PATH, cmd:STRING");
  }
}

function textOf(name: string, bytes: Buffer): string {
  if (bytes.length > MAX_WORD_BYTES)
    throw new AppError("invalid", "env_invalid", `the secret ${name} is longer than ${MAX_WORD_BYTES} bytes`, {
      path: `secrets.${name}`,
    });
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes).replace(/\r?\n$/, "");
  } catch {
    throw new AppError("invalid", "env_invalid", `the secret ${name} is not UTF-8 text`, { path: `secrets.${name}` });
  }
}

const unresolved = (name: string, why: string, hint?: string): AppError =>
  new AppError("invalid", "secret_unresolved", `the secret ${name} cannot be resolved: ${why}`, {
    path: `secrets.${name}`,
    ...(hint === undefined ? {} : { hint }),
  });
