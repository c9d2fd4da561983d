/**
 * P1, P1b, P2: durable steps a second through the real engine and store, with a spawner whose commands have ended as soon as
 * they are asked for: 32 runs of ten steps at a time, one lone run, and the same on PostgreSQL; against the same rows
 * written by hand in grouped and in single commits, and against DBOS on PostgreSQL.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import type { Store } from "../src/core/ports.ts";
import { systemClock } from "../src/execution/clock.ts";
import { operation, runAll } from "../src/store/operation.ts";
import { openStore, parseStoreAddress } from "../src/store/open.ts";
import { asStore, operations } from "../src/store/operations.ts";
import { chainOf, graphWrites } from "../test/graphs.ts";
import { commandOf, runDraft } from "../test/drafts.ts";
import { makeDatabase, startPostgres } from "../test/postgres.ts";
import { HOST, openDaemonStore, startBenchEngine } from "./engine.ts";
import { openFrame, sqliteFacts } from "./frame.ts";
import { openPeers } from "./peers.ts";
import { rawSteps } from "./raw-steps.ts";
import { ratioIn, type Sample } from "./rounds.ts";

const STEPS = 10;
const AT_ONCE = 32;

export interface StepsInput {
  /** The address of a store that is empty. */
  readonly store: string;
  readonly runs: number;
  /** Runs that are not counted: they come first. */
  readonly warm: number;
  readonly atOnce: number;
  /** Steps of a run. */
  readonly steps: number;
}

/** Runs of ten steps each through the engine: steps a second, and how long the event loop was held. */
async function engineSteps({ store: address, runs, warm, atOnce, steps: ofRun }: StepsInput): Promise<Sample> {
  const clock = systemClock();
  const place = parseStoreAddress(address, "/");
  const fill = operation("bench.fill", function* ({ runId }: { readonly runId: string }) {
    return yield* runAll(...graphWrites(runId, chainOf(ofRun)));
  });
  const table = { ...operations, bench: { fill } };
  const filling = await openStore({ address: place, table, clock, use: "write" });
  for (let i = 0; i < runs + warm; i++) {
    const { run } = await asStore(filling.store).runs.add(runDraft(commandOf(["true"]), { hostPin: HOST }));
    await filling.store.bench.fill({ runId: run.id });
  }
  await filling.close();

  const handle = await openDaemonStore(address);
  const store = asStore(handle.store);
  const held = monitorEventLoopDelay({ resolution: 1 });
  let ended = 0;
  let startedAt = 0;
  let usedBefore = process.cpuUsage();
  let onEnd: () => void = () => {};
  const over = new Promise<void>((done) => (onEnd = done));
  const counting: Store = {
    ...store,
    attempts: {
      ...store.attempts,
      async settle(input) {
        const answer = await store.attempts.settle(input);
        if (answer.run !== "succeeded") return answer;
        if (++ended === warm) {
          startedAt = performance.now();
          usedBefore = process.cpuUsage();
          held.enable();
        }
        if (ended === warm + runs) onEnd();
        return answer;
      },
    },
  };
  const engine = await startBenchEngine(counting, { atOnce, shared: handle.kind === "postgres" });
  await over;
  const ms = performance.now() - startedAt;
  held.disable();
  const { user, system } = process.cpuUsage(usedBefore);
  await engine.stop({ drainMs: 0, stopRuns: false });
  await handle.close();
  const steps = runs * ofRun;
  return { perSecond: (steps * 1_000) / ms, cpuUs: (user + system) / steps, heldP99: held.percentile(99) / 1e6 };
}

async function main(): Promise<void> {
  const frame = await openFrame({ bars: ["P1", "P1b", "P2"], cases: { engineSteps, rawSteps } });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  const server = await startPostgres({ durable: true });
  let places = 0;
  const inFile = async (name: "engineSteps" | "rawSteps", input: Omit<StepsInput, "store">): Promise<Sample> => {
    const own = join(folder, String(places++));
    mkdirSync(own);
    try {
      return await frame.inProcess(name, { ...input, store: `sqlite:${join(own, "drover.db")}` } satisfies StepsInput);
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
  };
  const inDatabase = async (name: "engineSteps" | "rawSteps", input: Omit<StepsInput, "store">): Promise<Sample> =>
    frame.inProcess(name, { ...input, store: await makeDatabase(server.url) } satisfies StepsInput);
  try {
    const peers = await openPeers(folder, server.url, frame.tiny);
    const { DBOS } = peers.versions;
    frame.about({
      ...sqliteFacts(),
      DBOS: DBOS ?? "",
      durability: "SQLite WAL, synchronous=FULL; PostgreSQL fsync and synchronous_commit on",
    });
    const many = { runs: frame.size(320, 4), warm: frame.size(32, 1), atOnce: AT_ONCE, steps: STEPS };
    const lone = { runs: frame.size(20, 2), warm: 2, atOnce: 1, steps: STEPS };
    const dbos = (runs: number, atOnce: number) => () => peers.run("dbos-rate", { count: runs, atOnce, steps: STEPS });
    const show = (what: string, samples: readonly Sample[]): void =>
      frame.measure(what, samples, "perSecond", "steps/s");
    if (frame.wants("P1")) {
      const taken = await frame.interleave({
        ours: () => inFile("engineSteps", many),
        raw: () => inFile("rawSteps", many),
        dbos: dbos(frame.size(96, 2), AT_ONCE),
      });
      show(`engine and store, ${AT_ONCE} runs at a time, SQLite`, taken.ours);
      show(`the same rows by hand, ${AT_ONCE} steps a commit`, taken.raw);
      frame.measure("processor time of a step, engine and store", taken.ours, "cpuUs", "us");
      frame.measure("processor time of a step, by hand", taken.raw, "cpuUs", "us");
      show(`DBOS, ${AT_ONCE} workflows at a time, PostgreSQL`, taken.dbos);
      frame.bar("P1", "steps / raw grouped commits of the same rows", ratioIn(taken.ours, taken.raw, "perSecond"), {
        atLeast: 0.25,
      });
      frame.bar("P1", "steps / DBOS on PostgreSQL", ratioIn(taken.ours, taken.dbos, "perSecond"), { atLeast: 20 });
      frame.value("P1b", `event loop held, ${AT_ONCE} runs at a time, p99`, taken.ours, "heldP99", "ms", {
        atMost: 3,
      });
    }
    if (frame.wants("P1b")) {
      const taken = await frame.interleave({
        ours: () => inFile("engineSteps", lone),
        raw: () => inFile("rawSteps", lone),
        dbos: dbos(frame.size(15, 2), 1),
      });
      show("engine and store, one run at a time, SQLite", taken.ours);
      show("the same rows by hand, one step a commit", taken.raw);
      show("DBOS, one workflow at a time, PostgreSQL", taken.dbos);
      frame.bar("P1b", "steps / raw single commits of the same rows", ratioIn(taken.ours, taken.raw, "perSecond"), {
        atLeast: 0.5,
      });
      frame.bar("P1b", "steps / DBOS on PostgreSQL", ratioIn(taken.ours, taken.dbos, "perSecond"), { atLeast: 5 });
    }
    if (frame.wants("P2")) {
      const fewer = { ...many, runs: frame.size(96, 4) };
      const taken = await frame.interleave({
        ours: () => inDatabase("engineSteps", fewer),
        raw: () => inDatabase("rawSteps", fewer),
        dbos: dbos(frame.size(96, 2), AT_ONCE),
      });
      show(`engine and store, ${AT_ONCE} runs at a time, PostgreSQL`, taken.ours);
      show("the same rows by hand, one step a commit, 16 connections", taken.raw);
      show(`DBOS, ${AT_ONCE} workflows at a time, PostgreSQL`, taken.dbos);
      frame.bar("P2", "steps / raw commits of the same rows", ratioIn(taken.ours, taken.raw, "perSecond"), {
        atLeast: 0.45,
      });
      const claims = await frame.interleave({
        ours: () => inDatabase("engineSteps", { ...many, runs: frame.size(640, 8), steps: 1 }),
        graphile: () => peers.run("graphile-rate", { count: frame.size(1_500, 20) }),
      });
      frame.measure(
        "runs of one step claimed and settled, tokens and leases on, PostgreSQL",
        claims.ours,
        "perSecond",
        "runs/s",
      );
      frame.measure("graphile-worker, no cap, ten at a time", claims.graphile, "perSecond", "jobs/s");
      frame.bar("P2", "claims / graphile-worker", ratioIn(claims.ours, claims.graphile, "perSecond"), { atLeast: 1 });
      frame.bar("P2", "steps / DBOS", ratioIn(taken.ours, taken.dbos, "perSecond"), { atLeast: 3 });
    }
    frame.end();
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
