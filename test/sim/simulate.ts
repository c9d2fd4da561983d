/** One seed, from its beginning to the day when everything has drained. */
import type { Cluster } from "../postgres.ts";
import type { Plant } from "./plants.ts";
import { createWorld } from "./world.ts";

export interface SimOptions {
  readonly seed: number;
  readonly days: number;
  readonly hosts?: number;
  readonly loops?: number;
  readonly faults?: boolean;
  readonly crashEvery?: number;
  readonly plant?: Plant;
  /** A PostgreSQL server for the store, made for this: it is crashed, too. */
  readonly cluster?: Cluster;
  readonly trace?: (line: string) => void;
}

export interface SimReport {
  readonly seed: number;
  /** What was broken, and how to see it again; null when every promise was kept. */
  readonly broken: string | null;
  readonly steps: number;
  readonly crashes: number;
  readonly slots: Readonly<Record<string, number>>;
}

const DAY = 86_400_000;

export async function simulate(options: SimOptions): Promise<SimReport> {
  const { seed, days, hosts = 1, loops = 10, faults = true, crashEvery = 4_000, plant = null, trace = null } = options;
  const { cluster = null } = options;
  const world = await createWorld({ seed, hosts, loops, faults, crashEvery, plant, cluster, trace });
  try {
    await world.begin();
    await world.runUntil(days * DAY);
    if (world.broken === null) await world.drain();
    const { broken } = world;
    const again = `npm run sim -- --seed ${seed} --for ${days}d --hosts ${hosts} --loops ${loops}${faults ? "" : " --faults off"}${cluster === null ? "" : " --store postgres"}`;
    return {
      seed,
      broken:
        broken === null ? null : `${broken.invariant} at step ${world.time.steps}: ${broken.what}\n${again} --trace`,
      steps: world.time.steps,
      crashes: world.crashes,
      slots: await world.tally(),
    };
  } finally {
    await world.close();
  }
}
