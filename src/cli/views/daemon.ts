/** The daemon, settings and findings for people. */
import { describeDuration } from "../../core/duration.ts";
import type { Warning } from "../../ops/documents.ts";
import type { Examination, Finding } from "../../ops/operation.ts";
import type { Screen } from "../screen.ts";
import { inertLine, table, wrap } from "../text.ts";
import { distance, facts, painted, plural, status, time, warnings } from "./words.ts";

export function up(
  answer: {
    readonly state: string;
    readonly started: boolean;
    readonly pid: number | null;
    readonly service: string | null;
    readonly warnings: readonly Warning[];
  },
  screen: Screen,
): string {
  if (answer.state === "down") return "";
  const by = answer.service === null ? "" : `, as the service ${answer.service}`;
  return `${answer.started ? "drover is up" : "drover is already up"} (pid ${answer.pid}${by})\n${warnings(answer.warnings, screen)}`;
}

export function down(answer: {
  readonly stopped: boolean;
  readonly pid: number | null;
  readonly left: number | null;
  readonly service: string | null;
}): string {
  const again =
    answer.service === null
      ? ""
      : `The service ${answer.service} starts it again with your next session or boot, or now: drover up\n`;
  const left = answer.left === null || answer.left === 0 ? "" : `; ${plural(answer.left, "run goes", "runs go")} on`;
  if (answer.stopped && answer.pid === null)
    return `the service was about to start drover, and does not now${left}\n${again}`;
  return (answer.stopped ? `drover is down (was pid ${answer.pid})${left}\n` : `drover was not up${left}\n`) + again;
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
  readonly runs: {
    readonly running: number;
    readonly queued: number;
    readonly waiting: number;
    readonly forPerson: number;
  };
  readonly upcoming: readonly { readonly loop: string; readonly at: string }[];
  readonly warnings: readonly Warning[];
}

export function statusPage(answer: Status, screen: Screen): string {
  const { daemon, store, host, runs, upcoming } = answer;
  const fires = upcoming.map(
    ({ loop, at }) =>
      `${inertLine(loop)} ${Date.parse(at) < screen.now ? "was due " : ""}${distance(at, screen)} (${time(at)})`,
  );
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
        [
          "runs",
          `${runs.running} running, ${runs.queued} queued, ${runs.waiting} waiting${runs.forPerson === 0 ? "" : `, ${runs.forPerson} of them for a person`}`,
        ],
        ["next", fires[0] ?? "nothing is scheduled"],
        ...fires.slice(1).map((text): [string, string] => ["", text]),
      ],
      screen,
    ) + warnings(answer.warnings, screen)
  );
}

interface Diagnosis {
  readonly findings: readonly Finding[];
  readonly counts: Examination["counts"];
  readonly actions: readonly { readonly does: string; readonly state: string; readonly error: string | null }[];
  readonly selfTest: { readonly ok: boolean; readonly message: string } | null;
}

/** What several checks say in the same words is said once. */
function joined(all: readonly Finding[]): readonly Finding[] {
  const groups = new Map<string, Finding[]>();
  for (const one of all) {
    const key = one.code === null ? String(groups.size) : [one.code, one.message, one.hint, one.command].join("\n");
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups.values()].flatMap((same) => {
    const [first] = same;
    if (first === undefined || same.length === 1) return same;
    return [{ ...first, check: "several", message: `${same.map(({ check }) => check).join(", ")}: ${first.message}` }];
  });
}

export function findings(answer: Diagnosis, screen: Screen): string {
  const mark = {
    ok: screen.good("ok     "),
    note: screen.dim("note   "),
    warning: screen.warn("warning"),
    problem: screen.bad("problem"),
  } as const;
  const indent = " ".repeat(21);
  const lines = (text: string): readonly string[] =>
    screen.columns === null ? [inertLine(text)] : wrap(inertLine(text), Math.max(20, screen.columns - indent.length));
  const line = (level: keyof typeof mark, check: string, message: string): string =>
    `${mark[level]}  ${check.padEnd(10)}  ${lines(message).join(`\n${indent}`)}\n`;
  const found = joined(answer.findings).map(({ level, check, code, message, hint, command }) => {
    const below = [
      ...(hint === null ? [] : lines(hint).map((one) => screen.dim(one))),
      // As it is to be typed: never broken.
      ...(command === null ? [] : [inertLine(command)]),
      ...(code === null ? [] : [screen.dim(`[${code}]`)]),
    ];
    return line(level, check, message) + below.map((one) => `${indent}${one}\n`).join("");
  });
  const more = answer.counts
    .filter(({ count, shown }) => count > shown)
    .map(({ code, level, count, shown }) => line(level, "", `and ${count - shown} more of ${code}`));
  const acts = answer.actions.map(({ does, state, error }) => {
    const said = { planned: "would  ", done: screen.good("done   "), declined: screen.dim("not    ") }[state];
    return `${said ?? screen.bad("failed ")}  ${inertLine(does)}${error === null ? "" : `: ${inertLine(error)}`}\n`;
  });
  const tested = answer.selfTest?.ok === true ? [line("ok", "self-test", answer.selfTest.message)] : [];
  const of = (level: string): number =>
    answer.counts.reduce((sum, one) => sum + (one.level === level ? one.count : 0), 0);
  const numbers = [
    [of("problem"), "problem"],
    [of("warning"), "warning"],
    [of("note"), "note"],
  ] as const;
  const summary = numbers.filter(([count]) => count > 0).map(([count, word]) => plural(count, word, `${word}s`));
  const end = summary.length === 0 ? "nothing is wrong here\n" : `${summary.join(", ")}\n`;
  const parts = [acts.join(""), [...found, ...more, ...tested].join(""), end];
  return parts.filter((part) => part !== "").join("\n");
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
