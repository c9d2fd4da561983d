import { describe, expect, test } from "vitest";
import { defaultLimits as limits } from "./limits.ts";
import { loopPolicy } from "./loop.ts";
import { afterRun, dynamicNext, type LoopAtEnd, type RunAtEnd } from "./run-end.ts";
import type { FailureClass } from "./run.ts";

const NOW = 1_000_000;
const loop = (policy: object = {}, over: Partial<LoopAtEnd> = {}): LoopAtEnd => ({
  status: "active",
  schedule: { kind: "interval", everyMs: 60_000, anchorAt: 0 },
  policy: loopPolicy.parse(policy),
  plannedUntil: NOW,
  anchoredAt: 0,
  successStreak: 0,
  failureStreak: 0,
  failureClass: null,
  ...over,
});
const run = (status: RunAtEnd["status"], why: FailureClass | null = null, over: Partial<RunAtEnd> = {}): RunAtEnd => ({
  status,
  class: why,
  output: null,
  slotAt: 5,
  ...over,
});

/** The loop after a row of ends. */
function after(policy: object, ends: readonly RunAtEnd[]) {
  let state = loop(policy);
  let turned: boolean[] = [];
  for (const end of ends) {
    const next = afterRun(state, end, NOW, limits);
    turned = [...turned, next.turned];
    state = {
      ...state,
      successStreak: next.successStreak,
      failureStreak: next.failureStreak,
      failureClass: next.failureClass,
      status: next.becomes?.event === "trip" ? "paused" : next.becomes?.event === "expire" ? "expired" : state.status,
    };
  }
  return { state, turned };
}

describe("what a run's end means for its loop", () => {
  test("B-006 the breaker trips at equal failures in a row, not at different ones, and cancelled runs are neutral", () => {
    const exit = run("failed", "exit");
    const timeout = run("timed_out", "timeout");
    expect(after({ breaker: 3 }, [exit, exit, exit]).state.status).toBe("paused");
    expect(after({ breaker: 3 }, [exit, exit, timeout, exit, exit]).state).toMatchObject({
      status: "active",
      failureStreak: 2,
    });
    expect(after({ breaker: 3 }, [exit, run("cancelled", "superseded"), exit, exit]).state.status).toBe("paused");
    expect(
      after(
        { breaker: 0 },
        Array.from({ length: 20 }, () => exit),
      ).state.status,
    ).toBe("active");
  });

  test("a success begins the streak of failures anew, a failure that of successes", () => {
    expect(after({}, [run("failed", "exit"), run("succeeded"), run("failed", "exit")]).state).toMatchObject({
      failureStreak: 1,
      successStreak: 0,
    });
    expect(
      after({ expiresAfterRuns: 2 }, [run("succeeded"), run("failed", "exit"), run("succeeded")]).state.status,
    ).toBe("active");
    expect(after({ expiresAfterRuns: 2 }, [run("succeeded"), run("succeeded")]).state.status).toBe("expired");
  });

  test("B-133 the first failure and the recovery are told, not each failure", () => {
    const exit = run("failed", "exit");
    expect(
      after({ breaker: 0 }, [run("succeeded"), exit, exit, exit, run("succeeded"), run("succeeded")]).turned,
    ).toEqual([false, true, false, false, true, false]);
  });

  test("a paused loop stays paused when a late run ends; by hand leaves the schedule alone", () => {
    expect(afterRun(loop({ breaker: 1 }, { status: "paused" }), run("failed", "exit"), NOW, limits).becomes).toBeNull();
    const once = loop({}, { schedule: { kind: "once", at: 5 } });
    expect(afterRun(once, run("succeeded", null, { slotAt: null }), NOW, limits).becomes).toBeNull();
    expect(afterRun(once, run("failed", "exit"), NOW, limits).becomes?.event).toBe("finish");
  });

  test("a slot from before an edit ends no once loop, and says nothing to a dynamic one", () => {
    const late = run("succeeded", null, { slotAt: 4, output: '{"nextAfterMs": 5000}' });
    const once = loop({}, { schedule: { kind: "once", at: 5 } });
    expect(afterRun(once, late, NOW, limits).becomes).toBeNull();
    const dynamic = loop({}, { schedule: { kind: "dynamic", firstAt: 5 }, anchoredAt: 5 });
    expect(afterRun(dynamic, late, NOW, limits).nextAt).toBeUndefined();
    expect(afterRun(dynamic, { ...late, slotAt: 5 }, NOW, limits).nextAt).toBe(NOW + 5_000);
  });

  test("a dynamic loop goes on when its run says, never before now, and after the usual pause otherwise", () => {
    const of = (output: string | null) => dynamicNext(output, NOW - 1, NOW, limits) - NOW;
    expect(of('{"nextAfterMs": 5000}')).toBe(5_000);
    expect(of(`{"nextAt": "${new Date(NOW + 90_000).toISOString()}"}`)).toBe(90_000);
    expect(of('{"nextAt": 5}')).toBe(0);
    for (const output of [
      null,
      "{}",
      "[]",
      "null",
      "no json",
      '{"nextAt": "soon"}',
      '{"nextAfterMs": -5}',
      '{"nextAfterMs": 1e999}',
    ])
      expect(of(output), String(output)).toBe(limits.dynamicGapMs);
  });
});
