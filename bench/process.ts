/** A case in a process of its own: what it measured is the last line that it prints, as JSON. */
import { spawn } from "node:child_process";
import type { Sample } from "./rounds.ts";

const CASE_LIMIT_MS = 300_000;

/** Runs this Node with these words to its end. Errors: when it does not end well, with what it said. */
export function lastLine(args: readonly string[]): Promise<Sample> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, {
      stdio: ["ignore", "pipe", "pipe"],
      timeout: CASE_LIMIT_MS,
      killSignal: "SIGKILL",
    });
    let out = "";
    let err = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
    child.stderr.setEncoding("utf8").on("data", (text: string) => (err += text));
    child.on("error", reject);
    child.on("close", (status, signal) => {
      const line = out.trimEnd().split("\n").at(-1) ?? "";
      if (status === 0 && line.startsWith("{")) resolve(JSON.parse(line) as Sample);
      else
        reject(new Error(`${args.join(" ")} ended with ${status ?? signal}\n${out.slice(-2_000)}${err.slice(-4_000)}`));
    });
  });
}
