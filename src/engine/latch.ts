/** A bell with a memory: rung any number of times while nobody waits, it lets the next waiter through once. */
export interface Latch {
  ring(): void;
  /** Whether it was rung since somebody last came through. */
  readonly rung: boolean;
  wait(): Promise<void>;
}

export function createLatch(): Latch {
  let rung = false;
  let go: (() => void) | null = null;
  return {
    ring() {
      rung = true;
      go?.();
      go = null;
    },
    get rung() {
      return rung;
    },
    async wait() {
      if (!rung) await new Promise<void>((resolve) => (go = resolve));
      rung = false;
    },
  };
}
