/** Help on a terminal, from the registry and from an operation's own description. It fits 80 columns. */
import type { Entry } from "../ops/index.ts";
import type { AnyOperation } from "../ops/operation.ts";
import { commandOf, type PageEntry, pageOf } from "./page.ts";
import { wrap } from "./text.ts";
import { TOPICS, type Topic } from "./topics.ts";

/** Columns that help takes where there are as many. */
const COLUMNS = 80;
/** Where descriptions begin; a longer word has a line of its own. */
const ABOUT_AT = 26;

/** The groups of the first page, by what a name begins with; what fits none stands at the end. */
const GROUPS: readonly (readonly [string, readonly string[]])[] = [
  ["Daemon", ["up", "down", "status", "doctor", "daemon"]],
  ["Runs", ["run", "runs", "show", "manifest", "logs", "cancel", "retry", "why", "events"]],
  ["Loops and schedules", ["loop", "schedule", "apply"]],
  ["Workflows", ["workflow", "template"]],
  ["Agents", ["agent", "account", "worktree"]],
  ["Data", ["backup", "restore", "export", "import", "gc"]],
  ["Settings", ["limit", "config", "version", "completion"]],
];
/** Whether a command is one of a noun: `loop.add` of `loop`. */
export const isOf = (name: string, noun: string): boolean => name === noun || name.startsWith(`${noun}.`);

/** Commands by the groups of the first page. */
export function grouped(
  operations: readonly Entry[],
): readonly (readonly [title: string, entries: readonly Entry[]])[] {
  const shown = operations.filter((entry) => entry.hidden !== true);
  const groups = GROUPS.map(
    ([title, nouns]) => [title, nouns.flatMap((noun) => shown.filter(({ name }) => isOf(name, noun)))] as const,
  );
  const rest = shown.filter((entry) => !groups.some(([, entries]) => entries.includes(entry)));
  return [...groups, ["More", rest] as const].filter(([, entries]) => entries.length > 0);
}

/** What there is, for a program that reads help. */
export const commandList = (operations: readonly Entry[]) =>
  grouped(operations).flatMap(([group, entries]) =>
    entries.map(({ name, summary }) => ({ command: commandOf(name), group, summary })),
  );

const paragraph = (text: string, columns: number): string[] => wrap(text, columns);

/** Lines of a word and what it means, the meanings aligned. */
function list(rows: readonly (readonly [word: string, about: string])[], columns: number, at: number): string[] {
  return rows.flatMap(([word, about]) => {
    const lines = wrap(about, Math.max(20, columns - at));
    const indented = lines.map((line) => `${" ".repeat(at)}${line}`.trimEnd());
    if (word.length + 4 > at) return [`  ${word}`, ...indented];
    return [`  ${word.padEnd(at - 2)}${lines[0] ?? ""}`.trimEnd(), ...indented.slice(1)];
  });
}

const widest = (words: readonly string[]): number => Math.max(...words.map((word) => word.length)) + 4;

/** The first page. @param columns of the terminal; null where there is none */
export function overview(operations: readonly Entry[], columns: number | null): string {
  const width = Math.min(columns ?? COLUMNS, COLUMNS);
  const at = widest(operations.map(({ name }) => name));
  return [
    ...paragraph(
      "drover keeps commands and coding agents at work: on a schedule or on demand, under limits, across restarts.",
      width,
    ),
    "",
    "Usage: drover COMMAND [--json] [--help]",
    "",
    ...grouped(operations).flatMap(([title, entries]) => [
      title,
      ...list(
        entries.map(({ name, summary }) => [commandOf(name), brief(summary, width - at)] as const),
        width,
        at,
      ),
      "",
    ]),
    "Topics (`drover help TOPIC`)",
    ...list(
      TOPICS.map(({ name, summary }) => [name, summary] as const),
      width,
      at,
    ),
    "",
    "A first loop, and what becomes of it:",
    "  drover loop add fetch --every 15m -- git fetch",
    "  drover up",
    "  drover why fetch",
    "",
    ...paragraph("`drover help COMMAND` shows its flags and examples, `drover --version` the version.", width),
    "",
  ].join("\n");
}

/** A summary's first thought where the whole would take a second line. */
function brief(summary: string, columns: number): string {
  if (summary.length <= columns) return summary;
  const first = /^.*?(?=[;:] )/.exec(summary)?.[0];
  return first !== undefined && first.length <= columns ? first : summary;
}

/** The commands that begin with a noun; null when there are none. */
export function groupHelp(operations: readonly Entry[], noun: string, columns: number | null): string | null {
  const shown = operations.filter((entry) => entry.hidden !== true && entry.name.startsWith(`${noun}.`));
  if (shown.length === 0) return null;
  const width = Math.min(columns ?? COLUMNS, COLUMNS);
  return [
    `Usage: drover ${noun} COMMAND`,
    "",
    ...list(
      shown.map(({ name, summary }) => [commandOf(name), summary] as const),
      width,
      widest(shown.map(({ name }) => name)),
    ),
    "",
    `\`drover help ${noun} COMMAND\` shows flags and examples.`,
    "",
  ].join("\n");
}

/** What an entry is, with what applies when it is not given. */
const described = ({ about, usual, many }: PageEntry): string =>
  `${about}${usual === null ? "" : ` (usually ${usual})`}${many ? "; may be repeated" : ""}`;

const rowsOf = (entries: readonly PageEntry[]) =>
  entries.map((entry) => [entry.word.startsWith("--") ? `    ${entry.word}` : entry.word, described(entry)] as const);

/** The page of one command. @param columns of the terminal; null where there is none */
export function commandHelp(operation: AnyOperation, columns: number | null): string {
  const width = Math.min(columns ?? COLUMNS, COLUMNS);
  const page = pageOf(operation);
  const usual = page.sections.some(({ entries }) => entries.some((entry) => entry.usual !== null));
  const part = (title: string, lines: readonly string[]): string[] => (lines.length === 0 ? [] : [title, ...lines, ""]);
  return [
    ...wrap(`Usage: ${page.usage}`, width).map((line, index) => (index === 0 ? line : `    ${line}`)),
    "",
    ...paragraph(`${page.summary}. ${page.runs}`, width),
    "",
    ...part(
      "Words",
      list(
        page.words.map((entry) => [entry.word.replace(/^-- /, ""), described(entry)] as const),
        width,
        Math.min(ABOUT_AT, page.words.length === 0 ? 0 : widest(page.words.map(({ word }) => word))),
      ),
    ),
    ...page.sections.flatMap(({ title, entries }) => part(title, list(rowsOf(entries), width, ABOUT_AT))),
    ...part(
      "Only one of",
      page.excludes.map(([one, other]) => `  ${one}, ${other}`),
    ),
    ...part("Not available yet", page.later.length === 0 ? [] : wrap(`  ${page.later.join(" ")}`, width)),
    ...(page.notes.length === 0 ? [] : [...notes(page.notes, width), ""]),
    ...(usual
      ? [
          ...paragraph(
            "What is usual is built in; `drover config show` lists what config.yaml changes, each with its source.",
            width,
          ),
          "",
        ]
      : []),
    ...part(
      "Examples",
      page.examples.flatMap((example) => commandLines(example, width - 2)).map((line) => `  ${line}`),
    ),
    ...part(
      "Ends with",
      list(
        page.exits.map(([status, meaning]) => [String(status), meaning] as const),
        width,
        7,
      ),
    ),
  ].join("\n");
}

/** Notes as one text; what is indented keeps its line. */
function notes(lines: readonly string[], columns: number): string[] {
  const texts: string[] = [];
  for (const line of lines) {
    const before = texts.at(-1);
    if (before === undefined || line.startsWith(" ") || before.startsWith(" ")) texts.push(line);
    else texts[texts.length - 1] = `${before} ${line}`;
  }
  return texts.flatMap((text) => (text.startsWith(" ") ? [text] : wrap(text, columns)));
}

/** A command line in lines that a shell takes as one: broken between words, never inside quotes. */
function commandLines(text: string, columns: number): string[] {
  if (text.length <= columns) return [text];
  // A flag stays with its value.
  const words = text.match(/(?:--?[a-z][\w-]* (?=[^-]))?(?:'[^']*'|"[^"]*"|\\.|[^ '"])+/g) ?? [];
  const lines: string[] = [];
  for (const word of words) {
    const line = lines.at(-1);
    if (line === undefined || `${line} ${word} \\`.length > columns)
      lines.push(`${line === undefined ? "" : "    "}${word}`);
    else lines[lines.length - 1] = `${line} ${word}`;
  }
  return lines.map((line, index) => (index === lines.length - 1 ? line : `${line} \\`));
}

/** The page of a topic. */
export function topicHelp({ summary, parts }: Topic, columns: number | null): string {
  const width = Math.min(columns ?? COLUMNS, COLUMNS);
  return [
    `${summary}.`,
    "",
    ...parts.flatMap((part) =>
      typeof part === "string"
        ? [...paragraph(part, width), ""]
        : [...list(part, width, Math.min(ABOUT_AT, widest(part.map(([word]) => word)))), ""],
    ),
  ].join("\n");
}
