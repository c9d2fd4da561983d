/** What there is to say of a command, from its operation alone: help, the reference and the man pages are three ways to print it. */
import { type Field, flagOf } from "../ops/fields.ts";
import type { AnyOperation } from "../ops/operation.ts";
import { COMMON_FLAGS } from "./arguments.ts";
import { EXIT_MEANINGS, exitsOf } from "./exits.ts";

export interface PageEntry {
  /** As it is typed: `NAME`, `-n, --tail N`. */
  readonly word: string;
  readonly about: string;
  /** What applies when it is not given; null where nothing does. */
  readonly usual: string | null;
  readonly many: boolean;
}

export interface Section {
  readonly title: string;
  readonly entries: readonly PageEntry[];
}

export interface Page {
  /** `loop add`. */
  readonly command: string;
  readonly usage: string;
  readonly summary: string;
  /** Where it does its work, in words. */
  readonly runs: string;
  /** Words given by place. */
  readonly words: readonly PageEntry[];
  /** Flags; those of every command stand in the last one. */
  readonly sections: readonly Section[];
  /** Flags of parts that do not exist yet. */
  readonly later: readonly string[];
  /** Flags of which only one may be given. */
  readonly excludes: readonly (readonly [string, string])[];
  readonly notes: readonly string[];
  readonly exits: readonly (readonly [status: number, meaning: string])[];
  /** Whole command lines, with `drover`. */
  readonly examples: readonly string[];
}

export const commandOf = (name: string): string => name.replaceAll(".", " ");

const RUNS: { readonly [where: string]: string } = {
  read: "It reads the store, whether or not a daemon runs",
  write: "The daemon does it; without one the command does it itself",
  act: "The daemon does it",
  local: "The command does it itself",
};

export function pageOf(operation: AnyOperation): Page {
  const { name, input, cli, where, start, summary } = operation;
  const positionals = cli.positionals ?? [];
  const words = positionals.map((key) => entryOf(input[key], placeholderOf(key, input[key])));
  if (cli.rest !== undefined) words.push(entryOf(input[cli.rest], "-- COMMAND ..."));
  const flags = Object.entries(input).filter(([key]) => !positionals.includes(key) && key !== cli.rest);
  const shown = flags.filter(([, field]) => !field.later);
  const titled = (cli.sections ?? []).map(([title, keys]) => ({
    title,
    entries: shown.filter(([key]) => keys.includes(key)),
  }));
  const loose = shown.filter(([key]) => !(cli.sections ?? []).some(([, keys]) => keys.includes(key)));
  const sections = [
    { title: "Flags", entries: loose },
    ...titled,
    { title: "Flags of every command", entries: Object.entries(COMMON_FLAGS) },
  ]
    .filter(({ entries }) => entries.length > 0)
    .map(({ title, entries }) => ({
      title,
      entries: entries.map(([key, field]) => entryOf(field, flagText(key, field))),
    }));
  const nameOf = (key: string): string => {
    const field = input[key];
    return field === undefined || positionals.includes(key) ? key : `--${flagOf(key, field)}`;
  };
  return {
    command: commandOf(name),
    usage: `drover ${usage(operation)}`,
    summary,
    runs: `${RUNS[where] ?? ""}${start ? ", and is started where none runs" : ""}.`,
    words,
    sections,
    later: flags.filter(([, field]) => field.later).map(([key, field]) => `--${flagOf(key, field)}`),
    excludes: (cli.excludes ?? []).map(([one, other]) => [nameOf(one), nameOf(other)]),
    notes: cli.notes ?? [],
    exits: EXIT_MEANINGS.filter(([status]) => exitsOf(operation).includes(status)),
    examples: (cli.examples ?? []).map((example) => `drover ${example}`),
  };
}

/** Characters of choices that stand beside a flag; longer ones stand in its description. */
const CHOICES_BESIDE = 40;
const isLong = ({ choices, placeholder }: Field<unknown>): boolean =>
  choices !== null && placeholder === choices.join("|") && placeholder.length > CHOICES_BESIDE;

const entryOf = (field: Field<unknown> | undefined, word: string): PageEntry => ({
  word,
  about: field === undefined ? "" : field.about + (isLong(field) ? `: ${field.choices?.join(", ")}` : ""),
  usual: field?.fallback ?? null,
  many: field?.many === true && field.placeholder !== null && !word.startsWith("-- "),
});

function usage({ name, input, cli }: AnyOperation): string {
  const words = (cli.positionals ?? []).map((key) => {
    const word = placeholderOf(key, input[key]) + (input[key]?.many === true ? "..." : "");
    return input[key]?.required === true ? word : `[${word}]`;
  });
  const obligatory = Object.entries(input)
    .filter(([key, field]) => field.required && cli.positionals?.includes(key) !== true && key !== cli.rest)
    .map(([key, field]) => flagText(key, field).trim());
  return [
    commandOf(name),
    ...words,
    ...obligatory,
    "[FLAGS]",
    ...(cli.rest === undefined ? [] : ["[-- COMMAND ...]"]),
  ].join(" ");
}

const placeholderOf = (key: string, field: Field<unknown> | undefined): string =>
  field === undefined || field.placeholder === null || isLong(field) ? key.toUpperCase() : field.placeholder;

function flagText(key: string, field: Field<unknown>): string {
  const word = placeholderOf(key, field);
  const value = field.placeholder === null ? "" : field.bare === null ? ` ${word}` : ` [${word}]`;
  return `${field.short === null ? "" : `-${field.short}, `}--${flagOf(key, field)}${value}`;
}
