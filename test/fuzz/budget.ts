/** How much is tried: a bounded part in every run of the tests, and as long as was said with `npm run fuzz`. */
import type { Parameters } from "fast-check";

const said = (name: string): number | null => {
  const value = process.env[name];
  return value === undefined || value === "" ? null : Number(value);
};

/** Time for each property; null for a number of inputs. */
const forMs = said("DROVER_FUZZ_MS");
const seed = said("DROVER_FUZZ_SEED");

/** @param numRuns inputs, or walks of many inputs, where no time is said */
export const budget = <T>(numRuns: number): Parameters<T> => ({
  ...(seed === null ? {} : { seed }),
  ...(forMs === null
    ? { numRuns }
    : { numRuns: Number.MAX_SAFE_INTEGER, interruptAfterTimeLimit: forMs, markInterruptAsFailure: false }),
});

/** The limit of the test around it. */
export const testLimitMs = forMs === null ? 300_000 : forMs * 2 + 120_000;
