import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { outcomeOf } from "../../test/drafts.ts";
import { defaultLimits as limits } from "./limits.ts";
import { runPolicy } from "./loop.ts";
import { loopStatuses, loopTable } from "./loop-states.ts";
import {
  attemptStatuses,
  attemptTable,
  backoffMs,
  endAttempt,
  failureClasses,
  finalStatuses,
  isFinal,
  isLiveAttempt,
  next,
  runStatusOf,
  stepStatuses,
  stepTable,
  type AttemptEvent,
  type Outcome,
  type StepEvent,
  type StepView,
} from "./run.ts";

const attemptEvents: readonly AttemptEvent[] = [
  "start",
  "run",
  "adopt",
  "succeed",
  "fail",
  "time_out",
  "cancel",
  "lose",
  "fence",
];
const stepEvents: readonly StepEvent[] = [
  "unblock",
  "grant",
  "return",
  "wait",
  "wake",
  "succeed",
  "fail",
  "time_out",
  "cancel",
  "skip",
  "hold",
  "ask",
];

/** Every (status, event) pair by hand: what is not written here is refused. */
const attemptMoves = `
reserved start starting; reserved fail failed; reserved cancel cancelled; reserved lose lost; reserved fence fenced;
starting run running; starting adopt starting; starting succeed succeeded; starting fail failed; starting time_out timed_out;
starting cancel cancelled; starting lose lost; starting fence fenced;
running adopt running; running succeed succeeded; running fail failed; running time_out timed_out; running cancel cancelled;
running lose lost; running fence fenced`;
const stepMoves = `
pending unblock ready; pending ask pending; pending succeed succeeded; pending fail failed; pending cancel cancelled; pending skip skipped;
ready grant running; ready hold pending; ready wait waiting; ready fail failed; ready cancel cancelled; ready skip skipped;
running return ready; running wait waiting; running succeed succeeded; running fail failed; running time_out timed_out; running cancel cancelled;
running skip skipped;
waiting wake ready; waiting ask pending; waiting fail failed; waiting time_out timed_out; waiting cancel cancelled; waiting skip skipped`;
const loopMoves = `
active pause paused; active trip paused; active expire expired; active finish finished;
paused resume active; paused expire expired; paused finish finished; expired resume active; finished resume active`;

const movesOf = (text: string) =>
  new Map(
    text
      .split(";")
      .map((move) => move.trim().split(/\s+/))
      .map(([from, event, to]) => [`${from} ${event}`, to]),
  );

describe("the tables", () => {
  test("each attempt either moves as written or is refused", () => {
    const moves = movesOf(attemptMoves);
    for (const status of attemptStatuses)
      for (const event of attemptEvents)
        expect(next(attemptTable, status, event) ?? undefined, `${status} ${event}`).toBe(
          moves.get(`${status} ${event}`),
        );
  });

  test("each step either moves as written or is refused", () => {
    const moves = movesOf(stepMoves);
    for (const status of stepStatuses)
      for (const event of stepEvents)
        expect(next(stepTable, status, event) ?? undefined, `${status} ${event}`).toBe(moves.get(`${status} ${event}`));
  });

  test("each loop either moves as written or is refused", () => {
    const moves = movesOf(loopMoves);
    for (const status of loopStatuses)
      for (const event of ["pause", "trip", "resume", "expire", "finish"] as const)
        expect(loopTable[status][event], `${status} ${event}`).toBe(moves.get(`${status} ${event}`));
  });

  test("B-064 terminal is final, and every other state has a way out", () => {
    for (const status of attemptStatuses)
      expect(Object.keys(attemptTable[status]).length > 0, status).toBe(isLiveAttempt(status));
    for (const status of stepStatuses)
      if (status !== "queued") expect(Object.keys(stepTable[status]).length > 0, status).toBe(!isFinal(status));
    for (const status of loopStatuses) expect(Object.keys(loopTable[status]), status).not.toEqual([]);
  });

  test("a run is what its steps add up to", () => {
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(...stepStatuses.filter((status) => status !== "queued")), {
          minLength: 1,
          maxLength: 6,
        }),
        (list) => {
          const status = runStatusOf(list.map((one) => ({ status: one })));
          expect(isFinal(status)).toBe(list.every((one) => isFinal(one)));
          if (list.includes("running")) expect(status).toBe("running");
          if (status === "waiting") expect(list).not.toContain("ready");
        },
      ),
    );
  });
});

const view = (over: Partial<StepView> = {}): StepView => ({
  stepId: "step_a",
  triesCounted: 0,
  maxAttempts: 1,
  idleEnds: 0,
  attemptNumber: 1,
  cancelRequested: null,
  ...over,
});
const outcome = (over: Partial<Outcome>): Outcome => outcomeOf({ startedAt: 0, endedAt: 0, ...over });
const NOW = 1_000_000;

describe("the end of an attempt", () => {
  test("a success settles, whatever was asked for too late", () => {
    const end = endAttempt(
      view({ cancelRequested: { reason: "late", superseded: false } }),
      outcome({}),
      runPolicy.parse({}),
      limits,
      NOW,
    );
    expect(end.step.event).toBe("succeed");
  });

  test("B-086 B-120 limits, throttles and a broken start use up no try", () => {
    for (const why of ["rate_limited", "quota", "auth", "overloaded", "spawn"] as const) {
      const end = endAttempt(view(), outcome({ kind: "failed", class: why }), runPolicy.parse({}), limits, NOW);
      expect(end.attempt.counted, why).toBe(false);
      expect(end.step, why).toMatchObject({ event: "wait", triesCounted: 0 });
    }
  });

  test("B-120 a program that is away is waited for, without a try and without end by numbers, and then it is not there", () => {
    const away = outcome({ kind: "never_started", class: "spawn", programAway: true });
    const of = (over: Partial<StepView>) => endAttempt(view(over), away, runPolicy.parse({}), limits, NOW);
    expect(of({ idleEnds: 500 })).toMatchObject({
      attempt: { event: "fail", class: "spawn", counted: false },
      step: { event: "wait", reason: "program", triesCounted: 0, idleEnds: 501 },
    });
    // The last look is when it is over, not a doubled pause later.
    const goneAt = NOW - 1_000 + limits.programAwayMs;
    expect(of({ idleEnds: 500, awaySince: NOW - limits.programAwayMs + 1 }).step).toMatchObject({ wakeAt: NOW + 1 });
    expect(of({ awaySince: goneAt - limits.programAwayMs }).step).toMatchObject({ event: "wait" });
    expect(of({ maxAttempts: 3, awaySince: NOW - limits.programAwayMs })).toMatchObject({
      attempt: { event: "fail", class: "not_found", counted: true },
      step: { event: "fail", reason: "not_found", triesCounted: 1 },
    });
    const cancelled = { reason: "enough", superseded: false };
    expect(of({ awaySince: 0, cancelRequested: cancelled }).step).toMatchObject({ event: "cancel" });
  });

  test("what was kept from starting is not lost: only what nobody can explain is", () => {
    const of = (why: "spawn" | "storage" | "lost") =>
      endAttempt(view(), outcome({ kind: "never_started", class: why }), runPolicy.parse({}), limits, NOW).attempt;
    expect(of("spawn")).toEqual({ event: "fail", class: "spawn", counted: false });
    expect(of("storage").event).toBe("fail");
    expect(of("lost").event).toBe("lose");
  });

  test("our own stop gives the attempt back at once, and a full disk waits for space without end", () => {
    expect(endAttempt(view(), outcome({ kind: "stopped" }), runPolicy.parse({}), limits, NOW).step).toMatchObject({
      event: "return",
      triesCounted: 0,
    });
    const full = endAttempt(
      view({ idleEnds: 500 }),
      outcome({ kind: "never_started", class: "storage" }),
      runPolicy.parse({}),
      limits,
      NOW,
    );
    expect(full.step).toMatchObject({ event: "wait", reason: "disk", triesCounted: 0 });
  });

  test("lost follows on-lost: auto while tries are left, retry without using one up, fail at once", () => {
    const lost = outcome({ kind: "lost", class: "lost" });
    const of = (onLost: "auto" | "retry" | "fail", attempts: number) =>
      endAttempt(view({ maxAttempts: attempts }), lost, runPolicy.parse({ onLost, attempts }), limits, NOW);
    expect(of("auto", 1).step).toMatchObject({ event: "fail", reason: "lost" });
    expect(of("auto", 2).step).toMatchObject({ event: "wait", triesCounted: 1 });
    expect(of("retry", 1)).toMatchObject({ attempt: { counted: false }, step: { event: "wait", triesCounted: 0 } });
    expect(of("fail", 5).step).toMatchObject({ event: "fail", reason: "lost" });
  });

  test("an agent that was lost goes on with its session, uses up no try, and is a crash loop in the end", () => {
    const lost = outcome({ kind: "lost", class: "lost" });
    const of = (onLost: "auto" | "fail", over: Partial<StepView>) =>
      endAttempt(view({ maxAttempts: 1, hasSession: true, ...over }), lost, runPolicy.parse({ onLost }), limits, NOW);
    expect(of("auto", {})).toMatchObject({ attempt: { counted: false }, step: { event: "wait", triesCounted: 0 } });
    expect(of("auto", { lostEnds: 4 }).step).toMatchObject({ event: "fail", reason: "crash_loop", lostEnds: 5 });
    expect(of("auto", { lostEnds: 3, idleEnds: 19 }).step).toMatchObject({ event: "wait", lostEnds: 4 });
    expect(of("fail", {}).step).toMatchObject({ event: "fail", reason: "lost" });
  });

  test("B-006 losses in a row end it, whatever of ours comes between, and what it did itself begins a new row", () => {
    const policy = runPolicy.parse({ attempts: 10 });
    const of = (over: Partial<Outcome>) =>
      endAttempt(view({ maxAttempts: 10, hasSession: true, lostEnds: 3 }), outcome(over), policy, limits, NOW).step;
    expect(of({ kind: "never_started", class: "lost" }).lostEnds).toBe(3);
    expect(of({ kind: "never_started", class: "storage" }).lostEnds).toBe(3);
    expect(of({ kind: "stopped" }).lostEnds).toBe(3);
    expect(of({ kind: "failed", class: "exit" }).lostEnds ?? 0).toBe(0);
    expect(of({ kind: "failed", class: "quota" }).lostEnds ?? 0).toBe(0);
    // With the usual pauses it is over in less than half an hour.
    const pauses = [0, 1, 2, 3].map((lostEnds) => {
      const lost = outcome({ kind: "lost", class: "lost" });
      const { step } = endAttempt(view({ hasSession: true, lostEnds }), lost, runPolicy.parse({}), limits, NOW);
      return step.event === "wait" ? (step.wakeAt ?? 0) - NOW : 0;
    });
    expect(pauses.reduce((sum, pause) => sum + pause, 0)).toBeLessThan(30 * 60_000);
  });

  test("a step waits as long as its account is held: for the limit, or for a person", () => {
    const of = (why: "rate_limited" | "quota" | "auth", heldUntil: number | null) =>
      endAttempt(view({ heldUntil }), outcome({ kind: "failed", class: why }), runPolicy.parse({}), limits, NOW).step;
    for (const why of ["rate_limited", "quota"] as const)
      expect(of(why, NOW + 77)).toMatchObject({ event: "wait", reason: "limit", wakeAt: NOW + 77, triesCounted: 0 });
    expect(of("auth", null)).toMatchObject({ event: "wait", reason: "account", wakeAt: null, triesCounted: 0 });
  });

  test("an overload backs off the step alone, from a minute to half an hour", () => {
    let idleEnds = 0;
    const pauses: number[] = [];
    for (let i = 0; i < 30; i++) {
      const end = endAttempt(
        view({ idleEnds }),
        outcome({ kind: "failed", class: "overloaded" }),
        runPolicy.parse({}),
        limits,
        NOW,
      );
      if (end.step.event !== "wait") throw new Error(`it is ${end.step.event}`);
      expect(end.step).toMatchObject({ reason: "capacity", triesCounted: 0 });
      pauses.push(Math.floor(((end.step.wakeAt ?? 0) - NOW) / 60_000));
      idleEnds = end.step.idleEnds;
    }
    expect(pauses[0]).toBe(1);
    expect(pauses.at(-1)).toBeGreaterThanOrEqual(30);
    expect(pauses.at(-1)).toBeLessThanOrEqual(45);
  });

  test("B-089 no number of limits and overloads ends a run, nor makes a start that fails once a crash loop", () => {
    for (const why of ["rate_limited", "quota", "auth", "overloaded"] as const) {
      let idleEnds = 0;
      for (let i = 0; i < 100; i++) {
        const heldUntil = why === "overloaded" ? undefined : why === "auth" ? null : NOW + 1;
        const ended = outcome({ kind: "failed", class: why });
        const { step } = endAttempt(view({ idleEnds, heldUntil }), ended, runPolicy.parse({}), limits, NOW);
        expect(step.event).toBe("wait");
        idleEnds = step.idleEnds;
      }
      const spawn = outcome({ kind: "failed", class: "spawn" });
      expect(endAttempt(view({ idleEnds }), spawn, runPolicy.parse({}), limits, NOW).step.event, why).toBe("wait");
    }
  });

  test("a session that is gone costs no try, once; for ever it is a crash loop", () => {
    const agent = {
      sessionId: "s",
      usage: null,
      resetAt: null,
      resetSource: null,
      httpStatus: null,
      refusedTools: [],
      sessionGone: true,
    };
    const gone = outcome({ kind: "failed", class: "exit", agent });
    const of = (idleEnds: number) => endAttempt(view({ idleEnds }), gone, runPolicy.parse({}), limits, NOW);
    expect(of(0)).toMatchObject({ attempt: { counted: false }, step: { event: "wait", triesCounted: 0 } });
    expect(of(19).step).toMatchObject({ event: "fail", reason: "crash_loop" });
  });

  test("B-006 a step that only ever fails gets all its tries and not one more, and never runs for ever uncounted", () => {
    const kinds = fc.constantFrom("failed", "timed_out", "lost", "never_started", "stopped") as fc.Arbitrary<
      Outcome["kind"]
    >;
    fc.assert(
      fc.property(
        fc.array(fc.record({ kind: kinds, class: fc.constantFrom(...failureClasses) }), {
          minLength: 200,
          maxLength: 200,
        }),
        fc.integer({ min: 1, max: 5 }),
        fc.boolean(),
        (ends, attempts, hasSession) => {
          const policy = runPolicy.parse({ attempts });
          let state = view({ maxAttempts: attempts, hasSession });
          let counted = 0;
          let idleRow = 0;
          let lostRow = 0;
          for (const one of ends) {
            const end = endAttempt(state, outcome(one), policy, limits, NOW);
            if (end.attempt.counted) counted++;
            expect(counted).toBe(end.step.triesCounted);
            expect(counted).toBeLessThanOrEqual(attempts);
            idleRow = one.kind === "never_started" && one.class !== "storage" ? idleRow + 1 : 0;
            expect(idleRow).toBeLessThanOrEqual(limits.crashLoopEnds);
            lostRow = one.kind === "lost" && !end.attempt.counted ? lostRow + 1 : 0;
            expect(lostRow).toBeLessThanOrEqual(limits.lostLoopEnds);
            if (end.step.event !== "wait" && end.step.event !== "return") {
              expect(end.step.reason).not.toBeNull();
              return;
            }
            if (end.step.event === "wait") expect(end.step.wakeAt).toBeGreaterThan(NOW);
            state = {
              ...state,
              triesCounted: end.step.triesCounted,
              idleEnds: end.step.idleEnds,
              lostEnds: end.step.lostEnds ?? 0,
              attemptNumber: state.attemptNumber + 1,
            };
          }
        },
      ),
    );
  });

  test("a run that keeps failing gets all its tries", () => {
    const policy = runPolicy.parse({ attempts: 4 });
    let state = view({ maxAttempts: 4 });
    const events: string[] = [];
    for (let i = 0; i < 4; i++) {
      const end = endAttempt(state, outcome({ kind: "failed", class: "exit", exitStatus: 1 }), policy, limits, NOW);
      events.push(end.step.event);
      state = { ...state, triesCounted: end.step.triesCounted, attemptNumber: i + 2 };
    }
    expect(events).toEqual(["wait", "wait", "wait", "fail"]);
  });

  test("pauses double to the cap, with a jitter that stays the same", () => {
    for (const key of ["a:1", "b:1", "c:9"])
      for (let nth = 1; nth < 40; nth++) {
        const pause = backoffMs(60_000, nth, limits.backoffCapMs, key);
        expect(pause).toBe(backoffMs(60_000, nth, limits.backoffCapMs, key));
        const full = Math.min(60_000 * 2 ** (nth - 1), limits.backoffCapMs);
        expect(pause).toBeGreaterThanOrEqual(full * 0.5);
        expect(pause).toBeLessThanOrEqual(full * 1.5);
      }
    expect(
      new Set(Array.from({ length: 50 }, (_, i) => backoffMs(60_000, 1, 3_600_000, `s:${i}`))).size,
    ).toBeGreaterThan(40);
  });

  test("every class of failure has an answer", () => {
    for (const why of failureClasses) {
      const end = endAttempt(
        view({ maxAttempts: 3 }),
        outcome({ kind: "failed", class: why }),
        runPolicy.parse({ attempts: 3 }),
        limits,
        NOW,
      );
      expect(["wait", "fail"], why).toContain(end.step.event);
    }
    expect(finalStatuses).toHaveLength(5);
  });
});
