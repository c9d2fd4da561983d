/** Accounts, agents and worktrees for people. */
import type { Handoff } from "../../core/ports.ts";
import type { AccountDocument, HoldDocument, Warning } from "../../ops/documents.ts";
import { WITHOUT_REASON } from "../../ops/accounts/hold-until.ts";
import type { Screen } from "../screen.ts";
import { inertLine, table } from "../text.ts";
import { distance, facts, painted, plural, short, status, time, warnings } from "./words.ts";

/** What an account can take now: `held`, `disabled`, or its status. */
const standing = (account: AccountDocument): string =>
  !account.enabled ? "disabled" : holdsOf(account).length > 0 ? "held" : account.status;

/** What keeps it back, its provider's first: they hold others too. */
const holdsOf = ({ holds, providerHolds }: AccountDocument): readonly HoldDocument[] => [...providerHolds, ...holds];

function until(holds: readonly HoldDocument[], screen: Screen): string {
  if (holds.length === 0) return "-";
  if (holds.some((hold) => hold.untilAt === null)) return "released by you";
  const last =
    holds
      .map((hold) => hold.untilAt ?? "")
      .toSorted()
      .at(-1) ?? null;
  return screen.columns === null ? (last ?? "-") : distance(last, screen);
}

export function accountTable({ items }: { readonly items: readonly AccountDocument[] }, screen: Screen): string {
  return table(
    [
      { title: "ACCOUNT", elastic: true, key: true },
      { title: "STATE" },
      { title: "ACTIVE", right: true, spare: true },
      { title: "CAP", right: true, spare: true },
      { title: "UNTIL" },
      { title: "USED", spare: true },
      { title: "WHY", elastic: true, least: 30 },
    ],
    items.map((account) => [
      account.id,
      status(standing(account), screen),
      String(account.active),
      account.cap === null ? "-" : String(account.cap),
      until(holdsOf(account), screen),
      account.lastUsedAt === null ? "-" : distance(account.lastUsedAt, screen),
      whyHeld(account) ?? "-",
    ]),
    screen,
  );
}

function whyHeld({ id, provider, holds, providerHolds }: AccountDocument): string | null {
  const [first] = providerHolds;
  return first === undefined ? (holds[0]?.reason ?? null) : `${provider}, not ${id} alone: ${first.reason}`;
}

/** Holds as lines. @param subject what they hold, where that is not what the page is about */
const holdLines = (holds: readonly HoldDocument[], screen: Screen, subject = ""): string =>
  holds
    .map(
      (hold) =>
        `${screen.warn(`${subject}held`)} ${hold.untilAt === null ? "until it is released" : `until ${time(hold.untilAt)}, ${distance(hold.untilAt, screen)}`}: ${inertLine(hold.reason)}${hold.reason === WITHOUT_REASON ? "" : screen.dim(` (${inertLine(hold.source)})`)}\n`,
    )
    .join("");

export function accountPage(account: AccountDocument, screen: Screen): string {
  const { holds, providerHolds, env, secrets } = account;
  return (
    `${screen.bold(inertLine(account.id))}  ${painted(status(standing(account), screen))}\n` +
    facts(
      [
        ["status", account.status],
        ["home", account.home === null ? "your own configuration" : inertLine(account.home)],
        ["active", `${account.active}${account.cap === null ? "" : ` of ${account.cap}`}`],
        ["limits", account.limitEnds === 0 ? null : `${plural(account.limitEnds, "limit")} in a row`],
        [
          "env",
          Object.entries(env)
            .map(([name, value]) => `${name}=${inertLine(value)}`)
            .join(" "),
        ],
        [
          "secrets",
          Object.entries(secrets)
            .map(([name, from]) => `${name} from ${inertLine(from)}`)
            .join(", "),
        ],
        ["used", account.lastUsedAt === null ? null : time(account.lastUsedAt)],
        ["added", account.createdAt === null ? null : time(account.createdAt)],
      ],
      screen,
    ) +
    holdLines(providerHolds, screen, `the provider ${account.provider} is `) +
    holdLines(holds, screen)
  );
}

export const enabled = (account: AccountDocument & { readonly warnings: readonly Warning[] }, screen: Screen): string =>
  accountPage(account, screen) + warnings(account.warnings, screen);

export const released = (
  account: AccountDocument & { readonly woken: number; readonly warnings: readonly Warning[] },
  screen: Screen,
): string =>
  accountPage(account, screen) +
  (account.woken === 0 ? "" : `${plural(account.woken, "step")} woken\n`) +
  warnings(account.warnings, screen);

export const removedAccount = (answer: {
  readonly id: string;
  readonly removed: boolean;
  readonly home: string | null;
}): string =>
  `${answer.removed ? "removed" : "would remove"} ${inertLine(answer.id)}${answer.home === null ? "" : `; ${inertLine(answer.home)} stays`}\n`;

export const login = (answer: {
  readonly id: string;
  readonly command: string;
  readonly ran: boolean;
  readonly exitCode: number | null;
  readonly loggedIn: boolean | null;
  readonly next: string | null;
}): string => {
  if (!answer.ran)
    return `nothing was started: a login needs a terminal, and there is none here. In one, type\n${answer.command}\n`;
  const said =
    answer.loggedIn === null ? "" : answer.loggedIn ? `${answer.id} is logged in\n` : `${answer.id} is not logged in\n`;
  const ended = answer.exitCode === 0 ? "" : `the login ended with status ${answer.exitCode}\n`;
  return `${ended}${said}${answer.next === null ? "" : `${answer.next} lets what waits for it go on\n`}`;
};

interface AgentRow {
  readonly provider: string;
  readonly program: string | null;
  readonly found: boolean | null;
  readonly file: string | null;
  readonly version: string | null;
  readonly tested: boolean | null;
  readonly loggedIn: boolean | null;
  readonly detail: string | null;
  readonly permissions: readonly string[];
  readonly capabilities: { readonly [name: string]: boolean };
  readonly holds: readonly HoldDocument[];
}

interface ProviderHeld {
  readonly provider: string;
  readonly holds: readonly HoldDocument[];
}

export const providerHeld = ({ provider, holds }: ProviderHeld, screen: Screen): string =>
  `${screen.bold(provider)}\n${holdLines(holds, screen)}`;

export const providerReleased = (
  answer: { readonly provider: string; readonly released: boolean; readonly warnings: readonly Warning[] },
  screen: Screen,
): string =>
  `${answer.provider} ${answer.released ? "takes work again" : "was not held"}\n${warnings(answer.warnings, screen)}`;

const yes = (is: boolean | null, words: readonly [string, string]): string =>
  is === null ? "-" : is ? words[0] : words[1];

export function agentTable({ items }: { readonly items: readonly AgentRow[] }, screen: Screen): string {
  return table(
    [
      { title: "AGENT" },
      { title: "FOUND" },
      { title: "VERSION" },
      { title: "TRIED" },
      { title: "LOGGED IN" },
      { title: "CAN", elastic: true, least: 36 },
      { title: "WHERE", elastic: true, least: 16, spare: true },
    ],
    items.map((agent) => [
      agent.holds.length === 0
        ? agent.provider
        : { text: `${agent.provider} (held: ${until(agent.holds, screen)})`, paint: screen.warn },
      agent.found === null ? "-" : status(agent.found ? "ok" : "problem", screen, agent.found ? "yes" : "no"),
      agent.version ?? "-",
      agent.tested === false ? { text: "no", paint: screen.warn } : yes(agent.tested, ["yes", "no"]),
      agent.loggedIn === false ? { text: "no", paint: screen.warn } : yes(agent.loggedIn, ["yes", "no"]),
      Object.entries(agent.capabilities)
        .filter(([, can]) => can)
        .map(([name]) => CAN[name] ?? name)
        .join(", ") || "-",
      agent.file ?? agent.detail ?? (agent.program === null ? "--agent-command" : "-"),
    ]),
    screen,
  );
}

const CAN: { readonly [capability: string]: string } = {
  resume: "resume",
  presetSession: "own ids",
  usage: "usage",
  cost: "cost",
  jsonEvents: "events",
};

interface TreeRow {
  readonly runId: string;
  readonly runStatus: string | null;
  readonly createdAt: string;
  readonly path: string;
  readonly branch: string | null;
  readonly state: string;
  readonly keptBecause: string | null;
}

export function treeTable({ items }: { readonly items: readonly TreeRow[] }, screen: Screen): string {
  if (items.length === 0) return screen.columns === null ? "" : "no worktrees\n";
  return table(
    [
      { title: "RUN" },
      { title: "RUN IS", spare: true },
      { title: "MADE", spare: true },
      { title: "BRANCH", elastic: true, key: true },
      { title: "HOLDS", elastic: true, least: 24 },
      { title: "PATH", elastic: true, least: 30, spare: true },
    ],
    items.map((tree) => [
      screen.columns === null ? tree.runId : short(tree.runId),
      status(tree.runStatus, screen),
      screen.columns === null ? tree.createdAt : distance(tree.createdAt, screen),
      tree.branch ?? "-",
      tree.keptBecause ?? (tree.state === "kept" ? "-" : tree.state),
      tree.path,
    ]),
    screen,
  );
}

export function handedOff(answer: Handoff): string {
  const { branch, commits, pushed, pullRequest, because, uncommitted } = answer;
  const what = `${inertLine(branch)}, ${plural(commits, "commit")}`;
  const where = {
    left: `${what}, stays where it is`,
    now: `${what}, is pushed to origin`,
    before: `${what}, is on origin already`,
  };
  const request =
    pullRequest === null
      ? `no pull request: ${inertLine(because ?? "")}`
      : `pull request ${inertLine(pullRequest.url)}, ${pullRequest.found ? `which is there already and ${pullRequest.state}` : "opened now"}`;
  const rest =
    uncommitted === null || uncommitted === 0
      ? ""
      : `${plural(uncommitted, "change is", "changes are")} in no commit, and not handed over\n`;
  return `${where[pushed]}\n${request}\n${rest}`;
}

export const treeRemoved = (answer: {
  readonly path: string;
  readonly held: readonly string[];
  readonly rescueRef: string | null;
  readonly goneBecause: string | null;
}): string =>
  `removed ${inertLine(answer.path)}\n${
    answer.rescueRef !== null
      ? `it held ${inertLine(answer.held.join(", "))}: kept as ${answer.rescueRef}\n`
      : answer.goneBecause === null
        ? ""
        : `${inertLine(answer.goneBecause)}\n`
  }`;

const VERDICTS: readonly (readonly [verdict: string, title: string, dry: string])[] = [
  ["removed", "removed", "would be removed"],
  ["kept", "kept", "kept"],
  ["in_use", "in use", "in use"],
  ["failed", "could not be looked at", "could not be looked at"],
];

export function pruned(
  answer: {
    readonly items: readonly {
      readonly path: string;
      readonly runId: string | null;
      readonly verdict: string;
      readonly because: string | null;
    }[];
    readonly more: boolean;
    readonly dryRun: boolean;
  },
  screen: Screen,
): string {
  if (answer.items.length === 0) return "no worktrees\n";
  const lists = VERDICTS.flatMap(([verdict, title, dry]) => {
    const rows = answer.items.filter((one) => one.verdict === verdict);
    if (rows.length === 0) return [];
    const lines = rows.map(
      (one) => `  ${inertLine(one.path)}${one.because === null ? "" : screen.dim(`  ${inertLine(one.because)}`)}\n`,
    );
    return [`${screen.bold(answer.dryRun ? dry : title)}\n${lines.join("")}`];
  });
  return `${lists.join("")}${answer.more ? "there are more: ask again\n" : ""}`;
}

interface Limited {
  readonly resource: string;
  readonly warnings: readonly Warning[];
}

export const limitSet = (answer: Limited & { readonly limit: number }, screen: Screen): string =>
  `${inertLine(answer.resource)}: at most ${answer.limit}\n${warnings(answer.warnings, screen)}`;

export const limitRemoved = (answer: Limited, screen: Screen): string =>
  `${inertLine(answer.resource)}: no limit\n${warnings(answer.warnings, screen)}`;
