/** Reads the text of a statement for what it asks for: the conjuncts of its conditions, and its clauses for a conflict. */

/** A template's strings and the numbers of the parts between them. */
interface Pieces {
  readonly strings: readonly string[];
  readonly parts: readonly number[];
}

interface Condition {
  readonly kind: "condition" | "conflict";
  readonly text: string;
  /** The statement without it. */
  readonly rest: Pieces;
}

interface Found {
  readonly conditions: readonly Condition[];
  /** Whether each of its conditions guards something: it writes, or locks what it reads. */
  readonly guarded: boolean;
}

interface Token {
  /** In lower case; a part is `${`. */
  readonly word: string;
  readonly start: number;
  readonly end: number;
}

const TOKEN = /'(?:[^']|'')*'|\u0001\d+\u0002|[A-Za-z_][A-Za-z0-9_.]*|\d+|<=|>=|<>|\|\||::|->>|->|\S/g;
const OPENS = new Set(["where", "on", "having", "when"]);
const CLOSES = new Set(
  "where group order limit offset union returning on join left cross inner having for then else end set with as values from".split(
    " ",
  ),
);
const OPERATORS = new Set(
  "= < > <= >= <> + - * / , || and or not in is like between as select by distinct exists any".split(" "),
);

function tokensOf(text: string): Token[] {
  return [...text.matchAll(TOKEN)].map((match) => ({
    word: match[0].startsWith("\u0001") ? "${" : match[0].toLowerCase(),
    start: match.index,
    end: match.index + match[0].length,
  }));
}

/** For each bracket the place of its partner. */
function bracketsOf(tokens: readonly Token[]): Map<number, number> {
  const open: number[] = [];
  const pairs = new Map<number, number>();
  tokens.forEach(({ word }, i) => {
    if (word === "(") open.push(i);
    const from = word === ")" ? open.pop() : undefined;
    if (from !== undefined) pairs.set(from, i);
  });
  return pairs;
}

const STATEMENT = /^(?:select|insert|update|delete|with|join|left|cross|order|set|values)$/;

/** @param words what the template's parts say in the source */
export function conditionsOf(strings: readonly string[], words: readonly string[]): Found {
  const text = strings.reduce((all, string, i) => (i === 0 ? string : `${all}\u0001${i - 1}\u0002${string}`), "");
  const tokens = tokensOf(text);
  const pairs = bracketsOf(tokens);
  const first = tokens[0]?.word ?? "";
  const writes = tokens.some(({ word }, i) => /^(?:insert|update|delete)$/.test(word) && tokens[i - 1]?.word !== "do");
  const locks = words.some((word) => word === "forUpdate" || word === "forShare" || word === "skipLocked");
  const ranges: { from: number; to: number; kind: Condition["kind"] }[] = [];

  /** Cuts what lies between two tokens into its conjuncts. */
  function cut(from: number, to: number): void {
    let start = from;
    let between = false;
    const close = (end: number): void => {
      const last = tokens[end - 1];
      const before = tokens[end - 2];
      // What follows a finished operand is a fragment of its own: a lock, an order, a further condition.
      const trailing =
        end - start > 1 &&
        last?.word === "${" &&
        before !== undefined &&
        !OPERATORS.has(before.word) &&
        before.word !== "(";
      const stop = trailing ? end - 1 : end;
      if (stop > start) ranges.push({ from: start, to: stop, kind: "condition" });
    };
    for (let i = from; i < to; i++) {
      const word = tokens[i]?.word ?? "";
      if (word === "(") {
        const end = pairs.get(i) ?? to;
        inside(i + 1, end);
        i = end;
      } else if (word === "between") between = true;
      else if (word === "and" && between) between = false;
      else if (word === "and" || word === "or") {
        close(i);
        if (word === "or") {
          // Alternatives ask for less together than alone: only the whole is a condition.
          while (
            ranges.at(-1)?.from !== undefined &&
            (ranges.at(-1)?.from ?? 0) >= from &&
            ranges.at(-1)?.to === i &&
            start === from
          )
            ranges.pop();
        }
        start = i + 1;
      }
    }
    close(to);
  }

  /** Looks through one level of brackets for its clauses, and at brackets of conditions as one. */
  function inside(from: number, to: number): void {
    const level: number[] = [];
    for (let i = from; i < to; i++) {
      level.push(i);
      if (tokens[i]?.word === "(") i = (pairs.get(i) ?? to) - 1;
    }
    const has = (word: string): boolean => level.some((i) => tokens[i]?.word === word);
    if (
      !level.some((i) => OPENS.has(tokens[i]?.word ?? "")) &&
      !has("select") &&
      has("and") &&
      !has("or") &&
      !has("insert")
    ) {
      cut(from, to);
      return;
    }
    for (let i = from; i < to; i++) {
      const word = tokens[i]?.word ?? "";
      if (word === "(") {
        const end = pairs.get(i) ?? to;
        inside(i + 1, end);
        i = end;
      } else if (word === "on" && tokens[i + 1]?.word === "conflict") {
        let end = i + 2;
        while (end < to && tokens[end]?.word !== "returning") end++;
        ranges.push({ from: i, to: end, kind: "conflict" });
      } else if (OPENS.has(word)) {
        let end = i + 1;
        while (end < to && !CLOSES.has(tokens[end]?.word ?? ""))
          end = tokens[end]?.word === "(" ? (pairs.get(end) ?? to) + 1 : end + 1;
        cut(i + 1, end);
        i = end - 1;
      }
    }
  }

  if (STATEMENT.test(first)) inside(0, tokens.length);
  else if (first === "and") cut(1, tokens.length);
  else if (/[=<>]|\bis\b|\bin\b|\band\b/.test(text)) {
    if (tokens.some(({ word }) => word === "from" || word === ",")) inside(0, tokens.length);
    else cut(0, tokens.length);
  }

  const spoken = (slice: string): string =>
    slice.replace(/\u0001(\d+)\u0002/g, (_, n: string) => `\${${words[Number(n)]}}`);
  const conditions = ranges.map(({ from, to, kind }): Condition => {
    const [start, end] = [tokens[from]?.start ?? 0, tokens[to - 1]?.end ?? 0];
    const rest = `${text.slice(0, start)}${kind === "condition" ? "1 = 1" : ""}${text.slice(end)}`;
    const pieces = rest.split(/\u0001(\d+)\u0002/);
    return {
      kind,
      text: spoken(text.slice(start, end)),
      rest: {
        strings: pieces.filter((_, i) => i % 2 === 0),
        parts: pieces.filter((_, i) => i % 2 === 1).map(Number),
      },
    };
  });
  return { conditions, guarded: writes || locks };
}
