/** What is known of where the answer goes: a terminal with its width and colours, or a file or pipe. */
import { fstatSync } from "node:fs";
import { DESCRIPTORS, type Output, streamOf } from "./put.ts";

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

const asItIs = (text: string): string => text;
const PLAIN = { green: asItIs, red: asItIs, yellow: asItIs, dim: asItIs, bold: asItIs };

/** Whether somebody looks; what is no device at all is told without making a stream of it. */
export const isTerminal = (output: Output): boolean =>
  fstatSync(DESCRIPTORS[output]).isCharacterDevice() && streamOf(output).isTTY;

/** `NO_COLOR` wins over `FORCE_COLOR`; a dumb terminal gets neither colour nor tables, a CI's no redrawn line. */
export async function openScreen(env: Readonly<Record<string, string | undefined>>, now: number): Promise<Screen> {
  const onTerminal = isTerminal("stdout");
  const dumb = env["TERM"] === "dumb";
  const isSet = (name: string) => env[name] !== undefined && env[name] !== "";
  const forced = isSet("FORCE_COLOR") && env["FORCE_COLOR"] !== "0";
  const colour = !isSet("NO_COLOR") && (forced || (onTerminal && !dumb && env["FORCE_COLOR"] !== "0"));
  const paint = colour ? (await import("picocolors")).default.createColors(true) : PLAIN;
  return {
    columns: onTerminal && !dumb ? streamOf("stdout").columns || USUAL_COLUMNS : null,
    redraws: isTerminal("stderr") && !dumb && !isSet("CI"),
    now,
    good: paint.green,
    bad: paint.red,
    warn: paint.yellow,
    dim: paint.dim,
    bold: paint.bold,
  };
}
