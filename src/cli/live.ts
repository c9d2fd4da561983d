/**
 * The line at the bottom of a terminal that says how a run stands while its output goes by above it. The cursor is never
 * hidden and the terminal's mode never changed, so that nothing but the line itself has to be put right, whatever ends us.
 */
import { describeDuration } from "../core/duration.ts";
import { type Output, put, streamOf } from "./put.ts";
import { isTerminal, type Screen } from "./screen.ts";
import { cut, inertLine, widthOf } from "./text.ts";

/** How a run stands. */
export interface Standing {
  /** `queued`, `starting`, `running`, `ending`, `waiting`. */
  readonly state: string;
  /** Since when, by the wall clock. */
  readonly since: number;
  /** How long it usually takes; null when that is not known, or does not matter to this state. */
  readonly usualMs: number | null;
  /** Why it stands so, or what it said last. */
  readonly words: string | null;
  /** `try 2 of 3`, and what else is worth a few words. */
  readonly notes: readonly string[];
}

export interface LiveLine {
  /** Writes output of the run, with the line out of its way. The output is inert. */
  print(output: Output, text: string): Promise<void>;
  /** Writes a line of our own above. */
  say(line: string): void;
  /** What the line says from now on; null takes it away. */
  show(standing: Standing | null): void;
  /** Takes the line away for good, and leaves the cursor at the beginning of a line. */
  close(): void;
}

/** How often the line is written anew: what it counts are seconds. */
const REDRAW_MS = 250;
/** A run that ends sooner shows no line. */
const FIRST_MS = 400;
const USUAL_COLUMNS = 80;
/** Of a line that is not ended yet, so much is known: enough to find its end again. */
const MAX_PARTIAL = 4_096;
/** What a text at the end of the line is worth: with less room it is left out. */
const LEAST_WORDS = 12;

/** What fits: the state with its time always, then each part that has room, then as much of the words as there is room for. */
export function composeLine(standing: Standing, now: number, columns: number): string {
  const { state, since, usualMs, notes, words } = standing;
  const elapsed = describeDuration(Math.max(0, Math.floor((now - since) / 1_000) * 1_000));
  let line = `${state} ${elapsed}`;
  const parts = [
    usualMs === null ? null : ` of usually ${describeDuration(usualMs)}`,
    ...notes.map((one) => `, ${one}`),
  ];
  for (const part of parts) if (part !== null && widthOf(line + part) <= columns) line += part;
  if (words !== null && words !== "" && columns - widthOf(line) >= Math.min(LEAST_WORDS, widthOf(words) + 2))
    line = `${line}: ${inertLine(words)}`;
  return cut(line, columns);
}

const THOUSANDS = ["", "k", "M", "G"] as const;

/** `812 tokens`, `12.3k tokens`. */
export function tokens(count: number): string {
  const power = count < 1_000 ? 0 : Math.min(3, Math.floor(Math.log10(count) / 3));
  const amount = count / 1_000 ** power;
  return `${amount < 100 && power > 0 ? Math.floor(amount * 10) / 10 : Math.floor(amount)}${THOUSANDS[power]} tokens`;
}

/** Columns that a line of output takes, tabs at their stops. */
export function columnsOf(line: string): number {
  let width = 0;
  for (const [index, piece] of line.split("\t").entries()) {
    if (index > 0) width += TAB - (width % TAB);
    width += widthOf(piece);
  }
  return width;
}
const TAB = 8;

/** Where no line may be drawn everything is written as it comes. */
export function openLiveLine(screen: Screen, now: () => number): LiveLine {
  return screen.redraws ? openOnTerminal(screen, now) : plain;
}

const plain: LiveLine = {
  print: put,
  say: (line) => void put("stderr", `${inertLine(line)}\n`),
  show: () => {},
  close: () => {},
};

function openOnTerminal(screen: Screen, now: () => number): LiveLine {
  const stderr = streamOf("stderr");
  const openedAt = performance.now();
  let standing: Standing | null = null;
  let drawn: string | null = null;
  /** The output's last line on this terminal, as long as it has no end. */
  let partial = "";
  /** The line was drawn below it. */
  let below = false;
  let closed = false;
  const columns = (): number => stderr.columns || USUAL_COLUMNS;

  const write = (text: string): void => {
    if (!stderr.destroyed && stderr.writable) stderr.write(text);
  };
  const clear = (): void => {
    if (drawn === null) return;
    drawn = null;
    if (!below) return write("\r\u001b[K");
    below = false;
    const column = columnsOf(partial) % columns();
    write(`\r\u001b[K\u001b[A\r${column === 0 ? "" : `\u001b[${column}C`}`);
  };
  const draw = (): void => {
    if (standing === null || closed || performance.now() - openedAt < FIRST_MS) return;
    // At a terminal's last column nobody knows in which line the cursor is.
    if (drawn === null && partial !== "" && columnsOf(partial) % columns() === 0) return;
    const { state } = standing;
    const text = composeLine(standing, now(), columns() - 1);
    if (text === drawn) return;
    if (drawn === null && partial !== "") {
      below = true;
      write("\n");
    }
    drawn = text;
    const isWhole = text.startsWith(state);
    write(`\r\u001b[K${isWhole ? screen.bold(state) + screen.dim(text.slice(state.length)) : text}`);
  };
  /** The terminal has moved what stood there: what was not ended is taken as it stands, and what comes begins a new line. */
  const resized = (): void => {
    if (drawn === null) return;
    if (below) {
      below = false;
      partial = "";
    }
    write("\r\u001b[K");
    drawn = null;
    draw();
  };
  const stop = (): void => {
    clear();
    process.kill(process.pid, "SIGSTOP");
  };
  const goOn = (): void => {
    drawn = null;
    below = false;
    partial = "";
    draw();
  };
  const end = (signal: NodeJS.Signals): void => {
    close();
    process.kill(process.pid, signal);
  };
  const onTerm = (): void => end("SIGTERM");
  const onHangUp = (): void => end("SIGHUP");
  const timer = setInterval(draw, REDRAW_MS);
  timer.unref();
  stderr.on("resize", resized);
  process.on("exit", close);
  process.on("SIGTSTP", stop);
  process.on("SIGCONT", goOn);
  process.on("SIGTERM", onTerm);
  process.on("SIGHUP", onHangUp);

  function close(): void {
    if (closed) return;
    clear();
    if (partial !== "") write("\n");
    partial = "";
    closed = true;
    clearInterval(timer);
    stderr.off("resize", resized);
    process.off("exit", close);
    process.off("SIGTSTP", stop);
    process.off("SIGCONT", goOn);
    process.off("SIGTERM", onTerm);
    process.off("SIGHUP", onHangUp);
  }

  return {
    async print(output, text) {
      if (!isTerminal(output)) return put(output, text);
      clear();
      const newline = text.lastIndexOf("\n");
      const rest = newline === -1 ? partial + text : text.slice(newline + 1);
      partial = rest.slice(-MAX_PARTIAL);
      await put(output, text);
    },
    say(line) {
      clear();
      if (partial !== "") write("\n");
      partial = "";
      write(`${inertLine(line)}\n`);
    },
    show(next) {
      standing = next;
      if (next === null) clear();
    },
    close,
  };
}
