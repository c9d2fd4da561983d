/** Whether this process descends from a run's, though its own environment does not say so any more. */
import { readFileSync } from "node:fs";
import { parseStat } from "./processes.ts";

/** Longest line of ancestors that is looked at. */
const MAX_ANCESTORS = 64;

/**
 * The run token of the nearest ancestor that was started with one. Linux only: elsewhere nothing is inherited. A process
 * whose parents are gone has lost its line; this holds against forgetting, not against hiding.
 */
export function inheritedRun(): { readonly token: string | null; readonly insideRun: boolean } {
  let pid = process.ppid;
  for (let nth = 0; nth < MAX_ANCESTORS && pid > 1; nth++) {
    try {
      const variables = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0");
      const token = variables.find((one) => one.startsWith("DROVER_RUN_TOKEN="))?.slice("DROVER_RUN_TOKEN=".length);
      if (token !== undefined && token !== "") return { token, insideRun: true };
      pid = parseStat(readFileSync(`/proc/${pid}/stat`, "latin1"))?.parent ?? 0;
    } catch {
      break; // another user's process, one that has just ended, or a system without /proc
    }
  }
  return { token: null, insideRun: false };
}
