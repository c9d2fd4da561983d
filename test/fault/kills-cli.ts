/** `npm run kills -- --store sqlite|postgres --count N --seed S`: real kills until there are that many, and what they were. */
import { resolve } from "node:path";
import { parseArgs } from "node:util";
import { startPostgres } from "../postgres.ts";
import { freshDatabase, killsOf, noTally, ordeal, serverKiller, type Tally } from "./ordeal.ts";

const { values } = parseArgs({
  options: {
    store: { type: "string", default: "sqlite" },
    count: { type: "string", default: "100" },
    seed: { type: "string", default: "1" },
    /** Kills of one home, and homes side by side. */
    each: { type: "string", default: "50" },
    homes: { type: "string", default: "3" },
    program: { type: "string", default: "dist/drover.js" },
  },
});

const count = Number(values.count);
const cluster = values.store === "postgres" ? await startPostgres({ durable: "crash" }) : null;
const killServer = cluster === null ? undefined : serverKiller(cluster);
const total = noTally();
let seed = Number(values.seed);
let failures = 0;
const startedAt = performance.now();

/** Homes one after the other, until all of them together have enough. */
async function homes(): Promise<void> {
  while (killsOf(total) < count) {
    const own = seed++;
    try {
      const tally = await ordeal({
        seed: own,
        kills: Math.min(Number(values.each), count),
        programs: [resolve(values.program)],
        ...(cluster === null || killServer === undefined
          ? {}
          : {
              database: await freshDatabase(cluster),
              killServer,
              withPeer: own % 4 === 0,
            }),
      });
      for (const kind of Object.keys(total) as (keyof Tally)[]) total[kind] += tally[kind];
      tell(`seed ${own}: ${described(tally)}`);
    } catch (error) {
      failures += 1;
      process.stderr.write(`BROKEN ${error instanceof Error ? error.message : String(error)}\n`);
      if (failures >= 5) return;
    }
  }
}

const described = (tally: Tally): string =>
  [`${killsOf(tally)} kills`, ...Object.entries(tally).map(([kind, n]) => `${kind} ${n}`)].join(", ");
const tell = (line: string): void => void process.stdout.write(`${line}\n`);

try {
  await Promise.all(Array.from({ length: Number(values.homes) }, homes));
} finally {
  await cluster?.stop();
}
const seconds = (performance.now() - startedAt) / 1_000;
tell(`${values.store}: ${described(total)}; ${seconds.toFixed(0)} s, ${failures} broken`);
process.exitCode = failures === 0 ? 0 : 1;
