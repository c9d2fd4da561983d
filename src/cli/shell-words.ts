/** Words as shells read and write them: what stands on a bash line up to the cursor, and offers in the form that each shell takes. */

/** Something that may stand where the cursor is. */
export interface Offer {
  readonly value: string;
  /** A few words for people; empty where there are none. */
  readonly about: string;
}

type Quote = "none" | "single" | "double";

export interface LineRead {
  /** The words before the one under the cursor, as the command would get them. */
  readonly before: readonly string[];
  /** The word under the cursor, as far as it is typed. */
  readonly current: string;
  /** The quotation that is open at the cursor. */
  readonly quote: Quote;
  /** How much of `current` stands in front of what readline replaces: it begins anew after `:`, `=` and an open quote. */
  readonly kept: number;
}

/**
 * Reads a command line of bash from the command on. Nothing is expanded: what a variable holds is not known here.
 * @param breaks bash's `COMP_WORDBREAKS`
 */
export function readBashLine(line: string, breaks: string): LineRead {
  const words: string[] = [];
  let word: string | null = null;
  let quote: Quote = "none";
  let kept = 0;
  for (let index = 0; index < line.length; index++) {
    const letter = line[index] as string;
    if (quote === "single") {
      if (letter === "'") quote = "none";
      else word += letter;
    } else if (letter === "\\") {
      index += 1;
      const next = line[index] ?? "";
      // Inside double quotes a backslash stands for itself before anything else.
      word = (word ?? "") + (quote === "double" && !/["$`\\]/.test(next) ? `\\${next}` : next);
    } else if (quote === "double") {
      if (letter === '"') quote = "none";
      else word += letter;
    } else if (letter === "'" || letter === '"') {
      word ??= "";
      quote = letter === "'" ? "single" : "double";
      kept = word.length;
    } else if (/\s/.test(letter)) {
      if (word !== null) words.push(word);
      word = null;
      kept = 0;
    } else {
      word = (word ?? "") + letter;
      if (breaks.includes(letter)) kept = word.length;
    }
  }
  // `A=1 B=2 drover ...`: the command comes after what is set for it.
  const command = words.findIndex((one) => !/^\w+=/.test(one));
  return { before: words.slice(command + 1), current: word ?? "", quote, kept: word === null ? 0 : kept };
}

/** Text as it is typed where that quotation is open. */
function quoted(text: string, quote: Quote): string {
  if (quote === "single") return text.replaceAll("'", "'\\''");
  if (quote === "double") return text.replace(/["$`\\]/g, "\\$&");
  return text.replace(/[^\p{L}\p{N}_./:@%+,=-]/gu, "\\$&").replace(/^~/, "\\~");
}

/** Whether a shell could be told it in one line: nothing that breaks a line or moves a cursor. */
const isPlain = ({ value }: Offer): boolean => value !== "" && !/[\u0000-\u001f\u007f-\u009f]/.test(value);

const oneLine = (text: string, most: number): string => {
  const plain = text.replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ");
  return plain.length > most ? `${plain.slice(0, Math.max(0, most - 3))}...` : plain;
};

/** Characters of a description where the shell does not say how wide it is. */
const ABOUT_CHARACTERS = 80;

/** Lines for zsh's `_describe`: a value and a description with a colon between them. */
export const forZsh = (offers: readonly Offer[]): readonly string[] =>
  offers
    .filter(isPlain)
    .map(
      ({ value, about }) =>
        value.replace(/[\\:]/g, "\\$&") + (about === "" ? "" : `:${oneLine(about, ABOUT_CHARACTERS)}`),
    );

/** Lines for fish: a value and a description with a tab between them. */
export const forFish = (offers: readonly Offer[]): readonly string[] =>
  offers
    .filter(isPlain)
    .map(({ value, about }) => (about === "" ? value : `${value}\t${oneLine(about, ABOUT_CHARACTERS)}`));

/**
 * Lines for bash's `COMPREPLY`: what readline puts in place of the last part of the word. bash knows no descriptions: where
 * several are listed they are shown behind the values, which have to differ.
 * @param lists whether they may be listed; not where bash puts one after the other on the line
 */
export function forBash(
  offers: readonly Offer[],
  { quote, kept }: LineRead,
  { columns, lists }: { readonly columns: number; readonly lists: boolean },
): readonly string[] {
  const shown = offers.filter(isPlain).map(({ value, about }) => ({ text: quoted(value.slice(kept), quote), about }));
  if (!lists || shown.length < 2) return shown.map(({ text }) => text);
  const width = Math.max(...shown.map(({ text }) => text.length));
  return shown.map(({ text, about }) => {
    const room = columns - width - 6;
    return about === "" || room < 12 ? text : `${text.padEnd(width)}  (${oneLine(about, room)})`;
  });
}
