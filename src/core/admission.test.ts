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
import type { AccountStatus } from "./records.ts";

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
    logins: fc.array(
      fc.record({
        there: fc.boolean(),
        enabled: fc.boolean(),
        status: fc.constantFrom<AccountStatus>("ok", "throttled", "quota", "auth", "unknown"),
        held: fc.constantFrom<readonly (number | null)[]>([], [], [], [null], [NOW + 5], [NOW + 5, NOW + 9]),
        used: fc.nat(1),
        set: fc.nat(4),
      }),
      { maxLength: 3 },
    ),
    heads: fc.array(fc.record({ set: fc.nat(4), turnAt: fc.integer({ min: 0, max: 6 }) }), { maxLength: 25 }),
  })
  .map(
    ({ hosts, caps, used, sets, logins, heads }): AdmissionView => ({
      hosts: hosts.map((status, i) => host(`h${i}`, { status })),
      limits: new Map(caps.map((limit, i) => [`r${i}`, limit])),
      used: new Map([
        ...used.map((n, i) => [`r${i}`, n] as const),
        ...logins.map((login, i) => [`account:p:a${i}`, login.used] as const),
      ]),
      accounts: new Map(
        logins.flatMap(({ there, enabled, status }, i) => (there ? [[`p:a${i}`, { enabled, status }] as const] : [])),
      ),
      holds: logins.flatMap(({ held }, i) =>
        held.map((untilAt) => ({ subject: `account:p:a${i}`, untilAt, reason: "a limit" })),
      ),
      sets: sets.map(
        (set, i): CapSet => ({
          key: `s${i}`,
          resources: [
            ...set.resources.map((n) => `r${n}`),
            ...logins.flatMap((login, n) => (login.set === i ? [`account:p:a${n}`] : [])),
          ],
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
    expect(of(host("h", { status: "down" }))).toBe("host_down");
    expect(of(host("other"))).toBe("host_down");
    const anywhere = (one: HostView) =>
      refusalOf({ ...set, hostPin: null }, { hosts: [one], limits: new Map() }, new Map(), NOW)?.code ?? null;
    expect(anywhere(host("h"))).toBeNull();
    expect(anywhere(host("h", { status: "disk" }))).toBe("no_host");
  });

  test("nothing starts under an account that is held, disabled or not there; its user's own login needs no row", () => {
    const state = { enabled: true, status: "ok" } as const;
    const of = (accountId: string, over: Partial<AdmissionView> = {}, used = 0) =>
      refusalOf(
        { key: "s", resources: ["provider:p", `account:${accountId}`], hostPin: "h" },
        { hosts: [host("h")], limits: new Map(), accounts: new Map([["p:work", state]]), ...over },
        new Map([[`account:${accountId}`, used]]),
        NOW,
      );
    expect(of("p:work")).toBeNull();
    expect(of("p:default")).toBeNull();
    expect(of("p:other")).toEqual({ code: "account_missing", accountId: "p:other" });
    expect(of("p:work", { accounts: new Map([["p:work", { ...state, enabled: false }]]) })).toEqual({
      code: "account_disabled",
      accountId: "p:work",
    });
    const short = { subject: "account:p:work", untilAt: NOW + 1, reason: "short" };
    const long = { subject: "account:p:work", untilAt: null, reason: "long" };
    expect(of("p:work", { holds: [short, long] })).toEqual({ code: "held", ...long });
    expect(of("p:default", { holds: [short] })).toBeNull();
    expect(of("p:default", { holds: [{ ...short, subject: "provider:p" }] })).toMatchObject({ code: "held" });
  });

  test("after a limit one attempt finds out whether it is over", () => {
    const set: CapSet = { key: "s", resources: ["account:p:work"], hostPin: "h" };
    const heads = ["a", "b", "c"].map((stepId, i): Head => ({ stepId, runId: stepId, capKey: "s", turnAt: i }));
    for (const status of ["throttled", "quota", "ok", "unknown", "auth"] as const) {
      const { grants, refused } = admit(
        {
          hosts: [host("h")],
          limits: new Map(),
          used: new Map(),
          sets: [set],
          heads,
          accounts: new Map([["p:work", { enabled: true, status }]]),
        },
        NOW,
        50,
      );
      const probes = status === "throttled" || status === "quota";
      expect(grants).toHaveLength(probes ? 1 : 3);
      if (probes) expect(refused.get("b")).toEqual({ code: "probing", accountId: "p:work", status });
    }
  });

  test("who works in a folder that is not his own has it alone, unless a limit says otherwise", () => {
    const set: CapSet = { key: "s", resources: ["folder:/a"], hostPin: "h" };
    const of = (limits: ReadonlyMap<string, number>, used: number) =>
      refusalOf(set, { hosts: [host("h")], limits }, new Map([["folder:/a", used]]), NOW);
    expect(of(new Map(), 0)).toBeNull();
    const refused = of(new Map(), 1);
    expect(refused).toEqual({ code: "cap", resource: "folder:/a", used: 1, limit: 1 });
    expect(refused === null ? "" : describeRefusal(refused)).toBe("the folder /a is busy: another agent writes in it");
    expect(of(new Map([["folder:/a", 2]]), 1)).toBeNull();
  });
});
