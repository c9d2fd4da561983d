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
