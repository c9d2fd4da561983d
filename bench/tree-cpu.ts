/**
 * What a command and everything that it leaves behind uses of the processor. Shims are children of nobody, so their time is in
 * no parent's account: perl stands above as a subreaper (Linux), waits for all of them and says what they used.
 */
import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { findTool } from "../src/execution/resident.ts";

const CALLS: Readonly<Record<string, number>> = { x64: 157, arm64: 167 };

/** PR_SET_CHILD_SUBREAPER is 36. */
const reaper = (call: number): string => `
  syscall(${call}, 36, 1, 0, 0, 0) == 0 or die "no subreaper";
  my $first = fork; if (!$first) { exec @ARGV or die "exec: $!" }
  my $status = 0; while ((my $pid = wait) > 0) { $status = $? if $pid == $first }
  my @used = times; print STDERR "\\nused ", $used[2] + $used[3], "\\n"; exit($status == 0 ? 0 : 1);`;

const LIMIT_MS = 300_000;

/** Runs it to its end and to that of all it started. Errors: when it does not end with 0, or this system has no subreapers. */
export async function treeCpu(
  folder: string,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<{ readonly cpuMs: number; readonly ms: number }> {
  const call = CALLS[process.arch];
  const perl = findTool("perl");
  if (process.platform !== "linux" || call === undefined || perl === null)
    throw new Error("the time of orphans is told on Linux only, by perl");
  const said = join(folder, "said");
  const descriptor = openSync(said, "w");
  const startedAt = performance.now();
  const child = spawn(perl, ["-e", reaper(call), ...args], {
    cwd: folder,
    env,
    stdio: ["ignore", "ignore", descriptor],
    timeout: LIMIT_MS,
  });
  closeSync(descriptor);
  const status = await new Promise<number | null>((resolve, reject) => {
    child.on("error", reject);
    child.on("exit", resolve);
  });
  const ms = performance.now() - startedAt;
  const text = readFileSync(said, "utf8");
  const [, used] = /^used ([\d.]+)$/m.exec(text) ?? [];
  rmSync(said);
  if (status !== 0 || used === undefined)
    throw new Error(`${args.join(" ")} ended with ${status}\n${text.slice(-4_000)}`);
  return { cpuMs: Number(used) * 1_000, ms };
}
