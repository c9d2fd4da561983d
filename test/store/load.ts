/**
 * A process that writes a store as hard as it can with callers of whom some fail, and says on standard output, one a line,
 * what was acknowledged (`+ id`) and what was refused (`- id`). Arguments: kind, file or address, writer, callers, seed.
 */
import { writeSync } from "node:fs";
import { openPostgresStore } from "../../src/store/postgres.ts";
import { openWorkerStore } from "../../src/store/sqlite.ts";
import { migrations, table } from "./table.ts";

const [, , kind, place = "", writer = "", callers = "32", seed = "0"] = process.argv;
const clock = { now: () => Date.now() };
const { store } =
  kind === "postgres"
    ? await openPostgresStore({ url: place, table, migrations, clock })
    : await openWorkerStore({ file: place, table, migrations, clock, writer: new URL(writer) });
writeSync(1, "ready\n");
const call = async (caller: number): Promise<never> => {
  for (let i = 0; ; i++) {
    const id = `${seed}.${caller}.${i}`;
    if (i % 7 === 3) {
      await (i % 2 === 0 ? store.notes.collide({ id }) : store.notes.refuse({ id })).catch(() => undefined);
      writeSync(1, `- ${id}\n`);
    } else {
      await store.notes.add({ id, body: "x".repeat(50), parts: 3 });
      writeSync(1, `+ ${id}\n`);
    }
  }
};
await Promise.all(Array.from({ length: Number(callers) }, (_, caller) => call(caller)));
