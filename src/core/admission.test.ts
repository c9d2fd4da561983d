import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  admit,
  describeRefusal,
  refusalOf,
  type AdmissionView,
  type CapSet,
  type Head,
  type HostView,
} from "./admission.ts";

const NOW = 1_000;
const host = (id: string, over: Partial<HostView> = {}): HostView => ({
  id,
  status: "up",
  leaseUntil: NOW + 1,
  ...over,
});

const worlds = fc
  .record({
    hosts: fc.array(fc.constantFrom<HostView["status"]>("up", "up", "up", "draining", "disk", "down"), {
      minLength: 1,
      maxLength: 3,
    }),
    caps: fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 5, maxLength: 5 }),
    used: fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 5, maxLength: 5 }),
    sets: fc.array(
      fc.record({
        resources: fc.uniqueArray(fc.integer({ min: 0, max: 4 }), { maxLength: 3 }),
        pin: fc.option(fc.integer({ min: 0, max: 3 }), { nil: null }),
      }),
      { minLength: 1, maxLength: 5 },
    ),
    heads: fc.array(fc.record({ set: fc.nat(4), turnAt: fc.integer({ min: 0, max: 6 }) }), { maxLength: 25 }),
  })
  .map(
    ({ hosts, caps, used, sets, heads }): AdmissionView => ({
      hosts: hosts.map((status, i) => host(`h${i}`, { status })),
      limits: new Map(caps.map((limit, i) => [`r${i}`, limit])),
      used: new Map(used.map((n, i) => [`r${i}`, n])),
      sets: sets.map(
        (set, i): CapSet => ({
          key: `s${i}`,
          resources: set.resources.map((n) => `r${n}`),
          hostPin: set.pin === null ? null : `h${set.pin}`,
        }),
      ),
      heads: heads
        .filter((head) => head.set < sets.length)
        .map(
          (head, i): Head => ({
            stepId: `step${String(i).padStart(2, "0")}`,
            runId: `run${i}`,
            capKey: `s${head.set}`,
            turnAt: head.turnAt,
          }),
        ),
    }),
  );

/** The rule in its plainest form: grant the first that may start, look again from the beginning. */
function naive(view: AdmissionView): string[] {
  const used = new Map(view.used);
  const granted: string[] = [];
  for (;;) {
    const waiting = view.heads
      .filter((head) => !granted.includes(head.stepId))
      .toSorted((a, b) => a.turnAt - b.turnAt || (a.stepId < b.stepId ? -1 : 1));
    const next = waiting.find((head) => {
      const set = view.sets.find((one) => one.key === head.capKey);
      return set !== undefined && refusalOf(set, view, used, NOW) === null;
    });
    if (next === undefined) return granted;
    granted.push(next.stepId);
    for (const resource of view.sets.find((set) => set.key === next.capKey)?.resources ?? [])
      used.set(resource, (used.get(resource) ?? 0) + 1);
  }
}

describe("admission", () => {
  test("I10 grants what a naive model grants, one at a time over the whole queue", () => {
    fc.assert(
      fc.property(worlds, (view) => {
        expect(admit(view, NOW, 1_000).grants.map((grant) => grant.stepId)).toEqual(naive(view));
      }),
      { numRuns: 1_000 },
    );
  });

  test("I9 does not depend on the order of rows", () => {
    fc.assert(
      fc.property(worlds, fc.integer(), (view, seed) => {
        const turned = <T>(list: readonly T[]) =>
          list
            .map((item, i) => [(i * 7919 + seed) % 101, item] as const)
            .toSorted((a, b) => a[0] - b[0])
            .map(([, item]) => item);
        expect(
          admit({ ...view, hosts: turned(view.hosts), sets: turned(view.sets), heads: turned(view.heads) }, NOW, 50)
            .grants,
        ).toEqual(admit(view, NOW, 50).grants);
      }),
    );
  });

  test("I3 no cap is exceeded, everyone that is not granted has a reason", () => {
    fc.assert(
      fc.property(worlds, fc.integer({ min: 0, max: 6 }), (view, max) => {
        const { grants, refused } = admit(view, NOW, max);
        expect(grants.length).toBeLessThanOrEqual(max);
        for (const [resource, limit] of view.limits) {
          const taken = grants.filter((grant) => grant.resources.includes(resource)).length;
          if (taken > 0) expect((view.used.get(resource) ?? 0) + taken).toBeLessThanOrEqual(limit);
        }
        for (const head of view.heads) {
          const refusal = refused.get(head.stepId);
          expect(grants.some((grant) => grant.stepId === head.stepId)).toBe(refusal === undefined);
          if (refusal !== undefined) expect(describeRefusal(refusal)).not.toBe("");
        }
      }),
    );
  });

  test("a host takes nothing when its lease is over, its disk is short, or its daemon goes down", () => {
    const set: CapSet = { key: "s", resources: [], hostPin: "h" };
    const of = (one: HostView) => refusalOf(set, { hosts: [one], limits: new Map() }, new Map(), NOW)?.code ?? null;
    expect(of(host("h"))).toBeNull();
    expect(of(host("h", { leaseUntil: NOW }))).toBe("host_down");
    expect(of(host("h", { status: "disk" }))).toBe("host_disk");
    expect(of(host("h", { status: "draining" }))).toBe("host_draining");
    expect(of(host("other"))).toBe("host_down");
  });
});
