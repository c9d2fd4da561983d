/** What a new daemon does first: every attempt that its host still has is adopted, settled or given back. */
import type { Limits } from "../core/limits.ts";
import type { Files, Spawner, Store } from "../core/ports.ts";
import { createGate } from "./gate.ts";
import { attemptOf } from "./janitor.ts";
import type { Log } from "./ports.ts";
import type { Runner } from "./runner.ts";
import type { Weather } from "./weather.ts";

export interface RecoveryOptions {
  readonly store: Store;
  readonly limits: Limits;
  readonly runner: Runner;
  readonly weather: Weather;
  readonly log: Log;
  readonly hostId: string;
  readonly incarnation: number;
}

/** Resolves when each of them is adopted or its end is certain; settling them goes on behind it. */
export async function recover(options: RecoveryOptions): Promise<number> {
  const { store, limits, runner, weather, log, hostId, incarnation } = options;
  const mine = await weather.persist("attempts.ofHost", () => store.attempts.ofHost({ hostId }));
  const gate = createGate(limits.recoverAtOnce);
  await Promise.all(
    mine.map(async (assignment) => {
      const { status, incarnation: given } = assignment.attempt;
      // Reserved for this very start by another host's pass.
      if (status === "reserved" && given === incarnation) return runner.take(assignment);
      return gate.run(() => runner.resume(assignment));
    }),
  );
  if (mine.length > 0) log("info", "recovered", { attempts: mine.length });
  return mine.length;
}

export interface StrayOptions {
  readonly store: Store;
  readonly files: Files;
  readonly spawner: Spawner;
  readonly limits: Limits;
  readonly weather: Weather;
  readonly log: Log;
  /** Whether this host still has that attempt. */
  readonly knows: (attemptId: string) => boolean;
}

/**
 * Ends what still runs here although another host has taken it over while this one was silent: those attempts are over in
 * the store, so only their folders tell of them. The lease says nothing: a daemon that woke, renewed it and died at once
 * has ended none of them.
 */
export async function endStrays(options: StrayOptions): Promise<number> {
  const { store, files, spawner, limits, weather, log, knows } = options;
  const folders = await files.folders();
  const lost = new Set<string>();
  for (let from = 0; from < folders.length; from += limits.janitorBatch) {
    const attemptIds = [...new Set(folders.slice(from, from + limits.janitorBatch).map(attemptOf))];
    const ended = await weather.persist("attempts.endedAmong", () => store.attempts.endedAmong({ attemptIds }));
    for (const one of ended) if (one.lost) lost.add(one.attemptId);
  }
  const gate = createGate(limits.recoverAtOnce);
  let strays = 0;
  await Promise.all(
    folders.map((folder) =>
      gate.run(async () => {
        const attemptId = attemptOf(folder);
        if (!lost.has(attemptId) || knows(attemptId)) return;
        try {
          const judgement = await spawner.judge({ folder, bootId: spawner.bootId, plant: false });
          if (judgement.kind === "never_started" || judgement.kind === "asked") return;
          // One that has ended by itself may have left children, which nobody has swept: it was another host's by then.
          const isOver = judgement.kind === "ended" || judgement.kind === "lost";
          const request = { folder, mark: attemptId, graceMs: 0 };
          const { killed, left } = await (isOver ? spawner.sweep(request) : spawner.end(request));
          if (isOver && killed === 0 && left === 0) return;
          strays++;
          log("warn", "stray_ended", { attempt: attemptId, left });
        } catch (error) {
          weather.mishap(`stray ${folder}`, error, 1);
        }
      }),
    ),
  );
  return strays;
}
