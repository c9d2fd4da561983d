import { expect, test } from "vitest";
import { defaultLimits as limits } from "../core/limits.ts";
import type { Files, Judgement, Spawner, Store } from "../core/ports.ts";
import { endStrays } from "./recovery.ts";
import type { Weather } from "./weather.ts";

const live: Judgement = { kind: "live", pid: 1, pidStarted: "1", started: true };
const over: Judgement = { kind: "ended", exit: 0, startedAt: 1, endedAt: 2, durationMs: 1 };
const lost: Judgement = { kind: "lost", why: "exit_unknown" };

/** A host that comes back, with one folder for each of these judgements. */
async function comeBack(judgements: readonly Judgement[]): Promise<{ calls: string[]; strays: number }> {
  const calls: string[] = [];
  const act = (what: string) => async (request: { readonly folder: string; readonly mark: string }) => {
    calls.push(`${what} ${request.folder} ${request.mark}`);
    return { killed: 1, left: 0, proof: "proved_empty" as const };
  };
  const strays = await endStrays({
    store: {
      attempts: {
        endedAmong: async ({ attemptIds }: { readonly attemptIds: readonly string[] }) =>
          attemptIds.map((attemptId) => ({ attemptId, finishedAt: 1, lost: attemptId !== "att_9" })),
      },
    } as unknown as Store,
    files: { folders: async () => judgements.map((_, i) => `att_${i}.1`) } as unknown as Files,
    spawner: {
      bootId: "boot",
      judge: async ({ folder }: { folder: string }) => judgements[Number(folder.slice(4, -2))],
      end: act("end"),
      sweep: act("sweep"),
    } as unknown as Spawner,
    limits,
    weather: { persist: (_: string, call: () => Promise<unknown>) => call(), mishap: () => 0 } as unknown as Weather,
    log: () => {},
    knows: () => false,
  });
  return { calls: calls.toSorted((a, b) => (a < b ? -1 : 1)), strays };
}

test("what a taken over attempt left behind is ended too, also when its command has ended (simulator, seeds 10 and 95)", async () => {
  const { calls, strays } = await comeBack([live, over, lost]);
  expect(calls).toEqual(["end att_0.1 att_0", "sweep att_1.1 att_1", "sweep att_2.1 att_2"]);
  expect(strays).toBe(3);
});

test("what never started has left nothing", async () => {
  const { calls, strays } = await comeBack([{ kind: "never_started", why: "" }, { kind: "asked" }]);
  expect([calls, strays]).toEqual([[], 0]);
});
