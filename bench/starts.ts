/**
 * P4, P11: how soon a child's first instruction runs: of 100 loops that are due in the same second, against one timer that
 * spawns as many at once; after a request on an idle daemon, and from freed capacity to the next start, each less the bare
 * spawn of the same round, against the queues BullMQ and graphile-worker, whose jobs start no process.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Cluster, makeDatabase, startPostgres } from "../test/postgres.ts";
import { startDaemon } from "./daemon.ts";
import { openFrame, sqliteFacts } from "./frame.ts";
import { openPeers, type PeerCase } from "./peers.ts";
import { quantile, ratioIn, type Sample } from "./rounds.ts";
import { spawnStamp, STAMP, stampOf, wallMs } from "./stamps.ts";

const LOOPS = 100;
const REQUESTS = 60;
/** Nothing old is removed meanwhile, and the disk may be nearly full. */
const SETTINGS = "limits:\n  retentionMs: 315360000000\n";
const ONE_AT_A_TIME = `${SETTINGS}  commandCap: 1\n`;

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));
const spread = (values: readonly number[]): Sample => ({
  p50: quantile(values, 0.5),
  p99: quantile(values, 0.99),
  max: Math.max(...values),
});

interface Sizes {
  readonly folder: string;
  readonly count: number;
  readonly store: string | null;
}

/** One timer, all spawned at once. */
async function bareTimer({ folder, count }: Sizes): Promise<Sample> {
  mkdirSync(folder, { recursive: true });
  const dueAt = Math.ceil((wallMs() + 1_000) / 1_000) * 1_000;
  await pause(dueAt - wallMs() - 5);
  while (wallMs() < dueAt) await pause(0.5);
  const started = await Promise.all(Array.from({ length: count }, (_, i) => spawnStamp(folder, String(i))));
  return spread(started.map(({ at }) => at - dueAt));
}

/** Loops that are due in the same second, in a daemon that is at rest until then. */
async function dueLoops({ folder, count, store }: Sizes): Promise<Sample> {
  const daemon = startDaemon(folder, SETTINGS, store);
  try {
    // On a busy machine too they are all there by then.
    const addMs = 4_000 + count * 80;
    const dueAt = Math.ceil((wallMs() + addMs) / 1_000) * 1_000;
    const at = new Date(dueAt).toISOString();
    const add = (i: number) => daemon.call("loop.add", { name: `due-${i}`, at, cwd: "/", command: STAMP });
    await Promise.all(Array.from({ length: count }, (_, i) => add(i)));
    if (wallMs() > dueAt - 200) throw new Error("the loops were not added in time");
    await pause(dueAt - wallMs());
    const texts = await daemon.printed(count);
    return spread(texts.map((text) => stampOf(text) - dueAt));
  } finally {
    daemon.down();
  }
}

/** From the call of a bare spawn to the child's first instruction: one after another, with pauses as of the requests. */
async function bareSpawns({ folder, count }: Sizes): Promise<Sample> {
  mkdirSync(folder, { recursive: true });
  const taken: number[] = [];
  for (let i = 0; i < count; i++) {
    const calledAt = wallMs();
    taken.push((await spawnStamp(folder, String(i))).at - calledAt);
    await pause(gapOf(i));
  }
  return spread(taken);
}

const gapOf = (i: number): number => 15 + ((i * 7_919) % 31);

/** From a request to the child's first instruction. */
async function requests({ folder, count, store }: Sizes): Promise<Sample> {
  const daemon = startDaemon(folder, SETTINGS, store);
  try {
    const run = () => daemon.call("run", { cwd: "/", command: STAMP, detach: true });
    // The first one makes the resident spawner.
    await run();
    await daemon.printed(1);
    await pause(300);
    const calledAt: number[] = [];
    const acceptedAt: number[] = [];
    for (let i = 0; i < count; i++) {
      calledAt.push(wallMs());
      await run();
      acceptedAt.push(wallMs());
      // Idle again: what is measured is one request alone.
      await daemon.printed(i + 2);
      await pause(40 + gapOf(i));
    }
    const stamps = (await daemon.printed(count + 1)).map(stampOf).toSorted((a, b) => a - b);
    const from = (times: readonly number[]) => spread(stamps.slice(1).map((stamp, i) => stamp - (times[i] ?? 0)));
    const [called, accepted] = [from(calledAt), from(acceptedAt)];
    return { ...called, acceptedP50: accepted["p50"] ?? 0, acceptedP99: accepted["p99"] ?? 0 };
  } finally {
    daemon.down();
  }
}

/** With one at a time: from one child's first instruction to the next one's. */
async function freed({ folder, count, store }: Sizes): Promise<Sample> {
  const daemon = startDaemon(folder, ONE_AT_A_TIME, store);
  try {
    for (let i = 0; i < count; i++) await daemon.call("run", { cwd: "/", command: STAMP, detach: true });
    const stamps = (await daemon.printed(count)).map(stampOf).toSorted((a, b) => a - b);
    // Those that started while others were still being added had something else to wait for.
    const gaps = stamps.slice(1).map((stamp, i) => stamp - (stamps[i] ?? 0));
    return spread(gaps.slice(Math.floor(gaps.length / 2)));
  } finally {
    daemon.down();
  }
}

const less = (samples: readonly Sample[], bare: readonly Sample[], measure: string): readonly Sample[] =>
  samples.map((sample, round) => ({
    [measure]: Math.max(0.01, (sample[measure] ?? Number.NaN) - (bare[round]?.["p50"] ?? Number.NaN)),
  }));

async function main(): Promise<void> {
  const frame = await openFrame({
    bars: ["P4", "P11"],
    cases: { bareTimer, dueLoops, bareSpawns, requests, freed },
  });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  let places = 0;
  const inOwn = async (name: string, count: number, store: string | null = null): Promise<Sample> => {
    const own = join(folder, String(places++));
    try {
      return await frame.inProcess(name, { folder: own, count, store } satisfies Sizes);
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
  };
  let cluster: Cluster | null = null;
  try {
    if (frame.wants("P4")) {
      frame.about({ ...sqliteFacts(), durability: "SQLite WAL, synchronous=FULL" });
      const count = frame.size(LOOPS, 5);
      const taken = await frame.interleave({
        ours: () => inOwn("dueLoops", count),
        floor: () => inOwn("bareTimer", count),
      });
      frame.measure(`${count} loops due in one second: 99th percentile of the start`, taken.ours, "p99", "ms");
      frame.measure("one timer, all spawned at once", taken.floor, "p99", "ms");
      frame.bar("P4", "p99 of the start / one timer, all spawned at once", ratioIn(taken.ours, taken.floor, "p99"), {
        atMost: 1.5,
      });
    }
    if (frame.wants("P11")) {
      const server = (cluster = await startPostgres({ durable: true }));
      const peers = await openPeers(folder, server.url, frame.tiny);
      frame.about({
        ...sqliteFacts(),
        ...peers.versions,
        durability:
          "SQLite WAL, synchronous=FULL; PostgreSQL fsync and synchronous_commit on; Redis appendfsync always",
      });
      const count = frame.size(REQUESTS, 4);
      const database = () => makeDatabase(server.url);
      const peer = (name: PeerCase) => () => peers.run(name, { count });
      const taken = await frame.interleave({
        bare: () => inOwn("bareSpawns", count),
        ours: () => inOwn("requests", count),
        freed: () => inOwn("freed", count),
        oursPostgres: async () => inOwn("requests", count, await database()),
        freedPostgres: async () => inOwn("freed", count, await database()),
        graphile: peer("graphile-latency"),
        // Where there is no Redis a sample of nothing stands for it, and no ratio is made of it.
        bullmq: peers.redis ? peer("bullmq-latency") : () => ({}),
      });
      const show = (what: string, samples: readonly Sample[]): void => {
        frame.measure(`${what}, median`, samples, "p50", "ms");
        frame.measure(`${what}, 99th percentile`, samples, "p99", "ms");
      };
      show("bare spawn to its first instruction", taken.bare);
      show("request to first instruction, SQLite", taken.ours);
      show("freed to next start, SQLite", taken.freed);
      show("request to first instruction, PostgreSQL", taken.oursPostgres);
      show("freed to next start, PostgreSQL", taken.freedPostgres);
      if (peers.redis) show("BullMQ, call to handler", taken.bullmq);
      show("graphile-worker, call to handler", taken.graphile);
      for (const [store, start, next, against, most] of [
        ["SQLite", taken.ours, taken.freed, taken.bullmq, 1],
        ["PostgreSQL", taken.oursPostgres, taken.freedPostgres, taken.graphile, 1.2],
      ] as const) {
        const other = store === "SQLite" ? "BullMQ" : "graphile-worker";
        for (const [what, samples, of] of [
          ["request to start", start, "p50"],
          ["freed to next", next, "freedP50"],
        ] as const) {
          const own = less(samples, taken.bare, "p50");
          if (store !== "SQLite" || peers.redis)
            frame.bar("P11", `${what} less bare spawn, ${store} / ${other}`, ratioIn(own, against, "p50", of), {
              atMost: most,
            });
          frame.value("P11", `${what} less bare spawn, ${store}, p99`, less(samples, taken.bare, "p99"), "p99", "ms", {
            atMost: 50,
          });
        }
      }
    }
    frame.end();
  } finally {
    await cluster?.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
