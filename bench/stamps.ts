/** A child whose first instruction says when it was: `date` with nanoseconds, the same one for everybody who is compared. */
import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const STAMP = ["/bin/date", "+%s%N"] as const;

/** Milliseconds since 1970 with their fraction, by the same clock as the child's. */
export const wallMs = (): number => performance.timeOrigin + performance.now();

/** What a child printed, in milliseconds since 1970. */
export const stampOf = (text: string): number => Number(BigInt(text.trim()) / 1_000n) / 1_000;

/** Starts the child as any program would, its outputs appended to files. Answers when its first instruction ran, and when it had ended. */
export function spawnStamp(folder: string, name: string): Promise<{ readonly at: number; readonly ended: number }> {
  const [file, ...args] = STAMP;
  const [out, err] = [join(folder, `${name}.out`), join(folder, `${name}.err`)];
  const [to, errTo] = [openSync(out, "a", 0o600), openSync(err, "a", 0o600)];
  const child = spawn(file, args, { cwd: "/", stdio: ["ignore", to, errTo], detached: true });
  closeSync(to);
  closeSync(errTo);
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", () => {
      const ended = wallMs();
      resolve({ at: stampOf(readFileSync(out, "utf8")), ended });
    });
  });
}
