/** What is told of a tree holds names of files, and an agent may have put a secret into one. */
import { readdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { AppError } from "../../core/errors.ts";
import { FILES, readText } from "../attempt-folder.ts";
import { openScrub, REPLACEMENT, scrubText } from "../scrub.ts";

/** Beside the tree's marker, one for each attempt that was given secrets: fingerprints, never the secrets. */
const PREFIX = "drover-scrub-";

/** Keeps the fingerprints of an attempt's secrets for as long as the tree is there. @param attempt its folder, by its whole path */
export function keepFingerprints(gitFolder: string, attempt: string): void {
  const fingerprints = readText(join(attempt, FILES.scrub));
  if (fingerprints === null) return;
  writeFileSync(join(gitFolder, `${PREFIX}${basename(attempt)}`), fingerprints, { mode: 0o600 });
}

/** Takes the secrets of all attempts in a tree out of a text. @param gitFolder null where it is not known: then nothing is */
export function censorOf(gitFolder: string | null): (text: string) => string {
  if (gitFolder === null) return (text) => text;
  let names: readonly string[] = [];
  try {
    names = readdirSync(gitFolder).filter((name) => name.startsWith(PREFIX));
  } catch {
    // it is gone, and so is what could be told of it
  }
  try {
    const scrubs = names.map((name) => openScrub(readText(join(gitFolder, name))));
    return (text) => scrubs.reduce((said, scrub) => scrubText(scrub, said), text);
  } catch {
    return () => REPLACEMENT; // what works in the tree may write here too
  }
}

/** The same error without secrets. */
export function censored(error: unknown, censor: (text: string) => string): unknown {
  if (!(error instanceof AppError)) return error;
  const { kind, code, message, hint, path } = error;
  const said = [message, hint, path].map((text) => (text === undefined ? undefined : censor(text)));
  if (said[0] === message && said[1] === hint && said[2] === path) return error;
  return new AppError(kind, code, said[0] ?? "", {
    ...(said[1] === undefined ? {} : { hint: said[1] }),
    ...(said[2] === undefined ? {} : { path: said[2] }),
  });
}
