/** Imports for people: each line, and what was understood. */
import type { ImportAnswer, ImportedLoop, ImportEntry } from "../../ops/imports/import-plan.ts";
import type { LoopPolicy } from "../../core/loop.ts";
import { formatDuration } from "../../core/duration.ts";
import type { Screen } from "../screen.ts";
import { inertLine, wrap } from "../text.ts";
import { command, plural, schedule } from "./words.ts";

/** Where the text of a line begins, behind its number. */
const INDENT = 7;

export function imported(answer: ImportAnswer, screen: Screen): string {
  const { entries, counts, notes, dryRun, refused, imported: made } = answer;
  const lines: string[] = [];
  let source: string | null = null;
  for (const entry of entries) {
    if (entry.source !== source) {
      if (source !== null) lines.push("");
      source = entry.source;
      lines.push(screen.bold(inertLine(source)));
    }
    const text = inertLine(entry.text);
    lines.push(
      `${screen.dim(String(entry.line).padStart(INDENT - 2))}  ${entry.kind === "comment" ? screen.dim(text) : text}`,
    );
    lines.push(...understood(entry, screen));
  }
  if (entries.length === 0) lines.push("there is nothing in it");
  lines.push("");
  const parts = [
    `${plural(counts.new, "new loop")}${counts.new > 0 && made ? ", paused" : ""}`,
    counts.same > 0 ? `${counts.same} there already` : null,
    counts.changed > 0 ? `${counts.changed} changed here` : null,
    counts.left > 0 ? `${counts.left} left` : null,
    counts.problems > 0 ? screen.bad(plural(counts.problems, "problem")) : null,
  ];
  lines.push(parts.filter((part) => part !== null).join(", "));
  if (refused)
    lines.push(
      ...said(
        "",
        "Nothing was imported. Correct the problems, or import the rest with --skip-invalid.",
        plain,
        screen,
        0,
      ),
    );
  else if (dryRun) lines.push("This was a dry run: nothing was changed.");
  for (const note of notes) lines.push(...said("", note, screen.dim, screen, 2));
  const first = entries.find((entry) => entry.outcome === "new")?.loop;
  if (made && first != null)
    lines.push(
      ...said(
        "",
        `Look at one with \`drover loop show ${word(first.name)}\`, start it with \`drover loop resume ${word(first.name)}\`.`,
        plain,
        screen,
        0,
      ),
    );
  return `${lines.join("\n")}\n`;
}

const word = (name: string): string => (/^[\w@%+=:,./-]+$/.test(name) ? name : `'${name}'`);

/** Lines of a text below a line, wrapped on a terminal. */
function said(
  mark: string,
  text: string,
  paint: (text: string) => string,
  screen: Screen,
  indent = INDENT,
): readonly string[] {
  const safe = inertLine(text);
  const pad = " ".repeat(indent);
  const rows = screen.columns === null ? [safe] : wrap(safe, Math.max(20, screen.columns - indent - mark.length));
  return rows.map((row, index) => `${pad}${index === 0 ? mark : " ".repeat(mark.length)}${paint(row)}`);
}

const plain = (text: string): string => text;

function understood(entry: ImportEntry, screen: Screen): readonly string[] {
  const { kind, loop, outcome, reason, hint, notes } = entry;
  const more = notes.flatMap((note) => said("! ", note, screen.dim, screen));
  const because = `${reason ?? ""}${hint === null ? "" : `. ${hint}`}`;
  if (kind === "problem") return [...said("problem: ", because, screen.bad, screen), ...more];
  if (kind === "left") return [...said("left: ", because, screen.warn, screen), ...more];
  if (loop === null || outcome === null) return more;
  const head = {
    new: `loop ${loop.name}, paused: `,
    same: `there already as ${loop.name}: `,
    changed: `changed here, left as it is: ${loop.name}, from `,
  }[outcome];
  const facts = [
    schedule(loop.schedule),
    runs(loop, entry.text),
    `in ${loop.cwd}`,
    loop.env.length === 0 ? null : `with ${loop.env.join(", ")}`,
    policyText(loop.policy as Partial<LoopPolicy>),
  ].filter((part) => part !== null && part !== "");
  return [...said("", head + facts.join("; "), outcome === "new" ? screen.good : plain, screen), ...more];
}

/** What it runs, where the line does not say it: of a line of a crontab only the shell is new. */
function runs({ argv, shell }: ImportedLoop, text: string): string {
  const [program = "", flag, script = ""] = argv;
  if (flag === "-c" && argv.length === 3 && text.endsWith(script)) return program;
  return command({ kind: "command", argv, shell });
}

function policyText(policy: Partial<LoopPolicy>): string {
  const { jitterMs, timeoutMs, catchUp, attempts, backoffMs, graceMs, overlap } = policy;
  return [
    jitterMs === undefined ? null : `jitter ${formatDuration(jitterMs)}`,
    timeoutMs == null ? null : `timeout ${formatDuration(timeoutMs)}`,
    catchUp === undefined ? null : `catch-up ${catchUp}`,
    attempts === undefined ? null : `${attempts} attempts`,
    backoffMs === undefined ? null : `backoff ${formatDuration(backoffMs)}`,
    graceMs === undefined ? null : `grace ${formatDuration(graceMs)}`,
    overlap === undefined ? null : `overlap ${overlap}`,
  ]
    .filter((part) => part !== null)
    .join("; ");
}
