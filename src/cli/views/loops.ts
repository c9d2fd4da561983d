/** Loops, slots and schedules for people. */
import { describeDuration, formatDuration } from "../../core/duration.ts";
import type { LoopPolicy } from "../../core/loop.ts";
import type { LoopDocument, SlotDocument } from "../../ops/documents.ts";
import type { LoopAnswer } from "../../ops/loop-answer.ts";
import type { UpcomingDocument } from "../../ops/upcoming.ts";
import type { Screen } from "../screen.ts";
import { inertLine, table } from "../text.ts";
import { command, distance, facts, painted, plural, schedule, short, status, time, warnings } from "./words.ts";

interface PageOf<T> {
  readonly items: readonly T[];
  readonly next: string | null;
}

const more = (next: string | null, screen: Screen): string =>
  next === null || screen.columns === null ? "" : screen.dim(`more: --cursor ${next}\n`);

const standing = (loop: LoopDocument): string => (loop.archived ? "archived" : loop.status);

export function loopTable({ items, next }: PageOf<LoopDocument>, screen: Screen): string {
  if (items.length === 0)
    return screen.columns === null ? "" : "no loops: drover loop add NAME --every 15m -- COMMAND\n";
  return (
    table(
      [
        { title: "NAME", elastic: true },
        { title: "STATUS" },
        { title: "SCHEDULE", elastic: true },
        { title: "NEXT" },
        { title: "STREAK" },
        { title: "COMMAND", elastic: true },
      ],
      items.map((loop) => [
        loop.name,
        status(standing(loop), screen),
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
    ) + more(next, screen)
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
    loop.recentSlots.length === 0
      ? screen.dim("no slots yet\n")
      : slotTable({ items: loop.recentSlots, next: null }, screen);
  return `${loopCard(loop, screen)}\n${slots}`;
}

const outcomeOf = (slot: SlotDocument): string => slot.outcome ?? slot.runStatus ?? "pending";

function reasonOf(slot: SlotDocument): string {
  const parts: string[] = [];
  if (slot.outcome === "coalesced" && slot.coalescedInto !== null)
    parts.push(`${slot.reason ?? ""}, made up for at ${time(slot.coalescedInto)}`);
  else if (slot.reason !== null) parts.push(slot.reason);
  if (slot.runId !== null && slot.lateMs > 60_000) parts.push(`${describeDuration(slot.lateMs)} late`);
  return parts.join("; ");
}

export function slotTable({ items, next }: PageOf<SlotDocument>, screen: Screen): string {
  if (items.length === 0) return screen.columns === null ? "" : "no slots yet\n";
  return (
    table(
      [
        { title: "SLOT" },
        { title: "OUTCOME" },
        { title: "STARTED" },
        { title: "TOOK", right: true },
        { title: "RUN" },
        { title: "REASON", elastic: true },
      ],
      items.map((slot) => [
        slot.count === 1 ? time(slot.at) : `${time(slot.at)} .. ${time(slot.untilAt)} (${slot.count})`,
        status(slot.outcome, screen, outcomeOf(slot)),
        time(slot.startedAt),
        slot.startedAt === null || slot.finishedAt === null
          ? "-"
          : describeDuration(Date.parse(slot.finishedAt) - Date.parse(slot.startedAt)),
        short(slot.runId),
        reasonOf(slot),
      ]),
      screen,
    ) + more(next, screen)
  );
}

export const removed = (answer: { readonly name: string; readonly removed: boolean }): string =>
  `${answer.removed ? "removed" : "would remove"} ${inertLine(answer.name)}\n`;

export function instants({ items }: { readonly items: readonly UpcomingDocument[] }, screen: Screen): string {
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
