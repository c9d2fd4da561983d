/** The proof that the simulator would notice: each planted fault is found within 50 seeds. */
import { describe, expect, test } from "vitest";
import { PLANTS, type Plant } from "./plants.ts";
import { simulate } from "./simulate.ts";

const SEEDS = 50;

/** A plant's world, the seed that is known to find it soonest, and what is broken then. */
interface Expected {
  readonly hosts: number;
  readonly soonest: number;
  readonly broken: RegExp;
}

const EXPECTED: Partial<Record<Plant, Expected>> = {
  drop_token: { hosts: 2, soonest: 4, broken: /^I2 .*was accepted with token/ },
  skip_ticket: { hosts: 1, soonest: 4, broken: /^(started after its end|started twice|I1) / },
  keep_planned_until: { hosts: 1, soonest: 1, broken: /^I4 .*planned until/ },
  settle_twice: { hosts: 1, soonest: 8, broken: /^(I6 .*was .* and became|receipts settling)/ },
  compare_clocks: { hosts: 3, soonest: 1, broken: /^I1 .*was taken over, and .* had renewed/ },
  forget_slot: { hosts: 1, soonest: 1, broken: /^I4 / },
  ignore_receipt: { hosts: 2, soonest: 2, broken: /^receipts / },
  late_renewal: { hosts: 1, soonest: 1, broken: /^I2 hosts\.renew .*was accepted from its daemon/ },
};

describe("a planted fault is found", () => {
  // What only a server can do wrong is in `postgres.test.ts`.
  for (const [plant, { hosts, soonest, broken: expected }] of Object.entries(EXPECTED) as [Plant, Expected][])
    test(`${plant}: ${PLANTS[plant]}`, { timeout: 600_000 }, async () => {
      const others = Array.from({ length: SEEDS }, (_, i) => i + 1).filter((seed) => seed !== soonest);
      let found = `not within ${SEEDS} seeds`;
      for (const seed of [soonest, ...others]) {
        const { broken } = await simulate({ seed, days: 10, loops: 5, hosts, plant, crashEvery: 400 });
        if (broken === null) continue;
        found = `${broken.invariant} ${broken.what}`;
        break;
      }
      expect(found).toMatch(expected);
    });
});
