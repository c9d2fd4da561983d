/** Text with `${{ }}` in it. A value is put where its expression stood, as data: what it holds is never read as a template again. */

/** An expression in a text. */
interface Hole {
  readonly source: string;
  /** Where `source` begins, in characters of the text. */
  readonly at: number;
}

export interface Template {
  /** Texts, with a hole between each two: one text more than there are holes. */
  readonly texts: readonly string[];
  readonly holes: readonly Hole[];
  /** The place of a `${{` that nothing closes; null when each is closed. */
  readonly open: number | null;
}

const OPEN = "${{";

/** Where the `}}` of an expression is that begins at `from`; quotes and braces within it are its own. Null: nowhere. */
function closeOf(text: string, from: number): number | null {
  let depth = 0;
  let quote = "";
  for (let at = from; at < text.length; at++) {
    const letter = text.charAt(at);
    if (quote !== "") {
      if (letter === "\\") at++;
      else if (letter === quote) quote = "";
    } else if (letter === '"' || letter === "'") quote = letter;
    else if (letter === "{") depth++;
    else if (letter === "}") {
      if (depth === 0) {
        if (text.charAt(at + 1) === "}") return at;
        return null;
      }
      depth--;
    }
  }
  return null;
}

/** Cuts a text into what is said and what is put in. */
export function readTemplate(text: string): Template {
  const texts: string[] = [];
  const holes: Hole[] = [];
  let from = 0;
  for (let open = text.indexOf(OPEN); open !== -1; open = text.indexOf(OPEN, from)) {
    const at = open + OPEN.length;
    const close = closeOf(text, at);
    if (close === null) return { texts: [...texts, text.slice(from)], holes, open };
    texts.push(text.slice(from, open));
    holes.push({ source: text.slice(at, close), at });
    from = close + 2;
  }
  return { texts: [...texts, text.slice(from)], holes, open: null };
}

/** Whether a text is one expression and nothing else: it then has that one's value, of whatever type. */
export const isWhole = ({ texts, holes }: Template): boolean => holes.length === 1 && texts.every((one) => one === "");

/** A value as text: texts as they are, nothing as an empty one, lists and objects as JSON. */
export const textOf = (value: unknown): string =>
  value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value);

/** Puts the values in. @param values of the holes, in their order */
export function renderTemplate(template: Template, values: readonly unknown[]): unknown {
  if (isWhole(template)) return values[0];
  return template.texts.map((text, index) => (index === 0 ? text : textOf(values[index - 1]) + text)).join("");
}
