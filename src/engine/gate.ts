/** Lets at most that many pieces of work in at a time; the others wait in the order in which they came. */
export interface Gate {
  /** @param unwanted whoever still waits is let in at once, to see that there is nothing to do */
  run<T>(work: () => Promise<T>, unwanted?: AbortSignal): Promise<T>;
  isEmpty(): boolean;
  /** Resolves when nobody is inside. */
  empty(): Promise<void>;
}

export function createGate(limit: number): Gate {
  let inside = 0;
  const waiting: (() => void)[] = [];
  let whenEmpty: (() => void)[] = [];
  return {
    isEmpty: () => inside === 0,
    empty: () => (inside === 0 ? Promise.resolve() : new Promise((go) => whenEmpty.push(go))),
    async run(work, unwanted) {
      if (inside < limit || unwanted?.aborted === true) inside++;
      else
        await new Promise<void>((go) => {
          waiting.push(go);
          unwanted?.addEventListener("abort", () => {
            const at = waiting.indexOf(go);
            if (at < 0) return;
            waiting.splice(at, 1);
            inside++;
            go();
          });
        });
      try {
        return await work();
      } finally {
        const next = inside > limit ? undefined : waiting.shift();
        // The place passes on directly, so nobody who comes later slips in between.
        if (next === undefined) inside--;
        else next();
        if (inside === 0) {
          for (const go of whenEmpty) go();
          whenEmpty = [];
        }
      }
    },
  };
}
