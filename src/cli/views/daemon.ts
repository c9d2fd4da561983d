/** The daemon, settings and findings for people. */
import { describeDuration } from "../../core/duration.ts";
import type { Warning } from "../../ops/documents.ts";
import type { Finding } from "../../ops/operation.ts";
import type { Screen } from "../screen.ts";
import { inertLine, table, wrap } from "../text.ts";
import { distance, facts, painted, plural, status, time, warnings } from "./words.ts";

export function up(answer: { readonly state: string; readonly started: boolean; readonly pid: number | null }): string {
  if (answer.state === "down") return "";
  return `${answer.started ? "drover is up" : "drover is already up"} (pid ${answer.pid})\n`;
}

export function down(answer: {
  readonly stopped: boolean;
  readonly pid: number | null;
  readonly left: number | null;
}): string {
  const left = answer.left === null || answer.left === 0 ? "" : `; ${plural(answer.left, "run goes", "runs go")} on`;
  return answer.stopped ? `drover is down (was pid ${answer.pid})${left}\n` : `drover was not up${left}\n`;
}

interface Status {
  readonly daemon: {
    readonly state: string;
    readonly mode: string | null;
    readonly pid: number | null;
    readonly version: string | null;
    readonly uptimeMs: number | null;
  };
  readonly store: { readonly kind: string; readonly location: string };
  readonly host: { readonly id: string | null; readonly name: string | null; readonly status: string | null };
  readonly runs: { readonly running: number; readonly queued: number; readonly waiting: number };
  readonly next: { readonly loop: string; readonly at: string } | null;
  readonly warnings: readonly Warning[];
}

export function statusPage(answer: Status, screen: Screen): string {
  const { daemon, store, host, runs, next } = answer;
  const about = [
    daemon.pid === null ? null : `pid ${daemon.pid}`,
    daemon.version === null ? null : `version ${daemon.version}`,
    daemon.uptimeMs === null ? null : `for ${describeDuration(daemon.uptimeMs)}`,
    daemon.mode === "until_idle" ? "until it is idle" : null,
  ].filter((part) => part !== null);
  return (
    facts(
      [
        ["daemon", `${painted(status(daemon.state, screen))}${about.length === 0 ? "" : ` (${about.join(", ")})`}`],
        ["store", `${store.kind} ${inertLine(store.location)}`],
        [
          "host",
          host.name === null ? null : `${inertLine(host.name)}${host.status === null ? "" : ` (${host.status})`}`,
        ],
        ["runs", `${runs.running} running, ${runs.queued} queued, ${runs.waiting} waiting`],
        [
          "next",
          next === null
            ? "nothing is scheduled"
            : `${inertLine(next.loop)} ${Date.parse(next.at) < screen.now ? "was due " : ""}${distance(next.at, screen)} (${time(next.at)})`,
        ],
      ],
      screen,
    ) + warnings(answer.warnings, screen)
  );
}

export function findings(answer: { readonly findings: readonly Finding[] }, screen: Screen): string {
  const mark = { ok: screen.good("ok     "), warning: screen.warn("warning"), problem: screen.bad("problem") } as const;
  const indent = " ".repeat(21);
  const lines = (text: string): readonly string[] =>
    screen.columns === null ? [inertLine(text)] : wrap(inertLine(text), Math.max(20, screen.columns - indent.length));
  return answer.findings
    .map(({ level, check, message, hint }) => {
      const said = lines(message).join(`\n${indent}`);
      const does = hint === null ? [] : lines(hint).map((line) => `${indent}${screen.dim(line)}\n`);
      return `${mark[level]}  ${check.padEnd(10)}  ${said}\n${does.join("")}`;
    })
    .join("");
}

export const limits = (
  {
    items,
  }: {
    readonly items: readonly {
      readonly resource: string;
      readonly host: string | null;
      readonly limit: number;
      readonly used: number;
    }[];
  },
  screen: Screen,
): string =>
  items.length === 0 && screen.columns !== null
    ? "no caps yet: a host's come with its first daemon\n"
    : table(
        [
          { title: "RESOURCE", elastic: true, key: true },
          { title: "USED", right: true },
          { title: "LIMIT", right: true },
        ],
        items.map((one) => [
          screen.columns === null || one.host === null
            ? one.resource
            : `${one.host}: ${one.resource.split(":").at(-1)}s`,
          { text: String(one.used), paint: one.used >= one.limit ? screen.warn : undefined },
          String(one.limit),
        ]),
        screen,
      );

export const places = (
  answer: {
    readonly config: string;
    readonly exists: boolean;
    readonly state: string;
    readonly logs: string;
    readonly runs: string;
    readonly socket: string;
  },
  screen: Screen,
): string =>
  facts(
    [
      ["config", `${answer.config}${answer.exists ? "" : " (not there)"}`],
      ["state", answer.state],
      ["runs", answer.runs],
      ["logs", answer.logs],
      ["socket", answer.socket],
    ],
    screen,
  );

export const settings = (
  { items }: { readonly items: readonly { readonly key: string; readonly text: string; readonly source: string }[] },
  screen: Screen,
): string =>
  table(
    [{ title: "SETTING" }, { title: "VALUE", elastic: true }, { title: "SOURCE" }],
    items.map((one) => [
      one.key,
      one.text,
      { text: one.source, paint: one.source === "default" ? screen.dim : undefined },
    ]),
    screen,
  );

export function problems(
  answer: {
    readonly file: string;
    readonly exists: boolean;
    readonly problems: readonly { readonly level: string; readonly line: number | null; readonly message: string }[];
  },
  screen: Screen,
): string {
  if (!answer.exists) return `${answer.file} is not there: everything is as usual\n`;
  if (answer.problems.length === 0) return `${answer.file} is fine\n`;
  return answer.problems
    .map((one) => `${answer.file}:${one.line ?? 1}: ${painted(status(one.level, screen))}: ${inertLine(one.message)}\n`)
    .join("");
}

export const version = (answer: {
  readonly version: string;
  readonly build: string;
  readonly node: string;
  readonly platform: string;
}): string => `drover ${answer.version} (${answer.build}), node ${answer.node}, ${answer.platform}\n`;

export const completion = (answer: { readonly script: string }): string => answer.script;
