/** A question to a program of the system, such as `crontab -l`: short, bounded, and nothing of it is left. */
import { homedir } from "node:os";
import { completePath } from "./environment.ts";
import { ownOutput, runErrand } from "./errand.ts";
import { openProcessTable } from "./processes.ts";

export interface Inquiry {
  readonly argv: readonly [string, ...string[]];
  /** Of the process that asks; its PATH is completed. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly timeoutMs: number;
  /** More than this is not read, and said. */
  readonly keepBytes: number;
}

export interface InquiryAnswer {
  /** null when it did not end in time, or by a signal, or could not be started. */
  readonly exit: number | null;
  /** null when nobody can know whether that is all of it. */
  readonly stdout: Uint8Array | null;
  readonly stderr: string;
  /** It printed more than is kept. */
  readonly cut: boolean;
  readonly timedOut: boolean;
}

/** Asks, waits for the end or the limit, and answers what it said. Never throws. */
export async function inquire({ argv, environment, timeoutMs, keepBytes }: Inquiry): Promise<InquiryAnswer> {
  const own = Object.fromEntries(
    Object.entries(environment).filter((entry): entry is [string, string] => entry[1] !== undefined),
  );
  const end = await runErrand(
    {
      argv,
      cwd: "/",
      environment: {
        ...own,
        // What it says is read: in its own words, not in a person's language.
        LC_ALL: "C.UTF-8",
        PATH: completePath(own["PATH"] ?? "", own["HOME"] || homedir(), own["PNPM_HOME"]),
      },
      timeoutMs,
      keepBytes,
      keep: "head",
    },
    openProcessTable(),
  );
  return {
    exit: end.exit,
    stdout: ownOutput(end),
    stderr: end.stderr.toString(),
    cut: end.cut,
    timedOut: end.timedOut,
  };
}
