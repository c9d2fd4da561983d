/** One question to a service manager's own command. */
import { completePath } from "../environment.ts";
import { runErrand } from "../errand.ts";
import { openProcessTable } from "../processes.ts";

export interface AskerOptions {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Longest time of one call. */
  readonly limitMs: number;
}

export interface Asked {
  /** null when it could not be started, or the limit ended it. */
  readonly exit: number | null;
  readonly out: string;
  readonly err: string;
  /** Why there is no exit. */
  readonly fault: string | null;
}

/** Longer answers are cut. */
const ANSWER_BYTES = 256 * 1024;
/** What these commands read of an environment. */
const PASSED = /^(?:PATH|HOME|USER|LOGNAME|XDG_RUNTIME_DIR|XDG_CONFIG_HOME|DBUS_SESSION_BUS_ADDRESS|SYSTEMD_\w+)$/;

/** Asks by commands of the system. Never throws. */
export function asker({ environment, limitMs }: AskerOptions): (argv: [string, ...string[]]) => Promise<Asked> {
  const table = openProcessTable();
  const passed = Object.entries(environment).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && PASSED.test(entry[0]),
  );
  const own = {
    ...Object.fromEntries(passed),
    PATH: completePath(environment["PATH"] ?? "", environment["HOME"] ?? "/"),
    // Its words are looked at.
    LC_ALL: "C",
  };
  return async (argv) => {
    const end = await runErrand(
      { argv, cwd: "/", environment: own, timeoutMs: limitMs, keepBytes: ANSWER_BYTES, keep: "head" },
      table,
      false,
    );
    const fault = end.timedOut
      ? `${argv[0]} has not answered for ${limitMs} ms`
      : (end.fault ?? (end.exit === null ? `${argv[0]} was ended by a signal` : null));
    return { exit: end.exit, out: end.stdout.toString(), err: end.stderr.toString(), fault };
  };
}
