/** Entry of the heartbeat's thread for the test table on PostgreSQL. */
import { serveHeartbeat } from "../../src/store/postgres-thread.ts";
import { table } from "./table.ts";

serveHeartbeat(table);
