import { describeRefusal, type Refusal } from "../core/admission.ts";
import { describeDuration } from "../core/duration.ts";
import { AppError } from "../core/errors.ts";
import { describeEscape, type Escape } from "../core/escape.ts";
import type { AccountView, Instant } from "../core/ports.ts";
import type { LoopRecord, RunTree, SlotRecord } from "../core/records.ts";
import { isLiveAttempt } from "../core/run.ts";
import { worktreeOf } from "../core/target.ts";
import type { Json } from "./fields.ts";
import { required, text } from "./fields.ts";
import { awayRuns, awayWords } from "./away.ts";
import { inWords } from "./fault-words.ts";
import { candidates, findLoop, findRun, tooShort } from "./find.ts";
import { shortOfDisk } from "./free-disk.ts";
import { iso, toAccountDocument } from "./documents.ts";
import { WITHOUT_REASON } from "./hold-until.ts";
import { remedyOf } from "./login-remedy.ts";
import { defineOperation, type StoreContext } from "./operation.ts";
import { MAX_PAGE } from "./page.ts";
import { anything, nullable, object, oneOf, string } from "./shape.ts";

interface Why {
  readonly thing: { readonly kind: "loop" | "slot" | "run"; readonly id: string; readonly name: string | null };
  readonly sentence: string;
  readonly status: string | null;
  readonly reason: string | null;
  /** The numbers behind the sentence. */
  readonly facts: { readonly [key: string]: Json };
}

export const operation = defineOperation({
  name: "why",
  where: "read",
  summary: "Say in one sentence why something waits, was skipped, was missed, failed or ran",
  input: {
    thing: required(
      text("a run, an attempt by its id, a loop, or a slot as LOOP@TIME", { placeholder: "THING", completes: "thing" }),
    ),
  },
  output: object({
    thing: object({ kind: oneOf(["loop", "slot", "run"]), id: string, name: nullable(string) }),
    sentence: string,
    status: nullable(string),
    reason: nullable(string),
    facts: anything,
  }),
  cli: { positionals: ["thing"], examples: ["why 8x2mq1", "why fetch", "why fetch@2026-05-01T02:30"] },
  async run(context, input): Promise<Why> {
    const found = await findThing(context, input.thing);
    switch (found.kind) {
      case "run":
        return whyRun(context, found.tree);
      case "loop":
        return whyLoop(context, found.loop);
      default:
        return whySlot(context, found.loop, found.time);
    }
  },
});

type Thing =
  | { readonly kind: "run"; readonly tree: RunTree }
  | { readonly kind: "loop"; readonly loop: LoopRecord }
  | { readonly kind: "slot"; readonly loop: LoopRecord; readonly time: string };

async function findThing(context: StoreContext, ref: string): Promise<Thing> {
  const { store } = context;
  const [loops, runs] = await Promise.all((["loop", "run"] as const).map((kind) => candidates(store, kind, ref, 11)));
  const named = (loops ?? []).filter((one) => one.name === ref);
  if (named.length === 1 || (loops?.length === 1 && runs?.length === 0))
    return { kind: "loop", loop: await findLoop(store, named[0]?.id ?? loops?.[0]?.id ?? ref, "thing") };
  if (loops?.length === 0 && runs !== undefined && runs.length > 0)
    return { kind: "run", tree: await findRun(store, ref, "thing") };
  const all = [...(loops ?? []), ...(runs ?? [])];
  if (all.length > 0)
    throw new AppError("conflict", "ambiguous", `${JSON.stringify(ref)} may mean several things`, {
      path: "thing",
      hint: `Say which: ${all.map((one) => (one.name === null ? one.id : `${one.id} (${one.name})`)).join(", ")}.`,
    });
  const ofAttempt = await store.things.resolve({ kind: "attempt", ref, limit: 1 });
  if (ofAttempt[0] !== undefined) return { kind: "run", tree: await findRun(store, ofAttempt[0].id, "thing") };
  const at = ref.lastIndexOf("@");
  if (at > 0) return { kind: "slot", loop: await findLoop(store, ref.slice(0, at), "thing"), time: ref.slice(at + 1) };
  throw new AppError("not_found", "thing_not_found", `there is no run and no loop ${JSON.stringify(ref)}`, {
    path: "thing",
    hint: tooShort(ref) ?? "`drover runs` and `drover loop ls` list them; a slot is LOOP@TIME.",
  });
}

const inTime = (at: Instant, now: Instant): string =>
  at > now ? `in ${describeDuration(at - now)}` : `${describeDuration(now - at)} ago`;

function originOf({ run }: RunTree): string {
  switch (run.originKind) {
    case "slot":
      return `the slot ${run.slotAt === null ? "" : `${iso(run.slotAt)} `}of ${run.loopName ?? "a loop"} was due`;
    case "retry":
      return `somebody asked for another go at ${run.retryOf ?? "a run"}`;
    case "run":
      return `the run ${run.parentRunId ?? ""} started it`;
    case "ad_hoc":
      return `somebody started ${run.loopName ?? "it"} by hand`;
    case "work_item":
      return "a work item asked for it";
    case "api":
      return "a program started it";
    case "person":
      return "somebody started it by hand";
  }
}

/** Behind "It waits". */
const WAITS: { readonly [reason: string]: string } = {
  retry: "to try again",
  capacity: "because its provider is short of capacity",
  person: "because a person has to answer",
  disk: "because the host is short of free disk space",
  host: "for its host",
  program: "because its agent's program is not there",
};

/** Who put a hold on, by its source; a limit otherwise. */
const HOLDERS: { readonly [source: string]: string } = {
  person: WITHOUT_REASON,
  auth: "its provider refused it",
};

/** When a hold ends, for a sentence. */
const holdEnd = (untilAt: Instant | null, now: Instant): string =>
  untilAt === null ? "until it is released" : `until ${iso(untilAt)} (${inTime(untilAt, now)})`;

/** What is known of the account that a run wants to work under; null for a command. */
async function accountView({ store }: StoreContext, { run }: RunTree): Promise<AccountView | null> {
  return run.accountWish === null ? null : store.accounts.get({ accountId: run.accountWish });
}

/** What keeps an account back, as a sentence's middle; null when nothing does. */
function accountHeld(view: AccountView | null, now: Instant): string | null {
  const hold = [...(view?.holds ?? []), ...(view?.providerHolds ?? [])].toSorted(
    (a, b) => (b.untilAt ?? Infinity) - (a.untilAt ?? Infinity),
  )[0];
  if (view == null || hold === undefined) return null;
  const who = HOLDERS[hold.source] ?? `it met a limit (${hold.source})`;
  const reason = hold.reason === who ? "" : `: ${inWords(hold.reason)}`;
  const what = hold.subjectKind === "provider" ? `the provider ${hold.subjectId}` : view.account.id;
  return `${what} is held ${holdEnd(hold.untilAt, now)}: ${who}${reason}`;
}

/** What to do about a refusal of admission; null where time or others' ends do it. */
function remedyFor(refusal: Refusal): string | null {
  switch (refusal.code) {
    case "held":
      return `\`drover ${refusal.subject.startsWith("provider:") ? "agent" : "account"} release ${refusal.subject.replace(/^\w+:/, "")}\` ends that`;
    case "account_disabled":
      return `\`drover account enable ${refusal.accountId}\` lets it work`;
    case "account_missing":
      return `\`drover account add ${refusal.accountId.replace(":", " ")}\` makes it`;
    case "cap":
      if (refusal.resource.startsWith("folder:"))
        return "agents that share a folder run one after another; --worktree auto gives each a tree of its own";
      return !refusal.resource.startsWith("host:") ? `\`drover limit set ${refusal.resource} N\` changes that` : null;
    default:
      return null;
  }
}

/** It is no reason for the run's end; who did it may be the agent, a person, or another run. */
const besides = (escaped: Escape, repository: string | null): string =>
  `While it ran, the checkout that its worktree was made from changed: ${describeEscape(escaped)}${repository === null ? "" : ` in ${repository}`}. That may be its doing or somebody else's; drover changes nothing there.`;

async function whyRun(context: StoreContext, tree: RunTree): Promise<Why> {
  const { run, steps, attempts } = tree;
  const now = context.clock.now();
  const step = steps[0];
  const last = attempts.toSorted((a, b) => b.number - a.number)[0];
  const facts: { [key: string]: Json } = {
    origin: run.originKind,
    loop: run.loopName,
    slotAt: run.slotAt === null ? null : iso(run.slotAt),
    createdAt: iso(run.createdAt),
    startedAt: run.startedAt === null ? null : iso(run.startedAt),
    finishedAt: run.finishedAt === null ? null : iso(run.finishedAt),
    wakeAt: run.wakeAt === null ? null : iso(run.wakeAt),
    attempts: attempts.length,
    triesCounted: step?.triesCounted ?? 0,
    maxAttempts: step?.maxAttempts ?? 0,
    exitCode: run.exitStatus,
    class: run.error?.class ?? last?.class ?? null,
    endedBy: last?.endedBy ?? null,
  };
  const escaped = tree.worktree?.escaped ?? null;
  const places = [
    escaped === null ? "" : ` ${besides(escaped, tree.worktree?.repository ?? null)}`,
    worktreeOf(run.target) === "auto" && tree.worktree == null && run.startedAt !== null
      ? ` It works in ${run.target.cwd} itself: no worktree could be made of it.`
      : "",
  ].join("");
  const answer = (sentence: string, more: { readonly [key: string]: Json } = {}): Why => ({
    thing: { kind: "run", id: run.id, name: run.loopName },
    sentence: `${sentence}${places}`,
    status: run.status,
    reason: run.reason,
    facts: { ...facts, ...more, ...(escaped === null ? {} : { escaped: escaped as unknown as Json }) },
  });
  const makingSince =
    tree.worktree?.state === "making" && last !== undefined && isLiveAttempt(last.status)
      ? tree.worktree.createdAt
      : null;
  const tries = step === undefined ? "" : `, try ${step.triesCounted} of ${step.maxAttempts}`;
  switch (run.status) {
    case "queued": {
      if (step?.status === "pending")
        return answer(
          run.wakeAt !== null && run.wakeAt > now
            ? `It is queued and may start ${inTime(run.wakeAt, now)}.`
            : "It is queued until earlier runs of its loop have ended.",
        );
      const explained = step === undefined ? null : await context.store.admission.explain({ stepId: step.id });
      const refusal = explained?.refusal ?? null;
      const more = { ahead: explained?.ahead ?? null, refusal: refusal as unknown as Json };
      if (refusal === null) return answer("It is queued, there is room, and it starts with the next pass.", more);
      const ahead = explained !== null && explained.ahead > 0 ? `; ${explained.ahead} stand before it` : "";
      const when = refusal.code === "held" && refusal.untilAt !== null ? ` (${inTime(refusal.untilAt, now)})` : "";
      const remedy = remedyFor(refusal);
      return answer(
        `It is queued because ${inWords(describeRefusal(refusal))}${when}${ahead}${remedy === null ? "" : `; ${remedy}`}.`,
        more,
      );
    }
    case "waiting": {
      const until = run.wakeAt === null ? "" : `; it goes on ${inTime(run.wakeAt, now)}`;
      /** @param told what the sentence says already: the hold of a limit has the words of the end that put it on */
      const causeBeside = (told: string | null): string => {
        if (last?.message == null) return "";
        const said = inWords(last.message);
        return ` (last end: ${last.class ?? last.status}${told?.includes(said) === true ? "" : `: ${said}`})`;
      };
      if (run.reason === "limit" || run.reason === "account") {
        const view = await accountView(context, tree);
        const id = run.accountWish ?? "its account";
        const more = { account: view === null ? null : (toAccountDocument(view) as unknown as Json) };
        const held = accountHeld(view, now);
        const cause = causeBeside(held);
        if (run.reason === "account") {
          const { words } = await remedyOf(context, tree.run, view);
          return answer(
            `It waits because ${held ?? `${id} is refused or not logged in`}${cause}; ${words}, then \`drover account release ${id}\` wakes it.`,
            more,
          );
        }
        return answer(
          `It waits because ${held ?? `${id} is at a limit`}${until}${cause}; \`drover account release ${id}\` tries at once.`,
          more,
        );
      }
      return answer(
        `It waits ${WAITS[run.reason ?? ""] ?? `because of ${run.reason ?? "an unknown reason"}`}${until}${causeBeside(null)}.`,
      );
    }
    case "running":
      if (makingSince !== null && run.cancelRequestedAt === null)
        return answer(
          `Its worktree is being made since ${iso(makingSince)} (${inTime(makingSince, now)}); it runs because ${originOf(tree)}.`,
          { makingSince: iso(makingSince) },
        );
      if (run.cancelRequestedAt !== null)
        return answer(`It is being cancelled by ${run.cancelBy ?? "somebody"} (${run.cancelReason ?? "no reason"}).`);
      return answer(
        `It runs${run.startedAt === null ? "" : ` for ${describeDuration(now - run.startedAt)}`} because ${originOf(tree)}.`,
        { pid: last?.pid ?? null, attempt: last?.number ?? null },
      );
    case "succeeded":
      return answer(
        `It ran because ${originOf(tree)}, and succeeded${last?.endedBy === "exit_timer" ? "; it did not exit by itself after its result, so its processes were ended" : ""}.`,
      );
    case "failed":
    case "timed_out": {
      const said = run.error?.message ?? last?.message;
      return answer(
        `It ${run.status === "failed" ? "failed" : "timed out"}: ${said == null ? "for a reason that is not known" : inWords(said)} (${run.error?.class ?? run.reason ?? "unknown"}${tries}). It ran because ${originOf(tree)}.`,
      );
    }
    case "cancelled":
      return answer(
        run.cancelRequestedAt === null
          ? `It was cancelled (${run.reason ?? "no reason"}).`
          : run.cancelBy === "restore"
            ? "It was cancelled by the restore of a backup: it had not ended when the backup was made."
            : `It was cancelled by ${run.cancelBy ?? "somebody"}: ${run.cancelReason ?? run.reason ?? "no reason"}.`,
      );
    case "skipped":
      return answer(`It was skipped: ${run.reason ?? "no reason"}.`);
  }
}

async function whyLoop(context: StoreContext, loop: LoopRecord): Promise<Why> {
  const now = context.clock.now();
  const { mode } = await context.daemon();
  const short = await shortOfDisk(context.places.state, context.settings.limits.minFreeBytes);
  const newest = (await context.store.slots.list({ loopId: loop.id, limit: 1, cursor: null })).items[0] ?? null;
  const [away] = await awayRuns(context.store, loop.id);
  const waits =
    away === undefined
      ? ""
      : ` Its run ${away.id} waits because its agent's program is not there: ${await awayWords(context.store, away.id)}`;
  const due = loop.nextAt === null ? "" : ` and ${loop.nextAt > now ? "is" : "was"} due ${inTime(loop.nextAt, now)}`;
  const sentence = (): string => {
    if (loop.archivedAt !== null) return "It is archived: it starts nothing until `drover loop unarchive`.";
    switch (loop.status) {
      case "paused":
        return `It is paused${loop.pausedAt === null ? "" : ` for ${describeDuration(now - loop.pausedAt)}`}: ${loop.pausedReason ?? "a person paused it"}.`;
      case "expired":
        return "It has expired: it starts nothing until `drover loop resume`.";
      case "finished":
        return "Its one slot is over: it starts nothing more.";
      case "active":
        if (mode !== "full") return `No daemon fires it: \`drover up\` starts one. It is active${due}.`;
        if (short !== null) return `Nothing starts: ${short}. It is active${due}.`;
        return loop.nextAt === null
          ? "It is active and waits for its run to say when the next one is."
          : `It is active and fires next ${inTime(loop.nextAt, now)}.`;
    }
  };
  return {
    thing: { kind: "loop", id: loop.id, name: loop.name },
    sentence: `${sentence()}${waits}`,
    status: loop.status,
    reason: loop.pausedReason,
    facts: {
      nextAt: loop.nextAt === null ? null : iso(loop.nextAt),
      successStreak: loop.successStreak,
      failureStreak: loop.failureStreak,
      failureClass: loop.failureClass,
      waitsForProgram: away?.id ?? null,
      newestSlot: newest === null ? null : { at: iso(newest.at), outcome: newest.outcome, reason: newest.reason },
    },
  };
}

async function whySlot(context: StoreContext, loop: LoopRecord, time: string): Promise<Why> {
  const { parseTime, nextInstant } = await import("../core/schedule.ts");
  const { zoneOf } = await import("./upcoming.ts");
  const now = context.clock.now();
  const from = parseTime(time, { now, hostZone: zoneOf(loop.schedule, context.hostZone), path: "thing" });
  // People type seconds at best, and an interval's instants have milliseconds.
  const until = from % 1_000 === 0 ? from + 999 : from;
  const slot = await findSlot(context, loop, from, until);
  const answer = (sentence: string, facts: Why["facts"], reason: string | null = null): Why => ({
    thing: { kind: "slot", id: loop.id, name: `${loop.name}@${time}` },
    sentence,
    status: slot?.outcome ?? null,
    reason,
    facts,
  });
  if (slot === null) {
    const { mode } = await context.daemon();
    const next = loop.schedule.kind === "dynamic" ? loop.nextAt : nextInstant(loop.schedule, from - 1);
    const due = next !== null && next <= until;
    if (due && next > loop.plannedUntil) {
      const fires = loop.status === "active" && loop.archivedAt === null;
      return answer(
        next > now
          ? `It is due ${inTime(next, now)}${fires ? "" : `, but the loop is ${loop.archivedAt === null ? loop.status : "archived"}`}.`
          : `It was due ${inTime(next, now)} and is not recorded yet: ${mode === "full" ? (fires ? "the daemon is about to" : `the loop is ${loop.status}, it is recorded when that ends`) : "no daemon is running"}.`,
        { at: iso(next) },
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
      return answer(`${run.sentence}${late}`, { ...facts, run: run.facts }, slot.reason ?? run.reason);
    }
  }
  return answer(describeSlot(slot, loop), facts, slot.reason);
}

const SLOT_REASONS: { readonly [reason: string]: string } = {
  overlap: "an earlier run was still at work",
  queue_full: "the loop's queue was full",
  down: "no daemon was running",
  asleep: "the host was asleep",
  disk: "the disk was full, so nothing could be recorded",
  store: "the store could not be reached",
  clock_step: "the clock was set forward past it",
  late: "it was noticed too late",
  restored: "it was due between a backup and the restore of it",
  limit: "more instants were missed than --catch-up-limit allows",
  paused: "the loop was paused",
  archived: "the loop was archived",
  expired: "the loop had expired",
};

function describeSlot(slot: SlotRecord, loop: LoopRecord): string {
  const because = SLOT_REASONS[slot.reason ?? ""] ?? slot.reason ?? "no reason is recorded";
  switch (slot.outcome) {
    case "skipped":
      return `It was skipped: ${because}${slot.reason === "overlap" || slot.reason === "queue_full" ? ` (overlap ${loop.policy.overlap})` : ""}.`;
    case "missed":
      return `It was missed: ${because} (catch-up ${loop.policy.catchUp}).`;
    case "coalesced":
      return `It was missed because ${because}, and is made up for by the slot ${slot.coalescedInto === null ? "after it" : iso(slot.coalescedInto)}.`;
    case null:
      return "Its run has not ended yet.";
    default:
      return `It ${slot.outcome.replaceAll("_", " ")}; its run is not kept any more.`;
  }
}

/** The row that holds an instant of [from, until]: rows come newest first, so the search ends with the first older one. */
async function findSlot(
  context: StoreContext,
  loop: LoopRecord,
  from: Instant,
  until: Instant,
): Promise<SlotRecord | null> {
  let cursor: string | null = null;
  for (;;) {
    const page: Awaited<ReturnType<typeof context.store.slots.list>> = await context.store.slots.list({
      loopId: loop.id,
      limit: MAX_PAGE,
      cursor,
    });
    for (const slot of page.items) {
      if (slot.at <= until && slot.untilAt >= from) return slot;
      if (slot.untilAt < from) return null;
    }
    cursor = page.next;
    if (cursor === null) return null;
  }
}
