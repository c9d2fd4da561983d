/** Seeds as tests, four at a time: a test that runs for minutes says nothing while it does. */
import { expect, test } from "vitest";
import { mixOf, simulate } from "./simulate.ts";

export function seedsHold(first: number, last: number): void {
  for (let from = first; from <= last; from += 4) {
    const to = Math.min(from + 3, last);
    test(`seeds ${from} to ${to} keep every promise`, { timeout: 300_000 }, async () => {
      for (let seed = from; seed <= to; seed++) {
        const { broken } = await simulate(mixOf(seed));
        expect(broken, `seed ${seed}`).toBeNull();
      }
    });
  }
}
