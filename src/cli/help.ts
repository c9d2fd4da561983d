/** Help, from the registry and from an operation's own description. */
import type { Field } from "../ops/fields.ts";
import { flagOf } from "../ops/fields.ts";
import type { Entry } from "../ops/index.ts";
import type { AnyOperation } from "../ops/operation.ts";
import { COMMON_FLAGS } from "./arguments.ts";

/** The groups of the first page, by what a name begins with; what fits none stands at the end. */
const GROUPS: readonly (readonly [string, readonly string[]])[] = [
  ["Daemon", ["up", "down", "status", "doctor", "daemon"]],
  ["Runs", ["run", "runs", "show", "logs", "cancel", "retry", "why", "events"]],
  ["Loops and schedules", ["loop", "schedule", "import"]],
  ["Agents", ["agent", "account", "worktree"]],
  ["Settings", ["limit", "config", "version", "completion"]],
];

const commandOf = (name: string): string => name.replaceAll(".", " ");
const pad = (text: string, width: number): string => text.padEnd(width);

/** The first page. */
export function overview(operations: readonly Entry[]): string {
  const shown = operations.filter((entry) => entry.hidden !== true);
  const width = Math.max(...shown.map((entry) => entry.name.length)) + 2;
  const lines = [
    "drover keeps commands and coding agents at work: on a schedule or on demand, under limits, across restarts.",
    "",
    "Usage: drover COMMAND [--json] [--help]",
    "",
  ];
  for (const [title, names] of GROUPS) {
    lines.push(title);
    for (const name of names)
      for (const entry of shown)
        if (entry.name === name || entry.name.startsWith(`${name}.`))
          lines.push(`  ${pad(commandOf(entry.name), width)}${entry.summary}`);
    lines.push("");
  }
  lines.push("`drover COMMAND --help` shows flags and examples; `drover --version` the version.", "");
  return lines.join("\n");
}

/** The commands that begin with a noun; null when there are none. */
export function groupHelp(operations: readonly Entry[], noun: string): string | null {
  const shown = operations.filter((entry) => entry.hidden !== true && entry.name.startsWith(`${noun}.`));
  if (shown.length === 0) return null;
  const width = Math.max(...shown.map((entry) => entry.name.length)) + 2;
  return [
    `Usage: drover ${noun} COMMAND`,
    "",
    ...shown.map((entry) => `  ${pad(commandOf(entry.name), width)}${entry.summary}`),
    "",
    `\`drover ${noun} COMMAND --help\` shows flags and examples.`,
    "",
  ].join("\n");
}

/** The page of one command. */
export function commandHelp(operation: AnyOperation): string {
  const { input, cli } = operation;
  const positionals = cli.positionals ?? [];
  const lines = [`Usage: drover ${usage(operation)}`, "", `${operation.summary}.`, ""];
  const words = positionals.map((key) => [placeholderOf(key, input[key]), input[key]?.about ?? ""] as const);
  if (cli.rest !== undefined) words.push(["COMMAND ...", input[cli.rest]?.about ?? ""]);
  if (words.length > 0) {
    const width = Math.max(...words.map(([word]) => word.length)) + 2;
    lines.push("Words", ...words.map(([word, about]) => `  ${pad(word, width)}${about}`), "");
  }
  const flags = Object.entries(input).filter(([key]) => !positionals.includes(key) && key !== cli.rest);
  const now = flags.filter(([, field]) => !field.later);
  const later = flags.filter(([, field]) => field.later);
  const shown = [...now, ...Object.entries(COMMON_FLAGS)].map(([key, field]) => [flagText(key, field), field] as const);
  const width = Math.min(34, Math.max(...shown.map(([text]) => text.length)) + 2);
  lines.push("Flags");
  for (const [text, field] of shown) {
    const about =
      field.about +
      (field.fallback === null ? "" : ` (usually ${field.fallback})`) +
      (field.many ? "; may be repeated" : "");
    if (text.length + 2 > width) lines.push(`  ${text}`, `  ${" ".repeat(width)}${about}`);
    else lines.push(`  ${pad(text, width)}${about}`);
  }
  lines.push("");
  if (later.length > 0)
    lines.push(`Not available yet: ${later.map(([key, field]) => `--${flagOf(key, field)}`).join(" ")}`, "");
  if (cli.notes !== undefined) lines.push(...cli.notes, "");
  if (cli.examples !== undefined) lines.push("Examples", ...cli.examples.map((example) => `  drover ${example}`), "");
  return lines.join("\n");
}

function usage({ name, input, cli }: AnyOperation): string {
  const words = (cli.positionals ?? []).map((key) => {
    const word = placeholderOf(key, input[key]) + (input[key]?.many === true ? "..." : "");
    return input[key]?.required === true ? word : `[${word}]`;
  });
  return [commandOf(name), ...words, "[FLAGS]", ...(cli.rest === undefined ? [] : ["[-- COMMAND ...]"])].join(" ");
}

const placeholderOf = (key: string, field: Field<unknown> | undefined): string =>
  field?.placeholder ?? key.toUpperCase();

function flagText(key: string, field: Field<unknown>): string {
  const value =
    field.placeholder === null ? "" : field.bare === null ? ` ${field.placeholder}` : ` [${field.placeholder}]`;
  return `${field.short === null ? "    " : `-${field.short}, `}--${flagOf(key, field)}${value}`;
}
