/** A file of a service manager as drover writes it, and what can be read back from one that is there. */
import { createHash } from "node:crypto";

/** What a file that is there says. */
export interface ReadServiceFile {
  /** Whether drover wrote it. */
  readonly ours: boolean;
  /** Whether somebody changed it since. */
  readonly edited: boolean;
  /** The words of its command; empty where they cannot be read. */
  readonly words: readonly string[];
  readonly env: Readonly<Record<string, string>>;
}

const FIRST =
  "Written by `drover daemon install`. The number below is of the rest: a file that was changed is not replaced.";

/**
 * Puts a head before a body, by which drover knows its file again. @param comment how a line is made a comment
 */
export function signed(body: string, comment: (text: string) => string, before = ""): string {
  return `${before}${comment(FIRST)}\n${comment(`sha256 ${digestOf(before + body)}`)}\n${body}`;
}

/** Whether a text has our head, and whether what follows is what was signed. */
export function signatureOf(text: string): { readonly ours: boolean; readonly edited: boolean } {
  const found = /^[^\n]*Written by `drover daemon install`[^\n]*\n[^\n]*sha256 ([0-9a-f]{64})[^\n]*\n/m.exec(text);
  if (found === null) return { ours: false, edited: false };
  const others = text.slice(0, found.index) + text.slice(found.index + found[0].length);
  return { ours: true, edited: digestOf(others) !== found[1] };
}

const digestOf = (body: string): string => createHash("sha256").update(body).digest("hex");
