/** Words that several views share: times, statuses, commands. */
import { describeDuration, formatDuration } from "../../core/duration.ts";
import { shortId } from "../../core/ids.ts";
import { formatOffset } from "../../core/zone.ts";
import type { AgentTarget, WorkflowTarget } from "../../core/target.ts";
import type { Warning } from "../../ops/documents.ts";
import type { Json } from "../../ops/fields.ts";
import type { Screen } from "../screen.ts";
import { type Cell, inertLine, widthOf, wrap } from "../text.ts";
import { shellWord } from "../../core/shell-word.ts";

/** An instant in this host's local time with its offset: `2026-05-01 02:30:00 +02:00`. */
export function time(iso: string | null): string {
  if (iso === null) return "-";
  const at = new Date(iso);
  const offsetMs = -at.getTimezoneOffset() * 60_000;
  const local = new Date(at.getTime() + offsetMs).toISOString().slice(0, 19).replace("T", " ");
  return `${local} ${formatOffset(offsetMs)}`;
}

/** How far an instant is from now: `in 5m`, `3h ago`. */
export function distance(iso: string | null, screen: Screen): string {
  if (iso === null) return "-";
  const ms = Date.parse(iso) - screen.now;
  return ms >= 0 ? `in ${describeDuration(ms)}` : `${describeDuration(-ms)} ago`;
}

export const duration = (ms: number | null): string => (ms === null ? "-" : describeDuration(ms));
export const short = (id: string | null): string => (id === null ? "-" : shortId(id));
export const plural = (count: number, one: string, many = `${one}s`): string => `${count} ${count === 1 ? one : many}`;

const GOOD = new Set(["succeeded", "up", "ok", "active"]);
const BAD = new Set(["failed", "timed_out", "lost", "problem", "error", "unresponsive", "down", "auth"]);
const WARN = new Set([
  "waiting",
  "missed",
  "skipped",
  "cancelled",
  "paused",
  "warning",
  "draining",
  "fenced",
  "held",
  "disabled",
  "throttled",
  "quota",
]);

/** A status painted by its meaning; the word says it too. */
export function status(word: string | null, screen: Screen, text: string = word ?? "-"): Cell {
  const paint =
    word === null
      ? undefined
      : GOOD.has(word)
        ? screen.good
        : BAD.has(word)
          ? screen.bad
          : WARN.has(word)
            ? screen.warn
            : undefined;
  return { text, paint };
}

export const painted = (cell: Cell): string =>
  cell.paint === undefined ? inertLine(cell.text) : cell.paint(inertLine(cell.text));

/** A schedule's document in one short text. */
export function schedule(document: Json): string {
  const { kind, everyMs, expression, zone, at } = document as {
    kind: string;
    everyMs?: number;
    expression?: string;
    zone?: string;
    at?: string;
  };
  if (kind === "interval") return `every ${formatDuration(everyMs ?? 0)}`;
  if (kind === "cron") return `cron ${expression} ${zone}`;
  if (kind === "once") return `at ${at}`;
  return kind;
}

/** A target's command in one line, as a person would type it. */
export function command(document: Json): string {
  const { argv = [], shell, kind } = document as { argv?: readonly string[]; shell?: boolean; kind?: string };
  if (kind === "agent") {
    const { provider, account, command: own, prompt } = document as unknown as AgentTarget;
    const who = own === null ? provider : (own[0].split("/").at(-1) ?? provider);
    return `${who}${account === "default" ? "" : ` (${account})`}: ${prompt.head}`;
  }
  if (kind === "workflow") return (document as unknown as WorkflowTarget).name;
  if (shell === true) return argv[2] ?? "";
  return argv.map(shellWord).join(" ");
}

/** Narrower than this a value begins a line of its own below its name. */
const LEAST_VALUE = 24;

/** Lines of a name and a value, names aligned, long values in several lines on a terminal. Absent values are left out. */
export function facts(pairs: readonly (readonly [string, string | null | undefined])[], screen: Screen): string {
  const given = pairs.filter((pair): pair is readonly [string, string] => pair[1] != null && pair[1] !== "");
  const width = Math.max(0, ...given.map(([name]) => name.length)) + 2;
  const { columns } = screen;
  return given
    .map(([name, value]) => {
      const head = screen.dim(name.padEnd(width));
      if (columns === null || widthOf(value) <= columns - width) return `${head}${value}\n`;
      // An id or a path that would be broken beside its name is whole below it.
      const longest = Math.max(...value.split(" ").map(widthOf));
      const below = columns - width < LEAST_VALUE || (longest > columns - width && longest <= columns - 2);
      const indent = " ".repeat(below ? 2 : width);
      const lines = wrap(value, columns - indent.length);
      return below
        ? `${screen.dim(name)}\n${lines.map((line) => `${indent}${line}\n`).join("")}`
        : `${head}${lines.join(`\n${indent}`)}\n`;
    })
    .join("");
}

/** A sentence in lines that fit. */
export const sentence = (text: string, screen: Screen, indent = ""): string =>
  screen.columns === null
    ? `${indent}${text}\n`
    : wrap(text, Math.max(1, screen.columns - indent.length))
        .map((line) => `${indent}${line}\n`)
        .join("");

/** Each in lines of its own, what to do below it. */
export const warnings = (all: readonly Warning[], screen: Screen): string =>
  all
    .map((one) => {
      const said = `${inertLine(one.message)}: ${inertLine(one.hint)}`;
      if (screen.columns === null || widthOf(said) + 2 <= screen.columns) return `${screen.warn("!")} ${said}\n`;
      const text = sentence(inertLine(one.message), screen, "  ").slice(2);
      return `${screen.warn("!")} ${text}${sentence(inertLine(one.hint), screen, "  ")}`;
    })
    .join("");

/** How long something took, beside how long it usually takes. */
export const against = (ms: number | null, usualMs: number | null): string =>
  usualMs === null ? duration(ms) : `${duration(ms)}, usually ${duration(usualMs)}`;
