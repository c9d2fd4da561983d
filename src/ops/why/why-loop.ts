/** Why a loop fires or does not, and why a slot of it ran, was skipped, was missed, or is not recorded yet. */
import { describeDuration } from "../../core/duration.ts";
import { AppError } from "../../core/errors.ts";
import { type PlannedSlot, type SlotReason, slotReasons } from "../../core/plan.ts";
import type { Instant } from "../../core/ports.ts";
import type { LoopRecord, SlotRecord } from "../../core/records.ts";
import { awayRuns, awayWords } from "../accounts/away.ts";
import { iso, type Remedy } from "../documents.ts";
import type { Json } from "../fields.ts";
import { shortOfDisk } from "../doctor/free-disk.ts";
import type { StoreContext } from "../operation.ts";
import { byCommand, remedyForRun, remedyForSlot } from "./remedy.ts";
import { inTime, type Why } from "./why-answer.ts";
import { accountView, whyRun } from "./why-run.ts";
import { shellWord } from "../../core/shell-word.ts";

export async function whyLoop(context: StoreContext, loop: LoopRecord): Promise<Why> {
  const { store } = context;
  const now = context.clock.now();
  const { mode } = await context.daemon();
  const short = await shortOfDisk(context.places.state, context.settings.limits.minFreeBytes);
  const newest = (await store.slots.list({ loopId: loop.id, limit: 1, cursor: null })).items[0] ?? null;
  const [away] = await awayRuns(store, loop.id);
  const waits =
    away === undefined
      ? ""
      : ` Its run ${away.id} waits because its agent's program is not there: ${await awayWords(store, away.id)}`;
  const due = loop.nextAt === null ? "" : ` and ${loop.nextAt > now ? "is" : "was"} due ${inTime(loop.nextAt, now)}`;
  const name = shellWord(loop.name);
  const failed = loop.failureStreak > 0 ? await lastFailure(context, loop) : null;
  const failing =
    failed === null
      ? ""
      : ` Its last run failed (${loop.failureClass ?? "unknown"}, ${loop.failureStreak === 1 ? "the first time" : `${loop.failureStreak} times in a row`}): \`drover why ${failed.runId}\` says more.`;
  const told = ((): { readonly sentence: string; readonly remedy: Remedy | null } => {
    if (loop.archivedAt !== null)
      return {
        sentence: "It is archived: it starts nothing until `drover loop unarchive`.",
        remedy: byCommand(`drover loop unarchive ${name}`, "brings it back"),
      };
    switch (loop.status) {
      case "paused": {
        const resume = `drover loop resume ${name}`;
        const mend = loop.breakerAt === null || failed?.remedy == null ? null : failed.remedy;
        return {
          sentence: `It is paused${loop.pausedAt === null ? "" : ` for ${describeDuration(now - loop.pausedAt)}`}: ${loop.pausedReason ?? "a person paused it"}.`,
          remedy:
            mend === null
              ? byCommand(resume, "lets it fire again")
              : { ...mend, words: `${mend.words}; then \`${resume}\` lets it fire again` },
        };
      }
      case "expired":
        return {
          sentence: "It has expired: it starts nothing until `drover loop resume`.",
          remedy: byCommand(`drover loop resume ${name}`, "lets it fire again"),
        };
      case "finished":
        return {
          sentence: "Its one slot is over: it starts nothing more.",
          remedy: byCommand(`drover loop edit ${name} --at TIME`, "gives it another one"),
        };
      case "active":
        if (mode !== "full")
          return {
            sentence: `No daemon fires it: \`drover up\` starts one. It is active${due}.`,
            remedy: byCommand("drover up", "starts one"),
          };
        if (short !== null)
          return {
            sentence: `Nothing starts: ${short}. It is active${due}.`,
            remedy: byCommand("drover doctor", "says how much is free and how much is needed"),
          };
        return {
          sentence:
            loop.nextAt === null
              ? "It is active and waits for its run to say when the next one is."
              : `It is active and fires next ${inTime(loop.nextAt, now)}.`,
          remedy: failed?.remedy ?? null,
        };
    }
  })();
  return {
    thing: { kind: "loop", id: loop.id, name: loop.name },
    sentence: `${told.sentence}${waits}${failing}`,
    status: loop.status,
    reason: loop.pausedReason,
    facts: {
      nextAt: loop.nextAt === null ? null : iso(loop.nextAt),
      successStreak: loop.successStreak,
      failureStreak: loop.failureStreak,
      failureClass: loop.failureClass,
      failedRun: failed?.runId ?? null,
      file: loop.managedBy,
      waitsForProgram: away?.id ?? null,
      newestSlot: newest === null ? null : { at: iso(newest.at), outcome: newest.outcome, reason: newest.reason },
    },
    remedy: told.remedy,
  };
}

/** The newest run of a loop that failed, and what mends it; null where none is kept. */
async function lastFailure(context: StoreContext, loop: LoopRecord) {
  const { items } = await context.store.runs.list({
    loopId: loop.id,
    status: ["failed", "timed_out"],
    label: null,
    since: null,
    limit: 1,
    cursor: null,
  });
  const [run] = items;
  const tree = run === undefined ? null : await context.store.runs.get({ runId: run.id });
  if (tree === null) return null;
  return {
    runId: tree.run.id,
    remedy: await remedyForRun(context, tree, loop, await accountView(context, tree)),
  };
}

export async function whySlot(context: StoreContext, loop: LoopRecord, time: string): Promise<Why> {
  const { parseTime, nextInstant } = await import("../../core/schedule.ts");
  const { zoneOf } = await import("../loops/upcoming.ts");
  const now = context.clock.now();
  const from = parseTime(time, { now, hostZone: zoneOf(loop.schedule, context.hostZone), path: "thing" });
  // People type seconds at best, and an interval's instants have milliseconds.
  const until = from % 1_000 === 0 ? from + 999 : from;
  const slot = await findSlot(context, loop, from, until);
  const answer = (
    sentence: string,
    facts: Why["facts"],
    reason: string | null = null,
    remedy: Remedy | null = null,
  ): Why => ({
    thing: { kind: "slot", id: loop.id, name: `${loop.name}@${time}` },
    sentence,
    status: slot?.outcome ?? null,
    reason,
    facts,
    remedy,
  });
  if (slot === null) {
    const { mode } = await context.daemon();
    const next = loop.schedule.kind === "dynamic" ? loop.nextAt : nextInstant(loop.schedule, from - 1);
    const due = next !== null && next <= until;
    if (due && next > loop.plannedUntil) {
      const standing = loop.archivedAt === null ? loop.status : "archived";
      const fires = standing === "active";
      const wakes: Remedy | null = fires
        ? mode === "full"
          ? null
          : byCommand("drover up", "starts a daemon that records it")
        : standing === "archived"
          ? byCommand(`drover loop unarchive ${shellWord(loop.name)}`, "brings the loop back")
          : standing === "finished"
            ? null
            : byCommand(`drover loop resume ${shellWord(loop.name)}`, "lets it fire again");
      if (next > now)
        return answer(
          `It is due ${inTime(next, now)}${fires ? "" : `, but the loop is ${standing}`}.`,
          { at: iso(next) },
          null,
          wakes,
        );
      // What the daemon decides by, asked now: it says what becomes of the instant as things stand.
      const cause = mode === "full" ? "late" : "down";
      const { limits } = context.settings;
      const plan = await context.store.loops.preview({ loopId: loop.id, cause, limits });
      const planned = plan?.slots.find((one) => one.at <= until && one.untilAt >= from) ?? null;
      return answer(
        `It was due ${inTime(next, now)} and is not recorded yet: ${mode === "full" ? (fires ? "the daemon is about to" : `the loop is ${standing}, it is recorded when that ends`) : "no daemon is running"}.${planned === null ? "" : ` As things stand ${describePlan(planned.decision)}.`}`,
        {
          at: iso(next),
          planned: planned === null ? null : planned.decision.kind === "end" ? planned.decision.outcome : "run",
        },
        planned?.decision.kind === "end" ? planned.decision.reason : null,
        wakes,
      );
    }
    throw new AppError("not_found", "slot_not_found", `${loop.name} has no slot at ${iso(from)}`, {
      path: "thing",
      hint: `${next === null ? "Nothing follows." : `The next instant of its schedule from there on is ${iso(next)}.`} \`drover loop slots ${loop.name}\` lists what is recorded.`,
    });
  }
  const facts: { [key: string]: Json } = {
    at: iso(slot.at),
    untilAt: iso(slot.untilAt),
    count: slot.count,
    outcome: slot.outcome,
    runId: slot.runId,
    coalescedInto: slot.coalescedInto === null ? null : iso(slot.coalescedInto),
    lateMs: slot.lateMs,
  };
  if (slot.runId !== null) {
    const tree = await context.store.runs.get({ runId: slot.runId });
    if (tree !== null) {
      const run = await whyRun(context, tree);
      const late =
        slot.lateMs >= context.settings.limits.onTimeMs
          ? ` The slot was noticed ${describeDuration(slot.lateMs)} late.`
          : "";
      return answer(`${run.sentence}${late}`, { ...facts, run: run.facts }, slot.reason ?? run.reason, run.remedy);
    }
  }
  const remedy = isSlotReason(slot.reason) && slot.outcome !== null ? remedyForSlot(slot.reason, loop) : null;
  return answer(describeSlot(slot, loop), facts, slot.reason, remedy);
}

/** Behind "because". Closed: a new reason does not compile without its words. */
const SLOT_REASONS: { readonly [R in SlotReason]: string } = {
  overlap: "an earlier run was still at work",
  queue_full: "the loop's queue was full",
  down: "no daemon was running",
  asleep: "the host was asleep",
  disk: "the disk was full, so nothing could be recorded",
  store: "the store could not be reached",
  clock_step: "the clock was set forward past it",
  late: "it was noticed too late",
  limit: "more instants were missed than --catch-up-limit allows",
  edited: "the loop was edited after it was due, and an edit starts nothing that was due before",
  restored: "it was due between a backup and the restore of it",
  paused: "the loop was paused",
  archived: "the loop was archived",
  expired: "the loop had expired",
  finished: "the loop's one slot was over",
};

const isSlotReason = (reason: string | null): reason is SlotReason =>
  (slotReasons as readonly (string | null)[]).includes(reason);

const because = (reason: string | null): string =>
  isSlotReason(reason) ? SLOT_REASONS[reason] : (reason ?? "no reason is recorded");

/** What a plan does with an instant, for "As things stand ...". */
function describePlan(decision: PlannedSlot["decision"]): string {
  if (decision.kind === "run")
    return decision.start === "now" ? "it will be started" : "it will be started when earlier runs have ended";
  const why = because(decision.reason);
  switch (decision.outcome) {
    case "skipped":
      return `it will be skipped: ${why}`;
    case "missed":
      return `it will be missed: ${why}`;
    case "coalesced":
      return `it will be made up for by the slot ${decision.into === null ? "after it" : iso(decision.into)}`;
  }
}

function describeSlot(slot: SlotRecord, loop: LoopRecord): string {
  const why = because(slot.reason);
  switch (slot.outcome) {
    case "skipped":
      return `It was skipped: ${why}${slot.reason === "overlap" || slot.reason === "queue_full" ? ` (overlap ${loop.policy.overlap})` : ""}.`;
    case "missed":
      return `It was missed: ${why} (catch-up ${loop.policy.catchUp}).`;
    case "coalesced":
      return `It was missed because ${why}, and is made up for by the slot ${slot.coalescedInto === null ? "after it" : iso(slot.coalescedInto)}.`;
    case null:
      return "Its run has not ended yet.";
    default:
      return `It ${slot.outcome.replaceAll("_", " ")}; its run is not kept any more.`;
  }
}

/** The row that holds an instant of [from, until]: the newest that begins no later. */
async function findSlot(
  { store }: StoreContext,
  loop: LoopRecord,
  from: Instant,
  until: Instant,
): Promise<SlotRecord | null> {
  const { items } = await store.slots.list({ loopId: loop.id, since: from, until, limit: 1, cursor: null });
  return items[0] ?? null;
}
