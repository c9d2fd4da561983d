/** One seed, from its beginning to the day when everything has drained; and what is left of it when it is made smaller. */
import type { Cluster } from "../postgres.ts";
import type { Plant } from "./plants.ts";
import { createWorld } from "./world.ts";

export interface SimOptions {
  readonly seed: number;
  readonly days: number;
  readonly hosts?: number;
  readonly loops?: number;
  readonly faults?: boolean;
  /** Kinds of faults, `crash`, and single ones, `crash#3`, that do not happen. */
  readonly without?: readonly string[];
  readonly crashEvery?: number;
  readonly plant?: Plant;
  /** Rows whose order no statement says come in any. */
  readonly shuffled?: boolean;
  /** A PostgreSQL server for the store, made for this: it is crashed, too. */
  readonly cluster?: Cluster;
  readonly trace?: (line: string) => void;
}

export interface SimReport {
  readonly options: SimOptions;
  /** Which promise was broken, at which step, and how to see it again; null when every one was kept. */
  readonly broken: { readonly invariant: string; readonly what: string; readonly again: string } | null;
  /** Days of the world until its end. */
  readonly days: number;
  readonly steps: number;
  readonly crashes: number;
  /** Attempts that were granted. */
  readonly claims: number;
  /** Names of the faults that happened. */
  readonly struck: readonly string[];
  readonly slots: Readonly<Record<string, number>>;
}

const DAY = 86_400_000;

/** What the proofs run a seed with: mostly a week, some months, with one to three hosts. */
export const mixOf = (seed: number): SimOptions => ({
  seed,
  days: seed % 20 === 0 ? 30 : 7 + (seed % 4),
  hosts: seed % 5 === 0 ? 2 : seed % 7 === 0 ? 3 : 1,
  loops: seed % 20 === 10 ? 10 : 3 + (seed % 3),
});

function commandOf({
  seed,
  days,
  hosts = 1,
  loops = 10,
  faults = true,
  without = [],
  plant,
  cluster,
}: SimOptions): string {
  const rest = [
    ...(faults ? [] : ["--faults off"]),
    ...(without.length === 0 ? [] : [`--without ${without.join(",")}`]),
    ...(cluster === undefined ? [] : ["--store postgres"]),
    ...(plant === undefined ? [] : [`--plant ${plant}`]),
  ];
  return ["npm run sim --", `--seed ${seed} --for ${days}d --hosts ${hosts} --loops ${loops}`, ...rest].join(" ");
}

export async function simulate(options: SimOptions): Promise<SimReport> {
  const {
    seed,
    days,
    hosts = 1,
    loops = 10,
    faults = true,
    crashEvery = 4_000,
    shuffled = false,
    plant = null,
    trace = null,
  } = options;
  const { cluster = null } = options;
  const without = new Set(options.without);
  const world = await createWorld({
    seed,
    hosts,
    loops,
    faults,
    without,
    crashEvery,
    plant,
    shuffled,
    cluster,
    trace,
  });
  try {
    await world.begin();
    await world.runUntil(days * DAY);
    if (world.broken === null) await world.drain();
    const { broken, time } = world;
    return {
      options,
      broken:
        broken === null
          ? null
          : { ...broken, what: `${broken.what} (step ${time.steps})`, again: `${commandOf(options)} --trace` },
      days: time.now / DAY,
      steps: time.steps,
      crashes: world.crashes,
      claims: world.claims,
      struck: world.struck,
      slots: await world.tally(),
    };
  } finally {
    await world.close();
  }
}

/**
 * Makes a broken seed smaller as long as the same invariant is broken: fewer days, hosts and loops, kinds of faults
 * switched off, then single faults by halves.
 * @param mayGoOn asked before each try; trying stops when it says no
 */
export async function shrink(found: SimReport, mayGoOn: (tries: number) => boolean): Promise<SimReport> {
  let best = found;
  let tries = 0;
  /** Keeps that change if the same is broken with it. */
  async function holds(change: Partial<SimOptions>): Promise<boolean> {
    if (!mayGoOn(tries)) return false;
    tries++;
    const { trace: _, ...options } = { ...best.options, ...change };
    const report = await simulate(options);
    if (report.broken?.invariant !== found.broken?.invariant) return false;
    best = report;
    return true;
  }
  const { hosts = 1, loops = 10, days, without: given = [] } = found.options;
  const needed = Math.max(1, Math.ceil(best.days));
  if (needed < days) await holds({ days: needed });
  for (let fewer = 1; fewer < hosts; fewer++) if (await holds({ hosts: fewer })) break;
  for (let fewer = 1; fewer < loops; fewer *= 2) if (await holds({ loops: fewer })) break;
  const without = () => best.options.without ?? given;
  const kindOf = (name: string) => name.split("#")[0] ?? name;
  for (const kind of new Set(best.struck.map(kindOf))) await holds({ without: [...without(), kind] });
  for (let size = Math.ceil(best.struck.length / 2), last = false; !last; size = Math.ceil(size / 2)) {
    last = size <= 1;
    for (let from = 0; from < best.struck.length; ) {
      const some = best.struck.slice(from, from + size);
      if (some.length === 0 || !(await holds({ without: [...without(), ...some] }))) from += size;
      if (!mayGoOn(tries)) return best;
    }
  }
  const shorter = Math.max(1, Math.ceil(best.days));
  if (shorter < best.options.days) await holds({ days: shorter });
  return best;
}
