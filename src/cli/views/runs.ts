/** Runs for people. */
import { describeEscape, type Escape } from "../../core/escape.ts";
import { describeSize } from "../../core/size.ts";
import type { EventDocument, RunDocument, RunTreeDocument, WorktreeDocument } from "../../ops/documents.ts";
import type { Json } from "../../ops/fields.ts";
import type { Screen } from "../screen.ts";
import { inertLine, inertText, table, widthOf, wrap } from "../text.ts";
import { usageText } from "./transcript.ts";
import {
  against,
  command,
  distance,
  duration,
  facts,
  painted,
  plural,
  sentence,
  short,
  status,
  time,
} from "./words.ts";

export function runTable({ items }: { readonly items: readonly RunDocument[] }, screen: Screen): string {
  if (items.length === 0) return screen.columns === null ? "" : "no runs: drover run -- COMMAND\n";
  return table(
    [
      { title: "RUN" },
      { title: "STATUS" },
      { title: "LOOP", elastic: true, share: 1 / 4 },
      { title: "QUEUED" },
      { title: "TOOK", right: true },
      { title: "EXIT", right: true },
      { title: "REASON", elastic: true },
      { title: "COMMAND", elastic: true, least: 16 },
    ],
    items.map((run) => [
      screen.columns === null ? run.id : short(run.id),
      status(run.status, screen),
      run.loop ?? "-",
      screen.columns === null ? run.createdAt : distance(run.createdAt, screen),
      duration(run.durationMs),
      run.exitCode === null ? "-" : String(run.exitCode),
      run.reason ?? run.error?.class ?? "-",
      command(run.target),
    ]),
    screen,
  );
}

const ORIGINS: { readonly [origin: string]: string } = {
  slot: "a slot that was due",
  ad_hoc: "a loop started by hand",
  person: "a person",
  api: "a program",
  run: "another run",
  work_item: "a work item",
  retry: "a retry",
};

/** Where an output is and how large; of what is still written the size is not known yet. */
const logText = (file: string, bytes: number, finishedAt: string | null): string =>
  finishedAt === null && bytes === 0 ? file : `${file} (${describeSize(bytes)})`;

/** Who cancelled it and why; what says only who is not said twice. */
function cancelText({ by, reason }: { readonly by: string | null; readonly reason: string | null }): string {
  const who = by === null ? "somebody" : (ORIGINS[by] ?? by);
  return reason === null || reason === `cancelled by ${who}` ? who : `${who}: ${reason}`;
}

export function runPage(run: RunTreeDocument, screen: Screen): string {
  const head = `${screen.bold(run.id)}  ${painted(status(run.status, screen))}${run.reason === null ? "" : `  ${inertLine(run.reason)}`}\n`;
  const attempts = run.steps.flatMap((step) => step.attempts.map((attempt) => ({ step, attempt })));
  const newest = attempts.at(-1)?.attempt ?? null;
  const { cwd } = run.target as { cwd?: string };
  return (
    head +
    facts(
      [
        ["runs", inertLine(command(run.target))],
        ["in", inertLine(run.worktree === null ? (cwd ?? "") : run.worktree.path)],
        ["worktree", run.worktree === null ? noWorktree(run) : worktreeText(run.worktree)],
        ["escaped", run.worktree?.escaped == null ? null : screen.bad(escapedText(run.worktree.escaped))],
        ["account", run.account === null ? null : inertLine(run.account)],
        [
          "from",
          `${ORIGINS[run.origin] ?? run.origin}${run.loop === null ? "" : ` (${inertLine(run.loop)}${run.slotAt === null ? "" : `, ${time(run.slotAt)}`})`}${run.retryOf === null ? "" : ` of ${short(run.retryOf)}`}${run.parentRunId === null ? "" : ` (${short(run.parentRunId)})`}`,
        ],
        ["queued", time(run.createdAt)],
        ["started", run.startedAt === null ? null : time(run.startedAt)],
        ["ended", run.finishedAt === null ? null : `${time(run.finishedAt)}, ${distance(run.finishedAt, screen)}`],
        ["took", took(run, screen)],
        ["goes on", run.wakeAt === null ? null : `${time(run.wakeAt)}, ${distance(run.wakeAt, screen)}`],
        ["exit", run.exitCode === null ? null : String(run.exitCode)],
        ["error", run.error === null ? null : screen.bad(`${run.error.class}: ${inertLine(run.error.message)}`)],
        ["mend", run.remedy === null ? null : inertLine(run.remedy.words)],
        ["cancel", run.cancel === null ? null : inertLine(cancelText(run.cancel))],
        ["output", run.output === null ? null : inertLine(JSON.stringify(run.output))],
        ["usage", run.usage === null ? null : usageText(run.usage)],
        ["session", newest?.sessionId == null ? null : inertLine(newest.sessionId)],
        ["labels", run.labels.join(", ")],
        [
          "stdout",
          newest?.logs == null ? null : logText(newest.logs.stdout, newest.logs.stdoutBytes, newest.finishedAt),
        ],
        [
          "stderr",
          newest?.logs == null ? null : logText(newest.logs.stderr, newest.logs.stderrBytes, newest.finishedAt),
        ],
      ],
      screen,
    ) +
    stepTable(run, screen) +
    (attempts.length === 0
      ? ""
      : `\n${table(
          [
            { title: "STEP" },
            { title: "TRY", right: true },
            { title: "STATUS" },
            { title: "CLASS", spare: true },
            { title: "EXIT", right: true, spare: true },
            { title: "STARTED" },
            { title: "PID", right: true, spare: true },
            { title: "MESSAGE", wraps: true, least: 24 },
          ],
          attempts.map(({ step, attempt }) => [
            step.key,
            `${attempt.number}${attempt.counted === false ? "*" : ""}`,
            status(attempt.status, screen),
            attempt.class ?? "-",
            attempt.exitCode === null ? "-" : String(attempt.exitCode),
            screen.columns === null ? time(attempt.startedAt) : distance(attempt.startedAt, screen),
            attempt.pid === null ? "-" : String(attempt.pid),
            [
              // Said above already where it is the only one.
              attempts.length === 1 && attempt.message === run.error?.message ? null : attempt.message,
              attempt.reaped > 0 ? `${attempt.reaped} left-over processes ended` : null,
              attempt.adopted ? "adopted" : null,
            ]
              .filter((part) => part !== null)
              .join("; "),
          ]),
          screen,
        )}${attempts.some(({ attempt }) => attempt.counted === false) ? screen.dim("* used up no try\n") : ""}`) +
    (newest?.tail == null || newest.tail === "" || run.status === "succeeded"
      ? ""
      : `\n${screen.dim("last output")}\n${inertText(newest.tail.trimEnd())}\n`)
  );
}

/** The steps of a workflow; a run of one step has none to tell apart. */
function stepTable({ steps }: RunTreeDocument, screen: Screen): string {
  if (steps.length === 1 && steps[0]?.key === "main") return "";
  const rows = steps.map((step) => [
    inertLine(step.key),
    step.type,
    status(step.status, screen),
    step.reason === null ? "-" : inertLine(step.reason),
    step.needs.length === 0 ? "-" : inertLine(step.needs.join(", ")),
    step.output === null ? "-" : inertLine(JSON.stringify(step.output)),
  ]);
  return `\n${table(
    [
      { title: "STEP" },
      { title: "TYPE", spare: true },
      { title: "STATUS" },
      { title: "REASON" },
      { title: "NEEDS", elastic: true },
      { title: "OUTPUT", elastic: true },
    ],
    rows,
    screen,
  )}`;
}

/** How long it took, or has been at work, against the usual. */
function took(run: RunTreeDocument, screen: Screen): string | null {
  if (run.startedAt === null) return run.usualMs === null ? null : `usually ${duration(run.usualMs)}`;
  const ms = run.durationMs ?? Math.max(0, screen.now - Date.parse(run.startedAt));
  return `${run.finishedAt === null ? "so far " : ""}${against(ms, run.usualMs)}`;
}

/** What changed outside of its tree, by whom nobody knows. */
const escapedText = (escaped: Escape): string =>
  `the main checkout changed while it ran: ${inertLine(describeEscape(escaped))}; it may be the agent's doing or somebody else's`;

/** Said of an agent that has none, once it has started; a command has none unless somebody asked for one. */
function noWorktree({ target, startedAt }: RunDocument): string | null {
  const { kind, worktree } = target as { readonly kind?: string; readonly worktree?: string };
  if (startedAt === null || (kind !== "agent" && worktree !== "auto")) return null;
  return worktree === "auto"
    ? "none: it works in the folder itself, of which no worktree could be made (in no repository, or nothing in it is committed)"
    : "none: it works in the folder itself";
}

/** Where the branch began, what it holds, and whether it stays. */
function worktreeText(tree: WorktreeDocument): string {
  const { branch, base, baseNote, commits, diffStat, state, keptBecause, goneBecause } = tree;
  const parts = [
    branch !== null ? inertLine(branch) : state === "making" ? "not made yet" : null,
    base === null ? null : `from ${base.slice(0, 12)}${baseNote === null ? "" : ` (${inertLine(baseNote)})`}`,
    commits === null || commits === 0 ? null : plural(commits, "commit"),
    diffStat === null ? null : inertLine(diffStat.trim()),
    state === "removed" ? `gone: ${goneBecause === null ? "it held nothing" : inertLine(goneBecause)}` : null,
    keptBecause === null ? null : `kept: ${inertLine(keptBecause)}`,
  ];
  return parts.filter((part) => part !== null && part !== "").join(", ");
}

/** After a run was started and is not waited for: its id, alone, for scripts. */
export const runStarted = (run: RunDocument): string => `${run.id}\n`;

export function cancelled(answer: { readonly answer: string; readonly run: RunDocument }, screen: Screen): string {
  if (answer.answer === "already_ended")
    return `${short(answer.run.id)} had already ended: ${painted(status(answer.run.status, screen))}\n`;
  return `${short(answer.run.id)} ${painted(status(answer.run.status, screen))}\n`;
}

const SOURCES: { readonly [source: string]: string } = {
  ad_hoc: "a run of its own",
  due_slot: "the slot that was due",
  retry_slot: "the retry that was waiting",
};

export function loopStarted(answer: {
  readonly loop: string;
  readonly source: string;
  readonly runId: string | null;
  readonly skipped: string | null;
}): string {
  return answer.runId === null
    ? `${inertLine(answer.loop)} was not started: ${answer.skipped ?? "no reason"}\n`
    : `${answer.runId} (${SOURCES[answer.source] ?? answer.source})\n`;
}

/** Text that is put into sentences by operations for a reader of any place: an instant in UTC is shown as this host's. */
const local = (text: string): string =>
  text.replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,3})?Z/g, (found) => time(found));

export function why(
  answer: {
    readonly sentence: string;
    readonly facts: { readonly [key: string]: Json };
    readonly remedy: { readonly words: string } | null;
  },
  screen: Screen,
): string {
  const shown = Object.entries(answer.facts).flatMap(([key, value]): [string, string][] =>
    value === null || value === undefined
      ? []
      : Array.isArray(value)
        ? value.flatMap((one): [string, string][] => {
            const { step, sentence: said } = (one ?? {}) as { readonly step?: Json; readonly sentence?: Json };
            return typeof step === "string" && typeof said === "string"
              ? [[inertLine(step), inertLine(local(said))]]
              : [];
          })
        : typeof value === "object"
          ? Object.entries(value).flatMap(([inner, one]): [string, string][] =>
              one === null || typeof one === "object" ? [] : [[`${key}.${inner}`, inertLine(local(String(one)))]],
            )
          : [[key, inertLine(local(String(value)))]],
  );
  if (answer.remedy !== null) shown.push(["mend", inertLine(answer.remedy.words)]);
  return `${sentence(inertLine(local(answer.sentence)), screen)}${facts(shown, screen)}`;
}

export function eventLine(event: EventDocument, screen: Screen): string {
  const { at, subject, number, type, data } = event;
  const head = `${screen.dim(time(at))}  ${subject.kind} ${short(subject.id)} ${screen.dim(`#${number}`)}  ${inertLine(type)}`;
  if (Object.keys(data as object).length === 0) return `${head}\n`;
  const said = inertLine(JSON.stringify(data));
  if (screen.columns === null || widthOf(head) + 2 + widthOf(said) <= screen.columns)
    return `${head}  ${screen.dim(said)}\n`;
  const lines = wrap(said, Math.max(20, screen.columns - 4));
  return `${head}\n${lines.map((line) => `    ${screen.dim(line)}\n`).join("")}`;
}

export const eventList = ({ items }: { readonly items: readonly EventDocument[] }, screen: Screen): string =>
  items.map((event) => eventLine(event, screen)).join("");
