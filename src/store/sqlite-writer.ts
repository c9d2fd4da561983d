/** Entry of the SQLite writer's thread. */
import { operations } from "./operations.ts";
import { serveWriter } from "./sqlite-thread.ts";

serveWriter(operations);
