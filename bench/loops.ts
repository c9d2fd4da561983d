/**
 * P5: what many loops cost: the tick of an engine with 100,000 loops of which none is due, against one on an empty store;
 * the memory of 10,000 that are due in one second, against 10,000 jobs of croner; and what is asked and written at rest.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { defaultLimits } from "../src/core/limits.ts";
import { loopPolicy } from "../src/core/loop.ts";
import type { Store } from "../src/core/ports.ts";
import { asStore } from "../src/store/operations.ts";
import { commandOf } from "../test/drafts.ts";
import { sqliteDatabase } from "./database.ts";
import { HOST, openDaemonStore, startBenchEngine } from "./engine.ts";
import { openFrame, sqliteFacts } from "./frame.ts";
import { usageOf } from "./homes.ts";
import { quantile, ratioIn, type Sample } from "./rounds.ts";

const IDLE_LOOPS = 100_000;
const DUE_LOOPS = 10_000;
const TICKS = 200;
/** What a start looks at, the first round of the janitor included, and the checkpoint of its last writes are over by then. */
const SETTLE_MS = defaultLimits.watchMs + 3_000;
const DAY_MS = 86_400_000;
const MIB = 2 ** 20;

interface LoopsInput {
  readonly folder: string;
  readonly loops: number;
  /** When they are due, in ms from now. */
  readonly dueInMs: number;
  /** How long a rest is watched. */
  readonly restMs: number;
}

/** A store with so many loops, all alike but for their names: one that is added, and copies of its row. */
async function makeLoops({ folder, loops, dueInMs }: LoopsInput): Promise<{ address: string; dueAt: number }> {
  mkdirSync(folder, { recursive: true });
  const file = join(folder, "drover.db");
  const handle = await openDaemonStore(`sqlite:${file}`);
  const store = asStore(handle.store);
  const host = { hostId: HOST, name: "bench", machineId: "m", bootId: "bench", version: "0" };
  await store.hosts.join({ ...host, leaseMs: defaultLimits.leaseMs, commandCap: 256, agentCap: 1 });
  if (loops > 0)
    await store.loops.add({
      draft: {
        name: "one",
        schedule: { kind: "interval", everyMs: DAY_MS, anchorAt: 0 },
        target: commandOf(["true"]),
        policy: loopPolicy.parse({}),
        hostPin: HOST,
        managedBy: null,
      },
      limits: defaultLimits,
    });
  await handle.close();
  const database = sqliteDatabase(file);
  if (loops > 1) {
    const columns = (await database.run("select name from pragma_table_info('loops')")).map(({ name }) => String(name));
    const own: Readonly<Record<string, string>> = {
      id: "'loop_' || substr('00000000000000000000000000' || k.i, -26)",
      name: "'copy-' || k.i",
      suffix_key: "'copy-' || k.i",
    };
    await database.run(`insert into loops (${columns.join(", ")})
      with recursive k(i) as (select 2 union all select i + 1 from k where i < ${loops})
      select ${columns.map((name) => own[name] ?? `l.${name}`).join(", ")} from loops l, k`);
  }
  // However long that took: none may be late.
  const dueAt = Date.now() + dueInMs;
  await database.run(
    `update loops set schedule = json_set(schedule, '$.anchorAt', ${dueAt - DAY_MS}), next_at = ${dueAt}, wake_at = ${dueAt}`,
  );
  await database.close();
  return { address: `sqlite:${file}`, dueAt };
}

/** What an engine asks at a wake-up, again and again: the median of its time. */
async function tick(input: LoopsInput): Promise<Sample> {
  const handle = await openDaemonStore((await makeLoops(input)).address);
  const store = asStore(handle.store);
  const taken: number[] = [];
  for (let i = 0; i < TICKS; i++) {
    const startedAt = performance.now();
    await Promise.all([
      store.loops.planDue({ cause: "late", limits: defaultLimits }),
      store.steps.wake({ limit: defaultLimits.wakeSteps }),
      store.admission.pass({ hostId: HOST, limits: defaultLimits }),
    ]);
    taken.push(performance.now() - startedAt);
  }
  await handle.close();
  return { ms: quantile(taken.slice(TICKS / 10), 0.5) };
}

/** A store whose calls are counted, and runs that succeeded. */
function counted(store: Store): { readonly store: Store; calls(): number; ended(): number } {
  let calls = 0;
  let ended = 0;
  const counting = (name: string, call: (input: unknown) => Promise<unknown>) => async (input: unknown) => {
    calls++;
    const answer = await call(input);
    if (name === "attempts.settle" && (answer as { run: string }).run === "succeeded") ended++;
    return answer;
  };
  const nouns = Object.entries(
    store as unknown as Record<string, Record<string, (input: unknown) => Promise<unknown>>>,
  );
  const wrapped = nouns.map(([noun, verbs]) => [
    noun,
    Object.fromEntries(Object.entries(verbs).map(([verb, call]) => [verb, counting(`${noun}.${verb}`, call)])),
  ]);
  return { store: Object.fromEntries(wrapped) as Store, calls: () => calls, ended: () => ended };
}

/** An engine at rest: what it asks, writes and holds. */
async function rest(input: LoopsInput): Promise<Sample> {
  const handle = await openDaemonStore((await makeLoops(input)).address);
  const { store, calls } = counted(asStore(handle.store));
  const engine = await startBenchEngine(store, { atOnce: 256, shared: false });
  await pause(SETTLE_MS);
  const written = () => usageOf(process.pid)?.written ?? 0;
  const before = { calls: calls(), written: written() };
  await pause(input.restMs);
  const sample = {
    calls: calls() - before.calls,
    writtenBytes: written() - before.written,
    residentMib: process.memoryUsage().rss / MIB,
  };
  await engine.stop({ drainMs: 0, stopRuns: false });
  await handle.close();
  return sample;
}

/** Loops that are due in one second: how far memory grows until all have run, and how long that took. */
async function due(input: LoopsInput): Promise<Sample> {
  const { address, dueAt } = await makeLoops(input);
  const handle = await openDaemonStore(address);
  const { store, ended } = counted(asStore(handle.store));
  const engine = await startBenchEngine(store, { atOnce: 256, shared: false });
  let most = 0;
  const endsAt = performance.now() + 280_000;
  while (ended() < input.loops || Date.now() < dueAt + 1_000) {
    most = Math.max(most, process.memoryUsage().rss);
    if (performance.now() > endsAt) throw new Error(`${ended()} of ${input.loops} loops had run`);
    await pause(20);
  }
  const ms = Date.now() - dueAt;
  await engine.stop({ drainMs: 0, stopRuns: false });
  await handle.close();
  return { residentMib: most / MIB, ms };
}

/** Jobs of croner, one timer each, none of them due. */
async function croner({ loops }: LoopsInput): Promise<Sample> {
  const { Cron } = await import("croner");
  const before = process.memoryUsage().rss;
  const jobs = Array.from({ length: loops }, (_, i) => new Cron(`${i % 60} ${(i * 7) % 60} 3 1 1 *`, () => {}));
  const grown = process.memoryUsage().rss - before;
  for (const job of jobs) job.stop();
  return { grownMib: grown / MIB };
}

const cases = { tick, rest, due, croner };

async function main(): Promise<void> {
  const frame = await openFrame({ bars: ["P5"], cases });
  const folder = mkdtempSync(join(tmpdir(), "drover-bench-"));
  let places = 0;
  const inOwn = async (name: keyof typeof cases, loops: number, dueInMs: number): Promise<Sample> => {
    const own = join(folder, String(places++));
    const input: LoopsInput = { folder: own, loops, dueInMs, restMs: frame.size(10_000, 500) };
    try {
      return await frame.inProcess(name, input);
    } finally {
      rmSync(own, { recursive: true, force: true });
    }
  };
  try {
    frame.about({ ...sqliteFacts(), croner: "11.0.1", durability: "SQLite WAL, synchronous=FULL" });
    const [idle, many, soonMs] = [frame.size(IDLE_LOOPS, 200), frame.size(DUE_LOOPS, 20), frame.size(15_000, 10_000)];
    const taken = await frame.interleave({
      tick: () => inOwn("tick", idle, DAY_MS),
      tickEmpty: () => inOwn("tick", 0, DAY_MS),
      rest: () => inOwn("rest", idle, DAY_MS),
      due: () => inOwn("due", many, soonMs),
      dueEmpty: () => inOwn("due", 0, soonMs),
      croner: () => inOwn("croner", many, 0),
    });
    frame.measure(`tick with ${idle} loops, none due`, taken.tick, "ms", "ms");
    frame.measure("tick on an empty store", taken.tickEmpty, "ms", "ms");
    frame.measure(`${many} loops due in one second: until all have run`, taken.due, "ms", "ms");
    frame.measure("largest resident memory meanwhile", taken.due, "residentMib", "MiB");
    frame.measure("resident memory of an engine on an empty store", taken.dueEmpty, "residentMib", "MiB");
    frame.measure(`croner, ${many} jobs: memory grown by`, taken.croner, "grownMib", "MiB");
    const grown = taken.due.map((sample, round) => ({
      grownMib: (sample["residentMib"] ?? Number.NaN) - (taken.dueEmpty[round]?.["residentMib"] ?? Number.NaN),
    }));
    frame.bar("P5", "tick with many loops / on an empty store", ratioIn(taken.tick, taken.tickEmpty, "ms"), {
      atMost: 2,
    });
    frame.bar("P5", "memory grown by loops due in one second / croner's", ratioIn(grown, taken.croner, "grownMib"), {
      atMost: 0.05,
    });
    frame.value("P5", "calls of the store at rest", taken.rest, "calls", "", { atMost: 0 });
    frame.value("P5", "bytes written at rest", taken.rest, "writtenBytes", "bytes", { atMost: 0 });
    frame.end();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

await main();
