/** Processes that a test has started. */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

/** Ends a process that may have ended; resolves once it has. */
export async function endChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

/** Ends processes by their ids; one that has ended meanwhile is as good. */
export function endPids(pids: Iterable<number>): void {
  for (const pid of pids)
    try {
      process.kill(pid, "SIGKILL");
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
    }
}
