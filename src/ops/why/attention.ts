/** What in the store asks for a person: each in one line, bounded, with the command that shows or mends it. */
import { describeDuration } from "../../core/duration.ts";
import type { Instant, Store } from "../../core/ports.ts";
import { countBetween } from "../../core/schedule.ts";
import type { Warning } from "../documents.ts";
import { shellWord } from "../../core/shell-word.ts";

/** Things that are named; the others are counted. */
const NAMED = 3;
/** Counted no further: more would cost more and say no more. */
const COUNTED = 20;
/** How far back missed instants are told. */
const MISSED_MS = 86_400_000;

const named = (names: readonly string[], more: boolean): string => {
  const shown = names.slice(0, NAMED);
  const left = names.length - shown.length;
  return left === 0 && !more ? shown.join(", ") : `${shown.join(", ")} and ${left}${more ? " or more" : ""} others`;
};

/** Loops that their breaker has paused, those that failed last time, missed instants, worktrees with work. */
export async function attention(store: Store, now: Instant): Promise<readonly Warning[]> {
  const ofLoops = { limit: COUNTED, cursor: null, archived: false, label: null } as const;
  const [tripped, failing, missed, kept] = await Promise.all([
    store.loops.list({ ...ofLoops, trouble: "tripped" }),
    store.loops.list({ ...ofLoops, trouble: "failing" }),
    store.slots.missed({ since: now - MISSED_MS, limit: COUNTED }),
    store.worktrees.list({ limit: COUNTED, cursor: null, hostId: null, kept: true }),
  ]);
  const warnings: Warning[] = [];
  for (const loop of tripped.items.slice(0, NAMED))
    warnings.push({
      code: "loop_tripped",
      message: `${loop.name} is paused${loop.pausedAt === null ? "" : ` for ${describeDuration(now - loop.pausedAt)}`}: ${loop.pausedReason ?? "its circuit breaker is open"}`,
      hint: `drover why ${shellWord(loop.name)}`,
    });
  if (tripped.items.length > NAMED)
    warnings.push({
      code: "loops_tripped",
      message: `${tripped.items.length - NAMED}${tripped.next === null ? "" : " or more"} others were paused by their circuit breakers`,
      hint: "drover loop ls --status paused",
    });
  const failed = failing.items.filter((loop) => loop.status === "active");
  const [one] = failed;
  if (one !== undefined)
    warnings.push({
      code: "loops_failing",
      message:
        failed.length === 1 && failing.next === null
          ? `${one.name} failed last time (${one.failureClass ?? "unknown"}${one.failureStreak > 1 ? `, ${one.failureStreak} times in a row` : ""})`
          : `${named(
              failed.map(({ name }) => name),
              failing.next !== null,
            )} failed last time`,
      hint:
        failed.length === 1 && failing.next === null ? `drover why ${shellWord(one.name)}` : "drover loop ls --failing",
    });
  const [latest] = missed;
  if (latest !== undefined) {
    // A row may reach further back than is told.
    const since = now - MISSED_MS;
    const instants = missed.reduce(
      (sum, { slot }) =>
        sum +
        (slot.at >= since || slot.schedule === null
          ? slot.count
          : Math.min(slot.count, countBetween(slot.schedule, since - 1, slot.untilAt))),
      0,
    );
    const names = [...new Set(missed.map(({ loop }) => loop))];
    const most = missed.length === COUNTED;
    warnings.push({
      code: "slots_missed",
      message: `${instants}${most ? " or more" : ""} ${instants === 1 ? "slot was" : "slots were"} missed since this time yesterday, of ${named(names, most)}`,
      hint: `drover loop slots ${shellWord(latest.loop)} --outcome missed`,
    });
  }
  if (kept.items.length > 0) {
    const count = `${kept.items.length}${kept.next === null ? "" : " or more"}`;
    warnings.push({
      code: "worktrees_kept",
      message: `${count} ${kept.items.length === 1 ? "worktree is kept: it holds" : "worktrees are kept: they hold"} work`,
      hint: "drover worktree ls",
    });
  }
  return warnings;
}
