/** Waits for the end of a run on behalf of a command, shows its output meanwhile, and says what the end means. */
import { describeRefusal, type Refusal } from "../core/admission.ts";
import type { Usage } from "../core/agent.ts";
import { describeDuration } from "../core/duration.ts";
import { AppError } from "../core/errors.ts";
import type { RunTree } from "../core/records.ts";
import { isLiveAttempt, type RunStatus } from "../core/run.ts";
import { attemptOf, parsedOutput, type RunTreeDocument } from "../ops/documents.ts";
import { findRun } from "../ops/find.ts";
import { inWords } from "../ops/fault-words.ts";
import { remedyOf } from "../ops/accounts/login-remedy.ts";
import type { StoreContext } from "../ops/operation.ts";
import { withReading } from "../ops/perform.ts";
import { answerRun } from "../ops/runs/run-answer.ts";
import { isPlainWait, WAITS } from "../ops/why/wait-words.ts";
import type { World } from "../ops/world.ts";
import { RUN_EXIT } from "./exits.ts";
import { usualMs } from "../ops/runs/usual.ts";
import { type LiveLine, openLiveLine, type Standing, tokens } from "./live.ts";
import { isTerminal, type Screen } from "./screen.ts";
import { inertLine } from "./text.ts";

/** How often the store is looked at: soon after something changed, less often when nothing does. */
const SOONEST_LOOK_MS = 15;
const LATEST_LOOK_MS = 250;
/** How often a run that has not ended makes us ask whether its daemon is there. */
const DAEMON_LOOK_MS = 2_000;
/** Looks that found no daemon, one after the other, until it is taken for gone: one may be just replaced by another. */
const ABSENCES = 3;
/** The same where nobody watches: long enough for a restart of the daemon on a busy machine. */
const ABSENCES_OF_SCRIPT = 15;
/** Of a line of output, as much is kept as could be shown. */
const MAX_LINE = 1_000;
/** A wait that is shorter is not worth a line where no line can be redrawn. */
const SAID_AFTER_MS = 1_000;

export interface WaitRequest {
  readonly runId: string;
  /** How long a wait for a limit or a person is waited out; Infinity for ever. Null waits for the end whatever it takes. */
  readonly limitMs: number | null;
  /** Prints the run's output as it comes. */
  readonly prints: boolean;
  /** Aborted by the first Ctrl-C. */
  readonly interrupted: AbortSignal;
  /** Asks for the end of the run. */
  cancel(): Promise<void>;
  say(line: string): void;
}

export interface Waited {
  readonly run: RunTreeDocument;
  readonly exit: number;
}

export function exitOf(status: RunStatus): number {
  switch (status) {
    case "failed":
      return RUN_EXIT.failed;
    case "timed_out":
      return RUN_EXIT.timedOut;
    case "cancelled":
      return RUN_EXIT.interrupted;
    default:
      return 0;
  }
}

/** Errors: AppError unreachable `daemon_down` when the daemon goes away for good; not_found when the run does. */
export function waitForRun(world: World, screen: Screen, request: WaitRequest): Promise<Waited> {
  return withReading(world, (context) => wait(world, context, screen, request));
}

async function wait(world: World, context: StoreContext, screen: Screen, request: WaitRequest): Promise<Waited> {
  const live = openLiveLine(screen, () => world.clock.now());
  try {
    return await waitBehind(live, world, context, screen, request);
  } finally {
    live.close();
  }
}

async function waitBehind(
  live: LiveLine,
  world: World,
  context: StoreContext,
  screen: Screen,
  request: WaitRequest,
): Promise<Waited> {
  const { store } = context;
  // What is not printed is looked at for its last line.
  const printer = request.prints || screen.redraws ? startPrinter(context, screen, live, request.prints) : null;
  const usual = screen.redraws ? usualMs(store, request.runId).catch(() => null) : null;
  let askedToCancel = false;
  let heldSince: number | null = null;
  let lookMs = SOONEST_LOOK_MS;
  let askedDaemonAt = performance.now();
  let absences = 0;
  let seen = "";
  let said = "";
  let heldExit: number | null = null;
  try {
    for (;;) {
      const tree = await store.runs.get({ runId: request.runId });
      if (tree === null)
        throw new AppError(
          "not_found",
          "run_not_found",
          `the run ${request.runId} is gone: it was removed while it was waited for`,
          {
            hint: "`drover runs` lists the newest runs.",
          },
        );
      printer?.show(tree);
      const end = async (exit: number): Promise<Waited> => {
        live.show(null);
        await printer?.finish(tree);
        live.close();
        return { run: await answerRun(context, tree), exit };
      };
      if (tree.run.finishedAt !== null && tree.attempts.every((attempt) => !isLiveAttempt(attempt.status)))
        return await end(exitOf(tree.run.status));

      if (request.interrupted.aborted && !askedToCancel) {
        askedToCancel = true;
        live.say("cancelling; another Ctrl-C leaves at once");
        await request.cancel();
      }

      const held = askedToCancel || request.limitMs === null ? null : await heldBy(context, tree);
      // A wait that ends by itself does not count as one for a limit.
      if (held === null || held.exit !== heldExit) heldSince = null;
      heldExit = held?.exit ?? null;
      if (held !== null) {
        heldSince ??= performance.now();
        const limitMs = request.limitMs ?? Number.POSITIVE_INFINITY;
        const waitedMs = performance.now() - heldSince;
        if (held.exit === null) {
          // With a message it has tried and could not; else a terminal's progress line says it.
          const worth = held.message !== null || (!screen.redraws && waitedMs >= SAID_AFTER_MS);
          if (worth && said !== held.key) {
            said = held.key;
            live.say(`${tree.run.id} waits: ${held.why}`);
          }
        }
        const comesBack = held.wakeAt !== null && held.wakeAt - world.clock.now() + waitedMs <= limitMs;
        if (held.exit !== null && waitedMs >= limitMs && !comesBack) {
          const waited = await end(held.exit);
          request.say(`${tree.run.id} waits: ${held.why}; ${await whoGoesOn(world, held.exit)}`);
          return waited;
        }
      }
      const isAway = absences >= ABSENCES;
      live.show(
        standingOf(tree, world.clock.now(), {
          usualMs: (await usual) ?? null,
          why: isAway ? AWAY : (held?.why ?? null),
          ...(printer?.told() ?? { last: null, tokens: 0 }),
        }),
      );

      if (performance.now() - askedDaemonAt > DAEMON_LOOK_MS) {
        askedDaemonAt = performance.now();
        const answer = await world.askDaemon();
        const before = absences;
        absences = "absent" in answer && answer.absent === "down" ? absences + 1 : 0;
        // One that was there for this run alone leaves when there is nothing left that it could do.
        const needed = absences >= ABSENCES ? await neededFromPerson(context, tree) : null;
        if (needed !== null) {
          const waited = await end(RUN_EXIT.person);
          request.say(`${tree.run.id} waits: ${needed}; ${await whoGoesOn(world, RUN_EXIT.person)}`);
          return waited;
        }
        // A person sees it, and decides; a script is told when it has lasted.
        if (absences >= (screen.redraws ? Number.POSITIVE_INFINITY : ABSENCES_OF_SCRIPT))
          throw new AppError("unreachable", "daemon_down", `no daemon is running any more; ${tree.run.id} is kept`, {
            hint: "drover up",
          });
        if (screen.redraws && absences === ABSENCES) live.say(awayWords(tree));
        if (screen.redraws && before >= ABSENCES && absences === 0) live.say("a daemon is back");
      }
      const looks = `${tree.run.status} ${tree.attempts.length} ${tree.attempts.at(-1)?.status}`;
      lookMs = looks === seen ? Math.min(LATEST_LOOK_MS, lookMs * 1.3) : SOONEST_LOOK_MS;
      seen = looks;
      await pause(lookMs, askedToCancel ? null : request.interrupted);
    }
  } finally {
    printer?.stop();
  }
}

/** How often a followed run is looked at. */
const WATCH_MS = 500;

/** Says how a run stands, for as long as somebody else prints its output. Never throws: it is only about the line. */
export async function watchRun(world: World, ref: string, live: LiveLine, over: AbortSignal): Promise<void> {
  try {
    await withReading(world, async ({ store }) => {
      const { run } = await findRun(store, ref);
      const usual = await usualMs(store, run.id);
      let absences = 0;
      for (let looks = 0; !over.aborted; looks++) {
        const tree = await store.runs.get({ runId: run.id });
        if (tree === null || tree.run.finishedAt !== null) return live.show(null);
        if (looks % (DAEMON_LOOK_MS / WATCH_MS) === 0) {
          const answer = await world.askDaemon();
          absences = "absent" in answer && answer.absent === "down" ? absences + 1 : 0;
        }
        const why = absences >= ABSENCES ? AWAY : null;
        live.show(standingOf(tree, world.clock.now(), { usualMs: usual, why, last: null, tokens: 0 }));
        await pause(WATCH_MS, over);
      }
    });
  } catch {
    live.show(null); // what is wrong with the run or the store is told by what prints the output
  }
}

const AWAY = "the daemon is away: `drover up` starts one";

/** What it means for a run that there is no daemon. */
const awayWords = ({ run, attempts }: RunTree): string =>
  attempts.some((attempt) => isLiveAttempt(attempt.status))
    ? `the daemon is away; ${run.id} goes on without it, and its end is told when one is back: drover up`
    : `the daemon is away; ${run.id} is kept, and starts when one is back: drover up`;

const totalTokens = (usage: Partial<Usage> | null): number =>
  (usage?.inputTokens ?? 0) + (usage?.cachedInputTokens ?? 0) + (usage?.outputTokens ?? 0);

interface Told {
  readonly usualMs: number | null;
  readonly why: string | null;
  /** The last line of output, where it is not on the screen already. */
  readonly last: string | null;
  readonly tokens: number;
}

/** How a run stands, for the line below its output. */
export function standingOf({ run, steps, attempts, worktree }: RunTree, now: number, told: Told): Standing | null {
  if (run.finishedAt !== null) return null;
  const newest = attempts.toSorted((a, b) => b.number - a.number)[0];
  const at = newest !== undefined && isLiveAttempt(newest.status) ? newest : undefined;
  const step = steps[0];
  const used = attempts.reduce(
    (sum, { usageTotal }) => {
      const usage = usageTotal === null ? null : (parsedOutput(usageTotal) as Partial<Usage> | null);
      return sum + totalTokens(usage);
    },
    at === undefined ? 0 : told.tokens,
  );
  const notes = [
    ...(step !== undefined && step.maxAttempts > 1 && newest !== undefined
      ? [`try ${Math.min(step.maxAttempts, step.triesCounted + (at === undefined ? 0 : 1))} of ${step.maxAttempts}`]
      : []),
    ...(used === 0 ? [] : [tokens(used)]),
  ];
  const standing = (state: string, since: number | null, words: string | null): Standing => ({
    state,
    since: since ?? now,
    usualMs: state === "running" ? told.usualMs : null,
    words,
    notes,
  });
  if (at === undefined) {
    const { reason, status, queuedAt } = run;
    const why = told.why ?? (reason === "turn" ? "earlier runs of its loop have not ended" : reason);
    return standing(status, newest?.finishedAt ?? queuedAt, why);
  }
  if (run.cancelRequestedAt !== null || at.endingSince !== null)
    return standing("ending", at.endingSince ?? run.cancelRequestedAt, told.why ?? "its processes are being ended");
  if (at.status === "running") return standing("running", run.startedAt ?? at.startedAt, told.why ?? told.last);
  const making = worktree?.state === "making" ? "its worktree is being made" : null;
  return standing("starting", run.queuedAt, told.why ?? making);
}

interface Held {
  /** What leaving it means; null where the wait ends by itself. */
  readonly exit: number | null;
  /** Same while the cause is the same. */
  readonly key: string;
  /** How the last attempt ended. */
  readonly message: string | null;
  readonly why: string;
  readonly wakeAt: number | null;
}

/** Who goes on with a run that is left waiting: a daemon that is there until it is idle does not wait for people. */
async function whoGoesOn(world: World, exit: number): Promise<string> {
  const answer = await world.askDaemon();
  return exit !== RUN_EXIT.person || ("health" in answer && answer.health.mode === "full")
    ? "it goes on in the daemon"
    : "after that `drover up` goes on with it";
}

/** What only a person can do for a run that is not at work; null when it is not known that anybody has to. */
async function neededFromPerson({ store }: StoreContext, { run }: RunTree): Promise<string | null> {
  const { accountWish } = run;
  if (accountWish === null || (run.status !== "queued" && run.status !== "waiting")) return null;
  const view = await store.accounts.get({ accountId: accountWish });
  const provider = accountWish.split(":")[0];
  const ofProvider = (await store.accounts.providerHolds({})).filter((hold) => hold.subjectId === provider);
  const hold = [...ofProvider, ...(view?.holds ?? [])].find(({ untilAt }) => untilAt === null);
  if (hold !== undefined)
    return describeRefusal({ code: "held", subject: `${hold.subjectKind}:${hold.subjectId}`, ...hold });
  return view?.account.enabled === false ? describeRefusal({ code: "account_disabled", accountId: accountWish }) : null;
}

/** What a run waits for; null when it is at work or about to be. */
async function heldBy(context: StoreContext, { run, steps, attempts }: RunTree): Promise<Held | null> {
  const { store, clock } = context;
  const { wakeAt } = run;
  const last = attempts.toSorted((a, b) => b.number - a.number)[0];
  const message = last?.message == null ? null : inWords(last.message);
  const cause = message === null ? "" : ` (last end: ${message})`;
  if (run.status === "waiting") {
    const key = `${run.reason} ${attempts.length}`;
    if (run.reason === "person")
      return { exit: RUN_EXIT.person, why: "a person has to answer", wakeAt, key, message: null };
    if (run.reason === "account") {
      const id = run.accountWish ?? "its account";
      const view = run.accountWish === null ? null : await store.accounts.get({ accountId: run.accountWish });
      const { words } = await remedyOf(context, run, view);
      const why = `${id} needs a person: ${words}, then \`drover account release ${id}\``;
      return { exit: RUN_EXIT.person, why: `${why}${cause}`, wakeAt, key, message };
    }
    if (run.reason === "limit" || run.reason === "capacity" || run.reason === "disk") {
      const until = wakeAt === null ? "" : ` for ${describeDuration(Math.max(0, wakeAt - clock.now()))}`;
      const why =
        run.reason === "disk"
          ? "free disk space is short"
          : run.reason === "limit"
            ? `${run.accountWish ?? "its account"} is at a limit${until}`
            : `its provider is short of capacity${until}`;
      return { exit: RUN_EXIT.limit, why: `${why}${cause}`, wakeAt, key, message };
    }
    const again = wakeAt === null ? "" : ` in ${describeDuration(Math.max(0, wakeAt - clock.now()))}`;
    const why =
      run.reason === "retry"
        ? `it tries again${again}`
        : `${isPlainWait(run.reason) ? WAITS[run.reason] : (run.reason ?? "for its next step")}${again === "" ? "" : `, goes on${again}`}`;
    return { exit: null, why: `${why}${cause}`, wakeAt, key, message };
  }
  const ready = run.status === "queued" ? steps.find((step) => step.status === "ready") : undefined;
  if (ready === undefined) return null;
  const refusal = (await store.admission.explain({ stepId: ready.id }))?.refusal ?? null;
  if (refusal === null) return null;
  const refused = inWords(describeRefusal(refusal));
  return {
    exit: await exitOfRefusal(store, refusal),
    // The hold of a limit has the words of the end that put it on.
    why: `${refused}${message !== null && refused.includes(message) ? "" : cause}`,
    wakeAt: refusal.code === "held" ? refusal.untilAt : null,
    key: `${refusal.code} ${attempts.length}`,
    message,
  };
}

/** Whether a refusal is a limit's or a person's to end; null where it ends by itself. */
async function exitOfRefusal(store: StoreContext["store"], refusal: Refusal): Promise<number | null> {
  switch (refusal.code) {
    case "cap":
    case "host_disk":
    case "probing":
      return RUN_EXIT.limit;
    case "account_disabled":
    case "account_missing":
      return RUN_EXIT.person;
    case "held": {
      if (refusal.untilAt === null) return RUN_EXIT.person;
      const [kind, ...id] = refusal.subject.split(":");
      const holds =
        kind === "provider"
          ? (await store.accounts.providerHolds({})).filter((one) => one.subjectId === id.join(":"))
          : (await store.accounts.get({ accountId: id.join(":") }))?.holds;
      const hold = holds?.find((one) => one.untilAt === refusal.untilAt);
      return hold?.source === "person" ? RUN_EXIT.person : RUN_EXIT.limit;
    }
    default:
      return null;
  }
}

/** Prints both outputs of the run's attempts, one attempt after the other; of an agent that speaks in events its transcript. */
function startPrinter(context: StoreContext, screen: Screen, live: LiveLine, prints: boolean) {
  let last = "";
  let used = 0;
  /** What is not on this terminal has its last line in the line below. */
  const isSeen = prints && isTerminal("stdout");
  const tell = (text: string): void => {
    if (isSeen) return;
    const lines = (last + text).split("\n");
    const rest = (lines.pop() ?? "").slice(-MAX_LINE);
    const whole = lines.findLast((line) => line.trim() !== "");
    last = rest.trim() === "" && whole !== undefined ? `${whole.slice(0, MAX_LINE)}\n${rest}` : rest;
  };
  const stop = new AbortController();
  let attemptId: string | null = null;
  let ended = new AbortController();
  let work: Promise<unknown> = Promise.resolve();
  const print = async (folder: string, stream: "stdout" | "stderr", over: AbortSignal) => {
    const pieces = context.output.follow({ folder, stream, tailLines: null, raw: false }, over, stop.signal);
    for await (const piece of pieces) {
      tell(piece);
      if (prints) await live.print(stream, piece);
    }
  };
  const printEntries = async (folder: string, over: AbortSignal) => {
    const { entryText } = await import("./views/transcript.ts");
    for await (const entry of context.output.followTranscript(folder, over, stop.signal)) {
      if (entry.kind === "usage") used = totalTokens(entry.usage);
      if (entry.kind === "text") tell(`${entry.text}\n`);
      if (entry.kind === "tool_call") tell(`calls ${entry.tool}\n`);
      if (prints) await live.print("stdout", entryText(entry, screen));
    }
  };
  /** Of a workflow a line for each step that begins, waits or ends: what it prints is in its own log. */
  const stood = new Map<string, string>();
  const tellSteps = ({ steps }: RunTree): void => {
    for (const { id, key, status, reason, result } of steps) {
      const why = result?.message ?? reason;
      const standing = `${status}${why === null ? "" : ` (${why})`}`;
      if (stood.get(id) === standing) continue;
      stood.set(id, standing);
      if (status === "pending" || status === "ready") continue;
      const line = `${key}  ${inertLine(inWords(standing))}\n`;
      tell(line);
      if (prints) work = work.then(() => live.print("stdout", line)).catch(() => {});
    }
  };
  const speaksInEvents = async ({ target }: RunTree["run"]): Promise<boolean> =>
    target.kind === "agent" && (await context.agents.about(target.provider)).capabilities.jsonEvents;
  return {
    show(tree: RunTree): void {
      if (tree.run.target.kind === "workflow") return tellSteps(tree);
      const attempt = attemptOf(tree, "main", null);
      if (attempt === null || attempt.folder === null) return;
      if (attempt.id !== attemptId) {
        ended.abort();
        ended = new AbortController();
        attemptId = attempt.id;
        used = 0;
        const { folder } = attempt;
        const over = ended.signal;
        work = work
          .then(async () =>
            (await speaksInEvents(tree.run))
              ? printEntries(folder, over)
              : Promise.all([print(folder, "stdout", over), print(folder, "stderr", over)]),
          )
          .catch(() => {});
      }
      if (!isLiveAttempt(attempt.status)) ended.abort();
    },
    /** What is there when the run has ended is printed to its end. */
    async finish(tree: RunTree): Promise<void> {
      if (tree.run.target.kind === "workflow") tellSteps(tree);
      if (tree.run.finishedAt === null) stop.abort();
      ended.abort();
      await work;
    },
    /** What it has said so far. */
    told: (): Pick<Told, "last" | "tokens"> => ({ last: last.split("\n")[0]?.trim() ?? null, tokens: used }),
    stop(): void {
      ended.abort();
      stop.abort();
    },
  };
}

export function pause(ms: number, signal: AbortSignal | null): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    if (signal?.aborted === true) done();
    else signal?.addEventListener("abort", done, { once: true });
  });
}
