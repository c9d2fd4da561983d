/** The life of each attempt of this host: prepared, recorded, asked for, watched, ended, judged, settled. */
import type { AgentReading } from "../core/agent.ts";
import type { Limits } from "../core/limits.ts";
import type { EndReport, Judgement } from "../core/ports.ts";
import type { Assignment } from "../core/records.ts";
import type { Outcome, RunStatus, StepStatus } from "../core/run.ts";
import { accountOf, worktreeOf } from "../core/target-parts.ts";
import { createAftermath, type Found } from "./aftermath.ts";
import { type Ending, type EndWish, type Evidence, notBegun, nothing } from "./classify.ts";
import { createGate, type Gate } from "./gate.ts";
import { createLaunches } from "./launch.ts";
import { type AgentLife, type Life, lifeOf } from "./life.ts";
import { idleLookMs, overdue } from "./overdue.ts";
import type { EnginePorts, PointName } from "./ports.ts";
import { wayOf } from "./resumption.ts";
import { Halted, type Weather } from "./weather.ts";

/** All attempts of this host that are not over. */
export interface Runner {
  /** A reservation for this host: starts it. Taking it twice is taking it once. */
  take(assignment: Assignment): void;
  /** An attempt that an earlier daemon of this host left. Resolves when it is adopted, or its end is certain. */
  resume(assignment: Assignment): Promise<void>;
  /** Ends attempts: their processes, then their rows. */
  end(attemptId: string, wish: EndWish): void;
  /** Their token is no longer ours: their processes end, nothing is settled. */
  fence(attemptIds: readonly string[]): void;
  bell(folder: string): void;
  /** The resident spawner died: what was asked for and took no ticket is decided now. */
  replaced(): void;
  /** Whether it is at work here, or was until a moment ago. */
  knows(attemptId: string): boolean;
  lives(): readonly Life[];
  /** Resolves when no attempt is left here. */
  empty(): Promise<void>;
  /** Resolves when nothing is being done about any attempt at this moment. */
  quiet(): Promise<void>;
}

/** What attempts are led with, and whom the runner tells. */
export interface RunnerOptions {
  readonly ports: EnginePorts;
  readonly limits: Limits;
  readonly socket: string;
  readonly hostId: string;
  readonly incarnation: number;
  readonly weather: Weather;
  /** Somebody has to look at it within that many awake milliseconds. */
  readonly watchWithin: (ms: number) => void;
  /** The end of an attempt is on its way to the store: what is asked for now comes right behind it, in the same commit. */
  readonly onSettling: () => void;
  /** An attempt is settled: what may follow from it, besides a start. */
  readonly onSettled: (assignment: Assignment, step: StepStatus | null, run: RunStatus | null) => void;
  /** The account of an attempt is known to work again. */
  readonly onAnswered?: () => void;
  /** The last attempt that was here is over, its files looked after. */
  readonly onEmpty?: () => void;
  /** The disk is too full to start anything. */
  readonly onFull: () => void;
  /** Another daemon has joined as this host: all of it belongs to that one now. */
  readonly onSuperseded: () => void;
}

/** Attempts that are remembered after their end, so that an answer that was under way does not start them again. */
const REMEMBERED = 1_000;

/** The one that leads the attempts of this host. It begins with none: what an earlier daemon left comes by `resume`. */
export function createRunner(options: RunnerOptions): Runner {
  const { ports, limits, weather, hostId, incarnation } = options;
  const { clock, store, spawner, files, log } = ports;
  const launches = createLaunches(options);
  const aftermath = createAftermath(options);
  const lives = new Map<string, Life>();
  const byFolder = new Map<string, Life>();
  /** Resolves when the newest attempt of a step is over. */
  const ofStep = new Map<string, Promise<void>>();
  const past = new Set<string>();
  const starts = createGate(limits.startsAtOnce);
  /** Trees in the making: a checkout takes minutes, and no other start waits for it. */
  const makes = createGate(limits.startsAtOnce);
  const looks = createGate(limits.looksAtOnce);
  /** The starts that are under way, as far as ends wait for them. */
  let burst: Promise<unknown> | null = null;
  /** By account: starts that come one after another. */
  const doors = new Map<string, Gate>();
  let whenEmpty: (() => void)[] = [];
  let whenQuiet: (() => void)[] = [];

  const point = async (name: PointName, life: Life) => ports.point?.(name, life.id);

  // --- who is here ---------------------------------------------------------------------------------------------------

  function welcome(assignment: Assignment, phase: Life["phase"]): Life {
    const life = lifeOf(assignment, phase, clock, spawner.bootId);
    lives.set(life.id, life);
    byFolder.set(life.folder, life);
    return life;
  }

  function leave(life: Life): void {
    openDoor(life);
    lives.delete(life.id);
    byFolder.delete(life.folder);
    past.add(life.id);
    if (past.size > REMEMBERED) past.delete(past.values().next().value as string);
    if (lives.size === 0) {
      for (const go of whenEmpty) go();
      whenEmpty = [];
      options.onEmpty?.();
    }
  }

  function rest(life: Life): void {
    life.busy = false;
    if (whenQuiet.length === 0 || [...lives.values()].some((one) => one.busy)) return;
    for (const go of whenQuiet) go();
    whenQuiet = [];
  }

  /** Leads one attempt to its end. An error that is nobody's weather costs this attempt a pause, and others nothing. */
  async function lead(life: Life): Promise<void> {
    for (;;) {
      life.busy = true;
      try {
        const over = await step(life);
        life.mishaps = 0;
        if (over) break;
      } catch (error) {
        if (error instanceof Halted) {
          rest(life);
          return; // what is not written down now is found by the next daemon
        }
        life.mishaps++;
        lookWithin(life, weather.mishap(`attempt ${life.id}`, error, life.mishaps));
      }
      rest(life);
      await life.latch.wait();
    }
    leave(life);
    rest(life);
  }

  function follow(life: Life, first: () => Promise<unknown> = async () => undefined): void {
    const { stepId } = life.assignment.attempt;
    const over = first().then(() => lead(life));
    ofStep.set(stepId, over);
    void over.then(() => {
      if (ofStep.get(stepId) === over) ofStep.delete(stepId);
    });
  }

  function fence(attemptIds: readonly string[]): void {
    for (const id of attemptIds) {
      const life = lives.get(id);
      if (life === undefined || life.wish?.by === "fence" || life.outcome !== null) continue;
      life.wish = { by: "fence", message: "its token was taken", inherited: false };
      life.unwanted.abort();
      life.latch.ring();
    }
  }

  function step(life: Life): Promise<boolean> {
    if (life.outcome !== null) return settle(life);
    return life.phase === "reserved" ? begin(life) : look(life);
  }

  function lookWithin(life: Life, ms: number): void {
    life.judgeAt = clock.awake() + ms;
    options.watchWithin(ms);
  }

  // --- starting ------------------------------------------------------------------------------------------------------

  async function begin(life: Life): Promise<boolean> {
    let cwd: string | null = null;
    if (life.wish === null && worktreeOf(life.assignment.run.target) !== "off")
      try {
        cwd = await makes.run(() => launches.workplace(life), life.unwanted.signal);
      } catch (error) {
        const unfit = launches.unfit(life, error);
        return life.wish === null ? ended(life, unfit) : notWanted(life, life.wish);
      }
    const { target } = life.assignment.run;
    if (target.kind === "agent" && ports.agents.traits(target.provider).serialStarts)
      return throughDoor(life, accountOf(target), cwd);
    return starts.run(() => start(life, cwd));
  }

  /** Starts it when the one before it under this account has begun its session, so that both do not renew one login. */
  function throughDoor(life: Life, accountId: string, cwd: string | null): Promise<boolean> {
    const door = doors.get(accountId) ?? createGate(1);
    doors.set(accountId, door);
    return new Promise((resolve, reject) => {
      // Nothing is done about one that waits, and a daemon that goes down does not wait for it.
      rest(life);
      void door.run(async () => {
        life.busy = true;
        const begun = new Promise<void>((open) => {
          if (life.agent !== null) life.agent.open = open;
        });
        await starts.run(() => start(life, cwd)).then(resolve, reject);
        if (life.phase === "asked" && life.outcome === null) await begun;
      });
    });
  }

  function openDoor(life: Life): void {
    life.agent?.open?.();
    if (life.agent !== null) life.agent.open = null;
  }

  /** It was to end before it had begun. What is not ours any more is not ours to settle. */
  const notWanted = async (life: Life, wish: EndWish): Promise<boolean> =>
    wish.by === "fence" || ended(life, notBegun(wish));

  async function start(life: Life, cwd: string | null): Promise<boolean> {
    if (life.wish !== null) return notWanted(life, life.wish);
    const ready = await launches.prepare(life, cwd);
    if ("unfit" in ready) return ended(life, ready.unfit);
    const { sessionId } = ready;
    life.awakeAt = Math.floor(clock.awake());
    life.askedAt = clock.now();
    const answer = await weather.persist("attempts.start", () =>
      store.attempts.start({
        attemptId: life.id,
        token: life.token,
        bootId: life.bootId,
        folder: life.folder,
        awakeAt: life.awakeAt,
        ...(sessionId === null ? {} : { sessionId }),
      }),
    );
    if (life.agent !== null && answer === "done") life.agent.sessionId = sessionId;
    if (answer !== "done") {
      await files.remove(life.folder);
      if (answer === "session_busy") {
        const message = "another attempt is at work in the session that it goes on with";
        return ended(life, { ...nothing, kind: "never_started", class: "spawn", message });
      }
      if (answer === "cancelled")
        return ended(life, notBegun({ by: "cancel", message: "cancelled before it started", inherited: false }));
      log("warn", "start_refused", { attempt: life.id, answer });
      return true;
    }
    // From here on its files decide whether it started, whoever asks.
    life.phase = "asked";
    await point("recorded", life);
    try {
      await spawner.ask(life.folder);
    } catch (error) {
      // No evidence either way: the ticket decides, or the tombstone after `askPatienceMs`.
      log("warn", "ask_failed", { attempt: life.id, message: String(error) });
    }
    await point("spawned", life);
    life.measuredAt = clock.awake();
    lookWithin(life, limits.firstLookMs);
    return false;
  }

  // --- looking -------------------------------------------------------------------------------------------------------

  const judge = (life: Life, plant: boolean): Promise<Judgement> =>
    looks.run(() => spawner.judge({ folder: life.folder, bootId: life.bootId, plant }));

  /**
   * What has ended waits until those that are being started are: its end is written down already, and its processor time is what
   * they wait for when many are due in one second. Not for long, since one of them may wait for a secret, and what has ended
   * makes room.
   */
  function behindStarts(): Promise<unknown> {
    if (burst === null) {
      const limit = new AbortController();
      const over = starts.empty();
      burst = Promise.race([over, clock.sleep(limits.startsFirstMs, limit.signal)]);
      void over.then(() => {
        limit.abort();
        burst = null;
      });
    }
    return burst;
  }

  async function look(life: Life): Promise<boolean> {
    if (!starts.isEmpty() && life.wish === null && (life.rung || !life.seen)) await behindStarts();
    const awake = clock.awake();
    const { rung } = life;
    life.rung = false;
    if (life.wish === null && !life.plant && !rung && awake < life.judgeAt) {
      if (awake < life.measureAt) return false;
      await listen(life, awake, measure(life, awake));
      if (overdue(life, awake, limits) === null) return watchOn(life, awake, life.judgeAt);
    }
    if (life.wish?.by === "fence") return expel(life);
    const patient = life.wish === null && !life.plant && awake - life.awakeAt < limits.askPatienceMs;
    const judgement = await judge(life, !patient);
    switch (judgement.kind) {
      case "asked":
        // Its bell rings at its end only, and somebody waits for its beginning.
        if (life.agent !== null && life.agent.open !== null) lookWithin(life, limits.firstLookMs);
        else lookWithin(life, Math.max(0, life.awakeAt + limits.askPatienceMs - awake));
        return false;
      case "live":
        return watchLive(life, judgement);
      case "orphan":
        return finish(life, life.wish ?? { by: "fence", message: "its shim died", inherited: false }, judgement);
      case "never_started":
      case "ended":
      case "lost":
        return conclude(life, judgement, inherited(life));
    }
  }

  async function watchLive(life: Life, judgement: Extract<Judgement, { kind: "live" }>): Promise<boolean> {
    life.plant = false;
    life.seen = true;
    if (!life.recorded && judgement.started && life.wish === null) {
      const { pid, pidStarted } = judgement;
      const answer = await weather.attempt("attempts.run", () =>
        store.attempts.run({ attemptId: life.id, token: life.token, pid, pidStarted, startedAt: life.askedAt }),
      );
      if (answer === "superseded" || answer === "already_ended") return expel(life);
      // The store was away: the next look tries again.
      life.recorded = answer === "done";
    }
    const awake = clock.awake();
    await listen(life, awake, measure(life, awake));
    life.wish ??= overdue(life, awake, limits);
    if (life.wish !== null) return finish(life, life.wish, judgement);
    return watchOn(life, awake, awake + limits.watchMs);
  }

  /** Counts silence and keeps the logs' size; answers whether something was written since. */
  function measure(life: Life, awake: number): boolean {
    const { stdoutBytes, stderrBytes, mark: written } = spawner.measure(life.folder);
    const gapMs = awake - life.measuredAt;
    const wrote = written !== life.writtenMark;
    // What an agent prints is no progress by itself: `listen` says what is.
    if (wrote && life.agent === null) life.idleMs = 0;
    // A gap longer than two looks was ours, not the command's: we were stopped, or the host was busy.
    else life.idleMs += Math.min(gapMs, 2 * idleLookMs(life, limits));
    life.writtenMark = written;
    life.measuredAt = awake;
    if (stdoutBytes > limits.logCapBytes || stderrBytes > limits.logCapBytes)
      spawner.trim(life.folder, false).catch((error: unknown) => weather.mishap(`trim ${life.id}`, error, 1));
    return wrote;
  }

  /** Reads what an agent has said since, and keeps what must not be lost. */
  async function listen(life: Life, awake: number, wrote: boolean): Promise<void> {
    const { agent } = life;
    if (agent === null) return;
    if (awake - life.awakeAt >= limits.agentStartMs) openDoor(life);
    let reading: AgentReading;
    try {
      reading = await ports.agents.read(life.folder, agent.target);
      agent.deaf = false;
    } catch (error) {
      // Its limits hold all the same: that it prints is then all that is known.
      if (!agent.deaf) weather.mishap(`events of ${life.id}`, error, 1);
      agent.deaf = true;
      if (wrote) life.idleMs = 0;
      return;
    }
    if (reading.progress !== agent.progress) life.idleMs = 0;
    agent.progress = reading.progress;
    agent.trouble = reading.trouble;
    agent.troubleAt = reading.trouble === null ? null : (agent.troubleAt ?? awake);
    agent.closedAt = reading.closed ? (agent.closedAt ?? awake) : null;
    if (reading.sessionId !== null) openDoor(life);
    await keepSession(life, agent, reading.sessionId);
    if (reading.answered) await tellAnswered(life, agent);
  }

  /** Keeps the session that it began, so that a later attempt can go on with it. */
  async function keepSession(life: Life, agent: AgentLife, sessionId: string | null): Promise<void> {
    if (sessionId === null || sessionId === agent.sessionId) return;
    const answer = await weather.attempt("attempts.session", () =>
      store.attempts.session({
        attemptId: life.id,
        token: life.token,
        sessionId,
        copyOf: wayOf(life.assignment, ports.agents).copyOf ?? null,
      }),
    );
    // The store was away: the next look tries again.
    if (answer !== null) agent.sessionId = sessionId;
  }

  async function tellAnswered(life: Life, agent: AgentLife): Promise<void> {
    const { account = null } = life.assignment;
    if (agent.answered || account === null || account.status === "ok") return;
    const told = await weather.attempt("accounts.answered", async () => {
      await store.accounts.answered({ accountId: account.id });
      return true;
    });
    if (told === null) return;
    agent.answered = true;
    options.onAnswered?.();
  }

  /** Names the next looks: each pass, and the very moment at which a limit passes. */
  function watchOn(life: Life, awake: number, judgeAt: number): false {
    const { timeoutMs, idleTimeoutMs } = life.assignment.run.policy;
    life.judgeAt = Math.min(judgeAt, timeoutMs === null ? Number.POSITIVE_INFINITY : life.awakeAt + timeoutMs);
    life.measureAt =
      idleTimeoutMs === null && life.agent === null
        ? Number.POSITIVE_INFINITY
        : awake +
          Math.min(
            idleLookMs(life, limits),
            Math.max(0, (idleTimeoutMs ?? idleLookMs(life, limits) + life.idleMs) - life.idleMs),
          );
    options.watchWithin(Math.max(0, Math.min(life.judgeAt, life.measureAt) - awake));
    return false;
  }

  // --- ending --------------------------------------------------------------------------------------------------------

  /** What an earlier daemon had begun to end, whatever came of it. */
  function inherited(life: Life): Ending | null {
    const { endingSince } = life.assignment.attempt;
    if (life.wish === null || !life.wish.inherited || endingSince === null) return null;
    return { wish: life.wish, signalledAt: endingSince, killed: 0 };
  }

  /** Ends the whole tree, and then the attempt: one way for every reason. */
  async function finish(
    life: Life,
    wish: EndWish,
    found: Extract<Judgement, { kind: "live" | "orphan" }>,
  ): Promise<boolean> {
    if (life.agent !== null) life.agent.closedFirst ??= life.agent.closedAt !== null;
    if (found.kind === "live") {
      // Recorded before the first signal. With the store away the limit still holds: the signal alone is then what is known.
      const answer = await weather.attempt("attempts.ending", () =>
        store.attempts.ending({ attemptId: life.id, token: life.token, by: wish.by }),
      );
      if (answer === "superseded" || answer === "already_ended") return expel(life);
      const again = await judge(life, true);
      if (again.kind !== "live" && again.kind !== "orphan") {
        if (again.kind === "asked") return false;
        return conclude(life, again, inherited(life));
      }
    }
    const signalledAt = clock.now();
    const graceMs = life.endTries === 0 ? life.assignment.run.policy.graceMs : 0;
    const report = await spawner.end({ folder: life.folder, mark: life.id, graceMs });
    const ending: Ending | null = life.wish === null ? null : { wish, signalledAt, killed: report.killed };
    const after = await judge(life, true);
    if (after.kind === "live" || after.kind === "orphan" || after.kind === "asked") {
      life.endTries++;
      if (life.endTries < limits.endTries) {
        lookWithin(life, limits.watchMs);
        return false;
      }
      // Stuck in the kernel, or another user's: what is left is said.
      const unknown = { kind: "lost", why: "exit_unknown" } as const;
      return conclude(life, unknown, ending, { ...report, left: Math.max(1, report.left) });
    }
    return conclude(life, after, ending, report);
  }

  async function conclude(
    life: Life,
    judgement: Evidence["judgement"],
    ending: Ending | null,
    ended?: EndReport,
  ): Promise<boolean> {
    await point("exited", life);
    openDoor(life);
    const began = judgement.kind !== "never_started";
    const report = ended ?? (began ? await aftermath.sweep(life) : null);
    const written = began ? spawner.measure(life.folder) : null;
    const said = began && life.agent !== null ? await aftermath.verdictOf(life, life.agent, judgement, ending) : null;
    const [output, tails, unmet] = await aftermath.handedOver(life, judgement, said);
    const escaped = began ? await aftermath.escapedOf(life) : null;
    const found: Found = { judgement, ending, report, written, said, output, tails, unmet, escaped };
    life.outcome = aftermath.outcomeOf(life, found);
    if (life.outcome.class === "storage") options.onFull();
    return settle(life);
  }

  function ended(life: Life, outcome: Outcome): Promise<boolean> {
    life.outcome = outcome;
    return settle(life);
  }

  async function settle(life: Life): Promise<boolean> {
    const { outcome, token } = life;
    if (outcome === null) return false;
    const { answer, step, run } = await weather.persist("attempts.settle", () => {
      const settled = store.attempts.settle({ attemptId: life.id, token, outcome, limits });
      options.onSettling();
      return settled;
    });
    await point("settled", life);
    if (answer !== "done") log("warn", "settle_refused", { attempt: life.id, answer, kind: outcome.kind });
    options.onSettled(life.assignment, step, run);
    await tidy(life, outcome);
    return true;
  }

  /** Nothing here may keep a settled attempt from being over. */
  async function tidy(life: Life, outcome: Outcome): Promise<void> {
    try {
      if (outcome.stdoutBytes + outcome.stderrBytes > 0) await spawner.trim(life.folder, true);
    } catch (error) {
      weather.mishap(`tidy ${life.id}`, error, 1);
    }
  }

  /** Its token is no longer ours: its processes end, its row is somebody else's. */
  async function expel(life: Life): Promise<boolean> {
    const renewed = await weather.persist("hosts.renew", () =>
      store.hosts.renew({ hostId, incarnation, leaseMs: limits.leaseMs }),
    );
    if (renewed.superseded) {
      // A later daemon of this host has adopted the processes: they are not ours to end.
      options.onSuperseded();
      throw new Halted("superseded");
    }
    const judgement = await judge(life, true);
    const began = judgement.kind !== "never_started";
    const report = began
      ? await spawner.end({ folder: life.folder, mark: life.id, graceMs: life.assignment.run.policy.graceMs })
      : null;
    log("warn", "fenced", {
      attempt: life.id,
      run: life.assignment.run.id,
      left: report?.left ?? 0,
      was: judgement.kind,
    });
    return true;
  }

  // --- the door ------------------------------------------------------------------------------------------------------

  /** Makes a found attempt ours while it lives; its end needs no more than the token that it has. */
  async function adopt(life: Life): Promise<void> {
    const judgement = await judge(life, true);
    if (judgement.kind !== "live") return;
    const { answer, token } = await weather.persist("attempts.adopt", () =>
      store.attempts.adopt({ attemptId: life.id, token: life.token, hostId, incarnation, leaseMs: limits.leaseMs }),
    );
    if (answer === "done") {
      life.token = token;
      // It was seen alive; what has ended since rings, or is found a moment later, when others have been adopted too.
      life.plant = false;
      lookWithin(life, limits.firstLookMs);
    } else life.wish = { by: "fence", message: `it could not be adopted: ${answer}`, inherited: false };
  }

  return {
    take(assignment) {
      const { id, stepId } = assignment.attempt;
      if (lives.has(id) || past.has(id)) return;
      const before = ofStep.get(stepId);
      if (before === undefined) {
        const life = welcome(assignment, "reserved");
        follow(life, async () => point("claimed", life));
        return;
      }
      // The step was given out again, so the token of the one that is here was taken: one tree at a time.
      fence([...lives.values()].filter((one) => one.assignment.attempt.stepId === stepId).map((one) => one.id));
      const life = welcome(assignment, "reserved");
      follow(life, async () => {
        await before;
        await point("claimed", life);
      });
    },

    async resume(assignment) {
      const { attempt } = assignment;
      if (lives.has(attempt.id) || past.has(attempt.id)) return;
      if (attempt.status === "reserved") {
        const life = welcome(assignment, "reserved");
        life.outcome = {
          ...nothing,
          kind: "never_started",
          class: "lost",
          message: "the daemon was restarted before it was started",
        };
        follow(life);
        return;
      }
      const life = welcome(assignment, "asked");
      life.busy = true;
      if (attempt.endingSince !== null && attempt.endedBy !== null && attempt.endedBy !== "self")
        life.wish = { by: attempt.endedBy, message: inheritedWords[attempt.endedBy], inherited: true };
      try {
        await adopt(life);
      } catch (error) {
        if (error instanceof Halted) return rest(life);
        weather.mishap(`adopt ${life.id}`, error, 1);
      }
      follow(life);
    },

    end(attemptId, wish) {
      const life = lives.get(attemptId);
      if (life === undefined || life.wish !== null) return;
      life.wish = wish;
      life.unwanted.abort();
      life.latch.ring();
    },

    fence,

    bell(folder) {
      const life = byFolder.get(folder);
      if (life === undefined) return;
      life.rung = true;
      life.latch.ring();
    },

    replaced() {
      for (const life of lives.values()) {
        if (life.phase !== "asked" || life.recorded) continue;
        life.plant = true;
        life.latch.ring();
      }
    },

    knows: (attemptId) => lives.has(attemptId) || past.has(attemptId),
    lives: () => [...lives.values()],
    empty: () => (lives.size === 0 ? Promise.resolve() : new Promise((go) => whenEmpty.push(go))),
    quiet: () =>
      [...lives.values()].some((life) => life.busy) ? new Promise((go) => whenQuiet.push(go)) : Promise.resolve(),
  };
}

const inheritedWords = {
  timeout: "ran longer than its limit",
  idle: "wrote nothing for longer than its limit",
  cancel: "cancelled",
  exit_timer: "it did not exit after its result",
  stop: "stopped on the way down",
  fence: "its token was taken",
} as const;
