/** Whether it was the kernel that ended a process for want of memory: its status is that of any SIGKILL, and nobody else tells. */
import { readFileSync } from "node:fs";

/** Tells such ends apart by the kernel's own count of them, which is of the whole host. */
export interface MemoryKills {
  /** Has to be called when an attempt starts and while it lives; costs a read a second at most. */
  sample(): void;
  /** Whether the kernel ended anything so in the time since the look before last. Asked again of one attempt it says the same. */
  explains(folder: string): boolean;
}

/** Between two looks. What is explained ended at most two of them, or two looks at live attempts, ago. */
const SAMPLE_MS = 1_000;
/** After so long without a look nothing was live: what the kernel did meanwhile explains nothing. */
const IDLE_MS = 15_000;
/** Attempts of which it is remembered what was said: they are judged again at most until they are settled. */
const REMEMBERED = 1_000;

/** Processes that the kernel has ended for want of memory since the boot; null where it does not say (Linux before 4.13, elsewhere). */
export function countMemoryKills(): number | null {
  try {
    const found = /^oom_kill (\d+)$/m.exec(readFileSync("/proc/vmstat", "latin1"))?.[1];
    return found === undefined ? null : Number(found);
  } catch {
    return null;
  }
}

/** @param now milliseconds of a clock that only goes on */
export function watchMemoryKills(count = countMemoryKills, now = () => performance.now()): MemoryKills {
  let before = count();
  let last = { count: before, at: now() };
  const explained = new Map<string, boolean>();
  return {
    sample() {
      const gapMs = now() - last.at;
      if (gapMs < SAMPLE_MS) return;
      const counted = count();
      // Not the last one: it may lie between a kill and the judgement of what was killed.
      before = gapMs > IDLE_MS ? counted : last.count;
      last = { count: counted, at: now() };
    },
    explains(folder) {
      const known = explained.get(folder);
      if (known !== undefined) return known;
      const found = (count() ?? 0) > (before ?? Number.POSITIVE_INFINITY);
      explained.set(folder, found);
      for (const oldest of explained.keys()) {
        if (explained.size <= REMEMBERED) break;
        explained.delete(oldest);
      }
      return found;
    },
  };
}
