/** Entry of the heartbeat's thread of a PostgreSQL store. */
import { operations } from "./operations.ts";
import { serveHeartbeat } from "./postgres-thread.ts";

serveHeartbeat(operations);
