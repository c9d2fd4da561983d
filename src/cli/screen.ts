/** What is known of where the answer goes: a terminal with its width and colours, or a file or pipe. */
import colours from "picocolors";

export interface Screen {
  /** Columns of the terminal; null when standard output is none, or may not be drawn on. */
  readonly columns: number | null;
  /** Standard error is a terminal on which a line may be redrawn. */
  readonly redraws: boolean;
  readonly now: number;
  /** Paint, or the text as it is where colour is not wanted. */
  readonly good: (text: string) => string;
  readonly bad: (text: string) => string;
  readonly warn: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly bold: (text: string) => string;
}

/** Columns where a terminal does not say. */
const USUAL_COLUMNS = 80;

/** `NO_COLOR` wins over `FORCE_COLOR`; a dumb terminal gets neither colour nor tables, a CI's no redrawn line. */
export function openScreen(env: Readonly<Record<string, string | undefined>>, now: number): Screen {
  const { stdout, stderr } = process;
  const dumb = env["TERM"] === "dumb";
  const isSet = (name: string) => env[name] !== undefined && env[name] !== "";
  const forced = isSet("FORCE_COLOR") && env["FORCE_COLOR"] !== "0";
  const colour = !isSet("NO_COLOR") && (forced || (stdout.isTTY && !dumb && env["FORCE_COLOR"] !== "0"));
  const paint = colours.createColors(colour);
  return {
    columns: stdout.isTTY && !dumb ? stdout.columns || USUAL_COLUMNS : null,
    redraws: stderr.isTTY && !dumb && !isSet("CI"),
    now,
    good: paint.green,
    bad: paint.red,
    warn: paint.yellow,
    dim: paint.dim,
    bold: paint.bold,
  };
}
