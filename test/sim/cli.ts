/** `npm run sim -- --seed N --for 30d` runs seeds and says what was broken; `npm run sim:soak` runs them until stopped. */
import { parseArgs } from "node:util";
import { parseDuration } from "../../src/core/duration.ts";
import { startPostgres } from "../postgres.ts";
import type { Plant } from "./plants.ts";
import { mixOf, shrink, type SimOptions, type SimReport, simulate } from "./simulate.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    /** How many; a soak has no end of its own. */
    seeds: { type: "string" },
    for: { type: "string" },
    hosts: { type: "string" },
    loops: { type: "string" },
    faults: { type: "string", default: "on" },
    without: { type: "string" },
    plant: { type: "string" },
    store: { type: "string", default: "sqlite" },
    trace: { type: "boolean", default: false },
    /** Every seed with its own length, hosts and loops, a line a minute, and what is broken made smaller. */
    soak: { type: "boolean", default: false },
  },
});

/** How long a broken seed may be made smaller. */
const SHRINK_MS = 120_000;
const LINE_MS = 60_000;

const cluster = values.store === "postgres" ? await startPostgres() : undefined;

function optionsOf(seed: number): SimOptions {
  const usual = values.soak ? mixOf(seed) : { seed, days: 30, hosts: 1, loops: 10 };
  return {
    ...usual,
    ...(values.for === undefined ? {} : { days: parseDuration(values.for) / 86_400_000 }),
    ...(values.hosts === undefined ? {} : { hosts: Number(values.hosts) }),
    ...(values.loops === undefined ? {} : { loops: Number(values.loops) }),
    ...(values.without === undefined ? {} : { without: values.without.split(",") }),
    ...(values.plant === undefined ? {} : { plant: values.plant as Plant }),
    ...(values.trace ? { trace: (line: string) => void process.stdout.write(`${line}\n`) } : {}),
    ...(cluster === undefined ? {} : { cluster }),
    faults: values.faults !== "off",
  };
}

const say = (line: string) => void process.stdout.write(`${line}\n`);

async function tell(report: SimReport): Promise<void> {
  const { broken } = report;
  if (broken === null) return;
  process.stderr.write(`BROKEN ${broken.invariant}: ${broken.what}\n${broken.again}\n`);
  if (!values.soak) return;
  const endsAt = performance.now() + SHRINK_MS;
  const small = await shrink(report, () => performance.now() < endsAt && !stopped);
  process.stderr.write(`smaller: ${small.broken?.again ?? ""}\n`);
}

let stopped = false;
for (const signal of ["SIGINT", "SIGTERM"] as const)
  process.on(signal, () => {
    if (stopped) process.exit(1);
    stopped = true;
  });

const first = Number(values.seed);
const count = values.seeds === undefined ? (values.soak ? Number.POSITIVE_INFINITY : 1) : Number(values.seeds);
const startedAt = performance.now();
let saidAt = startedAt;
const sum = { seeds: 0, claims: 0, steps: 0, crashes: 0, faults: 0, days: 0, broken: 0 };
const sumLine = () => {
  const minutes = (performance.now() - startedAt) / 60_000;
  return `${sum.claims} claims, ${sum.seeds} seeds (${first} to ${first + sum.seeds - 1}), ${Math.round(sum.days)} days, ${sum.steps} steps, ${sum.faults} faults, ${sum.crashes} crashes, ${sum.broken} broken; ${Math.round(sum.claims / minutes)} claims a minute`;
};
for (let i = 0; i < count && !stopped; i++) {
  const report = await simulate(optionsOf(first + i));
  sum.seeds++;
  sum.claims += report.claims;
  sum.steps += report.steps;
  sum.crashes += report.crashes;
  sum.faults += report.struck.length;
  sum.days += report.days;
  if (report.broken !== null) sum.broken++;
  if (!values.soak) {
    const slots = Object.entries(report.slots).map(([outcome, many]) => `${outcome} ${many}`);
    say(
      `seed ${first + i}: ${report.steps} steps, ${report.claims} claims, ${report.struck.length} faults, ${report.crashes} crashes, slots: ${slots.join(", ")}`,
    );
  } else if (performance.now() - saidAt > LINE_MS) {
    saidAt = performance.now();
    say(sumLine());
  }
  await tell(report);
}
await cluster?.stop();
if (values.soak) say(sumLine());
process.exitCode = sum.broken === 0 ? 0 : 1;
