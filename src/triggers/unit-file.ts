/** Unit files of systemd (systemd.syntax(7)): settings by section, with their places, and the words of a value. Pure. */

/** A file that a unit is made of: the unit itself, then its drop-ins in order. */
export interface UnitSource {
  readonly path: string;
  readonly bytes: Uint8Array;
}

/** One `Key=value`. */
export interface UnitSetting {
  readonly section: string;
  readonly key: string;
  readonly value: string;
  readonly path: string;
  /** From 1; the first of its lines. */
  readonly line: number;
}

export interface UnitProblem {
  readonly path: string;
  readonly line: number;
  readonly text: string;
  readonly reason: string;
}

export interface Unit {
  readonly settings: readonly UnitSetting[];
  readonly problems: readonly UnitProblem[];
}

/** What one file of a unit may hold. systemd's own limit of a line is 1 MiB. */
export const UNIT_LIMITS = { bytes: 1_048_576, lineLength: 65_536 } as const;

/** Reads all files of a unit. Never throws. */
export function readUnit(sources: readonly UnitSource[]): Unit {
  const settings: UnitSetting[] = [];
  const problems: UnitProblem[] = [];
  for (const source of sources) readInto(source, settings, problems);
  return { settings, problems };
}

function readInto({ path, bytes }: UnitSource, settings: UnitSetting[], problems: UnitProblem[]): void {
  const refuse = (line: number, text: string, reason: string): void => {
    problems.push({ path, line, text: text.slice(0, 80), reason });
  };
  if (bytes.length > UNIT_LIMITS.bytes) return refuse(1, "", `the file is larger than ${UNIT_LIMITS.bytes} bytes`);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return refuse(1, "", "the file is not UTF-8"); // said of the file
  }
  let section: string | null = null;
  let begun = "";
  let begunAt = 0;
  const lines = text.split(/\r?\n/);
  for (const [index, raw] of lines.entries()) {
    const isComment = /^\s*[#;]/.test(raw);
    // A comment among continued lines is left out, and the line goes on behind it.
    if (isComment) continue;
    if (begun === "") begunAt = index + 1;
    if (raw.endsWith("\\") && index < lines.length - 1) {
      begun += `${raw.slice(0, -1)} `;
      continue;
    }
    const line = (begun + raw).trim();
    begun = "";
    if (line === "") continue;
    if (line.length > UNIT_LIMITS.lineLength) {
      refuse(begunAt, line, `the line is longer than ${UNIT_LIMITS.lineLength} characters`);
      continue;
    }
    if (line.includes("\0")) {
      refuse(begunAt, line, "it holds a NUL byte");
      continue;
    }
    const header = /^\[([^\]]+)\]$/.exec(line);
    if (header?.[1] !== undefined) {
      section = header[1];
      continue;
    }
    const at = line.indexOf("=");
    if (at < 1) refuse(begunAt, line, "it is neither a section nor NAME=value");
    else if (section === null) refuse(begunAt, line, "it stands before the first section");
    else
      settings.push({ section, key: line.slice(0, at).trim(), value: line.slice(at + 1).trim(), path, line: begunAt });
  }
}

/** The last value of a setting; null where it is absent or empty. */
export function lastOf({ settings }: Unit, section: string, key: string): UnitSetting | null {
  const found = settings.findLast((one) => one.section === section && one.key === key);
  return found === undefined || found.value === "" ? null : found;
}

/** Every value of a setting that is a list; an empty one forgets those before it. */
export function allOf({ settings }: Unit, section: string, key: string): readonly UnitSetting[] {
  const all = settings.filter((one) => one.section === section && one.key === key);
  return all.slice(all.findLastIndex(({ value }) => value === "") + 1);
}

/** `yes`, `1`, `true`, `on`; null where it is neither yes nor no. */
export function isYes(value: string): boolean | null {
  if (/^(?:1|yes|y|true|t|on)$/i.test(value)) return true;
  return /^(?:0|no|n|false|f|off)$/i.test(value) ? false : null;
}

const ESCAPES: ReadonlyMap<string, string> = new Map([
  ["a", "\x07"],
  ["b", "\b"],
  ["f", "\f"],
  ["n", "\n"],
  ["r", "\r"],
  ["t", "\t"],
  ["v", "\v"],
  ["\\", "\\"],
  ['"', '"'],
  ["'", "'"],
  ["s", " "],
]);

/** A word of a value, and whether any of it was quoted: `;` between commands is bare. */
export interface Word {
  readonly text: string;
  readonly quoted: boolean;
}

/**
 * The words of a value: blanks part them, quotes and backslashes keep them together. null where a quote is not closed.
 * An escape that there is none of stays as it is.
 */
export function wordsOf(value: string): readonly Word[] | null {
  const words: Word[] = [];
  let at = 0;
  while (at < value.length) {
    if (/\s/.test(value[at] ?? "")) {
      at++;
      continue;
    }
    let text = "";
    let quoted = false;
    let quote: string | null = null;
    for (; at < value.length; at++) {
      const letter = value[at] ?? "";
      if (letter === "\\") {
        const escape = /^\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3}))/.exec(
          value.slice(at, at + 10),
        );
        const code =
          escape === null
            ? null
            : Number.parseInt(escape[1] ?? escape[2] ?? escape[3] ?? escape[4] ?? "", escape[4] === undefined ? 16 : 8);
        quoted = true;
        if (escape !== null && code !== null && code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff)) {
          text += String.fromCodePoint(code);
          at += escape[0].length - 1;
        } else {
          const next = value[at + 1] ?? "";
          // What is no escape stays as it is, a blank behind it too; `\;` alone is a word and parts no commands.
          const isSemicolon = next === ";" && text === "" && /^(?:\s|$)/.test(value.slice(at + 2, at + 3));
          text += isSemicolon ? next : (ESCAPES.get(next) ?? `\\${next}`);
          at++;
        }
      } else if (quote !== null) {
        if (letter === quote) quote = null;
        else text += letter;
      } else if (letter === '"' || letter === "'") {
        quote = letter;
        quoted = true;
      } else if (/\s/.test(letter)) break;
      else text += letter;
    }
    if (quote !== null) return null;
    words.push({ text, quoted });
  }
  return words;
}
