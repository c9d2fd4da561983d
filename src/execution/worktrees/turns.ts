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

/** Whoever asks while the work runs waits for one run more, together with all who ask meanwhile. A run that nobody wants any more is ended. */
export function shared<T>(work: (unwanted: AbortSignal) => Promise<T>): (unwanted?: AbortSignal) => Promise<T> {
  interface Round {
    readonly done: Promise<T>;
    readonly stop: AbortController;
    wantedBy: number;
  }
  let running: Promise<unknown> | null = null;
  let waiting: Round | null = null;
  const next = (): Round => {
    const stop = new AbortController();
    const begin = (): Promise<T> => {
      if (waiting === round) waiting = null;
      const now = work(stop.signal);
      running = now;
      return now;
    };
    const round: Round = { stop, wantedBy: 0, done: (running ?? Promise.resolve()).then(begin, begin) };
    return round;
  };
  return (unwanted) => {
    const round = waiting ?? next();
    waiting = round;
    round.wantedBy++;
    unwanted?.addEventListener("abort", () => {
      if (--round.wantedBy > 0) return;
      if (waiting === round) waiting = null;
      round.stop.abort();
    });
    return round.done;
  };
}
