/** A daemon that was stopped like a sleeping laptop, and one that was down: the same instants end in the same words. */
import { expect, test } from "vitest";
import { install, until, type Installation } from "./installation.ts";

interface Slot {
  readonly at: string;
  readonly outcome: string | null;
  readonly reason: string | null;
  readonly lateMs: number;
  readonly runId: string | null;
}

const POLICIES = ["latest", "all", "none"] as const;
const AWAY_MS = 6_000;

/** The wall clock itself is what is waited for: instants pass whether anybody looks or not. */
const passed = (ms: number, from = Date.now()) => until("instants to pass", () => Date.now() >= from + ms);

const slotsOf = async (at: Installation, loop: string) =>
  (await at.json<{ items: Slot[] }>("loop", "slots", loop, "--each", "--limit", "100")).items.toReversed();

async function story(away: (at: Installation) => Promise<void>): Promise<Record<string, Slot[]>> {
  const at = install();
  try {
    expect((await at.run("up")).status).toBe(0);
    for (const policy of POLICIES)
      await at.json(
        "loop",
        "add",
        policy,
        "--every",
        "1s",
        "--catch-up",
        policy,
        "--catch-up-limit",
        "2",
        "--overlap",
        "queue",
        "--",
        "true",
      );
    await until("each loop to have run", async () =>
      (await Promise.all(POLICIES.map((policy) => slotsOf(at, policy)))).every((slots) =>
        slots.some((slot) => slot.outcome === "succeeded"),
      ),
    );
    await away(at);
    const back = Date.now();
    await until("each loop to have run again", async () =>
      (await Promise.all(POLICIES.map((policy) => slotsOf(at, policy)))).every((slots) =>
        slots.some((slot) => slot.outcome === "succeeded" && Date.parse(slot.at) > back),
      ),
    );
    // Up to the first that ran on return: a busy machine makes later ones late too, and that is not what is looked at.
    const seen = await until("all of them to have an outcome", async () => {
      const told = await Promise.all(
        POLICIES.map(async (policy) => {
          const slots = await slotsOf(at, policy);
          const last = slots.findIndex((slot) => slot.outcome === "succeeded" && Date.parse(slot.at) > back);
          return [policy, slots.slice(0, last + 1)] as const;
        }),
      );
      return told.every(([, slots]) => slots.every((slot) => slot.outcome !== null)) ? told : null;
    });
    return Object.fromEntries(seen);
  } finally {
    await at.close();
  }
}

function tells(told: Record<string, Slot[]>, causes: readonly string[]): void {
  for (const [policy, slots] of Object.entries(told)) {
    // Contiguous, each once, each with a word.
    slots.forEach((slot, i) => {
      const before = slots[i - 1];
      if (before !== undefined) expect(Date.parse(slot.at) - Date.parse(before.at), `${policy} ${slot.at}`).toBe(1_000);
      expect(slot.outcome, `${policy} ${slot.at}`).not.toBeNull();
    });
    const late = slots.filter((slot) => slot.lateMs > 1_000);
    expect(late.length, policy).toBeGreaterThanOrEqual(AWAY_MS / 1_000 - 2);
    const words = late.map((slot) => slot.outcome);
    if (policy === "none") {
      expect(new Set(words)).toEqual(new Set(["missed"]));
      for (const slot of late) expect(causes).toContain(slot.reason);
    }
    // The newest of them, or the on-time one behind them, runs; all others are joined into it.
    if (policy === "latest") {
      expect(words.filter((word) => word === "succeeded").length).toBeLessThanOrEqual(1);
      expect(words.filter((word) => word === "coalesced").length).toBeGreaterThanOrEqual(late.length - 1);
    }
    if (policy === "all") {
      expect(words.filter((word) => word === "succeeded")).toHaveLength(2);
      expect(late.filter((slot) => slot.outcome === "missed").every((slot) => slot.reason === "limit")).toBe(true);
    }
  }
}

test("B-048 B-049 asleep: SIGSTOP over six slots", async () => {
  const told = await story(async (at) => {
    const [pid] = at.daemons();
    process.kill(pid as number, "SIGSTOP");
    await passed(AWAY_MS);
    process.kill(pid as number, "SIGCONT");
  });
  tells(told, ["asleep", "late"]);
});

test("B-048 down: the daemon is killed and started again after six slots", async () => {
  const told = await story(async (at) => {
    const [pid] = at.daemons();
    process.kill(pid as number, "SIGKILL");
    await passed(AWAY_MS);
    expect((await at.run("up")).status).toBe(0);
  });
  tells(told, ["down"]);
});
