/** YAML or JSON text as plain data, with the place of each part of it, and everything that is wrong with the text itself. */
import { isUtf8 } from "node:buffer";
import { type Document, isAlias, isMap, isScalar, isSeq, LineCounter, parseDocument, stringify } from "yaml";
import type { Problem } from "../../core/errors.ts";

export interface Place {
  /** From 1. */
  readonly line: number;
  readonly column: number;
}

/** What a text says. `value` undefined: it cannot be read, and the problems say why. */
export interface DeclaredText {
  readonly value: unknown;
  readonly problems: readonly (Problem & Partial<Place>)[];
  /** Where a part is, as deep as there is one. @param path as in `loops.nightly.env.MODE` or `loops.a.labels[1]` */
  locate(path: string): Place;
}

/** A text of more is read in pieces, so that the tree of the whole is never held. */
const WHOLE_CHARACTERS = 128 * 1024;
/** Characters of a piece. */
const PIECE_CHARACTERS = 48 * 1024;
/** What aliases stand for may make a text so many times longer. */
const MOST_EXPANSION = 4;
/** Problems of the text that are told. */
const MOST_PROBLEMS = 50;

const OPTIONS = {
  prettyErrors: false,
  uniqueKeys: true,
  strict: true,
  stringKeys: true,
  merge: false,
  version: "1.2",
  logLevel: "error",
} as const;

const HINTS: { readonly [code: string]: string } = {
  TAB_AS_INDENT: "Indent with spaces.",
  DUPLICATE_KEY: "Give each key once; a name is one too.",
  MULTIPLE_DOCS: "Put what follows --- into a file of its own.",
  BAD_SCALAR_START: "Put the text into quotes.",
  BLOCK_AS_IMPLICIT_KEY: "Put a text with `: ` in it into quotes.",
  MISSING_CHAR: "Close the quote or bracket.",
  TAG_RESOLVE_FAILED: "Leave the tag out, or put the text into quotes.",
  NON_STRING_KEY: "Write the key as plain text.",
};

const MESSAGES: { readonly [code: string]: string } = {
  DUPLICATE_KEY: "this key is here twice",
  MULTIPLE_DOCS: "there is more than one document in it",
  TAB_AS_INDENT: "a tab cannot indent",
};

/** Faults that stand for themselves; of any other the first one of its kind is told, and the rest follows from it. */
const EACH = new Set([
  "DUPLICATE_KEY",
  "TAB_AS_INDENT",
  "BAD_SCALAR_START",
  "BLOCK_AS_IMPLICIT_KEY",
  "TAG_RESOLVE_FAILED",
  "BAD_DQ_ESCAPE",
]);

/**
 * Reads a text. @param bytes of the whole file @param begin how such a file begins. Nothing is thrown: its faults are problems, with line and column.
 */
export function readDeclaredText(bytes: Uint8Array, begin = "version: 1"): DeclaredText {
  const fault = undecodable(bytes);
  if (fault !== null) return unreadable(fault);
  const text = new TextDecoder("utf-8").decode(bytes);
  if (text.trim() === "")
    return unreadable(
      problem("empty_file", "the file is empty", `Begin it with \`${begin}\`.`, { line: 1, column: 1 }),
    );
  const pieces = text.length > WHOLE_CHARACTERS ? inPieces(text) : null;
  if (pieces !== null) {
    const value = joined(text, pieces);
    if (value !== null) return { value, problems: [], locate: locatorIn(text, pieces) };
  }
  return whole(text);
}

/** Plain data as YAML that `readDeclaredText` reads as the same; long texts are not folded. */
export const writeDeclaredText = (value: unknown): string => stringify(value, { lineWidth: 0 });

/** A fault of the text, at its place. */
const problem = (code: string, message: string, hint: string | undefined, place: Place): Problem & Partial<Place> => ({
  code,
  message,
  ...(hint === undefined ? {} : { hint }),
  ...place,
});

const unreadable = (fault: Problem & Partial<Place>): DeclaredText => ({
  value: undefined,
  problems: [fault],
  locate: () => ({ line: fault.line ?? 1, column: fault.column ?? 1 }),
});

/** Why bytes are no text; null when they are. */
function undecodable(bytes: Uint8Array): (Problem & Partial<Place>) | null {
  if (isUtf8(bytes) && !bytes.includes(0)) return null;
  if (bytes.length > 1 && [0xfeff, 0xfffe].includes((bytes[0] ?? 0) * 256 + (bytes[1] ?? 0)))
    return problem("not_utf8", "this is UTF-16", "Save the file as UTF-8.", { line: 1, column: 1 });
  let from = 0;
  for (let line = 1; ; line++) {
    const end = bytes.indexOf(10, from);
    const part = bytes.subarray(from, end === -1 ? undefined : end);
    if (!isUtf8(part) || part.includes(0))
      return problem(
        "not_utf8",
        part.includes(0) ? "there is a NUL byte in it" : "this is not UTF-8",
        "Save the file as UTF-8.",
        { line, column: 1 },
      );
    if (end === -1) return null;
    from = end + 1;
  }
}

// --- The whole text --------------------------------------------------------------------------------------------------------

function whole(text: string): DeclaredText {
  const lines = new LineCounter();
  const document = parseDocument(text, { ...OPTIONS, lineCounter: lines });
  const at = (offset: number): Place => {
    const { line, col } = lines.linePos(offset);
    return { line: Math.max(line, 1), column: Math.max(col, 1) };
  };
  const problems: (Problem & Partial<Place>)[] = [];
  const told = new Set<number | string>();
  let isTorn = false;
  for (const { code, message, pos } of [...document.errors, ...document.warnings]) {
    if (code !== "DUPLICATE_KEY") isTorn = true;
    const place = at(pos[0]);
    // What follows on one line follows from its first fault.
    const isStar = /alias/i.test(message);
    const isShifted = code === "BAD_INDENT" && told.has("TAB_AS_INDENT");
    const isFollowing = told.has(place.line) || isShifted || (told.has(code) && !EACH.has(code) && !isStar);
    if (isFollowing || problems.length >= MOST_PROBLEMS) continue;
    told.add(place.line).add(code);
    const isHole = code !== "DUPLICATE_KEY" && text.slice(Math.max(0, pos[0] - 1), pos[0] + 2).includes("{{");
    const isBehind = message === "Unexpected scalar at node end";
    const hint = isStar
      ? "A text that begins with * or & needs quotes."
      : isHole
        ? 'An expression stands in quotes here: "${{ ... }}".'
        : isBehind
          ? "A text that begins with a quote ends with it: put all of it into other quotes."
          : HINTS[code];
    const words = isStar
      ? "* and & begin an alias and an anchor here"
      : isBehind
        ? "something stands behind the closing quote"
        : isHole
          ? "{ begins a set of keys here"
          : (MESSAGES[code] ?? `${message.charAt(0).toLowerCase()}${message.slice(1)}`);
    problems.push(
      code === "DUPLICATE_KEY" ? problem("duplicate_key", words, hint, place) : problem("bad_yaml", words, hint, place),
    );
  }
  const locate = (path: string): Place => at(offsetOf(document, path));
  if (isTorn) return { value: undefined, problems, locate };
  try {
    const value: unknown = document.toJS({ maxAliasCount: -1 });
    if (sizeOf(value) > MOST_EXPANSION * text.length + 4096)
      throw new RangeError("its aliases stand for much more than the file itself holds");
    return { value, problems, locate };
  } catch (error) {
    const message =
      error instanceof RangeError ? error.message : error instanceof ReferenceError ? error.message : String(error);
    const unresolved = /unresolved alias.*: (.*)$/i.exec(message);
    problems.push(
      unresolved === null
        ? problem("too_many_aliases", message, "Write out what they stand for.", { line: 1, column: 1 })
        : problem(
            "bad_yaml",
            `the alias *${unresolved[1]} names no anchor that stands before it`,
            "A text that begins with * or & needs quotes.",
            at(aliasOffset(document, unresolved[1] ?? "")),
          ),
    );
    return { value: undefined, problems, locate };
  }
}

/** About as many characters as it would be written out. What is shared counts each time. Errors: RangeError for what holds itself. */
function sizeOf(value: unknown, known = new Map<object, number>()): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 4;
  const found = known.get(value);
  if (found === Number.NEGATIVE_INFINITY) throw new RangeError("an alias stands for what it is part of");
  if (found !== undefined) return found;
  known.set(value, Number.NEGATIVE_INFINITY);
  let size = 2;
  for (const [key, one] of Object.entries(value)) size += key.length + sizeOf(one, known);
  known.set(value, size);
  return size;
}

function aliasOffset(document: Document, name: string): number {
  let found = 0;
  const look = (node: unknown): void => {
    if (found > 0) return;
    if (isAlias(node) && node.source === name) found = node.range?.[0] ?? 0;
    else if (isMap(node)) for (const { key, value } of node.items) [key, value].forEach(look);
    else if (isSeq(node)) node.items.forEach(look);
  };
  look(document.contents);
  return found;
}

/** Where the part with that path begins: a plain value itself, of others the key. */
function offsetOf(document: Document, path: string): number {
  let node: unknown = document.contents;
  let rest = path;
  let offset = 0;
  for (;;) {
    if (isAlias(node)) node = node.resolve(document);
    const item = /^\[(\d+)\]/.exec(rest);
    if (isSeq(node) && item !== null) {
      const next = node.items[Number(item[1])] as { readonly range?: readonly number[] | null } | undefined;
      if (next === undefined) return offset;
      offset = next.range?.[0] ?? offset;
      node = next;
      rest = rest.slice(item[0].length).replace(/^\./, "");
    } else if (isMap(node)) {
      // The longest key: names and keys may hold dots.
      let best: { readonly key: string; readonly at: number; readonly value: unknown } | null = null;
      for (const { key, value } of node.items) {
        if (!isScalar(key)) continue;
        const word = String(key.value);
        const isPart = rest === word || (rest.startsWith(word) && /^[.[]/.test(rest.slice(word.length)));
        if (isPart && (best === null || word.length >= best.key.length))
          best = { key: word, at: key.range?.[0] ?? offset, value };
      }
      if (best === null) return offset;
      offset = best.at;
      node = best.value;
      rest = rest.slice(best.key.length).replace(/^\./, "");
      if (rest === "" && isScalar(node) && node.value !== null) return node.range?.[0] ?? offset;
    } else return offset;
    if (rest === "") return offset;
  }
}

// --- In pieces ---------------------------------------------------------------------------------------------------------------

/** A part of the text that is a document of its own: some loops, some steps, or another section. */
interface Piece {
  readonly from: number;
  readonly to: number;
  /** Line of its first character, from 1. */
  readonly line: number;
  /** Its keys stand in this section; null: it is sections itself. */
  readonly section: string | null;
  /** Line of that section's own key. */
  readonly head: number;
  /** Its keys, once it was read. */
  keys: readonly string[];
  /** Of a section that is a list: the places of its items in it, from the first up to and without the last. */
  items: readonly [from: number, to: number] | null;
}

/** Pieces whose trees are kept for the next place that is asked for. */
const KEPT_PIECES = 8;

/**
 * Cuts a text of the usual shape, a block with sections whose entries are blocks, at lines where an entry begins; null for
 * every other shape. What would be cut in the middle of something cannot be read by itself, and is then read whole.
 */
function inPieces(text: string): Piece[] | null {
  const pieces: Piece[] = [];
  let section: string | null = null;
  let indent = -1;
  let from = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  let line = 1;
  let firstLine = 1;
  let head = 1;
  const cut = (to: number): void => {
    if (to > from)
      pieces.push({ from, to, line: firstLine, section: indent === -1 ? null : section, head, keys: [], items: null });
    from = to;
    firstLine = line;
  };
  for (let start = from; start < text.length; line++) {
    const newline = text.indexOf("\n", start);
    const end = newline === -1 ? text.length : newline + 1;
    const content = /^( *)([^\s#])/.exec(text.slice(start, Math.min(end, start + 256)));
    if (content !== null) {
      const depth = content[1]?.length ?? 0;
      if (depth === 0) {
        const key = /^([A-Za-z]\w*):(?:[ \t]*(?:#.*)?\r?\n|[ \t]+[\w"'{[])/.exec(
          text.slice(start, Math.min(end, start + 256)),
        );
        if (key === null) return null;
        cut(start);
        section = key[1] ?? null;
        head = line;
        indent = -1;
      } else if (section !== null && indent === -1) {
        const head = text.slice(from, start);
        // The section's own line, and the comments behind it, belong to no piece.
        if (/^[A-Za-z]\w*:[ \t]*(#.*)?\r?\n(\s*(#.*)?\r?\n)*$/.test(head)) {
          from = start;
          firstLine = line;
          indent = depth;
        }
      } else if (indent !== -1) {
        if (depth < indent) return null;
        if (depth === indent && start - from > PIECE_CHARACTERS) cut(start);
      }
    }
    start = end;
  }
  cut(text.length);
  return pieces;
}

/** All pieces read and put together; null when one of them cannot be read by itself, or a key comes twice. */
function joined(text: string, pieces: readonly Piece[]): { [key: string]: unknown } | null {
  const value: { [key: string]: unknown } = {};
  for (const piece of pieces) {
    const { from, to, section } = piece;
    const document = parseDocument(text.slice(from, to), OPTIONS);
    const { contents } = document;
    if (document.errors.length > 0 || document.warnings.length > 0 || !(isMap(contents) || isSeq(contents)))
      return null;
    // Aliases are rare, and what they may do is looked at in the whole.
    if (/(^|[\s,[{])[&*]\w/.test(text.slice(from, to))) return null;
    if (isSeq(contents)) {
      const list = section === null ? null : (value[section] ??= []);
      if (!Array.isArray(list)) return null;
      const first = list.length;
      for (const one of document.toJS() as readonly unknown[]) list.push(one);
      piece.items = [first, list.length];
      continue;
    }
    if (section !== null && Array.isArray(value[section])) return null;
    const part = document.toJS() as { [key: string]: unknown };
    piece.keys = Object.keys(part);
    if (section !== null && !Object.hasOwn(value, section)) value[section] = {};
    const into = section === null ? value : (value[section] as { [key: string]: unknown });
    for (const [key, one] of Object.entries(part)) {
      if (Object.hasOwn(into, key)) return null;
      Object.defineProperty(into, key, { value: one, enumerable: true, configurable: true, writable: true });
    }
  }
  return value;
}

function locatorIn(text: string, pieces: readonly Piece[]): DeclaredText["locate"] {
  const isAt = (rest: string, key: string) =>
    rest === key || (rest.startsWith(key) && /^[.[]/.test(rest.slice(key.length)));
  const kept = new Map<Piece, DeclaredText>();
  const locate = (piece: Piece, rest: string): Place => {
    const read = kept.get(piece) ?? whole(text.slice(piece.from, piece.to));
    kept.delete(piece);
    kept.set(piece, read);
    for (const old of kept.keys()) if (kept.size > KEPT_PIECES) kept.delete(old);
    const { line, column } = read.locate(rest);
    return { line: line + piece.line - 1, column };
  };
  return (path) => {
    for (const piece of pieces) {
      const { section, head, keys, items } = piece;
      if (section !== null && path === section) return { line: head, column: 1 };
      if (section !== null && items !== null) {
        const item = path.startsWith(`${section}[`) ? /^\[(\d+)\]/.exec(path.slice(section.length)) : null;
        const [from, to] = items;
        const at = Number(item?.[1] ?? -1);
        if (item !== null && at >= from && at < to)
          return locate(piece, `[${at - from}]${path.slice(section.length + item[0].length)}`);
        continue;
      }
      if (section !== null && !path.startsWith(`${section}.`)) continue;
      const rest = section === null ? path : path.slice(section.length + 1);
      if (keys.some((key) => isAt(rest, key))) return locate(piece, rest);
    }
    return { line: 1, column: 1 };
  };
}
