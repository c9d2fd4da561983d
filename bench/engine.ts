/** The real engine over a real store in the bench's own process, with a spawner whose commands have ended as soon as they are asked for. */
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { defaultLimits } from "../src/core/limits.ts";
import type { Agents, Files, Judgement, Spawner, Store, Worktrees } from "../src/core/ports.ts";
import { type Engine, startEngine } from "../src/engine/engine.ts";
import { systemClock } from "../src/execution/clock.ts";
import type { StoreHandle } from "../src/store/driver.ts";
import { openStore, parseStoreAddress } from "../src/store/open.ts";
import { operations } from "../src/store/operations.ts";

export const HOST = "host_00000000000000000000000001";

const noop = (): never => {
  throw new Error("runs of steps ask for no agent and no tree");
};
const agents: Agents = { traits: noop, read: noop, conclude: noop };
const worktrees: Worktrees = {
  place: noop,
  make: noop,
  enter: noop,
  look: noop,
  watch: noop,
  escaped: noop,
  remove: noop,
};
const files: Files = {
  tail: async () => ({ text: "", droppedBytes: 0 }),
  output: async () => null,
  unmet: async () => null,
  freeBytes: async () => 2 ** 40,
  folders: async () => [],
  remove: async () => {},
};

/** A spawner whose commands have ended well as soon as they are asked for. */
function instantSpawner(): Spawner {
  let ring: (folder: string) => void = () => {};
  const endedAt = new Map<string, number>();
  return {
    bootId: "bench",
    prepare: async () => {},
    async ask(folder) {
      endedAt.set(folder, Date.now());
      setImmediate(ring, folder);
    },
    async judge({ folder }): Promise<Judgement> {
      const at = endedAt.get(folder);
      if (at === undefined) return { kind: "asked" };
      endedAt.delete(folder);
      return { kind: "ended", exit: 0, startedAt: at, endedAt: at, durationMs: 0 };
    },
    end: async () => ({ killed: 0, left: 0, proof: "proved_empty" }),
    sweep: async () => ({ killed: 0, left: 0, proof: "proved_empty" }),
    measure: () => ({ stdoutBytes: 0, stderrBytes: 0, mark: 0 }),
    trim: async () => {},
    onBell: (listener) => (ring = listener),
    onReplaced: () => {},
    close: async () => {},
  };
}

/** A store as a daemon opens it. @param address of a file (`sqlite:FILE`) or a PostgreSQL database */
export const openDaemonStore = (address: string): Promise<StoreHandle<typeof operations>> =>
  openStore({
    address: parseStoreAddress(address, "/"),
    table: operations,
    clock: systemClock(),
    use: "daemon",
    workers: {
      writer: pathToFileURL(resolve("dist/sqlite-writer.mjs")),
      heartbeat: pathToFileURL(resolve("dist/postgres-heartbeat.mjs")),
    },
  });

/** An engine of the host `HOST`. @param shared whether other hosts may share the store */
export const startBenchEngine = (
  store: Store,
  { atOnce, shared }: { readonly atOnce: number; readonly shared: boolean },
): Promise<Engine> =>
  startEngine(
    {
      clock: systemClock(),
      random: { bytes: (count) => new Uint8Array(count) },
      store,
      spawner: instantSpawner(),
      files,
      notifier: { hook: async () => ({ exit: 0, tail: "" }) },
      agents,
      worktrees,
      startHeartbeat: () => ({ beat: () => {}, stop: async () => {} }),
      signToken: () => "",
      log: (level, event, data) => {
        if (level === "error") console.error(event, JSON.stringify(data));
      },
    },
    {
      host: {
        hostId: HOST,
        name: "bench",
        machineId: "m",
        bootId: "bench",
        version: "0",
        leaseMs: defaultLimits.leaseMs,
        commandCap: atOnce,
        agentCap: 1,
      },
      limits: defaultLimits,
      socket: "",
      untilIdle: false,
      sweepMs: shared ? 30_000 : null,
    },
  );
