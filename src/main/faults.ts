/** Faults of our own, kept for whoever mends them. */
import { appendFileSync, mkdirSync, statSync, truncateSync } from "node:fs";
import type { Build } from "../ops/operation.ts";
import type { Places } from "../ops/places.ts";

/** Size of the file of our own faults at which it begins anew. */
const FAULTS_BYTES = 1_048_576;

/** Keeps a fault in `logs/faults.log`; answers the id that people are told, and null for the file where it could not be kept. */
export function recordFault(
  { places, build }: { readonly places: Places; readonly build: Build },
  error: unknown,
): { readonly id: string; readonly file: string | null } {
  const id = `${Date.now().toString(36)}-${process.pid.toString(36)}`;
  const file = `${places.logs}/faults.log`;
  const line = { at: new Date().toISOString(), id, build, words: process.argv.slice(2), fault: describeFault(error) };
  try {
    mkdirSync(places.logs, { recursive: true, mode: 0o700 });
    if ((statSync(file, { throwIfNoEntry: false })?.size ?? 0) > FAULTS_BYTES) truncateSync(file);
    appendFileSync(file, `${JSON.stringify(line)}\n`, { mode: 0o600 });
    return { id, file };
  } catch {
    return { id, file: null }; // nowhere to keep it
  }
}

/** A fault with its stack, where it has one. */
export const describeFault = (error: unknown): string =>
  error instanceof Error ? (error.stack ?? error.message) : String(error);
