/** The simulator's world over a real PostgreSQL server: a few short histories, and the proof that it would notice. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Cluster, startPostgres } from "../postgres.ts";
import type { Plant } from "./plants.ts";
import { simulate } from "./simulate.ts";

const HOUR = 1 / 24;

describe.skipIf(process.env["DROVER_TEST_STORES"] === "sqlite")("a world on a PostgreSQL server", () => {
  /** A server of its own: it is crashed, and a transaction of somebody else would hold back the feed. */
  let cluster: Cluster;
  beforeAll(async () => {
    cluster = await startPostgres();
  });
  afterAll(() => cluster.stop());

  test("keeps every promise under faults, and nothing committed is missed", { timeout: 600_000 }, async () => {
    for (const seed of [1, 2]) {
      const { broken } = await simulate({ seed, days: HOUR, hosts: 2, loops: 3, cluster });
      expect(broken, `seed ${seed}`).toBeNull();
    }
  });

  /** The first seed that breaks, of at most that many. */
  async function findsWithin(seeds: number, plant: Plant): Promise<string> {
    for (let seed = 1; seed <= seeds; seed++) {
      const { broken } = await simulate({ seed, days: 3 * HOUR, hosts: 2, loops: 5, plant, cluster });
      if (broken !== null) return `${broken.invariant} ${broken.what}`;
    }
    return `not found within ${seeds} seeds`;
  }

  test("a feed row that is committed late is missed by whoever reads by id alone", { timeout: 600_000 }, async () => {
    expect(await findsWithin(50, "late_feed")).toMatch(/^feed .* passed by/);
  });
});
