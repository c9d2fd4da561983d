/** Entry of a writer's thread that serves the test table. */
import { serveWriter } from "../../src/store/sqlite-thread.ts";
import { table } from "./table.ts";

serveWriter(table);
