/** Runs that are added, claimed, started and settled by the operations of a daemon, on a store that somebody else has filled. */
import { defaultLimits } from "../src/core/limits.ts";
import { asStore } from "../src/store/operations.ts";
import { commandOf, outcomeOf, runDraft } from "../test/drafts.ts";
import { HOST, openDaemonStore } from "./engine.ts";
import type { Measured } from "./rounds.ts";

/** Runs of one cycle. */
const CYCLE = 20;

export interface Claims {
  /** One cycle, from its first claim to its last settlement. */
  cycle(): Promise<Measured>;
  close(): Promise<void>;
}

export async function openClaims(address: string): Promise<Claims> {
  const handle = await openDaemonStore(address);
  const store = asStore(handle.store);
  const host = { hostId: HOST, name: "claims", machineId: "m", bootId: "claims", version: "0" };
  await store.hosts.join({ ...host, leaseMs: defaultLimits.leaseMs, commandCap: 256, agentCap: 1 });
  return {
    async cycle() {
      for (let i = 0; i < CYCLE; i++) await store.runs.add(runDraft(commandOf(["true"]), { hostPin: HOST }));
      const startedAt = performance.now();
      const before = process.cpuUsage();
      const { mine } = await store.admission.pass({ hostId: HOST, limits: defaultLimits });
      if (mine.length !== CYCLE) throw new Error(`${mine.length} of ${CYCLE} runs were claimed`);
      for (const { attempt } of mine) {
        const at = { attemptId: attempt.id, token: attempt.token };
        await store.attempts.start({ ...at, bootId: "claims", folder: `${attempt.id}.${attempt.token}`, awakeAt: 0 });
        await store.attempts.settle({ ...at, outcome: outcomeOf(), limits: defaultLimits });
      }
      const { user, system } = process.cpuUsage(before);
      return { ms: performance.now() - startedAt, cpuMs: (user + system) / 1_000 };
    },
    close: () => handle.close(),
  };
}
