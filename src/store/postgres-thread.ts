/** The heartbeat's thread of a PostgreSQL store: one connection, one operation, as long as the main thread beats. */
import { parentPort, workerData } from "node:worker_threads";
import { ensure } from "../core/errors.ts";
import { toStoreError, toWire } from "./errors.ts";
import type { OperationTable } from "./operation.ts";
import { openPostgresStore, placeOf } from "./postgres.ts";
import type { FromHeartbeat, HeartbeatData } from "./postgres.ts";
import { pulseOf, watchPulse } from "./pulse.ts";

/** Serves as a worker's whole life. For the entry file of a worker and nothing else. */
export function serveHeartbeat(table: OperationTable): void {
  const port = parentPort;
  ensure(port, "the heartbeat is a worker");
  const { url, schema, namedStatements, operation, input, everyMs, patienceMs, pulse, migrations } =
    workerData as HeartbeatData;
  const [noun = "", verb = ""] = operation.split(".");
  const say = (message: FromHeartbeat): void => port.postMessage(message);
  const open = () =>
    openPostgresStore({
      url,
      table,
      clock: { now: () => Date.now() },
      namedStatements,
      // A renewal that is still tried when the next one is due would only delay it.
      limits: { poolSize: 1, retryMs: everyMs / 2, connectMs: everyMs / 2 },
      ...(schema === null ? {} : { schema }),
      ...(migrations === null ? {} : { migrations }),
    });
  let handle: ReturnType<typeof open> | undefined;
  const renew = async (): Promise<void> => {
    try {
      handle ??= open();
      const { store } = await handle;
      const call = store[noun]?.[verb] as ((given: unknown) => Promise<unknown>) | undefined;
      ensure(call, `the heartbeat does not know ${operation}`);
      say({ value: await call(input) });
    } catch (error) {
      // The store could not be opened: the next beat tries again.
      const opened = await handle?.catch(() => undefined);
      if (!opened) handle = undefined;
      say({ error: toWire(toStoreError(error, placeOf(url), operation), operation) });
    }
  };
  let renewing = false;
  watchPulse(pulseOf(pulse), { everyMs, patienceMs }, () => {
    // On PostgreSQL other hosts watch this one, at work or not.
    if (renewing) return;
    renewing = true;
    void renew().finally(() => {
      renewing = false;
    });
  });
}
