/** Lets at most that many pieces of work in at a time; the others wait in the order in which they came. */
export interface Gate {
  run<T>(work: () => Promise<T>): Promise<T>;
}

export function createGate(limit: number): Gate {
  let inside = 0;
  const waiting: (() => void)[] = [];
  return {
    async run(work) {
      if (inside >= limit) await new Promise<void>((go) => waiting.push(go));
      else inside++;
      try {
        return await work();
      } finally {
        const next = waiting.shift();
        // The place passes on directly, so nobody who comes later slips in between.
        if (next === undefined) inside--;
        else next();
      }
    },
  };
}
