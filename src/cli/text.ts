/** Text on terminals: what foreign text may hold, how wide it is, and tables. */
import type { Problem } from "../core/errors.ts";

/** Control characters, marks that turn the writing direction, and what hides between letters. */
const UNSAFE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

/** Foreign text in one line, with nothing in it that a terminal would obey: control characters are shown as escapes. */
export const inertLine = (text: string): string =>
  text.replace(UNSAFE, (found) => {
    if (found === "\n") return "\\n";
    if (found === "\t") return "\\t";
    if (found === "\r") return "\\r";
    const code = found.codePointAt(0) ?? 0;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });

/** Foreign text of several lines: line ends and tabs stay. */
export const inertText = (text: string): string =>
  text
    .split("\n")
    .map((line) => inertLine(line.replaceAll("\t", "    ")))
    .join("\n");

/** Ranges of characters two columns wide: East Asian wide and full-width forms, and pictures. */
const WIDE: readonly (readonly [number, number])[] = [
  [0x1100, 0x115f],
  [0x231a, 0x231b],
  [0x2329, 0x232a],
  [0x23e9, 0x23ec],
  [0x23f0, 0x23f0],
  [0x23f3, 0x23f3],
  [0x25fd, 0x25fe],
  [0x2614, 0x2615],
  [0x2648, 0x2653],
  [0x267f, 0x267f],
  [0x2693, 0x2693],
  [0x26a1, 0x26a1],
  [0x26aa, 0x26ab],
  [0x26bd, 0x26be],
  [0x26c4, 0x26c5],
  [0x26ce, 0x26ce],
  [0x26d4, 0x26d4],
  [0x26ea, 0x26ea],
  [0x26f2, 0x26f3],
  [0x26f5, 0x26f5],
  [0x26fa, 0x26fa],
  [0x26fd, 0x26fd],
  [0x2705, 0x2705],
  [0x270a, 0x270b],
  [0x2728, 0x2728],
  [0x274c, 0x274c],
  [0x274e, 0x274e],
  [0x2753, 0x2755],
  [0x2757, 0x2757],
  [0x2795, 0x2797],
  [0x27b0, 0x27b0],
  [0x27bf, 0x27bf],
  [0x2b1b, 0x2b1c],
  [0x2b50, 0x2b50],
  [0x2b55, 0x2b55],
  [0x2e80, 0x303e],
  [0x3041, 0x33ff],
  [0x3400, 0x4dbf],
  [0x4e00, 0x9fff],
  [0xa000, 0xa4cf],
  [0xa960, 0xa97f],
  [0xac00, 0xd7a3],
  [0xf900, 0xfaff],
  [0xfe10, 0xfe19],
  [0xfe30, 0xfe6f],
  [0xff00, 0xff60],
  [0xffe0, 0xffe6],
  [0x16fe0, 0x18cff],
  [0x1aff0, 0x1b2ff],
  [0x1f004, 0x1f004],
  [0x1f0cf, 0x1f0cf],
  [0x1f18e, 0x1f18e],
  [0x1f191, 0x1f19a],
  [0x1f200, 0x1f320],
  [0x1f32d, 0x1f335],
  [0x1f337, 0x1f37c],
  [0x1f37e, 0x1f393],
  [0x1f3a0, 0x1f3ca],
  [0x1f3cf, 0x1f3d3],
  [0x1f3e0, 0x1f3f0],
  [0x1f3f4, 0x1f3f4],
  [0x1f3f8, 0x1f43e],
  [0x1f440, 0x1f440],
  [0x1f442, 0x1f4fc],
  [0x1f4ff, 0x1f53d],
  [0x1f54b, 0x1f54e],
  [0x1f550, 0x1f567],
  [0x1f57a, 0x1f57a],
  [0x1f595, 0x1f596],
  [0x1f5a4, 0x1f5a4],
  [0x1f5fb, 0x1f64f],
  [0x1f680, 0x1f6c5],
  [0x1f6cc, 0x1f6cc],
  [0x1f6d0, 0x1f6d2],
  [0x1f6d5, 0x1f6d7],
  [0x1f6dc, 0x1f6df],
  [0x1f6eb, 0x1f6ec],
  [0x1f6f4, 0x1f6fc],
  [0x1f7e0, 0x1f7eb],
  [0x1f7f0, 0x1f7f0],
  [0x1f90c, 0x1f93a],
  [0x1f93c, 0x1f945],
  [0x1f947, 0x1f9ff],
  [0x1fa70, 0x1faff],
  [0x20000, 0x2fffd],
  [0x30000, 0x3fffd],
];

const PLAIN = /^[ -~]*$/;
const COLOUR = /\u001b\[[0-9;]*m/g;

function codeWidth(code: number): 0 | 1 | 2 {
  let low = 0;
  let high = WIDE.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const [from, to] = WIDE[middle] as readonly [number, number];
    if (code < from) high = middle - 1;
    else if (code > to) low = middle + 1;
    else return 2;
  }
  return 1;
}

/** Columns of one grapheme: a base character and what is put on it take the base's. */
function graphemeWidth(grapheme: string): number {
  const code = grapheme.codePointAt(0) ?? 0;
  if (/^\p{Mark}/u.test(grapheme)) return 0;
  if (/^\p{Regional_Indicator}{2}/u.test(grapheme)) return 2;
  // A variation selector 16 asks for the picture, a joiner makes several pictures one.
  return grapheme.includes("\ufe0f") && /\p{Emoji}/u.test(grapheme) && code > 0xff ? 2 : codeWidth(code);
}

let segmenter: Intl.Segmenter | undefined;
const graphemes = (text: string): string[] => {
  segmenter ??= new Intl.Segmenter("en", { granularity: "grapheme" });
  return [...segmenter.segment(text)].map((one) => one.segment);
};

/** Columns that a text takes, colours not counted. */
export function widthOf(text: string): number {
  const bare = text.includes("\u001b") ? text.replace(COLOUR, "") : text;
  if (PLAIN.test(bare)) return bare.length;
  return graphemes(bare).reduce((sum, one) => sum + graphemeWidth(one), 0);
}

/** The text, or as much of it as fits with `…` at its end. Not for coloured text. */
export function cut(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text;
  let put = "";
  let width = 0;
  for (const one of PLAIN.test(text) ? text : graphemes(text)) {
    const next = PLAIN.test(one) ? 1 : graphemeWidth(one);
    if (width + next > columns - 1) break;
    put += one;
    width += next;
  }
  return `${put}…`;
}

/**
 * Text in lines of at most so many columns, broken behind spaces, commas and between folders of a PATH; a longer word keeps a line of its own.
 * Not for coloured text.
 */
export function wrap(text: string, columns: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const piece of text.split(/(?<=[ ,])|(?<=:)(?=\/)/)) {
    if (line !== "" && widthOf((line + piece).trimEnd()) > columns) {
      lines.push(line.trimEnd());
      line = "";
    }
    line += piece;
  }
  return [...lines, line.trimEnd()];
}

export interface Column {
  readonly title: string;
  /** Numbers stand at the right. */
  readonly right?: boolean;
  /** May be cut so that the table fits; the last such column first. */
  readonly elastic?: boolean;
  /** Names what its row is about: an elastic one gives when nothing else can give any more. */
  readonly key?: boolean;
  /** An elastic column is not cut below this while another can give. */
  readonly least?: number;
  /** Of the screen's width: a column that takes more gives first. */
  readonly share?: number;
  /** The last column: its text goes on in further lines instead of being cut, below the row where there is no room beside it. */
  readonly wraps?: boolean;
  /** Left out, the last such column first, when elastic columns would be cut below their least. */
  readonly spare?: boolean;
}

/** A cell: foreign text, and how it is painted once its width is known. */
export interface Cell {
  readonly text: string;
  readonly paint?: ((text: string) => string) | undefined;
}

/** Smallest width to which an elastic column is cut. */
const MIN_ELASTIC = 8;

/**
 * A table with columns two apart. Without `columns` (no terminal) cells are never cut and stand apart by a tab, with no
 * title: that is what `cut`, `sort` and `awk` take.
 */
export function table(
  head: readonly Column[],
  rows: readonly (readonly (Cell | string)[])[],
  screen: { readonly columns: number | null; readonly dim: (text: string) => string },
): string {
  const cells = rows.map((row) =>
    row.map(
      (cell): Cell => (typeof cell === "string" ? { text: inertLine(cell) } : { ...cell, text: inertLine(cell.text) }),
    ),
  );
  if (screen.columns === null) return cells.map((row) => `${row.map((cell) => cell.text).join("\t")}\n`).join("");
  const widths = head.map((column, index) =>
    Math.max(widthOf(column.title), ...cells.map((row) => widthOf(row[index]?.text ?? ""))),
  );
  // One that goes on in further lines takes what is left.
  for (const [index, column] of head.entries())
    if (column.wraps === true) widths[index] = Math.min(widths[index] ?? 0, column.least ?? MIN_ELASTIC);
  let over = widths.reduce((sum, width) => sum + width + 2, -2) - screen.columns;
  const left = new Set<number>();
  const give = (index: number, least: number): void => {
    if (left.has(index)) return;
    const width = widths[index] ?? 0;
    const given = Math.min(Math.max(0, over), Math.max(0, width - least));
    widths[index] = width - given;
    over -= given;
  };
  const fromLast = head.map((_, index) => index).toReversed();
  for (const index of fromLast) {
    const { share, title = "" } = head[index] ?? {};
    if (share !== undefined) give(index, Math.max(widthOf(title), Math.floor(screen.columns * share)));
  }
  const leastOf = (index: number): number => head[index]?.least ?? MIN_ELASTIC;
  const [keys, elastic] = [true, false].map((isKey) =>
    fromLast.filter((index) => head[index]?.elastic === true && (head[index].key === true) === isKey),
  ) as [number[], number[]];
  const room = (): number =>
    elastic.reduce((sum, index) => sum + (left.has(index) ? 0 : Math.max(0, (widths[index] ?? 0) - leastOf(index))), 0);
  for (const index of fromLast) {
    if (head[index]?.spare !== true || over <= room()) continue;
    left.add(index);
    over -= (widths[index] ?? 0) + 2;
  }
  for (const index of elastic) give(index, leastOf(index));
  for (const index of elastic) give(index, MIN_ELASTIC);
  for (const index of keys) give(index, MIN_ELASTIC);
  const wrapped = head.findIndex((column) => column.wraps === true);
  const line = (row: readonly Cell[]): string =>
    row
      .flatMap((cell, index) => {
        if (left.has(index)) return [];
        const width = widths[index] ?? 0;
        const text = cut(cell.text, width);
        const gap = " ".repeat(Math.max(0, width - widthOf(text)));
        const painted = cell.paint === undefined ? text : cell.paint(text);
        return head[index]?.right === true ? gap + painted : painted + gap;
      })
      .join("  ")
      .trimEnd();
  const body = [head.map((column): Cell => ({ text: column.title, paint: screen.dim })), ...cells];
  if (wrapped === -1) return body.map((row) => `${line(row)}\n`).join("");
  const before = widths.reduce((sum, width, index) => sum + (index < wrapped && !left.has(index) ? width + 2 : 0), 0);
  const space = screen.columns - before;
  const beside = space >= (head[wrapped]?.least ?? MIN_ELASTIC);
  const indent = beside ? before : 4;
  return body
    .map((row, number) => {
      const cell = row[wrapped];
      const rest = line(row.filter((_, index) => index !== wrapped));
      if (cell === undefined || cell.text === "") return `${rest}\n`;
      const [first = "", ...more] = wrap(cell.text, Math.max(1, (screen.columns ?? 0) - indent));
      const draw = (text: string): string => (cell.paint === undefined ? text : cell.paint(text));
      const under = (text: string): string => `${" ".repeat(indent)}${draw(text)}\n`;
      if (!beside) return number === 0 ? `${rest}\n` : `${rest}\n${[first, ...more].map(under).join("")}`;
      const gap = " ".repeat(Math.max(0, before - widthOf(rest)));
      return `${rest}${gap}${draw(first)}\n${more.map(under).join("")}`;
    })
    .join("");
}

/** One of several things that are wrong, as compilers say it: `drover.yaml:40:5: MESSAGE. HINT`. A file below the folder is named from there. */
export function problemLine({ file, line, column, path, message, hint }: Problem, cwd: string | null): string {
  const name = file === undefined ? "" : cwd !== null && file.startsWith(`${cwd}/`) ? file.slice(cwd.length + 1) : file;
  const at = [name, ...(line === undefined ? [] : [line, column ?? 1])].filter((part) => part !== "").join(":");
  const key = path === undefined || path === "" || message.includes(path) ? "" : ` [${path}]`;
  return `${at === "" ? "" : `${at}: `}${message}${key}${hint === undefined ? "" : `. ${hint}`}`;
}
