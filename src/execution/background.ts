/** Starts a process that is to outlive this one: the daemon, from `up` and from commands that need one. */
import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";

export interface BackgroundOptions {
  readonly file: string;
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  /** Where both of its outputs go; emptied first. */
  readonly outputFile: string;
}

export interface Background {
  readonly pid: number | undefined;
  /** Resolves when it ends while we are there; null when a signal or a failed start ended it. */
  readonly ended: Promise<number | null>;
  /** Lets this process end before it. */
  release(): void;
}

/** Starts a process in a session of its own, with nothing of ours open in it. */
export function startBackground({ file, args, env, cwd, outputFile }: BackgroundOptions): Background {
  const output = openSync(outputFile, "w", 0o600);
  try {
    const child = spawn(file, args, { cwd, env, detached: true, stdio: ["ignore", output, output] });
    const ended = new Promise<number | null>((resolve) => {
      child.once("exit", (code) => resolve(code));
      child.once("error", () => resolve(null));
    });
    return { pid: child.pid, ended, release: () => child.unref() };
  } finally {
    closeSync(output);
  }
}
