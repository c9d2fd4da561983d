import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { defaultLimits as limits } from "./limits.ts";
import { loopPolicy } from "./loop.ts";
import { expandSlot, planDue, type Plan, type PlanView } from "./plan.ts";
import { countBetween, instantsBetween, nextInstant, type Schedule } from "./schedule.ts";

const T0 = Date.UTC(2026, 2, 1);
const view = (schedule: Schedule, over: Partial<PlanView> = {}, policy: object = {}): PlanView => ({
  loopId: "loop_a",
  status: "active",
  schedule,
  policy: loopPolicy.parse(policy),
  plannedUntil: T0,
  anchoredAt: T0,
  nextAt: nextInstant(schedule, T0),
  active: 0,
  waitingTurn: 0,
  ...over,
});
const every = (everyMs: number): Schedule => ({ kind: "interval", everyMs, anchorAt: T0 });
const cron = (expression: string, zone = "Europe/Berlin"): Schedule => ({ kind: "cron", expression, zone });
const said = (plan: Plan) =>
  plan.slots.map(
    (slot) =>
      `${(slot.at - T0) / 1000}${slot.count > 1 ? `x${slot.count}` : ""} ${slot.decision.kind === "run" ? slot.decision.start : `${slot.decision.outcome}(${slot.decision.reason})`}`,
  );

/** All instants that a plan speaks of, each as often as it does. */
const instantsOf = (schedule: Schedule, plan: Plan) =>
  plan.slots.flatMap((slot) => expandSlot(schedule, slot.at, slot.untilAt, 100_000));

describe("what is due", () => {
  test("an instant noticed within a minute is on time, one of a short period within its period", () => {
    expect(said(planDue(view(every(600_000)), T0 + 660_000, "late", limits))).toEqual(["600 now"]);
    expect(
      planDue(view(every(600_000), {}, { catchUp: "none" }), T0 + 660_001, "asleep", limits).slots[0]?.decision,
    ).toMatchObject({ outcome: "missed", reason: "asleep" });
    expect(said(planDue(view(every(5_000), {}, { catchUp: "none" }), T0 + 12_000, "late", limits))).toEqual([
      "5 missed(late)",
      "10 now",
    ]);
  });

  test("B-050 waking to a per-second loop with a limit of five starts five, in turn, and records the rest", () => {
    const plan = planDue(view(every(1_000), {}, { catchUp: "all", catchUpLimit: 5 }), T0 + 120_500, "asleep", limits);
    expect(said(plan)).toEqual([
      "1 now",
      "2 turn",
      "3 turn",
      "4 turn",
      "5 turn",
      "6x114 missed(limit)",
      "120 skipped(overlap)",
    ]);
  });

  test("latest coalesces into the on-time instant when it starts, else into the newest that was missed", () => {
    expect(said(planDue(view(every(60_000)), T0 + 180_500, "asleep", limits))).toEqual([
      "60x2 coalesced(asleep)",
      "180 now",
    ]);
    // Something is still at work: the on-time instant is skipped, so the newest missed one runs after it.
    expect(said(planDue(view(every(60_000), { active: 1 }), T0 + 180_500, "asleep", limits))).toEqual([
      "60 coalesced(asleep)",
      "120 turn",
      "180 skipped(overlap)",
    ]);
  });

  test("worked facts of the specification: every 10 min, 47 min late", () => {
    const of = (policy: object) => {
      const plan = planDue(view(every(600_000), {}, policy), T0 + 2_820_000, "down", limits);
      return [...said(plan), `next ${((plan.nextAt ?? 0) - T0) / 1000}`];
    };
    expect(of({ catchUp: "none" })).toEqual(["600x4 missed(down)", "next 3000"]);
    expect(of({ catchUp: "latest" })).toEqual(["600x3 coalesced(down)", "2400 now", "next 3000"]);
    expect(of({ catchUp: "all", catchUpLimit: 3 })).toEqual([
      "600 now",
      "1200 turn",
      "1800 turn",
      "2400 missed(limit)",
      "next 3000",
    ]);
  });

  test("an edit starts nothing that is past", () => {
    const plan = planDue(view(every(60_000), {}, { catchUp: "all" }), T0 + 600_500, "late", limits, "edited");
    expect(said(plan)).toEqual(["60x10 missed(edited)"]);
  });

  test("jitter is a part of its length and the same for the same slot", () => {
    const of = (loopId: string) =>
      planDue({ ...view(every(60_000), {}, { jitterMs: 30_000 }), loopId }, T0 + 60_000, "late", limits).slots[0]
        ?.decision;
    expect(of("loop_a")).toEqual(of("loop_a"));
    const starts = Array.from({ length: 40 }, (_, i) => {
      const decision = of(`loop_${i}`);
      return decision?.kind === "run" ? decision.notBefore - T0 - 60_000 : -1;
    });
    expect(Math.min(...starts)).toBeGreaterThanOrEqual(0);
    expect(Math.max(...starts)).toBeLessThan(30_000);
    expect(new Set(starts).size).toBeGreaterThan(30);
  });

  test("nothing is due at or after the expiry date", () => {
    const plan = planDue(
      view(every(10_000), {}, { expiresAt: T0 + 20_000, catchUp: "all" }),
      T0 + 60_000,
      "down",
      limits,
    );
    expect(plan).toMatchObject({ becomes: "expired", nextAt: null });
    expect(plan.slots.map((slot) => slot.at - T0)).toEqual([10_000]);
  });

  test("a year of missed seconds is one row and costs no walk", () => {
    const plan = planDue(
      view(cron("* * * * * *"), {}, { catchUp: "latest" }),
      T0 + 365 * 86_400_000 + 500,
      "down",
      limits,
    );
    expect(plan.slots).toHaveLength(2);
    expect(plan.slots.reduce((sum, slot) => sum + slot.count, 0)).toBe(365 * 86_400);
  });
});

const schedules = fc.oneof(
  fc.integer({ min: 1_000, max: 7_200_000 }).map(every),
  fc
    .constantFrom("*/7 * * * *", "30 2 * * *", "0 */3 * * *", "15,45 1-3 * * *", "*/20 * * * * *")
    .map((expression) => cron(expression)),
  fc.integer({ min: -3_600_000, max: 7_200_000 }).map((after): Schedule => ({ kind: "once", at: T0 + after })),
);
const policies = fc.record({
  catchUp: fc.constantFrom("latest", "all", "none"),
  catchUpLimit: fc.integer({ min: 1, max: 6 }),
  overlap: fc.constantFrom("skip", "queue", "allow", "cancel"),
  queueLimit: fc.integer({ min: 1, max: 4 }),
  expiresAt: fc.option(fc.integer({ min: T0 + 1, max: T0 + 10_000_000 }), { nil: null }),
});

describe("properties", () => {
  test("I4 every due instant has exactly one outcome, however the looks at the clock fall", () => {
    fc.assert(
      fc.property(
        schedules,
        policies,
        fc.array(fc.integer({ min: 1, max: 3_000_000 }), { minLength: 1, maxLength: 6 }),
        fc.integer({ min: 0, max: 2 }),
        (schedule, policy, gaps, active) => {
          const first = schedule.kind === "once" ? Math.min(T0, schedule.at - 1) : T0;
          let state = view(schedule, { plannedUntil: first, active }, policy);
          let now = T0;
          const seen: number[] = [];
          for (const gap of gaps) {
            now += gap;
            const plan = planDue(state, now, "late", limits);
            seen.push(...instantsOf(schedule, plan));
            for (const slot of plan.slots) {
              expect(slot.count).toBe(countBetween(schedule, slot.at - 1, slot.untilAt));
              if (slot.decision.kind === "end") expect(slot.decision.reason).not.toBe("");
              if (slot.decision.kind === "end" && slot.decision.outcome === "coalesced")
                expect(slot.decision.into).toBeGreaterThan(slot.untilAt);
            }
            state = { ...state, plannedUntil: plan.plannedUntil, nextAt: plan.nextAt };
            if (plan.becomes !== null) break;
            expect(plan.nextAt === null || plan.nextAt > now).toBe(true);
          }
          const life = policy.expiresAt === null ? now : Math.min(now, policy.expiresAt - 1);
          expect(seen).toEqual(instantsBetween(schedule, first, life, 1_000_000));
        },
      ),
      { numRuns: 300 },
    );
  });

  test("skip never starts beside another, queue never passes its limit, and a chain has one start", () => {
    fc.assert(
      fc.property(
        schedules,
        policies,
        fc.integer({ min: 1, max: 9_000_000 }),
        fc.integer({ min: 0, max: 2 }),
        fc.integer({ min: 0, max: 3 }),
        (schedule, policy, gap, active, waitingTurn) => {
          const plan = planDue(
            view(
              schedule,
              { active, waitingTurn, plannedUntil: schedule.kind === "once" ? Math.min(T0, schedule.at - 1) : T0 },
              policy,
            ),
            T0 + gap,
            "late",
            limits,
          );
          const now = plan.slots.filter((slot) => slot.decision.kind === "run" && slot.decision.start === "now").length;
          if (policy.overlap !== "allow") expect(now).toBeLessThanOrEqual(active + waitingTurn > 0 ? 0 : 1);
          const caught = plan.slots.filter((slot) => slot.decision.kind === "run").length;
          if (policy.catchUp === "none" && policy.overlap === "skip") expect(caught).toBeLessThanOrEqual(1);
        },
      ),
      { numRuns: 500 },
    );
  });

  test("the plan is the same whenever it is made from the same view", () => {
    fc.assert(
      fc.property(schedules, policies, fc.integer({ min: 1, max: 9_000_000 }), (schedule, policy, gap) => {
        expect(planDue(view(schedule, {}, policy), T0 + gap, "late", limits)).toEqual(
          planDue(view(schedule, {}, policy), T0 + gap, "late", limits),
        );
      }),
    );
  });
});
