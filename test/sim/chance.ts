/** Seeded chance: one seed decides everything that a simulation does. */
export interface Chance {
  /** In [0, 1). */
  next(): number;
  /** An integer in [from, to]. */
  int(from: number, to: number): number;
  /** True with that probability. */
  hit(probability: number): boolean;
  pick<T>(of: readonly T[]): T;
  /** An independent source that depends on this one's seed and the name only, not on what was drawn before. */
  fork(name: string): Chance;
  bytes(count: number): Uint8Array;
}

function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  value = Math.imul(value ^ (value >>> 15), 0x85ebca6b);
  return (value ^ (value >>> 13)) >>> 0;
}

/** sfc32, seeded by text. */
export function chanceOf(seed: string): Chance {
  let [a, b, c, d] = [hash(`${seed}/a`), hash(`${seed}/b`), hash(`${seed}/c`), 1];
  const raw = (): number => {
    const sum = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (c << 21) | (c >>> 11);
    c = (c + sum) | 0;
    return sum >>> 0;
  };
  for (let i = 0; i < 12; i++) raw();
  const next = () => raw() / 0x1_0000_0000;
  const int = (from: number, to: number) => from + Math.floor(next() * (to - from + 1));
  return {
    next,
    int,
    hit: (probability) => probability > 0 && next() < probability,
    pick: (of) => of[int(0, of.length - 1)] as (typeof of)[number],
    fork: (name) => chanceOf(`${seed}/${name}`),
    bytes: (count) => Uint8Array.from({ length: count }, () => raw() & 255),
  };
}
