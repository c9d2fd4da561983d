/** The graph that the needs of steps make: in which order they can start, where they wait for one another, who comes before whom. */

/** Steps by their places; `needs[i]` are those that step i needs, each once and none of them itself. */
export type Needs = readonly (readonly number[])[];

/**
 * Steps in an order in which each comes after those that it needs, else in the order in which they were written. Those in a
 * circle, and what needs them, are left out.
 */
export function orderOf(needs: Needs): readonly number[] {
  const left = needs.map((of) => of.length);
  const after: number[][] = needs.map(() => []);
  for (const [step, of] of needs.entries()) for (const need of of) after[need]?.push(step);
  const order: number[] = [];
  let wave = left.flatMap((count, step) => (count === 0 ? [step] : []));
  while (wave.length > 0) {
    order.push(...wave);
    const next: number[] = [];
    for (const step of wave)
      for (const one of after[step] ?? []) {
        left[one] = (left[one] ?? 0) - 1;
        if (left[one] === 0) next.push(one);
      }
    wave = next.toSorted((a, b) => a - b);
  }
  return order;
}

/** Circles that are named at one time. */
const MOST_CIRCLES = 20;

/**
 * Circles of steps that wait for one another: each step needs the next one, the last the first. What is left when one need of
 * each named circle is gone is looked through again, so that circles with steps in common are all named.
 */
export function circlesOf(needs: Needs): readonly (readonly number[])[] {
  const left = needs.map((of) => [...of]);
  const circles: (readonly number[])[] = [];
  for (let more = true; more && circles.length < MOST_CIRCLES; ) {
    const found = circlesApart(left);
    more = found.length > 0;
    for (const circle of found) {
      circles.push(circle);
      const of = left[circle.at(-1) ?? 0];
      of?.splice(of.indexOf(circle[0] ?? 0), 1);
    }
  }
  return circles.slice(0, MOST_CIRCLES);
}

/** Circles that have no step in common. */
function circlesApart(needs: Needs): readonly (readonly number[])[] {
  const isFree = new Set(orderOf(needs));
  const circles: number[][] = [];
  /** The walk in which a step was met. */
  const met = new Map<number, number>();
  for (const start of needs.keys()) {
    if (isFree.has(start) || met.has(start)) continue;
    const path: number[] = [];
    // Whoever is not free needs one that is not free either: a walk along those comes back to itself, or to an earlier walk.
    let at: number | undefined = start;
    while (at !== undefined && !met.has(at)) {
      met.set(at, start);
      path.push(at);
      at = needs[at]?.find((need) => !isFree.has(need));
    }
    if (at !== undefined && met.get(at) === start) circles.push(path.slice(path.indexOf(at)));
  }
  return circles;
}

/** Who comes before a step, directly or through others. */
export interface Ancestry {
  has(step: number, before: number): boolean;
}

const BITS = 32;

/** @param order as `orderOf` gives it: what is not in it, because of a circle, has everybody before it */
export function ancestryOf(needs: Needs, order: readonly number[]): Ancestry {
  const words = Math.ceil(needs.length / BITS);
  const sets = new Map<number, Uint32Array>();
  const add = (set: Uint32Array, step: number): void => {
    const word = Math.floor(step / BITS);
    set[word] = (set[word] ?? 0) | (1 << (step % BITS));
  };
  for (const step of order) {
    const set = new Uint32Array(words);
    for (const need of needs[step] ?? []) {
      const known = sets.get(need);
      if (known !== undefined) for (let at = 0; at < words; at++) set[at] = (set[at] ?? 0) | (known[at] ?? 0);
      add(set, need);
    }
    sets.set(step, set);
  }
  return {
    has(step, before) {
      const set = sets.get(step);
      if (set === undefined) return true;
      return ((set[Math.floor(before / BITS)] ?? 0) & (1 << (before % BITS))) !== 0;
    },
  };
}
