/**
 * Reads TypeScript as far as rules about text need it: which characters are code, what strings, templates and comments
 * say, and what a file imports. TypeScript 7 has no parser for programs like this one; a hundred lines are one.
 */

/** A piece of a source file. `line` counts from 1. */
interface Piece {
  readonly text: string;
  readonly start: number;
  readonly line: number;
}

/** A template literal: its text without what is inserted, and the name in front of it. */
interface Template extends Piece {
  readonly tag: string | null;
}

export interface Source {
  readonly path: string;
  /** The file with the inside of strings, templates, regular expressions and comments blanked; same length, same lines. */
  readonly code: string;
  readonly strings: readonly Piece[];
  readonly templates: readonly Template[];
  readonly comments: readonly Piece[];
  lineAt(offset: number): number;
}

/** Words after which a slash begins a regular expression. */
const BEFORE_EXPRESSION = /(?:^|[^\w$.])(?:return|typeof|case|in|of|do|else|void|delete|throw|new|yield|await)$/;

/** Reads one file. Never fails: what is not closed ends with the file. */
export function readSource(path: string, text: string): Source {
  const strings: Piece[] = [];
  const templates: Template[] = [];
  const comments: Piece[] = [];
  const code = text.split("");
  const lineStarts = [0];
  for (let i = 0; i < text.length; i++) if (text[i] === "\n") lineStarts.push(i + 1);
  const lineAt = (offset: number): number => {
    let low = 0;
    let high = lineStarts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((lineStarts[middle] ?? 0) <= offset) low = middle;
      else high = middle;
    }
    return low + 1;
  };
  const blank = (from: number, to: number): void => {
    for (let i = from; i < to; i++) if (code[i] !== "\n") code[i] = " ";
  };
  const codeBefore = (offset: number): string =>
    code
      .slice(Math.max(0, offset - 200), offset)
      .join("")
      .trimEnd();
  const startsExpression = (offset: number): boolean => {
    const before = codeBefore(offset);
    return before === "" || /[(,=:[!&|?{;+\-*%<>~^]$/.test(before) || BEFORE_EXPRESSION.test(before);
  };

  /** Reads code from `at` to the end of the file, or to the brace that closes a template's insertion. */
  const readCode = (at: number, insideTemplate: boolean): number => {
    let depth = 0;
    let i = at;
    while (i < text.length) {
      const char = text[i];
      if (char === "/" && text[i + 1] === "/") {
        const end = text.indexOf("\n", i) < 0 ? text.length : text.indexOf("\n", i);
        comments.push({ text: text.slice(i, end), start: i, line: lineAt(i) });
        blank(i, end);
        i = end;
      } else if (char === "/" && text[i + 1] === "*") {
        const close = text.indexOf("*/", i + 2);
        const end = close < 0 ? text.length : close + 2;
        comments.push({ text: text.slice(i, end), start: i, line: lineAt(i) });
        blank(i, end);
        i = end;
      } else if (char === '"' || char === "'") {
        let end = i + 1;
        while (end < text.length && text[end] !== char && text[end] !== "\n") end += text[end] === "\\" ? 2 : 1;
        strings.push({ text: text.slice(i + 1, end), start: i, line: lineAt(i) });
        blank(i + 1, end);
        i = end + 1;
      } else if (char === "`") {
        i = readTemplate(i);
      } else if (char === "/" && startsExpression(i)) {
        let end = i + 1;
        let inClass = false;
        while (end < text.length && text[end] !== "\n" && (text[end] !== "/" || inClass)) {
          if (text[end] === "[") inClass = true;
          if (text[end] === "]") inClass = false;
          end += text[end] === "\\" ? 2 : 1;
        }
        blank(i + 1, end);
        i = end + 1;
      } else {
        if (char === "{") depth += 1;
        if (char === "}") {
          if (insideTemplate && depth === 0) return i;
          depth -= 1;
        }
        i += 1;
      }
    }
    return i;
  };

  const readTemplate = (at: number): number => {
    const tag = /([\w$]+)(?:<[^<>]*>)?$/.exec(codeBefore(at))?.[1] ?? null;
    let said = "";
    let i = at + 1;
    let from = i;
    while (i < text.length && text[i] !== "`") {
      if (text[i] === "\\") {
        i += 2;
      } else if (text[i] === "$" && text[i + 1] === "{") {
        said += `${text.slice(from, i)}?`;
        blank(from, i);
        i = readCode(i + 2, true) + 1;
        from = i;
      } else {
        i += 1;
      }
    }
    said += text.slice(from, i);
    blank(from, i);
    templates.push({ text: said, tag, start: at, line: lineAt(at) });
    return i + 1;
  };

  readCode(0, false);
  return { path, code: code.join(""), strings, templates, comments, lineAt };
}

/** One import, of any kind: static, re-export, dynamic, `require`, type, or a file named by `new URL(..., import.meta.url)`. */
export interface Import {
  readonly specifier: string;
  readonly line: number;
}

const IMPORTS = [
  /\b(?:import|export)\b[^"'`;]*?\bfrom\s*(?=["'])/g,
  /\bimport\s*(?=["'])/g,
  /\b(?:import|import\.meta\.resolve|require|require\.resolve|getBuiltinModule)\s*\(\s*(?=["'])/g,
];

/** A file beside this one that is loaded by its place, as a worker's is. */
const PLACES = /\bnew\s+URL\s*\(\s*(?=["'])/g;

/** Everything that a file imports, in the order of the text. A specifier that is computed cannot be seen and is none. */
export function importsOf(source: Source): Import[] {
  const named = new Map(source.strings.map((piece) => [piece.start, piece.text]));
  const found: (Import & { at: number })[] = [];
  for (const pattern of [...IMPORTS, PLACES]) {
    for (const match of source.code.matchAll(pattern)) {
      const at = match.index + match[0].length;
      const specifier = named.get(at);
      if (specifier === undefined || (pattern === PLACES && !/^\.\.?\/.*\.ts$/.test(specifier))) continue;
      found.push({ specifier, at, line: source.lineAt(at) });
    }
  }
  return found.toSorted((a, b) => a.at - b.at).map(({ specifier, line }) => ({ specifier, line }));
}
