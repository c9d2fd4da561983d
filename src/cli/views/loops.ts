/** Loops, slots and schedules for people. */
import { describeDuration, formatDuration } from "../../core/duration.ts";
import type { LoopPolicy } from "../../core/loop.ts";
import { describeSize } from "../../core/size.ts";
import type { AgentTarget } from "../../core/target.ts";
import type { LoopDocument, SlotDocument } from "../../ops/documents.ts";
import type { Json } from "../../ops/fields.ts";
import type { LoopAnswer } from "../../ops/loops/loop-answer.ts";
import type { UpcomingDocument } from "../../ops/loops/upcoming.ts";
import type { Screen } from "../screen.ts";
import { inertLine, table } from "../text.ts";
import { command, distance, facts, painted, plural, schedule, short, status, time, warnings } from "./words.ts";

const standing = (loop: LoopDocument): string => (loop.archived ? "archived" : loop.status);

/** Of `loop ls`. */
type LoopRow = LoopDocument & { readonly waitsForProgram: string | null };

export function loopTable({ items }: { readonly items: readonly LoopRow[] }, screen: Screen): string {
  if (items.length === 0)
    return screen.columns === null ? "" : "no loops: drover loop add NAME --every 15m -- COMMAND\n";
  return table(
    [
      { title: "NAME", elastic: true, key: true, share: 1 / 3 },
      { title: "STATUS" },
      { title: "SCHEDULE", elastic: true },
      { title: "NEXT" },
      { title: "STREAK" },
      { title: "COMMAND", elastic: true, least: 20 },
    ],
    items.map((loop) => [
      loop.name,
      loop.waitsForProgram === null
        ? status(standing(loop), screen)
        : screen.warn(`${standing(loop)}, program is away`),
      schedule(loop.schedule),
      loop.status === "active" && !loop.archived ? distance(loop.nextAt, screen) : "-",
      loop.failureStreak > 0
        ? status("failed", screen, `${loop.failureStreak} failed`)
        : loop.successStreak > 0
          ? `${loop.successStreak} ok`
          : "-",
      command(loop.target),
    ]),
    screen,
  );
}

function upcoming(all: readonly UpcomingDocument[], screen: Screen): string {
  return all
    .map((one, index) => {
      const note = one.clockChange ? screen.warn("  the clock changes before this") : "";
      return `${index === 0 ? screen.dim("next  ") : "      "}${one.local.replace("T", " ").replace(/(?=[+-]\d\d:\d\d(:\d\d)?$)/, " ")}  ${screen.dim(distance(one.at, screen))}${note}\n`;
    })
    .join("");
}

function policy(loop: LoopDocument): string {
  const of = loop.policy as unknown as LoopPolicy;
  const parts = [`overlap ${of.overlap}`, `catch-up ${of.catchUp}`];
  if (of.attempts > 1) parts.push(`${of.attempts} attempts, backoff ${formatDuration(of.backoffMs)}`);
  if (of.timeoutMs !== null) parts.push(`timeout ${formatDuration(of.timeoutMs)}`);
  if (of.idleTimeoutMs !== null) parts.push(`idle timeout ${formatDuration(of.idleTimeoutMs)}`);
  if (of.jitterMs > 0) parts.push(`jitter ${formatDuration(of.jitterMs)}`);
  if (of.expiresAfterRuns !== null) parts.push(`until ${of.expiresAfterRuns} successes in a row`);
  parts.push(of.breaker > 0 ? `pauses after ${of.breaker} equal failures` : "never pauses itself");
  return parts.join(", ");
}

/** What an agent is given beside its prompt; null for a command. */
function agentText(document: Json): string | null {
  if ((document as { kind?: string }).kind !== "agent") return null;
  const of = document as unknown as AgentTarget;
  return [
    `${of.provider}:${of.account}`,
    of.model === null ? null : `model ${inertLine(of.model)}`,
    of.permission === "full" ? `full: ${inertLine(of.reason ?? "")}` : of.permission,
    `worktree ${of.worktree}`,
    `prompt of ${describeSize(of.prompt.bytes)}`,
  ]
    .filter((part) => part !== null)
    .join(", ");
}

/** One loop: after a change, and on top of `loop show`. */
export function loopCard(loop: LoopAnswer, screen: Screen): string {
  const head = `${screen.bold(inertLine(loop.name))}  ${painted(status(standing(loop), screen))}  ${inertLine(schedule(loop.schedule))}  ${screen.dim(short(loop.id))}\n`;
  const labels = (loop.policy as { labels?: readonly string[] }).labels ?? [];
  const { cwd } = loop.target as { cwd?: string };
  return (
    head +
    facts(
      [
        ["runs", inertLine(command(loop.target))],
        ["in", inertLine(cwd ?? "")],
        ["agent", agentText(loop.target)],
        ["policy", policy(loop)],
        ["labels", labels.join(", ")],
        ["paused", loop.pausedReason === null ? null : `${inertLine(loop.pausedReason)} (${time(loop.pausedAt)})`],
        ["expires", loop.expiresAt === null ? null : time(loop.expiresAt)],
        [
          "streak",
          loop.failureStreak > 0
            ? screen.bad(`${plural(loop.failureStreak, "failure")} in a row (${loop.failureClass})`)
            : loop.successStreak > 0
              ? `${plural(loop.successStreak, "success", "successes")} in a row`
              : null,
        ],
      ],
      screen,
    ) +
    upcoming(loop.upcoming, screen) +
    warnings(loop.warnings, screen)
  );
}

export function loopPage(loop: LoopAnswer & { readonly recentSlots: readonly SlotDocument[] }, screen: Screen): string {
  const slots =
    loop.recentSlots.length === 0 ? screen.dim("no slots yet\n") : slotTable({ items: loop.recentSlots }, screen);
  return `${loopCard(loop, screen)}\n${slots}`;
}

const outcomeOf = (slot: SlotDocument): string => slot.outcome ?? slot.runStatus ?? "pending";

function reasonOf(slot: SlotDocument, at: (iso: string | null) => string): string {
  const parts: string[] = [];
  if (slot.outcome === "coalesced" && slot.coalescedInto !== null)
    parts.push(`${slot.reason ?? ""}, made up for at ${at(slot.coalescedInto)}`);
  else if (slot.reason !== null) parts.push(slot.reason);
  if (slot.runId !== null && slot.lateMs > 60_000) parts.push(`${describeDuration(slot.lateMs)} late`);
  return parts.join("; ");
}

/** A local time in its parts: `2026-05-01`, `02:30:00`, `+02:00`. */
const partsOf = (iso: string): readonly [day: string, clock: string, offset: string] =>
  time(iso).split(" ") as [string, string, string];

/** How a page of slots writes its times: what all of them share (the offset, the day) is said once, in the title. */
function slotTimes(items: readonly SlotDocument[]) {
  const all = items.flatMap((slot) => [
    slot.at,
    slot.untilAt,
    slot.startedAt ?? slot.at,
    slot.coalescedInto ?? slot.at,
  ]);
  const offsets = new Set(all.map((iso) => partsOf(iso)[2]));
  const days = new Set(items.flatMap((slot) => [partsOf(slot.at)[0], partsOf(slot.untilAt)[0]]));
  const [day] = days.size === 1 ? days : [];
  const [offset] = offsets.size === 1 ? offsets : [];
  /** A time; its day only where it is not the one that the reader knows. */
  const at = (iso: string | null, known: string | undefined): string => {
    if (iso === null) return "-";
    const [ownDay, clock, ownOffset] = partsOf(iso);
    return `${ownDay === known ? "" : `${ownDay} `}${clock}${offset === undefined ? ` ${ownOffset}` : ""}`;
  };
  return { title: ["SLOT", day, offset].filter((part) => part !== undefined).join(" "), day, at };
}

export function slotTable({ items }: { readonly items: readonly SlotDocument[] }, screen: Screen): string {
  if (items.length === 0) return screen.columns === null ? "" : "no slots yet\n";
  const { title, day, at } = slotTimes(items);
  const wide = screen.columns === null;
  return table(
    [
      { title },
      { title: "OUTCOME" },
      { title: "STARTED" },
      { title: "TOOK", right: true, spare: true },
      { title: "RUN", spare: true },
      { title: "REASON", elastic: true, least: 24 },
    ],
    items.map((slot) => {
      const [own] = partsOf(slot.at);
      const begin = wide ? time(slot.at) : at(slot.at, day);
      const end = wide ? time(slot.untilAt) : at(slot.untilAt, own);
      return [
        slot.count === 1 ? begin : `${begin} .. ${end} (${slot.count})`,
        status(slot.outcome, screen, outcomeOf(slot)),
        wide ? time(slot.startedAt) : at(slot.startedAt, own),
        slot.startedAt === null || slot.finishedAt === null
          ? "-"
          : describeDuration(Date.parse(slot.finishedAt) - Date.parse(slot.startedAt)),
        short(slot.runId),
        reasonOf(slot, wide ? time : (iso) => at(iso, own)),
      ];
    }),
    screen,
  );
}

export const removed = (answer: { readonly name: string; readonly removed: boolean }): string =>
  `${answer.removed ? "removed" : "would remove"} ${inertLine(answer.name)}\n`;

export function instants({ items }: { readonly items: readonly UpcomingDocument[] }, screen: Screen): string {
  if (items.length === 0) return "it never fires again\n";
  return items
    .map(
      (one) =>
        `${one.local}  ${screen.dim(distance(one.at, screen))}${one.clockChange ? screen.warn("  the clock changes before this") : ""}\n`,
    )
    .join("");
}

export const explained = (
  answer: { readonly text: string; readonly sentences: readonly string[] },
  screen: Screen,
): string => `${screen.bold(inertLine(answer.text))}\n${answer.sentences.map((one) => `${inertLine(one)}\n`).join("")}`;
