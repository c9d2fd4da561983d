/**
 * What all benches are made of: their options, cases in processes of their own, and a report that says the same things in
 * the same order: versions, durability, each measure with its spread, each bar as a ratio, reached or not.
 *
 * Options of every bench: `--rounds N`, `--only WORD` for the bars and cases with that word, `--json FILE` (or a folder), and `--tiny` for
 * sizes that only show that the bench works, without peers: no ratio of it means anything, and no bar is held against it.
 */
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { lastLine } from "./process.ts";
import { type Cases, interleave, quantile, type Ratio, type Rounds, type Sample, valuesOf } from "./rounds.ts";

/** What a bench declares. */
export interface BenchPlan {
  /** The bars of docs that it is about, such as `P1`. */
  readonly bars: readonly string[];
  /** Cases that have a process of their own, by name: each answers one sample. */
  readonly cases?: { readonly [name: string]: (input: never) => Promise<Sample> };
  /** Rounds unless told otherwise. */
  readonly rounds?: number;
}

/** A limit of a ratio, in either direction. */
export type BarLimit = { readonly atMost: number } | { readonly atLeast: number };

export interface Frame {
  readonly rounds: number;
  readonly tiny: boolean;
  /** The larger of two sizes, or with `--tiny` the smaller. */
  size(full: number, tiny: number): number;
  /** Whether `--only` leaves that bar or case in. */
  wants(word: string): boolean;
  /** Runs a case of the plan in a fresh process and answers what it measured. Errors: when it does not end well, with what it said. */
  inProcess(name: string, input: unknown, nodeOptions?: readonly string[]): Promise<Sample>;
  /** Runs cases in turn, telling of each round. */
  interleave<Case extends string>(cases: Cases<Case>): Promise<Rounds<Case>>;
  /** Says with what and how durably it was measured. */
  about(facts: Readonly<Record<string, string>>): void;
  /** One line of figures: median, and the least and the greatest of the rounds. */
  measure(what: string, samples: readonly Sample[], measure: string, unit: string): void;
  /** A bar: a ratio of two measures of the same rounds, and whether it is reached. */
  bar(bar: string, what: string, ratio: Ratio, limit: BarLimit): void;
  /** A bar whose measure stands for itself, such as a 99th percentile in ms: held against the median of the rounds. */
  value(bar: string, what: string, samples: readonly Sample[], measure: string, unit: string, limit: BarLimit): void;
  say(text: string): void;
  /** Writes `--json`, and ends with 1 when a bar was not reached. */
  end(): void;
}

const number = (value: number): string =>
  Math.abs(value) >= 1000
    ? Math.round(value).toLocaleString("en-US")
    : Math.abs(value) >= 100
      ? value.toFixed(0)
      : Math.abs(value) >= 10
        ? value.toFixed(1)
        : value.toFixed(2);

const version = (name: string): string => {
  try {
    return (JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")) as { version: string }).version;
  } catch {
    return "absent";
  }
};

/**
 * Opens a bench. In a process that was started for one of its cases it runs that case instead, prints its sample and never
 * returns.
 */
export async function openFrame(plan: BenchPlan): Promise<Frame> {
  const { values } = parseArgs({
    options: {
      rounds: { type: "string", default: String(plan.rounds ?? 5) },
      only: { type: "string" },
      json: { type: "string" },
      tiny: { type: "boolean", default: false },
      case: { type: "string" },
      input: { type: "string", default: "null" },
    },
  });
  if (values.case !== undefined) {
    const one = plan.cases?.[values.case];
    if (one === undefined) throw new Error(`there is no case ${values.case}`);
    const sample = await one(JSON.parse(values.input) as never);
    process.stdout.write(`\n${JSON.stringify(sample)}\n`, () => process.exit(0));
    return new Promise(() => {});
  }
  const { tiny } = values;
  const rounds = tiny ? 1 : Number(values.rounds);
  const facts: Record<string, string> = { node: process.version, cores: String(cpus().length) };
  const measures: unknown[] = [];
  const bars: { readonly bar: string; readonly reached: boolean | null }[] = [];
  const say = (text: string): void => console.log(text);

  function judge(
    bar: string,
    what: string,
    value: number,
    shown: string,
    limit: BarLimit,
    more: Readonly<Record<string, unknown>>,
  ): void {
    const isHeld = "atMost" in limit ? value <= limit.atMost : value >= limit.atLeast;
    const reached = tiny ? null : isHeld;
    const words = "atMost" in limit ? `at most ${limit.atMost}` : `at least ${limit.atLeast}`;
    bars.push({ bar, reached, ...{ what, value, limit, ...more } });
    say(
      `${bar.padEnd(5)} ${what.padEnd(62)} ${shown}  ${words}: ${reached === null ? "not judged" : reached ? "reached" : "NOT REACHED"}`,
    );
  }

  return {
    rounds,
    tiny,
    size: (full, small) => (tiny ? small : full),
    wants: (word) => values.only === undefined || word.toLowerCase().includes(values.only.toLowerCase()),
    inProcess: (name, input, nodeOptions = []) =>
      lastLine([
        ...process.execArgv,
        ...nodeOptions,
        process.argv[1] ?? "",
        "--case",
        name,
        "--input",
        JSON.stringify(input),
      ]),
    interleave: (cases) =>
      interleave(rounds, cases, (round) => {
        process.stderr.write(`round ${round + 1} of ${rounds}, load ${(loadavg()[0] ?? 0).toFixed(1)}\n`);
      }),
    about(more) {
      Object.assign(facts, more);
      say(
        Object.entries(facts)
          .map(([name, value]) => `${name} ${value}`)
          .join("; "),
      );
      say(
        tiny ? "one round of tiny sizes: no ratio means anything\n" : `${rounds} rounds, the order turned each time\n`,
      );
    },
    measure(what, samples, measure, unit) {
      const all = valuesOf(samples, measure);
      measures.push({ what, measure, unit, values: all });
      const [least, greatest] = [Math.min(...all), Math.max(...all)];
      say(`${what.padEnd(68)} ${number(quantile(all, 0.5))} ${unit} (${number(least)}-${number(greatest)})`);
    },
    bar(bar, what, { ratio: value, min, max }, limit) {
      judge(bar, what, value, `${number(value)} times (${number(min)}-${number(max)})`, limit, { min, max });
    },
    value(bar, what, samples, measure, unit, limit) {
      const all = valuesOf(samples, measure);
      const [least, greatest] = [Math.min(...all), Math.max(...all)];
      const median = quantile(all, 0.5);
      judge(bar, what, median, `${number(median)} ${unit} (${number(least)}-${number(greatest)})`, limit, { unit });
    },
    say,
    end() {
      const document = { bars: plan.bars, rounds, tiny, facts, measures, results: bars };
      if (values.json !== undefined) {
        const isFolder = statSync(values.json, { throwIfNoEntry: false })?.isDirectory() === true;
        const file = isFolder ? join(values.json, `${plan.bars.join("-").toLowerCase()}.json`) : values.json;
        writeFileSync(file, `${JSON.stringify(document, null, 1)}\n`);
      }
      if (bars.some(({ reached }) => reached === false)) process.exitCode = 1;
    },
  };
}

/** The SQLite that our store uses under this Node. */
export const sqliteFacts = (): Readonly<Record<string, string>> => ({ "better-sqlite3": version("better-sqlite3") });
