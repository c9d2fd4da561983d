/** Two things measured in turn, so that whatever else the machine does meets both: ratios of rounds, never of averages. */

/** How one measure of the two compares. */
export interface Ratio {
  /** Medians. */
  readonly a: number;
  readonly b: number;
  /** Median of the ratios a / b of each round, and the middle half of them. */
  readonly ratio: number;
  readonly low: number;
  readonly high: number;
}

export interface Measured {
  readonly ms: number;
  readonly cpuMs: number;
}

const quantile = (values: readonly number[], q: number): number => {
  const sorted = values.toSorted((x, y) => x - y);
  return sorted[Math.floor((sorted.length - 1) * q)] ?? NaN;
};

function ratioOf(pairs: readonly (readonly [number, number])[]): Ratio {
  const ratios = pairs.map(([a, b]) => a / b);
  return {
    a: quantile(
      pairs.map(([a]) => a),
      0.5,
    ),
    b: quantile(
      pairs.map(([, b]) => b),
      0.5,
    ),
    ratio: quantile(ratios, 0.5),
    low: quantile(ratios, 0.25),
    high: quantile(ratios, 0.75),
  };
}

/** Runs both `rounds` times, the order turned each time, after one round that does not count. */
export async function compare(
  rounds: number,
  a: () => Measured | Promise<Measured>,
  b: () => Measured | Promise<Measured>,
): Promise<{ readonly ms: Ratio; readonly cpuMs: Ratio }> {
  const taken: (readonly [Measured, Measured])[] = [];
  for (let round = 0; round <= rounds; round++) {
    const first = round % 2 === 0 ? await a() : null;
    const second = await b();
    const pair = [first ?? (await a()), second] as const;
    if (round > 0) taken.push(pair);
  }
  return {
    ms: ratioOf(taken.map(([of, to]) => [of.ms, to.ms])),
    cpuMs: ratioOf(taken.map(([of, to]) => [of.cpuMs, to.cpuMs])),
  };
}

const shown = ({ a, b, ratio, low, high }: Ratio): string =>
  `${a.toFixed(0).padStart(6)} ${b.toFixed(0).padStart(6)}  ${ratio.toFixed(2)} (${low.toFixed(2)}-${high.toFixed(2)})`;

/** One line of a table of comparisons. */
export const shownComparison = (
  name: string,
  of: { readonly ms: Ratio; readonly cpuMs: Ratio },
  note: string,
): string => `${name.padEnd(42)}${shown(of.ms)}   CPU${shown(of.cpuMs)}${note}`;
