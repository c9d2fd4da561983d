/** Why a run waits, runs, failed or ended as it did. What admission refuses is asked of the function that the daemon decides by. */
import { describeRefusal, type Refusal } from "../../core/admission.ts";
import { describeDuration } from "../../core/duration.ts";
import { describeEscape, type Escape } from "../../core/escape.ts";
import type { AccountView, Instant } from "../../core/ports.ts";
import type { AttemptRecord, LoopRecord, RunRecord, RunTree } from "../../core/records.ts";
import { type HeldReason, isLiveAttempt } from "../../core/run.ts";
import { worktreeOf } from "../../core/target-parts.ts";
import { iso, type Remedy, toAccountDocument } from "../documents.ts";
import { inWords } from "../fault-words.ts";
import type { Json } from "../fields.ts";
import { WITHOUT_REASON } from "../accounts/hold-until.ts";
import { remedyOf } from "../accounts/login-remedy.ts";
import type { StoreContext } from "../operation.ts";
import { byCommand, remedyForRun } from "./remedy.ts";
import { isPlainWait, type PlainWait, WAITS } from "./wait-words.ts";
import { inTime, type Why } from "./why-answer.ts";
import { progressOf, whySteps } from "./why-steps.ts";
import { shellWord } from "../../core/shell-word.ts";

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

/** Who put a hold on, by its source; a limit otherwise. */
const HOLDERS: { readonly [source: string]: string } = {
  person: WITHOUT_REASON,
  auth: "its provider refused it",
};

/** When a hold ends, for a sentence. */
const holdEnd = (untilAt: Instant | null, now: Instant): string =>
  untilAt === null ? "until it is released" : `until ${iso(untilAt)} (${inTime(untilAt, now)})`;

/** What is known of the account that a run wants to work under; null for a command. */
export async function accountView({ store }: StoreContext, { run }: RunTree): Promise<AccountView | null> {
  return run.accountWish === null ? null : store.accounts.get({ accountId: run.accountWish });
}

/** What keeps an account back, as a sentence's middle; null when nothing does. */
export function accountHeld(view: AccountView | null, now: Instant): string | null {
  const hold = [...(view?.holds ?? []), ...(view?.providerHolds ?? [])].toSorted(
    (a, b) => (b.untilAt ?? Infinity) - (a.untilAt ?? Infinity),
  )[0];
  if (view == null || hold === undefined) return null;
  const who = HOLDERS[hold.source] ?? `it met a limit (${hold.source})`;
  const reason = hold.reason === who ? "" : `: ${inWords(hold.reason)}`;
  const what = hold.subjectKind === "provider" ? `the provider ${hold.subjectId}` : view.account.id;
  return `${what} is held ${holdEnd(hold.untilAt, now)}: ${who}${reason}`;
}

/** What to do about a refusal of admission; null where time or others' ends do it. Closed: each refusal has its answer. */
export function remedyForRefusal(refusal: Refusal): Remedy | null {
  switch (refusal.code) {
    case "held": {
      const noun = refusal.subject.startsWith("provider:") ? "agent" : "account";
      return byCommand(`drover ${noun} release ${refusal.subject.replace(/^\w+:/, "")}`, "ends that");
    }
    case "account_disabled":
      return byCommand(`drover account enable ${refusal.accountId}`, "lets it work");
    case "account_missing":
      return byCommand(`drover account add ${refusal.accountId.replace(":", " ")}`, "makes it");
    case "cap":
      if (refusal.resource.startsWith("folder:"))
        return {
          words: "agents that share a folder run one after another; --worktree auto gives each a tree of its own",
          command: null,
          file: null,
        };
      return refusal.resource.startsWith("host:")
        ? null
        : byCommand(`drover limit set ${refusal.resource} N`, "changes that");
    case "no_host":
    case "host_down":
      return byCommand("drover up", "starts one here");
    case "host_disk":
      return byCommand("drover doctor", "says how much is free and how much is needed");
    case "host_draining":
    case "probing":
    case "turn":
      return null;
  }
}

/** It is no reason for the run's end; who did it may be the agent, a person, or another run. */
const besides = (escaped: Escape, repository: string | null): string =>
  `While it ran, the checkout that its worktree was made from changed: ${describeEscape(escaped)}${repository === null ? "" : ` in ${repository}`}. That may be its doing or somebody else's; drover changes nothing there.`;

/** The loop that a run belongs to, as it is now; null where there is none, or none any more. */
export const loopOf = async ({ store }: Pick<StoreContext, "store">, { run }: RunTree): Promise<LoopRecord | null> =>
  run.loopId === null ? null : store.loops.get({ loopId: run.loopId });

/** A step that is not in the queue: what lets it in. */
async function whyHeld(context: StoreContext, { run, steps }: RunTree, now: Instant) {
  if (run.wakeAt !== null && run.wakeAt > now)
    return { sentence: `It is queued and may start ${inTime(run.wakeAt, now)}.`, remedy: null, more: {} };
  const loop = run.loopId === null ? null : await context.store.loops.get({ loopId: run.loopId });
  const isHeld = run.reason === "paused" || loop?.status === "paused";
  const asked = run.target.kind === "workflow" && steps.some(({ reason }) => reason === "judge");
  const held: HeldReason = isHeld ? "paused" : asked ? "judge" : "turn";
  switch (held) {
    case "judge":
      return {
        sentence: "It is queued: its definition is about to be asked what starts, which a daemon does at once.",
        remedy: null,
        more: {},
      };
    case "paused": {
      const name = shellWord(run.loopName ?? "");
      const why = loop?.pausedReason == null ? "" : ` (${loop.pausedReason})`;
      return {
        sentence: `It is queued until its loop, which is paused${why}, is resumed.`,
        remedy: byCommand(`drover loop resume ${name}`, "lets it start"),
        more: {},
      };
    }
    case "turn": {
      const before = await context.store.runs.beforeTurn({ runId: run.id });
      const [first] = before;
      const words =
        first === undefined
          ? ""
          : `: ${first.id} is ${first.status}${first.startedAt === null ? "" : ` for ${describeDuration(now - first.startedAt)}`}`;
      return {
        sentence: `It is queued until earlier runs of its loop have ended${words}.`,
        remedy: null,
        more: { behind: before.map(({ id }) => id) },
      };
    }
  }
}

export async function whyRun(context: StoreContext, tree: RunTree): Promise<Why> {
  const { run, steps, attempts } = tree;
  const now = context.clock.now();
  const isWorkflow = run.target.kind === "workflow";
  const step = isWorkflow ? (steps.find(({ status }) => status === "ready") ?? steps[0]) : steps[0];
  const told = isWorkflow ? await whySteps(context, tree) : [];
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
  /** What is told of a workflow beside what is told of any run. */
  const progress = isWorkflow ? `; ${progressOf(tree)}` : "";
  const escaped = tree.worktree?.escaped ?? null;
  const places = [
    escaped === null ? "" : ` ${besides(escaped, tree.worktree?.repository ?? null)}`,
    worktreeOf(run.target) === "auto" && tree.worktree == null && run.startedAt !== null
      ? ` It works in ${run.target.cwd} itself: no worktree could be made of it.`
      : "",
  ].join("");
  const answer = (
    sentence: string,
    more: { readonly [key: string]: Json } = {},
    remedy: Remedy | null = null,
  ): Why => ({
    thing: { kind: "run", id: run.id, name: run.loopName },
    sentence: `${sentence}${places}`,
    status: run.status,
    reason: run.reason,
    facts: {
      ...facts,
      ...more,
      ...(isWorkflow ? { steps: told as unknown as Json } : {}),
      ...(escaped === null ? {} : { escaped: escaped as unknown as Json }),
    },
    remedy,
  });
  const makingSince =
    tree.worktree?.state === "making" && last !== undefined && isLiveAttempt(last.status)
      ? tree.worktree.createdAt
      : null;
  const tries = step === undefined ? "" : `, try ${step.triesCounted} of ${step.maxAttempts}`;
  switch (run.status) {
    case "queued": {
      if (step?.status === "pending") {
        const { sentence, remedy, more } = await whyHeld(context, tree, now);
        return answer(sentence, more, remedy);
      }
      const explained = step === undefined ? null : await context.store.admission.explain({ stepId: step.id });
      const refusal = explained?.refusal ?? null;
      const more = { ahead: explained?.ahead ?? null, refusal: refusal as unknown as Json };
      if (refusal === null) return answer("It is queued, there is room, and it starts with the next pass.", more);
      const ahead = explained !== null && explained.ahead > 0 ? `; ${explained.ahead} stand before it` : "";
      const when = refusal.code === "held" && refusal.untilAt !== null ? ` (${inTime(refusal.untilAt, now)})` : "";
      const remedy = remedyForRefusal(refusal);
      return answer(
        `It is queued because ${inWords(describeRefusal(refusal))}${when}${ahead}${remedy === null ? "" : `; ${remedy.words}`}.`,
        more,
        remedy,
      );
    }
    case "waiting":
      return whyWaiting(context, tree, last, answer);
    case "running": {
      const { id } = run;
      if (run.cancelRequestedAt !== null)
        return answer(
          `It is being cancelled by ${whoCancels(run)} (${run.cancelReason ?? "no reason"}) since ${iso(run.cancelRequestedAt)} (${inTime(run.cancelRequestedAt, now)}); what is left of its processes is being ended.`,
          { pid: last?.pid ?? null, attempt: last?.number ?? null },
        );
      if (makingSince !== null)
        return answer(
          `Its worktree is being made since ${iso(makingSince)} (${inTime(makingSince, now)}); it runs because ${originOf(tree)}.`,
          { makingSince: iso(makingSince) },
        );
      const at = last === undefined || last.status === "running" ? "" : ` (its attempt is ${last.status})`;
      return answer(
        `It runs${run.startedAt === null ? "" : ` for ${describeDuration(now - run.startedAt)}`}${at} because ${originOf(tree)}${progress}.`,
        { pid: last?.pid ?? null, attempt: last?.number ?? null },
        byCommand(`drover logs -f ${id}`, "follows what it prints"),
      );
    }
    case "succeeded":
      return answer(
        `It ran because ${originOf(tree)}, and succeeded${last?.endedBy === "exit_timer" ? "; it did not exit by itself after its result, so its processes were ended" : ""}.`,
      );
    case "failed":
    case "timed_out": {
      const said = run.error?.message ?? last?.message;
      const loop = await loopOf(context, tree);
      return answer(
        `It ${run.status === "failed" ? "failed" : "timed out"}: ${said == null ? "for a reason that is not known" : inWords(said)} (${run.error?.class ?? run.reason ?? "unknown"}${tries}). It ran because ${originOf(tree)}.`,
        loop?.managedBy == null ? {} : { file: loop.managedBy },
        await remedyForRun(context, tree, loop, await accountView(context, tree)),
      );
    }
    case "cancelled":
      return answer(
        run.cancelRequestedAt === null
          ? `It was cancelled (${run.reason ?? "no reason"}).`
          : run.cancelBy === "restore"
            ? "It was cancelled by the restore of a backup: it had not ended when the backup was made."
            : cancelledBy(run),
      );
    case "skipped":
      return answer(`It was skipped: ${run.reason ?? "no reason"}.`);
  }
}

const whoCancels = ({ cancelBy }: RunRecord): string => (cancelBy === "person" ? "a person" : (cancelBy ?? "somebody"));

/** Who ended it and why; what says only who is not said twice. */
function cancelledBy(run: RunRecord): string {
  const who = `cancelled by ${whoCancels(run)}`;
  const why = run.cancelReason ?? run.reason ?? "no reason";
  return why === who ? `It was ${who}.` : `It was ${who}: ${why}.`;
}

async function whyWaiting(
  context: StoreContext,
  tree: RunTree,
  last: AttemptRecord | undefined,
  answer: (sentence: string, more?: { readonly [key: string]: Json }, remedy?: Remedy | null) => Why,
): Promise<Why> {
  const { run } = tree;
  const now = context.clock.now();
  const until = run.wakeAt === null ? "" : `; it goes on ${inTime(run.wakeAt, now)}`;
  /** @param told what the sentence says already: the hold of a limit has the words of the end that put it on */
  const causeBeside = (told: string | null): string => {
    if (last?.message == null) return "";
    const said = inWords(last.message);
    return ` (last end: ${last.class ?? last.status}${told?.includes(said) === true ? "" : `: ${said}`})`;
  };
  const { reason } = run;
  if (reason === "limit" || reason === "account") {
    const view = await accountView(context, tree);
    const id = run.accountWish ?? "its account";
    const more = { account: view === null ? null : (toAccountDocument(view) as unknown as Json) };
    const held = accountHeld(view, now);
    const cause = causeBeside(held);
    const release = `drover account release ${id}`;
    if (reason === "account") {
      const login = await remedyOf(context, tree.run, view);
      return answer(
        `It waits because ${held ?? `${id} is refused or not logged in`}${cause}; ${login.words}, then \`${release}\` wakes it.`,
        more,
        {
          words: `${login.words}, then \`${release}\` wakes it`,
          command: login.command === null ? release : `${login.command} && ${release}`,
          file: null,
        },
      );
    }
    return answer(
      `It waits because ${held ?? `${id} is at a limit`}${until}${cause}; \`${release}\` tries at once.`,
      more,
      byCommand(release, "tries at once"),
    );
  }
  if (!isPlainWait(reason))
    return answer(`It waits because of ${reason ?? "an unknown reason"}${until}${causeBeside(null)}.`);
  return answer(
    `It waits ${WAITS[reason]}${until}${causeBeside(null)}.`,
    {},
    await remedyForWait(context, tree, reason),
  );
}

/** What shortens a wait. Closed: each reason has its answer. */
async function remedyForWait(context: StoreContext, tree: RunTree, reason: PlainWait): Promise<Remedy | null> {
  switch (reason) {
    case "retry": {
      const loop = await loopOf(context, tree);
      if (loop === null || loop.archivedAt !== null) return null;
      return byCommand(`drover loop run ${shellWord(loop.name)}`, "tries at once");
    }
    case "program": {
      const loop = await loopOf(context, tree);
      const at = loop === null ? "" : `, then \`drover loop run ${shellWord(loop.name)}\` tries at once`;
      return {
        words: `install it, or put it where the daemon's PATH leads${at}`,
        command: loop === null ? "drover agent ls" : `drover loop run ${shellWord(loop.name)}`,
        file: null,
      };
    }
    case "disk":
      return byCommand("drover doctor", "says how much is free and how much is needed");
    case "capacity":
    case "timer":
      return null;
  }
}
