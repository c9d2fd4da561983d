/** A process whose main thread beats a few times and then stalls. Arguments: kind, file or address, thread's file, patience. */
import { openPostgresStore } from "../../src/store/postgres.ts";
import { openWorkerStore } from "../../src/store/sqlite.ts";
import { migrations, table } from "./table.ts";

const [, , kind, place = "", thread = "", patienceMs = "1000"] = process.argv;
const clock = { now: () => Date.now() };
const handle =
  kind === "postgres"
    ? await openPostgresStore({ url: place, table, migrations, clock, heartbeat: new URL(thread) })
    : await openWorkerStore({ file: place, table, migrations, clock, writer: new URL(thread) });
let resolve: (answer: unknown) => void = () => undefined;
const renewed = new Promise((done) => {
  resolve = done;
});
const heartbeat = handle.startHeartbeat({
  operation: "hosts.renew",
  input: { host: "h" },
  everyMs: 50,
  patienceMs: Number(patienceMs),
  onAnswer: (answer) => resolve(answer),
});
heartbeat.beat(true);
await renewed;
process.stdout.write("stalling\n", () => {
  for (;;);
});
