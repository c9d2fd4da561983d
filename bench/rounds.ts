/** Cases measured in turn, so that whatever else the machine does meets all of them: ratios of rounds, never of averages. */

/** What one turn of a case gave, by name: rates, milliseconds, bytes. */
export type Sample = Readonly<Record<string, number>>;

/** What each case gave in each round. */
export type Rounds<Case extends string> = { readonly [C in Case]: readonly Sample[] };

/** Cases by name. */
export type Cases<Case extends string> = { readonly [C in Case]: (round: number) => Sample | Promise<Sample> };

/** How one measure of two cases compares. */
export interface Ratio {
  /** Medians. */
  readonly a: number;
  readonly b: number;
  /** Median of the ratios a / b of each round, their least and their greatest, and the middle half of them. */
  readonly ratio: number;
  readonly min: number;
  readonly max: number;
  readonly low: number;
  readonly high: number;
}

export interface Measured {
  readonly ms: number;
  readonly cpuMs: number;
}

/** @param q from 0 for the least to 1 for the greatest */
export const quantile = (values: readonly number[], q: number): number => {
  const sorted = values.toSorted((x, y) => x - y);
  return sorted[Math.round((sorted.length - 1) * q)] ?? Number.NaN;
};

/** Ratios of pairs, each of one round. */
function ratioOf(pairs: readonly (readonly [number, number])[]): Ratio {
  const ratios = pairs.map(([a, b]) => a / b);
  const median = (values: readonly number[]): number => quantile(values, 0.5);
  return {
    a: median(pairs.map(([a]) => a)),
    b: median(pairs.map(([, b]) => b)),
    ratio: median(ratios),
    min: Math.min(...ratios),
    max: Math.max(...ratios),
    low: quantile(ratios, 0.25),
    high: quantile(ratios, 0.75),
  };
}

/** One measure of each round. Errors: when a case did not give it. */
export const valuesOf = (samples: readonly Sample[], measure: string): readonly number[] =>
  samples.map((sample) => {
    const value = sample[measure];
    if (value === undefined) throw new Error(`no ${measure} was measured, only ${Object.keys(sample).join(", ")}`);
    return value;
  });

/** How two measures compare, round by round. */
export function ratioIn(a: readonly Sample[], b: readonly Sample[], measure: string, of: string = measure): Ratio {
  const below = valuesOf(b, of);
  return ratioOf(valuesOf(a, measure).map((value, round) => [value, below[round] ?? Number.NaN]));
}

/** Runs every case once a round, the order turned by one each time. A case that fails ends the bench. */
export async function interleave<Case extends string>(
  rounds: number,
  cases: Cases<Case>,
  onRound: (round: number) => void = () => {},
): Promise<Rounds<Case>> {
  const names = Object.keys(cases) as Case[];
  const taken = Object.fromEntries(names.map((name) => [name, [] as Sample[]])) as { [C in Case]: Sample[] };
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < names.length; i++) {
      const name = names[(i + round) % names.length] as Case;
      taken[name].push(await cases[name](round));
    }
    onRound(round);
  }
  return taken;
}

/** Runs both `rounds` times, the order turned each time, after one round that does not count. */
export async function compare(
  rounds: number,
  a: () => Measured | Promise<Measured>,
  b: () => Measured | Promise<Measured>,
): Promise<{ readonly ms: Ratio; readonly cpuMs: Ratio }> {
  const sampleOf = async (one: () => Measured | Promise<Measured>): Promise<Sample> => ({ ...(await one()) });
  const taken = await interleave(rounds + 1, { a: () => sampleOf(a), b: () => sampleOf(b) });
  const [of, to] = [taken.a.slice(1), taken.b.slice(1)];
  return { ms: ratioIn(of, to, "ms"), cpuMs: ratioIn(of, to, "cpuMs") };
}

const shown = ({ a, b, ratio, low, high }: Ratio): string =>
  `${a.toFixed(0).padStart(6)} ${b.toFixed(0).padStart(6)}  ${ratio.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`;

/** One line of a table of comparisons. */
export const shownComparison = (
  name: string,
  of: { readonly ms: Ratio; readonly cpuMs: Ratio },
  note: string,
): string => `${name.padEnd(42)}${shown(of.ms)}   CPU${shown(of.cpuMs)}${note}`;
