/** Backups and what is made of them, for people. */
import { describeSize } from "../../core/size.ts";
import type { Screen } from "../screen.ts";
import { inertLine } from "../text.ts";
import { facts, plural, time } from "./words.ts";

interface Contents {
  readonly schema: number;
  readonly bytes: number;
  readonly loops: number;
  readonly runs: number;
  readonly attempts: number;
  readonly lastEventAt: string | null;
}

const holds = ({ loops, runs, attempts, bytes }: Contents): string =>
  `${plural(loops, "loop")}, ${plural(runs, "run")}, ${plural(attempts, "attempt")}; ${describeSize(bytes)}`;

const upTo = ({ lastEventAt }: Contents): string =>
  lastEventAt === null ? "nothing yet" : `up to ${time(lastEventAt)}`;

export function backedUp(
  answer: { readonly file: string; readonly contents: Contents; readonly removed: readonly string[] },
  screen: Screen,
): string {
  return facts(
    [
      ["backup", inertLine(answer.file)],
      ["holds", `${holds(answer.contents)}, ${upTo(answer.contents)}`],
      ["checked", "read from end to end"],
      ["without", "whole logs, worktrees, logins, values of secrets, config.yaml"],
      ["removed", answer.removed.length === 0 ? null : `${plural(answer.removed.length, "older one")}`],
    ],
    screen,
  );
}

interface Restored {
  readonly file: string;
  readonly contents: Contents;
  readonly cancelled: number;
  readonly atWork: number;
  readonly missed: number;
  readonly pausedLoops: number;
  readonly replaced: string | null;
  readonly dryRun: boolean;
}

export function restored(answer: Restored, screen: Screen): string {
  const { cancelled, atWork, missed, pausedLoops, replaced, dryRun } = answer;
  const would = (done: string, planned: string) => (dryRun ? planned : done);
  const lines = facts(
    [
      [would("restored", "would restore"), inertLine(answer.file)],
      ["holds", `${holds(answer.contents)}, ${upTo(answer.contents)}`],
      [
        "cancelled",
        cancelled === 0
          ? "nothing was under way in it"
          : `${plural(cancelled, "run")} that had not ended in it${atWork === 0 ? "" : `, ${atWork} of them at work`}`,
      ],
      ["missed", missed === 0 ? "nothing was due since" : `what was due since, of ${plural(missed, "loop")}`],
      ["paused", pausedLoops === 0 ? null : plural(pausedLoops, "loop")],
      ["kept", replaced === null ? null : `what was there: ${inertLine(replaced)}`],
    ],
    screen,
  );
  const after =
    cancelled === 0
      ? "`drover up` starts the daemon; loops go on with their next instant.\n"
      : "`drover up` starts the daemon; loops go on with their next instant. `drover runs --status cancelled` shows what was cancelled, `drover retry RUN` starts it again.\n";
  return `${lines}${dryRun ? "Nothing was changed.\n" : after}`;
}

interface Collected {
  readonly runs: number;
  readonly keptRuns: number;
  readonly folders: number;
  readonly orphans: number;
  readonly prompts: number;
  readonly files: readonly string[];
  readonly replacedStores: readonly string[];
  readonly more: boolean;
  readonly dryRun: boolean;
}

export function collected(answer: Collected, screen: Screen): string {
  const { runs, keptRuns, folders, orphans, prompts, files, replacedStores, more, dryRun } = answer;
  const nothing = runs + folders + prompts + files.length === 0;
  const pages = facts(
    [
      [
        dryRun ? "would go" : "gone",
        nothing ? "nothing is past its time" : runs === 0 ? "no run" : plural(runs, "run"),
      ],
      [
        "folders",
        folders === 0
          ? null
          : `${plural(folders, "folder")} of attempts${orphans === 0 ? "" : `, ${orphans} of no run`}`,
      ],
      ["prompts", prompts === 0 ? null : plural(prompts, "prompt")],
      ...files.map((path) => ["file", inertLine(path)] as const),
      ["kept", keptRuns === 0 ? null : `${plural(keptRuns, "old run")}: the last of a loop, or still needed`],
      ...replacedStores.map((path) => ["replaced", `${inertLine(path)} stays; --replaced removes it`] as const),
    ],
    screen,
  );
  return `${pages}${more ? "There is more: ask again.\n" : ""}`;
}

interface Imported {
  readonly dryRun: boolean;
  readonly applied: boolean;
  readonly entries: readonly {
    readonly kind: string;
    readonly name: string;
    readonly outcome: string;
    readonly notes: readonly string[];
  }[];
  readonly counts: Readonly<Record<string, number>>;
  readonly todo: readonly string[];
  readonly history: { readonly runs: number; readonly slots: number } | null;
}

export function imported(answer: Imported, screen: Screen): string {
  const { entries, counts, todo, history, applied, dryRun } = answer;
  const paint = (outcome: string): string =>
    outcome === "conflict" || outcome === "blocked"
      ? screen.bad(outcome.padEnd(8))
      : outcome === "same" || outcome === "skip"
        ? screen.dim(outcome.padEnd(8))
        : screen.good(outcome.padEnd(8));
  const rows = entries.map(
    ({ kind, name, outcome, notes }) =>
      `${paint(outcome)}  ${kind.padEnd(7)}  ${inertLine(name)}${notes.length === 0 ? "" : `: ${inertLine(notes.join("; "))}`}\n`,
  );
  const total = Object.entries(counts)
    .filter(([, count]) => count > 0)
    .map(([word, count]) => `${count} ${word}`)
    .join(", ");
  const kept = (counts["conflict"] ?? 0) + (counts["blocked"] ?? 0) > 0;
  const end = applied
    ? `Imported: ${total === "" ? "nothing" : total}.${history === null ? "" : ` History: ${plural(history.runs, "run")} new.`}${(counts["create"] ?? 0) === 0 ? "" : " New loops are paused: `drover loop resume NAME`."}\n`
    : kept
      ? `Nothing was changed: ${total}. --replace takes the bundle's, --skip takes the rest.\n`
      : `${dryRun ? "Would import" : "Nothing to import"}: ${total === "" ? "nothing" : total}.\n`;
  return `${rows.join("")}${todo.map((one) => `to do: ${inertLine(one)}\n`).join("")}${end}`;
}
