/** Gives this process's terminal to a program: a provider's own login asks and answers there. */
import { spawn } from "node:child_process";
import { constants } from "node:os";

export interface Attached {
  readonly argv: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
}

/** Runs it to its end; answers its exit status, 128 and the signal's number for a signal, 127 when it cannot be started. */
export function attach({ argv, env, cwd }: Attached): Promise<number> {
  return new Promise((resolve) => {
    const child = spawn(argv[0], argv.slice(1), { cwd, env, stdio: "inherit" });
    // Ctrl-C goes to all of the terminal's foreground: what it means is the program's to say.
    const ignore = (): void => {};
    process.on("SIGINT", ignore);
    const end = (status: number): void => {
      process.off("SIGINT", ignore);
      resolve(status);
    };
    child.once("error", () => end(127));
    child.once("exit", (status, signal) => end(status ?? 128 + (signal === null ? 0 : constants.signals[signal])));
  });
}
