/** `npm run sim -- --seed N --for 30d`: runs seeds and says what was broken. */
import { parseArgs } from "node:util";
import { parseDuration } from "../../src/core/duration.ts";
import { startPostgres } from "../postgres.ts";
import type { Plant } from "./plants.ts";
import { simulate } from "./simulate.ts";

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: "1" },
    seeds: { type: "string", default: "1" },
    for: { type: "string", default: "30d" },
    hosts: { type: "string", default: "1" },
    loops: { type: "string", default: "10" },
    faults: { type: "string", default: "on" },
    plant: { type: "string" },
    store: { type: "string", default: "sqlite" },
    trace: { type: "boolean", default: false },
  },
});

const days = parseDuration(values.for) / 86_400_000;
const cluster = values.store === "postgres" ? await startPostgres() : undefined;
let failures = 0;
for (let i = 0; i < Number(values.seeds); i++) {
  const report = await simulate({
    seed: Number(values.seed) + i,
    days,
    hosts: Number(values.hosts),
    loops: Number(values.loops),
    faults: values.faults !== "off",
    ...(cluster === undefined ? {} : { cluster }),
    ...(values.plant === undefined ? {} : { plant: values.plant as Plant }),
    ...(values.trace ? { trace: (line: string) => process.stdout.write(`${line}\n`) } : {}),
  });
  const slots = Object.entries(report.slots).map(([outcome, count]) => `${outcome} ${count}`);
  process.stdout.write(
    `seed ${report.seed}: ${report.steps} steps, ${report.crashes} crashes, slots: ${slots.join(", ")}\n`,
  );
  if (report.broken !== null) {
    failures++;
    process.stderr.write(`BROKEN ${report.broken}\n`);
  }
}
await cluster?.stop();
process.exitCode = failures === 0 ? 0 : 1;
