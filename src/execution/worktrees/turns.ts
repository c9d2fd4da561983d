/** Taking turns: work that waits for other work on the same thing. */

/** One piece of work at a time for each key. */
export function queues(): <T>(key: string, work: () => Promise<T>) => Promise<T> {
  const last = new Map<string, Promise<unknown>>();
  return <T>(key: string, work: () => Promise<T>): Promise<T> => {
    const mine = (last.get(key) ?? Promise.resolve()).then(work, work);
    const settled = mine.then(
      () => {},
      () => {},
    );
    last.set(key, settled);
    void settled.then(() => {
      if (last.get(key) === settled) last.delete(key);
    });
    return mine;
  };
}

/** Whoever asks while the work runs waits for one run more, together with all who ask meanwhile. */
export function shared<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<unknown> | null = null;
  let waiting: Promise<T> | null = null;
  return () => {
    if (waiting !== null) return waiting;
    const mine: Promise<T> = (running ?? Promise.resolve()).then(
      () => start(),
      () => start(),
    );
    const start = (): Promise<T> => {
      waiting = null;
      const now = work();
      running = now;
      return now;
    };
    waiting = mine;
    return mine;
  };
}
